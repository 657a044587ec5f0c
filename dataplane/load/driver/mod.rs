//! Clients over sockets of the kernel, so that any server is measured by the same code.
//!
//! | file | what it does |
//! |---|---|
//! | `udp`, `tcp` | one thread's flows |
//! | `probe` | asks before the load whether anybody is there |
//! | `mmsg` | many datagrams in one system call |
//! | `wait` | time, and sleeping until there is work |
//! | `cpu` | what the load and the server cost |
//! | `watch` | notices when the measurement begins and ends |

mod cpu;
mod mmsg;
mod probe;
mod tcp;
mod udp;
mod wait;
mod watch;

use super::caller::Caller;
use super::datagram::OUTSTANDING_MAX;
use super::fault::Quote;
use super::meter::Meter;
use super::refusal::Refusal;
use super::settings::LoadSettings;
use rdma_engine::types::Time;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use wait::{Clock, Sleeper};
use watch::Watch;

pub use cpu::ProcessCpu;

/// Where a server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Datagrams with memcached's frame header.
    Udp(SocketAddr),
    /// Streams.
    Tcp(SocketAddr),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Udp(address) => write!(f, "udp://{address}"),
            Target::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// A load, and how it is driven.
#[derive(Clone, Debug)]
pub struct DriverSettings {
    /// What to ask for, all threads together.
    pub load: LoadSettings,
    /// Whom to ask.
    pub target: Target,
    /// Sockets, all threads together.
    pub flows: u16,
    /// Requests under way on each flow.
    pub depth: u32,
    /// Threads.
    pub threads: u16,
    /// Never sleep.
    pub spins: bool,
    /// The server's process, to measure what it costs.
    pub pid: Option<u32>,
}

/// Why a load could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// More threads than flows or keys, or none.
    #[error(
        "{threads} threads for {flows} flows and {keys} keys; each needs one of both, so ask for fewer threads or more flows"
    )]
    Threads {
        /// Threads asked for.
        threads: u16,
        /// Flows asked for.
        flows: u16,
        /// Keys asked for.
        keys: u32,
    },
    /// Too many requests under way, or none.
    #[error(
        "{flows} flows with {depth} requests under way each; together 1 to {OUTSTANDING_MAX} are possible"
    )]
    Depth {
        /// Flows asked for.
        flows: u16,
        /// Depth asked for.
        depth: u32,
    },
    /// A datagram cannot hold a value that long.
    #[error(
        "values of up to {0} bytes do not fit a UDP datagram; ask over tcp://, or for values below 64 KiB"
    )]
    TooLong(u32),
    /// Nobody listens.
    #[error("{target} refuses the connection: nothing listens there; check {advice}", target = .0, advice = advice(.0))]
    Refused(Target),
    /// Nobody answers.
    #[error("no answer from {target}; check address, port and firewall, and {advice}", target = .0, advice = advice(.0))]
    Silent(Target),
    /// Somebody answers something else.
    #[error("{target} does not speak memcached's protocol: it answers `version` with {said}; check the port")]
    NotMemcached {
        /// Whom we asked.
        target: Target,
        /// What was said.
        said: Quote,
    },
    /// It refuses all that is to be stored first.
    #[error("{target}: {refusal}")]
    Refuses {
        /// Whom we asked.
        target: Target,
        /// How often, and how.
        refusal: Refusal,
    },
    /// A connection failed.
    #[error("{target} failed; check that the server still runs")]
    Connection {
        /// Whom we asked.
        target: Target,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system refused a socket.
    #[error("a socket cannot be had; check `ulimit -n` and ask for fewer flows")]
    Socket(#[source] std::io::Error),
    /// There is no such process.
    #[error(
        "the CPU time of process {pid} cannot be read; give the server's process id, as in --pid $(pidof memcached)"
    )]
    Process {
        /// As it was given.
        pid: u32,
        /// What the system says.
        source: std::io::Error,
    },
}

fn advice(target: &Target) -> String {
    match target {
        Target::Udp(a) => {
            format!("that memcached takes datagrams, which it does not by default: memcached -U {}", a.port())
        }
        Target::Tcp(a) => format!(
            "that memcached runs on that port: memcached -p {}; a gateway of Isthmus speaks UDP only so far: udp://{a}",
            a.port()
        ),
    }
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Driven {
    /// Counts and latencies of all threads.
    pub meter: Meter,
    /// What the server calls itself.
    pub version: String,
    /// CPU seconds of each thread in the measurement.
    pub thread_cpu_s: Vec<f64>,
    /// CPU time of the server's process in the measurement.
    pub server_cpu: Option<ProcessCpu>,
    /// Ticks a second of the time stamp counter.
    pub tsc_hz: Option<f64>,
}

/// What a run is doing, for whoever watches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Writes every key once.
    Preload,
    /// Sends requests that are not measured.
    WarmUp,
    /// Measures.
    Measure,
}

/// What threads of a run share.
struct Shared<'a> {
    settings: &'a DriverSettings,
    clock: Clock,
    /// Threads whose keys are all written.
    loaded: AtomicU32,
    /// A thread has failed, or somebody wants it to end.
    stop: &'a AtomicBool,
    failed: AtomicBool,
    on_stage: &'a (dyn Fn(Stage) + Sync),
}

/// Drives a load to its end, or until `stop`; `on_stage` hears what it is doing.
///
/// # Errors
///
/// When the server does not answer or stores nothing, or a connection fails in the middle.
pub fn drive(
    settings: &DriverSettings,
    stop: &AtomicBool,
    on_stage: &(dyn Fn(Stage) + Sync),
) -> Result<Driven, DriverError> {
    check(settings)?;
    let version = probe::version(&settings.target)?;
    let shared = Shared {
        settings,
        clock: Clock::new(),
        loaded: AtomicU32::new(0),
        stop,
        failed: AtomicBool::new(false),
        on_stage,
    };
    let results = std::thread::scope(|scope| {
        let spawn = |index| {
            let shared = &shared;
            let body = move || {
                let result = thread(shared, index);
                shared.failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            };
            std::thread::Builder::new().name(format!("load-{index}")).spawn_scoped(scope, body)
        };
        let threads: Vec<_> = (0..settings.threads).map(spawn).collect();
        let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => thread.join().expect("a thread that panics ends the process"),
            Err(error) => Err(DriverError::Socket(error)),
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    let mut driven =
        Driven { meter: Meter::default(), version, thread_cpu_s: vec![], server_cpu: None, tsc_hz: None };
    for (meter, watch) in results {
        driven.meter.merge(&meter);
        driven.thread_cpu_s.push(watch.cpu_s);
        driven.server_cpu = driven.server_cpu.or(watch.server);
        driven.tsc_hz = driven.tsc_hz.or(watch.tsc_hz);
    }
    Ok(driven)
}

fn check(settings: &DriverSettings) -> Result<(), DriverError> {
    let DriverSettings { load, target, flows, depth, threads, pid, .. } = settings;
    if *threads == 0 || threads > flows || u32::from(*threads) > load.keys {
        return Err(DriverError::Threads { threads: *threads, flows: *flows, keys: load.keys });
    }
    if !(1..=OUTSTANDING_MAX as u64).contains(&(u64::from(*flows) * u64::from(*depth))) {
        return Err(DriverError::Depth { flows: *flows, depth: *depth });
    }
    if matches!(target, Target::Udp(_)) && load.request_bytes_max() > 65_507 {
        return Err(DriverError::TooLong(load.sizes.longest()));
    }
    if let Some(pid) = *pid {
        ProcessCpu::of(pid).map_err(|source| DriverError::Process { pid, source })?;
    }
    Ok(())
}

/// One thread's flows.
trait Flows {
    /// Takes what has arrived and sends what is due; true if there was anything.
    fn turn(&mut self, clock: Clock) -> Result<bool, DriverError>;

    /// When it has something to do, if nothing arrives before.
    fn next_timer(&self, now: Time) -> Time;

    fn caller(&mut self) -> &mut Caller;
}

fn thread(shared: &Shared<'_>, index: u16) -> Result<(Meter, Watch), DriverError> {
    let settings = shared.settings;
    let threads = settings.threads;
    let caller = Caller::new(settings.load.client(u32::from(index), u32::from(threads)));
    let flows = settings.flows / threads + u16::from(index < settings.flows % threads);
    let sleeper = Sleeper::new(settings.spins).map_err(DriverError::Socket)?;
    match settings.target {
        Target::Udp(address) => {
            let flows =
                udp::UdpFlows::new(caller, &settings.target, address, flows, settings.depth, &sleeper)?;
            to_end(shared, index, flows, sleeper)
        }
        Target::Tcp(address) => {
            let flows =
                tcp::TcpFlows::new(caller, &settings.target, address, flows, settings.depth, &sleeper)?;
            to_end(shared, index, flows, sleeper)
        }
    }
}

fn to_end(
    shared: &Shared<'_>,
    index: u16,
    mut flows: impl Flows,
    mut sleeper: Sleeper,
) -> Result<(Meter, Watch), DriverError> {
    let mut watch = Watch::new(index == 0, shared.settings.pid);
    loop {
        let any = flows.turn(shared.clock)?;
        let now = shared.clock.now();
        let caller = flows.caller();
        if shared.stop.load(Ordering::Relaxed) || shared.failed.load(Ordering::Relaxed) {
            caller.stop(now);
        }
        if let Some(stage) = watch.see(caller, shared, now)
            && index == 0
        {
            (shared.on_stage)(stage);
        }
        if caller.is_done() {
            if let Some(refusal) = caller.refusal().cloned() {
                return Err(DriverError::Refuses { target: shared.settings.target, refusal });
            }
            return Ok((caller.meter().clone(), watch));
        }
        if !any {
            let until = flows.next_timer(now);
            sleeper.sleep(now, until).map_err(DriverError::Socket)?;
        }
    }
}
