//! Iterators over a chain's segments.

#![allow(unsafe_code)] // Walks `next` pointers of an owned chain.

use core::marker::PhantomData;

use dpdk_sys::MbufHeader;

use super::{Mbuf, segment_bytes, segment_bytes_mut, segment_unique, tailroom_of};

/// The segments of a chain, in order. Made by [`Mbuf::segments`].
#[derive(Debug)]
pub struct Segments<'a> {
    at: *const MbufHeader,
    left: usize,
    _chain: PhantomData<&'a Mbuf>,
}

impl<'a> Segments<'a> {
    #[inline]
    pub(super) fn new(mbuf: &'a Mbuf) -> Self {
        Segments { at: mbuf.header(), left: mbuf.segment_count(), _chain: PhantomData }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        // SAFETY: null or a segment of the chain borrowed for `'a`.
        let seg: &'a MbufHeader = unsafe { self.at.as_ref() }?;
        self.at = seg.next;
        self.left = self.left.saturating_sub(1);
        Some(segment_bytes(seg))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// The segments of a unique chain for writing, in order. Made by [`Mbuf::segments_mut`].
pub struct SegmentsMut<'a> {
    at: *const MbufHeader,
    _chain: PhantomData<&'a mut Mbuf>,
}

impl<'a> SegmentsMut<'a> {
    #[inline]
    pub(super) fn new(mbuf: &'a mut Mbuf) -> Self {
        SegmentsMut { at: mbuf.header(), _chain: PhantomData }
    }
}

impl<'a> Iterator for SegmentsMut<'a> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        // SAFETY: null or a segment of the chain borrowed mutably for `'a`.
        let seg = unsafe { self.at.as_ref() }?;
        self.at = seg.next;
        // SAFETY: the whole chain was found unique, and each segment is handed out once.
        Some(unsafe { segment_bytes_mut(seg) })
    }
}

/// The writable rooms behind the data of a chain's segments, in order. Made by [`Mbuf::spare_segments`].
#[derive(Debug)]
pub struct SpareSegments<'a> {
    at: *const MbufHeader,
    _chain: PhantomData<&'a mut Mbuf>,
}

impl<'a> Iterator for SpareSegments<'a> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        loop {
            // SAFETY: null or a segment of the chain borrowed mutably for `'a`.
            let seg = unsafe { self.at.as_ref() }?;
            self.at = seg.next;
            if !segment_unique(seg) {
                continue;
            }
            let end = usize::from(seg.data_off) + usize::from(seg.data_len);
            // SAFETY: the room lies in the buffer of a unique segment that is handed out once. Pool memory is mapped
            // zeroed, so it always holds initialised bytes.
            return Some(unsafe {
                core::slice::from_raw_parts_mut(seg.buf_addr.add(end).cast(), tailroom_of(seg))
            });
        }
    }
}

impl Mbuf {
    /// The writable rooms behind each segment's data, in order; shared segments are left out.
    #[inline]
    pub fn spare_segments(&mut self) -> SpareSegments<'_> {
        SpareSegments { at: self.header(), _chain: PhantomData }
    }

    /// Bytes that [`Mbuf::spare_segments`] would give.
    #[inline]
    pub fn room(&self) -> usize {
        self.headers().filter(|seg| segment_unique(seg)).map(tailroom_of).sum()
    }
}
