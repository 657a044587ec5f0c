//! Reliable connections: every operation, and what comes back.

use crate::pair::{Pair, all_access, spec};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::types::QpType;
use rdma_engine::wr::{Cookie, Done, Op, OpKind, Received, Refusal, SendWr, Status};

#[test]
fn send_and_receive() {
    let Some(mut p) = Pair::open("send_and_receive") else { return };
    let (qa, qb) = p.rc();
    p.b.recvs(qb, 0..3);
    p.b.flush();
    p.a.send(qa, Op::Send, b"one", 10);
    p.a.send(qa, Op::SendImm(0x0102_0304), b"", 11);
    p.a.send(qa, Op::Send, &[7; 5000], 12);
    assert!(p.b.poll().is_empty(), "nothing moves before flush");
    p.a.flush();
    let sent = p.a.take(3);
    let got = p.b.take(3);
    for (at, (s, r)) in sent.iter().zip(&got).enumerate() {
        assert_eq!(
            (s.cookie, s.status, s.done),
            (Cookie(10 + at as u64), Status::Success, Done::Sent(OpKind::Send))
        );
        assert_eq!((r.cookie, r.status, r.qp), (Cookie(at as u64), Status::Success, qb));
    }
    assert_eq!(got[0].buf.to_vec(), b"one");
    assert_eq!(got[1].done, Done::Received(Received { imm: Some(0x0102_0304), ..Received::default() }));
    assert!(got[1].buf.is_empty());
    assert_eq!(got[2].buf.to_vec(), [7; 5000], "five packets");
    drop((sent, got));
    assert_eq!(p.a.transport.counters().doorbells, 1, "one doorbell for three requests");
    p.a.destroy(qa);
    p.b.destroy(qb);
    p.close();
}

#[test]
fn write_read_and_atomics() {
    let Some(mut p) = Pair::open("write_read_and_atomics") else { return };
    let (qa, qb) = p.rc();
    let region = p.b.region(16384, all_access());
    p.b.recv(qb, 0);
    p.b.flush();
    p.a.send(qa, Op::Write(region.slice(64, 3000).unwrap()), &[9; 3000], 1);
    p.a.send(qa, Op::WriteImm(region.slice(4096, 4).unwrap(), u32::MAX - 1), b"imm!", 2);
    p.a.flush();
    let wrote = p.b.one();
    assert_eq!(p.a.take(2).iter().filter(|c| c.done == Done::Sent(OpKind::Write)).count(), 2);
    let Done::Received(r) = wrote.done else { panic!("{wrote:?}") };
    assert_eq!((r.imm, r.written, wrote.buf.len()), (Some(u32::MAX - 1), Some(4), 0));
    let mut there = [0; 3000];
    region.window().copy_out(64, &mut there);
    assert_eq!(there, [9; 3000]);
    p.a.fetch(qa, Op::Read(region.slice(63, 3002).unwrap()), 3);
    let word = region.word(8192).unwrap();
    p.a.fetch(qa, Op::FetchAdd { word, add: 5 }, 4);
    p.a.fetch(qa, Op::CompareSwap { word, compare: 5, swap: 77 }, 5);
    p.a.fetch(qa, Op::CompareSwap { word, compare: 5, swap: 99 }, 6);
    p.a.fetch(qa, Op::Read(region.slice(0, 0).unwrap()), 7);
    p.a.flush();
    let got = p.a.take(5);
    assert!(got.iter().all(|c| c.status == Status::Success), "{got:?}");
    let mut want = vec![9; 3002];
    (want[0], want[3001]) = (0, 0);
    assert_eq!(got[0].buf.to_vec(), want);
    let before: Vec<_> =
        got[1..4].iter().map(|c| u64::from_ne_bytes(c.buf.to_vec().try_into().unwrap())).collect();
    assert_eq!(before, [0, 5, 77]);
    assert!(got[4].buf.is_empty());
    assert_eq!(region.window().word(8192).load(std::sync::atomic::Ordering::Acquire), 77);
    drop((wrote, got));
    p.close();
}

#[test]
fn chains_both_ways_and_inline() {
    let Some(mut p) = Pair::open("chains_both_ways_and_inline") else { return };
    let mut with_inline = spec(QpType::Rc);
    with_inline.caps.inline_bytes = 64;
    let (qa, qb) = p.connect(&with_inline, &spec(QpType::Rc));
    let mut chain = p.b.pool.alloc().unwrap();
    chain.append(8192 - 100).unwrap();
    let mut room = p.b.pool.alloc().unwrap();
    room.append(0).unwrap();
    drop(chain);
    room.chain(p.b.pool.alloc().unwrap()).unwrap();
    p.b.transport.post_recv(qb, rdma_engine::wr::RecvWr { buf: room, cookie: Cookie(0) }).unwrap();
    p.b.recvs(qb, 1..4);
    p.b.flush();
    let parts: Vec<Vec<u8>> = (0..8u8).map(|n| vec![n; 1200]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let long = p.a.pool.chain(&parts);
    let want = long.to_vec();
    p.a.transport.post_send(qa, SendWr::new(Op::Send, long, Cookie(0))).unwrap();
    let short = p.a.pool.chain(&[b"in", b"", b"line"]);
    p.a.transport.post_send(qa, SendWr::new(Op::Send, short, Cookie(1))).unwrap();
    p.a.send(qa, Op::Send, &[1; 64], 2);
    p.a.send(qa, Op::Send, &[2; 65], 3);
    p.a.flush();
    let got = p.b.take(4);
    assert_eq!(got[0].buf.to_vec(), want, "9600 bytes out of 8 segments into 2");
    assert_eq!(got[1].buf.to_vec(), b"inline");
    assert_eq!((got[2].buf.len(), got[3].buf.len()), (64, 65));
    p.a.take(4);
    let too_many = p.a.pool.chain(&[b"x".as_slice(); 9]);
    let refused = p.a.transport.post_send(qa, SendWr::new(Op::Send, too_many, Cookie(9))).unwrap_err();
    assert_eq!((refused.why, refused.wr.buf.segment_count()), (Refusal::TooManySegments, 9));
    drop((got, refused));
    p.close();
}

#[test]
fn unsignalled_requests_complete_with_the_next_signalled_one() {
    let Some(mut p) = Pair::open("unsignalled_requests_complete") else { return };
    let mut sparing = spec(QpType::Rc);
    sparing.caps.signal_every = 16;
    let (qa, qb) = p.connect(&sparing, &spec(QpType::Rc));
    for round in 0..10 {
        p.b.recvs(qb, 0..40);
        p.b.flush();
        (0..40).for_each(|n| p.a.send(qa, Op::Send, &[n as u8; 8], round * 40 + n));
        p.a.flush();
        let sent = p.a.take(40);
        assert!(sent.iter().enumerate().all(|(n, c)| c.cookie.0 == round * 40 + n as u64));
        assert!(sent.iter().all(|c| c.status == Status::Success));
        let got = p.b.take(40);
        assert!(got.iter().enumerate().all(|(n, c)| c.buf.to_vec() == [n as u8; 8]));
    }
    assert_eq!(p.a.transport.counters().doorbells, 10);
    p.close();
}

#[test]
fn a_full_queue_gives_the_request_back() {
    let Some(mut p) = Pair::open("a_full_queue_gives_the_request_back") else { return };
    let (qa, qb) = p.rc();
    let depth = p.a.transport.send_room(qa);
    assert_eq!((depth, p.a.transport.recv_room(qa)), (64, 64));
    (0..64).for_each(|n| p.a.send(qa, Op::Send, b"x", n));
    let wr = SendWr::new(Op::Send, p.a.pool.with(b"too much"), Cookie(64));
    let refused = p.a.transport.post_send(qa, wr).unwrap_err();
    assert_eq!((refused.why, refused.wr.buf.to_vec()), (Refusal::Full, b"too much".to_vec()));
    drop(refused);
    p.b.recvs(qb, 0..64);
    p.b.flush();
    p.a.flush();
    assert_eq!((p.a.take(64).len(), p.b.take(64).len()), (64, 64));
    assert_eq!(p.a.transport.send_room(qa), 64);
    p.close();
}
