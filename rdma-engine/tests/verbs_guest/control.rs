//! The control thread: reports, limits, rights, and its work beside a polling worker.

use crate::arena_pool::{ArenaBuf, ArenaPool};
use crate::pair::{End, Pair, QKEY, all_access, plain, rts, skipped, spec};
use rdma_engine::buf::{NoEgress, Pool};
use rdma_engine::cm::gid::GidKind;
use rdma_engine::mem::{Access, Arena, Backing};
use rdma_engine::qp::{AddressVector, BringUp, Change, InitAttr, RtrAttr};
use rdma_engine::transport::{Completions, Device, Transport};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use rdma_engine::verbs::{LinkLayer, PortState, Verbs, VerbsDevice, VerbsError, devices};
use rdma_engine::wr::{Cookie, Op, QpId, RecvWr, Refusal, SendWr, Status};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn devices_tell_what_they_are() {
    let Ok(found) = devices() else { return skipped("devices_tell_what_they_are", "no RDMA device") };
    for device in &found {
        assert_ne!((device.node_guid, device.limits.qps), (0, 0), "{device:?}");
        let port = &device.ports[0];
        assert_eq!((port.number, port.link_layer), (1, LinkLayer::Ethernet), "{port:?}");
        assert!(port.active_mtu <= port.max_mtu && port.max_message >= 1 << 20, "{port:?}");
        assert!(port.gids.iter().is_sorted_by_key(|g| g.index));
    }
    if !found[0].name.starts_with("rxe") {
        return;
    }
    let (limits, port) = (&found[0].limits, &found[0].ports[0]);
    assert_eq!((limits.sge, limits.srq_sge, limits.rd_atomic), (32, 27, 128));
    assert_eq!(
        (port.state, port.active_mtu, port.max_message),
        (PortState::Active, Some(Pmtu::B4096), 8 << 20)
    );
    let v4 = port.gids.iter().find(|g| g.gid.ip().is_ipv4()).expect("an IPv4 address");
    assert_eq!((v4.kind, v4.netdev.as_deref(), v4.prefix_len), (GidKind::RoceV2, Some("v0"), Some(24)));
}

#[test]
fn what_does_not_exist_is_named() {
    let Some(p) = Pair::open("what_does_not_exist_is_named") else { return };
    let name = p.a.device.name().to_string();
    let open = |name: &str, port| VerbsDevice::<ArenaBuf>::open(name, port).unwrap_err();
    let unknown = open("mlx9_9", 1).to_string();
    assert!(unknown.contains("mlx9_9") && unknown.contains(&name), "{unknown}");
    assert!(matches!(open(&name, 9), VerbsError::UnknownPort { port: 9, .. }));
    assert!(matches!(p.a.device.use_gid(1023), Err(VerbsError::NoGid { index: 1023, .. })));
    let before = p.a.device.gid();
    let entry = p.a.device.use_gid(0).unwrap();
    assert_eq!((p.a.device.gid(), p.a.device.gid_index()), (entry.gid, 0));
    assert!(entry.gid != before || p.a.device.gids().unwrap().len() == 1);
    let no_worker = BringUp::create(&p.a.device, 3, &spec(QpType::Rc)).unwrap_err();
    assert!(matches!(no_worker, VerbsError::UnknownWorker { worker: 3 }));
    let again = p.a.device.create_worker(0, &plain()).unwrap_err();
    assert!(matches!(again, VerbsError::WorkerExists { worker: 0 }));
    p.close();
}

#[test]
fn limits_are_checked_before_the_device_says_invalid() {
    let Some(p) = Pair::open("limits_are_checked") else { return };
    let report = p.a.device.report().unwrap();
    let create = |change: fn(&mut rdma_engine::qp::QpSpec, u32)| {
        let mut s = spec(QpType::Rc);
        change(&mut s, report.limits.sge);
        BringUp::create(&p.a.device, 0, &s).map(|_| ()).map_err(|e| e.to_string())
    };
    create(|s, most| s.caps.send_sge = most as u16).unwrap();
    let refused = create(|s, most| s.caps.send_sge = most as u16 + 1).unwrap_err();
    assert!(refused.contains(&format!("use at most {}", report.limits.sge)), "{refused}");
    assert!(create(|s, _| s.caps.recv_depth = u32::MAX).unwrap_err().contains("receive depth"));
    assert!(create(|s, _| s.caps.inline_bytes = 1 << 20).unwrap_err().contains("inline_bytes"));
    assert!(create(|s, _| s.cq = 5).unwrap_err().contains("completion queue 5"));
    let mut qp = p.a.init(&spec(QpType::Rc));
    let mut rtr = RtrAttr {
        path: p.a.path_to(&p.b),
        dest_qpn: Qpn::new(17),
        rq_psn: Psn::new(0),
        pmtu: Pmtu::B1024,
        max_dest_rd_atomic: 255,
        min_rnr_timer: 1,
    };
    let modify = |qp: &mut _, to: Change| p.a.device.modify(qp, &to).map_err(|e| e.to_string());
    assert!(modify(&mut qp, Change::Rtr(rtr)).unwrap_err().contains("use at most 128"));
    rtr.max_dest_rd_atomic = 4;
    let illegal = modify(&mut qp, Change::Rts(rts())).unwrap_err();
    assert!(illegal.contains("RESET, INIT, RTR, RTS"), "{illegal}");
    let bad_gid = RtrAttr { path: AddressVector { sgid_index: 200, ..rtr.path }, ..rtr };
    let refused = modify(&mut qp, Change::Rtr(bad_gid)).unwrap_err();
    assert!(refused.contains("GID"), "{refused}");
    modify(&mut qp, Change::Rtr(rtr)).unwrap();
    let mut too_patient = rts();
    too_patient.retry_cnt = 8;
    assert!(modify(&mut qp, Change::Rts(too_patient)).unwrap_err().contains("retry_cnt"));
    drop(qp);
    p.close();
}

#[test]
fn memory_is_registered_with_checked_rights() {
    let Some(mut p) = Pair::open("memory_is_registered_with_checked_rights") else { return };
    let arena = Arena::new(8192, Backing::Pages).unwrap();
    let refused = p.a.device.register(&arena, Access::REMOTE_WRITE).unwrap_err();
    assert!(matches!(refused, VerbsError::Access(_)), "{refused}");
    let overlap = p.a.device.register_buffers(p.a.pool.arena()).unwrap_err();
    assert!(matches!(overlap, VerbsError::Overlap { .. }), "{overlap}");
    let (qa, qb) = p.rc();
    // A foreign buffer is refused, but its bytes may travel inside the request.
    let foreign = ArenaPool::new(2, 64);
    let wr = SendWr::new(Op::Send, foreign.with(b"foreign"), Cookie(0));
    assert_eq!(p.a.transport.post_send(qa, wr).unwrap_err().why, Refusal::NotRegistered);
    let wr = RecvWr { buf: foreign.alloc().unwrap(), cookie: Cookie(0) };
    assert_eq!(p.b.transport.post_recv(qb, wr).unwrap_err().why, Refusal::NotRegistered);
    let mut inline = spec(QpType::Rc);
    inline.caps.inline_bytes = 32;
    let (qa, qb) = p.connect(&inline, &spec(QpType::Rc));
    p.b.recv(qb, 0);
    p.b.flush();
    p.a.transport.post_send(qa, SendWr::new(Op::Send, foreign.with(b"foreign"), Cookie(0))).unwrap();
    p.a.flush();
    assert_eq!(p.b.one().buf.to_vec(), b"foreign");
    // Hugepages, where there are some.
    match Arena::new(4 << 20, Backing::HugePages) {
        Ok(huge) => drop(p.a.device.register(&huge, all_access()).unwrap()),
        Err(e) => skipped("registering hugepages", &e.to_string()),
    }
    drop(p.a.one());
    p.close();
    assert!(foreign.is_full());
}

#[test]
fn locked_memory_beyond_the_limit_is_explained() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let Ok(found) = devices() else { return skipped("locked_memory", "no RDMA device") };
    let Some(limit) = limit else {
        return skipped("locked_memory", "no limit; run as `ulimit -l 64` without CAP_IPC_LOCK");
    };
    let device = VerbsDevice::<ArenaBuf>::open(&found[0].name, 1).unwrap();
    let arena = Arena::new(limit as usize + (1 << 20), Backing::Pages).unwrap();
    match device.register(&arena, Access::LOCAL_WRITE) {
        Ok(_) => skipped("locked_memory", "this user may lock beyond the limit"),
        Err(e) => {
            let words = e.to_string();
            assert!(words.contains(&format!("{limit} bytes")) && words.contains("LimitMEMLOCK"), "{words}");
        }
    }
}

#[test]
fn domains_keep_tenants_apart() {
    let Some(mut p) = Pair::open("domains_keep_tenants_apart") else { return };
    let other = End::with(p.b.device.another_domain().unwrap(), &plain());
    assert_ne!(other.device.domain(), p.b.device.domain());
    let theirs = other.region(4096, all_access());
    let (qa, _) = p.rc();
    p.a.fetch(qa, Op::Read(theirs.slice(0, 8).unwrap()), 0);
    p.a.flush();
    assert_eq!(p.a.one().status, Status::RemAccessErr, "the key is good, but in another domain");
    drop((theirs, other));
    p.close();
}

/// Sends `messages` messages from A to B, one at a time, as a worker with its own loop would.
fn carry(
    a: (&mut Verbs<ArenaBuf>, &ArenaPool, QpId),
    b: (&mut Verbs<ArenaBuf>, &ArenaPool, QpId),
    messages: u64,
) {
    let mut got = Completions::new();
    for n in 0..messages {
        let recv = RecvWr { buf: b.1.alloc().unwrap(), cookie: Cookie(n) };
        b.0.post_recv(b.2, recv).unwrap();
        b.0.flush(Time(0), &mut NoEgress);
        a.0.post_send(a.2, SendWr::new(Op::Send, a.1.with(&n.to_le_bytes()), Cookie(n))).unwrap();
        a.0.flush(Time(0), &mut NoEgress);
        while got.len() < 2 {
            a.0.poll(Time(0), &mut got);
            b.0.poll(Time(0), &mut got);
            std::thread::yield_now();
        }
        for c in got.drain(..) {
            assert_eq!(
                (c.cookie, c.status, c.buf.to_vec()),
                (Cookie(n), Status::Success, n.to_le_bytes().to_vec())
            );
        }
    }
}

#[test]
fn the_control_thread_works_beside_a_polling_worker() {
    let Some(mut p) = Pair::open("the_control_thread_works_beside") else { return };
    let (qa, qb) = p.rc();
    let (path, other_path) = (p.a.path_to(&p.b), p.b.path_to(&p.a));
    let done = AtomicBool::new(false);
    let (a, b) = (&mut p.a, &mut p.b);
    let (device_a, device_b) = (&a.device, &b.device);
    let ends = ((&mut a.transport, &a.pool, qa), (&mut b.transport, &b.pool, qb));
    let mut rounds = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            carry(ends.0, ends.1, 1000);
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let arena = Arena::new(1 << 16, Backing::Pages).unwrap();
            let region = device_b.register(&arena, all_access()).unwrap();
            let up = BringUp::create(device_a, 0, &spec(QpType::Ud)).unwrap();
            let qp = up.init(InitAttr { access: Access::LOCAL, qkey: QKEY }).unwrap().pause();
            device_a.create_ah(0, &path).unwrap();
            device_b.create_ah(0, &other_path).unwrap();
            assert_eq!(device_a.poll_async(), None);
            device_a.destroy_qp(qp).unwrap();
            drop(region);
            rounds += 1;
        }
    });
    assert!(rounds > 0);
    p.a.destroy(qa);
    p.b.destroy(qb);
    p.close();
}
