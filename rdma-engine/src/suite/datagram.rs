//! Datagrams.

use super::bytes::{contents, pattern};
use super::case::Case;
use super::session::{A, B, Link, Pair, Session};
use super::{Features, Rig};
use crate::transport::{Device, Transport};
use crate::types::QpType;
use crate::wr::{Cookie, Done, Op, OpKind, QpId, SendWr, SrqId, Status, UdDest};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::unless("ud_send", needs_ud, sends),
        Case::unless("ud_many", needs_ud, many),
        Case::unless("ud_lost_without_receive_or_key", needs_ud, lost),
        Case::unless("ud_overlong_is_lost", needs_lossy_overlong, overlong),
        Case::unless("ud_flush_in_err", needs_ud, flushed),
        Case::unless("ud_shared_receives", needs_ud_srq, shared_receives),
    ]
}

pub(super) fn needs_ud(f: &Features) -> Option<&'static str> {
    (!f.ud).then_some("no datagrams")
}

fn needs_lossy_overlong(f: &Features) -> Option<&'static str> {
    needs_ud(f).or((!f.lossy_overlong).then_some("an over-long message breaks the queue pair"))
}

fn needs_ud_srq(f: &Features) -> Option<&'static str> {
    needs_ud(f).or_else(|| super::queues::needs_srq(f))
}

/// Posts a datagram.
fn send<R: Rig>(s: &mut Session<'_, R>, end: usize, qp: QpId, op: Op, bytes: &[u8], dest: UdDest) -> Cookie {
    let (buf, cookie) = (super::filled_chain(&s.ends[end].pool, bytes, 1), s.cookie());
    s.post(end, qp, SendWr { ud: Some(dest), ..SendWr::new(op, buf, cookie) });
    cookie
}

fn open<R: Rig>(rig: &mut R) -> (Session<'_, R>, Link, Pair) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Ud, &s.features);
    let pair = s.connect(&link);
    (s, link, pair)
}

/// Datagrams of every length, each way: bytes without any header in front, immediate value, sender.
fn sends<R: Rig>(rig: &mut R) {
    let (mut s, link, pair) = open(rig);
    let dest = [A, B].map(|end| s.ud_dest(end, &pair, link.qkey));
    let lengths = super::connected::lengths(&s.features);
    let most = link.pmtu.bytes() as usize;
    for (i, len) in lengths.into_iter().filter(|n| *n <= most).enumerate() {
        let (from, to) = if i % 2 == 0 { (A, B) } else { (B, A) };
        for imm in [None, Some(i as u32)] {
            let bytes = pattern(len as u64, len);
            // Some devices put a network header of 40 bytes in front, which the transport strips.
            let r = s.recv(to, pair.qp[to], most + 40);
            let op = imm.map_or(Op::Send, Op::SendImm);
            let c = send(&mut s, from, pair.qp[from], op, &bytes, dest[from]);
            let got = s.wait_ok(to, r);
            assert_eq!(contents(&got.buf), bytes, "{len} bytes");
            let Done::Received(received) = got.done else { panic!("{:?} for a receive", got.done) };
            let source = received.source.expect("a datagram has a sender");
            assert_eq!((source.qpn, received.imm, received.written), (pair.qpn[from], imm, None));
            let gid = s.ends[from].device.gid();
            assert!(source.gid.is_none_or(|g| g == gid), "from {:?}, not {gid}", source.gid);
            assert_eq!(s.wait_ok(from, c).done, Done::Sent(OpKind::Send));
        }
    }
    s.tear_down(&pair);
    s.finish();
}

/// A burst to one peer arrives in order when there are receives for all of it.
fn many<R: Rig>(rig: &mut R) {
    let (mut s, link, pair) = open(rig);
    let dest = s.ud_dest(A, &pair, link.qkey);
    let receives: Vec<_> = (0..32).map(|_| s.recv(B, pair.qp[B], 64)).collect();
    let sent: Vec<_> = (0..32u8).map(|i| send(&mut s, A, pair.qp[A], Op::Send, &[i; 20], dest)).collect();
    for (i, r) in receives.into_iter().enumerate() {
        assert_eq!(contents(&s.wait_ok(B, r).buf), [i as u8; 20]);
    }
    let all: Vec<_> = sent.into_iter().map(|c| (c, Status::Success)).collect();
    s.wait_all(A, &all);
    s.tear_down(&pair);
    s.finish();
}

/// Without a receive, or with the wrong Q_Key, a datagram is lost: the sender succeeds, the receiver lives on.
fn lost<R: Rig>(rig: &mut R) {
    let (mut s, link, pair) = open(rig);
    let good = s.ud_dest(A, &pair, link.qkey);
    let no_receive = send(&mut s, A, pair.qp[A], Op::Send, b"no receive", good);
    s.wait_ok(A, no_receive);
    s.quiet();
    let r = s.recv(B, pair.qp[B], 64);
    let no_qp = UdDest { qpn: crate::types::Qpn::new(0x00F0_0F0F), ..good };
    for bad in [UdDest { qkey: link.qkey ^ 1, ..good }, no_qp] {
        let c = send(&mut s, A, pair.qp[A], Op::Send, b"lost", bad);
        s.wait_ok(A, c);
    }
    s.quiet();
    let c = send(&mut s, A, pair.qp[A], Op::Send, b"arrives", good);
    assert_eq!(contents(&s.wait_ok(B, r).buf), b"arrives");
    s.wait_ok(A, c);
    s.tear_down(&pair);
    s.finish();
}

/// A datagram longer than the receive is lost, and the next one takes that receive.
fn overlong<R: Rig>(rig: &mut R) {
    let (mut s, link, pair) = open(rig);
    let dest = s.ud_dest(A, &pair, link.qkey);
    let (small, cookie) = (super::lifecycle::small_room(&s, B, 40), s.cookie());
    let wr = crate::wr::RecvWr { buf: small, cookie };
    assert!(s.ends[B].transport.post_recv(pair.qp[B], wr).is_ok());
    let long = send(&mut s, A, pair.qp[A], Op::Send, &[1; 41], dest);
    s.wait_ok(A, long);
    s.quiet();
    let short = send(&mut s, A, pair.qp[A], Op::Send, &[2; 40], dest);
    assert_eq!(contents(&s.wait_ok(B, cookie).buf), [2; 40]);
    s.wait_ok(A, short);
    s.tear_down(&pair);
    s.finish();
}

/// Receives and posted datagrams of a failed queue pair are flushed in order.
fn flushed<R: Rig>(rig: &mut R) {
    let (mut s, link, pair) = open(rig);
    let dest = s.ud_dest(A, &pair, link.qkey);
    let receives: Vec<_> = (0..3).map(|_| (s.recv(A, pair.qp[A], 64), Status::WrFlushErr)).collect();
    s.ends[A].transport.fail(pair.qp[A]);
    s.wait_all(A, &receives);
    let sends: Vec<_> =
        (0..3u8).map(|i| (send(&mut s, A, pair.qp[A], Op::Send, &[i], dest), Status::WrFlushErr)).collect();
    s.wait_all(A, &sends);
    s.tear_down(&pair);
    s.finish();
}

/// Datagrams to two queue pairs take their receives from one queue; each names its sender.
fn shared_receives<R: Rig>(rig: &mut R) {
    let mut s = Session::open_with(rig, &super::queues::shared_worker());
    let mut link = Link::new(QpType::Ud, &s.features);
    link.srq[B] = Some(SrqId(0));
    let pairs = [s.connect(&link), s.connect(&link)];
    let dests = pairs.map(|pair| s.ud_dest(A, &pair, link.qkey));
    let posted: Vec<_> = (0..8).map(|_| s.recv_shared(B, SrqId(0), 128)).collect();
    for i in 0..8usize {
        let (k, bytes) = (i % 3 % 2, [i as u8; 33]);
        let c = send(&mut s, A, pairs[k].qp[A], Op::Send, &bytes, dests[k]);
        let got = s.wait(B, 1).pop().expect("one");
        assert!(got.status == Status::Success && posted.contains(&got.cookie));
        assert_eq!((got.qp, contents(&got.buf)), (pairs[k].qp[B], bytes.to_vec()));
        let Done::Received(received) = got.done else { panic!("{:?} for a receive", got.done) };
        assert_eq!(received.source.map(|source| source.qpn), Some(pairs[k].qpn[A]));
        s.wait_ok(A, c);
    }
    pairs.iter().for_each(|p| s.tear_down(p));
    s.finish();
}
