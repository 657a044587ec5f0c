use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a management datagram: the payload of its UD packet.
pub const MAD_LEN: usize = 256;

/// Common header of management datagrams (IBTA 13.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MadHeader {
    /// 1.
    pub base_version: u8,
    /// 7: communication management.
    pub class: u8,
    /// 2 for communication management.
    pub class_version: u8,
    /// 3 (Send), for requests and replies alike.
    pub method: u8,
    /// 0.
    pub status: U16,
    /// 0.
    pub class_specific: U16,
    /// Chosen by the requester, echoed in replies, kept on retransmission.
    pub transaction_id: U64,
    /// Which message; see [`super::cm::CmAttribute`].
    pub attribute_id: U16,
    /// 0.
    pub reserved: U16,
    /// 0.
    pub attribute_modifier: U32,
}

const _: () = assert!(size_of::<MadHeader>() == 24);

impl MadHeader {
    /// Management class of connection management.
    pub const CLASS_CM: u8 = 0x07;
    /// Method of connection management messages.
    pub const METHOD_SEND: u8 = 0x03;

    /// The header of a connection management message.
    pub const fn cm(transaction_id: u64, attribute_id: u16) -> Self {
        MadHeader {
            base_version: 1,
            class: Self::CLASS_CM,
            class_version: 2,
            method: Self::METHOD_SEND,
            status: U16::ZERO,
            class_specific: U16::ZERO,
            transaction_id: U64::new(transaction_id),
            attribute_id: U16::new(attribute_id),
            reserved: U16::ZERO,
            attribute_modifier: U32::ZERO,
        }
    }

    /// True if versions, class and method are those of connection management.
    pub fn is_cm(&self) -> bool {
        (self.base_version, self.class, self.class_version, self.method)
            == (1, Self::CLASS_CM, 2, Self::METHOD_SEND)
    }
}
