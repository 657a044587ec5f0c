//! Posting, and the check of every completion.

use super::flow::{Deed, Flow, Request};
use super::host::{KEYS, QKEY, SHARED_WORDS, ip};
use super::run::Run;
use crate::buf::{Buf, Pool};
use crate::heap::HeapBuf;
use crate::qp::QpState;
use crate::suite::contents;
use crate::transport::Transport;
use crate::types::{Gid, QpType, Rkey};
use crate::wr::{
    Completion, Cookie, Done, Op, Received, RecvWr, RemoteSlice, RemoteWord, SendWr, SrqId, Status, UdDest,
};

/// Marks cookies of receives.
const RECEIVE: u64 = 1 << 63;

impl Run {
    /// Posts receives as slowly as the scenario says.
    pub(super) fn post_receives(&mut self, end: usize) -> Result<(), String> {
        for pair in 0..self.scenario.pairs {
            for _ in 0..self.scenario.depth {
                if self.rng.chance(self.scenario.receive_ppm) && !self.post_receive(end, pair)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// True if the end takes another receive for `pair`.
    pub(super) fn wants_receive(&self, end: usize, pair: usize) -> bool {
        let (host, qp) = (&self.hosts[end], self.hosts[end].qps[pair]);
        let room =
            if self.scenario.srq { host.transport.srq_room(SrqId(0)) } else { host.transport.recv_room(qp) };
        room > 0 && host.transport.state(qp) != Some(QpState::Err)
    }

    fn post_receive(&mut self, end: usize, pair: usize) -> Result<bool, String> {
        if !self.wants_receive(end, pair) {
            return Ok(false);
        }
        let qp = self.hosts[end].qps[pair];
        let host = &mut self.hosts[end];
        let buf = host.pool.alloc().ok_or("the pool of posted buffers is dry")?;
        let wr = RecvWr { buf, cookie: Cookie(RECEIVE | pair as u64) };
        let posted = match self.scenario.srq {
            true => host.transport.post_srq_recv(SrqId(0), wr),
            false => host.transport.post_recv(qp, wr),
        };
        posted.map(|()| true).map_err(|r| format!("a receive was refused: {}", r.why))
    }

    /// Posts requests as slowly as the scenario says.
    pub(super) fn post_requests(&mut self, end: usize) -> Result<(), String> {
        for pair in 0..self.scenario.pairs {
            while self.rng.chance(self.scenario.post_ppm) && self.post_request(end, pair)? {}
        }
        Ok(())
    }

    fn post_request(&mut self, end: usize, pair: usize) -> Result<bool, String> {
        let qp = self.hosts[end].qps[pair];
        let flow = &self.flows[end][pair];
        let more = flow.requests.len() < self.scenario.requests as usize && self.is_alive(end, pair);
        if !more || self.hosts[end].transport.send_room(qp) == 0 {
            return Ok(false);
        }
        let index = flow.requests.len();
        let wr = self.invent(end, pair, index);
        let posted = self.hosts[end].transport.post_send(qp, wr);
        let request = &self.flows[end][pair].requests[index];
        self.trace.note(self.now, end, || format!("posts {index} of pair {pair}: {}", in_words(request)));
        match posted {
            Ok(()) => Ok(true),
            Err(r) => Err(format!("request {index} of pair {pair} was refused: {}", r.why)),
        }
    }

    fn invent(&mut self, end: usize, pair: usize, index: usize) -> SendWr<HeapBuf> {
        let (scenario, rng) = (&self.scenario, &mut self.rng);
        let longest = scenario.longest.min(if scenario.kind == QpType::Ud { 4096 } else { u32::MAX });
        let flow = &mut self.flows[end][pair];
        let request = match scenario.kind {
            QpType::Rc if scenario.refusals && end == 0 && index + 1 == scenario.requests as usize => {
                flow.invent_refused(rng).clone()
            }
            QpType::Rc => flow.invent_reliable(rng, longest, SHARED_WORDS, KEYS).clone(),
            kind => flow.invent_unreliable(rng, longest, kind == QpType::Uc).clone(),
        };
        let payload = flow.payload(index);
        let op = self.op(end, pair, &request);
        let buf = self.buffer(end, index, &request, &payload, op.fills_buffer());
        let host = &self.hosts[end];
        let ud = host.ah.map(|ah| UdDest { ah, qpn: self.hosts[1 - end].qpns[pair], qkey: QKEY });
        let cookie = Cookie((pair as u64) << 32 | index as u64);
        SendWr { op, buf, cookie, fence: request.fence, solicited: index.is_multiple_of(3), ud }
    }

    /// The buffer of a request: empty for what fills it, else with the payload; unreliable messages begin with their
    /// index, so that they can be told apart.
    fn buffer(&self, end: usize, index: usize, request: &Request, payload: &[u8], fills: bool) -> HeapBuf {
        let mut buf = self.hosts[end].pool.alloc().expect("the pool holds all that can be posted");
        if fills {
            return buf;
        }
        let out = buf.append(request.len).expect("room for the longest message");
        out.copy_from_slice(payload);
        if self.scenario.kind != QpType::Rc && matches!(request.deed, Deed::Send { .. }) {
            out[..8].copy_from_slice(&(index as u64).to_be_bytes());
        }
        buf
    }

    fn op(&self, end: usize, pair: usize, request: &Request) -> Op {
        let region = &self.hosts[1 - end].region;
        let base = region.window().addr();
        let area = self.scenario.area();
        let slice = |at: usize| RemoteSlice {
            addr: base + (pair * area + at) as u64,
            rkey: region.rkey(),
            len: request.len as u32,
        };
        let word = |at: usize| RemoteWord { addr: base + at as u64, rkey: region.rkey() };
        let shared = area * self.scenario.pairs;
        let wrong = RemoteSlice { rkey: Rkey(region.rkey().0 ^ 0x5500), ..slice(0) };
        match request.deed {
            Deed::Send { key: Some(key), .. } => Op::SendInv(self.key(1 - end, pair, key)),
            Deed::Send { imm: None, .. } => Op::Send,
            Deed::Send { imm: Some(imm), .. } => Op::SendImm(imm),
            Deed::Refused { reads: true } => Op::Read(wrong),
            // The last word is the peer's, those behind it are nobody's.
            Deed::Refused { reads: false } => {
                Op::Write(slice((self.scenario.pairs - pair) * area + SHARED_WORDS * 8 - 4))
            }
            Deed::Write { at, imm: None } => Op::Write(slice(at)),
            Deed::Write { at, imm: Some(imm) } => Op::WriteImm(slice(at), imm),
            Deed::Read { at, .. } => Op::Read(slice(at)),
            Deed::Atomic { word: w, compare: None, operand, .. } => {
                Op::FetchAdd { word: word(pair * area + w * 8), add: operand }
            }
            Deed::Atomic { word: w, compare: Some(compare), operand, .. } => {
                Op::CompareSwap { word: word(pair * area + w * 8), compare, swap: operand }
            }
            Deed::Shared { word: w, add } => Op::FetchAdd { word: word(shared + w * 8), add },
        }
    }

    /// A key at `end` that its peer may invalidate.
    fn key(&self, end: usize, pair: usize, key: usize) -> Rkey {
        self.hosts[end].keys[pair * KEYS + key].rkey()
    }

    pub(super) fn check_completion(&mut self, end: usize, c: Completion<HeapBuf>) -> Result<(), String> {
        let pair = self.hosts[end].qps.iter().position(|q| *q == c.qp).ok_or("an unknown queue pair")?;
        match c.done {
            Done::Sent(kind) => {
                let index = self.check_sent_order(end, pair, &c)?;
                let flow = &mut self.flows[end][pair];
                if kind != flow.requests[index].kind() {
                    return Err(format!("request {index} completed as {kind:?}"));
                }
                match c.status {
                    Status::Success => self.check_result(end, pair, index, &c.buf),
                    status => self.check_failure(end, pair, index, status),
                }
            }
            Done::Received(received) => match c.status {
                Status::Success => self.check_arrival(end, pair, received, &c.buf),
                Status::WrFlushErr if self.scenario.harsh || self.retiring => Ok(()),
                status => Err(format!("a receive ended with: {status}")),
            },
        }
    }

    fn check_sent_order(
        &mut self,
        end: usize,
        pair: usize,
        c: &Completion<HeapBuf>,
    ) -> Result<usize, String> {
        let flow = &mut self.flows[end][pair];
        let want = Cookie((pair as u64) << 32 | flow.completed as u64);
        if c.cookie != want {
            return Err(format!("completion of {:?} where {want:?} was due", c.cookie));
        }
        flow.completed += 1;
        Ok(flow.completed - 1)
    }

    fn check_result(&mut self, end: usize, pair: usize, index: usize, buf: &HeapBuf) -> Result<(), String> {
        self.succeeded += 1;
        let flow = &mut self.flows[end][pair];
        if flow.failed.is_some() || matches!(flow.requests[index].deed, Deed::Refused { .. }) {
            return Err(format!("request {index} succeeded after a failure, or where it had to be refused"));
        }
        match flow.wrong_result(index, &contents(buf)) {
            Some(wrong) => Err(format!("pair {pair} of end {end}: {wrong}")),
            None => Ok(()),
        }
    }

    /// Only harsh networks may break a connection, and only by retries that ran out; or the peer refuses what it has to,
    /// which ends both directions. The rest is flushed.
    fn check_failure(&mut self, end: usize, pair: usize, index: usize, status: Status) -> Result<(), String> {
        let harsh = self.scenario.harsh && self.scenario.kind == QpType::Rc;
        let flow = &mut self.flows[end][pair];
        let refused = matches!(flow.requests[index].deed, Deed::Refused { .. });
        let allowed = match (flow.failed, status) {
            (None, Status::RetryExcErr) => harsh,
            (None, Status::RnrRetryExcErr) => harsh && self.scenario.rnr_retry < 7,
            (None, Status::RemAccessErr) => refused,
            // This end has refused.
            (None, Status::WrFlushErr) => self.scenario.refusals && end == 1,
            // Only after the queue pair was taken down.
            (Some(_), Status::WrFlushErr) => true,
            _ => false,
        };
        flow.failed.get_or_insert((index, status));
        if allowed { Ok(()) } else { Err(format!("request {index} of pair {pair} ended with: {status}")) }
    }

    fn check_arrival(
        &mut self,
        end: usize,
        pair: usize,
        received: Received,
        buf: &HeapBuf,
    ) -> Result<(), String> {
        let bytes = contents(buf);
        match self.scenario.kind {
            QpType::Rc => self.check_reliable_arrival(end, pair, received, &bytes),
            _ => self.check_unreliable_arrival(end, pair, received, &bytes),
        }
        .map_err(|wrong| format!("at end {end}, pair {pair}: {wrong}"))
    }

    fn check_reliable_arrival(
        &mut self,
        end: usize,
        pair: usize,
        received: Received,
        bytes: &[u8],
    ) -> Result<(), String> {
        let flow = &mut self.flows[1 - end][pair];
        let next = (flow.arrived..flow.requests.len()).find(|i| flow.requests[*i].arrives());
        let index = next.ok_or("a message arrived that nobody sent")?;
        flow.arrived = index + 1;
        let key = match flow.requests[index].deed {
            Deed::Send { key, .. } => key.map(|key| self.hosts[end].keys[pair * KEYS + key].rkey()),
            _ => None,
        };
        if received.invalidated != key {
            return Err(format!("message {index} invalidated {:?}, not {key:?}", received.invalidated));
        }
        check_message(flow, index, received, bytes, false)
    }

    fn check_unreliable_arrival(
        &mut self,
        end: usize,
        pair: usize,
        received: Received,
        bytes: &[u8],
    ) -> Result<(), String> {
        let ordered = !self.scenario.shuffles();
        let datagram = self.scenario.kind == QpType::Ud;
        let index = match received.written {
            Some(_) => received.imm.map(|imm| imm as usize),
            None => bytes.first_chunk::<8>().map(|b| u64::from_be_bytes(*b) as usize),
        };
        let flow = &mut self.flows[1 - end][pair];
        let index = index.filter(|i| *i < flow.requests.len()).ok_or("an unknown message arrived")?;
        if ordered && index < flow.arrived {
            return Err(format!("message {index} arrived after {}", flow.arrived));
        }
        flow.arrived = index + 1;
        check_message(flow, index, received, bytes, true)?;
        if datagram {
            let gid: Gid = ip(&self.scenario, 1 - end).into();
            let source = received.source.ok_or("a datagram without a sender")?;
            if (source.qpn, source.gid) != (self.hosts[1 - end].qpns[pair], Some(gid)) {
                return Err(format!("a datagram from {source:?}"));
            }
        }
        if received.written.is_some() && ordered {
            let mut area = vec![0; self.scenario.area()];
            self.hosts[end].region.window().copy_out(pair * self.scenario.area(), &mut area);
            let wrong = self.flows[1 - end][pair].wrong_unreliable_write(index, &area);
            return wrong.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// At the end: everything a reliable flow sent has arrived.
    pub(super) fn check_arrivals(&self, end: usize, pair: usize) -> Result<(), String> {
        let flow = &self.flows[end][pair];
        let sure = flow.failed.map_or(flow.requests.len(), |(index, _)| index);
        let missing = (flow.arrived..sure).find(|i| flow.requests[*i].arrives());
        match missing {
            // Messages that were taken when the receiver's queue pair failed may have no completion.
            Some(index) if self.scenario.kind == QpType::Rc && self.is_alive(1 - end, pair) => {
                Err(format!("request {index} of end {end}, pair {pair} completed but never arrived"))
            }
            _ => Ok(()),
        }
    }
}

/// A message against what was sent.
fn check_message(
    flow: &Flow,
    index: usize,
    received: Received,
    bytes: &[u8],
    marked: bool,
) -> Result<(), String> {
    let request = &flow.requests[index];
    if received.imm != request.imm() {
        return Err(format!("message {index} came with {:?}, not {:?}", received.imm, request.imm()));
    }
    if let Deed::Write { .. } = request.deed {
        let right = received.written == Some(request.len as u32) && bytes.is_empty();
        return if right { Ok(()) } else { Err(format!("WRITE {index} reported as {received:?}")) };
    }
    let mut want = flow.payload(index);
    if marked {
        want[..8].copy_from_slice(&(index as u64).to_be_bytes());
    }
    if received.written.is_some() || bytes != want {
        let first = bytes.iter().zip(&want).position(|(a, b)| a != b);
        return Err(format!(
            "message {index} came as {} bytes, not {}; first difference {first:?}",
            bytes.len(),
            want.len()
        ));
    }
    Ok(())
}

fn in_words(request: &Request) -> String {
    let fence = if request.fence { " fenced" } else { "" };
    match &request.deed {
        Deed::Read { at, .. } => format!("READ {} at {at}{fence}", request.len),
        deed => format!("{deed:?} {}B{fence}", request.len),
    }
}
