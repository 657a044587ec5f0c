//! Selective repeat, packet by packet.

use super::lab::{Lab, PEER_QPN, Setup};
use crate::qp::Change;
use crate::soft::{Agreement, DropReason, SoftError};
use crate::transport::{Device, Transport};
use crate::types::QpType;
use crate::wire::{Aeth, Opcode, Syndrome};
use crate::wr::{Op, Status};

fn lab() -> Lab {
    Lab::with(Setup { selective: true, ..Setup::default() })
}

/// A report of the peer: everything before our `n`-th packet has arrived, and of those behind it what `bits` says.
fn report(lab: &mut Lab, n: u32, bits: u8) {
    let mut payload = [0; 32];
    payload[0] = bits;
    lab.answer(Opcode::SACK.0, n, &Aeth::new(Syndrome::ACK, 0), &payload);
}

fn psns(lab: &mut Lab) -> Vec<u32> {
    lab.out().iter().map(|o| o.psn.since(Lab::our_psn(0)) as u32).collect()
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
    assert_eq!((out[0].payload.len(), out[0].payload[0], out[0].payload[1]), (32, 0b11, 0));
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
