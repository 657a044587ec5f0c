//! States: what is taken and sent in each, flushing, draining, identifiers, sizes.

use super::lab::{Lab, Setup, bring_up};
use crate::buf::Pool;
use crate::qp::{Change, QpState};
use crate::soft::Event;
use crate::transport::{Device, Transport};
use crate::types::QpType;
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
