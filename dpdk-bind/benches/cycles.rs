//! What the building blocks of the packet path cost, in TSC cycles: `cargo bench -p dpdk-bind [-- NAME]`.
//!
//! Each line is the median over many rounds of one round's cycles divided by its operations, beside the fastest
//! round; rounds that an interrupt or another process stretched do not count in either. Uses hugepages where
//! there are some. The last lines are baselines: what the loop around them costs by itself.

use std::hint::black_box;

use dpdk_bind::eal::Hugepages;
use dpdk_bind::mbuf::Chain;
use dpdk_bind::tsc::{rdtsc, tsc_hz};
use dpdk_bind::{
    Burst, Eal, Mbuf, Mempool, PoolConfig, Port, PortConfig, PortId, RxQueue, TxQueue, Vdev, link,
};

const ROUNDS: usize = 20_000;
const BURST: usize = 32;

fn main() {
    let eal = Eal::init(eal_args()).unwrap_or_else(|e| panic!("{e}"));
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let bench = Bench { filter, ns_per_cycle: 1e9 / tsc_hz(&eal) as f64 };
    println!(
        "{} on {} GHz TSC, hugepages: {}",
        Eal::version(),
        tsc_hz(&eal) as f64 / 1e9,
        eal.has_hugepages()
    );
    println!("{:<44} {:>9} {:>9} {:>9}", "cycles per mbuf (or as stated)", "median", "fastest", "median ns");
    let config = PoolConfig { count: 4095, cache: 256, ..PoolConfig::default() };
    let pool = Mempool::create(&eal, "buffers", &config).unwrap_or_else(|e| panic!("{e}"));
    let headers = PoolConfig { data_room: 0, ..config };
    let headers = Mempool::create(&eal, "headers", &headers).unwrap_or_else(|e| panic!("{e}"));
    pools(&bench, &pool);
    sharing(&bench, &pool, &headers);
    null_port(&bench, &eal, &pool);
    ring_port(&bench, &eal, &pool);
    baselines(&bench);
    assert!(pool.is_full() && headers.is_full());
}

fn eal_args() -> Vec<String> {
    let memory = if Hugepages::free_bytes() > 128 << 20 { "--in-memory" } else { "--no-huge" };
    let prefix = format!("--file-prefix=dpdk_bind_bench_{}", std::process::id());
    let words = [memory, "-m", "64", "--no-pci", "--iova-mode=va", "-l", "0", &prefix];
    words.iter().map(ToString::to_string).collect()
}

struct Bench {
    filter: String,
    ns_per_cycle: f64,
}

impl Bench {
    /// Times rounds of `operations` operations each.
    fn run(&self, name: &str, operations: usize, mut round: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        for _ in 0..ROUNDS / 10 {
            round();
        }
        let mut cycles: Vec<u64> = (0..ROUNDS)
            .map(|_| {
                let start = rdtsc();
                round();
                rdtsc() - start
            })
            .collect();
        cycles.sort_unstable();
        let each = |c: u64| c as f64 / operations as f64;
        let (median, fastest) = (each(cycles[ROUNDS / 2]), each(cycles[0]));
        println!("{name:<44} {median:>9.1} {fastest:>9.1} {:>9.2}", median * self.ns_per_cycle);
    }
}

fn pools(bench: &Bench, pool: &Mempool) {
    bench.run("alloc + free, one by one", BURST, || {
        for _ in 0..BURST {
            drop(black_box(pool.alloc()));
        }
    });
    bench.run("alloc + free, held for a burst, one by one", BURST, || {
        let held: [Option<Mbuf>; BURST] = std::array::from_fn(|_| pool.alloc());
        drop(black_box(held));
    });
    bench.run("alloc_bulk + burst drop", BURST, || {
        let mut burst: Burst<BURST> = Burst::new();
        assert!(pool.alloc_bulk(&mut burst, BURST));
        drop(black_box(burst));
    });
    bench.run("alloc + copy 64 B + free", BURST, || {
        for _ in 0..BURST {
            drop(black_box(pool.copy_from(&[7; 64])));
        }
    });
    bench.run("chain of 4: build + free (per chain)", BURST, || {
        for _ in 0..BURST {
            let mut chain = Chain::new(pool.alloc().expect("a buffer"));
            for _ in 0..3 {
                assert!(chain.push(pool.alloc().expect("a buffer")).is_ok());
            }
            drop(black_box(chain.finish()));
        }
    });
}

fn sharing(bench: &Bench, pool: &Mempool, headers: &Mempool) {
    let source = pool.copy_from(&[1; 1024]).expect("a buffer");
    bench.run("slice (indirect) + free", BURST, || {
        for i in 0..BURST {
            drop(black_box(source.slice(headers, i * 8, 64)));
        }
    });
    bench.run("slice a burst, drop the burst", BURST, || {
        let mut burst: Burst<BURST> = Burst::new();
        for i in 0..BURST {
            burst.extend_with(source.slice(headers, i * 8, 64));
        }
        drop(black_box(burst));
    });
    bench.run("clone_deep of 64 B + free", BURST, || {
        let small = source.slice(headers, 0, 64).expect("a header");
        for _ in 0..BURST {
            drop(black_box(small.clone_deep(pool)));
        }
    });
    let mut unique = pool.copy_from(&[1; 64]).expect("a buffer");
    bench.run("try_unique + prepend 14 + adj 14", BURST, || {
        for _ in 0..BURST {
            black_box(unique.try_unique());
            black_box(unique.prepend(14));
            black_box(unique.adj(14));
        }
    });
}

fn open(eal: &Eal, id: &PortId, pool: &Mempool) -> (Port, RxQueue, TxQueue) {
    let config = PortConfig { pools: vec![pool.clone()], ..PortConfig::default() };
    let opened = Port::configure(eal, id, &config).and_then(|(mut port, mut rx, mut tx)| {
        port.start()?;
        Ok((port, rx.remove(0), tx.remove(0)))
    });
    opened.unwrap_or_else(|e| panic!("{e}"))
}

fn null_port(bench: &Bench, eal: &Eal, pool: &Mempool) {
    let id = Vdev::create(eal, "net_null0", "").unwrap_or_else(|e| panic!("{e}"));
    let (_port, mut rx, mut tx) = open(eal, &id, pool);
    let mut burst: Burst<BURST> = Burst::new();
    bench.run("null: rx burst + tx burst", BURST, || {
        rx.rx(&mut burst);
        tx.tx(&mut burst);
    });
    bench.run("null: rx burst + burst drop", BURST, || {
        rx.rx(&mut burst);
        burst.clear();
    });
    let mut forward: Burst<BURST> = Burst::new();
    bench.run("null: rx, read a byte, move one by one, tx", BURST, || {
        rx.rx(&mut burst);
        for mbuf in burst.drain() {
            black_box(mbuf.data().first());
            assert!(forward.push(mbuf).is_ok());
        }
        tx.tx(&mut forward);
    });
}

fn ring_port(bench: &Bench, eal: &Eal, pool: &Mempool) {
    let (a, b) = link::cross(eal, "bench", 1, 255).unwrap_or_else(|e| panic!("{e}"));
    let (_a, mut a_rx, mut a_tx) = open(eal, &a, pool);
    let (_b, mut b_rx, mut b_tx) = open(eal, &b, pool);
    let mut burst: Burst<BURST> = Burst::new();
    assert!(pool.alloc_bulk(&mut burst, BURST));
    bench.run("ring: tx burst + rx burst", BURST, || {
        a_tx.tx(&mut burst);
        b_rx.rx(&mut burst);
    });
    bench.run("ring: there and back (4 calls)", BURST, || {
        a_tx.tx(&mut burst);
        b_rx.rx(&mut burst);
        b_tx.tx(&mut burst);
        a_rx.rx(&mut burst);
    });
    burst.clear();
    bench.run("ring: rx from an empty ring (per call)", 1, || {
        black_box(b_rx.rx(&mut burst));
    });
    burst.clear();
}

fn baselines(bench: &Bench) {
    bench.run("nothing (per round: rdtsc twice)", 1, || {});
    bench.run("rdtsc", BURST, || {
        for _ in 0..BURST {
            black_box(rdtsc());
        }
    });
}
