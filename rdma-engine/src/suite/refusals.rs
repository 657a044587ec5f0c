//! What posting refuses, and that a refused request comes back whole.

use super::bytes::{contents, empty_chain, filled_chain};
use super::case::Case;
use super::session::{A, B, Link, Pair, Session, all_rights};
use super::{Features, Rig};
use crate::buf::{Buf, Pool};
use crate::qp::QpState;
use crate::transport::Transport;
use crate::types::{QpType, Rkey};
use crate::wr::{AhId, Op, QpId, RecvWr, Refusal, RemoteSlice, RemoteWord, SendWr, UdDest};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::always("refuses_in_wrong_state", wrong_state),
        Case::always("refuses_segments_and_room", limits),
        Case::unless("refuses_what_uc_cannot", super::connected::needs_uc, uc_operations),
        Case::unless("refuses_what_ud_cannot", super::datagram::needs_ud, ud_operations),
        Case::unless("refuses_unregistered_buffers", needs_registration, unregistered),
    ]
}

fn needs_registration(f: &Features) -> Option<&'static str> {
    (!f.registration).then_some("buffers need no registration")
}

/// Posts a request that must be refused for this reason, and come back as it was.
pub(super) fn refused<R: Rig>(
    s: &mut Session<'_, R>,
    end: usize,
    qp: QpId,
    wr: SendWr<R::Buf>,
    want: Refusal,
) {
    let (op, cookie, bytes) = (wr.op, wr.cookie, contents(&wr.buf));
    let free = s.ends[end].pool.available();
    let Err(back) = s.ends[end].transport.post_send(qp, wr) else { panic!("{op:?} was taken, not {want:?}") };
    assert_eq!((back.why, back.wr.op, back.wr.cookie), (want, op, cookie));
    assert_eq!((contents(&back.wr.buf), s.ends[end].pool.available()), (bytes, free));
}

/// The same for a receive.
pub(super) fn refused_recv<R: Rig>(s: &mut Session<'_, R>, end: usize, qp: QpId, buf: R::Buf, want: Refusal) {
    let cookie = s.cookie();
    let Err(back) = s.ends[end].transport.post_recv(qp, RecvWr { buf, cookie }) else {
        panic!("a receive was taken, not {want:?}")
    };
    assert_eq!((back.why, back.wr.cookie), (want, cookie));
}

fn message<R: Rig>(s: &mut Session<'_, R>, op: Op) -> SendWr<R::Buf> {
    let buf = filled_chain(&s.ends[A].pool, b"message", 1);
    SendWr::new(op, buf, s.cookie())
}

/// INIT and RTR take receives and no sends; RTR answers.
fn wrong_state<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let ([a, b], _) = s.bring_up(&link, [QpState::Init, QpState::Init]);
    let early = Pair { qp: [s.attach(A, a), s.attach(B, b)], qpn: [Default::default(); 2] };
    assert_eq!(s.ends[A].transport.state(early.qp[A]), Some(QpState::Init));
    s.recv(A, early.qp[A], 64);
    let wr = message(&mut s, Op::Send);
    refused(&mut s, A, early.qp[A], wr, Refusal::State);
    let ([a, b], qpn) = s.bring_up(&link, [QpState::Rtr, QpState::Rts]);
    let ready = Pair { qp: [s.attach(A, a), s.attach(B, b)], qpn };
    assert_eq!(s.ends[A].transport.state(ready.qp[A]), Some(QpState::Rtr));
    let wr = message(&mut s, Op::Send);
    refused(&mut s, A, ready.qp[A], wr, Refusal::State);
    let r = s.recv(A, ready.qp[A], 64);
    let c = s.send(B, ready.qp[B], Op::Send, b"answered in RTR");
    assert_eq!(contents(&s.wait_ok(A, r).buf), b"answered in RTR");
    s.wait_ok(B, c);
    s.quiet();
    s.tear_down(&ready);
    s.ends[A].transport.fail(early.qp[A]);
    assert_eq!(s.wait(A, 1)[0].status, crate::wr::Status::WrFlushErr);
    s.tear_down(&early);
    s.finish();
}

/// Too many segments, too little room, a destination that is not empty or not ours alone.
fn limits<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let mut link = Link::new(QpType::Rc, &s.features);
    (link.caps.send_sge, link.caps.recv_sge) = (2, 1);
    let pair = s.connect(&link);
    let region = s.region(B, 8192, all_rights());
    let (a, b) = (pair.qp[A], pair.qp[B]);
    let buf = filled_chain(&s.ends[A].pool, b"three segments", 3);
    let wr = SendWr::new(Op::Send, buf, s.cookie());
    refused(&mut s, A, a, wr, Refusal::TooManySegments);
    let two = empty_chain(&s.ends[B].pool, 2);
    refused_recv(&mut s, B, b, two, Refusal::TooManySegments);
    let room = s.ends[A].pool.buf_room();
    let read = Op::Read(region.slice(0, room as u32 + 1).expect("inside"));
    let buf = empty_chain(&s.ends[A].pool, 1);
    let wr = SendWr::new(read, buf, s.cookie());
    refused(&mut s, A, a, wr, Refusal::NoRoom);
    let read = Op::Read(region.slice(0, 8).expect("inside"));
    let wr = message(&mut s, read);
    refused(&mut s, A, a, wr, Refusal::NoRoom);
    let mut whole = filled_chain(&s.ends[B].pool, b"shared", 1);
    let slice = s.ends[B].pool.slice(&whole, 0, 6).expect("a header");
    whole.truncate(0);
    refused_recv(&mut s, B, b, whole, Refusal::NoRoom);
    drop(slice);
    let full = filled_chain(&s.ends[B].pool, b"not empty", 1);
    refused_recv(&mut s, B, b, full, Refusal::NoRoom);
    let dest = UdDest { ah: AhId(0), qpn: pair.qpn[B], qkey: 0 };
    let wr = SendWr { ud: Some(dest), ..message(&mut s, Op::Send) };
    refused(&mut s, A, a, wr, Refusal::Destination);
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}

const NOWHERE: RemoteSlice = RemoteSlice { addr: 0, rkey: Rkey(0), len: 7 };
const NO_WORD: RemoteWord = RemoteWord { addr: 0, rkey: Rkey(0) };

/// READs, atomics and SEND_INV on an unreliable connection.
fn uc_operations<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Uc, &s.features);
    let pair = s.connect(&link);
    let swap = Op::CompareSwap { word: NO_WORD, compare: 0, swap: 0 };
    for op in [Op::Read(NOWHERE), Op::FetchAdd { word: NO_WORD, add: 1 }, swap] {
        let buf = s.room_for(A, 8);
        let wr = SendWr::new(op, buf, s.cookie());
        refused(&mut s, A, pair.qp[A], wr, Refusal::Unsupported);
    }
    let wr = message(&mut s, Op::SendInv(Rkey(0)));
    refused(&mut s, A, pair.qp[A], wr, Refusal::Unsupported);
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}

/// Anything but SEND on a datagram queue pair, a SEND without destination, one longer than any packet.
fn ud_operations<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Ud, &s.features);
    let pair = s.connect(&link);
    let dest = Some(s.ud_dest(A, &pair, link.qkey));
    for op in [Op::Write(NOWHERE), Op::WriteImm(NOWHERE, 1), Op::SendInv(Rkey(0))] {
        let wr = SendWr { ud: dest, ..message(&mut s, op) };
        refused(&mut s, A, pair.qp[A], wr, Refusal::Unsupported);
    }
    let buf = s.room_for(A, 8);
    let wr = SendWr { ud: dest, ..SendWr::new(Op::Read(NOWHERE), buf, s.cookie()) };
    refused(&mut s, A, pair.qp[A], wr, Refusal::Unsupported);
    let wr = message(&mut s, Op::Send);
    refused(&mut s, A, pair.qp[A], wr, Refusal::Destination);
    let long = filled_chain(&s.ends[A].pool, &[0; 4097], 1);
    let wr = SendWr { ud: dest, ..SendWr::new(Op::Send, long, s.cookie()) };
    refused(&mut s, A, pair.qp[A], wr, Refusal::TooLong);
    s.tear_down(&pair);
    s.finish();
}

/// A buffer outside of registered memory.
fn unregistered<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let strange = |s: &mut Session<'_, R>, end| s.rig.unregistered(end).expect("the rig has such buffers");
    let mut buf = strange(&mut s, A);
    buf.append(4).expect("room").copy_from_slice(b"here");
    let wr = SendWr::new(Op::Send, buf, s.cookie());
    refused(&mut s, A, pair.qp[A], wr, Refusal::NotRegistered);
    let buf = strange(&mut s, B);
    refused_recv(&mut s, B, pair.qp[B], buf, Refusal::NotRegistered);
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}
