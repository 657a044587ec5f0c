//! A client over datagrams: request ids, replies of several datagrams, losses, late replies.
//!
//! Sans-IO: the caller asks for requests flow by flow, sends them however it can, and hands in what arrives. A request id
//! names a slot; there are far more slots than requests under way, used in turn, and the slot of a lost request rests
//! before it is used again, so that a late reply is known as one.

use super::assembly::{Assemblies, Progress};
use super::call::{Call, Op};
use super::caller::Caller;
use super::fault::{Fault, Quote};
use super::reply::{ReplyReader, Said};
use super::request::Request;
use crate::memcached::udp::FrameHeader;
use rdma_engine::types::Time;
use std::collections::VecDeque;

/// Most requests under way, all flows together.
pub const OUTSTANDING_MAX: usize = 16_384;
/// Slots at least: ids come again after as many requests.
const SLOTS_MIN: usize = 4096;
/// Looks for losses in the time of one.
const LOOKS: u64 = 32;

const NO_ASSEMBLY: u16 = u16::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Idle,
    /// A reply is to come.
    Waiting,
    /// The reply did not come in time.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    call: Call,
    id: u16,
    flow: u16,
    assembly: u16,
    state: Use,
}

/// A client that sends datagrams on several flows.
#[derive(Debug)]
pub struct Datagrams {
    caller: Caller,
    slots: Box<[Slot]>,
    /// When each slot's reply is lost; [`Time::NEVER`] where none is to come.
    deadlines: Box<[Time]>,
    free: VecDeque<u16>,
    /// Slots of lost requests, and until when they rest.
    resting: VecDeque<(Time, u16)>,
    /// Requests to send again.
    again: VecDeque<Call>,
    assemblies: Assemblies,
    reader: ReplyReader,
    /// Requests under way on each flow.
    under_way: Box<[u32]>,
    depth: u32,
    next_look: Time,
}

impl Datagrams {
    /// `flows` flows, each with at most `depth` requests under way.
    ///
    /// # Panics
    /// If there are none, or more than [`OUTSTANDING_MAX`] together.
    pub fn new(caller: Caller, flows: u16, depth: u32) -> Self {
        let most = usize::from(flows) * depth as usize;
        assert!((1..=OUTSTANDING_MAX).contains(&most), "{flows} flows of {depth}");
        let count = (4 * most).next_power_of_two().max(SLOTS_MIN);
        let nothing = Call { key: 0, op: Op::Get { floor: 0 }, due: Time(0), retries: 0, measured: false };
        let slot = |id| Slot { call: nothing, id, flow: 0, assembly: NO_ASSEMBLY, state: Use::Idle };
        let reply_bytes = caller.settings().reply_bytes_max();
        Datagrams {
            slots: (0..count).map(|id| slot(id as u16)).collect(),
            deadlines: vec![Time::NEVER; count].into_boxed_slice(),
            free: (0..count).map(|id| id as u16).collect(),
            resting: VecDeque::with_capacity(count),
            again: VecDeque::with_capacity(most),
            assemblies: Assemblies::new(most, reply_bytes),
            reader: ReplyReader::default(),
            under_way: vec![0; usize::from(flows)].into_boxed_slice(),
            depth,
            next_look: Time(0),
            caller,
        }
    }

    /// The part that knows no transport.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The same, to stop it.
    pub fn caller_mut(&mut self) -> &mut Caller {
        &mut self.caller
    }

    /// When [`next`](Self::next) or [`tick`](Self::tick) has something to do, if nothing arrives before.
    pub fn next_timer(&self, now: Time) -> Time {
        let is_full = self.under_way.iter().all(|n| *n >= self.depth);
        let next = match (is_full, self.again.is_empty()) {
            (true, _) => Time::NEVER,
            (false, false) => now,
            (false, true) => self.caller.next_due(now),
        };
        next.min(self.next_look)
    }

    /// True if the flow takes no more requests for now.
    #[inline]
    pub fn is_full(&self, flow: u16) -> bool {
        self.under_way[usize::from(flow)] >= self.depth || self.free.is_empty()
    }

    /// The next datagram to send on `flow`, if one is due.
    #[inline]
    pub fn next(&mut self, now: Time, flow: u16) -> Option<Request> {
        if self.is_full(flow) {
            return None;
        }
        let call = match self.again.pop_front() {
            Some(call) => call,
            None => self.caller.begin(now)?,
        };
        let index = self.free.pop_front()?;
        let slot = &mut self.slots[usize::from(index)];
        (slot.call, slot.flow, slot.state) = (call, flow, Use::Waiting);
        self.deadlines[usize::from(index)] = now.after_ns(self.caller.settings().timeout_ns);
        self.under_way[usize::from(flow)] += 1;
        Some(self.caller.speech().request(&call, Some(slot.id)))
    }

    /// A datagram arrived on `flow`: its frame header, and `pieces` of together `len` bytes.
    #[inline]
    pub fn receive<'p>(
        &mut self,
        now: Time,
        flow: u16,
        header: &FrameHeader,
        len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) {
        let id = header.request_id.get();
        let index = usize::from(id) & (self.slots.len() - 1);
        let slot = self.slots[index];
        if slot.id != id || slot.flow != flow || slot.state != Use::Waiting {
            let is_late = slot.id == id && slot.flow == flow && slot.state == Use::Lost;
            match is_late {
                // A reply of several datagrams is late once.
                true if header.sequence.get() == 0 => self.caller.late(&slot.call),
                true => {}
                false => self.caller.stranger(),
            }
            return;
        }
        let said = if header.datagrams.get() == 1 {
            self.reader.whole(self.caller.speech(), &slot.call, pieces)
        } else {
            match self.assemble(index, header, len, pieces) {
                Some(said) => said,
                None => return,
            }
        };
        self.release(index);
        self.free.push_back(index as u16);
        self.caller.answered(&slot.call, said, now);
    }

    /// Adds a datagram to a reply of several; what that said once it is whole.
    fn assemble<'p>(
        &mut self,
        index: usize,
        header: &FrameHeader,
        len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Option<Said> {
        let slot = &mut self.slots[index];
        if slot.assembly == NO_ASSEMBLY {
            // Without a buffer the reply is lost, as it is where a socket has none.
            slot.assembly = self.assemblies.take()?;
        }
        match self.assemblies.add(slot.assembly, header, len, pieces) {
            Progress::Partial => None,
            Progress::Nonsense => {
                let what = format!("datagram {} of {}, {len} bytes", header.sequence, header.datagrams);
                Some(Said::Wrong(Fault::Unreadable(Quote::new(what.as_bytes()))))
            }
            Progress::Whole => {
                let pieces = self.assemblies.pieces(slot.assembly);
                Some(self.reader.whole(self.caller.speech(), &slot.call, pieces.into_iter()))
            }
        }
    }

    /// A slot's reply is not waited for any more.
    #[inline]
    fn release(&mut self, index: usize) {
        let slots = self.slots.len() as u16;
        let slot = &mut self.slots[index];
        self.under_way[usize::from(slot.flow)] -= 1;
        self.deadlines[index] = Time::NEVER;
        slot.state = Use::Idle;
        if slot.assembly != NO_ASSEMBLY {
            self.assemblies.give(slot.assembly);
            slot.assembly = NO_ASSEMBLY;
        }
        // The next request here has another id, as far as 16 bits allow.
        slot.id = slot.id.wrapping_add(slots);
    }

    /// Timers. To be called now and then; does nothing in between.
    #[inline]
    pub fn tick(&mut self, now: Time) {
        self.caller.advance(now);
        if now >= self.next_look {
            self.look(now);
        }
    }

    /// Looks for requests whose reply is lost, and for slots that have rested.
    fn look(&mut self, now: Time) {
        let (slots, timeout_ns) = (self.slots.len() as u16, self.caller.settings().timeout_ns);
        self.next_look = now.after_ns((timeout_ns / LOOKS).max(1));
        for index in 0..self.slots.len() {
            if self.deadlines[index] <= now {
                self.lose(index, now.after_ns(2 * timeout_ns));
            }
        }
        while let Some((until, index)) = self.resting.front().copied()
            && until <= now
        {
            self.resting.pop_front();
            let slot = &mut self.slots[usize::from(index)];
            slot.state = Use::Idle;
            slot.id = slot.id.wrapping_add(slots);
            self.free.push_back(index);
        }
    }

    #[cold]
    fn lose(&mut self, index: usize, rest_until: Time) {
        let (call, id) = (self.slots[index].call, self.slots[index].id);
        self.release(index);
        let slot = &mut self.slots[index];
        (slot.state, slot.id) = (Use::Lost, id);
        self.resting.push_back((rest_until, index as u16));
        if let Some(again) = self.caller.lost(call) {
            self.again.push_back(again);
        }
    }
}

#[cfg(test)]
#[path = "tests/datagram.rs"]
mod tests;
