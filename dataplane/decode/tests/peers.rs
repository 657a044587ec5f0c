//! Two queue pairs that say what a test wants, and the capture of it.

use std::net::IpAddr;

use rdma_engine::types::{Psn, Qpn, Rkey};
use rdma_engine::wire::{
    Aeth, Bth, CreditCode, ExtendedHeaders, HeaderTemplate, Mac, NakCode, NoHeaders, Opcode, Position, Reth,
    RnrTimer, Route, Syndrome, Tailing, Transport, Vlans,
};

use crate::decode::{DecodeOptions, DecodeSummary};

/// Path MTU of the talk.
pub(super) const PMTU: usize = 1024;

/// Where the BTH begins.
const BTH: usize = 14 + 20 + 8;

/// A capture being made. A is 10.0.0.1 with QP 0x100, B is 10.0.0.2 with QP 0x200.
pub(super) struct Talk {
    templates: [HeaderTemplate; 2],
    time_us: u64,
    ip_id: u16,
    frames: Vec<(u64, Vec<u8>)>,
    /// QPs of A and B.
    pub(super) qpns: [u32; 2],
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    A,
    B,
}

fn template(from: From) -> HeaderTemplate {
    let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let (source, destination) = if from == From::A { (a, b) } else { (b, a) };
    HeaderTemplate::new(&Route {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlans: Vlans::NONE,
        source,
        destination,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xC000,
    })
    .unwrap()
}

impl Talk {
    pub(super) fn new() -> Self {
        Talk {
            templates: [template(From::A), template(From::B)],
            time_us: 1_000_000,
            ip_id: 0x8000,
            frames: Vec::new(),
            qpns: [0x100, 0x200],
        }
    }

    /// Lets time pass.
    pub(super) fn wait_us(&mut self, us: u64) -> &mut Self {
        self.time_us += us;
        self
    }

    /// One packet.
    pub(super) fn packet<H: ExtendedHeaders>(
        &mut self,
        from: From,
        opcode: Opcode,
        psn: u32,
        extended: &H,
        payload: usize,
    ) -> &mut Self {
        let dest_qpn = self.qpns[usize::from(from == From::A)];
        let bth = Bth::new(opcode, Qpn::new(dest_qpn), Psn::new(psn)).with_ack_request(true);
        let mut frame = vec![0; payload + 256];
        self.ip_id = self.ip_id.wrapping_add(1);
        let template = &self.templates[usize::from(from == From::B)];
        let len = template.write_frame(&mut frame, &vec![7; payload], self.ip_id, bth, extended);
        frame.truncate(len);
        self.time_us += 10;
        self.frames.push((self.time_us, frame));
        self
    }

    pub(super) fn send(&mut self, from: From, psn: u32, len: usize) -> &mut Self {
        self.send_part(from, psn, Position::Only, len)
    }

    pub(super) fn send_part(&mut self, from: From, psn: u32, position: Position, len: usize) -> &mut Self {
        let opcode = Opcode::send(Transport::Rc, position, Tailing::Plain);
        self.packet(from, opcode, psn, &NoHeaders, len)
    }

    /// A SEND of `packets` full packets from `psn` on.
    pub(super) fn send_long(&mut self, from: From, psn: u32, packets: u32) -> &mut Self {
        (0..packets).for_each(|i| {
            self.send_part(from, psn + i, Position::of(i, packets), PMTU);
        });
        self
    }

    pub(super) fn read(&mut self, from: From, psn: u32, len: u32) -> &mut Self {
        self.packet(from, Opcode::RC_READ_REQUEST, psn, &Reth::new(0x1000, Rkey(0x77), len), 0)
    }

    /// A READ response packet; `from` is the responder.
    pub(super) fn response(&mut self, from: From, psn: u32, position: Position, len: usize) -> &mut Self {
        let opcode = Opcode::read_response(position);
        match position {
            Position::Middle => self.packet(from, opcode, psn, &NoHeaders, len),
            _ => self.packet(from, opcode, psn, &Aeth::new(Syndrome::ACK, 1), len),
        }
    }

    fn acknowledge(&mut self, from: From, psn: u32, syndrome: Syndrome) -> &mut Self {
        self.packet(from, Opcode::RC_ACKNOWLEDGE, psn, &Aeth::new(syndrome, 1), 0)
    }

    pub(super) fn ack(&mut self, from: From, psn: u32) -> &mut Self {
        self.acknowledge(from, psn, Syndrome::Ack { credits: CreditCode::UNLIMITED })
    }

    pub(super) fn nak(&mut self, from: From, psn: u32, code: NakCode) -> &mut Self {
        self.acknowledge(from, psn, Syndrome::Nak { code })
    }

    pub(super) fn rnr(&mut self, from: From, psn: u32, timer: u8) -> &mut Self {
        self.acknowledge(from, psn, Syndrome::RnrNak { timer: RnrTimer::new(timer) })
    }

    /// Damages the payload or ICRC of the frame sent last.
    pub(super) fn damage(&mut self) -> &mut Self {
        if let Some(byte) = self.frames.last_mut().and_then(|(_, frame)| frame.last_mut()) {
            *byte ^= 0x55;
        }
        self
    }

    /// Flips bits of the frame sent last: of the byte `at`, counted from the BTH on.
    pub(super) fn flip(&mut self, at: usize, bits: u8) -> &mut Self {
        if let Some((_, frame)) = self.frames.last_mut() {
            frame[BTH + at] ^= bits;
        }
        self
    }

    /// Changes the frame sent last.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        if let Some((_, frame)) = self.frames.last_mut() {
            change(frame);
        }
        self
    }

    /// The frame sent last is missing in the capture.
    pub(super) fn lose(&mut self) -> &mut Self {
        self.frames.pop();
        self
    }

    /// The frame sent last is captured a second time.
    pub(super) fn capture_again(&mut self) -> &mut Self {
        self.frames.extend(self.frames.last().cloned());
        self
    }

    /// The frame sent last carries this TOS byte, which no ICRC covers.
    pub(super) fn mark(&mut self, tos: u8) -> &mut Self {
        if let Some((_, frame)) = self.frames.last_mut() {
            frame[15] = tos;
        }
        self
    }

    /// The capture as a pcap file.
    pub(super) fn file(&self) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend([0xA1B2_C3D4u32, 0x0004_0002, 0, 0, 65535, 1].iter().flat_map(|word| word.to_le_bytes()));
        for (us, frame) in &self.frames {
            let len = frame.len() as u32;
            let words = [(us / 1_000_000) as u32, (us % 1_000_000) as u32, len, len];
            file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            file.extend(frame);
        }
        file
    }

    /// The capture, decoded.
    pub(super) fn decoded(&self) -> (String, DecodeSummary) {
        super::decode(&self.file(), &DecodeOptions::default())
    }

    /// What is said to have gone wrong in the only conversation.
    pub(super) fn verdict(&self) -> String {
        let (text, summary) = self.decoded();
        assert_eq!(summary.conversations, 1, "{text}");
        let (_, verdict) = text.split_once("what went wrong: ").expect("a verdict");
        verdict.lines().next().unwrap().to_string()
    }
}
