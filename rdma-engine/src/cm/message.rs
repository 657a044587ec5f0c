//! The messages of the exchange, as pure encode and decode.
//!
//! | message | body |
//! |---|---|
//! | Challenge | nonce 32, auth mode u8 (0 none, 1 pre-shared key), reserved 7 |
//! | Hello | tagged values: 1 identity, 2 service, 3 endpoint, 4 queue pairs, 5 regions, 6 blob, 8 nonce, 9 application |
//! | HelloReply | tagged values as in Hello without nonce, plus 7 terms |
//! | Ready | generation of the sender u64, of the receiver u64 |
//! | Refuse | reason u16, detail length u16, detail UTF-8 |
//! | Keepalive, KeepaliveReply | generations as in Ready, sequence u64 |
//! | Goodbye | generations as in Ready, reason u16, count u16, then per queue pair: qpn u32, messages u64, frames u64 |
//!
//! | tagged value | layout |
//! |---|---|
//! | 1 identity | instance u64, generation u64, node name |
//! | 2 service | kind u16, name |
//! | 3 endpoint | transport u16, qp_type u8, path_mtu u8 (1 to 5), features u64, gid 16, mac 6, mac_present u8, min_rnr_timer u8, ack_timeout u8, retry_count u8, rnr_retry u8, initiator_depth u8, responder_depth u8, reserved u8, workers u16, max_segments u16, message_size u32, min_message_size u32, jumbo_payload u32, qkey u32, keepalive_ms u32, dead_after_ms u32 |
//! | 4 queue pairs | each: qpn u32, psn u32, worker u16, udp_source_port u16, receive_credits u16, lane u16 |
//! | 5 regions | each: addr u64, len u64, rkey u32, access u32 (remote rights, bits of `ibv_access_flags`) |
//! | 6 blob | up to 4096 bytes, the transport's |
//! | 7 terms | qp_type u8, path_mtu u8, initiator_depth u8, responder_depth u8, min_rnr_timer u8, ack_timeout u8, retry_count u8, rnr_retry u8, features u64, jumbo_payload u32, message_size u32, max_segments u16, qp_pairs u16, keepalive_ms u32, dead_after_ms u32 |
//! | 8 nonce | 32 bytes |
//! | 9 application | up to 4096 bytes, the service's; left out where it has nothing to say |
//!
//! Reserved bytes are sent as 0 and not looked at.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::frame::{FrameKind, MAX_BODY, TAG_LEN};
use super::negotiate::Terms;
use super::offer::{
    MAX_APPLICATION, MAX_BLOB, MAX_NAME, MAX_QPS, MAX_REGIONS, Offer, OfferError, check_name,
};
use super::offer_wire::{put_offer, put_terms, take_offer, take_terms};
use super::refuse::{MAX_DETAIL, Refusal, RefuseReason};
use super::tlv::{Malformed, Values, exactly, first, put, row, text};
use crate::types::Qpn;

const TAG_IDENTITY: u16 = 1;
const TAG_NONCE: u16 = 8;

// The longest hello fits a frame.
const _: () = assert!(
    10 * 4
        + (16 + 2 * MAX_NAME + 2 + 70 + 36)
        + (16 * MAX_QPS + 24 * MAX_REGIONS + MAX_BLOB + MAX_APPLICATION)
        + (32 + TAG_LEN)
        <= MAX_BODY
);
const _: () = assert!(size_of::<WireGoodbye>() + size_of::<WireTotal>() * MAX_QPS + TAG_LEN <= MAX_BODY);

/// A fresh random number of one end; never used twice.
pub type Nonce = [u8; 32];

/// Who speaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name of the node as the config gives it; unique among the peers of a server.
    pub node: String,
    /// Random number of this run of the process.
    pub instance: u64,
    /// Number of the attempt, growing: fences what belongs to an earlier one.
    pub generation: u64,
}

/// How the ends prove who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AuthMode {
    /// Not at all.
    None = 0,
    /// HMAC-SHA256 with a pre-shared key.
    PresharedKey = 1,
}

/// First message of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// The server's nonce.
    pub nonce: Nonce,
    /// What it asks for.
    pub auth: AuthMode,
}

/// Who the client is and what it offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The client's nonce.
    pub nonce: Nonce,
    /// Who it is.
    pub identity: Identity,
    /// What it brings.
    pub offer: Offer,
}

/// Who the server is, what it brings and what is agreed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelloReply {
    /// Who it is.
    pub identity: Identity,
    /// What it brings.
    pub offer: Offer,
    /// The terms as the server sees them.
    pub terms: Terms,
}

/// The generations of sender and receiver: a message of another pair is late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Generation of the sender.
    pub from: u64,
    /// Generation of the receiver.
    pub to: u64,
}

/// Why the sender ends a session that worked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GoodbyeReason {
    /// It shuts down.
    Shutdown,
    /// Its configuration changed.
    Reconfigured,
    /// A queue pair went to ERR; the connection has to be rebuilt.
    QpError,
    /// Its port went down or its address moved.
    PortChanged,
    /// A reason of a later version.
    Other(u16),
}

impl GoodbyeReason {
    /// The number on the wire.
    pub const fn code(self) -> u16 {
        match self {
            GoodbyeReason::Shutdown => 1,
            GoodbyeReason::Reconfigured => 2,
            GoodbyeReason::QpError => 3,
            GoodbyeReason::PortChanged => 4,
            GoodbyeReason::Other(code) => code,
        }
    }

    /// The reason with this number.
    pub const fn from_code(code: u16) -> Self {
        match code {
            1 => GoodbyeReason::Shutdown,
            2 => GoodbyeReason::Reconfigured,
            3 => GoodbyeReason::QpError,
            4 => GoodbyeReason::PortChanged,
            other => GoodbyeReason::Other(other),
        }
    }
}

/// What one queue pair of the sender has sent in all: lets the other end count its losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpTotal {
    /// The queue pair of the sender.
    pub qpn: Qpn,
    /// Messages posted on it.
    pub messages: u64,
    /// Frames in those messages.
    pub frames: u64,
}

/// The sender posts no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Goodbye {
    /// Whose session.
    pub fence: Fence,
    /// Why.
    pub reason: GoodbyeReason,
    /// Totals per queue pair, at most [`MAX_QPS`].
    pub totals: Vec<QpTotal>,
}

/// Any message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Server to client, first.
    Challenge(Challenge),
    /// Client to server.
    Hello(Box<Hello>),
    /// Server to client.
    HelloReply(Box<HelloReply>),
    /// Either way.
    Ready(Fence),
    /// Either way, last.
    Refuse(Refusal),
    /// Either way.
    Keepalive(Fence, u64),
    /// Either way, with the number of the question.
    KeepaliveReply(Fence, u64),
    /// Either way.
    Goodbye(Goodbye),
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireChallenge {
    nonce: Nonce,
    auth: u8,
    reserved: [u8; 7],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireIdentity {
    instance: U64,
    generation: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireFence {
    from: U64,
    to: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireBeat {
    fence: WireFence,
    sequence: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireRefuse {
    reason: U16,
    detail_len: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireGoodbye {
    fence: WireFence,
    reason: U16,
    count: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireTotal {
    qpn: U32,
    messages: U64,
    frames: U64,
}

impl From<Fence> for WireFence {
    fn from(fence: Fence) -> Self {
        WireFence { from: U64::new(fence.from), to: U64::new(fence.to) }
    }
}

impl From<WireFence> for Fence {
    fn from(wire: WireFence) -> Self {
        Fence { from: wire.from.get(), to: wire.to.get() }
    }
}

impl Message {
    /// The kind of frame that carries it.
    pub fn kind(&self) -> FrameKind {
        match self {
            Message::Challenge(_) => FrameKind::Challenge,
            Message::Hello(_) => FrameKind::Hello,
            Message::HelloReply(_) => FrameKind::HelloReply,
            Message::Ready(_) => FrameKind::Ready,
            Message::Refuse(_) => FrameKind::Refuse,
            Message::Keepalive(..) => FrameKind::Keepalive,
            Message::KeepaliveReply(..) => FrameKind::KeepaliveReply,
            Message::Goodbye(_) => FrameKind::Goodbye,
        }
    }

    /// Appends the body to `out`. Offers and totals must be within their bounds.
    pub fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Message::Challenge(challenge) => {
                let auth = challenge.auth as u8;
                let wire = WireChallenge { nonce: challenge.nonce, auth, reserved: [0; 7] };
                out.extend_from_slice(wire.as_bytes());
            }
            Message::Hello(hello) => {
                put_identity(out, &hello.identity);
                put_offer(out, &hello.offer);
                put(out, TAG_NONCE, |out| out.extend_from_slice(&hello.nonce));
            }
            Message::HelloReply(reply) => {
                put_identity(out, &reply.identity);
                put_offer(out, &reply.offer);
                put_terms(out, &reply.terms);
            }
            Message::Ready(fence) => out.extend_from_slice(WireFence::from(*fence).as_bytes()),
            Message::Refuse(refusal) => encode_refusal(out, refusal),
            Message::Keepalive(fence, sequence) | Message::KeepaliveReply(fence, sequence) => {
                let wire = WireBeat { fence: (*fence).into(), sequence: U64::new(*sequence) };
                out.extend_from_slice(wire.as_bytes());
            }
            Message::Goodbye(goodbye) => encode_goodbye(out, goodbye),
        }
    }

    /// The message in the body of a frame of `kind`.
    pub fn decode_body(kind: FrameKind, body: &[u8]) -> Result<Message, Malformed> {
        Ok(match kind {
            FrameKind::Challenge => Message::Challenge(decode_challenge(body)?),
            FrameKind::Hello => Message::Hello(Box::new(decode_hello(body)?)),
            FrameKind::HelloReply => Message::HelloReply(Box::new(decode_hello_reply(body)?)),
            FrameKind::Ready => Message::Ready(exactly::<WireFence>(body, "ready")?.into()),
            FrameKind::Refuse => Message::Refuse(decode_refusal(body)?),
            FrameKind::Keepalive => {
                let beat: WireBeat = exactly(body, "keepalive")?;
                Message::Keepalive(beat.fence.into(), beat.sequence.get())
            }
            FrameKind::KeepaliveReply => {
                let beat: WireBeat = exactly(body, "keepalive reply")?;
                Message::KeepaliveReply(beat.fence.into(), beat.sequence.get())
            }
            FrameKind::Goodbye => Message::Goodbye(decode_goodbye(body)?),
        })
    }
}

fn decode_challenge(body: &[u8]) -> Result<Challenge, Malformed> {
    let wire: WireChallenge = exactly(body, "challenge")?;
    let auth = match wire.auth {
        0 => AuthMode::None,
        1 => AuthMode::PresharedKey,
        other => return Err(Malformed::Code("auth mode", u64::from(other))),
    };
    Ok(Challenge { nonce: wire.nonce, auth })
}

fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    let wire =
        WireIdentity { instance: U64::new(identity.instance), generation: U64::new(identity.generation) };
    put(out, TAG_IDENTITY, |out| {
        out.extend_from_slice(wire.as_bytes());
        out.extend_from_slice(identity.node.as_bytes());
    });
}

fn take_identity(values: &Values<'_>) -> Result<Identity, Malformed> {
    let bytes = values.required(TAG_IDENTITY, "the identity")?;
    let (wire, name) = first::<WireIdentity>(bytes, "the identity")?;
    let node = text(name, "the node name")?;
    check_name("node name", &node)?;
    Ok(Identity { node, instance: wire.instance.get(), generation: wire.generation.get() })
}

impl Identity {
    /// Checks the name.
    pub fn check(&self) -> Result<(), OfferError> {
        check_name("node name", &self.node)
    }
}

fn decode_hello(body: &[u8]) -> Result<Hello, Malformed> {
    let values = Values::parse(body)?;
    Ok(Hello {
        nonce: exactly(values.required(TAG_NONCE, "the nonce")?, "the nonce")?,
        identity: take_identity(&values)?,
        offer: take_offer(&values)?,
    })
}

fn decode_hello_reply(body: &[u8]) -> Result<HelloReply, Malformed> {
    let values = Values::parse(body)?;
    Ok(HelloReply {
        identity: take_identity(&values)?,
        offer: take_offer(&values)?,
        terms: take_terms(&values)?,
    })
}

fn encode_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    let detail = refusal.detail().as_bytes();
    let wire =
        WireRefuse { reason: U16::new(refusal.reason.code()), detail_len: U16::new(detail.len() as u16) };
    out.extend_from_slice(wire.as_bytes());
    out.extend_from_slice(detail);
}

/// Lenient: it may come from any version, and it is the last word anyway.
fn decode_refusal(body: &[u8]) -> Result<Refusal, Malformed> {
    let (wire, rest) = first::<WireRefuse>(body, "refusal")?;
    let len = usize::from(wire.detail_len.get()).min(rest.len()).min(MAX_DETAIL);
    let detail = String::from_utf8_lossy(&rest[..len]);
    Ok(Refusal::new(RefuseReason::from_code(wire.reason.get()), detail))
}

fn encode_goodbye(out: &mut Vec<u8>, goodbye: &Goodbye) {
    let wire = WireGoodbye {
        fence: goodbye.fence.into(),
        reason: U16::new(goodbye.reason.code()),
        count: U16::new(goodbye.totals.len() as u16),
    };
    out.extend_from_slice(wire.as_bytes());
    for total in &goodbye.totals {
        let wire = WireTotal {
            qpn: U32::new(total.qpn.value()),
            messages: U64::new(total.messages),
            frames: U64::new(total.frames),
        };
        out.extend_from_slice(wire.as_bytes());
    }
}

fn decode_goodbye(body: &[u8]) -> Result<Goodbye, Malformed> {
    let (wire, rest) = first::<WireGoodbye>(body, "goodbye")?;
    let totals = row::<WireTotal>(rest, "the totals")?;
    if totals.len() != usize::from(wire.count.get()) || totals.len() > MAX_QPS {
        return Err(Malformed::Code("number of totals", u64::from(wire.count.get())));
    }
    let total = |wire: &WireTotal| QpTotal {
        qpn: Qpn::new(wire.qpn.get()),
        messages: wire.messages.get(),
        frames: wire.frames.get(),
    };
    Ok(Goodbye {
        fence: wire.fence.into(),
        reason: GoodbyeReason::from_code(wire.reason.get()),
        totals: totals.iter().map(total).collect(),
    })
}

#[cfg(test)]
mod tests;
