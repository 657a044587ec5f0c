//! What RDMA CM adds to connection management: service ids made of IP ports, and addresses in the private
//! data.

use std::net::IpAddr;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// RDMA CM port space: the upper part of its service ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[doc(alias = "rdma_port_space")]
pub enum PortSpace {
    /// Connected queue pairs.
    #[doc(alias = "RDMA_PS_TCP")]
    Tcp = 0x0106,
    /// Datagrams.
    #[doc(alias = "RDMA_PS_UDP")]
    Udp = 0x0111,
}

/// The service id of an IP port.
pub const fn service_id(space: PortSpace, port: u16) -> u64 {
    (space as u64) << 16 | port as u64
}

/// First 36 bytes of the private data of a REQ or SIDR_REQ sent by RDMA CM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmaHeader {
    /// 0.
    pub version: u8,
    /// IP version in the high nibble: 0x40 or 0x60.
    pub ip_version_byte: u8,
    /// Port of the sender.
    pub source_port: U16,
    /// Address of the sender; IPv4 in the last four bytes, zeros before.
    pub source: [u8; 16],
    /// Address of the receiver.
    pub destination: [u8; 16],
}

const _: () = assert!(size_of::<CmaHeader>() == 36);

impl CmaHeader {
    /// The header for a connection between these addresses; `None` if their families differ.
    pub fn new(source: IpAddr, source_port: u16, destination: IpAddr) -> Option<Self> {
        let ip_version_byte = match (source, destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => 0x40,
            (IpAddr::V6(_), IpAddr::V6(_)) => 0x60,
            _ => return None,
        };
        Some(CmaHeader {
            version: 0,
            ip_version_byte,
            source_port: source_port.into(),
            source: to_field(source),
            destination: to_field(destination),
        })
    }

    /// Sender and receiver; `None` if version or IP version are not known.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        match (self.version, self.ip_version_byte >> 4) {
            (0, 4) => Some((last_four(self.source), last_four(self.destination))),
            (0, 6) => Some((IpAddr::from(self.source), IpAddr::from(self.destination))),
            _ => None,
        }
    }
}

fn to_field(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()).to_be_bytes(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn last_four(field: [u8; 16]) -> IpAddr {
    let [.., a, b, c, d] = field;
    IpAddr::from([a, b, c, d])
}
