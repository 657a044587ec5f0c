//! What the requester sends, and what it makes of answers.

use super::lab::{Lab, Out, PMTU, SQ_PSN, Setup, bytes};
use crate::qp::QpState;
use crate::soft::DropReason;
use crate::transport::Transport;
use crate::types::{Psn, Rkey};
use crate::wire::{Aeth, AethAtomicAck, AtomicAckEth, NoHeaders, Syndrome, U24};
use crate::wr::{Cookie, Op, Refusal, RemoteSlice, RemoteWord, SendWr, Status};
use zerocopy::big_endian::U64;

const ACK: u8 = 0x1F;
const NAK_SEQUENCE: u8 = 0x60;
/// RNR NAK with timer code 12: 0.64 ms.
const RNR: u8 = 0x20 | 12;
const RNR_WAIT_NS: u64 = 640_000;
/// Timeout code 14.
const TIMEOUT_NS: u64 = 4096 << 14;

fn remote(len: u32) -> RemoteSlice {
    RemoteSlice { addr: 0x1000, rkey: Rkey(5), len }
}

/// The packets in `out`: name and which of ours.
fn packets(out: &[Out]) -> Vec<(&'static str, i32)> {
    out.iter().map(|o| (o.name, o.psn.since(Psn::new(SQ_PSN)))).collect()
}

fn aeth() -> Aeth {
    Aeth { syndrome: ACK, msn: U24::new(1) }
}

#[test]
fn messages_are_cut_at_the_path_mtu_and_never_end_empty() {
    let lengths = [(0, 1), (1, 1), (PMTU, 1), (PMTU + 1, 2), (2 * PMTU, 2), (3 * PMTU - 1, 3)];
    for (len, count) in lengths {
        let mut lab = Lab::new();
        let payload: Vec<u8> = (0..len).map(|b| b as u8 ^ 3).collect();
        lab.post_wr(
            |buf| SendWr { solicited: true, ..SendWr::new(Op::SendImm(7), buf, Cookie(0)) },
            &payload,
        );
        let out = lab.out();
        assert_eq!(out.len(), count, "{len} bytes");
        assert_eq!(out.concat_payload(), payload);
        let (last, others) = out.split_last().unwrap();
        assert!(others.iter().all(|o| o.payload.len() == PMTU && !o.ack_request && !o.solicited));
        assert!(last.ack_request && last.solicited && (len == 0 || !last.payload.is_empty()));
    }
}

trait Concat {
    fn concat_payload(&self) -> Vec<u8>;
}

impl Concat for Vec<Out> {
    fn concat_payload(&self) -> Vec<u8> {
        self.iter().flat_map(|o| o.payload.clone()).collect()
    }
}

#[test]
fn psns_wrap_and_one_acknowledgement_completes_many() {
    let mut lab = Lab::new();
    (0..16).for_each(|n| lab.post(Op::Write(remote(PMTU as u32 + n)), &vec![n as u8; PMTU + n as usize]));
    assert_eq!(lab.out().len(), 31);
    lab.acknowledge(15, ACK);
    assert_eq!(lab.poll().len(), 8, "15 packets after 1 + 2 + 2 ... : eight messages");
    lab.acknowledge(30, ACK);
    assert_eq!(lab.statuses(), [Status::Success; 8]);
    assert_eq!(
        lab.transport.next_timer(),
        crate::types::Time(0).after_ns(1 + TIMEOUT_NS),
        "looked at once more"
    );
    lab.pass(2 * TIMEOUT_NS);
    assert_eq!((lab.names(), lab.transport.next_timer()), (vec![], crate::types::Time::NEVER));
}

/// A peer that never acknowledges unasked must be asked before the window closes and now and then in between.
#[test]
fn acknowledgements_are_asked_for_in_the_middle_of_long_messages() {
    let mut lab = Lab::with(Setup { window: 100, ..Setup::default() });
    lab.post_long(Op::Write(remote(150 * PMTU as u32)), 150 * PMTU);
    let out = lab.out();
    let asked: Vec<_> = (0..out.len()).filter(|i| out[*i].ack_request).collect();
    assert_eq!((out.len(), asked), (100, vec![64, 99]));
    lab.acknowledge(64, ACK);
    assert_eq!(packets(&lab.out()).last(), Some(&("WRITE_LAST", 149)));
}

impl Lab {
    fn post_long(&mut self, op: Op, len: usize) {
        let pool = crate::heap::HeapPool::new(1, len);
        let mut buf = crate::buf::Pool::alloc(&pool).unwrap();
        crate::buf::Buf::append(&mut buf, len).unwrap();
        assert!(self.transport.post_send(self.qp, SendWr::new(op, buf, Cookie(0))).is_ok());
    }
}

#[test]
fn an_acknowledgement_beyond_a_read_means_its_response_was_lost() {
    let mut lab = Lab::new();
    lab.post(Op::Send, b"a");
    lab.post(Op::Read(remote(4)), &[]);
    lab.post(Op::Send, b"b");
    assert_eq!(packets(&lab.out()), [("SEND_ONLY", 0), ("READ_REQUEST", 1), ("SEND_ONLY", 2)]);
    lab.acknowledge(2, ACK);
    assert_eq!(lab.statuses(), [Status::Success]);
    assert_eq!(packets(&lab.out()), [("READ_REQUEST", 1), ("SEND_ONLY", 2)]);
    lab.acknowledge(2, ACK);
    assert_eq!(lab.out(), [], "once; then the timer");
    // A plain ACK with the READ's own PSN says nothing.
    lab.acknowledge(1, ACK);
    assert_eq!((lab.statuses(), lab.out()), (vec![], vec![]));
    lab.answer(0x10, 1, &aeth(), b"data");
    let done = lab.poll();
    assert_eq!((done.len(), bytes(&done[0])), (1, b"data".to_vec()));
    lab.acknowledge(2, ACK);
    assert_eq!(lab.statuses(), [Status::Success]);
}

/// rxe answers a resumed READ with MIDDLE and LAST, the standard says FIRST or ONLY.
#[test]
fn a_read_is_resumed_from_the_gap_and_any_answer_is_taken() {
    for (position, resumed) in [("rxe", [0x0E, 0x0F]), ("standard", [0x0D, 0x0F])] {
        let mut lab = Lab::new();
        let len = 4 * PMTU as u32;
        lab.post(Op::Read(remote(len)), &[]);
        assert_eq!(lab.out()[0].reth, Some((0x1000, len)));
        lab.answer(0x0D, 0, &aeth(), &[0; PMTU]);
        lab.answer(0x0E, 1, &NoHeaders, &[1; PMTU]);
        lab.answer(0x0F, 3, &aeth(), &[3; PMTU]);
        assert_eq!(lab.transport.soft_counters().drops(DropReason::ResponseGap), 1);
        let out = lab.out();
        assert_eq!(packets(&out), [("READ_REQUEST", 2)]);
        assert_eq!(out[0].reth, Some((0x1000 + 2 * PMTU as u64, len / 2)));
        lab.answer(0x0E, 1, &NoHeaders, &[9; PMTU]);
        match resumed[0] {
            0x0D => lab.answer(0x0D, 2, &aeth(), &[2; PMTU]),
            other => lab.answer(other, 2, &NoHeaders, &[2; PMTU]),
        }
        lab.answer(resumed[1], 3, &aeth(), &[3; PMTU]);
        let done = lab.poll();
        assert_eq!(done.len(), 1, "{position}");
        let want: Vec<u8> = (0..4).flat_map(|b| [b; PMTU]).collect();
        assert!(bytes(&done[0]) == want, "{position}");
    }
}

#[test]
fn responses_that_make_no_sense_end_the_connection() {
    let mut lab = Lab::new();
    lab.post(Op::Read(remote(4)), &[]);
    lab.out();
    lab.answer(0x10, 0, &aeth(), b"too long");
    assert_eq!((lab.statuses(), lab.state()), (vec![Status::BadRespErr], QpState::Err));
    let mut lab = Lab::new();
    lab.post(Op::Send, b"x");
    lab.out();
    lab.answer(0x10, 0, &aeth(), b"");
    assert_eq!(lab.statuses(), [Status::BadRespErr]);
}

/// Only an ACKNOWLEDGE may refuse. A READ or atomic that came with a NAK has not succeeded.
#[test]
fn responses_that_say_no_end_the_connection() {
    // NAK of access, RNR NAK, reserved.
    for syndrome in [0x62, 0x21, 0x40] {
        let aeth = Aeth { syndrome, msn: U24::new(1) };
        let original = AtomicAckEth { original: U64::new(9) };
        let word = RemoteWord { addr: 0x1000, rkey: Rkey(5) };
        let mut read = Lab::new();
        read.post(Op::Read(remote(4)), &[]);
        read.out();
        read.answer(0x10, 0, &aeth, b"data");
        let mut last = Lab::new();
        last.post(Op::Read(remote(PMTU as u32 + 4)), &[]);
        last.out();
        last.answer(0x0D, 0, &self::aeth(), &[1; PMTU]);
        last.answer(0x0F, 1, &aeth, b"data");
        let mut atomic = Lab::new();
        atomic.post(Op::FetchAdd { word, add: 3 }, &[]);
        atomic.out();
        atomic.answer(0x12, 0, &AethAtomicAck { aeth, atomic: original }, &[]);
        for mut lab in [read, last, atomic] {
            assert_eq!(
                (lab.statuses(), lab.state()),
                (vec![Status::BadRespErr], QpState::Err),
                "{syndrome:#x}"
            );
        }
    }
}

#[test]
fn an_atomic_brings_the_value_in_host_order() {
    let mut lab = Lab::new();
    let word = RemoteWord { addr: 0x1000, rkey: Rkey(5) };
    lab.post(Op::FetchAdd { word, add: 3 }, &[]);
    lab.post(Op::CompareSwap { word, compare: 1, swap: 2 }, &[]);
    assert_eq!(packets(&lab.out()), [("FETCH_ADD", 0), ("COMPARE_SWAP", 1)]);
    let atomic = |v| AethAtomicAck { aeth: aeth(), atomic: AtomicAckEth { original: U64::new(v) } };
    lab.answer(0x12, 1, &atomic(9), &[]);
    assert_eq!(lab.statuses(), [], "the first answer is missing");
    assert_eq!(packets(&lab.out()), [("FETCH_ADD", 0), ("COMPARE_SWAP", 1)]);
    lab.answer(0x12, 0, &atomic(7), &[]);
    lab.answer(0x12, 1, &atomic(9), &[]);
    let done = lab.poll();
    assert_eq!(done.iter().map(bytes).collect::<Vec<_>>(), [7u64, 9].map(|v| v.to_ne_bytes().to_vec()));
}

#[test]
fn a_sequence_nak_goes_back_to_what_is_missing() {
    let mut lab = Lab::new();
    (0..4).for_each(|_| lab.post(Op::Send, b"x"));
    lab.out();
    lab.acknowledge(1, NAK_SEQUENCE);
    assert_eq!(lab.statuses(), [Status::Success], "what came before arrived");
    lab.acknowledge(1, NAK_SEQUENCE);
    assert_eq!(packets(&lab.out()), [("SEND_ONLY", 1), ("SEND_ONLY", 2), ("SEND_ONLY", 3)]);
    assert_eq!(lab.transport.soft_counters().retransmitted, 3);
    // An old acknowledgement that overtakes what is sent again.
    lab.acknowledge(1, ACK);
    lab.acknowledge(2, NAK_SEQUENCE);
    lab.acknowledge(2, ACK);
    assert_eq!(packets(&lab.out()), [("SEND_ONLY", 3)]);
}

/// A responder sends one for a gap: the wire made the copies, and they take no retries.
#[test]
fn copies_of_a_sequence_nak_go_back_once() {
    let mut lab = Lab::new();
    (0..4).for_each(|_| lab.post(Op::Send, b"x"));
    lab.out();
    for n in 0..20 {
        lab.acknowledge(0, NAK_SEQUENCE);
        assert_eq!(lab.out().len(), if n == 0 { 4 } else { 0 });
    }
    // After the timer a NAK may say that it was lost again, and so it may after progress.
    lab.pass(TIMEOUT_NS);
    assert_eq!(lab.out().len(), 4);
    lab.acknowledge(0, NAK_SEQUENCE);
    assert_eq!(lab.out().len(), 4);
    lab.acknowledge(1, NAK_SEQUENCE);
    assert_eq!((lab.out().len(), lab.state()), (3, QpState::Rts));
}

#[test]
fn a_vanished_peer_is_given_up_after_all_retries() {
    let mut lab = Lab::with(Setup { retry_cnt: 3, ..Setup::default() });
    (0..2).for_each(|_| lab.post(Op::Send, b"x"));
    lab.post_recv(1);
    let mut tries = 0;
    while lab.state() == QpState::Rts {
        tries += u32::from(!lab.out().is_empty());
        assert_eq!(lab.statuses(), []);
        lab.pass(TIMEOUT_NS);
        lab.transport.flush(lab.now, &mut crate::buf::NoEgress);
    }
    assert_eq!(tries, 4, "the first and three more");
    assert_eq!(lab.statuses(), [Status::RetryExcErr, Status::WrFlushErr, Status::WrFlushErr]);
    assert!(matches!(
        lab.transport.poll_event(),
        Some(crate::soft::Event::QpError { status: Status::RetryExcErr, .. })
    ));
}

#[test]
fn progress_renews_retries_and_timer() {
    let mut lab = Lab::with(Setup { retry_cnt: 1, ..Setup::default() });
    lab.post_long(Op::Send, 20 * PMTU);
    assert_eq!(lab.out().len(), 20);
    for n in 0..19 {
        lab.pass(TIMEOUT_NS);
        assert_eq!(packets(&lab.out())[0].1, n, "sent again after a time-out");
        lab.acknowledge(n as u32, ACK);
    }
    assert_eq!(lab.state(), QpState::Rts);
    lab.pass(TIMEOUT_NS - 1);
    assert_eq!(lab.out(), []);
    lab.acknowledge(19, ACK);
    assert_eq!(lab.statuses(), [Status::Success]);
}

#[test]
fn timeout_code_0_means_no_timer() {
    let mut lab = Lab::with(Setup { timeout: 0, ..Setup::default() });
    lab.post(Op::Send, b"x");
    lab.out();
    assert_eq!(lab.transport.next_timer(), crate::types::Time::NEVER);
    lab.pass(1 << 40);
    assert_eq!(lab.out(), []);
}

/// rxe sends a sequence NAK for the same PSN after an RNR NAK if more was in flight.
#[test]
fn a_peer_without_receives_is_waited_for() {
    let mut lab = Lab::with(Setup { rnr_retry: 2, ..Setup::default() });
    (0..3).for_each(|_| lab.post(Op::Send, b"x"));
    lab.out();
    lab.acknowledge(1, RNR);
    assert_eq!(lab.statuses(), [Status::Success]);
    lab.acknowledge(1, NAK_SEQUENCE);
    lab.acknowledge(1, RNR);
    assert_eq!(lab.out(), []);
    lab.pass(RNR_WAIT_NS - 1);
    assert_eq!(lab.out(), []);
    lab.pass(1);
    assert_eq!(packets(&lab.out()), [("SEND_ONLY", 1), ("SEND_ONLY", 2)]);
    lab.acknowledge(1, RNR);
    lab.pass(RNR_WAIT_NS);
    assert_eq!(lab.out().len(), 2);
    lab.acknowledge(1, RNR);
    assert_eq!(lab.statuses(), [Status::RnrRetryExcErr, Status::WrFlushErr]);
}

#[test]
fn rnr_retry_7_waits_for_ever() {
    let mut lab = Lab::new();
    lab.post(Op::Send, b"x");
    for _ in 0..1000 {
        assert_eq!(lab.out().len(), 1);
        lab.acknowledge(0, RNR);
        lab.pass(RNR_WAIT_NS);
    }
    assert_eq!(lab.state(), QpState::Rts);
}

#[test]
fn refusals_of_the_peer_have_the_status_of_the_standard() {
    let codes = [
        (0x61, Status::RemInvReqErr),
        (0x62, Status::RemAccessErr),
        (0x63, Status::RemOpErr),
        (0x7F, Status::RemOpErr),
    ];
    for (syndrome, status) in codes {
        let mut lab = Lab::new();
        (0..3).for_each(|_| lab.post(Op::Write(remote(1)), b"x"));
        lab.out();
        lab.acknowledge(1, syndrome);
        assert_eq!(lab.statuses(), [Status::Success, status, Status::WrFlushErr]);
        lab.post(Op::Send, b"late");
        assert_eq!(lab.statuses(), [Status::WrFlushErr]);
    }
}

/// Some peers send credit code 0 always.
#[test]
fn credits_do_not_stop_anybody() {
    let mut lab = Lab::new();
    lab.post(Op::Send, b"x");
    lab.out();
    lab.acknowledge(0, 0x00);
    lab.post(Op::Send, b"y");
    assert_eq!((lab.statuses(), lab.out().len()), (vec![Status::Success], 1));
}

#[test]
fn acknowledgements_of_nothing_are_ignored() {
    let mut lab = Lab::new();
    (0..2).for_each(|_| lab.post(Op::Send, b"x"));
    lab.out();
    for (n, syndrome) in [(2, ACK), (2, 0x61), (u32::MAX, NAK_SEQUENCE), (1 << 23, ACK), (0, 0x40)] {
        lab.acknowledge(n, syndrome);
    }
    assert_eq!((lab.statuses(), lab.out()), (vec![], vec![]));
    assert_eq!(lab.state(), QpState::Rts);
    assert_eq!(lab.transport.soft_counters().drops(DropReason::Ghost), 4);
}

#[test]
fn reads_outstanding_are_limited_and_fences_wait_for_them() {
    let mut lab = Lab::with(Setup { rd_atomic: 2, ..Setup::default() });
    (0..3).for_each(|_| lab.post(Op::Read(remote(4)), &[]));
    lab.post_wr(|buf| SendWr { fence: true, ..SendWr::new(Op::Send, buf, Cookie(0)) }, b"after");
    assert_eq!(packets(&lab.out()), [("READ_REQUEST", 0), ("READ_REQUEST", 1)]);
    lab.answer(0x10, 0, &aeth(), b"one.");
    assert_eq!(packets(&lab.out()), [("READ_REQUEST", 2)]);
    lab.answer(0x10, 1, &aeth(), b"two.");
    assert_eq!(lab.out(), []);
    lab.answer(0x10, 2, &aeth(), b"tri.");
    assert_eq!(packets(&lab.out()), [("SEND_ONLY", 3)]);
}

/// Only READs before it hold a fenced request back: not those behind it that were sent already, and not itself. Where
/// they do (kernel rxe) nothing is ever sent again.
#[test]
fn a_fenced_request_can_be_sent_again() {
    let fenced = |op: Op| move |buf| SendWr { fence: true, ..SendWr::new(op, buf, Cookie(0)) };
    for (first, second) in [(Op::Send, Op::Read(remote(4))), (Op::Read(remote(4)), Op::Send)] {
        let mut lab = Lab::new();
        lab.post_wr(fenced(first), if first.fills_buffer() { b"" } else { b"fenced" });
        lab.post(second, b"");
        let sent = packets(&lab.out());
        assert_eq!(sent.len(), 2);
        lab.pass(TIMEOUT_NS);
        assert_eq!(packets(&lab.out()), sent);
        let read = u32::from(!first.fills_buffer());
        lab.answer(0x10, read, &aeth(), b"read");
        lab.acknowledge(1 - read, ACK);
        assert_eq!(lab.statuses(), [Status::Success; 2]);
    }
}

#[test]
fn what_cannot_be_posted_comes_back_with_the_reason() {
    let mut lab = Lab::with(Setup { rd_atomic: 0, ..Setup::default() });
    let mut refusal = |op, fill: usize| {
        let mut buf = crate::buf::Pool::alloc(&lab.pool).unwrap();
        crate::buf::Buf::append(&mut buf, fill).unwrap();
        lab.transport.post_send(lab.qp, SendWr::new(op, buf, Cookie(0))).unwrap_err().why
    };
    assert_eq!(refusal(Op::Read(remote(4)), 0), Refusal::Unsupported, "no READ may be outstanding");
    let mut lab = Lab::new();
    let mut refusal = |op, fill: usize| {
        let mut buf = crate::buf::Pool::alloc(&lab.pool).unwrap();
        crate::buf::Buf::append(&mut buf, fill).unwrap();
        lab.transport.post_send(lab.qp, SendWr::new(op, buf, Cookie(0))).unwrap_err().why
    };
    assert_eq!(refusal(Op::Read(remote(4)), 1), Refusal::NoRoom, "the buffer is not empty");
    assert_eq!(refusal(Op::Read(remote(5000)), 0), Refusal::NoRoom);
    assert_eq!(Syndrome::ACK.byte(), ACK);
}
