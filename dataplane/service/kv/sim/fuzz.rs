//! What a fuzzer throws at a gateway and at a memory node, and what must hold whatever it throws.

use super::cluster::{Cluster, Setup};
use crate::front::{Datagram, Front, FrontSettings, Peer};
use crate::host::HostSettings;
use crate::memcached::operation::{Operation, Store};
use crate::memcached::rpc::{Call, put_call};
use crate::memcached::{KEY_BYTES_MAX, udp};
use crate::service::kv::engine::Arrival;
use crate::service::kv::message::{AnswerHeader, CallHeader, CallKind};
use crate::service::outbox::{OUTBOX, Outbox};
use crate::stats::Counter;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::heap::HeapBuf;
use rdma_engine::types::Time;
use rdma_engine::wire::Mac;
use zerocopy::IntoBytes;

/// Steps of an input, so that one takes milliseconds.
const STEPS: usize = 64;
/// The number of forged calls: not that of a job, of a report or of a join.
const NOBODYS: u32 = 0xFFF0;
const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PORT: u16 = 11_211;
/// Bytes of Ethernet, and of the largest packet.
const FRAME: usize = 14 + 1500;

/// What is left of an input; what it does not have is 0.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        self.piece(1).first().copied().unwrap_or(0)
    }

    fn piece(&mut self, len: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(self.0.len().min(len));
        self.0 = rest;
        piece
    }

    /// A number of 8 bytes: mostly a small one.
    fn number(&mut self) -> u64 {
        let few = self.byte();
        if few < 0xF0 {
            return few.into();
        }
        let mut bytes = [0; 8];
        let piece = self.piece(8);
        bytes[..piece.len()].copy_from_slice(piece);
        u64::from_le_bytes(bytes)
    }
}

fn small(setup: Setup) -> Setup {
    Setup { frames: 600, messages: 200, arena: 2 << 20, segment_units: 256, ..setup }
}

// ---- clients ----------------------------------------------------------------------------------------------------------

/// Frames of clients into a gateway's front end and engine, now and then with an answer that no node gave; panics if they
/// do, if a request is not over in time or answered twice, or if a buffer is lost.
pub fn fuzz_clients(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut at = AtGateway::new();
    for _ in 0..STEPS {
        if script.0.is_empty() {
            break;
        }
        at.step(&mut script);
    }
    at.end();
}

/// A gateway with its front end, and one memory node.
struct AtGateway {
    cluster: Cluster,
    front: Front<HeapBuf>,
    /// By request.
    peers: Vec<Option<Peer>>,
}

impl AtGateway {
    fn new() -> Self {
        let host = HostSettings {
            mac: OURS,
            addresses: ["192.0.2.1/24", "2001:db8::1/64"].map(|a| a.parse().expect("an address")).to_vec(),
            gateway: None,
            vlan: None,
            duplicates: None,
            other_vlan: Default::default(),
        };
        AtGateway {
            cluster: Cluster::new(small(Setup::default())),
            front: Front::new(FrontSettings::new(host, PORT), false, Time(0)),
            peers: vec![],
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let (what, len) = (script.byte(), usize::from(script.byte()));
        match what & 7 {
            0..=3 => {
                let text = script.piece(len * (1 + usize::from(what >> 6)));
                let head = udp::FrameHeader { datagrams: 1.into(), ..udp::FrameHeader::default() };
                self.receive(&ipv4(0, &datagram(&[head.as_bytes(), text].concat())));
            }
            // Two fragments that may fit each other.
            4 => {
                let fragment = u16::from(what >> 7) << 13 | u16::from(script.byte());
                self.receive(&ipv4(fragment, script.piece(len)));
            }
            5 => self.receive(script.piece(len)),
            6 => {
                let header = AnswerHeader {
                    kind: script.byte() % 6,
                    units: u16::from(script.byte()).into(),
                    call: (script.number() as u32).into(),
                    epoch: script.number().into(),
                    generation: script.number().into(),
                    clock_ms: script.number().into(),
                    place: script.number().into(),
                    seq: script.number().into(),
                    ..AnswerHeader::default()
                };
                let answer = [header.as_bytes(), script.piece(len)].concat();
                self.cluster.may_forge_answer(0, &answer[..answer.len() - usize::from(what >> 3)]);
            }
            _ => self.cluster.turns(len),
        }
        self.cluster.turns(1 + usize::from(what >> 3 & 3));
        self.reply();
    }

    /// A frame of the port.
    fn receive(&mut self, bytes: &[u8]) {
        let now = self.cluster.now;
        assert!(self.cluster.until(|c| c.gateways[0].engine.has_room()));
        let pools = &self.cluster.gateways[0].end.pools;
        let Some(mut frame) = pools.frames.alloc() else { return };
        let Some(room) = frame.append(bytes.len()) else { return };
        room.copy_from_slice(bytes);
        if let Some(got) = self.front.receive(now, frame, &pools.frames, &pools.messages) {
            let number = self.peers.len() as u32;
            self.peers.push(Some(got.peer));
            let Datagram { frame, text, in_message, .. } = got;
            self.cluster.ask_in(0, number, Arrival { frame, text, in_message });
        }
    }

    /// What has been answered goes out.
    fn reply(&mut self) {
        let mut out = Outbox::default();
        let gateway = &mut self.cluster.gateways[0];
        let pools = &gateway.end.pools;
        while let Some((number, text)) = gateway.replies.pop_front() {
            let peer = self.peers[number as usize].take().expect("no request is answered twice");
            assert!(text.ends_with(b"\r\n"), "{:?}", String::from_utf8_lossy(&text));
            let Some(body) = body(&pools.frames, &text) else { continue };
            if text.starts_with(b"ERROR") {
                self.front.send_error(&peer, body);
            } else {
                self.front.send_now(&peer, body, &pools.frames, &pools.slices, &mut out);
            }
        }
        self.front.flush(self.cluster.now, &pools.frames, &pools.slices, &mut out);
        assert!(out.drain(OUTBOX).all(|frame| (42..=FRAME).contains(&frame.len())));
    }

    fn end(mut self) {
        assert!(self.cluster.until(|c| c.gateways[0].engine.is_idle()));
        while !self.cluster.gateways[0].replies.is_empty() || self.front.has_output() {
            self.reply();
        }
        drop(self.front);
        if !self.cluster.downs()[0].is_empty() {
            self.cluster.fail_gateway_end(0, 0);
            self.cluster.fail_node_end(0, 0);
        }
        self.cluster.close_checked();
    }
}

/// Text in as many buffers as it takes.
fn body(pool: &impl Pool<Buf = HeapBuf>, text: &[u8]) -> Option<HeapBuf> {
    let mut parts = text.chunks(2000).map(|part| {
        let mut buf = pool.alloc()?;
        buf.append(part.len())?.copy_from_slice(part);
        Some(buf)
    });
    let mut whole = parts.next()??;
    for part in parts {
        whole.chain(part?).ok()?;
    }
    Some(whole)
}

/// A UDP datagram to the gateway, without a checksum.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let head = [40_000, PORT, 8 + payload.len() as u16, 0].map(u16::to_be_bytes);
    [head.as_flattened(), payload].concat()
}

/// A frame with an IPv4 packet to the gateway, with this word of flags and offset.
fn ipv4(fragment: u16, payload: &[u8]) -> Vec<u8> {
    let words = [0x4500, 20 + payload.len() as u16, 7, fragment, 0x4011, 0, 0xC000, 0x0209, 0xC000, 0x0201];
    let sum = words.iter().map(|word| u32::from(*word)).sum::<u32>();
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    let mut packet = words.map(u16::to_be_bytes);
    packet[5] = sum.to_be_bytes();
    [&OURS.0[..], &[2, 0, 0, 0, 0, 9, 8, 0], packet.as_flattened(), payload].concat()
}

// ---- a gateway --------------------------------------------------------------------------------------------------------

/// Calls of a hostile gateway into a memory node that serves another one, too; panics if the node does, if it leaves a call
/// unanswered while its connection is there, if the other gateway or what is stored suffers, or if a buffer is lost.
pub fn fuzz_calls(bytes: &[u8]) {
    let mut script = Script(bytes);
    let staging_slots = u16::from(script.byte() & 1) * 2;
    let mut c = Cluster::new(small(Setup { gateways: 2, staging_slots, ..Setup::default() }));
    let set = "set good 0 0 5\r\nvalue\r\n";
    assert_eq!(c.say(0, set), "STORED\r\n");
    let mut is_there = true;
    for _ in 0..STEPS {
        if script.0.is_empty() || !is_there {
            break;
        }
        is_there = forge(&mut c, &mut script, staging_slots > 0);
        c.turns(4);
        is_there &= c.downs()[1].is_empty() && c.downs()[0].is_empty();
    }
    let all = |c: &Cluster| c.node_count(Counter::KvCallsServed) == c.node_count(Counter::KvAnswers);
    let gone = |c: &Cluster| c.downs().iter().any(|downs| !downs.is_empty());
    assert!(c.until(|c| all(c) || gone(c)), "a call is not answered");
    assert_eq!(c.say(0, set), "STORED\r\n");
    let told = c.say(0, "get good\r\n");
    // Somebody may have asked for all items to go about now.
    assert!(["VALUE good 0 5\r\nvalue\r\nEND\r\n", "END\r\n"].contains(&told.as_str()), "{told:?}");
    c.fail_gateway_end(0, 1);
    c.fail_node_end(0, 1);
    c.close_checked();
}

/// One step. False if the connection takes nothing more.
fn forge(c: &mut Cluster, script: &mut Script<'_>, staging: bool) -> bool {
    let (what, len) = (script.byte(), usize::from(script.byte()));
    let mut message = match what & 7 {
        0..=2 => {
            let mut message = head(what >> 3 & 3, script);
            message.extend(script.piece(len));
            message
        }
        3 => {
            let mut message = head(CallKind::Operation as u8, script);
            let key = script.piece(1 + len % KEY_BYTES_MAX);
            let value = vec![what; len * usize::from(what >> 3)];
            let operation = Operation::Store(Store { value: &value, ..Store::default() });
            put_call(&mut message, &Call::Operation { key, operation });
            message
        }
        4..=6 => script.piece(len).to_vec(),
        _ => {
            c.turns(len);
            return true;
        }
    };
    if let Some(number) = message.get_mut(4..8) {
        number.copy_from_slice(&NOBODYS.to_le_bytes());
    }
    // Numbers of lists that grow for ever would only lock the good gateway out.
    if message.first() == Some(&(CallKind::Join as u8))
        && let Some(generation) = message.get_mut(8..16)
    {
        generation.copy_from_slice(&1u64.to_le_bytes());
    }
    if message.is_empty() {
        return true;
    }
    if staging && what >= 0x80 {
        let (at, slot) = (script.number() % 15_000, script.number() as u32);
        return c.may_forge_written_call(1, at, slot, &message);
    }
    c.may_forge_call(1, &message)
}

fn head(kind: u8, script: &mut Script<'_>) -> Vec<u8> {
    let header = CallHeader {
        kind,
        spare: [0; 3],
        call: NOBODYS.into(),
        generation: script.number().max(1).into(),
        oldest: script.number().into(),
    };
    header.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_engine::sim::Rng;

    /// Inputs of the test run; a fuzzer tries more.
    const INPUTS: u64 = 150;
    const WORDS: [&[u8]; 20] = [
        b"get ",
        b"gets ",
        b"gat 0 ",
        b"set ",
        b"append ",
        b"mg ",
        b"ms ",
        b"md ",
        b"ma ",
        b"a ",
        b"b ",
        b"\r\n",
        b"0 ",
        b"1",
        b" v",
        b"\0",
        b"incr ",
        b"\xff",
        b"set a 0 0 3\r\nabc\r\n",
        b"flush_all\r\n",
    ];

    fn bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
        (0..rng.below(most)).map(|_| rng.bits() as u8).collect()
    }

    #[test]
    fn any_frames_are_answered_once_or_not_at_all() {
        for seed in 0..INPUTS {
            let mut rng = Rng::new(seed);
            let mut script = vec![];
            for _ in 0..1 + rng.below(STEPS as u64) {
                let what = rng.bits() as u8;
                let text: Vec<u8> = match rng.below(3) {
                    0 => bytes(&mut rng, 60),
                    _ => (0..rng.below(16)).flat_map(|_| WORDS[rng.below(20) as usize].to_vec()).collect(),
                };
                let text = &text[..text.len().min(255)];
                script.extend([what & 0x3F, text.len() as u8]);
                script.extend(text);
            }
            fuzz_clients(&script);
        }
    }

    #[test]
    fn any_calls_leave_a_node_whole() {
        for seed in 0..INPUTS {
            let mut rng = Rng::new(seed);
            let mut script = vec![seed as u8];
            for _ in 0..1 + rng.below(STEPS as u64) {
                let body = bytes(&mut rng, 80);
                script.extend([rng.bits() as u8, body.len() as u8, 1, 1]);
                // Mostly the beginning of a call that makes sense.
                script.extend([1 + rng.below(6) as u8, rng.below(4) as u8]);
                script.extend(body);
            }
            fuzz_calls(&script);
        }
    }
}
