use std::ops::Range;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::WireError;
use super::bth::Bth;
use super::ethernet::ethertype;
use super::extended::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth};
use super::icrc::{self, IcrcBuilder, PeerIcrc};
use super::lower::{Datagram, Link, Network, header_at};
use super::opcode::{Header, OpcodeInfo};

/// BTH and extended headers, and where payload and ICRC lie in the frame.
#[derive(Clone, Copy, Debug)]
pub struct IbPacket<'a> {
    /// Base transport header.
    pub bth: &'a Bth,
    /// Row of its opcode.
    pub info: &'static OpcodeInfo,
    extended: &'a [u8],
    payload: usize,
    payload_len: usize,
}

impl<'a> IbPacket<'a> {
    /// Reads the BTH at offset `bth_at` of the frame and its extended headers; the ICRC ends at `end`.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if a header is not inside `bytes`, [`WireError::TransportVersion`],
    /// [`WireError::UnknownOpcode`], [`WireError::PacketLength`].
    #[inline(always)]
    pub fn parse(bytes: &'a [u8], bth_at: usize, end: usize) -> Result<Self, WireError> {
        let bth: &Bth = header_at(bytes, bth_at)?;
        let info = bth.opcode.info();
        if bth.transport_version() != 0 {
            return Err(WireError::TransportVersion);
        }
        if !info.is_known() {
            return Err(WireError::UnknownOpcode);
        }
        let extended_at = bth_at + size_of::<Bth>();
        let payload = extended_at + usize::from(info.headers_len);
        let after = usize::from(bth.pad()) + icrc::LEN;
        let payload_len = end.checked_sub(payload + after).ok_or(WireError::PacketLength)?;
        let extended = bytes.get(extended_at..payload).ok_or(WireError::TooShort)?;
        Ok(IbPacket { bth, info, extended, payload, payload_len })
    }

    #[inline(always)]
    fn header<T>(&self, header: Header) -> Option<&'a T>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let at = usize::from(self.info.offsets[header as usize]);
        T::ref_from_prefix(self.extended.get(at..)?).ok().map(|(header, _)| header)
    }

    /// All headers after the BTH, as bytes.
    #[inline]
    pub const fn extended(&self) -> &'a [u8] {
        self.extended
    }

    /// RDMA header, if the opcode has one.
    #[inline]
    pub fn reth(&self) -> Option<&'a Reth> {
        self.header(Header::Reth)
    }

    /// Acknowledgement header, if the opcode has one.
    #[inline]
    pub fn aeth(&self) -> Option<&'a Aeth> {
        self.header(Header::Aeth)
    }

    /// Atomic request header, if the opcode has one.
    #[inline]
    pub fn atomic(&self) -> Option<&'a AtomicEth> {
        self.header(Header::AtomicEth)
    }

    /// Atomic result header, if the opcode has one.
    #[inline]
    pub fn atomic_ack(&self) -> Option<&'a AtomicAckEth> {
        self.header(Header::AtomicAckEth)
    }

    /// Immediate data, if the opcode has it.
    #[inline]
    pub fn imm(&self) -> Option<&'a ImmDt> {
        self.header(Header::ImmDt)
    }

    /// Key to invalidate, if the opcode has one.
    #[inline]
    pub fn ieth(&self) -> Option<&'a Ieth> {
        self.header(Header::Ieth)
    }

    /// Datagram header, if the opcode has one.
    #[inline]
    pub fn deth(&self) -> Option<&'a Deth> {
        self.header(Header::Deth)
    }

    /// Flush header, if the opcode has one.
    #[inline]
    pub fn feth(&self) -> Option<&'a Feth> {
        self.header(Header::Feth)
    }

    /// Payload bytes, pad and ICRC not counted.
    #[inline]
    pub const fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// Where the payload lies in the frame.
    #[inline]
    pub const fn payload_range(&self) -> Range<usize> {
        self.payload..self.payload + self.payload_len
    }

    /// Where pad and ICRC begin and end in the frame.
    #[inline]
    pub const fn tail_range(&self) -> Range<usize> {
        let pad = self.payload + self.payload_len;
        pad..pad + self.bth.pad() as usize + icrc::LEN
    }

    /// True if the pad count is the one this payload needs.
    #[inline]
    pub const fn pad_fits(&self) -> bool {
        self.bth.pad() == Bth::pad_for(self.payload_len)
    }
}

/// A parsed RoCE frame: views into its bytes.
///
/// Every header lies inside the bytes, and the lengths agree with each other. Opcode sequence, PSN, keys
/// and the ICRC are not checked yet.
#[derive(Clone, Copy, Debug)]
pub struct RoceFrame<'a> {
    /// Ethernet and VLAN.
    pub link: Link<'a>,
    /// IP and UDP.
    pub datagram: Datagram<'a>,
    /// BTH, extended headers, geometry of the rest.
    pub packet: IbPacket<'a>,
    bytes: &'a [u8],
}

impl<'a> RoceFrame<'a> {
    /// Reads a whole RoceV2 frame that lies in one piece, without Ethernet FCS. Bytes beyond the IP length
    /// (Ethernet padding) are ignored.
    ///
    /// # Errors
    /// Any [`WireError`].
    #[inline(always)]
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        Self::parse_head(frame, frame.len())
    }

    /// Like [`RoceFrame::parse`], for a frame of `frame_len` bytes of which `head` is the first piece: a
    /// chained buffer, or a capture cut short. All headers must lie inside `head`.
    ///
    /// # Errors
    /// Any [`WireError`].
    #[inline(always)]
    pub fn parse_head(head: &'a [u8], frame_len: usize) -> Result<Self, WireError> {
        let link = Link::parse(head)?;
        let datagram = Datagram::parse(link.ethertype, head, link.l3, frame_len)?;
        Self::within(link, datagram, head)
    }

    /// Like [`RoceFrame::parse_head`], but RoCEv1 frames are read as well: for tools, not for endpoints.
    ///
    /// # Errors
    /// Any [`WireError`] but [`WireError::RoceV1`].
    pub fn parse_any(head: &'a [u8], frame_len: usize) -> Result<Self, WireError> {
        let link = Link::parse(head)?;
        let datagram = match link.ethertype {
            ethertype::ROCE_V1 => Datagram::parse_roce_v1(head, link.l3, frame_len)?,
            other => Datagram::parse(other, head, link.l3, frame_len)?,
        };
        Self::within(link, datagram, head)
    }

    #[inline(always)]
    fn within(link: Link<'a>, datagram: Datagram<'a>, bytes: &'a [u8]) -> Result<Self, WireError> {
        let packet = IbPacket::parse(bytes, datagram.bth, datagram.end)?;
        Ok(RoceFrame { link, datagram, packet, bytes })
    }

    /// Base transport header.
    #[inline]
    pub const fn bth(&self) -> &'a Bth {
        self.packet.bth
    }

    /// The payload; of a frame in several pieces, what the first one holds of it.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        let Range { start, end } = self.packet.payload_range();
        self.bytes.get(start..end.min(self.bytes.len())).unwrap_or_default()
    }

    /// The ICRC as it is on the wire, if it lies in this piece.
    #[inline]
    pub fn icrc(&self) -> Option<[u8; 4]> {
        let tail = self.packet.tail_range();
        self.bytes.get(..tail.end)?.last_chunk().copied()
    }

    /// The ICRC this frame should carry, if all of it lies in this piece.
    #[inline]
    pub fn computed_icrc(&self) -> Option<[u8; 4]> {
        let covered = self.packet.tail_range().end - icrc::LEN;
        let packet = self.bytes.get(self.datagram.l3..covered)?;
        Some(IcrcBuilder::of_network(&self.datagram.network, packet).finish())
    }

    /// True if the ICRC is right; false also if not all of the frame lies in this piece.
    #[inline]
    pub fn icrc_ok(&self) -> bool {
        let stored = self.icrc();
        stored.is_some() && stored == self.computed_icrc()
    }

    /// [`RoceFrame::icrc_ok`] for frames that all come from one address and go to one address, as those of a connection
    /// do once that was checked: `peer` remembers the part of the ICRC that does not change.
    #[inline]
    pub fn icrc_ok_of(&self, peer: &mut PeerIcrc) -> bool {
        let (Network::V4(ip), Some(udp)) = (&self.datagram.network, self.datagram.udp) else {
            return self.icrc_ok();
        };
        let from = self.datagram.bth + size_of::<Bth>();
        let rest = self.bytes.get(from..self.packet.tail_range().end);
        rest.is_some_and(|rest| peer.is_sealed(ip, udp, *self.packet.bth, rest))
    }

    /// True if the ICRC is right, for a frame whose first piece was parsed and whose others are `rest`.
    pub fn icrc_ok_with<'p>(&self, rest: impl IntoIterator<Item = &'p [u8]>) -> bool
    where
        'a: 'p,
    {
        let start = self.packet.payload_range().start;
        let tail = self.packet.tail_range();
        let headers = self.bytes.get(self.datagram.l3..start).unwrap_or_default();
        let builder = IcrcBuilder::of_network(&self.datagram.network, headers);
        let first = self.bytes.get(start..tail.end.min(self.bytes.len())).unwrap_or_default();
        icrc::check_pieces(builder, tail.end - start, std::iter::once(first).chain(rest))
    }
}
