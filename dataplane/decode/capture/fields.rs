//! Integers of either byte order, taken one after another.

/// Byte order of a file or section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Endian {
    Big,
    Little,
}

impl Endian {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Endian::Big => u16::from_be_bytes(bytes),
            Endian::Little => u16::from_le_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Big => u32::from_be_bytes(bytes),
            Endian::Little => u32::from_le_bytes(bytes),
        }
    }

    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Endian::Big => i64::from_be_bytes(bytes),
            Endian::Little => i64::from_le_bytes(bytes),
        }
    }
}

/// Fields of a header, in file order. Running out gives `None`.
pub(super) struct Fields<'a> {
    endian: Endian,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(endian: Endian, bytes: &'a [u8]) -> Self {
        Fields { endian, bytes }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*array)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| self.endian.u16(bytes))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| self.endian.u32(bytes))
    }

    /// The next `len` bytes, and the zeros that fill them up to a multiple of four skipped.
    pub(super) fn padded(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(len)?;
        let pad = len.next_multiple_of(4) - len;
        self.bytes = rest.get(pad..).unwrap_or_default();
        Some(bytes)
    }
}
