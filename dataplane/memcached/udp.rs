//! The frame header of requests and replies in datagrams: 8 bytes, big endian.
//!
//! A request is one datagram. A reply is as many as it takes, each with the request's id, its own number and how many
//! there are; the client puts them together.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// In front of every datagram's text.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FrameHeader {
    /// Chosen by the client, the same in the reply.
    pub request_id: U16,
    /// Number of this datagram, from 0.
    pub sequence: U16,
    /// Datagrams of the message.
    pub datagrams: U16,
    /// Zero in replies, not looked at in requests.
    pub reserved: U16,
}

impl FrameHeader {
    /// That of a message in one datagram.
    #[inline]
    #[must_use]
    pub fn of_one(request_id: u16) -> Self {
        let zero = 0.into();
        Self { request_id: request_id.into(), sequence: zero, datagrams: 1.into(), reserved: zero }
    }
}

/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<FrameHeader>();
/// Bytes of a datagram with its header where nothing else is asked for, as memcached sends them.
pub const DATAGRAM_BYTES: usize = 1400;

/// Why a datagram is no request. Nothing is answered; each of these is worth a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotARequest {
    /// Nothing behind the header, or not even that.
    Short,
    /// A part of a request of several datagrams, which memcached does not take either.
    Fragment,
}

/// Splits a datagram into header and text.
///
/// # Errors
///
/// When it is no request.
pub fn request(datagram: &[u8]) -> Result<(FrameHeader, &[u8]), NotARequest> {
    match FrameHeader::read_from_prefix(datagram) {
        Ok((_, [])) | Err(_) => Err(NotARequest::Short),
        Ok((header, _)) if header.datagrams.get() != 1 => Err(NotARequest::Fragment),
        Ok((header, text)) => Ok((header, text)),
    }
}

/// The datagrams of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    request_id: u16,
    reply_bytes: usize,
    payload_bytes: usize,
    datagrams: u16,
    next: u16,
}

impl Split {
    /// Cuts a reply of `reply_bytes` into datagrams of `datagram_bytes` with their header; `None` when it would be more
    /// than 65535 of them, or when they have no room for text.
    #[must_use]
    pub fn new(request_id: u16, reply_bytes: usize, datagram_bytes: usize) -> Option<Self> {
        let payload_bytes = datagram_bytes.checked_sub(HEADER_BYTES).filter(|&bytes| bytes > 0)?;
        let datagrams = u16::try_from(reply_bytes.div_ceil(payload_bytes)).ok()?;
        Some(Self { request_id, reply_bytes, payload_bytes, datagrams, next: 0 })
    }

    /// How many there are; none for an empty reply.
    #[must_use]
    pub fn datagrams(&self) -> u16 {
        self.datagrams
    }
}

impl Iterator for Split {
    /// A header, and the part of the reply that belongs behind it.
    type Item = (FrameHeader, std::ops::Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.datagrams {
            return None;
        }
        let start = usize::from(self.next) * self.payload_bytes;
        let header = FrameHeader {
            request_id: self.request_id.into(),
            sequence: self.next.into(),
            datagrams: self.datagrams.into(),
            reserved: 0.into(),
        };
        self.next += 1;
        Some((header, start..self.reply_bytes.min(start + self.payload_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_header() {
        let (header, range) = Split::new(0x1234, 3000, 1400).unwrap().nth(2).unwrap();
        assert_eq!(header.as_bytes(), [0x12, 0x34, 0, 2, 0, 3, 0, 0]);
        assert_eq!(range, 2784..3000);
    }

    #[test]
    fn requests() {
        let text = b"\x12\x34\0\x07\0\x01\xff\xffmn\r\n";
        let (header, rest) = request(text).unwrap();
        assert_eq!((header.request_id.get(), rest), (0x1234, &b"mn\r\n"[..]));
        for short in 0..=8 {
            assert_eq!(request(&text[..short]), Err(NotARequest::Short));
        }
        for datagrams in [0, 2, 256] {
            let header = FrameHeader { datagrams: datagrams.into(), ..header };
            assert_eq!(request(&[header.as_bytes(), b"mn\r\n"].concat()), Err(NotARequest::Fragment));
        }
    }

    #[test]
    fn too_many_or_no_datagrams() {
        assert_eq!(Split::new(1, 10, 8), None);
        assert_eq!(Split::new(1, 10, 0), None);
        assert_eq!(Split::new(1, 65_536, 9), None);
        assert_eq!(Split::new(1, 65_535, 9).unwrap().count(), 65_535);
        assert_eq!(Split::new(1, 0, 1400).unwrap().next(), None);
    }

    proptest! {
        #[test]
        fn parts_make_the_whole(bytes in 0_usize..20_000, datagram in 9_usize..2000) {
            let split = Split::new(7, bytes, datagram).unwrap();
            let mut end = 0;
            for (index, (header, range)) in split.enumerate() {
                prop_assert_eq!(usize::from(header.sequence.get()), index);
                prop_assert_eq!(header.datagrams.get(), split.datagrams());
                prop_assert_eq!(range.start, end);
                prop_assert!(!range.is_empty() && range.len() + HEADER_BYTES <= datagram);
                end = range.end;
            }
            prop_assert_eq!(end, bytes);
        }
    }
}
