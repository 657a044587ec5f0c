//! Numbers with a meaning: sequence numbers, keys, QP numbers, MTUs, GIDs and time.
//!
//! All are plain values in host order; the wire modules convert.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Mask of the 24-bit fields (PSN, QPN, MSN).
pub const MASK_24: u32 = 0x00FF_FFFF;

/// Packet sequence number: 24 bits, compared in a circle.
///
/// Half of the space behind a PSN is its past, the other half its future (IBTA vol. 1, 9.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "ibv_packet_sequence_number")]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Psn(value & MASK_24)
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `n` packets later (modulo 2^24).
    #[inline]
    #[must_use]
    pub const fn advance(self, n: u32) -> Self {
        Psn::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` packets earlier (modulo 2^24).
    #[inline]
    #[must_use]
    pub const fn back(self, n: u32) -> Self {
        Psn::new(self.0.wrapping_sub(n))
    }

    /// Signed distance from `earlier` to `self`, in -2^23 .. 2^23.
    #[inline]
    pub const fn since(self, earlier: Psn) -> i32 {
        (self.0.wrapping_sub(earlier.0) << 8) as i32 >> 8
    }

    /// True if `self` lies before `other` in the circle.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.since(other) < 0
    }

    /// True if `self` lies after `other` in the circle.
    #[inline]
    pub const fn is_after(self, other: Psn) -> bool {
        self.since(other) > 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[doc(alias = "qp_num")]
pub struct Qpn(u32);

impl Qpn {
    /// The general services interface, where connection management datagrams go.
    pub const GSI: Qpn = Qpn(1);
    /// The multicast QPN.
    pub const MULTICAST: Qpn = Qpn(MASK_24);

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Qpn(value & MASK_24)
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qpn {:#x}", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Local key: names a registered region to the local device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Lkey(pub u32);

/// Remote key: lets a peer read or write a registered region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rkey(pub u32);

impl fmt::Debug for Rkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rkey {:#010x}", self.0)
    }
}

/// Path MTU: payload bytes of one packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[doc(alias = "ibv_mtu")]
#[repr(u8)]
pub enum Pmtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes, the largest of the standard.
    B4096 = 5,
}

impl Pmtu {
    /// All values, smallest first.
    pub const ALL: [Pmtu; 5] = [Pmtu::B256, Pmtu::B512, Pmtu::B1024, Pmtu::B2048, Pmtu::B4096];

    /// Payload bytes of one packet.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The code of the verbs interface and of CM messages (1 to 5).
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The MTU with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.code() == code)
    }

    /// The MTU of exactly `bytes` payload bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.bytes() == bytes)
    }

    /// The largest MTU whose packets fit an Ethernet MTU of `ethernet` bytes, leaving 80 bytes for
    /// headers as the Linux kernel does: 1500 gives 1024, 4200 gives 4096.
    pub fn fitting(ethernet: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|m| m.bytes() + 80 <= ethernet)
    }
}

impl fmt::Display for Pmtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// Global identifier. RoCEv2 uses the IP address: IPv4 as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address this GID stands for.
    pub fn ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }

    /// True for the all-zero GID of an empty table entry.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 16]
    }

    /// True for fe80::/10, which does not leave its link.
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xFE && self.0[1] & 0xC0 == 0x80
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Gid(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        Gid(ip.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid {self}")
    }
}

/// A moment, in nanoseconds since the start of the process (or of the simulation).
///
/// Nothing in this crate reads a clock: the caller passes the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

impl Time {
    /// Later than anything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    /// The moment `ns` nanoseconds later; saturates.
    #[inline]
    #[must_use]
    pub const fn after_ns(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`, 0 if that lies in the future.
    #[inline]
    pub const fn since_ns(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Transport type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_qp_type")]
pub enum QpType {
    /// Reliable connection: ordered, acknowledged, retransmitted; all operations.
    #[doc(alias = "IBV_QPT_RC")]
    Rc,
    /// Unreliable connection: ordered, whole messages or none; SEND and WRITE.
    #[doc(alias = "IBV_QPT_UC")]
    Uc,
    /// Unreliable datagram: one packet to any peer; SEND only.
    #[doc(alias = "IBV_QPT_UD")]
    Ud,
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn psn_distance_survives_the_wrap(start in 0u32..=MASK_24, n in 0u32..(1 << 23)) {
            let (a, b) = (Psn::new(start), Psn::new(start).advance(n));
            prop_assert_eq!(b.since(a), n as i32);
            prop_assert_eq!(a.since(b), -(n as i32));
            prop_assert_eq!(b.back(n), a);
            prop_assert_eq!(a.is_before(b), n > 0);
        }
    }

    #[test]
    fn half_the_circle_is_past() {
        assert_eq!(Psn::new(1 << 23).since(Psn::new(0)), -(1 << 23));
        assert!(Psn::new(0).is_after(Psn::new(MASK_24)));
    }

    #[test]
    fn pmtu_codes_and_fits() {
        assert_eq!(Pmtu::ALL.map(Pmtu::bytes), [256, 512, 1024, 2048, 4096]);
        assert_eq!(Pmtu::fitting(1500), Some(Pmtu::B1024));
        assert_eq!(Pmtu::fitting(4175), Some(Pmtu::B2048));
        assert_eq!(Pmtu::fitting(4200), Some(Pmtu::B4096));
        assert_eq!(Pmtu::fitting(335), None);
        assert_eq!(Pmtu::from_code(5), Some(Pmtu::B4096));
        assert_eq!(Pmtu::from_bytes(1025), None);
    }

    #[test]
    fn gid_is_the_ip_address() {
        let gid = Gid::from(Ipv4Addr::new(10, 9, 0, 1));
        assert_eq!(gid.to_string(), "::ffff:10.9.0.1");
        assert_eq!(gid.ip(), IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)));
        assert!(Gid::from("fe80::1".parse::<Ipv6Addr>().unwrap()).is_link_local());
    }
}
