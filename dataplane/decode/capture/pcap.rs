//! The classic format: a header of 24 bytes, then records of a 16-byte header and the frame.

use std::io::Read;

use super::fields::{Endian, Fields};
use super::{CaptureError, RecordHead, Source};

/// State of a pcap file.
pub(super) struct Pcap {
    endian: Endian,
    link_type: u16,
    ns_per_unit: u64,
}

impl Pcap {
    /// Reads the rest of the file header, whose first four bytes are `magic`.
    pub(super) fn open<R: Read>(magic: [u8; 4], source: &mut Source<R>) -> Result<Self, CaptureError> {
        let (endian, ns_per_unit) = match magic {
            [0xD4, 0xC3, 0xB2, 0xA1] => (Endian::Little, 1000),
            [0xA1, 0xB2, 0xC3, 0xD4] => (Endian::Big, 1000),
            [0x4D, 0x3C, 0xB2, 0xA1] => (Endian::Little, 1),
            [0xA1, 0xB2, 0x3C, 0x4D] => (Endian::Big, 1),
            _ => return Err(CaptureError::NotACapture),
        };
        let header: [u8; 20] = source.array()?.ok_or(CaptureError::NotACapture)?;
        // Version, time zone, accuracy, snap length; the link type is last, frame check bits above it.
        let [.., a, b, c, d] = header;
        let link_type = endian.u32([a, b, c, d]) as u16;
        Ok(Pcap { endian, link_type, ns_per_unit })
    }

    /// Reads the next record into the source.
    pub(super) fn next<R: Read>(&self, source: &mut Source<R>) -> Result<Option<RecordHead>, CaptureError> {
        let Some(header) = source.array::<16>()? else { return Ok(None) };
        let mut fields = Fields::new(self.endian, &header);
        let mut field = || fields.u32().unwrap_or_default();
        let (seconds, units, captured, original) = (field(), field(), field(), field());
        source.read_record(captured as usize)?;
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(units) * self.ns_per_unit;
        Ok(Some(RecordHead {
            time_ns: Some(time_ns),
            link_type: self.link_type,
            original_len: original as usize,
            data: 0..captured as usize,
        }))
    }
}
