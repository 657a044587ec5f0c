//! Tagged values, the parts of a long message.
//!
//! A value is `tag: u16, length: u16, bytes`. Tags come in any order, each at most once; tags that
//! the reader does not know are skipped, so a later minor version adds a tag and never changes one.

use thiserror::Error;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::offer::OfferError;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct TlvHeader {
    tag: U16,
    len: U16,
}

/// Why a body is no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// The body ends inside this part.
    #[error("{0} is cut short")]
    Short(&'static str),
    /// The body goes on behind its end.
    #[error("{0} has {1} bytes too many")]
    TrailingBytes(&'static str, usize),
    /// A tag that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A tag came twice.
    #[error("tag {0} came twice")]
    Twice(u16),
    /// A text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A number that stands for nothing.
    #[error("{0} has no meaning for {1}")]
    Code(&'static str, u64),
    /// A value outside its bounds.
    #[error(transparent)]
    Value(#[from] OfferError),
}

/// Highest tag this version knows.
const MAX_TAG: usize = 9;

/// The tagged values of a body, found but not yet understood.
pub(super) struct Values<'a> {
    by_tag: [Option<&'a [u8]>; MAX_TAG + 1],
}

impl<'a> Values<'a> {
    pub(super) fn parse(mut body: &'a [u8]) -> Result<Self, Malformed> {
        let mut by_tag = [None; MAX_TAG + 1];
        while !body.is_empty() {
            let (header, rest) =
                TlvHeader::ref_from_prefix(body).map_err(|_| Malformed::Short("a tag header"))?;
            let (value, rest) = rest
                .split_at_checked(usize::from(header.len.get()))
                .ok_or(Malformed::Short("a tagged value"))?;
            let tag = header.tag.get();
            if let Some(slot) = by_tag.get_mut(usize::from(tag))
                && slot.replace(value).is_some()
            {
                return Err(Malformed::Twice(tag));
            }
            body = rest;
        }
        Ok(Values { by_tag })
    }

    pub(super) fn optional(&self, tag: u16) -> Option<&'a [u8]> {
        self.by_tag.get(usize::from(tag)).copied().flatten()
    }

    pub(super) fn required(&self, tag: u16, what: &'static str) -> Result<&'a [u8], Malformed> {
        self.optional(tag).ok_or(Malformed::Missing(what))
    }
}

/// Appends one tagged value.
pub(super) fn put(out: &mut Vec<u8>, tag: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; size_of::<TlvHeader>()]);
    let value = out.len();
    write(out);
    let len = u16::try_from(out.len() - value).expect("a checked offer fits its lengths");
    let header = TlvHeader { tag: U16::new(tag), len: U16::new(len) };
    out[start..value].copy_from_slice(header.as_bytes());
}

/// `bytes` as one `T`, no more and no less.
pub(super) fn exactly<T>(bytes: &[u8], what: &'static str) -> Result<T, Malformed>
where
    T: FromBytes,
{
    let (value, rest) = first::<T>(bytes, what)?;
    if rest.is_empty() { Ok(value) } else { Err(Malformed::TrailingBytes(what, rest.len())) }
}

/// The `T` at the head of `bytes`, and what follows.
pub(super) fn first<'a, T>(bytes: &'a [u8], what: &'static str) -> Result<(T, &'a [u8]), Malformed>
where
    T: FromBytes,
{
    T::read_from_prefix(bytes).map_err(|_| Malformed::Short(what))
}

/// `bytes` as a row of `T`.
pub(super) fn row<'a, T>(bytes: &'a [u8], what: &'static str) -> Result<&'a [T], Malformed>
where
    T: FromBytes + Unaligned + KnownLayout + Immutable,
{
    <[T]>::ref_from_bytes(bytes).map_err(|_| Malformed::Short(what))
}

pub(super) fn text(bytes: &[u8], what: &'static str) -> Result<String, Malformed> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed::Text(what))
}
