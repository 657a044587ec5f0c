//! What one end brings to a session: service, address, limits, queue pairs and regions.

use std::fmt;

use thiserror::Error;

use crate::mem::{Access, Region};
use crate::types::{Gid, Pmtu, Psn, QpType, Qpn, Rkey};

/// Longest service or node name in bytes.
pub const MAX_NAME: usize = 64;
/// Most queue pairs of one session.
pub const MAX_QPS: usize = 512;
/// Most memory regions of one session.
pub const MAX_REGIONS: usize = 128;
/// Longest blob of a transport in bytes.
pub const MAX_BLOB: usize = 4096;
/// Longest greeting of a service in bytes.
pub const MAX_APPLICATION: usize = 4096;
/// Shortest keepalive interval in milliseconds.
pub const MIN_KEEPALIVE_MS: u32 = 10;
/// Longest time to wait before a silent peer is lost, in milliseconds.
pub const MAX_DEAD_AFTER_MS: u32 = 3_600_000;

/// What a node does with the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServiceKind {
    /// Ethernet frames to and from a relay of the other end.
    Relay,
    /// The front end of the key-value service; meets a [`ServiceKind::KvMemory`].
    KvGateway,
    /// The memory node of the key-value service; meets a [`ServiceKind::KvGateway`].
    KvMemory,
    /// Measurements between two transports.
    Perf,
    /// A service of a later version, or of an application: meets its own kind.
    Other(u16),
}

impl ServiceKind {
    /// The number on the wire.
    pub const fn code(self) -> u16 {
        match self {
            ServiceKind::Relay => 1,
            ServiceKind::KvGateway => 2,
            ServiceKind::KvMemory => 3,
            ServiceKind::Perf => 4,
            ServiceKind::Other(code) => code,
        }
    }

    /// The kind with this number.
    pub const fn from_code(code: u16) -> Self {
        match code {
            1 => ServiceKind::Relay,
            2 => ServiceKind::KvGateway,
            3 => ServiceKind::KvMemory,
            4 => ServiceKind::Perf,
            other => ServiceKind::Other(other),
        }
    }

    /// The kind that must be at the other end.
    pub const fn counterpart(self) -> Self {
        match self {
            ServiceKind::KvGateway => ServiceKind::KvMemory,
            ServiceKind::KvMemory => ServiceKind::KvGateway,
            same => same,
        }
    }
}

/// A service by kind and name, as the config names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServiceId {
    /// What the sender does.
    pub kind: ServiceKind,
    /// The name both ends gave the service, at most [`MAX_NAME`] bytes.
    pub name: String,
}

impl ServiceId {
    /// True if `peer` is the other half of this service.
    pub fn meets(&self, peer: &ServiceId) -> bool {
        self.kind.counterpart() == peer.kind && self.name == peer.name
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ServiceKind::Relay => f.write_str("relay")?,
            ServiceKind::KvGateway => f.write_str("kv-gateway")?,
            ServiceKind::KvMemory => f.write_str("kv-memory")?,
            ServiceKind::Perf => f.write_str("perf")?,
            ServiceKind::Other(code) => write!(f, "kind {code}")?,
        }
        write!(f, " '{}'", self.name.escape_debug())
    }
}

/// Which implementation carries the operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum TransportKind {
    /// libibverbs: a hardware HCA or the kernel's rxe.
    Verbs = 1,
    /// RoCEv2 in user space.
    Soft = 2,
    /// In-process, for tests and benchmarks.
    Loopback = 3,
}

impl TransportKind {
    pub(super) fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(TransportKind::Verbs),
            2 => Some(TransportKind::Soft),
            3 => Some(TransportKind::Loopback),
            _ => None,
        }
    }

    /// True if packets of one reach the other: verbs and soft speak RoCEv2.
    pub fn reaches(self, peer: TransportKind) -> bool {
        (self == TransportKind::Loopback) == (peer == TransportKind::Loopback)
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportKind::Verbs => "verbs",
            TransportKind::Soft => "soft",
            TransportKind::Loopback => "loopback",
        })
    }
}

/// Departures from the standard that two of our own soft transports may agree on.
///
/// A set of bits; bits of a later version survive decoding and vanish in the agreement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Features(pub u64);

impl Features {
    /// No departure.
    pub const NONE: Features = Features(0);
    /// Out-of-order packets are held and reported by SACK.
    pub const SELECTIVE_REPEAT: Features = Features(1);
    /// Packets carry no valid ICRC: for in-memory links.
    pub const NO_ICRC: Features = Features(1 << 1);
    /// Packets may carry up to `jumbo_payload` bytes, beyond the 4096 of the standard.
    pub const JUMBO_PAYLOAD: Features = Features(1 << 2);
    /// What this version knows.
    pub const KNOWN: Features = Features(0b111);

    /// The bits of both.
    #[must_use]
    pub const fn intersection(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }

    /// The bits of either.
    #[must_use]
    pub const fn union(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// True if all bits of `other` are set.
    pub const fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One queue pair as its owner announces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpOffer {
    /// Its number.
    pub qpn: Qpn,
    /// PSN of its first request: the other end's `rq_psn`.
    pub psn: Psn,
    /// Worker that owns it.
    pub worker: u16,
    /// UDP source port this end wants on packets to this queue pair, so that RSS brings them to
    /// `worker`; 0 = any.
    pub udp_source_port: u16,
    /// Receives this end keeps posted on it: the other end's send credits. 0 = it never receives.
    pub receive_credits: u16,
    /// What the service uses it for; both queue pairs of a pair have the same.
    pub lane: u16,
}

/// A memory region the peer may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionOffer {
    /// First byte, in the address space of the owner.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Key that opens it.
    pub rkey: Rkey,
    /// What the peer may do with it; only the remote rights travel.
    pub access: Access,
}

impl RegionOffer {
    /// All of a region, with the rights it has.
    pub fn of(region: &Region) -> Self {
        let window = region.window();
        let (addr, len) = (window.addr(), window.len() as u64);
        RegionOffer { addr, len, rkey: region.rkey(), access: region.access() }
    }
}

/// Everything one end brings. Both ends fill in what they can do; [`super::negotiate()`] takes the
/// minimum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The service this end runs.
    pub service: ServiceId,
    /// Its transport.
    pub transport: TransportKind,
    /// Departures from the standard it would take part in (soft only).
    pub features: Features,
    /// Type of all its queue pairs.
    pub qp_type: QpType,
    /// Its address. All zero only with [`TransportKind::Loopback`].
    pub gid: Gid,
    /// Its MAC address where it knows one.
    pub mac: Option<[u8; 6]>,
    /// Largest path MTU its port carries.
    pub path_mtu: Pmtu,
    /// Largest payload with [`Features::JUMBO_PAYLOAD`] in bytes, 0 = none.
    pub jumbo_payload: u32,
    /// READs and atomics it wants outstanding as initiator.
    #[doc(alias = "max_rd_atomic")]
    pub initiator_depth: u8,
    /// READs and atomics it can answer at once as responder.
    #[doc(alias = "max_dest_rd_atomic")]
    pub responder_depth: u8,
    /// RNR timer code, 0 to 31; 0 is the longest (655.36 ms).
    pub min_rnr_timer: u8,
    /// Local ACK timeout code t, 0 to 31: 4.096 us x 2^t, 0 = no timer.
    pub ack_timeout: u8,
    /// Transport retries, 0 to 7.
    pub retry_count: u8,
    /// RNR retries, 0 to 7; 7 = for ever.
    pub rnr_retry: u8,
    /// Longest message it sends or receives, in bytes.
    pub message_size: u32,
    /// Shortest agreed message its service can work with, in bytes.
    pub min_message_size: u32,
    /// Most segments (frames) in one message.
    pub max_segments: u16,
    /// Workers of its service.
    pub workers: u16,
    /// Q_Key of its UD queue pairs; 0 otherwise.
    pub qkey: u32,
    /// Time between keepalives in milliseconds.
    pub keepalive_ms: u32,
    /// Silence after which the peer is lost, in milliseconds; at least twice `keepalive_ms`.
    pub dead_after_ms: u32,
    /// Its queue pairs; the n-th meets the n-th of the other end.
    pub qps: Vec<QpOffer>,
    /// Memory the other end may use.
    pub regions: Vec<RegionOffer>,
    /// Whatever the transport has to say, at most [`MAX_BLOB`] bytes.
    pub blob: Vec<u8>,
    /// Whatever the service has to say, at most [`MAX_APPLICATION`] bytes.
    pub application: Vec<u8>,
}

impl Offer {
    /// An offer with common limits, to be changed field by field: RC, path MTU 1024, 16 READs,
    /// RNR timer 12 (0.64 ms), ACK timeout 14 (67 ms), 7 retries, 16 KiB messages of up to 32
    /// segments, keepalive every 200 ms, lost after 1 s (so the control thread must poll more often than that).
    pub fn new(service: ServiceId, transport: TransportKind, gid: Gid) -> Self {
        Offer {
            service,
            transport,
            features: Features::NONE,
            qp_type: QpType::Rc,
            gid,
            mac: None,
            path_mtu: Pmtu::B1024,
            jumbo_payload: 0,
            initiator_depth: 16,
            responder_depth: 16,
            min_rnr_timer: 12,
            ack_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            message_size: 16 * 1024,
            min_message_size: 0,
            max_segments: 32,
            workers: 1,
            qkey: 0,
            keepalive_ms: 200,
            dead_after_ms: 1_000,
            qps: Vec::new(),
            regions: Vec::new(),
            blob: Vec::new(),
            application: Vec::new(),
        }
    }

    /// Checks every bound; the first value that breaks one is named.
    pub fn check(&self) -> Result<(), OfferError> {
        self.check_address()?;
        self.check_limits()?;
        self.check_qps()?;
        self.check_regions()?;
        at_most("blob bytes", self.blob.len() as u64, MAX_BLOB as u64)?;
        at_most("application bytes", self.application.len() as u64, MAX_APPLICATION as u64)
    }

    fn check_address(&self) -> Result<(), OfferError> {
        check_name("service name", &self.service.name)?;
        let loopback = self.transport == TransportKind::Loopback;
        if self.gid.is_empty() && !loopback {
            return Err(OfferError::value("gid", 0, "the address of the port"));
        }
        if self.gid.ip().is_multicast() {
            return Err(OfferError::value("gid", u64::from(self.gid.0[0]), "a unicast address"));
        }
        match self.mac {
            Some(mac) if mac[0] & 1 != 0 => {
                Err(OfferError::value("mac", u64::from(mac[0]), "a unicast address"))
            }
            _ => Ok(()),
        }
    }

    fn check_limits(&self) -> Result<(), OfferError> {
        at_most("min_rnr_timer", u64::from(self.min_rnr_timer), 31)?;
        at_most("ack_timeout", u64::from(self.ack_timeout), 31)?;
        at_most("retry_count", u64::from(self.retry_count), 7)?;
        at_most("rnr_retry", u64::from(self.rnr_retry), 7)?;
        at_least("message_size", u64::from(self.message_size), 1)?;
        at_most("message_size", u64::from(self.message_size), 1 << 31)?;
        at_most("min_message_size", u64::from(self.min_message_size), u64::from(self.message_size))?;
        at_least("max_segments", u64::from(self.max_segments), 1)?;
        at_least("workers", u64::from(self.workers), 1)?;
        at_least("keepalive_ms", u64::from(self.keepalive_ms), u64::from(MIN_KEEPALIVE_MS))?;
        at_least("dead_after_ms", u64::from(self.dead_after_ms), 2 * u64::from(self.keepalive_ms))?;
        at_most("dead_after_ms", u64::from(self.dead_after_ms), u64::from(MAX_DEAD_AFTER_MS))?;
        // Bit 31 makes verbs ignore the value given and use the one of the queue pair.
        at_most("qkey", u64::from(self.qkey), (1 << 31) - 1)
    }

    fn check_qps(&self) -> Result<(), OfferError> {
        at_most("number of queue pairs", self.qps.len() as u64, MAX_QPS as u64)?;
        let mut qpns: Vec<u32> = self.qps.iter().map(|qp| qp.qpn.value()).collect();
        qpns.sort_unstable();
        if let Some(twice) = qpns.windows(2).find(|w| w[0] == w[1]) {
            return Err(OfferError::value("qpn", u64::from(twice[0]), "a number of its own"));
        }
        for qp in &self.qps {
            // 0 and 1 belong to subnet management and to the CM, all ones to multicast.
            let qpn = u64::from(qp.qpn.value());
            at_least("qpn", qpn, 2)?;
            at_most("qpn", qpn, u64::from(Qpn::MULTICAST.value()) - 1)?;
            if qp.worker >= self.workers {
                return Err(OfferError::value(
                    "worker of a queue pair",
                    u64::from(qp.worker),
                    "below workers",
                ));
            }
        }
        Ok(())
    }

    fn check_regions(&self) -> Result<(), OfferError> {
        at_most("number of regions", self.regions.len() as u64, MAX_REGIONS as u64)?;
        for region in &self.regions {
            at_least("region length", region.len, 1)?;
            if region.addr.checked_add(region.len).is_none() {
                return Err(OfferError::value(
                    "region address",
                    region.addr,
                    "address + length within 64 bits",
                ));
            }
        }
        Ok(())
    }
}

/// A value of an offer that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{field} is {value}, must be {must}")]
pub struct OfferError {
    /// The field.
    pub field: &'static str,
    /// What it was.
    pub value: u64,
    /// What it must be.
    pub must: Bound,
}

/// What a value must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Bound {
    /// This or less.
    #[error("at most {0}")]
    AtMost(u64),
    /// This or more.
    #[error("at least {0}")]
    AtLeast(u64),
    /// Something that needs words.
    #[error("{0}")]
    Words(&'static str),
}

impl OfferError {
    pub(super) const fn value(field: &'static str, value: u64, must: &'static str) -> Self {
        OfferError { field, value, must: Bound::Words(must) }
    }
}

fn at_most(field: &'static str, value: u64, bound: u64) -> Result<(), OfferError> {
    if value > bound { Err(OfferError { field, value, must: Bound::AtMost(bound) }) } else { Ok(()) }
}

fn at_least(field: &'static str, value: u64, bound: u64) -> Result<(), OfferError> {
    if value < bound { Err(OfferError { field, value, must: Bound::AtLeast(bound) }) } else { Ok(()) }
}

/// A name is 1 to [`MAX_NAME`] bytes without control characters.
pub(super) fn check_name(field: &'static str, name: &str) -> Result<(), OfferError> {
    at_most(field, name.len() as u64, MAX_NAME as u64)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(OfferError::value(field, name.len() as u64, "1 to 64 printable bytes"));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod strategy;
