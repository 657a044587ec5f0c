//! States: what is taken and sent in each, flushing, draining, identifiers, sizes.

use super::lab::{Lab, Setup, bring_up, ip};
use crate::buf::Pool;
use crate::qp::{Change, QpState};
use crate::soft::Event;
use crate::transport::{Device, Transport};
use crate::types::{Psn, QpType, Qpn};
use crate::wire::{Bth, Deth, NoHeaders, Opcode};
use crate::wr::{Cookie, Op, RecvWr, Refusal, SendWr, SrqId, Status};

fn refusal(lab: &mut Lab) -> Option<Refusal> {
    let wr = SendWr::new(Op::Send, lab.pool.alloc().unwrap(), Cookie(0));
    lab.transport.post_send(lab.qp, wr).err().map(|r| r.why)
}

#[test]
fn before_rts_nothing_can_be_sent() {
    for state in [QpState::Init, QpState::Rtr] {
        let mut lab = Lab::with(Setup { state, ..Setup::default() });
        assert_eq!((lab.state(), refusal(&mut lab)), (state, Some(Refusal::State)));
        lab.post_recv(0);
        lab.transport.fail(lab.qp);
        assert_eq!(lab.statuses(), [Status::WrFlushErr]);
    }
}

#[test]
fn the_first_packet_in_rtr_is_told() {
    let mut lab = Lab::with(Setup { state: QpState::Rtr, ..Setup::default() });
    (0..2).for_each(|n| {
        lab.post_recv(n.into());
        lab.give_send(n, b"x");
    });
    assert!(matches!(lab.transport.poll_event(), Some(Event::Established(qp)) if qp == lab.qp));
    assert!(lab.transport.poll_event().is_none());
    assert_eq!(lab.names(), ["ACKNOWLEDGE"]);
}

#[test]
fn failing_flushes_everything_in_order_and_silences_the_queue_pair() {
    let mut lab = Lab::new();
    (10..13).for_each(|n| lab.post_recv(n));
    (0..3).for_each(|n| lab.post_wr(|buf| SendWr::new(Op::Send, buf, Cookie(n)), b"x"));
    lab.out();
    lab.give_send(0, b"x");
    lab.transport.fail(lab.qp);
    let done = lab.poll();
    let order: Vec<_> = done.iter().map(|c| (c.cookie.0, c.status)).collect();
    let flushed = |c| (c, Status::WrFlushErr);
    let want = [(10, Status::Success), flushed(0), flushed(1), flushed(2), flushed(11), flushed(12)];
    assert_eq!(order, want);
    assert_eq!(lab.out(), [], "not even the acknowledgement");
    lab.give_send(1, b"y");
    assert_eq!(lab.out(), []);
    lab.post_recv(20);
    assert_eq!((refusal(&mut lab), lab.statuses()), (None, vec![Status::WrFlushErr; 2]));
}

#[test]
fn a_full_queue_has_room_again_only_after_the_poll() {
    let mut lab = Lab::new();
    (0..16).for_each(|_| lab.post(Op::Send, b"x"));
    assert_eq!((refusal(&mut lab), lab.transport.send_room(lab.qp)), (Some(Refusal::Full), 0));
    lab.out();
    lab.acknowledge(15, 0x1F);
    assert_eq!(refusal(&mut lab), Some(Refusal::Full));
    assert_eq!((lab.poll().len(), lab.transport.send_room(lab.qp)), (16, 16));
    (0..16).for_each(|n| lab.post_recv(n));
    let wr = RecvWr { buf: lab.pool.alloc().unwrap(), cookie: Cookie(0) };
    assert_eq!(lab.transport.post_recv(lab.qp, wr).unwrap_err().why, Refusal::Full);
}

#[test]
fn draining_finishes_what_was_started_and_nothing_else() {
    let mut lab = Lab::with(Setup { window: 1, ..Setup::default() });
    (0..3).for_each(|_| lab.post(Op::Send, b"x"));
    assert_eq!(lab.out().len(), 1);
    lab.transport.modify(lab.qp, &Change::Sqd).unwrap();
    assert!(lab.transport.poll_event().is_none());
    lab.acknowledge(0, 0x1F);
    assert_eq!((lab.out(), lab.statuses()), (vec![], vec![Status::Success]));
    assert!(matches!(lab.transport.poll_event(), Some(Event::SendQueueDrained(_))));
    lab.post_recv(0);
    lab.give_send(0, b"served");
    assert_eq!(lab.names(), ["ACKNOWLEDGE"]);
    lab.transport.modify(lab.qp, &Change::Resume).unwrap();
    assert_eq!(lab.names(), ["SEND_ONLY"]);
    assert!(lab.transport.modify(lab.qp, &Change::Resume).is_err());
}

#[test]
fn a_detached_queue_pair_is_stale_and_can_be_reset_and_used_again() {
    let mut lab = Lab::new();
    lab.post_recv(0);
    assert!(lab.transport.detach(lab.qp).is_none(), "a receive is posted");
    lab.transport.fail(lab.qp);
    assert!(lab.transport.detach(lab.qp).is_none(), "not polled yet");
    lab.poll();
    let mut qp = lab.transport.detach(lab.qp).unwrap();
    assert_eq!((refusal(&mut lab), lab.transport.state(lab.qp)), (Some(Refusal::Stale), None));
    assert_eq!(lab.transport.next_timer(), crate::types::Time::NEVER);
    lab.device.modify(&mut qp, &Change::Reset).unwrap();
    let Err(qp) = lab.transport.attach(qp) else { panic!("attached in RESET") };
    lab.device.destroy_qp(qp).unwrap();
    let qp = bring_up(&lab.device, &Setup::default());
    let again = lab.transport.attach(qp).unwrap();
    assert_ne!(again, lab.qp);
}

#[test]
fn receives_of_a_shared_queue_go_to_whoever_needs_one() {
    let mut lab = Lab::with(Setup { srq: true, ..Setup::default() });
    lab.transport.arm_srq_limit(SrqId(0), 2);
    (0..3).for_each(|n| lab.post_srq_recv(n));
    lab.give_send(0, b"x");
    assert!(lab.transport.poll_event().is_none());
    lab.give_send(1, b"y");
    assert!(matches!(lab.transport.poll_event(), Some(Event::SrqLimit(SrqId(0)))));
    lab.give_send(2, b"z");
    assert!(lab.transport.poll_event().is_none(), "once");
    lab.give_send(3, b"none left");
    assert_eq!(lab.names(), ["ACKNOWLEDGE"]);
    assert_eq!((lab.transport.srq_room(SrqId(0)), lab.transport.in_flight(lab.qp)), (5, 3));
    assert_eq!(lab.poll().len(), 3);
    assert_eq!((lab.transport.srq_room(SrqId(0)), lab.transport.in_flight(lab.qp)), (8, 0));
    let wr = RecvWr { buf: lab.pool.alloc().unwrap(), cookie: Cookie(0) };
    assert_eq!(lab.transport.post_recv(lab.qp, wr).unwrap_err().why, Refusal::Unsupported);
}

#[test]
fn unreliable_messages_arrive_whole_or_not_at_all() {
    let mut lab = Lab::with(Setup { kind: QpType::Uc, ..Setup::default() });
    lab.post_recv(0);
    let pmtu = super::lab::PMTU;
    let none = crate::wire::NoHeaders;
    lab.give(lab.bth(0x20, 0, false), &none, &vec![1; pmtu]);
    lab.give(lab.bth(0x22, 2, false), &none, &[2; 4]);
    assert_eq!(lab.poll().len(), 0, "the middle was lost");
    lab.give(lab.bth(0x20, 9, false), &none, &vec![3; pmtu]);
    lab.give(lab.bth(0x20, 20, false), &none, &vec![4; pmtu]);
    lab.give(lab.bth(0x22, 21, false), &none, &[5; 4]);
    let done = lab.poll();
    assert_eq!(done.len(), 1, "any first packet starts anew, whatever its PSN");
    assert_eq!(super::lab::bytes(&done[0]), [vec![4; pmtu], vec![5; 4]].concat());
    lab.give(lab.bth(0x24, 22, false), &none, b"no receive");
    assert_eq!((lab.out(), lab.state()), (vec![], QpState::Rts));
    lab.post(Op::Send, b"x");
    assert_eq!((lab.names(), lab.statuses()), (vec!["SEND_ONLY"], vec![Status::Success]));
}

#[test]
fn an_idle_queue_pair_costs_less_than_a_kibibyte() {
    let size = size_of::<crate::soft::qp::Qp<crate::heap::HeapBuf>>();
    assert!(size <= 1024, "{size} bytes");
}

/// Only a NAK that ended the connection is still sent.
#[test]
fn nothing_is_owed_in_err() {
    let mut lab = Lab::new();
    lab.post_recv(1);
    lab.give_send(3, b"a gap: a sequence NAK is owed");
    lab.give(Bth::cnp(lab.qpn), &NoHeaders, &Bth::CNP_PAYLOAD);
    give_marked(&mut lab);
    lab.transport.fail(lab.qp);
    assert_eq!((lab.state(), lab.out()), (QpState::Err, vec![]));
    lab.pass(1_000_000);
    give_marked(&mut lab);
    assert_eq!(lab.out(), []);
}

/// A packet that met congestion.
fn give_marked(lab: &mut Lab) {
    let mut bytes = lab.bytes_of(lab.bth(0x04, 3, true), &NoHeaders, b"marked");
    bytes[15] |= 3;
    lab.give_bytes(&bytes);
}

/// Whatever peers do, the worker hears that a queue pair failed.
#[test]
fn floods_of_events_do_not_hide_failures() {
    let mut lab = Lab::new();
    for _ in 0..3000 {
        lab.give(Bth::cnp(lab.qpn), &NoHeaders, &Bth::CNP_PAYLOAD);
    }
    assert_eq!(events(&mut lab), ["Congestion"], "once until it is taken");
    lab.give(Bth::cnp(lab.qpn), &NoHeaders, &Bth::CNP_PAYLOAD);
    let deth = Deth::new(Deth::GSI_QKEY, Qpn::GSI);
    for _ in 0..600 {
        lab.give(Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Psn::new(0)), &deth, &[0; 256]);
    }
    lab.transport.fail(lab.qp);
    let events = events(&mut lab);
    assert_eq!((events.len(), events.last()), (513, Some(&"QpError")));
}

/// Even without any room for them: they are told when there is.
#[test]
fn failures_wait_for_room() {
    let mut lab = Lab::new();
    let event = || Event::NeedsNeighbour(ip(1));
    while lab.transport.shared.tell(event()) {}
    lab.transport.fail(lab.qp);
    let events = events(&mut lab);
    assert_eq!((events.len(), events.last()), (1025, Some(&"QpError")));
}

/// Names of all events that wait.
fn events(lab: &mut Lab) -> Vec<&'static str> {
    std::iter::from_fn(|| lab.transport.poll_event())
        .map(|event| match event {
            Event::Congestion(_) => "Congestion",
            Event::QpError { .. } => "QpError",
            _ => "other",
        })
        .collect()
}
