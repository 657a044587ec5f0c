//! The part of an ICRC that does not change from packet to packet of a route: IP and UDP but for lengths
//! and identification.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::slicing::{fold_all, table};
use super::{AFTER_ONES, IcrcBuilder, mask_v4, mask_v6};
use crate::wire::Bth;
use crate::wire::ip::{Ipv4Header, Ipv6Header};
use crate::wire::udp::UdpHeader;

/// Bytes that follow the first byte of a field, up to the end of the UDP header.
const UDP_LEN: usize = size_of::<UdpHeader>() - 1 - std::mem::offset_of!(UdpHeader, len);
const IP4_END: usize = size_of::<Ipv4Header>() + size_of::<UdpHeader>() - 1;
const IP4_TOTAL_LEN: usize = IP4_END - std::mem::offset_of!(Ipv4Header, total_len);
const IP4_ID: usize = IP4_END - std::mem::offset_of!(Ipv4Header, id);
const IP6_END: usize = size_of::<Ipv6Header>() + size_of::<UdpHeader>() - 1;
const IP6_PAYLOAD_LEN: usize = IP6_END - std::mem::offset_of!(Ipv6Header, payload_len);

/// Contributions of the two bytes of a field.
type FieldTable = [[u32; 256]; 2];

const fn field(following: usize) -> FieldTable {
    [table(following), table(following - 1)]
}

static OF_UDP_LEN: FieldTable = field(UDP_LEN);
static OF_IP4_TOTAL_LEN: FieldTable = field(IP4_TOTAL_LEN);
static OF_IP4_ID: FieldTable = field(IP4_ID);
static OF_IP6_PAYLOAD_LEN: FieldTable = field(IP6_PAYLOAD_LEN);

#[inline(always)]
fn contribution(table: &FieldTable, value: u16) -> u32 {
    let [high, low] = value.to_be_bytes();
    table[0][usize::from(high)] ^ table[1][usize::from(low)]
}

/// CRC state after masked IPv4 and UDP headers whose lengths and identification are 0.
#[derive(Clone, Copy, Debug)]
pub(in crate::wire) struct Lower4Icrc(u32);

impl Lower4Icrc {
    /// For these headers.
    pub(in crate::wire) fn new(mut ip: Ipv4Header, mut udp: UdpHeader) -> Self {
        mask_v4(&mut ip);
        (ip.total_len, ip.id, udp.len) = (U16::ZERO, U16::ZERO, U16::ZERO);
        udp.checksum = U16::MAX_VALUE;
        Lower4Icrc(fold_all(fold_all(AFTER_ONES, ip.as_bytes()), udp.as_bytes()))
    }

    /// With the fields of one packet.
    #[inline(always)]
    pub(in crate::wire) fn with(self, total_len: u16, id: u16, udp_len: u16) -> IcrcBuilder {
        IcrcBuilder(
            self.0
                ^ contribution(&OF_IP4_TOTAL_LEN, total_len)
                ^ contribution(&OF_IP4_ID, id)
                ^ contribution(&OF_UDP_LEN, udp_len),
        )
    }
}

/// What is remembered of the headers of one sender, so that their part of an ICRC is computed once. For frames whose
/// addresses are always the same two; IPv6 frames are computed in full.
#[derive(Clone, Copy, Default, Debug)]
pub struct PeerIcrc(Option<Remembered>);

#[derive(Clone, Copy, Debug)]
struct Remembered {
    flags_fragment: U16,
    source_port: U16,
    state: Lower4Icrc,
}

impl PeerIcrc {
    /// The state after IPv4 and UDP of a frame from the same address to the same address as all frames before it.
    #[inline(always)]
    pub(in crate::wire) fn lower(&mut self, ip: &Ipv4Header, udp: &UdpHeader) -> IcrcBuilder {
        let same = |r: &Remembered| r.flags_fragment == ip.flags_fragment && r.source_port == udp.source_port;
        let state = match &self.0 {
            Some(r) if same(r) => r.state,
            _ => self.remember(ip, udp),
        };
        state.with(ip.total_len.get(), ip.id.get(), udp.len.get())
    }

    /// True if the ICRC at the end of `rest`, which is all that follows the BTH, is that of such a frame.
    #[inline]
    pub(crate) fn is_sealed(&mut self, ip: &Ipv4Header, udp: &UdpHeader, bth: Bth, rest: &[u8]) -> bool {
        let Some((covered, stored)) = rest.split_last_chunk() else { return false };
        let mut builder = self.lower(ip, udp);
        builder.update_bth(bth);
        builder.update(covered);
        *stored == builder.finish()
    }

    #[cold]
    fn remember(&mut self, ip: &Ipv4Header, udp: &UdpHeader) -> Lower4Icrc {
        let state = Lower4Icrc::new(*ip, *udp);
        let (flags_fragment, source_port) = (ip.flags_fragment, udp.source_port);
        self.0 = Some(Remembered { flags_fragment, source_port, state });
        state
    }
}

/// CRC state after masked IPv6 and UDP headers whose lengths are 0.
#[derive(Clone, Copy, Debug)]
pub(in crate::wire) struct Lower6Icrc(u32);

impl Lower6Icrc {
    /// For these headers.
    pub(in crate::wire) fn new(mut ip: Ipv6Header, mut udp: UdpHeader) -> Self {
        mask_v6(&mut ip);
        (ip.payload_len, udp.len) = (U16::ZERO, U16::ZERO);
        udp.checksum = U16::MAX_VALUE;
        Lower6Icrc(fold_all(fold_all(AFTER_ONES, ip.as_bytes()), udp.as_bytes()))
    }

    /// With the length of one packet.
    #[inline(always)]
    pub(in crate::wire) fn with(self, udp_len: u16) -> IcrcBuilder {
        IcrcBuilder(self.0 ^ contribution(&OF_IP6_PAYLOAD_LEN, udp_len) ^ contribution(&OF_UDP_LEN, udp_len))
    }
}
