//! Where rxe works and where it does not: its own address, VLANs, network namespaces.

use crate::ends::Either;
use crate::rig::{connected, end, rig, run};
use crate::wire::Fate;
use rdma_engine::suite::{A, B};
use rdma_engine::types::QpType;
use rdma_engine::wire::Vlans;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Of RoCEv2 in `/proc/net/udp`.
const PORT: &str = ":12B7 ";

/// What is for the kernel itself never comes to the wire.
#[test]
fn a_message_to_oneself_stays_inside() {
    let Some(mut rig) = rig("a_message_to_oneself_stays_inside", A, false) else { return };
    rig.kernel = [true; 2];
    let outside = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&outside);
    rig.judge(Box::new(move |_, frame| {
        let roce = frame.len() > 42 && frame[23] == 17 && frame[36..38] == 4791u16.to_be_bytes();
        count.fetch_add(u32::from(roce), Ordering::Relaxed);
        Fate::Passes
    }));
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    (0..3).for_each(|_| s.exchange(&pair));
    while s.rig.take_frame().is_some() {}
    assert_eq!(outside.load(Ordering::Relaxed), 0);
    end(s, &pair);
}

/// A VLAN on top of rxe0's interface, until it is dropped.
struct Vlan;

impl Vlan {
    fn new() -> Vlan {
        run("modprobe 8021q");
        run("ip link add link v0 name v0.7 type vlan id 7");
        run("ip addr add 198.18.7.1/24 dev v0.7");
        run("ip link set v0.7 up");
        run("ip neigh replace 198.18.7.2 lladdr 02:00:00:00:00:02 dev v0.7 nud permanent");
        Vlan
    }
}

impl Drop for Vlan {
    fn drop(&mut self) {
        run("ip link del v0.7");
    }
}

/// There is no device of a VLAN's own: its address is one more of the interface below.
#[test]
fn a_vlan_is_one_more_address() {
    let Some(mut rig) = rig("a_vlan_is_one_more_address", A, false) else { return };
    let vlan = Vlan::new();
    let refused = Command::new("rdma").args("link add rxe7 type rxe netdev v0.7".split(' ')).output();
    assert!(!refused.expect("rdma").status.success());
    (rig.kernel_address, rig.own_address) = ([198, 18, 7, 1].into(), [198, 18, 7, 2].into());
    rig.vlans = Vlans::single(0, 7);
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    (0..3).for_each(|_| s.exchange(&pair));
    assert!(matches!(s.ends[B].transport, Either::Own(_)));
    end(s, &pair);
    drop(vlan);
}

/// A device can be made in another network namespace, but nothing listens there.
#[test]
fn another_network_namespace_hears_nothing() {
    let Some(_rig) = rig("another_network_namespace_hears_nothing", A, false) else { return };
    let script = "ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up && \
                  rdma link add rxe8 type rxe netdev d0 && cat /proc/net/udp";
    let there = Command::new("unshare").args(["--net", "sh", "-c", script]).output().expect("unshare");
    assert!(there.status.success(), "{}", String::from_utf8_lossy(&there.stderr));
    let there = String::from_utf8(there.stdout).expect("text");
    assert!(there.contains("local_address") && !there.contains(PORT), "{there}");
    assert!(fs::read_to_string("/proc/net/udp").expect("sockets").contains(PORT));
}
