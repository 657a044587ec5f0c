//! Frames whose ICRC is wrong: no receiver acts on them, so they lead a conversation nowhere.
//!
//! Any bit of such a frame may be the wrong one, those of its queue pair and PSN included. It is counted for the
//! flow that it names, and otherwise put aside until the end shows whose it may have been.
//!
//! In a capture without a single good ICRC they mean nothing: it was altered after it was made, with other
//! addresses for example. Then all frames are followed.

use std::cmp::Reverse;
use std::collections::HashMap;

use rdma_engine::types::Psn;
use rdma_engine::wire::Transport;

use super::event::What;
use super::flow::{Flow, FlowId, FlowKey};
use super::{Follow, Tracker};
use crate::decode::dissect::IcrcVerdict;
use crate::decode::packet_view::{Moment, View};

/// Most flows that only damaged frames name; what names more is counted.
const MAX_STRAYS: usize = 4096;

/// Most damaged requests of a flow kept.
const MAX_DAMAGED: usize = 16;

/// Damaged frames that name a flow of which there was no good frame so far.
#[derive(Clone, Copy, Debug)]
struct Stray {
    frames: u64,
    first: Moment,
    last: Moment,
}

/// The damaged frames of a capture.
#[derive(Default, Debug)]
pub(super) struct Damage {
    /// Frames seen, and those with a good and with a bad ICRC.
    frames: u64,
    good: u64,
    bad: u64,
    strays: HashMap<FlowKey, Stray>,
}

/// A damaged frame that claims to be the request with this PSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct DamagedRequest {
    psn: Psn,
    /// It was acknowledged all the same, and never sent again.
    taken: bool,
}

fn key_of(packet: &View) -> Option<FlowKey> {
    let transport = match packet.info.transport {
        Transport::Ud => return None,
        Transport::Uc => Transport::Uc,
        // The opcode may be what is wrong.
        _ => Transport::Rc,
    };
    let View { source, destination, dest_qpn, .. } = *packet;
    Some(FlowKey { source, destination, dest_qpn, transport })
}

impl Tracker {
    /// Looks at the ICRC. True if the packet is not to be followed.
    pub(super) fn is_damaged(&mut self, packet: &View) -> bool {
        self.damage.frames += 1;
        match packet.icrc {
            IcrcVerdict::Unknown => return false,
            IcrcVerdict::Good => {
                self.damage.good += 1;
                if self.damage.good == 1 && self.damage.bad > 0 {
                    self.distrust();
                }
                return false;
            }
            IcrcVerdict::Bad => self.damage.bad += 1,
        }
        let Some(key) = key_of(packet) else {
            self.strays += u64::from(self.damage.good > 0);
            return self.damage.good > 0;
        };
        if self.damage.good == 0 {
            self.put_aside(key, 1, packet.moment);
            return false;
        }
        match self.by_key.get(&key) {
            Some(id) => self.flows[id.0].take_damaged(packet),
            None => self.put_aside(key, 1, packet.moment),
        }
        true
    }

    /// ICRCs mean something in this capture after all. What was followed in nothing but damaged frames is forgotten.
    fn distrust(&mut self) {
        if self.damage.frames > self.damage.bad + 1 {
            // Frames without an ICRC were followed as well; the damaged ones among them are counted already.
            self.damage.strays.clear();
            return;
        }
        let fresh = Tracker::new(Follow::new(self.follow.wanted()));
        self.damage = std::mem::replace(self, fresh).damage;
    }

    fn put_aside(&mut self, key: FlowKey, frames: u64, moment: Moment) {
        if self.damage.strays.len() >= MAX_STRAYS && !self.damage.strays.contains_key(&key) {
            self.strays += frames;
            return;
        }
        let stray = self.damage.strays.entry(key).or_insert(Stray { frames: 0, first: moment, last: moment });
        stray.frames += frames;
        stray.last = moment;
    }

    /// Counts what was put aside: for the flow that it names, or for the only one between those addresses. A sender
    /// of whom there is nothing else gets a flow for it, or its silent peer could not be explained.
    pub(super) fn count_strays(&mut self) {
        if self.damage.good == 0 {
            return;
        }
        let mut strays: Vec<_> = std::mem::take(&mut self.damage.strays).into_iter().collect();
        strays.sort_by_key(|(_, stray)| (Reverse(stray.frames), stray.first.frame));
        let mut between: HashMap<_, (FlowId, u32)> = HashMap::new();
        for (at, flow) in self.flows.iter().enumerate().filter(|(_, flow)| flow.first.is_some()) {
            between.entry((flow.key.source, flow.key.destination)).or_insert((FlowId(at), 0)).1 += 1;
        }
        for (key, stray) in strays {
            let addresses = (key.source, key.destination);
            let known = self.by_key.get(&key).copied();
            let only = between.get(&addresses);
            let id = known.or_else(|| only.filter(|(_, count)| *count == 1).map(|(id, _)| *id));
            // A single frame from nobody may have any wrong bit.
            let id = id.or_else(|| {
                let is_new = only.is_none() && stray.frames > 1;
                if is_new { self.flow(key) } else { None }
            });
            match id {
                Some(id) => {
                    between.entry(addresses).or_insert((id, 1));
                    self.flows[id.0].count_stray(&stray);
                }
                None => self.strays += stray.frames,
            }
        }
    }
}

impl Flow {
    fn count_stray(&mut self, stray: &Stray) {
        self.counts.frames += stray.frames;
        self.counts.bad_icrc += stray.frames;
        let by_frame = |moment: &Moment| moment.frame;
        self.first = self.first.into_iter().chain([stray.first]).min_by_key(by_frame);
        self.last = self.last.into_iter().chain([stray.last]).max_by_key(by_frame);
    }

    /// A damaged frame that names this flow.
    fn take_damaged(&mut self, packet: &View) {
        self.count(packet);
        if !packet.intact || packet.info.is_response() || packet.is_cnp() {
            return;
        }
        self.events.push(packet.moment, What::Damaged { psn: packet.psn });
        // What does not claim to be the next thing has no consequences.
        if self.next.is_some_and(|next| packet.psn.is_before(next)) {
            return;
        }
        if self.damaged.len() == MAX_DAMAGED {
            self.damaged.remove(0);
        }
        self.damaged.push(DamagedRequest { psn: packet.psn, taken: false });
    }

    /// The request came once more, whole.
    pub(super) fn repair(&mut self, psn: Psn) {
        self.damaged.retain(|damaged| damaged.psn != psn);
    }

    /// Everything through `psn` is acknowledged: a receiver that saw the damage would not have done so.
    pub(super) fn take_through(&mut self, psn: Psn) {
        let acked = self.acked;
        for damaged in self.damaged.iter_mut().filter(|damaged| !damaged.taken) {
            let is_new = acked.is_none_or(|acked| damaged.psn.is_after(acked));
            if is_new && !damaged.psn.is_after(psn) {
                damaged.taken = true;
                self.counts.damaged_taken += 1;
            }
        }
    }

    /// True if all of these PSNs were there, in damaged frames.
    pub(super) fn came_damaged(&self, first: Psn, len: u32) -> bool {
        let here = |psn| self.damaged.iter().any(|damaged| damaged.psn == psn);
        len as usize <= MAX_DAMAGED && (0..len).all(|at| here(first.advance(at)))
    }
}
