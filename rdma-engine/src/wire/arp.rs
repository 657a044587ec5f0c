use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ethernet::{Mac, ethertype};

/// What an ARP packet says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArpOperation {
    /// Who has the target address?
    Request,
    /// The sender has its address.
    Reply,
}

/// ARP for IPv4 over Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ArpPacket {
    /// 1: Ethernet.
    pub hardware: U16,
    /// 0x0800: IPv4.
    pub protocol: U16,
    /// 6.
    pub hardware_len: u8,
    /// 4.
    pub protocol_len: u8,
    /// 1 request, 2 reply; see [`ArpPacket::operation`].
    pub operation_code: U16,
    /// Who speaks.
    pub sender_mac: Mac,
    /// Who speaks.
    pub sender_ip: [u8; 4],
    /// Zero in requests.
    pub target_mac: Mac,
    /// Who is asked for, or answered.
    pub target_ip: [u8; 4],
}

const _: () = assert!(size_of::<ArpPacket>() == 28);

impl ArpPacket {
    const fn ethernet_ipv4(operation_code: u16) -> Self {
        ArpPacket {
            hardware: U16::new(1),
            protocol: U16::new(ethertype::IPV4),
            hardware_len: 6,
            protocol_len: 4,
            operation_code: U16::new(operation_code),
            sender_mac: Mac([0; 6]),
            sender_ip: [0; 4],
            target_mac: Mac([0; 6]),
            target_ip: [0; 4],
        }
    }

    /// "Who has `target_ip`? Tell `sender`."
    pub const fn request(sender_mac: Mac, sender_ip: [u8; 4], target_ip: [u8; 4]) -> Self {
        ArpPacket { sender_mac, sender_ip, target_ip, ..Self::ethernet_ipv4(1) }
    }

    /// The answer of `mac` to this request, whose target it is.
    pub const fn reply(&self, mac: Mac) -> Self {
        ArpPacket {
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
            ..Self::ethernet_ipv4(2)
        }
    }

    /// Request or reply; `None` for other operations and for anything but IPv4 over Ethernet.
    pub fn operation(&self) -> Option<ArpOperation> {
        let blank = Self::ethernet_ipv4(self.operation_code.get());
        let fixed = (self.hardware, self.protocol, self.hardware_len, self.protocol_len);
        if fixed != (blank.hardware, blank.protocol, blank.hardware_len, blank.protocol_len) {
            return None;
        }
        match self.operation_code.get() {
            1 => Some(ArpOperation::Request),
            2 => Some(ArpOperation::Reply),
            _ => None,
        }
    }
}
