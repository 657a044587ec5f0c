//! What the verbs cost on the first two RDMA devices, which must reach each other: waiting by polling or by event,
//! registration by size, doorbells, inline data, signalling. Prints the tables of docs/verbs-costs.md; `scripts/verbs-costs`
//! runs it in the guest.
#![allow(unreachable_pub)] // modules of a program.

#[cfg(feature = "verbs")]
#[path = "../tests/arena_pool/mod.rs"]
mod arena_pool;

#[cfg(feature = "verbs")]
fn main() {
    measure::all();
}

#[cfg(not(feature = "verbs"))]
fn main() {
    println!("SKIPPED verbs_cost: built without the feature verbs");
}

#[cfg(feature = "verbs")]
mod measure {
    #![allow(unsafe_code)] // reason: borrows a descriptor by its number.

    use crate::arena_pool::{ArenaBuf, ArenaPool};
    use rdma_engine::buf::{NoEgress, Pool};
    use rdma_engine::mem::{Access, Arena, Backing};
    use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
    use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
    use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
    use rdma_engine::verbs::{Qp, Verbs, VerbsDevice, devices};
    use rdma_engine::wr::{Cookie, Op, QpId, RecvWr, SendWr, Status};
    use std::os::fd::BorrowedFd;
    use std::time::{Duration, Instant};

    const BURST: usize = 32;
    const BYTES: usize = 64;

    pub fn all() {
        let found = devices().unwrap_or_default();
        let [a, b, ..] = &found[..] else {
            println!("SKIPPED verbs_cost: needs two RDMA devices that reach each other, as the guest has");
            return;
        };
        machine();
        println!("devices {} and {}, SEND of {BYTES} bytes over RC\n", a.name, b.name);
        yardsticks();
        waiting([&a.name, &b.name]);
        registration(&a.name);
        posting([&a.name, &b.name]);
    }

    /// What it ran on, and how.
    fn machine() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let mut names = cpus
            .lines()
            .filter_map(|l| l.strip_prefix("model name"))
            .map(|l| l.trim_start_matches([' ', '\t', ':']));
        let n = names.clone().count();
        println!("command: {}", std::env::args().collect::<Vec<_>>().join(" "));
        println!("CPU: {n} x {}", names.next().unwrap_or("unknown"));
        println!("kernel: {}", read("/proc/sys/kernel/osrelease").trim());
    }

    /// One end with its worker and a store of buffers, so that the pool is not measured.
    struct End {
        transport: Verbs<ArenaBuf>,
        device: VerbsDevice<ArenaBuf>,
        spare: Vec<ArenaBuf>,
        pool: ArenaPool,
        qp: Option<QpId>,
    }

    impl End {
        fn open(name: &str) -> End {
            let device = VerbsDevice::open(name, 1).expect("the device opens");
            let pool = ArenaPool::new(256, 512);
            device.register_buffers(pool.arena()).expect("registered");
            let cqs = vec![CqSpec { depth: 1024, events: true }];
            let spec = WorkerSpec { cqs, srqs: vec![], max_qps: 4 };
            let transport = device.create_worker(0, &spec).expect("a worker");
            let spare = (0..128).map(|_| pool.alloc().expect("a buffer")).collect();
            End { transport, device, spare, pool, qp: None }
        }

        fn create(&self, caps: QpCaps) -> Qp<ArenaBuf> {
            let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
            let up = BringUp::create(&self.device, 0, &spec).expect("a queue pair");
            up.init(InitAttr { access: Access::LOCAL, qkey: 0 }).expect("INIT").pause()
        }

        fn connect(&mut self, qp: Qp<ArenaBuf>, peer: &VerbsDevice<ArenaBuf>, dest_qpn: Qpn) {
            let rtr = RtrAttr {
                path: AddressVector::to(peer.gid(), self.device.gid_index() as u8),
                dest_qpn,
                rq_psn: Psn::new(0),
                pmtu: Pmtu::B1024,
                max_dest_rd_atomic: 1,
                min_rnr_timer: 1,
            };
            let rts =
                RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
            let up = BringUp::resume(&self.device, qp).rtr(rtr).expect("RTR");
            self.qp = self.transport.attach(up.rts(rts).expect("RTS")).ok();
        }

        fn qp(&self) -> QpId {
            self.qp.expect("connected")
        }

        fn flush(&mut self) {
            self.transport.flush(Time(0), &mut NoEgress);
        }

        /// Buffers with `BYTES` bytes, made before anything is timed.
        fn messages(&self, n: usize) -> Vec<ArenaBuf> {
            (0..n).map(|_| self.pool.with(&[7; BYTES])).collect()
        }

        fn post_recvs(&mut self, n: usize) {
            for _ in 0..n {
                let buf = self.spare.pop().expect("a spare buffer");
                let wr = RecvWr { buf, cookie: Cookie(0) };
                assert!(self.transport.post_recv(self.qp(), wr).is_ok());
            }
            self.flush();
        }

        fn post_send(&mut self, buf: ArenaBuf) {
            assert!(self.transport.post_send(self.qp(), SendWr::new(Op::Send, buf, Cookie(0))).is_ok());
        }

        /// Takes `n` completions, which succeeded, into `out`.
        fn take(&mut self, n: usize, got: &mut Completions<ArenaBuf>) {
            while got.len() < n {
                self.transport.poll(Time(0), got);
            }
            assert!(got.iter().all(|c| c.status == Status::Success));
        }
    }

    /// Two connected ends.
    fn pair(names: [&String; 2], caps: QpCaps) -> (End, End) {
        let (mut a, mut b) = (End::open(names[0]), End::open(names[1]));
        let (qp_a, qp_b) = (a.create(caps), b.create(caps));
        let (num_a, num_b) = (qp_a.qpn(), qp_b.qpn());
        a.connect(qp_a, &b.device, num_b);
        b.connect(qp_b, &a.device, num_a);
        (a, b)
    }

    fn caps(inline: bool, signal_every: u16) -> QpCaps {
        let inline_bytes = if inline { BYTES as u32 } else { 0 };
        QpCaps { send_depth: 128, recv_depth: 128, inline_bytes, signal_every, ..QpCaps::default() }
    }

    /// Median, and the range that leaves out 5 % at each end, in units of `unit_ns` nanoseconds.
    fn spread(samples: &mut [Duration], unit_ns: f64) -> String {
        samples.sort_unstable();
        let at = |share: f64| {
            let index = ((samples.len() - 1) as f64 * share).round() as usize;
            samples[index].as_nanos() as f64 / unit_ns
        };
        let digits = if at(0.5) < 100.0 { 1 } else { 0 };
        format!("{:.digits$} ({:.digits$} to {:.digits$})", at(0.5), at(0.05), at(0.95))
    }

    fn nanos_each(rounds: u32, mut what: impl FnMut()) -> f64 {
        let start = Instant::now();
        (0..rounds).for_each(|_| what());
        start.elapsed().as_nanos() as f64 / f64::from(rounds)
    }

    fn readable(fd: i32) {
        // SAFETY: the transport that owns it lives.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).expect("poll");
    }

    /// What this machine takes for things that have nothing to do with RDMA.
    fn yardsticks() {
        let clock = nanos_each(100_000, || {
            std::hint::black_box(Instant::now());
        });
        let call = nanos_each(100_000, || {
            std::hint::black_box(rustix::process::getppid());
        });
        println!("| yardstick | ns |\n|---|---|");
        println!("| reading the clock | {clock:.0} |\n| a system call that does nothing | {call:.0} |");
        println!("| waking a thread by a descriptor and being woken back | {:.0} |\n", wake_ns());
    }

    fn wake_ns() -> f64 {
        use std::io::{Read, Write};
        use std::os::unix::net::UnixStream;
        let (mut here, mut there) = UnixStream::pair().expect("a socket pair");
        let echo = std::thread::spawn(move || {
            let mut byte = [0];
            while there.read(&mut byte).is_ok_and(|n| n == 1) && there.write_all(&byte).is_ok() {}
        });
        let mut byte = [0];
        let each = nanos_each(2_000, || {
            here.write_all(&byte).expect("written");
            here.read_exact(&mut byte).expect("read");
        });
        drop(here);
        echo.join().expect("the echo ends");
        each
    }

    /// From posting a message to seeing its completion.
    fn waiting(names: [&String; 2]) {
        const ROUNDS: usize = 2_000;
        let (mut a, mut b) = pair(names, caps(false, 1));
        let (mut got, fd) = (Completions::new(), a.transport.event_fd().expect("a channel"));
        println!("| from posting to seeing the completion | us |\n|---|---|");
        for by_event in [false, true] {
            let mut samples = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                b.post_recvs(1);
                let message = a.messages(1).remove(0);
                assert!(!by_event || a.transport.arm());
                let start = Instant::now();
                a.post_send(message);
                a.flush();
                if by_event {
                    readable(fd);
                    a.transport.acknowledge();
                }
                a.take(1, &mut got);
                samples.push(start.elapsed());
                got.clear();
                b.take(1, &mut got);
                b.spare.extend(got.drain(..).map(empty));
            }
            let name = if by_event { "event: arm, sleep, acknowledge, poll" } else { "poll" };
            println!("| {name} | {} |", spread(&mut samples, 1e3));
        }
        let nothing = nanos_each(100_000, || {
            a.transport.poll(Time(0), &mut got);
        });
        println!("\n| call | ns |\n|---|---|\n| poll of an empty queue | {nothing:.0} |");
        let arm = nanos_each(10_000, || assert!(a.transport.arm()));
        println!("| arm, with the poll behind it | {arm:.0} |\n");
    }

    fn empty(c: rdma_engine::wr::Completion<ArenaBuf>) -> ArenaBuf {
        let mut buf = c.buf;
        rdma_engine::buf::Buf::truncate(&mut buf, 0);
        buf
    }

    /// Registering and letting go, by size and kind of memory.
    fn registration(name: &str) {
        let device = VerbsDevice::<ArenaBuf>::open(name, 1).expect("the device opens");
        println!("| size | pages | register, us | for each MiB, us | let go, us |\n|---|---|---|---|---|");
        let sizes = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
        for (backing, pages) in [(Backing::Pages, "4 KiB"), (Backing::HugePages, "2 MiB")] {
            for size in sizes.into_iter().filter(|s| backing == Backing::Pages || *s >= 2 << 20) {
                match Arena::new(size, backing) {
                    Ok(arena) => register(&device, &arena, pages),
                    Err(e) => println!("| {} | {pages} | SKIPPED: {e} | | |", words(size)),
                }
            }
        }
        println!();
    }

    fn words(size: usize) -> String {
        if size < 1 << 20 { format!("{} KiB", size >> 10) } else { format!("{} MiB", size >> 20) }
    }

    fn register(device: &VerbsDevice<ArenaBuf>, arena: &Arena, pages: &str) {
        let (mut taken, mut let_go) = (vec![], vec![]);
        for _ in 0..if arena.len() > 16 << 20 { 7 } else { 50 } {
            let start = Instant::now();
            let region = device.register(arena, Access::REMOTE_READ).expect("registered");
            taken.push(start.elapsed());
            let start = Instant::now();
            drop(region);
            let_go.push(start.elapsed());
        }
        let mib = arena.len() as f64 / f64::from(1 << 20);
        let (reg, each, end) =
            (spread(&mut taken, 1e3), spread(&mut taken, 1e3 * mib), spread(&mut let_go, 1e3));
        println!("| {} | {pages} | {reg} | {each} | {end} |", words(arena.len()));
    }

    /// Bursts of messages: time to post them, and until all are complete.
    fn posting(names: [&String; 2]) {
        println!(
            "| doorbells | data | signalled | posting, ns a message | until complete, ns a message | doorbells a burst |"
        );
        println!("|---|---|---|---|---|---|");
        for per_burst in [true, false] {
            for inline in [true, false] {
                for signal_every in [1, BURST as u16] {
                    burst(names, per_burst, inline, signal_every);
                }
            }
        }
    }

    fn burst(names: [&String; 2], per_burst: bool, inline: bool, signal_every: u16) {
        const ROUNDS: usize = 300;
        let (mut a, mut b) = pair(names, caps(inline, signal_every));
        let mut got = Completions::new();
        let (mut posting, mut complete) = (vec![], vec![]);
        let before = a.transport.counters().doorbells;
        for _ in 0..ROUNDS {
            b.post_recvs(BURST);
            let messages = a.messages(BURST);
            let start = Instant::now();
            for message in messages {
                a.post_send(message);
                if !per_burst {
                    a.flush();
                }
            }
            a.flush();
            posting.push(start.elapsed());
            a.take(BURST, &mut got);
            complete.push(start.elapsed());
            got.clear();
            b.take(BURST, &mut got);
            b.spare.extend(got.drain(..).map(empty));
        }
        let doorbells = (a.transport.counters().doorbells - before) / ROUNDS as u64;
        let each = |samples: &mut Vec<Duration>| spread(samples, BURST as f64);
        println!(
            "| {} | {} | {} | {} | {} | {doorbells} |",
            if per_burst { "one a burst" } else { "one a message" },
            if inline { "inline" } else { "by address" },
            // A doorbell of its own makes every message the last of its batch, which is always signalled.
            match (signal_every, per_burst) {
                (1, _) => "each",
                (_, true) => "the last of a burst",
                (_, false) => "each (each is a last one)",
            },
            each(&mut posting),
            each(&mut complete),
        );
    }
}
