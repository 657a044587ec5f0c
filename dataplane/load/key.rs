//! Names of keys: `k`, fill, and the number in 8 hexadecimal digits.

use crate::memcached::KEY_BYTES_MAX;
use arrayvec::ArrayVec;

/// Bytes of the shortest key.
pub const KEY_BYTES_MIN: u16 = 9;
const DIGITS: usize = 8;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// A key's name.
pub type KeyText = ArrayVec<u8, KEY_BYTES_MAX>;

/// How keys are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyFormat {
    bytes: u16,
}

impl KeyFormat {
    /// Names of `bytes` bytes.
    ///
    /// # Panics
    /// If that is below [`KEY_BYTES_MIN`] or above what memcached takes.
    pub fn new(bytes: u16) -> Self {
        assert!((KEY_BYTES_MIN..=KEY_BYTES_MAX as u16).contains(&bytes));
        KeyFormat { bytes }
    }

    /// Bytes of a name.
    pub const fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// Adds the name of `key` to `out`.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn write<const N: usize>(self, key: u32, out: &mut ArrayVec<u8, N>) {
        out.push(b'k');
        for _ in 0..self.bytes() - 1 - DIGITS {
            out.push(b'-');
        }
        for digit in (0..DIGITS).rev() {
            out.push(HEX[(key >> (4 * digit) & 0xF) as usize]);
        }
    }

    /// The name of `key`.
    pub fn text(self, key: u32) -> KeyText {
        let mut out = KeyText::new();
        self.write(key, &mut out);
        out
    }

    /// True if `name` is that of `key`.
    #[inline]
    pub fn is(self, key: u32, name: &[u8]) -> bool {
        let Some((front, digits)) = name.split_last_chunk::<DIGITS>() else { return false };
        let digits_fit =
            digits.iter().enumerate().all(|(i, d)| *d == HEX[(key >> (28 - 4 * i) & 0xF) as usize]);
        digits_fit && name.len() == self.bytes() && front[0] == b'k' && front[1..].iter().all(|c| *c == b'-')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for bytes in [9, 16, 250] {
            let format = KeyFormat::new(bytes);
            let name = format.text(0x00AB_CDEF);
            assert_eq!(name.len(), usize::from(bytes));
            assert!(format.is(0x00AB_CDEF, &name) && !format.is(0x00AB_CDEE, &name));
            for at in 0..name.len() {
                let mut other = name.clone();
                other[at] ^= 1;
                assert!(!format.is(0x00AB_CDEF, &other), "byte {at}");
            }
            assert!(!format.is(0x00AB_CDEF, &name[1..]) && !format.is(0x00AB_CDEF, b""));
        }
        assert_eq!(KeyFormat::new(12).text(0x1F).as_slice(), b"k---0000001f");
    }
}
