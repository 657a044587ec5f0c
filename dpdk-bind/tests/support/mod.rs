//! A test harness for one EAL: DPDK starts once per process and ties its caches to the thread that started it,
//! so these tests run one after the other on the main thread instead of on libtest's threads.
//!
//! Each binary runs its tests with `--no-huge`, which works everywhere, and then runs itself again with
//! `--in-memory` on hugepages where enough are free. `cargo test -p dpdk-bind NAME` filters by name.

pub(crate) mod sockets;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

use dpdk_bind::eal::Hugepages;
use dpdk_bind::{Eal, Mempool, PoolConfig};

/// Set for the second run.
const MODE: &str = "DPDK_BIND_TEST_MODE";
const IN_MEMORY: &str = "in-memory";
/// What a run on hugepages takes, with some room for others.
const NEEDED: u64 = 192 << 20;

/// What a test gets.
pub(crate) struct Context<'a> {
    pub(crate) eal: &'a Eal,
    test: &'static str,
    pools: RefCell<Vec<Mempool>>,
}

pub(crate) type Test = (&'static str, fn(&Context<'_>));

impl Context<'_> {
    /// A pool that must be full again when the test ends.
    pub(crate) fn pool(&self, config: &PoolConfig) -> Mempool {
        let mut pools = self.pools.borrow_mut();
        let name = format!("test_{}", pools.len());
        let pool = Mempool::create(self.eal, &name, config).unwrap_or_else(|e| panic!("{}: {e}", self.test));
        pools.push(pool.clone());
        pool
    }

    /// A pool of `count` buffers of the usual size.
    pub(crate) fn buffers(&self, count: u32) -> Mempool {
        self.pool(&PoolConfig { count, cache: (count / 8).min(64), ..PoolConfig::default() })
    }

    /// A pool of headers for slices.
    #[allow(dead_code)] // Not every binary slices.
    pub(crate) fn headers(&self, count: u32) -> Mempool {
        self.pool(&PoolConfig { count, cache: (count / 8).min(64), data_room: 0, ..PoolConfig::default() })
    }

    fn check_pools(&self) {
        for pool in self.pools.borrow().iter() {
            assert!(
                pool.is_full(),
                "{} of {} buffers are missing from {pool:?}",
                pool.in_use(),
                pool.capacity()
            );
        }
    }
}

/// Runs the tests whose name contains the first argument.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let mut args = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let filter = args.next().unwrap_or_default();
    if std::env::args().any(|a| a == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mode = std::env::var(MODE).unwrap_or_else(|_| "no-huge".into());
    let eal = match Eal::init(eal_args(&mode)) {
        Ok(eal) => eal,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    let chosen = tests.iter().filter(|(name, _)| name.contains(&filter));
    let failed: Vec<&str> =
        chosen.filter(|test| !run_one(&eal, test, &mode)).map(|(name, _)| *name).collect();
    let (left_over, runtime_dir) = (eal.pools_waiting(), eal.runtime_dir());
    drop(eal);
    // The EAL leaves its files behind.
    let _ = std::fs::remove_dir_all(runtime_dir);
    assert_eq!(left_over, 0, "pools were dropped with buffers still out");
    if !failed.is_empty() {
        println!("failed: {failed:?}");
        return ExitCode::FAILURE;
    }
    if mode == IN_MEMORY { ExitCode::SUCCESS } else { run_on_hugepages(&filter) }
}

fn run_one(eal: &Eal, &(name, test): &Test, mode: &str) -> bool {
    let context = Context { eal, test: name, pools: RefCell::default() };
    let passed = catch_unwind(AssertUnwindSafe(|| {
        test(&context);
        context.check_pools();
    }));
    drop(context);
    println!("test {name} [{mode}] ... {}", if passed.is_ok() { "ok" } else { "FAILED" });
    passed.is_ok()
}

fn run_on_hugepages(filter: &str) -> ExitCode {
    let free = Hugepages::free_bytes();
    if free < NEEDED {
        println!(
            "SKIPPED [{IN_MEMORY}]: {} MiB of hugepages are free, {} are needed",
            free >> 20,
            NEEDED >> 20
        );
        return ExitCode::SUCCESS;
    }
    let program = std::env::current_exe().expect("the path of this test");
    let status =
        Command::new(program).arg(filter).env(MODE, IN_MEMORY).status().expect("this test starts again");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Three lcores on whatever CPUs there are.
fn eal_args(mode: &str) -> Vec<String> {
    let memory = if mode == IN_MEMORY { "--in-memory" } else { "--no-huge" };
    let prefix = format!("--file-prefix=dpdk_bind_test_{}", std::process::id());
    let words = [memory, "-m", "128", "--no-pci", "--iova-mode=va", &prefix, "--lcores"];
    words.iter().map(ToString::to_string).chain([format!("(0-2)@({})", allowed_cpus())]).collect()
}

/// CPUs this process may use, as `/proc` has them: `0-1`.
pub(crate) fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(|| "0".into(), |l| l.trim().to_owned())
}
