//! A client over streams: requests in a pipeline on each of several connections, replies in their order.
//!
//! Sans-IO, as [`Datagrams`](super::Datagrams). A connection on which nothing is answered, or something that cannot be
//! understood, is broken: the caller closes it, says so, and opens another one in its place.

use super::call::Call;
use super::caller::Caller;
use super::reply::{ReplyReader, Said};
use rdma_engine::types::Time;
use std::collections::VecDeque;

/// Why a connection has to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// A reply made no sense; it was counted as a fault.
    #[error("a reply could not be understood")]
    Unreadable,
    /// Bytes came that nobody had asked for.
    #[error("bytes came that nobody had asked for")]
    Unasked,
    /// No reply in time.
    #[error("no reply in time")]
    Silent,
}

#[derive(Debug)]
struct Flow {
    /// Requests under way, oldest first, and when they were written.
    calls: VecDeque<(Call, Time)>,
    reader: ReplyReader,
    /// When something was last received.
    heard: Time,
}

/// A client that keeps several connections.
#[derive(Debug)]
pub struct Streams {
    caller: Caller,
    flows: Box<[Flow]>,
    depth: usize,
    /// Requests to send again.
    again: VecDeque<Call>,
}

impl Streams {
    /// `flows` connections, each with at most `depth` requests under way.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(caller: Caller, flows: u16, depth: u32) -> Self {
        assert!(flows > 0 && depth > 0, "{flows} flows of {depth}");
        let depth = depth as usize;
        let flow = |_| Flow {
            calls: VecDeque::with_capacity(depth),
            reader: ReplyReader::default(),
            heard: Time(0),
        };
        let again = VecDeque::with_capacity(usize::from(flows) * depth);
        Streams { caller, flows: (0..flows).map(flow).collect(), depth, again }
    }

    /// The part that knows no transport.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The same, to stop it.
    pub fn caller_mut(&mut self) -> &mut Caller {
        &mut self.caller
    }

    /// Adds requests that are due to `out`, as many as the pipeline of `flow` takes and until `out` holds `enough` bytes.
    /// True if there were any.
    #[inline]
    pub fn fill(&mut self, now: Time, flow: u16, enough: usize, out: &mut Vec<u8>) -> bool {
        let Streams { caller, flows, depth, again } = self;
        let flow = &mut flows[usize::from(flow)];
        let before = out.len();
        while flow.calls.len() < *depth && out.len() < enough {
            let Some(call) = again.pop_front().or_else(|| caller.begin(now)) else { break };
            let request = caller.speech().request(&call, None);
            let at = out.len();
            out.resize(at + request.len(), 0);
            request.write(0..request.len(), &mut out[at..]);
            if flow.calls.is_empty() {
                flow.heard = now;
            }
            flow.calls.push_back((call, now));
        }
        out.len() > before
    }

    /// Bytes arrived on `flow`.
    ///
    /// # Errors
    ///
    /// When the connection is of no use any more.
    #[inline]
    pub fn receive(&mut self, now: Time, flow: u16, mut bytes: &[u8]) -> Result<(), Broken> {
        let Streams { caller, flows, .. } = self;
        let flow = &mut flows[usize::from(flow)];
        if !bytes.is_empty() {
            flow.heard = now;
        }
        while !bytes.is_empty() {
            let Some(&(call, _)) = flow.calls.front() else {
                caller.stranger();
                return Err(Broken::Unasked);
            };
            let (used, said) = flow.reader.feed(caller.speech(), &call, bytes);
            bytes = &bytes[used..];
            let Some(said) = said else { continue };
            flow.calls.pop_front();
            let is_fatal = matches!(&said, Said::Wrong(fault) if fault.is_fatal());
            caller.answered(&call, said, now);
            if is_fatal {
                return Err(Broken::Unreadable);
            }
        }
        Ok(())
    }

    /// Timers; a connection that has been silent for too long.
    pub fn tick(&mut self, now: Time) -> Option<u16> {
        self.caller.advance(now);
        let timeout_ns = self.caller.settings().timeout_ns;
        let is_silent = |flow: &Flow| {
            let asked = flow.calls.front().map(|call| call.1);
            asked.is_some_and(|asked| now.since_ns(asked.max(flow.heard)) > timeout_ns)
        };
        self.flows.iter().position(is_silent).map(|flow| flow as u16)
    }

    /// When [`fill`](Self::fill) has something to do, if nothing arrives before.
    pub fn next_timer(&self, now: Time) -> Time {
        match (self.flows.iter().all(|flow| flow.calls.len() >= self.depth), self.again.is_empty()) {
            (true, _) => Time::NEVER,
            (false, false) => now,
            (false, true) => self.caller.next_due(now),
        }
    }

    /// A connection was closed: what was under way on it is lost.
    pub fn closed(&mut self, flow: u16) {
        let Streams { caller, flows, again, .. } = self;
        let flow = &mut flows[usize::from(flow)];
        flow.reader.reset();
        caller.reconnected();
        for (call, _) in flow.calls.drain(..) {
            again.extend(caller.lost(call));
        }
    }
}

#[cfg(test)]
#[path = "tests/stream.rs"]
mod tests;
