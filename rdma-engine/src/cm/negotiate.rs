//! Agreement of two offers: both sides take the minimum, and both compute the same.

use super::offer::{Features, Offer, QpOffer, TransportKind};
use super::refuse::{Refusal, RefuseReason};
use crate::types::{Pmtu, QpType};

/// The agreed numbers, seen from one end. [`Terms::mirrored`] is what the other end holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Type of all queue pairs.
    pub qp_type: QpType,
    /// Path MTU of all queue pairs.
    pub path_mtu: Pmtu,
    /// Departures from the standard that both ends take part in.
    pub features: Features,
    /// Largest packet payload in bytes where [`Features::JUMBO_PAYLOAD`] is agreed, else 0.
    pub jumbo_payload: u32,
    /// READs and atomics this end may have outstanding.
    #[doc(alias = "max_rd_atomic")]
    pub initiator_depth: u8,
    /// READs and atomics this end must be able to answer at once.
    #[doc(alias = "max_dest_rd_atomic")]
    pub responder_depth: u8,
    /// RNR timer code: the one with the shorter time (0 is the longest).
    pub min_rnr_timer: u8,
    /// Local ACK timeout code: the shorter time (0 means none and yields to any other).
    pub ack_timeout: u8,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Longest message in bytes; on UD at most one path MTU.
    pub message_size: u32,
    /// Most segments in one message.
    pub max_segments: u16,
    /// Pairs of queue pairs in use: the shorter list counts.
    pub qp_pairs: u16,
    /// Time between keepalives in milliseconds.
    pub keepalive_ms: u32,
    /// Silence after which the peer is lost, in milliseconds.
    pub dead_after_ms: u32,
}

impl Terms {
    /// The same terms as the other end sees them.
    #[must_use]
    pub fn mirrored(self) -> Self {
        Terms { initiator_depth: self.responder_depth, responder_depth: self.initiator_depth, ..self }
    }
}

/// Two queue pairs that face each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpPair {
    /// Ours. Its `psn` is our `sq_psn`, its credits are the receives we keep posted.
    pub local: QpOffer,
    /// The peer's. Its `psn` is our `rq_psn`, its credits are what we may send, its UDP source
    /// port is the one we send from.
    pub remote: QpOffer,
}

/// What two offers come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The numbers.
    pub terms: Terms,
    /// The queue pairs, in the order of both offers.
    pub qps: Vec<QpPair>,
}

impl Agreed {
    /// The agreement as the other end sees it.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let swap = |pair: &QpPair| QpPair { local: pair.remote, remote: pair.local };
        Agreed { terms: self.terms.mirrored(), qps: self.qps.iter().map(swap).collect() }
    }
}

/// Agrees `local` with `remote`, or says why not ("we" is `local`, "you" is `remote`).
///
/// Symmetric: the other end, with the arguments swapped, gets [`Agreed::mirrored`], or a refusal for
/// the same reason. Both offers must have passed [`Offer::check`].
pub fn negotiate(local: &Offer, remote: &Offer) -> Result<Agreed, Refusal> {
    check_service(local, remote)?;
    check_path(local, remote)?;
    let qps = pair_queue_pairs(local, remote)?;
    let path_mtu = local.path_mtu.min(remote.path_mtu);
    let (features, jumbo_payload) = agree_features(local, remote, path_mtu);
    let terms = Terms {
        qp_type: local.qp_type,
        path_mtu,
        features,
        jumbo_payload,
        initiator_depth: local.initiator_depth.min(remote.responder_depth),
        responder_depth: local.responder_depth.min(remote.initiator_depth),
        min_rnr_timer: shorter_code(local.min_rnr_timer, remote.min_rnr_timer),
        ack_timeout: shorter_code(local.ack_timeout, remote.ack_timeout),
        retry_count: local.retry_count.min(remote.retry_count),
        rnr_retry: local.rnr_retry.min(remote.rnr_retry),
        message_size: agree_message_size(local, remote, path_mtu.bytes().max(jumbo_payload))?,
        max_segments: local.max_segments.min(remote.max_segments),
        qp_pairs: qps.len() as u16,
        keepalive_ms: local.keepalive_ms.min(remote.keepalive_ms),
        dead_after_ms: local.dead_after_ms.min(remote.dead_after_ms),
    };
    Ok(Agreed { terms, qps })
}

fn check_service(local: &Offer, remote: &Offer) -> Result<(), Refusal> {
    if local.service.meets(&remote.service) {
        return Ok(());
    }
    let detail = format!("we run {}, you run {}", local.service, remote.service);
    Err(Refusal::new(RefuseReason::Service, detail))
}

fn check_path(local: &Offer, remote: &Offer) -> Result<(), Refusal> {
    if !local.transport.reaches(remote.transport) {
        let detail = format!("we use {}, you use {}", local.transport, remote.transport);
        return Err(Refusal::new(RefuseReason::Transport, detail));
    }
    if local.qp_type != remote.qp_type {
        let detail = format!("we use {}, you use {}", local.qp_type, remote.qp_type);
        return Err(Refusal::new(RefuseReason::QpType, detail));
    }
    let loopback = local.transport == TransportKind::Loopback;
    if !loopback && local.gid.ip().is_ipv4() != remote.gid.ip().is_ipv4() {
        let detail = format!("our GID is {}, yours {}", local.gid, remote.gid);
        return Err(Refusal::new(RefuseReason::AddressFamily, detail));
    }
    Ok(())
}

fn pair_queue_pairs(local: &Offer, remote: &Offer) -> Result<Vec<QpPair>, Refusal> {
    let pairs: Vec<QpPair> =
        local.qps.iter().zip(&remote.qps).map(|(&local, &remote)| QpPair { local, remote }).collect();
    if pairs.is_empty() {
        let detail = format!("we offer {}, you offer {}", local.qps.len(), remote.qps.len());
        return Err(Refusal::new(RefuseReason::NoQueuePairs, detail));
    }
    for (n, pair) in pairs.iter().enumerate() {
        if pair.local.lane != pair.remote.lane {
            let detail = format!("pair {n}: our lane {}, yours {}", pair.local.lane, pair.remote.lane);
            return Err(Refusal::new(RefuseReason::Lane, detail));
        }
    }
    // 0 credits say "this queue pair never receives"; with 1 nothing could be sent, as one credit
    // is reserved for control.
    for (n, pair) in pairs.iter().enumerate() {
        if pair.local.receive_credits == 1 || pair.remote.receive_credits == 1 {
            let detail = format!(
                "pair {n}: we keep {} receives posted, you {}",
                pair.local.receive_credits, pair.remote.receive_credits
            );
            return Err(Refusal::new(RefuseReason::Credits, detail));
        }
    }
    Ok(pairs)
}

/// Departures from the standard need our own transport at both ends, and reliable connections: the others know none.
fn agree_features(local: &Offer, remote: &Offer, path_mtu: Pmtu) -> (Features, u32) {
    let ours = |offer: &Offer| offer.transport != TransportKind::Verbs && offer.qp_type == QpType::Rc;
    if !ours(local) || !ours(remote) {
        return (Features::NONE, 0);
    }
    let mut features = local.features.intersection(remote.features).intersection(Features::KNOWN);
    let jumbo = local.jumbo_payload.min(remote.jumbo_payload);
    if features.contains(Features::JUMBO_PAYLOAD) && jumbo > path_mtu.bytes() {
        return (features, jumbo);
    }
    features = Features(features.0 & !Features::JUMBO_PAYLOAD.0);
    (features, 0)
}

fn agree_message_size(local: &Offer, remote: &Offer, packet_payload: u32) -> Result<u32, Refusal> {
    let both = local.message_size.min(remote.message_size);
    // A datagram is one packet.
    let agreed = if local.qp_type == QpType::Ud { both.min(packet_payload) } else { both };
    let wanted = local.min_message_size.max(remote.min_message_size);
    if agreed >= wanted {
        return Ok(agreed);
    }
    let detail = format!(
        "agreed {agreed} bytes (we {}, you {}, packet {packet_payload}), needed {wanted} (we {}, you {})",
        local.message_size, remote.message_size, local.min_message_size, remote.min_message_size
    );
    Err(Refusal::new(RefuseReason::MessageSize, detail))
}

/// The code with the shorter time, where 0 is the longest of all (RNR timer: 655 ms; ACK timeout:
/// none).
fn shorter_code(a: u8, b: u8) -> u8 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        (a, b) => a.min(b),
    }
}

#[cfg(test)]
mod tests;
