//! A packet that has passed the first checks: the numbers that requester and responder need of it.

use crate::types::{Psn, Rkey};
use crate::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Header, Ieth, ImmDt, OpcodeInfo, Reth, RoceFrame,
};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// What was read of a frame. The frame itself stays beside it, owned, and the extended headers are read from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) info: &'static OpcodeInfo,
    pub(crate) psn: Psn,
    pub(crate) solicited: bool,
    pub(crate) ack_request: bool,
    pub(crate) pad_fits: bool,
    /// Offset of the extended headers in the frame.
    extended: u16,
    payload: u16,
    payload_len: u16,
}

impl Arrived {
    #[inline]
    pub(crate) fn new(frame: &RoceFrame<'_>) -> Self {
        let packet = &frame.packet;
        let payload = packet.payload_range();
        let extended = payload.start - packet.extended().len();
        Self::at(packet.bth, extended, payload.start, payload.len())
    }

    /// A packet whose extended headers and payload begin at these offsets of the frame.
    #[inline(always)]
    pub(crate) fn at(bth: &Bth, extended: usize, payload: usize, payload_len: usize) -> Self {
        Arrived {
            info: bth.opcode.info(),
            psn: bth.psn.psn(),
            solicited: bth.solicited(),
            ack_request: bth.ack_request(),
            pad_fits: bth.pad() == Bth::pad_for(payload_len),
            extended: extended as u16,
            payload: payload as u16,
            payload_len: payload_len as u16,
        }
    }

    /// One that nobody reads more of than its PSN.
    #[cfg(test)]
    pub(crate) fn with_psn(psn: Psn) -> Self {
        let info = crate::wire::Opcode::RC_ACKNOWLEDGE.info();
        let (solicited, ack_request, pad_fits) = (false, false, true);
        Arrived { info, psn, solicited, ack_request, pad_fits, extended: 0, payload: 0, payload_len: 0 }
    }

    /// Bytes of payload.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.payload_len)
    }

    /// Where the payload lies in the frame.
    #[inline]
    pub(crate) fn payload(&self) -> Range<usize> {
        let start = usize::from(self.payload);
        start..start + self.len()
    }

    #[inline(always)]
    fn header<'f, T>(&self, frame: &'f [u8], header: Header) -> Option<&'f T>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        if !self.info.headers.contains(header) {
            return None;
        }
        let at = usize::from(self.extended) + self.offset_of(header);
        T::ref_from_prefix(frame.get(at..)?).ok().map(|(h, _)| h)
    }

    /// Only ImmDt, IETH and AtomicAckETH ever stand behind another header, and then they are the last one.
    #[inline(always)]
    fn offset_of(&self, header: Header) -> usize {
        match header {
            Header::ImmDt | Header::Ieth | Header::AtomicAckEth => {
                usize::from(self.info.headers_len) - header.size()
            }
            _ => 0,
        }
    }

    #[inline]
    pub(crate) fn reth(&self, frame: &[u8]) -> Option<Reth> {
        self.header(frame, Header::Reth).copied()
    }

    #[inline]
    pub(crate) fn aeth(&self, frame: &[u8]) -> Option<Aeth> {
        self.header(frame, Header::Aeth).copied()
    }

    #[inline]
    pub(crate) fn atomic(&self, frame: &[u8]) -> Option<AtomicEth> {
        self.header(frame, Header::AtomicEth).copied()
    }

    #[inline]
    pub(crate) fn atomic_ack(&self, frame: &[u8]) -> Option<u64> {
        self.header(frame, Header::AtomicAckEth).map(|h: &AtomicAckEth| h.original.get())
    }

    #[inline]
    pub(crate) fn deth(&self, frame: &[u8]) -> Option<Deth> {
        self.header(frame, Header::Deth).copied()
    }

    /// Immediate data, host order.
    #[inline]
    pub(crate) fn imm(&self, frame: &[u8]) -> Option<u32> {
        self.header(frame, Header::ImmDt).map(|h: &ImmDt| u32::from_be_bytes(h.data))
    }

    /// Key to invalidate.
    #[inline]
    pub(crate) fn ieth(&self, frame: &[u8]) -> Option<Rkey> {
        self.header(frame, Header::Ieth).map(|h: &Ieth| Rkey(h.rkey.get()))
    }
}
