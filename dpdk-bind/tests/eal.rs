//! What a running EAL offers: lcores, clock, memory, telemetry.

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use dpdk_bind::eal::{Hugepages, IovaMode, Lcore, LcoreError};
use dpdk_bind::telemetry::{COMMANDS_MAX, Handler, Telemetry, TelemetryError, Value};
use dpdk_bind::tsc::{Clock, rdtsc, tsc_hz};
use dpdk_bind::{Eal, EalError, Mbuf};
use support::{Context, Test};

const TESTS: &[Test] = &[
    ("the_eal_starts_once", the_eal_starts_once),
    ("the_eal_describes_itself", the_eal_describes_itself),
    ("lcores_are_listed", lcores_are_listed),
    ("a_scope_joins_its_lcores", a_scope_joins_its_lcores),
    ("a_scope_joins_when_its_body_panics", a_scope_joins_when_its_body_panics),
    ("an_lcore_is_free_again_after_a_join", an_lcore_is_free_again_after_a_join),
    ("launch_errors_name_the_lcore", launch_errors_name_the_lcore),
    ("lcores_share_a_pool", lcores_share_a_pool),
    (
        "a_pool_dropped_under_a_running_lcore_is_freed_later",
        a_pool_dropped_under_a_running_lcore_is_freed_later,
    ),
    ("the_clock_agrees_with_the_system", the_clock_agrees_with_the_system),
    ("the_clock_is_monotonic_across_lcores", the_clock_is_monotonic_across_lcores),
    ("telemetry_answers_on_the_socket", telemetry_answers_on_the_socket),
    ("telemetry_cuts_what_dpdk_cannot_carry", telemetry_cuts_what_dpdk_cannot_carry),
    ("telemetry_commands_can_be_withdrawn", telemetry_commands_can_be_withdrawn),
    ("telemetry_errors_name_the_command", telemetry_errors_name_the_command),
];

fn main() -> ExitCode {
    support::run(TESTS)
}

fn the_eal_starts_once(_cx: &Context<'_>) {
    let again = Eal::init(["--no-huge"]).unwrap_err();
    assert!(matches!(again, EalError::AlreadyStarted), "{again}");
}

fn the_eal_describes_itself(cx: &Context<'_>) {
    let eal = cx.eal;
    assert!(Eal::version().starts_with("DPDK "), "{}", Eal::version());
    assert!(Eal::version().contains(dpdk_bind::DPDK_BUILT_AGAINST), "{}", Eal::version());
    assert_eq!(eal.iova_mode(), IovaMode::Virtual);
    assert!(eal.file_prefix().starts_with("dpdk_bind_test_"), "{}", eal.file_prefix());
    assert!(eal.runtime_dir().is_dir());
    assert!(eal.start_problems().lines().is_empty(), "{}", eal.start_problems());
    let pool = cx.buffers(1023);
    let heaps = eal.heaps();
    assert!(heaps.iter().any(|h| h.total > 1023 * 2176 && h.free >= h.largest_free), "{heaps:?}");
    let used = |heaps: &[dpdk_bind::eal::HeapStats]| heaps.iter().map(|h| h.total - h.free).sum::<usize>();
    assert!(used(&heaps) > pool.capacity() * pool.data_room());
    let pages = Hugepages::list();
    assert!(pages.is_sorted_by_key(|h| h.page_size) && pages.iter().all(|h| h.free <= h.total), "{pages:?}");
}

fn lcores_are_listed(cx: &Context<'_>) {
    let ids: Vec<u32> = cx.eal.worker_lcores().iter().map(|l| l.id).collect();
    assert_eq!((cx.eal.main_lcore().id, ids), (0, vec![1, 2]));
    assert_eq!(Eal::current_lcore(), Some(0));
    std::thread::scope(|s| s.spawn(|| assert_eq!(Eal::current_lcore(), None)).join().unwrap());
}

fn a_scope_joins_its_lcores(cx: &Context<'_>) {
    let mut left = 0;
    let counted = AtomicUsize::new(0);
    let workers = cx.eal.worker_lcores();
    let sum = cx.eal.scope(|s| {
        let handles: Vec<_> = workers
            .iter()
            .map(|&w| {
                s.launch(w, || (counted.fetch_add(1, Ordering::Relaxed), Eal::current_lcore()).1).unwrap()
            })
            .collect();
        assert_eq!(handles.iter().map(|h| h.lcore()).collect::<Vec<_>>(), [1, 2]);
        handles.into_iter().filter_map(|h| h.join()).sum::<u32>()
    });
    assert_eq!((sum, counted.into_inner()), (3, 2));
    // A handle that is dropped leaves the waiting to the scope; the borrow shows that it does wait.
    cx.eal.scope(|s| {
        let _ = s.launch(workers[0], || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            left += 1;
        });
    });
    assert_eq!(left, 1);
}

fn a_scope_joins_when_its_body_panics(cx: &Context<'_>) {
    let ran = AtomicUsize::new(0);
    let worker = cx.eal.worker_lcores()[0];
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cx.eal.scope(|s| {
            let slow = || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                ran.fetch_add(1, Ordering::SeqCst);
            };
            s.launch(worker, slow).map(drop).unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        })
    }));
    assert!(caught.is_err());
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

fn an_lcore_is_free_again_after_a_join(cx: &Context<'_>) {
    let worker = cx.eal.worker_lcores()[1];
    cx.eal.scope(|s| {
        for i in 0..50 {
            let handle = s.launch(worker, move || i * 2).unwrap();
            assert_eq!(handle.join(), i * 2);
        }
    });
}

fn launch_errors_name_the_lcore(cx: &Context<'_>) {
    let worker = cx.eal.worker_lcores()[0];
    let gate = Barrier::new(2);
    cx.eal.scope(|s| {
        let handle = s.launch(worker, || gate.wait()).unwrap();
        let busy = s.launch(worker, || ()).map(drop).unwrap_err();
        assert!(matches!(busy, LcoreError::Busy(1)), "{busy}");
        assert!(!handle.is_finished());
        gate.wait();
        handle.join();
        for id in [0, 3, 9999] {
            let wrong = s.launch(Lcore { id, ..worker }, || ()).map(drop).unwrap_err();
            assert!(matches!(wrong, LcoreError::NotAWorker(n) if n == id), "{wrong}");
        }
    });
}

fn lcores_share_a_pool(cx: &Context<'_>) {
    let pool = cx.buffers(511);
    let workers = cx.eal.worker_lcores();
    cx.eal.scope(|s| {
        let churn = |seed: u8| {
            let pool = pool.clone();
            move || {
                let mut held: Vec<Mbuf> = Vec::new();
                for i in 0..5_000u32 {
                    held.extend(pool.copy_from(&[seed; 40]));
                    if i % 7 == 0 {
                        held.drain(..held.len() / 2).for_each(|m| assert_eq!(m.data(), [seed; 40]));
                    }
                    held.truncate(100);
                }
                held
            }
        };
        let handles: Vec<_> = workers.iter().map(|&w| s.launch(w, churn(w.id as u8)).unwrap()).collect();
        let mine = churn(0)();
        // Buffers of one core are freed on another.
        let theirs: Vec<Mbuf> = handles.into_iter().flat_map(|h| h.join()).collect();
        assert!(theirs.iter().all(|m| m.data() == [1; 40] || m.data() == [2; 40]));
        assert_eq!(pool.in_use(), mine.len() + theirs.len());
    });
}

fn a_pool_dropped_under_a_running_lcore_is_freed_later(cx: &Context<'_>) {
    let config = dpdk_bind::PoolConfig { count: 63, cache: 16, ..Default::default() };
    let pool = dpdk_bind::Mempool::create(cx.eal, "handed_over", &config).unwrap();
    let gate = Barrier::new(2);
    let mbuf = pool.alloc().unwrap();
    cx.eal.scope(|s| {
        s.launch(cx.eal.worker_lcores()[0], || {
            drop(mbuf);
            gate.wait();
        })
        .map(drop)
        .unwrap();
        drop(pool);
        assert_eq!(cx.eal.pools_waiting(), 1, "a core that runs may be inside its cache");
        gate.wait();
    });
    assert_eq!(cx.eal.pools_waiting(), 0);
}

fn the_clock_agrees_with_the_system(cx: &Context<'_>) {
    assert!(tsc_hz(cx.eal) > 1_000_000);
    let clock = Clock::new(cx.eal);
    let (system, start) = (std::time::Instant::now(), clock.now_ns());
    std::thread::sleep(std::time::Duration::from_millis(200));
    // Both ends are read in the same order, so a delay between two readings only widens the outer interval.
    let inner = clock.now_ns() - start;
    let outer = system.elapsed().as_nanos() as u64;
    assert!(inner <= outer + outer / 100, "{inner} ns by the counter in {outer} ns");
    assert!(inner >= 198_000_000, "{inner}");
}

fn the_clock_is_monotonic_across_lcores(cx: &Context<'_>) {
    let clock = Clock::new(cx.eal);
    let check = move || {
        let mut last = clock.now_ns();
        for _ in 0..100_000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
        (last, rdtsc())
    };
    cx.eal.scope(|s| {
        for worker in cx.eal.worker_lcores() {
            let before = clock.now_ns();
            let (there, tsc) = s.launch(worker, check).unwrap().join();
            let after = clock.now_ns();
            assert!(before <= there && there <= clock.at(tsc) && clock.at(tsc) <= after);
        }
    });
}

/// Asks DPDK's telemetry socket, as `dpdk-telemetry.py` does: a socket of type `SOCK_SEQPACKET` that greets first.
fn ask(cx: &Context<'_>, question: &str) -> String {
    let socket = support::sockets::SeqPacket::connect(&telemetry_socket(cx)).unwrap();
    let greeting = socket.receive();
    assert!(greeting.contains("\"version\""), "{greeting}");
    socket.send(question);
    socket.receive()
}

/// `dpdk_telemetry.v2`, with a number behind it where several processes share the directory.
fn telemetry_socket(cx: &Context<'_>) -> PathBuf {
    let files = std::fs::read_dir(cx.eal.runtime_dir()).unwrap().flatten().map(|e| e.path());
    let is_socket =
        |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("dpdk_telemetry.v2"));
    files.into_iter().find(is_socket).expect("a telemetry socket")
}

fn telemetry_answers_on_the_socket(cx: &Context<'_>) {
    let handler: Handler = Arc::new(|params| {
        Value::from([
            ("params", params.into()),
            ("frames", 18_446_744_073_709_551_615u64.into()),
            ("delta", (-7i64).into()),
            ("far", (-5_000_000_000i64).into()),
            ("a name", Value::from("quote \" and \\")),
            ("workers", Value::Array(vec![1u64.into(), 2u64.into()])),
            ("temperatures", Value::Array(vec![1i64.into(), (-2i64).into()])),
            ("words", Value::Array(vec!["x".into(), 3u64.into()])),
            ("nested", Value::from([("deeper", Value::from([("deepest", 1u64.into())]))])),
            (
                "rows",
                Value::Array(vec![Value::from([("q", 0u64.into())]), Value::from([("q", 1u64.into())])]),
            ),
        ])
    });
    let _workers =
        Telemetry::register(cx.eal, "/isthmus/workers", "Workers. Takes a queue", handler).unwrap();
    let answer = ask(cx, "/isthmus/workers,queue 3");
    for part in [
        r#"{"/isthmus/workers":{"#,
        r#""params":"queue 3""#,
        r#""frames":18446744073709551615"#,
        r#""delta":-7"#,
        r#""far":"-5000000000""#,
        r#""a_name":"quote \" and \\""#,
        r#""workers":[1,2]"#,
        r#""temperatures":[1,-2]"#,
        r#""words":["x","3"]"#,
        r#""nested":{"deeper":{"deepest":1}}"#,
        r#""rows":{"0":{"q":0},"1":{"q":1}}"#,
    ] {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
    assert!(ask(cx, "/").contains("/isthmus/workers"));
    assert!(ask(cx, "/help,/isthmus/workers").contains("Takes a queue"));
    let number: Handler = Arc::new(|_| Value::U64(5));
    let _n = Telemetry::register(cx.eal, "/isthmus/number", "", number).unwrap();
    assert_eq!(ask(cx, "/isthmus/number"), r#"{"/isthmus/number":{"value":5}}"#);
    let rows: Handler = Arc::new(|_| {
        Value::Array(vec![Value::from([("q", 0u64.into())]), Value::from([("q", 1u64.into())])])
    });
    let _r = Telemetry::register(cx.eal, "/isthmus/rows", "", rows).unwrap();
    assert_eq!(ask(cx, "/isthmus/rows"), r#"{"/isthmus/rows":{"0":{"q":0},"1":{"q":1}}}"#);
    let text: Handler = Arc::new(|_| "plain".into());
    let _t = Telemetry::register(cx.eal, "/isthmus/text", "", text).unwrap();
    assert_eq!(ask(cx, "/isthmus/text"), r#"{"/isthmus/text":"plain"}"#);
}

fn telemetry_cuts_what_dpdk_cannot_carry(cx: &Context<'_>) {
    let handler: Handler = Arc::new(|which| match which {
        "dict" => Value::Dict((0..300u64).map(|i| (format!("k{i}"), Value::U64(i))).collect()),
        "array" => Value::Array((0..600u64).map(Value::U64).collect()),
        "deep" => (0..40).fold(Value::U64(1), |v, _| Value::from([("x", v)])),
        _ => Value::from([("text", Value::Text("xé".repeat(100)))]),
    });
    let _cut = Telemetry::register(cx.eal, "/isthmus/cut", "", handler).unwrap();
    let dict = ask(cx, "/isthmus/cut,dict");
    assert!(dict.contains(r#""k254":254,"truncated":45}"#), "{dict}");
    let array = ask(cx, "/isthmus/cut,array");
    assert!(array.contains("510]"), "{array}");
    let deep = ask(cx, "/isthmus/cut,deep");
    assert!(deep.contains(r#"{"x":{"x":"#), "{deep}");
    let text = ask(cx, "/isthmus/cut");
    assert!(text.contains(&format!(r#""text":"{}""#, "x?".repeat(63) + "x")), "{text}");
}

fn telemetry_commands_can_be_withdrawn(cx: &Context<'_>) {
    let alive = Arc::new(());
    let watched = Arc::clone(&alive);
    let handler: Handler = Arc::new(move |_| {
        let _ = &watched;
        Value::U64(1)
    });
    let command = Telemetry::register(cx.eal, "/isthmus/gone", "", handler).unwrap();
    assert_eq!(ask(cx, "/isthmus/gone"), r#"{"/isthmus/gone":{"value":1}}"#);
    drop(command);
    assert_eq!(Arc::strong_count(&alive), 1, "the handler is gone");
    assert_eq!(ask(cx, "/isthmus/gone"), r#"{"/isthmus/gone":null}"#);
    let _again = Telemetry::register(cx.eal, "/isthmus/gone", "", Arc::new(|_| Value::U64(2))).unwrap();
    assert_eq!(ask(cx, "/isthmus/gone"), r#"{"/isthmus/gone":{"value":2}}"#);
}

fn telemetry_errors_name_the_command(cx: &Context<'_>) {
    let handler = || -> Handler { Arc::new(|_| Value::U64(0)) };
    let register = |name: &str, help: &str| Telemetry::register(cx.eal, name, help, handler());
    for bad in ["", "/", "no_slash", "/with space", "/null\0", &format!("/{}", "x".repeat(55))] {
        assert!(matches!(register(bad, ""), Err(TelemetryError::Command(_))), "{bad}");
    }
    assert!(matches!(register("/isthmus/help", &"x".repeat(64)), Err(TelemetryError::Help(_))));
    let _first = register("/isthmus/taken", "").unwrap();
    assert!(matches!(register("/isthmus/taken", ""), Err(TelemetryError::Taken(_))));
    let names: Vec<String> = (0..COMMANDS_MAX).map(|i| format!("/isthmus/fill_{i}")).collect();
    let filled: Vec<Result<Telemetry, TelemetryError>> = names.iter().map(|n| register(n, "")).collect();
    let kinds: BTreeSet<bool> = filled.iter().map(Result::is_ok).collect();
    assert_eq!(kinds, BTreeSet::from([false, true]), "some fit, the rest is refused");
    let full = filled.into_iter().find_map(Result::err).unwrap();
    assert!(matches!(full, TelemetryError::Full(_)) && full.to_string().contains("/isthmus/fill_"), "{full}");
}
