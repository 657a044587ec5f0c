//! Workers at work do nothing but their work: over a part of a run they allocate nothing, make no system call and never
//! leave the CPU on their own account.
//!
//! Each configuration runs in a process of its own (DPDK starts once per process): this program again, with
//! `STEADY_CONF` set. There a second thread watches the workers while the main thread runs the configuration.

#![allow(unsafe_code)] // Counts what the global allocator is asked for.

use isthmus::config::{ConfigFile, apply_eal_words};
use isthmus::run::{hardware, run};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Names the configuration of a child.
const CONF: &str = "STEADY_CONF";
/// How long a run settles, and how long it is watched.
const SETTLE: Duration = Duration::from_millis(1200);
const WATCH: Duration = Duration::from_millis(1000);

/// Counts calls of worker threads while `WATCHING`.
struct Counting;

static WATCHING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is a worker; unknown at first.
    static WORKER: Cell<Option<bool>> = const { Cell::new(None) };
}

fn count() {
    if !WATCHING.load(Ordering::Relaxed) {
        return;
    }
    let worker = WORKER.get().unwrap_or_else(|| {
        let mut name = [0_u8; 16];
        // SAFETY: room for the 16 bytes that it writes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let worker = name.windows(6).any(|w| w == b"worker");
        WORKER.set(Some(worker));
        worker
    });
    if worker {
        ASKED.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: by the caller's word.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        println!("workers_are_steady: test");
        return ExitCode::SUCCESS;
    }
    match std::env::var_os(CONF) {
        Some(conf) => child(Path::new(&conf)),
        None => parent(),
    }
}

/// Configurations to watch. One worker lcore each, apart from control's.
const RUNS: [(&str, &str); 4] = [
    ("keys on the soft transport", include_str!("../conf/kv-load.toml")),
    ("relay on loopback", include_str!("../conf/relay-loopback.toml")),
    ("relay on the soft transport", include_str!("../conf/relay-soft.toml")),
    ("null port through a relay on loopback", NULL_RELAY),
];

const NULL_RELAY: &str = concat!(
    "[[port]]\nname = \"in\"\ndevice = \"net_null0,size=64\"\n",
    include_str!("data/relay/to-null.toml")
);

fn parent() -> ExitCode {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("steady");
    fs::create_dir_all(&dir).unwrap();
    let mut failed = false;
    for (number, (name, conf)) in RUNS.iter().enumerate() {
        let path = dir.join(format!("{number}.toml"));
        let conf = conf.replace("lcores = \"0@0,1@0\"", "").replace("measure_s = 5", "measure_s = 60");
        fs::write(&path, format!("{conf}\n[stats]\nformat = \"json\"\ninterval_s = 0\n")).unwrap();
        let output = Command::new(std::env::current_exe().unwrap()).env(CONF, &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let problem = verdict(&output.stdout, &output.status).err();
        println!("test {name} ... {}", if problem.is_none() { "ok" } else { "FAILED" });
        let said = said.lines().filter(|l| problem.is_some() || l.contains("SKIPPED"));
        said.for_each(|line| println!("{line}"));
        if let Some(problem) = problem {
            println!("{problem}");
            failed = true;
        }
    }
    println!("test result: {}. {} runs", if failed { "FAILED" } else { "ok" }, RUNS.len());
    ExitCode::from(u8::from(failed))
}

/// The child ended well, and its relays had something to do.
fn verdict(report: &[u8], status: &std::process::ExitStatus) -> Result<(), String> {
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    let text = String::from_utf8_lossy(report);
    let last = text.lines().rfind(|line| line.contains("\"workers\"")).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(last).map_err(|e| format!("{e}: {last}"))?;
    let carried: u64 = report["workers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|w| Some(w["counts"]["frames_received"].as_u64()? + w["counts"]["kv_replies"].as_u64()?))
        .sum();
    if carried < 10_000 { Err(format!("only {carried} frames or replies were carried")) } else { Ok(()) }
}

fn child(conf: &Path) -> ExitCode {
    let words = ["--in-memory", "--lcores=0,1", "--main-lcore=0"].map(str::to_owned);
    let mut file = ConfigFile::load(conf).unwrap();
    apply_eal_words(&mut file.config, &words).unwrap();
    let plan = match file.plan(Some(&hardware::before_eal())) {
        Ok(plan) => plan,
        Err(refused) => {
            eprintln!("{refused}");
            return ExitCode::FAILURE;
        }
    };
    let watcher = std::thread::spawn(watch);
    let ended = run(&file, &[], plan);
    let watched = watcher.join().unwrap();
    match ended.map_err(|e| e.to_string()).and(watched) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Watches the workers, then ends the run as a user would.
fn watch() -> Result<(), String> {
    let workers = find_workers();
    std::thread::sleep(SETTLE);
    let seen = observe(&workers);
    // SAFETY: a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
    seen
}

fn observe(workers: &[PathBuf]) -> Result<(), String> {
    if workers.is_empty() {
        return Err("no worker thread was found".into());
    }
    let before = voluntary(workers);
    WATCHING.store(true, Ordering::Relaxed);
    std::thread::sleep(WATCH);
    WATCHING.store(false, Ordering::Relaxed);
    let (left, asked) = (voluntary(workers) - before, ASKED.load(Ordering::Relaxed));
    if left + asked > 0 {
        return Err(format!("workers left the CPU {left} times, allocated or freed {asked} times"));
    }
    no_system_calls(workers)
}

/// The directories of worker threads below `/proc`, once there are any.
fn find_workers() -> Vec<PathBuf> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|e| e.path());
        let is_worker =
            |t: &PathBuf| fs::read_to_string(t.join("comm")).is_ok_and(|name| name.contains("worker"));
        let found: Vec<_> = tasks.filter(is_worker).collect();
        if !found.is_empty() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Vec::new()
}

/// How often these threads gave the CPU away.
fn voluntary(workers: &[PathBuf]) -> u64 {
    let of = |task: &PathBuf| {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    workers.iter().map(of).sum()
}

/// Traces the workers' system calls for a moment.
fn no_system_calls(workers: &[PathBuf]) -> Result<(), String> {
    let mut strace = Command::new("strace");
    strace.args(["-q", "-e", "signal=none"]).stdout(Stdio::null()).stderr(Stdio::piped());
    for task in workers {
        strace.arg("-p").arg(task.file_name().unwrap());
    }
    let Ok(mut tracer) = strace.spawn() else {
        eprintln!("SKIPPED: system calls of workers: strace is not installed");
        return Ok(());
    };
    std::thread::sleep(WATCH);
    let still = tracer.try_wait().unwrap().is_none();
    let text = end(tracer);
    match (still, text.trim()) {
        (true, "") => Ok(()),
        (true, calls) => Err(format!("workers made system calls:\n{calls}")),
        (false, why) if why.contains("not permitted") => {
            eprintln!("SKIPPED: system calls of workers: {why}");
            Ok(())
        }
        (false, why) => Err(format!("strace ended: {why}")),
    }
}

/// Ends a tracer; what it wrote.
fn end(tracer: Child) -> String {
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(tracer.id().cast_signed(), libc::SIGINT) };
    let output = tracer.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}
