//! Which frames are let in, and under which name the others are dropped.

use super::lab::{Lab, Setup, bytes, ip, route};
use crate::buf::Buf;
use crate::heap::HeapPool;
use crate::qp::QpState;
use crate::sim::rig::mac;
use crate::soft::{DropReason, Event};
use crate::transport::Transport;
use crate::types::{QpType, Qpn, Time};
use crate::wire::{Bth, Deth, HeaderTemplate, MAD_LEN, NoHeaders, Opcode, WireError};
use zerocopy::big_endian::U16;

/// What the endpoint makes of a SEND_ONLY that `change` has changed: the reason, or `None` if it was served.
fn fate(setup: Setup, change: impl FnOnce(&mut Lab, &mut Bth)) -> Option<DropReason> {
    let mut lab = Lab::with(setup);
    lab.post_recv(0);
    let mut bth = lab.bth(0x04, 0, true);
    change(&mut lab, &mut bth);
    lab.give(bth, &NoHeaders, b"payload");
    let counters = *lab.transport.soft_counters();
    let reason = DropReason::ALL.into_iter().find(|r| counters.drops(*r) > 0);
    assert_eq!(reason.is_none(), lab.poll().len() == 1, "{reason:?}");
    reason
}

#[test]
fn frames_of_strangers_are_dropped_by_name() {
    let plain = Setup::default();
    assert_eq!(fate(plain, |_, _| ()), None);
    assert_eq!(
        fate(plain, |_, b| b.dest_qpn = Qpn::new(b.dest_qpn.value() ^ 1).into()),
        Some(DropReason::UnknownQp)
    );
    let other_tag = |b: &mut Bth| b.dest_qpn = Qpn::new(b.dest_qpn.value() ^ 1 << 23).into();
    assert_eq!(fate(plain, |_, b| other_tag(b)), Some(DropReason::UnknownQp), "the tag counts");
    assert_eq!(fate(plain, |_, b| b.opcode = Opcode(0x24)), Some(DropReason::WrongTransport));
    let from = |address: &str| {
        let address = address.parse().unwrap();
        move |lab: &mut Lab, _: &mut Bth| {
            let other = crate::wire::Route { source: address, ..route() };
            lab.template = HeaderTemplate::new(&other).unwrap();
        }
    };
    assert_eq!(fate(plain, from("10.9.0.3")), Some(DropReason::Address));
    let to = |lab: &mut Lab, _: &mut Bth| {
        let other = crate::wire::Route { destination: "10.9.0.9".parse().unwrap(), ..route() };
        lab.template = HeaderTemplate::new(&other).unwrap();
    };
    assert_eq!(fate(plain, to), Some(DropReason::Address));
    assert_eq!(fate(Setup { state: QpState::Init, ..plain }, |_, _| ()), Some(DropReason::State));
    assert_eq!(fate(Setup { state: QpState::Rtr, ..plain }, |_, _| ()), None);
}

#[test]
fn partitions_match_if_one_side_is_a_full_member() {
    for (pkey, fits) in [(0xFFFF, true), (0x7FFF, true), (0x8001, false), (0x0001, false)] {
        let reason = fate(Setup::default(), |_, b| b.pkey = U16::new(pkey));
        assert_eq!(reason, (!fits).then_some(DropReason::Pkey), "{pkey:#x}");
    }
}

#[test]
fn migration_bit_source_port_and_padding_do_not_matter() {
    assert_eq!(fate(Setup::default(), |_, b| *b = b.with_migrated(true)), None);
    let mut lab = Lab::new();
    lab.post_recv(0);
    let mut frame = lab.bytes_of(lab.bth(0x04, 0, true), &NoHeaders, &[]);
    frame.resize(60, 0xEE);
    lab.give_bytes(&frame);
    assert_eq!(lab.poll().len(), 1);
}

#[test]
fn a_wrong_bit_anywhere_costs_the_frame_and_nothing_else() {
    let mut lab = Lab::new();
    (0..2).for_each(|n| lab.post_recv(n));
    let frame = lab.bytes_of(lab.bth(0x04, 0, true), &NoHeaders, b"some payload");
    // The Ethernet header, and what routers change: not covered by the ICRC.
    let free = |byte: usize| byte < 12 || matches!(byte, 15 | 22 | 24 | 25 | 40 | 41 | 46);
    for bit in (0..frame.len() * 8).filter(|bit| !free(bit / 8)) {
        let mut wrong = frame.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        lab.give_bytes(&wrong);
        assert_eq!(lab.poll().len(), 0, "bit {bit}");
        assert_eq!(lab.names(), [""; 0], "bit {bit}");
    }
    assert!(lab.transport.soft_counters().drops(DropReason::Icrc) > 200);
    lab.give_bytes(&frame);
    assert_eq!(bytes(&lab.poll()[0]), b"some payload");
}

#[test]
fn truncated_frames_are_dropped() {
    let mut lab = Lab::new();
    lab.post_recv(0);
    let frame = lab.bytes_of(lab.bth(0x04, 0, true), &NoHeaders, b"some payload");
    (0..frame.len()).for_each(|len| lab.give_bytes(&frame[..len]));
    let malformed = lab.transport.soft_counters().malformed;
    assert_eq!(malformed.iter().sum::<u64>(), frame.len() as u64);
    assert!(malformed[WireError::Length as usize] > 0);
}

#[test]
fn frames_in_pieces_are_joined() {
    let mut lab = Lab::new();
    lab.post_recv(0);
    let frame = lab.bytes_of(lab.bth(0x04, 0, true), &NoHeaders, &[5; 200]);
    let pool = HeapPool::new(9, 64);
    let mut chain = None::<crate::heap::HeapBuf>;
    for piece in frame.chunks(60) {
        let buf = crate::sim::rig::frame_from(&pool, piece).unwrap();
        match &mut chain {
            Some(chain) => chain.chain(buf).unwrap(),
            None => chain = Some(buf),
        }
    }
    lab.transport.ingress(lab.now, chain.unwrap());
    assert_eq!(bytes(&lab.poll()[0]), [5; 200]);
}

#[test]
fn datagrams_need_the_queue_key() {
    let mut lab = Lab::with(Setup { kind: QpType::Ud, ..Setup::default() });
    lab.post_recv(0);
    let bth = lab.bth(0x64, 12345, false);
    lab.give(bth, &Deth::new(0x78, Qpn::new(9)), b"wrong key");
    lab.give(bth, &Deth::new(0x77, Qpn::new(9)), b"right key");
    lab.give(bth, &Deth::new(0x77, Qpn::new(9)), b"no receive");
    let done = lab.poll();
    let crate::wr::Done::Received(received) = done[0].done else { panic!() };
    assert_eq!((done.len(), bytes(&done[0])), (1, b"right key".to_vec()));
    let source = received.source.unwrap();
    assert_eq!((source.qpn, source.gid), (Qpn::new(9), Some(ip(1).into())));
    let counters = lab.transport.soft_counters();
    assert_eq!((counters.drops(DropReason::Qkey), counters.drops(DropReason::NoReceive)), (1, 1));
    // Too long for the receive: dropped, and the queue pair lives on.
    let small = HeapPool::new(1, 10);
    let buf = crate::buf::Pool::alloc(&small).unwrap();
    assert!(lab.transport.post_recv(lab.qp, crate::wr::RecvWr { buf, cookie: crate::wr::Cookie(0) }).is_ok());
    lab.give(bth, &Deth::new(0x77, Qpn::new(9)), b"longer than ten bytes");
    assert_eq!((lab.poll().len(), lab.state()), (0, QpState::Rts));
    lab.give(bth, &Deth::new(0x77, Qpn::new(9)), b"ten bytes.");
    assert_eq!(bytes(&lab.poll()[0]), b"ten bytes.");
}

#[test]
fn datagrams_for_qp_1_are_handed_up() {
    let mut lab = Lab::new();
    // rxe asks for acknowledgements of these; there are none.
    let bth = Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Lab::psn(0)).with_ack_request(true);
    lab.give(bth, &Deth::new(1, Qpn::GSI), &[7; MAD_LEN]);
    assert!(lab.transport.poll_event().is_none());
    lab.give(bth, &Deth::new(Deth::GSI_QKEY, Qpn::GSI), &[7; MAD_LEN]);
    let Some(Event::Management { gid, qpn, buf }) = lab.transport.poll_event() else { panic!() };
    assert_eq!((gid, qpn, crate::suite::contents(&buf)), (ip(1).into(), Qpn::GSI, vec![7; MAD_LEN]));
    assert_eq!(lab.out(), []);

    let path = crate::qp::AddressVector::to(ip(1).into(), 0);
    lab.transport.send_management(&path, Qpn::GSI, buf).unwrap();
    let out = lab.out();
    assert_eq!((out[0].name, out[0].payload.len()), ("SEND_ONLY", MAD_LEN));
}

#[test]
fn a_neighbour_is_asked_for_and_learned() {
    let setup = Setup { resolved: false, ..Setup::default() };
    let mut lab = Lab::with(setup);
    lab.post(crate::wr::Op::Send, b"x");
    assert_eq!(lab.out(), []);
    assert!(matches!(lab.transport.poll_event(), Some(Event::NeedsNeighbour(asked)) if asked == ip(1)));
    assert_eq!(lab.out(), []);
    assert!(lab.transport.poll_event().is_none(), "asked once for now");
    lab.pass(500_000_000);
    lab.out();
    assert!(matches!(lab.transport.poll_event(), Some(Event::NeedsNeighbour(_))));
    lab.transport.set_neighbour(ip(1), mac(1));
    assert_eq!(lab.names(), ["SEND_ONLY"]);

    let mut lab = Lab::with(setup);
    lab.post_recv(0);
    lab.give_send(0, b"hello");
    assert_eq!(lab.names(), ["ACKNOWLEDGE"], "the frame told the address");
}

#[test]
fn a_neighbour_that_never_answers_fails_the_request() {
    let mut lab = Lab::with(Setup { resolved: false, ..Setup::default() });
    lab.post(crate::wr::Op::Send, b"x");
    for _ in 0..20 {
        assert_eq!(lab.out(), []);
        lab.pass(500_000_000);
    }
    assert_eq!(lab.statuses(), [crate::wr::Status::RetryExcErr]);
    assert_eq!(lab.transport.next_timer(), Time::NEVER);
}
