//! Selective repeat, packet by packet.

use super::lab::{Lab, Out, PEER_QPN, PMTU, Setup};
use crate::qp::Change;
use crate::soft::{Agreement, DropReason, SoftError};
use crate::transport::{Device, Transport};
use crate::types::QpType;
use crate::wire::{Aeth, Opcode, Reth, Syndrome};
use crate::wr::{Op, Status};

fn lab() -> Lab {
    Lab::with(Setup { selective: true, ..Setup::default() })
}

/// A report of the peer: everything before our `n`-th packet has arrived, and of those behind it what `bits` says.
fn report(lab: &mut Lab, n: u32, bits: u8) {
    report_refusal(lab, n, bits, 0);
}

/// The same of a peer that had no room so often.
fn report_refusal(lab: &mut Lab, n: u32, bits: u8, refusals: u8) {
    let mut payload = [0; 36];
    payload[0] = bits;
    payload[35] = refusals;
    lab.answer(Opcode::SACK.0, n, &Aeth::new(Syndrome::ACK, 0), &payload);
}

fn psns(lab: &mut Lab) -> Vec<u32> {
    psns_of(&lab.out())
}

fn psns_of(out: &[Out]) -> Vec<u32> {
    out.iter().map(|o| o.psn.since(Lab::our_psn(0)) as u32).collect()
}

#[test]
fn packets_that_overtake_are_held_and_reported() {
    let mut lab = lab();
    (0..4).for_each(|n| lab.post_recv(n));
    for n in [0, 2, 3] {
        lab.give_send(n, &[n as u8]);
    }
    let out = lab.out();
    assert_eq!(
        (out.len(), out[0].name, out[0].psn),
        (1, "SACK", Lab::psn(1)),
        "no ACK of its own for the first"
    );
    assert_eq!((out[0].payload.len(), out[0].payload[0], out[0].payload[1]), (36, 0b11, 0));
    assert_eq!(lab.poll().len(), 1);
    lab.give_send(2, &[2]);
    assert_eq!(lab.names(), ["SACK"], "a duplicate is reported, not held twice");
    lab.give_send(1, &[1]);
    let order: Vec<_> = lab.poll().iter().map(|c| (c.cookie.0, super::lab::bytes(c))).collect();
    assert_eq!(order, [(1, vec![1]), (2, vec![2]), (3, vec![3])]);
    let out = lab.out();
    assert_eq!((out.len(), out[0].name, out[0].psn), (1, "ACKNOWLEDGE", Lab::psn(3)));
}

#[test]
fn what_is_held_is_bounded_and_goes_home() {
    let mut lab = lab();
    for n in 1..400 {
        lab.give_send(n, b"x");
    }
    let counters = *lab.transport.soft_counters();
    assert_eq!((counters.held, counters.drops(DropReason::OutOfOrder)), (255, 144));
    lab.transport.fail(lab.qp);
    assert_eq!(lab.out(), []);
    lab.poll();
    assert!(lab.transport.detach(lab.qp).is_some());
}

/// PSNs of the peer that lie inside a READ to come are held and can never be served.
#[test]
fn what_a_read_jumps_over_does_not_stay() {
    let mut lab = lab();
    let slice = lab.slice(0, 10 * PMTU as u32);
    (1..10).for_each(|n| lab.give_send(n, b"inside"));
    (10..12).for_each(|n| lab.give_send(n, b"behind"));
    assert_eq!(lab.transport.shared.held.used(), 11);
    (0..2).for_each(|n| lab.post_recv(n));
    lab.give(lab.bth(0x0C, 0, true), &Reth::new(slice.addr, slice.rkey, slice.len), &[]);
    assert_eq!((lab.transport.shared.held.used(), lab.statuses()), (0, vec![Status::Success; 2]));
    assert_eq!(lab.transport.soft_counters().drops(DropReason::OutOfOrder), 9);
}

/// One that holds all it can leaves room to another one of the same worker.
#[test]
fn nobody_takes_all_the_room() {
    let mut lab = Lab::with(Setup { selective: true, max_held: 40, ..Setup::default() });
    (1..100).for_each(|n| lab.give_send(n, b"x"));
    assert_eq!(lab.transport.shared.held.used(), 20);
    let out = lab.out();
    assert_eq!(
        (out[0].payload[0], out[0].payload[2], out[0].payload[35]),
        (0xFF, 0x0F, 1),
        "and says so once"
    );
    let other = super::lab::bring_up(&lab.device, &Setup { selective: true, ..Setup::default() });
    lab.qpn = lab.device.qpn(&other);
    assert!(lab.transport.attach(other).is_ok());
    (1..100).for_each(|n| lab.give_send(n, b"x"));
    assert_eq!(lab.transport.shared.held.used(), 30);
}

/// What the peer had no room for is sent again, once, without what it holds.
#[test]
fn after_a_refusal_all_that_is_not_held_is_sent_again() {
    let mut lab = lab();
    (0..6).for_each(|_| lab.post(Op::Send, b"x"));
    lab.out();
    report_refusal(&mut lab, 1, 0b1, 1);
    assert_eq!(psns(&mut lab), [1, 3, 4, 5]);
    report_refusal(&mut lab, 1, 0b1, 1);
    report_refusal(&mut lab, 1, 0b1, 2);
    assert_eq!(psns(&mut lab), [], "no more before there is progress");
    report_refusal(&mut lab, 3, 0, 3);
    assert_eq!(psns(&mut lab), [3, 4, 5]);
}

/// Karn: after a probe the time to the next one doubles until an answer is known to be that of a packet sent once.
#[test]
fn probes_are_single_packets_and_come_ever_later() {
    let mut lab = Lab::with(Setup { selective: true, timeout: 20, ..Setup::default() });
    lab.post(Op::Send, b"x");
    lab.out();
    lab.pass(10_000);
    lab.acknowledge(0, 0x1F);
    (0..5).for_each(|_| lab.post(Op::Send, b"x"));
    assert_eq!(lab.out().len(), 5);
    let mut waits = vec![];
    for _ in 0..4 {
        let before = lab.now;
        while psns_of(&lab.out()) != [5] {
            assert!(lab.transport.next_timer() > lab.now);
            lab.now = lab.transport.next_timer();
        }
        waits.push(lab.now.since_ns(before));
        // Progress, but by packets sent before the probe: nobody knows which one was answered.
        lab.acknowledge(waits.len() as u32, 0x1F);
    }
    assert!(waits.windows(2).all(|w| w[1] > 3 * w[0] / 2), "{waits:?}");
}

#[test]
fn only_what_is_missing_is_sent_again() {
    let mut lab = lab();
    (0..6).for_each(|_| lab.post(Op::Send, b"x"));
    assert_eq!(psns(&mut lab), [0, 1, 2, 3, 4, 5]);
    report(&mut lab, 1, 0b101);
    assert_eq!(lab.statuses(), [Status::Success]);
    assert_eq!(psns(&mut lab), [1, 3], "and not 5: nothing shows that it is lost");
    report(&mut lab, 1, 0b101);
    assert_eq!(psns(&mut lab), [], "nothing new");
    lab.post(Op::Send, b"y");
    lab.post(Op::Send, b"y");
    assert_eq!(psns(&mut lab), [6, 7]);
    report(&mut lab, 1, 0b11_0111);
    assert_eq!(psns(&mut lab), [1, 5], "overtaken by what was sent after it");
    report(&mut lab, 8, 0);
    assert_eq!(lab.statuses(), [Status::Success; 7]);
}

#[test]
fn reports_without_agreement_are_nothing() {
    let mut lab = Lab::new();
    lab.post(Op::Send, b"x");
    lab.out();
    report(&mut lab, 0, 1);
    assert_eq!(lab.out(), []);
    assert_eq!(lab.transport.soft_counters().drops(DropReason::Ghost), 1);
    let mut lab = Lab::with(Setup { kind: QpType::Uc, ..Setup::default() });
    report(&mut lab, 0, 1);
    assert_eq!(lab.transport.soft_counters().drops(DropReason::WrongTransport), 1);
}

#[test]
fn agreements_come_before_rtr() {
    let lab = Lab::new();
    let mut qp = super::lab::bring_up(&lab.device, &Setup::default());
    let agreed = Agreement { selective_repeat: true, jumbo_payload: 0 };
    assert!(matches!(lab.device.agree(&mut qp, agreed), Err(SoftError::Agreement)));
    lab.device.modify(&mut qp, &Change::Reset).unwrap();
    assert!(lab.device.agree(&mut qp, agreed).is_ok());
    let jumbo = Agreement { selective_repeat: false, jumbo_payload: 8192 };
    assert!(matches!(lab.device.agree(&mut qp, jumbo), Err(SoftError::Limit { what: "jumbo_payload", .. })));
    assert_ne!(PEER_QPN, lab.qpn);
}
