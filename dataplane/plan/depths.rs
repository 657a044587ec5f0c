//! Queue depths of a node's QPs.

use super::bounds::{MAX_CQ_DEPTH, MAX_DEPTH, MAX_INLINE_BYTES, MAX_QPS, MAX_SGE, RNR_TIMER_10US};
use super::fabric::{DEFAULT_LINK_MBPS, DEFAULT_RTT_US};
use super::ledger::{Ledger, fabric_at, service_at};
use super::{PlanQp, PlanRelay};
use crate::config::{FabricKeys, TransportKind};
use crate::service::relay::{CONTROL_CREDITS, MIN_RECEIVES};

/// Fewest requests in flight that keep a poll loop busy.
const MIN_SEND_DEPTH: u32 = 16;

/// Whose numbers they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) index: usize,
    pub(super) name: &'a str,
}

/// Whose depths are sized.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizing<'a> {
    pub(super) index: usize,
    pub(super) name: &'a str,
    pub(super) workers: u32,
    pub(super) relay: &'a PlanRelay,
}

impl Sizing<'_> {
    fn subject(&self) -> String {
        self.name.to_owned()
    }
}

/// All depths of a node.
pub(super) fn qp(keys: &FabricKeys, of: Sizing<'_>, ledger: &mut Ledger) -> PlanQp {
    let at = |key| fabric_at(of.index, key);
    let srq = keys.srq.unwrap_or(false);
    let send_depth = send_depth(keys, of, ledger);
    let recv_depth = recv_depth(keys, of, send_depth, srq, ledger);
    let cq_depth = cq_depth(keys, of, send_depth, recv_depth, srq, ledger);
    PlanQp {
        kind: keys.qp.unwrap_or_default(),
        count: qp_count(of, ledger),
        send_depth,
        recv_depth,
        srq,
        cq_depth,
        max_sge: ledger.number(at("max_sge"), keys.max_sge, 16, 1..=MAX_SGE, "segments (rxe refuses 33)"),
        max_inline: ledger.number(at("inline"), keys.inline, 0, 0..=MAX_INLINE_BYTES, "bytes"),
        signal_every: signal_every(keys, of, send_depth, ledger),
        ..wire(keys, Subject { index: of.index, name: of.name }, READ_DEPTH, ledger)
    }
}

/// READs that a queue pair has outstanding where nothing else is said: as many as every adapter takes.
pub(super) const READ_DEPTH: u32 = 16;

/// What is the same for every queue pair of a node: outstanding READs, `read_depth` of them by default, retries, timers. The
/// depths are still to come.
pub(super) fn wire(keys: &FabricKeys, of: Subject<'_>, read_depth: u32, ledger: &mut Ledger) -> PlanQp {
    let at = |key| fabric_at(of.index, key);
    let small = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
    let retry = ledger.number(at("retry"), keys.retry, 6, 0..=7, "");
    if retry == 7 && keys.transport == Some(TransportKind::Verbs) {
        let remedy = "set retry = 6, or rely on keepalive_ms alone to notice a lost peer";
        ledger.warn(at("retry"), "soft-RoCE (rxe) takes 7 as for ever", remedy);
    }
    PlanQp {
        kind: keys.qp.unwrap_or_default(),
        count: 0,
        send_depth: 0,
        recv_depth: 0,
        srq: false,
        cq_depth: 0,
        max_sge: 0,
        max_inline: 0,
        signal_every: 0,
        read_depth: small(ledger.number(at("read_depth"), keys.read_depth, read_depth, 1..=128, "")),
        retry: small(retry),
        rnr_retry: small(ledger.number(at("rnr_retry"), keys.rnr_retry, 7, 0..=7, "(7 = for ever)")),
        rnr_timer_code: rnr_timer(keys, of, ledger),
        ack_timeout_code: ack_timeout(keys, of, ledger),
    }
}

fn qp_count(of: Sizing<'_>, ledger: &mut Ledger) -> u32 {
    let count = u64::from(of.workers) * u64::from(of.relay.qps_per_worker);
    if count > MAX_QPS {
        let what = format!("{count} QPs, a device numbers at most {MAX_QPS}");
        ledger.refuse(service_at(of.index, "relay", "qps_per_worker"), what, "use fewer QPs or workers");
    }
    let inputs = format!("workers {} x QPs of each {}", of.workers, of.relay.qps_per_worker);
    ledger.rule("queue-pairs", of.subject(), inputs, format!("{count} QPs"));
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Twice the bandwidth-delay product in messages, rounded up to a power of two.
fn send_depth(keys: &FabricKeys, of: Sizing<'_>, ledger: &mut Ledger) -> u32 {
    let at = |key| fabric_at(of.index, key);
    let gbps = ledger.number(
        at("link_gbps"),
        keys.link_gbps,
        f64::from(DEFAULT_LINK_MBPS) / 1000.0,
        0.001..=3200.0,
        "Gbit/s",
    );
    let rtt_us = ledger.number(at("rtt_us"), keys.rtt_us, DEFAULT_RTT_US, 0.01..=1_000_000.0, "us");
    let message = of.relay.message_bytes;
    let messages = two_bdp_messages(gbps, rtt_us, message);
    let needed = messages.clamp(1, u64::from(u32::MAX / 2)).next_power_of_two();
    if needed > u64::from(MAX_DEPTH) {
        let what = format!(
            "2 x {gbps} Gbit/s x {rtt_us} us / {message} bytes asks for {needed} requests in flight, no QP offers more than {MAX_DEPTH}"
        );
        let what_to_do = "correct link_gbps and rtt_us, or raise message_bytes";
        let key = if keys.rtt_us.is_some() { "rtt_us" } else { "link_gbps" };
        ledger.refuse(at(key), what, what_to_do);
    }
    let needed = u32::try_from(needed).unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
    let default = needed.max(MIN_SEND_DEPTH);
    let depth = ledger.number(at("send_depth"), keys.send_depth, default, 1..=MAX_DEPTH, "requests");
    if depth < needed {
        let what = format!("2 x {gbps} Gbit/s x {rtt_us} us / {message} bytes = {messages} needs {needed}");
        let remedy = format!("set send_depth = {needed} or more, or correct link_gbps and rtt_us");
        ledger.refuse_value(at("send_depth"), depth, what, remedy);
    }
    ledger.rule(
        "send-depth",
        of.subject(),
        format!("2 x {gbps} Gbit/s x {rtt_us} us / {message} bytes = {messages}, as a power of two {needed}, at least {MIN_SEND_DEPTH}"),
        format!("{depth} requests per QP"),
    );
    depth
}

/// Messages of twice the bandwidth-delay product, rounded up.
pub(super) fn two_bdp_messages(gbps: f64, rtt_us: f64, message_bytes: u32) -> u64 {
    // 1 Gbit/s carries 125 bytes a microsecond.
    let bytes = 2.0 * gbps * rtt_us * 125.0;
    // A float to integer conversion saturates; NaN and negative numbers were refused before.
    (bytes / f64::from(message_bytes.max(1))).ceil() as u64
}

fn recv_depth(keys: &FabricKeys, of: Sizing<'_>, send_depth: u32, srq: bool, ledger: &mut Ledger) -> u32 {
    let sharers = if srq { of.relay.qps_per_worker } else { 1 };
    let needed = u64::from(send_depth + CONTROL_CREDITS) * u64::from(sharers);
    let default = needed.next_power_of_two().min(u64::from(MAX_DEPTH));
    let default = u32::try_from(default).unwrap_or(MAX_DEPTH);
    let at = fabric_at(of.index, "recv_depth");
    let depth =
        ledger.number(at.clone(), keys.recv_depth, default, MIN_RECEIVES * sharers..=MAX_DEPTH, "receives");
    let whose = if srq { "per worker, shared" } else { "per QP" };
    if u64::from(depth) < needed {
        let what = format!(
            "fewer receives {whose} than a peer with our send depth may use ({needed}): it will wait for credits"
        );
        ledger.warn(at, what, format!("set recv_depth = {default}"));
    }
    ledger.rule(
        "receive-depth",
        of.subject(),
        format!("(send depth {send_depth} + {CONTROL_CREDITS} for control) x {sharers} QPs on the queue, as a power of two"),
        format!("{depth} receives {whose}"),
    );
    depth
}

/// At least the sum of all queues on it: an overflow costs every QP of the worker.
fn cq_depth(
    keys: &FabricKeys,
    of: Sizing<'_>,
    send_depth: u32,
    recv_depth: u32,
    srq: bool,
    ledger: &mut Ledger,
) -> u32 {
    let qps = u64::from(of.relay.qps_per_worker);
    let receives = u64::from(recv_depth) * if srq { 1 } else { qps };
    let sum = qps * u64::from(send_depth) + receives;
    let at = fabric_at(of.index, "cq_depth");
    if sum > u64::from(MAX_CQ_DEPTH) {
        let what = format!(
            "{qps} QPs with {send_depth} sends and {recv_depth} receives need {sum} entries, no device offers more than {MAX_CQ_DEPTH}"
        );
        ledger.refuse(
            service_at(of.index, "relay", "qps_per_worker"),
            what,
            "lower qps_per_worker or the depths",
        );
    }
    let rounded = sum.next_power_of_two();
    let default = if rounded > u64::from(MAX_CQ_DEPTH) { sum.min(u64::from(MAX_CQ_DEPTH)) } else { rounded };
    let default = u32::try_from(default).unwrap_or(MAX_CQ_DEPTH);
    let depth = ledger.number(at.clone(), keys.cq_depth, default, 2..=MAX_CQ_DEPTH, "entries");
    if u64::from(depth) < sum && sum <= u64::from(MAX_CQ_DEPTH) {
        let what = format!("the queues on it hold {sum} requests, and an overflow ends all its QPs");
        ledger.refuse_value(at, depth, what, format!("set cq_depth = {sum} or more, or leave it out"));
    }
    ledger.rule(
        "cq-depth",
        of.subject(),
        format!("{qps} QPs x {send_depth} sends + {receives} receives = {sum}, as a power of two"),
        format!("{depth} entries per worker"),
    );
    depth
}

fn signal_every(keys: &FabricKeys, of: Sizing<'_>, send_depth: u32, ledger: &mut Ledger) -> u32 {
    let default = (send_depth / 4).clamp(1, 16);
    let at = fabric_at(of.index, "signal_every");
    let every = ledger.number(at.clone(), keys.signal_every, default, 1..=MAX_DEPTH, "requests");
    if every > send_depth {
        let what = format!("the queue of {send_depth} would fill before a completion is asked for");
        ledger.refuse_value(at, every, what, format!("set signal_every = {default} or leave it out"));
        return default;
    }
    every
}

fn rnr_timer(keys: &FabricKeys, of: Subject<'_>, ledger: &mut Ledger) -> u8 {
    let at = fabric_at(of.index, "rnr_timer_us");
    let wanted = ledger.number(at, keys.rnr_timer_us, 120, 10..=655_360, "us");
    let fits = RNR_TIMER_10US.iter().find(|(_, units)| units * 10 >= wanted);
    let (code, units) = fits.copied().unwrap_or((0, 65_536));
    let result = format!("code {code} = {} us", units * 10);
    ledger.rule("rnr-timer", of.name, format!("at least {wanted} us"), result);
    code
}

fn ack_timeout(keys: &FabricKeys, of: Subject<'_>, ledger: &mut Ledger) -> u8 {
    let at = fabric_at(of.index, "ack_timeout_us");
    let wanted = ledger.number(at, keys.ack_timeout_us, 67_000, 5..=60_000_000, "us");
    let us = |code: u8| 4.096 * 2f64.powi(i32::from(code));
    let code = (1..=31).find(|code| us(*code) >= f64::from(wanted)).unwrap_or(31);
    let result = format!("code {code} = {:.0} us", us(code));
    ledger.rule("ack-timeout", of.name, format!("at least {wanted} us"), result);
    code
}
