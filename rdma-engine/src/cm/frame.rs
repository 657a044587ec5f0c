//! Frames on the TCP stream: header, length bound and the place of the authentication tag.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `ISTM` |
//! | 4 | 1 | major version: a different one is refused |
//! | 5 | 1 | minor version: both sides use the smaller one |
//! | 6 | 1 | kind, see [`FrameKind`] |
//! | 7 | 1 | flags: bit 0 = sealed, the last 32 bytes of the body are an HMAC-SHA256 tag |
//! | 8 | 4 | body length, tag included, at most [`MAX_BODY`] |
//!
//! All numbers are big-endian. This header and the body of `Refuse` stay as they are in every major
//! version, so that two ends that cannot talk can at least say so.

use thiserror::Error;
use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"ISTM";
/// Version of the protocol; both ends must have the same.
pub const MAJOR: u8 = 1;
/// Revision within [`MAJOR`]; the smaller of the two ends counts.
pub const MINOR: u8 = 0;
/// Longest body of a frame in bytes, tag included.
pub const MAX_BODY: usize = 20 * 1024;
/// Bytes of the frame header.
pub const HEADER_LEN: usize = size_of::<Header>();
/// Bytes of the tag that ends a sealed frame.
pub const TAG_LEN: usize = 32;
/// Longest frame in bytes.
pub const MAX_FRAME: usize = HEADER_LEN + MAX_BODY;

const SEALED: u8 = 1;

const _: () = assert!(HEADER_LEN == 12);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    major: u8,
    minor: u8,
    kind: u8,
    flags: u8,
    body_len: U32,
}

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Server to client, first: the nonce to prove the key over.
    Challenge = 1,
    /// Client to server: who it is and what it offers.
    Hello = 2,
    /// Server to client: its own offer and the agreed terms.
    HelloReply = 3,
    /// Either way: queue pairs are in RTS and receives are posted.
    Ready = 4,
    /// Either way: no, and why. Ends the session.
    Refuse = 5,
    /// Either way: are you there?
    Keepalive = 6,
    /// Either way: the answer.
    KeepaliveReply = 7,
    /// Either way: the sender posts no more, with its totals.
    Goodbye = 8,
}

impl FrameKind {
    /// All kinds.
    pub const ALL: [FrameKind; 8] = [
        FrameKind::Challenge,
        FrameKind::Hello,
        FrameKind::HelloReply,
        FrameKind::Ready,
        FrameKind::Refuse,
        FrameKind::Keepalive,
        FrameKind::KeepaliveReply,
        FrameKind::Goodbye,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|k| *k as u8 == code)
    }
}

/// Why the bytes at the head of the stream are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// Another protocol speaks here.
    #[error("the first bytes are \"{}\", not \"{}\"", .0.escape_ascii(), MAGIC.escape_ascii())]
    Magic([u8; 4]),
    /// Same protocol, other major version.
    #[error("you speak version {0}, we speak version {MAJOR}")]
    Major(u8),
    /// The length field exceeds the bound.
    #[error("a frame of {0} bytes, the bound is {MAX_BODY}")]
    TooLong(u32),
    /// No such kind of frame in this version.
    #[error("frame kind {0}, this version knows 1 to 8")]
    Kind(u8),
    /// Flags that this version does not know, or a sealed frame without room for its tag.
    #[error("flags {flags:#04x} with a body of {body_len} bytes")]
    Flags {
        /// The flags as they came.
        flags: u8,
        /// The body length as it came.
        body_len: u32,
    },
}

/// One whole frame, still in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What it carries.
    pub kind: FrameKind,
    /// Minor version of the sender.
    pub minor: u8,
    /// Body without the tag.
    pub body: &'a [u8],
    /// The tag of a sealed frame.
    pub tag: Option<&'a [u8]>,
    /// Header and body without the tag: what the tag is computed over.
    pub signed: &'a [u8],
    /// Length of the whole frame in bytes.
    pub len: usize,
}

/// The frame at the head of `bytes`, or `None` if more bytes are needed.
///
/// A bad header is found as soon as its bytes are there; nothing has to be buffered beyond
/// [`MAX_FRAME`].
pub fn split(bytes: &[u8]) -> Result<Option<Frame<'_>>, FrameError> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        let mut magic = [0; 4];
        magic[..seen].copy_from_slice(&bytes[..seen]);
        return Err(FrameError::Magic(magic));
    }
    let Ok((header, rest)) = Header::ref_from_prefix(bytes) else { return Ok(None) };
    let (kind, body_len) = check_header(header)?;
    let Some(body) = rest.get(..body_len) else { return Ok(None) };
    let len = HEADER_LEN + body_len;
    let tag_len = if header.flags & SEALED != 0 { TAG_LEN } else { 0 };
    let (body, tag) = body.split_at(body_len - tag_len);
    Ok(Some(Frame {
        kind,
        minor: header.minor,
        body,
        tag: (tag_len > 0).then_some(tag),
        signed: &bytes[..len - tag_len],
        len,
    }))
}

fn check_header(header: &Header) -> Result<(FrameKind, usize), FrameError> {
    // A refusal is understood whatever its version: it says why the other end will not talk.
    if header.major != MAJOR && header.kind != FrameKind::Refuse as u8 {
        return Err(FrameError::Major(header.major));
    }
    let body_len = header.body_len.get();
    if body_len as usize > MAX_BODY {
        return Err(FrameError::TooLong(body_len));
    }
    let kind = FrameKind::from_code(header.kind).ok_or(FrameError::Kind(header.kind))?;
    let sealed = header.flags & SEALED != 0;
    if header.flags & !SEALED != 0 || sealed && (body_len as usize) < TAG_LEN {
        return Err(FrameError::Flags { flags: header.flags, body_len });
    }
    Ok((kind, body_len as usize))
}

/// The minor version both ends speak.
pub const fn agreed_minor(ours: u8, theirs: u8) -> u8 {
    if ours < theirs { ours } else { theirs }
}

/// Computes the tag over the signed bytes of a frame.
pub(super) type Tagger<'a> = &'a mut dyn FnMut(&[u8]) -> [u8; TAG_LEN];

/// Appends a frame of `kind` to `out`; `write_body` appends the body, `tag` computes the tag over
/// header and body where the frame is to be sealed.
///
/// Returns the range of the signed bytes in `out`.
pub(super) fn append(
    out: &mut Vec<u8>,
    kind: FrameKind,
    write_body: impl FnOnce(&mut Vec<u8>),
    tag: Option<Tagger<'_>>,
) -> std::ops::Range<usize> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    write_body(out);
    let signed = start..out.len();
    let tag_len = if tag.is_some() { TAG_LEN } else { 0 };
    let body_len = signed.len() - HEADER_LEN + tag_len;
    assert!(body_len <= MAX_BODY, "a {kind:?} of {body_len} bytes left its bound");
    let header = Header {
        magic: MAGIC,
        major: MAJOR,
        minor: MINOR,
        kind: kind as u8,
        flags: if tag.is_some() { SEALED } else { 0 },
        body_len: U32::new(body_len as u32),
    };
    out[start..start + HEADER_LEN].copy_from_slice(header.as_bytes());
    if let Some(tag) = tag {
        let tag = tag(&out[signed.clone()]);
        out.extend_from_slice(&tag);
    }
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8], sealed: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut tag = |signed: &[u8]| [signed.len() as u8; TAG_LEN];
        let tag: Option<Tagger<'_>> = if sealed { Some(&mut tag) } else { None };
        append(&mut out, FrameKind::Ready, |out| out.extend_from_slice(body), tag);
        out
    }

    #[test]
    fn every_prefix_waits_and_the_whole_splits() {
        for sealed in [false, true] {
            let bytes = frame(b"abc", sealed);
            for n in 0..bytes.len() {
                assert!(split(&bytes[..n]).unwrap().is_none(), "{n} of {} bytes", bytes.len());
            }
            let frame = split(&bytes).unwrap().unwrap();
            assert_eq!(frame.body, b"abc");
            assert_eq!(frame.tag.is_some(), sealed);
            assert_eq!(frame.signed.len(), HEADER_LEN + 3);
            assert_eq!(frame.len, bytes.len());
        }
    }

    #[test]
    fn bad_headers_are_named_at_once() {
        assert_eq!(split(b"GET ").unwrap_err(), FrameError::Magic(*b"GET "));
        assert_eq!(split(b"ISS").unwrap_err(), FrameError::Magic(*b"ISS\0"));
        let change = |at: usize, value: u8| {
            let mut bytes = frame(b"", false);
            bytes[at] = value;
            split(&bytes).map(|f| f.map(|f| f.kind))
        };
        assert_eq!(change(4, 9), Err(FrameError::Major(9)));
        assert_eq!(change(6, 99), Err(FrameError::Kind(99)));
        assert_eq!(change(7, 2), Err(FrameError::Flags { flags: 2, body_len: 0 }));
        assert_eq!(change(7, 1), Err(FrameError::Flags { flags: 1, body_len: 0 }));
        assert_eq!(change(9, 1), Err(FrameError::TooLong(1 << 16)));
        assert_eq!(change(5, 200), Ok(Some(FrameKind::Ready)), "a newer minor version is no error");
    }

    #[test]
    fn the_smaller_minor_version_counts() {
        assert_eq!((agreed_minor(0, 3), agreed_minor(3, 0), agreed_minor(2, 2)), (0, 0, 2));
    }

    #[test]
    fn a_refusal_of_another_major_version_is_read() {
        let mut bytes = Vec::new();
        append(&mut bytes, FrameKind::Refuse, |_| {}, None);
        bytes[4] = 7;
        assert_eq!(split(&bytes).unwrap().unwrap().kind, FrameKind::Refuse);
    }
}
