//! Buffers that are DPDK's mbufs: the contract of buffers, queues that fail, and relays in a storm.
//!
//! DPDK starts once in a process and ties its caches to the thread that started it, so these tests run one after the other
//! on the main thread. They need neither hugepages nor devices. `cargo test --test mbufs NAME` filters by name.

#[path = "../dataplane/service/relay/tests/rig.rs"]
mod rig;
#[path = "../dataplane/service/relay/tests/storm.rs"]
mod storm;
#[path = "../dataplane/service/relay/tests/watch.rs"]
mod watch;

use dpdk_bind::{Eal, Mempool, PoolConfig};
use isthmus::bridge::PacketPool;
use isthmus::service::Pools;
use proptest::test_runner::{Config, TestRunner};
use rdma_engine::heap::HeapPool;
use rdma_engine::suite::{random_ownership, run_buffer_cases};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

type Test = (&'static str, fn(&Eal));

const TESTS: &[Test] = &[
    ("mbufs_keep_the_contract_of_buffers", contract),
    ("nothing_is_lost_in_queues_that_fail", ownership),
    ("relays_in_a_storm_lose_no_frame_and_no_mbuf", relays),
];

fn pool(eal: &Eal, name: &str, count: u32, data_room: u16) -> PacketPool {
    let config = PoolConfig { count, cache: 0, data_room, ..PoolConfig::default() };
    PacketPool(Mempool::create(eal, name, &config).expect("a pool"))
}

fn contract(eal: &Eal) {
    let (buffers, headers) = (pool(eal, "buffers", 63, 128 + 100), pool(eal, "headers", 63, 0));
    run_buffer_cases(&buffers, &headers);
    run_buffer_cases(&buffers, &buffers);
    // The heap twin keeps the same one.
    run_buffer_cases(&HeapPool::new(63, 100), &HeapPool::new(63, 0));
}

fn ownership(eal: &Eal) {
    let (buffers, headers) = (pool(eal, "buffers", 200, 128 + 128), pool(eal, "headers", 200, 0));
    for seed in 0..40 {
        random_ownership(&buffers, &headers, seed, 600);
        random_ownership(&HeapPool::new(200, 128), &HeapPool::new(200, 0), seed, 600);
    }
}

fn relays(eal: &Eal) {
    let pools = |end: &str| Pools {
        frames: pool(eal, &format!("frames_{end}"), 1023, 128 + 2048),
        messages: pool(eal, &format!("messages_{end}"), 255, 128 + 4096 + 128),
        slices: pool(eal, &format!("slices_{end}"), 1023, 0),
    };
    let all = [pools("a"), pools("b")];
    let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
    let done = TestRunner::new(config).run(&(storm::setups(), storm::storms(60)), |(setup, steps)| {
        let mut storm = storm::Storm::new(setup, all.clone(), 2000);
        steps.iter().for_each(|step| storm.step(step));
        drop(storm.end().dismantle());
        for Pools { frames, messages, slices } in &all {
            for PacketPool(pool) in [frames, messages, slices] {
                assert!(pool.is_full(), "{} buffers are missing from {pool:?}", pool.in_use());
            }
        }
        Ok(())
    });
    done.unwrap_or_else(|e| panic!("{e}"));
}

fn start() -> (Eal, std::path::PathBuf) {
    let prefix = format!("--file-prefix=isthmus_mbufs_{}", std::process::id());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let cpus = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or("0").trim();
    let lcores = format!("0@({cpus})");
    let words = ["--no-huge", "-m", "96", "--no-pci", "--iova-mode=va", &prefix, "--lcores", &lcores];
    let eal = Eal::init(words.map(str::to_owned)).unwrap_or_else(|e| panic!("{e}"));
    let files = eal.runtime_dir();
    (eal, files)
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let (eal, files) = start();
    let mut failed = 0;
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(&filter)) {
        let passed = catch_unwind(AssertUnwindSafe(|| test(&eal))).is_ok() && eal.pools_waiting() == 0;
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    drop(eal);
    // The EAL leaves its files behind.
    drop(std::fs::remove_dir_all(files));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
