//! Buffers of several segments, shared segments, and headroom.

use super::bytes::{contents, empty_chain, filled_chain, pattern};
use super::case::Case;
use super::session::{A, B, Link, Pair, Session, all_rights};
use super::{Rig, Rng};
use crate::buf::{Buf, Pool};
use crate::transport::Transport;
use crate::types::QpType;
use crate::wr::{Completion, Cookie, Op, RecvWr, SendWr, Status};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::always("rc_gather_and_scatter_messages", messages),
        Case::always("rc_gather_and_scatter_memory", memory),
        Case::always("rc_shared_segments", shared),
        Case::always("rc_headroom_kept", headroom),
    ]
}

fn open<R: Rig>(rig: &mut R) -> (Session<'_, R>, Pair, usize) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    (s, pair, usize::from(link.caps.send_sge))
}

fn post_recv<R: Rig>(s: &mut Session<'_, R>, pair: &Pair, buf: R::Buf) -> Cookie {
    let cookie = s.cookie();
    let taken = s.ends[B].transport.post_recv(pair.qp[B], RecvWr { buf, cookie });
    assert_eq!(taken.err().map(|r| r.why), None, "the receive is taken");
    cookie
}

fn post_send<R: Rig>(s: &mut Session<'_, R>, pair: &Pair, op: Op, buf: R::Buf) -> Cookie {
    let cookie = s.cookie();
    s.post(A, pair.qp[A], SendWr::new(op, buf, cookie));
    cookie
}

/// A message of n segments goes into a receive of m segments, for many n and m, some of them empty.
fn messages<R: Rig>(rig: &mut R) {
    let (mut s, pair, sge) = open(rig);
    let mut rng = Rng::new(s.features.seed);
    for n in [1, 2, 3, sge] {
        for m in [1, 2, sge] {
            let most = (m * s.ends[B].pool.buf_room()).min(s.features.max_message);
            let bytes = pattern(rng.bits(), rng.below(most + 1));
            let into = empty_chain(&s.ends[B].pool, m);
            let from = filled_chain(&s.ends[A].pool, &bytes, n.min(sge));
            let r = post_recv(&mut s, &pair, into);
            let c = post_send(&mut s, &pair, Op::Send, from);
            assert_eq!(contents(&s.wait_ok(B, r).buf), bytes, "{} bytes, {n} segments into {m}", bytes.len());
            s.wait_ok(A, c);
        }
    }
    s.tear_down(&pair);
    s.finish();
}

/// WRITE from and READ into chains.
fn memory<R: Rig>(rig: &mut R) {
    let (mut s, pair, sge) = open(rig);
    let size = s.features.max_message;
    let region = s.region(B, size, all_rights());
    for n in [1, 2, 5, sge] {
        let most = (n * s.ends[A].pool.buf_room()).min(size);
        let bytes = pattern(n as u64, most - n);
        let target = region.slice(n, bytes.len() as u32).expect("inside");
        let from = filled_chain(&s.ends[A].pool, &bytes, n);
        let into = empty_chain(&s.ends[A].pool, n);
        let w = post_send(&mut s, &pair, Op::Write(target), from);
        let r = post_send(&mut s, &pair, Op::Read(target), into);
        s.wait_ok(A, w);
        assert_eq!(contents(&s.wait_ok(A, r).buf), bytes, "{n} segments");
    }
    s.tear_down(&pair);
    s.finish();
}

/// One buffer's bytes travel in many messages at once, as slices, and are let go of one by one.
fn shared<R: Rig>(rig: &mut R) {
    let (mut s, pair, _) = open(rig);
    let bytes = pattern(3, 600);
    let whole = filled_chain(&s.ends[A].pool, &bytes, 2);
    let mut posted = vec![];
    for i in 0..10 {
        let (offset, len) = (i * 55, 50 + i);
        let mut slice = s.ends[A].pool.slice(&whole, offset, len).expect("a header");
        let head = filled_chain(&s.ends[A].pool, &[i as u8; 7], 1);
        let mut want = vec![i as u8; 7];
        want.extend(&bytes[offset..offset + len]);
        if i % 2 == 0 {
            let tail = std::mem::replace(&mut slice, head);
            assert!(slice.chain(tail).is_ok());
        } else {
            want.drain(..7);
        }
        let r = s.recv(B, pair.qp[B], want.len());
        posted.push((post_send(&mut s, &pair, Op::Send, slice), r, want));
    }
    drop(whole);
    for (c, r, want) in posted {
        assert_eq!(contents(&s.wait_ok(B, r).buf), want);
        s.wait_ok(A, c);
    }
    s.tear_down(&pair);
    s.finish();
}

/// A receive and a READ come back with at least the headroom they were posted with, and it can be used.
fn headroom<R: Rig>(rig: &mut R) {
    let (mut s, pair, _) = open(rig);
    let region = s.region(B, 512, all_rights());
    let bytes = pattern(8, 300);
    region.window().copy_in(0, &bytes);
    let check = |mut c: Completion<R::Buf>, asked: usize| {
        assert_eq!(c.status, Status::Success);
        assert!(c.buf.headroom() >= asked, "{} bytes of headroom, {asked} asked for", c.buf.headroom());
        c.buf.prepend(asked).expect("headroom can be used").fill(0xEE);
        let mut want = vec![0xEE; asked];
        want.extend(&bytes);
        assert_eq!(contents(&c.buf), want);
    };
    for asked in [0, 64, 128, 200] {
        let [mut into, mut fetched] = [B, A].map(|end| s.room_for(end, 300));
        assert!(into.reserve(asked) && fetched.reserve(asked), "a fresh buffer has {asked} bytes to spare");
        post_recv(&mut s, &pair, into);
        let from = filled_chain(&s.ends[A].pool, &bytes, 1);
        post_send(&mut s, &pair, Op::Send, from);
        let got = s.wait(B, 1).pop().expect("one");
        check(got, asked);
        s.wait(A, 1);
        post_send(&mut s, &pair, Op::Read(region.slice(0, 300).expect("inside")), fetched);
        let got = s.wait(A, 1).pop().expect("one");
        check(got, asked);
    }
    s.tear_down(&pair);
    s.finish();
}
