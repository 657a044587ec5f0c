//! What gateway and memory node say to each other: the hello that travels with the exchange, calls and answers as SENDs.
//!
//! Numbers are little endian. A call is a [`CallHeader`] and, by kind, an operation as in [`rpc`](crate::memcached::rpc),
//! places of items that were used, or a membership. Every call is answered by one message: an [`AnswerHeader`] and, by
//! kind of the call, an outcome as in `rpc` or [`NodeCounts`]. So an answer is also the credit for another call: a node posts
//! its receive again before it answers, and a gateway never has more calls under way than the node posts receives.

use super::staging::Shape;
use crate::memcached::rpc::{ANSWER_BYTES_MAX, CALL_BYTES_MAX};
use crate::store::geometry::{Geometry, GeometryError};
use crate::store::layout::{Location, MOST_KEY, Superblock, UNIT};
use crate::store::seal::Secrets;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of everything in this file.
pub const VERSION: u16 = 5;

/// `isKVnode`.
const NODE_MAGIC: u64 = u64::from_le_bytes(*b"isKVnode");

/// What a message has at most beside a value: headers, and the longest key. Bytes.
pub const BESIDE_VALUE: u32 = (UNIT + CALL_BYTES_MAX + MOST_KEY) as u32;
const _: () = assert!(BESIDE_VALUE as usize >= CALL_HEADER + CALL_BYTES_MAX + MOST_KEY);
const _: () = assert!(BESIDE_VALUE as usize >= ANSWER_HEADER + ANSWER_BYTES_MAX);

/// Bytes of the messages that values up to this size need: calls, answers, and items as they are read.
pub const fn message_bytes_for(value_bytes: u32) -> u32 {
    value_bytes.saturating_add(BESIDE_VALUE)
}

/// What a memory node says of itself when a gateway connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeHello {
    magic: U64,
    version: U16,
    /// Slots of a lane in the staging region, 0 without one: see [`staging`](super::staging).
    staging_slots: U16,
    /// Bytes of such a slot.
    staging_slot_bytes: U32,
    /// Bytes of the largest value.
    value_bytes_max: U32,
    /// Secret of key placement and seals.
    secrets: [U64; 4],
    /// As at the begin of the arena.
    superblock: Superblock,
}

/// A hello that is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadHello {
    /// It is not a memory node's, or one of another version.
    #[error(
        "the peer's hello is not that of a memory node of version {VERSION}: use the same version at both ends"
    )]
    NotOurs,
    /// The arena that it describes cannot be.
    #[error("the peer's arena makes no sense: {0}")]
    Geometry(#[from] GeometryError),
}

/// What a gateway takes from a hello.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Where things are in its arena.
    pub geometry: Geometry,
    /// Which start of the node it is.
    pub epoch: u64,
    /// Where keys are and how items are sealed.
    pub secrets: Secrets,
    /// Bytes of the largest value.
    pub value_bytes_max: u32,
    /// How the gateway's staging region is cut.
    pub staging: Shape,
}

impl NodeHello {
    /// The hello of a start: `bits` are what its secrets were made from.
    pub fn new(
        geometry: &Geometry,
        epoch: u64,
        bits: [u64; 4],
        value_bytes_max: u32,
        staging: Shape,
    ) -> Self {
        NodeHello {
            magic: NODE_MAGIC.into(),
            version: VERSION.into(),
            staging_slots: staging.slots.into(),
            staging_slot_bytes: staging.slot_bytes.into(),
            value_bytes_max: value_bytes_max.into(),
            secrets: bits.map(U64::from),
            superblock: geometry.superblock(epoch),
        }
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// If it is none, or says what cannot be.
    pub fn read(bytes: &[u8]) -> Result<Node, BadHello> {
        let hello = NodeHello::read_from_bytes(bytes).map_err(|_| BadHello::NotOurs)?;
        if hello.magic.get() != NODE_MAGIC || hello.version.get() != VERSION {
            return Err(BadHello::NotOurs);
        }
        let (geometry, epoch) = Geometry::of(hello.superblock.as_bytes())?;
        let secrets = Secrets::new(hello.secrets.map(U64::get));
        let staging = Shape { slots: hello.staging_slots.get(), slot_bytes: hello.staging_slot_bytes.get() };
        Ok(Node { geometry, epoch, secrets, value_bytes_max: hello.value_bytes_max.get(), staging })
    }
}

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CallKind {
    /// An operation follows.
    Operation = 1,
    /// Places follow, 8 bytes each: items that were used.
    Report = 2,
    /// A [`Membership`] follows.
    Join = 3,
}

impl CallKind {
    /// The kind with this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(CallKind::Operation),
            2 => Some(CallKind::Report),
            3 => Some(CallKind::Join),
            _ => None,
        }
    }
}

/// In front of every call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CallHeader {
    /// A [`CallKind`].
    pub kind: u8,
    /// 0.
    pub spare: [u8; 3],
    /// The gateway's number for the call, which comes back in the answer.
    pub call: U32,
    /// The membership by which the gateway chose this node.
    pub generation: U64,
    /// Epoch of the oldest lookup under way at this gateway worker in this partition.
    pub oldest: U64,
}

/// Bytes in front of a call.
pub const CALL_HEADER: usize = size_of::<CallHeader>();

/// How a call went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AnswerKind {
    /// What was asked for is done; an outcome follows if it was an operation.
    Done = 1,
    /// The node serves a newer membership than the gateway's.
    Stale = 2,
    /// The node serves the same membership number with other nodes in it, or an older one.
    OtherMembership = 3,
    /// The call made no sense.
    Malformed = 4,
}

impl AnswerKind {
    /// The kind with this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(AnswerKind::Done),
            2 => Some(AnswerKind::Stale),
            3 => Some(AnswerKind::OtherMembership),
            4 => Some(AnswerKind::Malformed),
            _ => None,
        }
    }
}

/// In front of every answer.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AnswerHeader {
    /// An [`AnswerKind`].
    pub kind: u8,
    /// 0.
    pub spare: u8,
    /// Units of the item that the operation wrote or read; 0 without one.
    pub units: U16,
    /// The gateway's number for the call.
    pub call: U32,
    /// The node's present epoch.
    pub epoch: U64,
    /// The membership that the node serves.
    pub generation: U64,
    /// The node's clock: milliseconds since 1970.
    pub clock_ms: U64,
    /// Where the item is.
    pub place: U64,
    /// Which item it is.
    pub seq: U64,
}

/// Bytes in front of an answer.
pub const ANSWER_HEADER: usize = size_of::<AnswerHeader>();

impl AnswerHeader {
    /// The item's location, if there is one.
    pub fn location(&self) -> Option<Location> {
        let units = u32::from(self.units.get());
        (units > 0).then(|| Location { place: self.place.get(), units, seq: self.seq.get() })
    }

    /// Sets the item's location.
    pub fn set_location(&mut self, location: Location) {
        self.units = (location.units as u16).into();
        self.place = location.place.into();
        self.seq = location.seq.into();
    }
}

/// What follows the answer to a report: how the partition is doing.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NodeCounts {
    /// Items that are live.
    pub items: U64,
    /// Bytes of their keys and values.
    pub bytes: U64,
    /// Items written since the start.
    pub written: U64,
    /// Items that had to go for want of room.
    pub evicted: U64,
    /// Items that were found past their time.
    pub expired: U64,
    /// Bytes of the partition's share of the arena.
    pub capacity: U64,
}

/// Nodes of a membership at most.
pub const MOST_NODES: usize = 64;

/// Which nodes share the keys. Follows the header of a [`CallKind::Join`], whose generation is its number; behind it the
/// nodes' identities, 8 bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Membership {
    /// How many nodes there are.
    nodes: U16,
    /// Which of them is asked; [`NONE_OF_THEM`] if it has left.
    own: U16,
    /// 0.
    spare: U32,
    /// Number of the membership that this one takes the place of at the gateway; 0 if it knows of none. A node that serves
    /// that one keeps what stays its own; any other has missed one in which its keys may have been others', and starts empty.
    before: U64,
}

/// The node that is asked is not of this membership.
const NONE_OF_THEM: u16 = u16::MAX;

impl Membership {
    /// Of so many nodes, of which the one that is told is number `own` if it is one of them.
    pub fn new(nodes: usize, own: Option<usize>, before: u64) -> Self {
        let own = own.map_or(NONE_OF_THEM, |own| own as u16);
        Membership { nodes: (nodes as u16).into(), own: own.into(), spare: 0.into(), before: before.into() }
    }
}

/// A membership as a node is told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told<'a> {
    /// Number of the membership before; 0 if none is known.
    pub before: u64,
    /// Which of the nodes is told; `None` if it is not one of them any more.
    pub own: Option<usize>,
    /// Identities of all.
    pub nodes: &'a [U64],
}

/// Reads a membership.
pub fn membership(bytes: &[u8]) -> Option<Told<'_>> {
    let (head, rest) = Membership::ref_from_prefix(bytes).ok()?;
    let nodes = <[U64]>::ref_from_bytes(rest).ok()?;
    let own = Some(head.own.get()).filter(|own| *own != NONE_OF_THEM).map(usize::from);
    let fits = nodes.len() == usize::from(head.nodes.get()) && (1..=MOST_NODES).contains(&nodes.len());
    (fits && own.is_none_or(|own| own < nodes.len())).then_some(Told {
        before: head.before.get(),
        own,
        nodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::layout::item_units;

    #[test]
    fn a_hello_is_read_whole_or_not_at_all() {
        let geometry = Geometry::new(64 << 20, 2).unwrap();
        let staging = Shape { slots: 7, slot_bytes: 4096 };
        let hello = NodeHello::new(&geometry, 9, [1, 2, 3, 4], 5000, staging);
        let bytes = hello.as_bytes().to_vec();
        let node = NodeHello::read(&bytes).unwrap();
        assert_eq!((node.geometry, node.epoch, node.value_bytes_max), (geometry, 9, 5000));
        assert_eq!(node.staging, staging);
        assert_eq!(node.secrets, Secrets::new([1, 2, 3, 4]));
        assert_eq!(NodeHello::read(&bytes[1..]).unwrap_err(), BadHello::NotOurs);
        for at in [0, 8, 9] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(NodeHello::read(&bytes).unwrap_err(), BadHello::NotOurs);
        }
        let mut bytes = bytes.clone();
        let at = std::mem::offset_of!(NodeHello, superblock);
        bytes[at + 32] ^= 1;
        assert!(matches!(NodeHello::read(&bytes), Err(BadHello::Geometry(_))));
    }

    #[test]
    fn the_largest_item_fits_into_whole_units_of_a_message() {
        for value in (0..5000).chain([64_673, 1 << 20]) {
            let units = item_units(MOST_KEY, value as usize);
            let message = message_bytes_for(value) as usize;
            assert!(units as usize * UNIT <= message.next_multiple_of(UNIT), "{value}");
        }
    }

    #[test]
    fn kinds_keep_their_numbers() {
        let calls = (0..=255).filter_map(CallKind::from_code).map(|k| k as u8);
        assert_eq!(calls.collect::<Vec<_>>(), [1, 2, 3]);
        let answers = (0..=255).filter_map(AnswerKind::from_code).map(|k| k as u8);
        assert_eq!(answers.collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((CALL_HEADER, ANSWER_HEADER), (24, 48));
    }

    #[test]
    fn memberships_have_to_add_up() {
        let mut bytes = Membership::new(2, Some(1), 9).as_bytes().to_vec();
        bytes.extend_from_slice(&7u64.to_le_bytes());
        bytes.extend_from_slice(&8u64.to_le_bytes());
        let told = membership(&bytes).unwrap();
        assert_eq!((told.before, told.own), (9, Some(1)));
        assert_eq!(told.nodes.iter().map(|n| n.get()).collect::<Vec<_>>(), [7, 8]);
        assert!(membership(&bytes[..bytes.len() - 1]).is_none());
        assert!(membership(&bytes[..24]).is_none(), "one node is missing");
        bytes[2] = 2;
        assert!(membership(&bytes).is_none(), "there is no such one");
        bytes[2..4].fill(0xFF);
        assert_eq!(membership(&bytes).unwrap().own, None, "it has left");
        assert!((0..16).all(|n| membership(&bytes[..n]).is_none()));
        assert!(membership(Membership::new(0, None, 0).as_bytes()).is_none(), "nobody");
    }
}
