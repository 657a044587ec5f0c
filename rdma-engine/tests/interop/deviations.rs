//! Where rxe of Linux 6.1 departs from the standard, and that both ends get along with it.

use crate::counters::Growth;
use crate::matrix::all_rights;
use crate::rig::{InteropRig, connected, end, rig};
use crate::wire::{Fate, Way};
use rdma_engine::suite::{A, B, contents, filled_chain, pattern};
use rdma_engine::transport::Transport;
use rdma_engine::types::{QpType, Rkey};
use rdma_engine::wr::{Op, RemoteSlice, SendWr, Status};
use std::sync::{Arc, Mutex, PoisonError};

/// Opcodes of reliable connections, as they are on the wire.
const SEND_ONLY: u8 = 0x04;
const READ_REQUEST: u8 = 0x0C;
const READ_RESPONSE_FIRST: u8 = 0x0D;
const READ_RESPONSE_MIDDLE: u8 = 0x0E;
const ACKNOWLEDGE: u8 = 0x11;
/// Bits of an AETH's syndrome that make it a NAK.
const NAK: u8 = 0x60;

/// The transport headers of a frame over IPv4.
fn bth(frame: &[u8]) -> &[u8] {
    if frame.len() > 58 && frame[12..14] == [8, 0] && frame[23] == 17 { &frame[42..] } else { &[0xFF; 16] }
}

fn is_nak(frame: &[u8]) -> bool {
    let bth = bth(frame);
    bth[0] == ACKNOWLEDGE && bth[12] & NAK == NAK
}

/// Frames that went by.
type Seen = Arc<Mutex<Vec<(Way, Vec<u8>)>>>;

/// Loses those that `loses` picks, and keeps all.
fn watch(rig: &mut InteropRig, mut loses: impl FnMut(Way, &[u8]) -> bool + 'static) -> Seen {
    let seen = Seen::default();
    let also = Arc::clone(&seen);
    rig.judge(Box::new(move |way, frame| {
        also.lock().unwrap_or_else(PoisonError::into_inner).push((way, frame.to_vec()));
        if loses(way, frame) { Fate::IsLost } else { Fate::Passes }
    }));
    seen
}

/// How many of these went by, and their opcodes.
fn opcodes(seen: &Seen, way: Way) -> Vec<u8> {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.iter().filter(|(w, _)| *w == way).map(|(_, frame)| bth(frame)[0]).collect()
}

#[test]
fn an_over_long_send_is_a_remote_operation_error() {
    let Some(mut rig) = rig("an_over_long_send_is_a_remote_operation_error", B, false) else { return };
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    let r = s.recv(B, pair.qp[B], 1);
    let c = s.send(A, pair.qp[A], Op::Send, &pattern(1, 5000));
    s.wait_all(A, &[(c, Status::RemOpErr)]);
    s.wait_all(B, &[(r, Status::LocQpOpErr)]);
    end(s, &pair);
}

#[test]
fn an_over_long_datagram_breaks_the_receiving_queue_pair() {
    let Some(mut rig) = rig("an_over_long_datagram_breaks_the_receiving_queue_pair", B, false) else {
        return;
    };
    let (mut s, pair) = connected(&mut rig, QpType::Ud, |_| {});
    let r = s.recv(B, pair.qp[B], 1);
    let (ud, cookie) = (s.ud_dest(A, &pair, 0x1111_1111), s.cookie());
    let buf = filled_chain(&s.ends[A].pool, &pattern(1, 3000), 2);
    s.post(A, pair.qp[A], SendWr { ud: Some(ud), ..SendWr::new(Op::Send, buf, cookie) });
    s.wait_ok(A, cookie);
    s.wait_all(B, &[(r, Status::LocQpOpErr)]);
    end(s, &pair);
}

#[test]
fn a_send_that_invalidates_a_plain_region_is_acknowledged() {
    let Some(mut rig) = rig("a_send_that_invalidates_a_plain_region_is_acknowledged", B, false) else {
        return;
    };
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    let region = s.region(B, 64, all_rights());
    let r = s.recv(B, pair.qp[B], 8);
    let c = s.send(A, pair.qp[A], Op::SendInv(region.rkey()), b"taken");
    s.wait_all(A, &[(c, Status::Success)]);
    s.wait_all(B, &[(r, Status::RemInvReqErr)]);
    drop(region);
    end(s, &pair);
}

#[test]
fn a_lost_nak_is_not_repeated() {
    let Some(mut rig) = rig("a_lost_nak_is_not_repeated", B, false) else { return };
    let seen = watch(&mut rig, |_, frame| is_nak(frame));
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| (link.timeout, link.retry_cnt) = (12, 2));
    let region = s.region(B, 64, all_rights());
    let slice = region.slice(0, 8).expect("inside");
    let bad = RemoteSlice { rkey: Rkey(slice.rkey.0 ^ 0x5500), ..slice };
    let c = s.fetch(A, pair.qp[A], Op::Read(bad));
    s.wait_all(A, &[(c, Status::RetryExcErr)]);
    let naks = seen.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|(_, f)| is_nak(f)).count();
    assert_eq!(naks, 1);
    assert_eq!(opcodes(&seen, Way::ToKernel), [READ_REQUEST; 3], "and two retries");
    drop(region);
    end(s, &pair);
}

/// Loses the `n`-th frame with this opcode that goes this way.
fn loses_nth(of: Way, opcode: u8, n: usize) -> impl FnMut(Way, &[u8]) -> bool {
    let mut came = 0;
    move |way, frame| {
        came += usize::from(way == of && bth(frame)[0] == opcode);
        came == n && way == of && bth(frame)[0] == opcode
    }
}

#[test]
fn a_read_resumed_by_own_is_answered_from_the_middle() {
    let Some(mut rig) = rig("a_read_resumed_by_own_is_answered_from_the_middle", B, false) else { return };
    let seen = watch(&mut rig, loses_nth(Way::ToOwn, READ_RESPONSE_MIDDLE, 3));
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| link.timeout = 12);
    let (region, bytes) = (s.region(B, 8000, all_rights()), pattern(3, 8000));
    region.window().copy_in(0, &bytes);
    let c = s.fetch(A, pair.qp[A], Op::Read(region.slice(0, 8000).expect("inside")));
    assert_eq!(contents(&s.wait_ok(A, c).buf), bytes);
    let requests = opcodes(&seen, Way::ToKernel).into_iter().filter(|op| *op == READ_REQUEST).count();
    assert!(requests >= 2, "the rest was asked for");
    let firsts = opcodes(&seen, Way::ToOwn).into_iter().filter(|op| *op == READ_RESPONSE_FIRST).count();
    assert_eq!(firsts, 1, "the rest does not begin with FIRST");
    drop(region);
    end(s, &pair);
}

#[test]
fn a_read_resumed_by_the_kernel_is_answered() {
    let Some(mut rig) = rig("a_read_resumed_by_the_kernel_is_answered", A, false) else { return };
    let seen = watch(&mut rig, loses_nth(Way::ToKernel, READ_RESPONSE_MIDDLE, 3));
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| link.timeout = 12);
    let growth = Growth::of(["completer_retry_err"]);
    let (region, bytes) = (s.region(B, 8000, all_rights()), pattern(4, 8000));
    region.window().copy_in(0, &bytes);
    let c = s.fetch(A, pair.qp[A], Op::Read(region.slice(0, 8000).expect("inside")));
    assert_eq!(contents(&s.wait_ok(A, c).buf), bytes);
    let requests = opcodes(&seen, Way::ToOwn).into_iter().filter(|op| *op == READ_REQUEST).count();
    assert!(requests >= 2, "the rest was asked for");
    assert!(growth.so_far()[0] >= 1, "by the timer");
    drop(region);
    end(s, &pair);
}

/// Seven retries mean as many as it takes there.
#[test]
fn the_kernel_never_gives_up_with_seven_retries() {
    let Some(mut rig) = rig("the_kernel_never_gives_up_with_seven_retries", A, false) else { return };
    let mut lost = 0;
    watch(&mut rig, move |way, _| {
        lost += u32::from(way == Way::ToOwn);
        lost <= 12
    });
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| (link.timeout, link.retry_cnt) = (10, 7));
    let r = s.recv(B, pair.qp[B], 8);
    let c = s.send(A, pair.qp[A], Op::Send, b"at last");
    assert_eq!(contents(&s.wait_ok(B, r).buf), b"at last");
    s.wait_ok(A, c);
    end(s, &pair);
}

/// A fenced request waits there until no READ is under way, those behind it included. One that has to be sent again
/// after a READ behind it was sent therefore waits for ever; retries are counted no more, and answers are not taken.
#[test]
fn the_kernel_never_sends_a_fenced_request_again() {
    let Some(mut rig) = rig("the_kernel_never_sends_a_fenced_request_again", A, false) else { return };
    rig.device_fences = true;
    // Both requests arrive, their answers do not.
    let seen = watch(&mut rig, |way, _| way == Way::ToKernel);
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| (link.timeout, link.retry_cnt) = (12, 2));
    let region = s.region(B, 64, all_rights());
    let r = s.recv(B, pair.qp[B], 8);
    let (buf, fenced) = (filled_chain(&s.ends[A].pool, b"fenced", 1), s.cookie());
    s.post(A, pair.qp[A], SendWr { fence: true, ..SendWr::new(Op::Send, buf, fenced) });
    let read = s.fetch(A, pair.qp[A], Op::Read(region.slice(0, 8).expect("inside")));
    s.wait_ok(B, r);
    // Two retries and giving up would take 50 ms.
    (0..10).for_each(|_| s.quiet());
    assert_eq!(opcodes(&seen, Way::ToOwn), [SEND_ONLY, READ_REQUEST], "nothing is sent again");
    // Only an end from outside brings the requests back.
    s.ends[A].transport.fail(pair.qp[A]);
    s.wait_all(A, &[(fenced, Status::WrFlushErr), (read, Status::WrFlushErr)]);
    drop(region);
    end(s, &pair);
}

/// So the verbs transport keeps fenced requests of rxe until what they wait for is done.
#[test]
fn a_fenced_request_for_the_kernel_waits_for_its_turn() {
    let Some(mut rig) = rig("a_fenced_request_for_the_kernel_waits_for_its_turn", A, false) else { return };
    let mut answers = 0;
    let seen = watch(&mut rig, move |way, _| {
        answers += u32::from(way == Way::ToKernel);
        way == Way::ToKernel && answers <= 3
    });
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| link.timeout = 12);
    let region = s.region(B, 64, all_rights());
    let r = s.recv(B, pair.qp[B], 8);
    let first = s.fetch(A, pair.qp[A], Op::Read(region.slice(0, 8).expect("inside")));
    let (buf, fenced) = (filled_chain(&s.ends[A].pool, b"fenced", 1), s.cookie());
    s.post(A, pair.qp[A], SendWr { fence: true, ..SendWr::new(Op::Send, buf, fenced) });
    let behind = s.fetch(A, pair.qp[A], Op::Read(region.slice(0, 8).expect("inside")));
    s.wait_ok(B, r);
    s.wait_all(A, &[first, fenced, behind].map(|cookie| (cookie, Status::Success)));
    let sent = opcodes(&seen, Way::ToOwn);
    let at = sent.iter().position(|opcode| *opcode == SEND_ONLY).expect("it was sent");
    assert!(at >= 4 && sent[..at].iter().all(|opcode| *opcode == READ_REQUEST), "{sent:x?}");
    drop(region);
    end(s, &pair);
}

/// The same from the own end: everything is sent again until there is an answer.
#[test]
fn own_sends_a_fenced_request_again() {
    let Some(mut rig) = rig("own_sends_a_fenced_request_again", B, false) else { return };
    let mut answers = 0;
    watch(&mut rig, move |way, _| {
        answers += u32::from(way == Way::ToOwn);
        way == Way::ToOwn && answers <= 4
    });
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| link.timeout = 12);
    let region = s.region(B, 64, all_rights());
    let r = s.recv(B, pair.qp[B], 8);
    let (buf, fenced) = (filled_chain(&s.ends[A].pool, b"fenced", 1), s.cookie());
    s.post(A, pair.qp[A], SendWr { fence: true, ..SendWr::new(Op::Send, buf, fenced) });
    let read = s.fetch(A, pair.qp[A], Op::Read(region.slice(0, 8).expect("inside")));
    s.wait_ok(B, r);
    s.wait_all(A, &[(fenced, Status::Success), (read, Status::Success)]);
    drop(region);
    end(s, &pair);
}

/// Twice the requests: answered twice, done once, and the kernel counts them.
#[test]
fn duplicates_are_answered_and_not_done_again() {
    let Some(mut rig) = rig("duplicates_are_answered_and_not_done_again", B, false) else { return };
    rig.judge(Box::new(|_, _| Fate::ComesTwice));
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    let growth = Growth::of(["duplicate_request"]);
    let region = s.region(B, 64, all_rights());
    let word = region.word(0).expect("aligned");
    for n in 0..8u64 {
        let r = s.recv(B, pair.qp[B], 8);
        let c = s.send(A, pair.qp[A], Op::Send, &n.to_le_bytes());
        assert_eq!(contents(&s.wait_ok(B, r).buf), n.to_le_bytes());
        s.wait_ok(A, c);
        let c = s.fetch(A, pair.qp[A], Op::FetchAdd { word, add: 1 });
        assert_eq!(contents(&s.wait_ok(A, c).buf), n.to_ne_bytes(), "added {n} times");
    }
    s.quiet();
    assert!(growth.so_far()[0] >= 16, "{:?}", growth.so_far());
    drop(region);
    end(s, &pair);
}

/// The ends mark packets differently, and each takes the other's.
#[test]
fn headers_differ_where_they_may() {
    let Some(mut rig) = rig("headers_differ_where_they_may", A, false) else { return };
    let seen = watch(&mut rig, |_, _| false);
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    (0..3).for_each(|_| s.exchange(&pair));
    end(s, &pair);
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let roce = |way: Way| seen.iter().filter(move |(w, f)| *w == way && bth(f)[0] != 0xFF).map(|(_, f)| f);
    assert!(roce(Way::ToOwn).count() >= 6 && roce(Way::ToKernel).count() >= 6);
    for frame in roce(Way::ToOwn) {
        assert_eq!((frame[15], frame[20] & 0x40), (0, 0x40), "the kernel: no ECN, not to be fragmented");
        assert_eq!((&frame[40..42], bth(frame)[1] & 0x40), (&[0, 0][..], 0), "no UDP checksum, not migrated");
    }
    for frame in roce(Way::ToKernel) {
        assert_eq!(frame[15] & 3, 2, "own: ECT(0)");
    }
}

/// Without a receive posted each end is told when to try again.
#[test]
fn the_kernel_waits_for_receives() {
    let Some(mut rig) = rig("the_kernel_waits_for_receives", A, false) else { return };
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| link.min_rnr_timer = 14);
    let growth = Growth::of(["rcvd_rnr_err"]);
    let sent = [0u8, 1].map(|n| s.send(A, pair.qp[A], Op::Send, &[n; 100]));
    s.quiet();
    assert!(growth.so_far()[0] >= 1);
    let receives = [(); 2].map(|()| s.recv(B, pair.qp[B], 100));
    for (n, r) in receives.into_iter().enumerate() {
        assert_eq!(contents(&s.wait_ok(B, r).buf), [n as u8; 100]);
    }
    sent.into_iter().for_each(|c| drop(s.wait_ok(A, c)));
    let state = s.ends[A].transport.state(pair.qp[A]);
    assert_eq!(state, Some(rdma_engine::qp::QpState::Rts));
    end(s, &pair);
}
