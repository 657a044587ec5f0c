//! Who talks to whom: flows, paired into conversations of two queue pairs.
//!
//! A BTH names only the queue pair that receives, so one direction says nothing about the other. A flow is
//! (sender, receiver, receiving QP); two flows make a conversation by the first of these that holds:
//! 1. connection management: REQ and REP named both queue pairs;
//! 2. PSN: an answer carries the PSN of a request that still waits, in a flow between the same two
//!    addresses the other way; among several the one with the same UDP source port, or the same QPN, or the
//!    latest packet;
//! 3. repetition: answers that fit no request come again and again while one flow repeats its requests;
//! 4. elimination: at the end of the capture one flow each way is left between two addresses.
//!
//! What stays alone was captured in one direction only, and is reported as such. All tables are bounded;
//! what does not fit is counted.

mod answer;
mod connection;
mod damage;
mod disagreement;
mod event;
mod flow;
mod follow;
mod message;
mod psn_set;

use std::collections::HashMap;

use rdma_engine::types::{Gid, Psn, Qpn};
use rdma_engine::wire::Transport;
use rdma_engine::wire::cm::CmMessage;

use super::packet_view::View;
pub(super) use connection::{Connection, Connections};
use damage::Damage;
pub(super) use event::{Event, Mark, Refusal, What};
pub(super) use flow::{Counts, Flow, FlowId, FlowKey, PairedBy};
pub(super) use follow::Follow;
pub(super) use message::{Kind, Message, Outcome};

/// Most flows kept.
const MAX_FLOWS: usize = 16_384;

/// Most flows between two addresses looked at to find where an answer belongs.
const MAX_CANDIDATES: usize = 256;

/// Most datagram routes kept.
const MAX_DATAGRAM_ROUTES: usize = 4096;

/// Names a stream of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct DatagramRoute {
    pub(super) source: Gid,
    pub(super) destination: Gid,
    pub(super) source_qpn: Option<Qpn>,
    pub(super) dest_qpn: Qpn,
}

/// Datagrams of a route.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Datagrams {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) first_frame: u64,
}

/// Follows all conversations of a capture.
#[derive(Debug)]
pub(super) struct Tracker {
    flows: Vec<Flow>,
    by_key: HashMap<FlowKey, FlowId>,
    /// Flows without a partner, by (sender, receiver).
    unpaired: HashMap<(Gid, Gid), Vec<FlowId>>,
    datagrams: HashMap<DatagramRoute, Datagrams>,
    pub(super) connections: Connections,
    pub(super) follow: Follow,
    /// Packets that no table had room for.
    pub(super) not_followed: u64,
    /// Packets of transports or opcodes that are not followed.
    pub(super) unknown: u64,
    damage: Damage,
    /// Damaged frames of which nobody knows whose they are.
    pub(super) strays: u64,
}

impl Tracker {
    pub(super) fn new(follow: Follow) -> Self {
        Tracker {
            flows: Vec::new(),
            by_key: HashMap::new(),
            unpaired: HashMap::new(),
            datagrams: HashMap::new(),
            connections: Connections::default(),
            follow,
            not_followed: 0,
            unknown: 0,
            damage: Damage::default(),
            strays: 0,
        }
    }

    /// Takes in a packet. Returns what is to be said about it.
    pub(super) fn observe(&mut self, packet: &View, cm: Option<&CmMessage<'_>>) -> Option<Mark> {
        if self.is_damaged(packet) {
            return None;
        }
        match packet.info.transport {
            Transport::Ud => {
                self.datagram(packet, cm);
                None
            }
            Transport::Cnp => {
                self.congestion_notification(packet);
                None
            }
            Transport::Rc | Transport::Uc => self.connected(packet),
            Transport::Rd | Transport::Xrc | Transport::Vendor => {
                self.unknown += 1;
                None
            }
        }
    }

    fn datagram(&mut self, packet: &View, cm: Option<&CmMessage<'_>>) {
        if let Some(message) = cm {
            let opened = self.connections.observe(packet.source, packet.destination, packet.moment, message);
            if let Some(connection) = opened {
                self.open(connection);
            }
            return;
        }
        let route = DatagramRoute {
            source: packet.source,
            destination: packet.destination,
            source_qpn: packet.source_qpn,
            dest_qpn: packet.dest_qpn,
        };
        if self.datagrams.len() >= MAX_DATAGRAM_ROUTES && !self.datagrams.contains_key(&route) {
            self.not_followed += 1;
            return;
        }
        let sums = self.datagrams.entry(route).or_default();
        sums.frames += 1;
        sums.bytes += u64::from(packet.payload_len);
        if sums.frames == 1 {
            sums.first_frame = packet.moment.frame;
        }
    }

    /// A REP named the second queue pair: both flows are known before their first packet.
    fn open(&mut self, at: usize) {
        let Some(&Connection { active, passive: Some(passive), .. }) = self.connections.get(at) else {
            return;
        };
        let key = |source, destination, dest_qpn| FlowKey {
            source,
            destination,
            dest_qpn,
            transport: Transport::Rc,
        };
        let there = self.fresh(key(active.gid, passive.gid, passive.qpn), passive.starting_psn, at);
        let back = self.fresh(key(passive.gid, active.gid, active.qpn), active.starting_psn, at);
        if let (Some(there), Some(back)) = (there, back) {
            self.pair(there, back, PairedBy::Cm);
        }
    }

    /// A new flow for `key`, whatever used those numbers before.
    fn fresh(&mut self, key: FlowKey, first_psn: Psn, connection: usize) -> Option<FlowId> {
        if let Some(old) = self.by_key.remove(&key) {
            self.forget_unpaired(old);
            self.flows[old.0].give_up(&mut self.follow);
        }
        let id = self.flow(key)?;
        let flow = &mut self.flows[id.0];
        flow.next = Some(first_psn);
        flow.connection = Some(connection);
        Some(id)
    }

    /// The flow of this key, made if need be; `None` if the table is full.
    fn flow(&mut self, key: FlowKey) -> Option<FlowId> {
        if let Some(id) = self.by_key.get(&key) {
            return Some(*id);
        }
        if self.flows.len() == MAX_FLOWS {
            return None;
        }
        let id = FlowId(self.flows.len());
        self.flows.push(Flow::new(key));
        self.by_key.insert(key, id);
        self.unpaired.entry((key.source, key.destination)).or_default().push(id);
        Some(id)
    }

    fn pair(&mut self, a: FlowId, b: FlowId, by: PairedBy) {
        self.forget_unpaired(a);
        self.forget_unpaired(b);
        self.flows[a.0].peer = Some((b, by));
        self.flows[b.0].peer = Some((a, by));
        if let Some(pmtu) = self.flows[b.0].pmtu {
            self.flows[a.0].learn_pmtu(pmtu);
        }
    }

    fn forget_unpaired(&mut self, id: FlowId) {
        let FlowKey { source, destination, .. } = self.flows[id.0].key;
        if let Some(list) = self.unpaired.get_mut(&(source, destination)) {
            list.retain(|other| *other != id);
        }
    }

    fn congestion_notification(&mut self, packet: &View) {
        let key = |transport| FlowKey {
            source: packet.source,
            destination: packet.destination,
            dest_qpn: packet.dest_qpn,
            transport,
        };
        let known =
            [Transport::Rc, Transport::Uc].into_iter().find_map(|t| self.by_key.get(&key(t)).copied());
        match known.or_else(|| self.flow(key(Transport::Rc))) {
            Some(id) => self.flows[id.0].count(packet),
            None => self.not_followed += 1,
        }
    }

    fn connected(&mut self, packet: &View) -> Option<Mark> {
        let key = FlowKey {
            source: packet.source,
            destination: packet.destination,
            dest_qpn: packet.dest_qpn,
            transport: packet.info.transport,
        };
        let Some(id) = self.flow(key) else {
            self.not_followed += 1;
            return None;
        };
        let flow = &mut self.flows[id.0];
        flow.count(packet);
        if let Some(connection) = flow.connection {
            self.connections.mark_used(connection);
        }
        if !packet.intact {
            return None;
        }
        if flow.is_second_copy(packet) {
            return Some(Mark::CapturedTwice);
        }
        if packet.info.is_response() {
            return self.answer(id, packet);
        }
        self.follow.sees(&key, packet, false);
        self.flows[id.0].request(packet, &mut self.follow)
    }

    fn answer(&mut self, id: FlowId, packet: &View) -> Option<Mark> {
        self.flows[id.0].counts.answers += 1;
        self.flows[id.0].last_answer = Some(packet.moment);
        let asking = match self.flows[id.0].peer {
            Some((asking, _)) => asking,
            None => match self.find_asking(id, packet) {
                Some(asking) => {
                    self.pair(id, asking, PairedBy::Psn);
                    asking
                }
                None => match self.find_repeating(id, packet) {
                    Some(asking) => asking,
                    None => {
                        self.flows[id.0].counts.unasked += 1;
                        return Some(Mark::Unasked);
                    }
                },
            },
        };
        let key = self.flows[asking.0].key;
        self.follow.sees(&key, packet, true);
        let mark = self.flows[asking.0].answered_by(packet, &mut self.follow);
        if let Some(pmtu) = self.flows[asking.0].pmtu {
            self.flows[id.0].learn_pmtu(pmtu);
        }
        mark
    }

    /// The flow whose requests this answer is about, among those the other way that have no partner.
    fn find_asking(&self, id: FlowId, packet: &View) -> Option<FlowId> {
        let candidates = self.unpaired.get(&(packet.destination, packet.source))?;
        let fits = |other: &&FlowId| {
            let flow = &self.flows[other.0];
            **other != id && flow.key.transport == packet.info.transport && flow.awaits(packet.psn)
        };
        let candidates = candidates.iter().rev().take(MAX_CANDIDATES).filter(fits);
        candidates.max_by_key(|other| self.rank(**other, packet)).copied()
    }

    /// How well a flow that fits suits this answer.
    fn rank(&self, other: FlowId, packet: &View) -> (bool, bool, Option<u64>) {
        let flow = &self.flows[other.0];
        let same_port = packet.source_port != 0 && flow.source_port == packet.source_port;
        let same_qpn = flow.key.dest_qpn == packet.dest_qpn;
        (same_port, same_qpn, flow.last.map(|moment| moment.frame))
    }

    /// The capture is over: settles what waits, pairs what is left over.
    pub(super) fn finish(&mut self) {
        self.count_strays();
        for routes in self.left_over() {
            if let ([a], [b]) = (&routes.0[..], &routes.1[..])
                && self.flows[a.0].key.transport == self.flows[b.0].key.transport
            {
                self.pair(*a, *b, PairedBy::Elimination);
            }
        }
        for flow in &self.flows {
            for message in flow.pending.iter().chain(&flow.open) {
                self.follow.settled(&flow.key, message);
            }
        }
    }

    /// Unpaired flows of each two addresses, one way and the other.
    fn left_over(&self) -> Vec<(Vec<FlowId>, Vec<FlowId>)> {
        let mut pairs: Vec<_> = self.unpaired.iter().filter(|((a, b), _)| a.0 < b.0).collect();
        pairs.sort_by_key(|(addresses, _)| (addresses.0.0, addresses.1.0));
        let back = |a: Gid, b: Gid| self.unpaired.get(&(b, a)).cloned().unwrap_or_default();
        pairs.into_iter().map(|((a, b), there)| (there.clone(), back(*a, *b))).collect()
    }

    /// All conversations that had packets, by first frame.
    pub(super) fn conversations(&self) -> Vec<(&Flow, Option<&Flow>)> {
        let is_first = |(at, flow): &(usize, &Flow)| match flow.peer {
            Some((peer, _)) => {
                let other = &self.flows[peer.0];
                let frame = |flow: &Flow| flow.first.map_or(u64::MAX, |moment| moment.frame);
                (frame(flow), *at) < (frame(other), peer.0)
            }
            None => flow.first.is_some(),
        };
        let firsts = self.flows.iter().enumerate().filter(is_first);
        let mut list: Vec<_> =
            firsts.map(|(_, flow)| (flow, flow.peer.map(|(peer, _)| &self.flows[peer.0]))).collect();
        list.retain(|(flow, _)| flow.first.is_some());
        list.sort_by_key(|(flow, _)| flow.first.map(|moment| moment.frame));
        list
    }

    /// Datagrams by route, by first frame.
    pub(super) fn datagrams(&self) -> Vec<(DatagramRoute, Datagrams)> {
        let mut list: Vec<_> = self.datagrams.iter().map(|(route, sums)| (*route, *sums)).collect();
        list.sort_by_key(|(_, sums)| sums.first_frame);
        list
    }

    /// The queue pair that sends the requests of this flow, where the other direction is known.
    pub(super) fn own_qpn(&self, key: &FlowKey) -> Option<Qpn> {
        let flow = self.by_key.get(key).map(|id| &self.flows[id.0])?;
        flow.peer.map(|(peer, _)| self.flows[peer.0].key.dest_qpn)
    }
}
