use std::fmt;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// EtherTypes this crate knows.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// 802.1Q VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86DD;
    /// 802.1ad outer tag (QinQ).
    pub const QINQ: u16 = 0x88A8;
    /// RoCEv1: a global route header directly after Ethernet.
    pub const ROCE_V1: u16 = 0x8915;
}

/// Ethernet address.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Mac = Mac([0xFF; 6]);

    /// True for group addresses, broadcast included.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The EUI-64 made of this address: `ff:fe` in the middle, universal bit flipped. Linux uses it as
    /// CA GUID and as the interface identifier of fe80::/10 addresses.
    pub const fn eui64(self) -> [u8; 8] {
        let [a, b, c, d, e, f] = self.0;
        [a ^ 2, b, c, 0xFF, 0xFE, d, e, f]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Ethernet header without tags or frame check sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    /// Receiver.
    pub destination: Mac,
    /// Sender.
    pub source: Mac,
    /// What follows; see [`ethertype`].
    pub ethertype: U16,
}

const _: () = assert!(size_of::<EthernetHeader>() == 14);

/// VLAN tag as it follows an EtherType of [`ethertype::VLAN`] or [`ethertype::QINQ`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VlanTag {
    /// Priority (3 bits), drop eligible (1), VLAN id (12).
    pub tci: U16,
    /// What follows the tag.
    pub ethertype: U16,
}

const _: () = assert!(size_of::<VlanTag>() == 4);

/// The tags of a frame, outermost first; at most two. Each is (tag protocol, TCI).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Vlans {
    tags: [(u16, u16); 2],
    len: u8,
}

impl Vlans {
    /// Most tags a frame may carry.
    pub const MAX: usize = 2;
    /// No tag.
    pub const NONE: Vlans = Vlans { tags: [(0, 0); 2], len: 0 };

    /// One 802.1Q tag with this priority (0 to 7) and VLAN id.
    pub const fn single(priority: u8, id: u16) -> Self {
        let tci = ((priority as u16) << 13) | (id & 0x0FFF);
        Vlans { tags: [(ethertype::VLAN, tci), (0, 0)], len: 1 }
    }

    /// With one more, inner tag. False if there are two already.
    #[inline]
    pub const fn push(&mut self, tag_protocol: u16, tci: u16) -> bool {
        if self.len as usize == Self::MAX {
            return false;
        }
        self.tags[self.len as usize] = (tag_protocol, tci);
        self.len += 1;
        true
    }

    /// The tags present, outermost first.
    #[inline]
    pub fn tags(&self) -> &[(u16, u16)] {
        self.tags.get(..usize::from(self.len)).unwrap_or(&self.tags)
    }

    /// VLAN ids, outermost first.
    pub fn ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.tags().iter().map(|&(_, tci)| tci & 0x0FFF)
    }
}
