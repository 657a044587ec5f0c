//! Unreliable connections and datagrams.

use crate::arena_pool::HEADROOM;
use crate::pair::{Pair, QKEY, all_access, plain, rts, skipped, spec};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::qp::QpSpec;
use rdma_engine::transport::{Device, SrqSpec, Transport, WorkerSpec};
use rdma_engine::types::QpType;
use rdma_engine::wr::{
    AhId, Cookie, Done, Op, QpId, Received, RecvWr, Refusal, SendWr, SrqId, Status, UdDest, UdSource,
};

#[test]
fn uc_sends_and_writes() {
    let Some(mut p) = Pair::open("uc_sends_and_writes") else { return };
    let (qa, qb) = p.connect(&spec(QpType::Uc), &spec(QpType::Uc));
    let region = p.b.region(8192, all_access());
    p.b.recvs(qb, 0..2);
    p.b.flush();
    p.a.send(qa, Op::Send, &[5; 3000], 0);
    p.a.send(qa, Op::Write(region.slice(0, 2000).unwrap()), &[6; 2000], 1);
    p.a.send(qa, Op::WriteImm(region.slice(2000, 1).unwrap(), 42), &[7], 2);
    p.a.flush();
    assert!(p.a.take(3).iter().all(|c| c.status == Status::Success));
    let got = p.b.take(2);
    assert_eq!(got[0].buf.to_vec(), [5; 3000]);
    let wrote = Received { imm: Some(42), written: Some(1), ..Received::default() };
    assert_eq!(got[1].done, Done::Received(wrote));
    let mut there = [0; 2001];
    region.window().copy_out(0, &mut there);
    assert!(there[..2000] == [6; 2000] && there[2000] == 7);
    let read = SendWr::new(Op::Read(region.slice(0, 8).unwrap()), p.a.pool.alloc().unwrap(), Cookie(0));
    assert_eq!(p.a.transport.post_send(qa, read).unwrap_err().why, Refusal::Unsupported);
    drop(got);
    p.close();
}

/// Two datagram queue pairs and the way from A to B.
fn datagrams(p: &mut Pair, spec_b: &QpSpec) -> (QpId, QpId, UdDest) {
    let (qp_a, qp_b) = (p.a.init(&spec(QpType::Ud)), p.b.init(spec_b));
    let (num_a, num_b) = (qp_a.qpn(), qp_b.qpn());
    let qp_a = p.a.up(qp_a, &p.b, num_b, rts());
    let qp_b = p.b.up(qp_b, &p.a, num_a, rts());
    let ah = p.a.device.create_ah(0, &p.a.path_to(&p.b)).unwrap();
    let to = UdDest { ah, qpn: num_b, qkey: QKEY };
    (p.a.transport.attach(qp_a).unwrap(), p.b.transport.attach(qp_b).unwrap(), to)
}

fn datagram(p: &mut Pair, qp: QpId, to: Option<UdDest>, bytes: &[u8]) -> Result<(), Refusal> {
    let wr = SendWr { ud: to, ..SendWr::new(Op::Send, p.a.pool.with(bytes), Cookie(0)) };
    p.a.transport.post_send(qp, wr).map_err(|r| r.why)
}

#[test]
fn datagrams_keep_their_place_and_name_their_sender() {
    let Some(mut p) = Pair::open("datagrams_keep_their_place") else { return };
    let (qa, qb, to) = datagrams(&mut p, &spec(QpType::Ud));
    p.b.recv(qb, 0);
    // Headroom smaller than the network header: it is made.
    let mut low = p.b.pool.alloc().unwrap();
    low.prepend(HEADROOM - 8).unwrap();
    low.truncate(0);
    assert_eq!((low.len(), low.headroom()), (0, 8));
    p.b.transport.post_recv(qb, RecvWr { buf: low, cookie: Cookie(1) }).unwrap();
    let mut chain = p.b.pool.alloc().unwrap();
    chain.chain(p.b.pool.alloc().unwrap()).unwrap();
    p.b.transport.post_recv(qb, RecvWr { buf: chain, cookie: Cookie(2) }).unwrap();
    p.b.recv(qb, 3);
    p.b.flush();
    let mtu = p.a.device.active_mtu().unwrap().bytes() as usize;
    let full = vec![3; mtu];
    datagram(&mut p, qa, Some(to), b"first").unwrap();
    datagram(&mut p, qa, Some(to), b"second").unwrap();
    datagram(&mut p, qa, Some(to), &full).unwrap();
    let empty = SendWr { ud: Some(to), ..SendWr::new(Op::SendImm(9), p.a.pool.with(b""), Cookie(0)) };
    p.a.transport.post_send(qa, empty).unwrap();
    p.a.flush();
    assert!(p.a.take(4).iter().all(|c| c.status == Status::Success));
    let got = p.b.take(4);
    let bytes: Vec<_> = got.iter().map(|c| c.buf.to_vec()).collect();
    assert_eq!(bytes, [b"first".to_vec(), b"second".to_vec(), full, vec![]]);
    assert_eq!([got[0].buf.headroom(), got[1].buf.headroom()], [HEADROOM, 40]);
    let source = Some(UdSource { qpn: p.a.transport.qpn(qa).unwrap(), gid: Some(p.a.device.gid()) });
    for (at, c) in got.iter().enumerate() {
        let want = Received { source, imm: (at == 3).then_some(9), ..Received::default() };
        assert_eq!((c.status, c.done), (Status::Success, Done::Received(want)));
    }
    drop(got);
    p.close();
}

#[test]
fn over_ipv6_too() {
    let Some(mut p) = Pair::open("over_ipv6_too") else { return };
    for end in [&p.a, &p.b] {
        let gids = end.device.gids().unwrap();
        let Some(v6) = gids.iter().find(|g| g.gid.ip().is_ipv6() && !g.gid.is_link_local()) else {
            return skipped("over_ipv6_too", "a device has no routable IPv6 address");
        };
        end.device.use_gid(v6.index).unwrap();
    }
    let (qa, qb, to) = datagrams(&mut p, &spec(QpType::Ud));
    p.b.recv(qb, 0);
    let (rc_a, rc_b) = p.rc();
    p.b.recv(rc_b, 1);
    p.b.flush();
    datagram(&mut p, qa, Some(to), b"datagram").unwrap();
    p.a.flush();
    p.a.one();
    let got = p.b.one();
    let Done::Received(Received { source: Some(source), .. }) = got.done else { panic!("{got:?}") };
    assert_eq!((got.buf.to_vec(), source.gid), (b"datagram".to_vec(), Some(p.a.device.gid())));
    assert!(source.gid.unwrap().ip().is_ipv6());
    p.a.send(rc_a, Op::Send, b"connected", 2);
    p.a.flush();
    assert_eq!(p.b.one().buf.to_vec(), b"connected");
    drop((got, p.a.one()));
    p.close();
}

#[test]
fn datagrams_that_cannot_go_are_refused() {
    let Some(mut p) = Pair::open("datagrams_that_cannot_go_are_refused") else { return };
    let (qa, qb, to) = datagrams(&mut p, &spec(QpType::Ud));
    let mtu = p.a.device.active_mtu().unwrap().bytes() as usize;
    assert_eq!(datagram(&mut p, qa, Some(to), &vec![0; mtu + 1]), Err(Refusal::TooLong));
    assert_eq!(datagram(&mut p, qa, None, b"where to"), Err(Refusal::Destination));
    let nowhere = UdDest { ah: AhId(77), ..to };
    assert_eq!(datagram(&mut p, qa, Some(nowhere), b"where to"), Err(Refusal::Destination));
    let region = p.b.region(64, all_access());
    let op = Op::Write(region.slice(0, 1).unwrap());
    let wr = SendWr { ud: Some(to), ..SendWr::new(op, p.a.pool.with(b"x"), Cookie(0)) };
    assert_eq!(p.a.transport.post_send(qa, wr).unwrap_err().why, Refusal::Unsupported);
    // A wrong Q_Key is dropped at the other end without a word.
    p.b.recv(qb, 0);
    p.b.flush();
    datagram(&mut p, qa, Some(UdDest { qkey: 1, ..to }), b"wrong key").unwrap();
    datagram(&mut p, qa, Some(to), b"right key").unwrap();
    p.a.flush();
    p.a.take(2);
    let got = p.b.one();
    assert_eq!(got.buf.to_vec(), b"right key");
    drop(got);
    p.close();
}

#[test]
fn a_path_made_again_keeps_its_number_while_datagrams_fly() {
    let Some(mut p) = Pair::open("a_path_made_again") else { return };
    let (qa, qb, to) = datagrams(&mut p, &spec(QpType::Ud));
    for round in 0..50 {
        p.b.recvs(qb, 0..2);
        p.b.flush();
        datagram(&mut p, qa, Some(to), b"before").unwrap();
        let path = p.a.path_to(&p.b);
        assert_eq!(p.a.device.create_ah(0, &path).unwrap(), to.ah, "round {round}");
        datagram(&mut p, qa, Some(to), b"after").unwrap();
        p.a.flush();
        p.a.take(2);
        assert_eq!(p.b.take(2).len(), 2);
        p.a.flush();
    }
    p.close();
}

#[test]
fn datagrams_on_a_shared_queue() {
    let shared = WorkerSpec { srqs: vec![SrqSpec { depth: 16, sge: 2 }], ..plain() };
    let Some(mut p) = Pair::open_with("datagrams_on_a_shared_queue", &plain(), &shared) else { return };
    let spec_b = QpSpec { srq: Some(SrqId(0)), ..spec(QpType::Ud) };
    let (qa, qb, to) = datagrams(&mut p, &spec_b);
    let wr = RecvWr { buf: p.b.pool.alloc().unwrap(), cookie: Cookie(4) };
    p.b.transport.post_srq_recv(SrqId(0), wr).unwrap();
    p.b.flush();
    datagram(&mut p, qa, Some(to), b"to all").unwrap();
    p.a.flush();
    p.a.one();
    let got = p.b.one();
    assert_eq!((got.qp, got.cookie, got.buf.to_vec()), (qb, Cookie(4), b"to all".to_vec()));
    let Done::Received(Received { source: Some(source), .. }) = got.done else { panic!("{got:?}") };
    assert_eq!(source.gid, Some(p.a.device.gid()));
    drop(got);
    p.close();
}
