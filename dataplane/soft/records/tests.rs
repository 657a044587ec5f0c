//! A node whose queue pairs all fail at once.

use super::*;
use rdma_engine::heap::HeapPool;
use rdma_engine::mem::Access;
use rdma_engine::qp::{BringUp, Change, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::soft::{SoftConfig, SoftDevice};
use rdma_engine::transport::{CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn};
use rdma_engine::wire::Mac;

const QPS: u16 = 40;

/// A worker with idle queue pairs, and the watch over them.
fn worker(records: &Arc<Records>) -> (SoftTransport<HeapPool>, Watch, Vec<QpId>) {
    let ip = |last| std::net::IpAddr::from([10, 0, 0, last]);
    let mut config = SoftConfig::new(Mac([2, 0, 0, 0, 0, 1]), vec![ip(1)]);
    (config.max_qps, config.recorder_frames) = (64, 4);
    let device = SoftDevice::new(config, vec![HeapPool::new(64, 2048)]).unwrap();
    let spec = WorkerSpec { cqs: vec![CqSpec { depth: 16, events: false }], srqs: vec![], max_qps: QPS };
    let mut transport = device.create_worker(0, &spec).unwrap();
    let mut watch = Watch::new(Some(Arc::clone(records)), QPS);
    let attached = |_| {
        let spec = QpSpec { kind: QpType::Rc, caps: QpCaps::default(), srq: None, cq: 0 };
        let mut qp = device.create_qp(0, &spec).unwrap();
        device.modify(&mut qp, &Change::Init(InitAttr { access: Access::LOCAL, qkey: 0 })).unwrap();
        let rtr = RtrAttr {
            path: rdma_engine::qp::AddressVector::to(ip(2).into(), 0),
            dest_qpn: Qpn::new(0x11),
            rq_psn: Psn::new(0),
            pmtu: Pmtu::B1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
        };
        let rts = RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let qp = BringUp::resume(&device, qp).rtr(rtr).unwrap().rts(rts).unwrap();
        let id = transport.attach(qp).ok().unwrap();
        watch.attach(id);
        id
    };
    let ids = (0..QPS).map(attached).collect();
    (transport, watch, ids)
}

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("isthmus-records-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Everything that control says, in order.
fn written(records: &Records, directory: &Path) -> Vec<String> {
    std::iter::from_fn(|| records.write_next(directory)).collect()
}

#[test]
fn a_storm_of_failures_is_recorded_piece_by_piece() {
    let records = Arc::new(Records::new(1));
    let (mut transport, mut watch, ids) = worker(&records);
    let dir = directory("storm");
    assert_eq!(watch.next_timer(), Time::NEVER);
    ids.iter().for_each(|qp| watch.failed(*qp));
    // The taking down fails once more; that is not recorded again.
    ids.iter().for_each(|qp| watch.failed(*qp));
    watch.hand_out(Time(5), &mut transport);
    assert_eq!(records.waiting.len(), MAX_RECORDINGS as usize);
    assert_eq!(watch.next_timer(), Time(5 + PAUSE_NS), "not looked at again in every turn");
    assert_eq!(written(&records, &dir).len(), 16);
    watch.hand_out(Time(2_000_000), &mut transport);
    assert_eq!(written(&records, &dir).len(), 16);
    // Three are taken away before the rest is looked at.
    let due: Vec<QpId> = watch.watched.iter().filter(|w| w.due.is_some()).map(|w| w.qp).collect();
    due[..3].iter().for_each(|qp| watch.detach(*qp));
    watch.hand_out(Time(4_000_000), &mut transport);
    let said = written(&records, &dir);
    assert_eq!((said.len(), watch.next_timer()), (6, Time::NEVER), "{said:?}");
    assert!(said[5].starts_with("3 more queue pairs failed"), "{said:?}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 37);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn every_queue_pair_is_recorded_on_request() {
    let records = Arc::new(Records::new(1));
    let (mut transport, mut watch, ids) = worker(&records);
    let dir = directory("request");
    watch.ask();
    watch.failed(ids[7]);
    let mut files = 0;
    for turn in 0..100 {
        watch.hand_out(Time(turn * 2_000_000), &mut transport);
        files += written(&records, &dir).len();
    }
    assert_eq!((files, watch.next_timer()), (usize::from(QPS), Time::NEVER));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn nothing_is_due_where_nothing_is_recorded() {
    let mut watch = Watch::new(None, 4);
    let qp = QpId { slot: 1, generation: 0 };
    watch.attach(qp);
    watch.failed(qp);
    watch.ask();
    assert_eq!(watch.next_timer(), Time::NEVER);
    watch.detach(qp);
}
