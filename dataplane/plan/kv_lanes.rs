//! Queue pairs of the key-value service: one lane for READs, one for calls, each with depths and a completion queue of its own.

use super::bounds::{MAX_CQ_DEPTH, MAX_DEPTH, MAX_SGE};
use super::depths::{self, Subject};
use super::ledger::{Ledger, counted, fabric_at, service_at};
use super::{PlanKv, PlanMemoryNode, PlanQp};
use crate::config::{CallKeys, Config, FabricKeys, QpKind, ReadKeys, TransportKind};

/// READs in flight on one queue pair.
const READS: u32 = 128;
/// READs that the soft transport has outstanding on one queue pair: a few bursts of GETs.
const SOFT_READ_DEPTH: u32 = 128;
/// Messages in flight on one queue pair: a burst of SETs.
const CALLS: u32 = 32;

/// A lane of a node before its depths are known.
#[derive(Clone, Copy)]
struct Lane<'a> {
    of: Subject<'a>,
    service: &'static str,
    table: &'static str,
    /// Queue pairs of each worker.
    qps: u32,
    workers: u32,
}

impl Lane<'_> {
    fn at(&self, key: &str) -> Vec<crate::config::KeyPath> {
        service_at(self.of.index, self.service, &format!("{}.{key}", self.table))
    }
}

/// READs and calls of a gateway.
pub(super) fn gateway(
    config: &Config,
    fabric: &FabricKeys,
    of: Subject<'_>,
    (kv, workers): (&PlanKv, u32),
    ledger: &mut Ledger,
) -> (PlanQp, PlanQp) {
    let keys = config.node[of.index].kv.over(&config.service.kv);
    let qps = kv.node_workers_max * kv.nodes_max.max(1);
    let lane = |table| Lane { of, service: "kv", table, qps, workers };
    let wire = wire(fabric, of, ledger);
    let read = reads(&keys.read, wire, lane("read"), ledger);
    let call = calls(&keys.call, wire, lane("call"), ledger);
    (read, call)
}

/// READs that are answered and calls of a memory node.
pub(super) fn memory(
    config: &Config,
    fabric: &FabricKeys,
    of: Subject<'_>,
    (node, workers): (&PlanMemoryNode, u32),
    ledger: &mut Ledger,
) -> (PlanQp, PlanQp) {
    let keys = config.node[of.index].memory.over(&config.service.memory);
    let qps = node.seats * node.gateway_workers_max;
    let lane = |table| Lane { of, service: "memory", table, qps, workers };
    // A memory node posts nothing on the lane of READs; a queue has one entry at least.
    let depth = CallKeys { send_depth: Some(1), recv_depth: Some(1), ..CallKeys::default() };
    let wire = wire(fabric, of, ledger);
    let read = sized(&depth, wire, lane("read"), (1, 0), ledger);
    let call = calls(&keys.call, wire, lane("call"), ledger);
    (read, call)
}

/// What is the same for both lanes.
fn wire(fabric: &FabricKeys, of: Subject<'_>, ledger: &mut Ledger) -> PlanQp {
    let at = fabric_at(of.index, "max_sge");
    let soft = fabric.transport == Some(TransportKind::Soft);
    let read_depth = if soft { SOFT_READ_DEPTH } else { depths::READ_DEPTH };
    PlanQp {
        kind: QpKind::Rc,
        max_sge: ledger.number(at, fabric.max_sge, 16, 1..=MAX_SGE, "segments"),
        ..depths::wire(fabric, of, read_depth, ledger)
    }
}

fn reads(keys: &ReadKeys, wire: PlanQp, lane: Lane<'_>, ledger: &mut Ledger) -> PlanQp {
    let send = ledger.number(lane.at("send_depth"), keys.send_depth, READS, 3..=MAX_DEPTH, "READs");
    let keys = CallKeys {
        send_depth: keys.send_depth,
        recv_depth: None,
        signal_every: keys.signal_every,
        cq_depth: keys.cq_depth,
    };
    sized(&keys, wire, lane, (send, 0), ledger)
}

fn calls(keys: &CallKeys, wire: PlanQp, lane: Lane<'_>, ledger: &mut Ledger) -> PlanQp {
    let send = ledger.number(lane.at("send_depth"), keys.send_depth, CALLS, 2..=MAX_DEPTH, "messages");
    // Two more than the peer may send by the same depth: one for credits, one for a goodbye.
    let default = (send + 2).next_power_of_two().clamp(CALLS, MAX_DEPTH);
    let recv = ledger.number(lane.at("recv_depth"), keys.recv_depth, default, 4..=MAX_DEPTH, "receives");
    sized(keys, wire, lane, (send, recv), ledger)
}

fn sized(
    keys: &CallKeys,
    wire: PlanQp,
    lane: Lane<'_>,
    (send_depth, recv_depth): (u32, u32),
    ledger: &mut Ledger,
) -> PlanQp {
    let default = (send_depth / 4).clamp(1, 16);
    let at = lane.at("signal_every");
    let signal_every = ledger.number(at, keys.signal_every, default, 1..=send_depth, "requests");
    let count = lane.qps * lane.workers;
    let what = match recv_depth {
        0 => counted(send_depth, "READ"),
        _ => format!("{send_depth} sends + {recv_depth} receives"),
    };
    ledger.rule(
        if recv_depth == 0 { "read-lane" } else { "call-lane" },
        lane.of.name,
        format!(
            "{} per worker x {}, each {what}",
            counted(lane.qps, "queue pair"),
            counted(lane.workers, "worker")
        ),
        counted(count, "queue pair"),
    );
    PlanQp {
        count,
        send_depth,
        recv_depth,
        cq_depth: cq_depth(keys, lane, send_depth + recv_depth.max(1), ledger),
        signal_every,
        ..wire
    }
}

/// At least the sum of all queues on it: an overflow costs every queue pair of the worker's lane.
fn cq_depth(keys: &CallKeys, lane: Lane<'_>, each: u32, ledger: &mut Ledger) -> u32 {
    let sum = u64::from(lane.qps) * u64::from(each);
    let most = u64::from(MAX_CQ_DEPTH);
    if sum > most {
        let what = format!(
            "{} queue pairs of {each} requests need {sum} entries, no device offers more than {most}",
            lane.qps
        );
        ledger.refuse(lane.at("cq_depth"), what, "lower the depths, or the most workers of a peer");
    }
    let default = u32::try_from(sum.next_power_of_two().min(most)).unwrap_or(MAX_CQ_DEPTH);
    let depth = ledger.number(lane.at("cq_depth"), keys.cq_depth, default, 2..=MAX_CQ_DEPTH, "entries");
    if u64::from(depth) < sum && sum <= most {
        let what = format!("the queues on it hold {sum} requests, and an overflow ends all its queue pairs");
        ledger.refuse_value(
            lane.at("cq_depth"),
            depth,
            what,
            format!("set cq_depth = {sum} or more, or leave it out"),
        );
    }
    depth
}
