use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode::Opcode;
use super::u24::U24;
use crate::types::{Psn, Qpn};

/// Base transport header, first of every RoCE packet (IBTA 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Bth {
    /// Transport (3 bits) and operation (5 bits).
    pub opcode: Opcode,
    /// Solicited event (1), migration state (1), pad count (2), header version (4).
    pub flags: u8,
    /// Partition key, 0xFFFF by default.
    pub pkey: U16,
    /// FECN, BECN, 6 reserved bits. Not covered by the ICRC.
    pub congestion: u8,
    /// Receiving queue pair.
    pub dest_qpn: U24,
    /// Acknowledge request (1 bit), 7 reserved bits.
    pub ack: u8,
    /// Packet sequence number.
    pub psn: U24,
}

const _: () = assert!(size_of::<Bth>() == 12);

impl Bth {
    /// The default partition, full membership.
    pub const DEFAULT_PKEY: u16 = 0xFFFF;
    /// Backward congestion notification, set in CNPs.
    pub const BECN: u8 = 0x40;
    /// Forward congestion notification.
    pub const FECN: u8 = 0x80;

    const SOLICITED: u8 = 0x80;
    const MIGRATED: u8 = 0x40;
    const ACK_REQUEST: u8 = 0x80;

    /// A header with default partition key and no flag set.
    #[inline]
    pub fn new(opcode: Opcode, dest_qpn: Qpn, psn: Psn) -> Self {
        Bth {
            opcode,
            flags: 0,
            pkey: U16::new(Self::DEFAULT_PKEY),
            congestion: 0,
            dest_qpn: dest_qpn.into(),
            ack: 0,
            psn: psn.into(),
        }
    }

    /// The header of a congestion notification packet for the peer's queue pair `dest_qpn`, to be followed
    /// by [`Bth::CNP_PAYLOAD`].
    pub fn cnp(dest_qpn: Qpn) -> Self {
        Bth { congestion: Self::BECN, ..Self::new(Opcode::CNP, dest_qpn, Psn::new(0)) }
    }

    /// The reserved bytes of a congestion notification packet.
    pub const CNP_PAYLOAD: [u8; 16] = [0; 16];

    /// With the solicited event bit: wakes a completion queue armed for solicited completions only.
    #[inline]
    #[must_use]
    pub const fn with_solicited(mut self, on: bool) -> Self {
        self.flags = self.flags & !Self::SOLICITED | (on as u8) << 7;
        self
    }

    /// With the migration state bit ("migrated", what ConnectX sends).
    #[inline]
    #[must_use]
    pub const fn with_migrated(mut self, on: bool) -> Self {
        self.flags = self.flags & !Self::MIGRATED | (on as u8) << 6;
        self
    }

    /// With the acknowledge request bit.
    #[inline]
    #[must_use]
    pub const fn with_ack_request(mut self, on: bool) -> Self {
        self.ack = self.ack & !Self::ACK_REQUEST | (on as u8) << 7;
        self
    }

    /// With the pad count that a payload of `payload_len` bytes needs.
    #[inline]
    #[must_use]
    pub const fn with_pad_for(mut self, payload_len: usize) -> Self {
        self.flags = self.flags & !0x30 | Self::pad_for(payload_len) << 4;
        self
    }

    /// Zero bytes after a payload of `payload_len` bytes: to the next multiple of four.
    #[inline]
    pub const fn pad_for(payload_len: usize) -> u8 {
        (payload_len as u8).wrapping_neg() & 3
    }

    /// The header as it lies on the wire. It is put together in words, as bytes that were taken apart are written apart.
    #[inline(always)]
    pub(super) fn to_wire(self) -> [u8; size_of::<Self>()] {
        let word = |first: u8, rest: U24| u32::from(first) << 24 | rest.value();
        let first = u32::from(self.opcode.0) << 24 | u32::from(self.flags) << 16 | u32::from(self.pkey.get());
        let words = [first, word(self.congestion, self.dest_qpn), word(self.ack, self.psn)];
        zerocopy::transmute!(words.map(u32::to_be_bytes))
    }

    /// Solicited event.
    #[inline]
    pub const fn solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// Migration state.
    #[inline]
    pub const fn migrated(&self) -> bool {
        self.flags & Self::MIGRATED != 0
    }

    /// Zero bytes between payload and ICRC, 0 to 3.
    #[inline]
    pub const fn pad(&self) -> u8 {
        self.flags >> 4 & 3
    }

    /// Header version; only 0 exists.
    #[inline]
    pub const fn transport_version(&self) -> u8 {
        self.flags & 0xF
    }

    /// The sender wants an acknowledgement.
    #[inline]
    pub const fn ack_request(&self) -> bool {
        self.ack & Self::ACK_REQUEST != 0
    }

    /// Backward congestion notification.
    #[inline]
    pub const fn becn(&self) -> bool {
        self.congestion & Self::BECN != 0
    }

    /// Forward congestion notification.
    #[inline]
    pub const fn fecn(&self) -> bool {
        self.congestion & Self::FECN != 0
    }
}

/// True if two partition keys match: same partition, and at least one side is a full member.
#[inline]
pub const fn pkeys_match(a: u16, b: u16) -> bool {
    (a ^ b) & 0x7FFF == 0 && (a | b) & 0x8000 != 0
}
