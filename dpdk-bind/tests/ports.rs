//! Ports, queues, virtual devices and in-memory links.

mod support;

use std::process::ExitCode;

use dpdk_bind::mbuf::Chain;
use dpdk_bind::port::{Demand, HashTypes};
use dpdk_bind::{Burst, Mbuf, Mempool, Port, PortConfig, PortError, PortId, RxQueue, TxQueue, Vdev, link};
use support::{Context, Test};

const TESTS: &[Test] = &[
    ("a_null_port_moves_frames_on_every_queue", a_null_port_moves_frames_on_every_queue),
    ("a_null_port_fills_bursts_of_any_room", a_null_port_fills_bursts_of_any_room),
    ("nothing_moves_before_start_or_after_stop", nothing_moves_before_start_or_after_stop),
    ("a_port_stops_only_without_queues_and_starts_again", a_port_stops_only_without_queues_and_starts_again),
    ("a_port_is_configured_once_at_a_time", a_port_is_configured_once_at_a_time),
    ("ports_are_listed_by_name_and_number", ports_are_listed_by_name_and_number),
    ("a_virtual_device_goes_with_its_last_id", a_virtual_device_goes_with_its_last_id),
    ("device_errors_say_what_dpdk_said", device_errors_say_what_dpdk_said),
    ("what_the_driver_lacks_is_noted_or_refused", what_the_driver_lacks_is_noted_or_refused),
    ("limits_are_refused_by_name", limits_are_refused_by_name),
    ("mtu_is_set_where_the_driver_can", mtu_is_set_where_the_driver_can),
    ("descriptors_are_adjusted", descriptors_are_adjusted),
    ("the_redirection_table_can_be_rewritten", the_redirection_table_can_be_rewritten),
    ("statistics_count_and_reset", statistics_count_and_reset),
    ("link_and_modes_can_be_read", link_and_modes_can_be_read),
    ("a_link_carries_frames_both_ways_on_every_queue", a_link_carries_frames_both_ways_on_every_queue),
    ("what_does_not_fit_stays_with_the_sender", what_does_not_fit_stays_with_the_sender),
    ("a_link_passes_chains_and_slices_by_pointer", a_link_passes_chains_and_slices_by_pointer),
    ("frames_under_way_go_home", frames_under_way_go_home),
    ("link_errors_name_the_limit", link_errors_name_the_limit),
    ("queues_work_on_other_threads", queues_work_on_other_threads),
    ("pools_per_queue", pools_per_queue),
    ("a_tap_has_interrupts", a_tap_has_interrupts),
    ("net_ring_is_loaded_once", net_ring_is_loaded_once),
];

fn main() -> ExitCode {
    support::run(TESTS)
}

type Opened = (Port, Vec<RxQueue>, Vec<TxQueue>);

fn queues(pool: &Mempool, n: u16) -> PortConfig {
    PortConfig {
        rx_queues: n,
        tx_queues: n,
        rx_desc: 64,
        tx_desc: 64,
        pools: vec![pool.clone()],
        ..PortConfig::default()
    }
}

fn open(cx: &Context<'_>, id: &PortId, config: &PortConfig) -> Opened {
    let (mut port, rx, tx) = Port::configure(cx.eal, id, config).unwrap();
    port.start().unwrap();
    (port, rx, tx)
}

fn null(cx: &Context<'_>, args: &str) -> PortId {
    Vdev::create(cx.eal, "net_null7", args).unwrap()
}

/// Both ends of a link, open.
fn linked(cx: &Context<'_>, pool: &Mempool, n: u16, ring_size: u32) -> [Opened; 2] {
    let (a, b) = link::cross(cx.eal, "lk", n, ring_size).unwrap();
    [a, b].map(|id| open(cx, &id, &queues(pool, n)))
}

fn frame(pool: &Mempool, tag: u32) -> Mbuf {
    pool.copy_from(&tag.to_be_bytes().repeat(16)).unwrap()
}

fn tag(mbuf: &Mbuf) -> u32 {
    let (words, rest) = mbuf.data().as_chunks::<4>();
    assert!(
        rest.is_empty() && words.len() == 16 && words.iter().all(|w| w == &words[0]),
        "{:?}",
        mbuf.data()
    );
    u32::from_be_bytes(words[0])
}

fn tags<const N: usize>(burst: &Burst<N>) -> Vec<u32> {
    burst.iter().map(tag).collect()
}

fn a_null_port_moves_frames_on_every_queue(cx: &Context<'_>) {
    let pool = cx.buffers(1023);
    let (port, mut rx, mut tx) = open(cx, &null(cx, "size=200"), &queues(&pool, 4));
    assert_eq!((rx.len(), tx.len()), (4, 4));
    let mut burst: Burst<32> = Burst::new();
    for (rx, tx) in rx.iter_mut().zip(&mut tx) {
        assert_eq!((rx.rx(&mut burst), burst.len()), (32, 32));
        assert!(burst.iter().all(|m| m.len() == 200 && m.segment_count() == 1 && m.is_unique()));
        assert_eq!(burst.as_slice()[0].port(), port.index());
        assert_eq!((tx.tx(&mut burst), burst.len()), (32, 0));
    }
    assert_eq!(rx.iter().map(RxQueue::index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(port.stats().rx_packets, 4 * 32);
}

fn a_null_port_fills_bursts_of_any_room(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let (_port, mut rx, mut tx) = open(cx, &null(cx, ""), &queues(&pool, 1));
    let mut burst: Burst<8> = Burst::new();
    burst.push(frame(&pool, 1)).unwrap();
    assert_eq!(rx[0].rx(&mut burst), 7, "behind what is there");
    assert_eq!(tag(&burst.as_slice()[0]), 1);
    assert_eq!(rx[0].rx(&mut burst), 0, "no room");
    assert_eq!((tx[0].prepare(&mut burst), burst.len()), (8, 8));
    assert_eq!((tx[0].tx(&mut burst), tx[0].tx(&mut burst)), (8, 0));
    let hold: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!((hold.len(), rx[0].rx(&mut burst)), (255, 0), "an empty pool receives nothing");
}

fn nothing_moves_before_start_or_after_stop(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let (mut port, mut rx, mut tx) = Port::configure(cx.eal, &null(cx, ""), &queues(&pool, 1)).unwrap();
    let mut burst: Burst<8> = Burst::new();
    assert_eq!((rx[0].rx(&mut burst), burst.len(), port.is_started()), (0, 0, false));
    burst.push(frame(&pool, 1)).unwrap();
    assert_eq!((tx[0].tx(&mut burst), tx[0].prepare(&mut burst), burst.len()), (0, 0, 1));
    port.start().unwrap();
    port.start().unwrap();
    assert_eq!((tx[0].tx(&mut burst), port.is_started()), (1, true));
    drop((rx, tx));
    port.stop().unwrap();
    let (mut rx, _tx) = port.queues().unwrap();
    assert_eq!(rx[0].rx(&mut burst), 0);
}

fn a_port_stops_only_without_queues_and_starts_again(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let (mut port, rx, tx) = open(cx, &null(cx, ""), &queues(&pool, 2));
    drop(tx);
    let refused = port.stop().unwrap_err();
    assert!(matches!(refused, PortError::QueuesAlive { alive: 2, .. }), "{refused}");
    assert!(port.queues().is_err());
    drop(rx);
    port.stop().unwrap();
    port.stop().unwrap();
    let (mut rx, _tx) = port.queues().unwrap();
    port.start().unwrap();
    assert_eq!(rx[1].rx(&mut Burst::<4>::new()), 4);
}

fn a_port_is_configured_once_at_a_time(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let id = null(cx, "");
    let bad = PortConfig { rx_queues: 9999, ..queues(&pool, 1) };
    assert!(Port::configure(cx.eal, &id, &bad).is_err());
    let opened = open(cx, &id, &queues(&pool, 1));
    let again = Port::configure(cx.eal, &id, &queues(&pool, 1)).unwrap_err();
    assert!(matches!(again, PortError::InUse(_)) && again.to_string().contains("net_null7"), "{again}");
    let (port, rx, tx) = opened;
    drop(port);
    drop(tx);
    assert!(Port::by_name(cx.eal, "net_null7").is_ok(), "a queue keeps its port");
    drop(rx);
    assert!(Port::query(&id).is_err(), "closed with its last handle");
}

fn ports_are_listed_by_name_and_number(cx: &Context<'_>) {
    let before = Port::count(cx.eal);
    let id = null(cx, "");
    let info = Port::query(&id).unwrap();
    assert_eq!((info.name.as_str(), info.driver.as_str()), ("net_null7", "net_null"));
    assert_eq!(Port::count(cx.eal), before + 1);
    assert!(Port::list(cx.eal).iter().any(|p| p.name == "net_null7" && p.id == id));
    assert_eq!(Port::by_name(cx.eal, "net_null7").unwrap(), id);
    assert_eq!(Port::by_index(cx.eal, id.index()).unwrap(), id);
    assert!(Port::by_index(cx.eal, 31).is_err());
    let missing = Port::by_name(cx.eal, "net_nothing0").unwrap_err().to_string();
    assert!(missing.contains("net_nothing0"), "{missing}");
}

fn a_virtual_device_goes_with_its_last_id(cx: &Context<'_>) {
    let id = null(cx, "");
    let found = Port::by_name(cx.eal, "net_null7").unwrap();
    drop(id);
    assert!(Port::query(&found).is_ok());
    drop(found);
    assert!(Port::by_name(cx.eal, "net_null7").is_err());
    drop(null(cx, ""));
}

fn device_errors_say_what_dpdk_said(cx: &Context<'_>) {
    let id = null(cx, "");
    let twice = Vdev::create(cx.eal, "net_null7", "").unwrap_err().to_string();
    assert!(twice.contains("exists already"), "{twice}");
    let unknown = Vdev::create(cx.eal, "net_nonsense0", "a=b").unwrap_err().to_string();
    assert!(unknown.contains("net_nonsense0") && unknown.contains("a=b"), "{unknown}");
    let missing = Vdev::create(cx.eal, "net_pcap0", "rx_pcap=/nonexistent/file").unwrap_err().to_string();
    assert!(missing.contains("DPDK said") && missing.contains("/nonexistent/file"), "{missing}");
    assert!(Vdev::create(cx.eal, "net\0null", "").is_err());
    drop(id);
}

fn what_the_driver_lacks_is_noted_or_refused(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let (a, _b) = link::cross(cx.eal, "lk", 1, 64).unwrap();
    type Set = fn(&mut PortConfig, Demand);
    let features: [(&str, Set); 4] = [
        ("RSS", |c, d| c.rss = d),
        ("RX checksum offload", |c, d| c.rx_checksum = d),
        ("TX checksum offload", |c, d| c.tx_checksum = d),
        ("RX interrupts", |c, d| c.rx_interrupt = d),
    ];
    for (name, set) in features {
        let mut config = queues(&pool, 1);
        set(&mut config, Demand::Require);
        // Interrupts show themselves at start only. A port that failed to start is closed, and its device gone.
        if name != "RX interrupts" {
            let refused = Port::configure(cx.eal, &a, &config).map(drop).unwrap_err();
            assert!(matches!(refused, PortError::Unsupported { .. }), "{refused}");
            assert!(
                refused.to_string().contains(name) && refused.to_string().contains("net_ring_lka"),
                "{refused}"
            );
        }
    }
    let mut config = queues(&pool, 1);
    features.iter().for_each(|(_, set)| set(&mut config, true.into()));
    let (port, rx, _tx) = open(cx, &a, &config);
    for (name, _) in features {
        assert_eq!(port.notes().iter().filter(|n| n.contains(name)).count(), 1, "{name}: {:?}", port.notes());
    }
    assert_eq!((port.config().rss, port.config().rx_checksum), (Demand::Off, Demand::Off));
    assert!(rx[0].interrupt().is_none() && port.rss().is_none());
    let (mut other, ..) = Port::configure(
        cx.eal,
        &null(cx, ""),
        &PortConfig { rx_interrupt: Demand::Require, ..queues(&pool, 1) },
    )
    .unwrap();
    let refused = other.start().unwrap_err();
    assert!(refused.to_string().contains("RX interrupts"), "{refused}");
}

fn limits_are_refused_by_name(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let id = null(cx, "");
    let refused =
        |config: PortConfig| Port::configure(cx.eal, &id, &config).map(drop).unwrap_err().to_string();
    let text = refused(queues(&pool, 1025));
    assert!(text.contains("rx_queues = 1025") && text.contains("net_null has 1024 RX queues"), "{text}");
    let text = refused(PortConfig { tx_queues: 2000, ..queues(&pool, 1) });
    assert!(text.contains("tx_queues = 2000") && text.contains("1024 TX queues"), "{text}");
    let text = refused(PortConfig { mtu: 20, ..queues(&pool, 1) });
    assert!(text.contains("mtu = 20") && text.contains("takes 46 to 65535"), "{text}");
    let text = refused(PortConfig { pools: vec![], ..queues(&pool, 2) });
    assert!(text.contains("pools = 0"), "{text}");
    let text = refused(PortConfig { pools: vec![pool.clone(), pool.clone()], ..queues(&pool, 3) });
    assert!(text.contains("one for each of the 3"), "{text}");
    let text = refused(queues(&pool, 0));
    assert!(text.contains("at least one queue"), "{text}");
}

fn mtu_is_set_where_the_driver_can(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let jumbo = PortConfig { mtu: 9000, ..queues(&pool, 1) };
    let (port, ..) = open(cx, &null(cx, ""), &jumbo);
    assert_eq!(port.mtu(), 9000);
    assert!(port.notes().iter().any(|n| n.contains("9018") && n.contains("2048")), "{:?}", port.notes());
    let (a, _b) = link::cross(cx.eal, "lk", 1, 64).unwrap();
    let (port, ..) = open(cx, &a, &jumbo);
    assert!(port.notes().iter().any(|n| n.contains("no MTU") && n.contains("9000")), "{:?}", port.notes());
    assert_eq!(port.mtu(), 9000);
    drop(port);
    let (_a, b) = link::cross(cx.eal, "lk2", 1, 64).unwrap();
    let (port, ..) = open(cx, &b, &queues(&pool, 1));
    assert!(port.notes().is_empty(), "the usual MTU needs no word: {:?}", port.notes());
}

fn descriptors_are_adjusted(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let (port, ..) = open(cx, &null(cx, ""), &PortConfig { rx_desc: 100, tx_desc: 300, ..queues(&pool, 1) });
    assert_eq!((port.config().rx_desc, port.config().tx_desc), (100, 300), "net_null takes any number");
    assert!(port.notes().is_empty());
}

fn the_redirection_table_can_be_rewritten(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let config = PortConfig { rss: Demand::Require, ..queues(&pool, 4) };
    let (mut port, ..) = open(cx, &null(cx, ""), &config);
    let rss = port.rss().unwrap();
    assert!(
        !rss.types.is_empty() && rss.types == HashTypes::WANTED.intersection(port.info().rss),
        "{}",
        rss.types
    );
    let size = usize::from(port.info().reta_size);
    assert!(size > 0 && port.reta().unwrap().len() == size);
    let table: Vec<u16> = (0..size as u16).map(|i| (i * 7 + 1) % 4).collect();
    port.set_reta(&table).unwrap();
    assert_eq!(port.reta().unwrap(), table);
    let short = port.set_reta(&table[1..]).unwrap_err().to_string();
    assert!(short.contains(&format!("the table has {size}")), "{short}");
    let beyond = port.set_reta(&vec![4; size]).unwrap_err().to_string();
    assert!(beyond.contains("no RX queue 4"), "{beyond}");
    let [(mut ring, ..), _b] = linked(cx, &pool, 1, 64);
    assert!(matches!(ring.reta(), Err(PortError::Unsupported { .. })));
    assert!(matches!(ring.set_reta(&[0]), Err(PortError::Unsupported { .. })));
}

fn statistics_count_and_reset(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let [(mut a, _, mut a_tx), (mut b, mut b_rx, _)] = linked(cx, &pool, 2, 64);
    let mut burst: Burst<8> = (0..5).map(|i| frame(&pool, i)).collect();
    assert_eq!(a_tx[1].tx(&mut burst), 5);
    assert_eq!(b_rx[1].rx(&mut burst), 5);
    assert_eq!((a.stats().tx_packets, b.stats().rx_packets), (5, 5));
    let value = |port: &Port, name: &str| {
        let stats = port.xstats();
        stats.iter().find(|x| x.name == name).unwrap_or_else(|| panic!("no {name} in {stats:?}")).value
    };
    assert_eq!((value(&a, "tx_good_packets"), value(&b, "rx_good_packets")), (5, 5));
    assert_eq!((value(&b, "rx_q0_packets"), value(&b, "rx_q1_packets")), (0, 5));
    a.reset_stats().unwrap();
    b.reset_stats().unwrap();
    assert_eq!((a.stats(), b.stats()), Default::default());
    assert_eq!(value(&a, "tx_good_packets"), 0);
}

fn link_and_modes_can_be_read(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let [(mut a, ..), _b] = linked(cx, &pool, 1, 64);
    assert!(a.link().up && a.link().full_duplex, "{:?}", a.link());
    a.set_link(false).unwrap();
    assert!(!a.link().up);
    a.set_link(true).unwrap();
    assert!(a.link().up && a.link().speed_mbps.is_some());
    assert_eq!(a.mac().len(), 6);
    a.promiscuous(true).unwrap();
    assert!(a.is_promiscuous());
    a.promiscuous(false).unwrap();
    assert!(!a.is_promiscuous());
    let id = null(cx, "");
    let (mut null, ..) = open(cx, &id, &PortConfig { promiscuous: Demand::Prefer, ..queues(&pool, 1) });
    let refused = null.set_link(false).unwrap_err().to_string();
    assert!(refused.contains("set the link state") && refused.contains("net_null7"), "{refused}");
}

fn a_link_carries_frames_both_ways_on_every_queue(cx: &Context<'_>) {
    let pool = cx.buffers(1023);
    let [mut a, mut b] = linked(cx, &pool, 3, 128);
    for round in 0..100 {
        for q in 0..3 {
            let there = round * 1000 + q as u32 * 100;
            let mut burst: Burst<32> = (0..20).map(|i| frame(&pool, there + i)).collect();
            assert_eq!(a.2[q].tx(&mut burst), 20);
            let mut back: Burst<32> = (0..7).map(|i| frame(&pool, there + 50 + i)).collect();
            assert_eq!(b.2[q].tx(&mut back), 7);
            let mut got: Burst<32> = Burst::new();
            assert_eq!(b.1[q].rx(&mut got), 20);
            assert_eq!(tags(&got), (there..there + 20).collect::<Vec<_>>());
            got.clear();
            assert_eq!(a.1[q].rx(&mut got), 7);
            assert_eq!(tags(&got), (there + 50..there + 57).collect::<Vec<_>>());
        }
    }
    assert_eq!((a.0.stats().tx_packets, b.0.stats().tx_packets), (100 * 3 * 20, 100 * 3 * 7));
}

fn what_does_not_fit_stays_with_the_sender(cx: &Context<'_>) {
    let pool = cx.buffers(1023);
    let [(_a, _, mut tx), (_b, mut rx, _)] = linked(cx, &pool, 1, 31);
    let mut burst: Burst<32> = (0..20).map(|i| frame(&pool, i)).collect();
    assert_eq!((tx[0].tx(&mut burst), burst.len()), (20, 0));
    burst.extend_with((20..40).map(|i| frame(&pool, i)));
    assert_eq!((tx[0].tx(&mut burst), burst.len()), (11, 9));
    assert_eq!(tags(&burst), (31..40).collect::<Vec<_>>(), "the rest moved to the front, in order");
    assert_eq!((tx[0].tx(&mut burst), burst.len()), (0, 9));
    assert_eq!(pool.in_use(), 40);
    burst.push(frame(&pool, 40)).unwrap();
    let mut got: Burst<4> = Burst::new();
    let mut next = 0;
    while next < 41 {
        rx[0].rx(&mut got);
        for mbuf in got.drain() {
            assert_eq!(tag(&mbuf), next);
            next += 1;
        }
        tx[0].tx(&mut burst);
    }
    assert!(burst.is_empty() && rx[0].rx(&mut got) == 0 && pool.is_full());
}

fn a_link_passes_chains_and_slices_by_pointer(cx: &Context<'_>) {
    let (pool, headers) = (cx.buffers(255), cx.headers(255));
    let [(_a, _, mut tx), (_b, mut rx, _)] = linked(cx, &pool, 1, 63);
    let mut chain = Chain::new(frame(&pool, 1));
    chain.push(frame(&pool, 2)).unwrap();
    let chain = chain.finish();
    let slice = chain.slice(&headers, 60, 8).unwrap();
    let addresses = [chain.as_raw(), slice.as_raw()];
    let mut burst: Burst<8> = [chain, slice].into_iter().collect();
    assert_eq!(tx[0].tx(&mut burst), 2);
    assert_eq!(rx[0].rx(&mut burst), 2);
    assert_eq!(burst.iter().map(Mbuf::as_raw).collect::<Vec<_>>(), addresses);
    let mut got = burst.drain();
    let (mut chain, slice) = (got.next().unwrap(), got.next().unwrap());
    assert!(chain.try_unique().is_none() && slice.segments().eq([&[0, 0, 0, 1][..], &[0, 0, 0, 2]]));
    drop(slice);
    assert!(chain.is_unique() && chain.segment_count() == 2);
}

fn frames_under_way_go_home(cx: &Context<'_>) {
    let pool = cx.buffers(255);
    let send = |tx: &mut [TxQueue], n| {
        let mut burst: Burst<64> = (0..n).map(|i| frame(&pool, i)).collect();
        assert_eq!(tx[0].tx(&mut burst), n as usize);
    };
    // The receiver closes first.
    let [(a, a_rx, mut a_tx), b] = linked(cx, &pool, 1, 63);
    send(&mut a_tx, 10);
    drop(b);
    assert!(pool.is_full(), "what waited for it went with it");
    send(&mut a_tx, 10);
    drop((a, a_rx, a_tx));
    assert!(pool.is_full(), "what was sent to nobody went with the sender");
    // The sender closes first, and the receiver still gets everything.
    let [(a, a_rx, mut a_tx), (mut b, mut b_rx, b_tx)] = linked(cx, &pool, 1, 63);
    send(&mut a_tx, 10);
    drop((a, a_rx, a_tx));
    assert_eq!(pool.in_use(), 10);
    assert_eq!(b_rx[0].rx(&mut Burst::<4>::new()), 4);
    assert_eq!(pool.in_use(), 6);
    drop((b_rx, b_tx));
    b.stop().unwrap();
    assert!(pool.is_full(), "a stopped port holds nothing");
    drop(b);
    // One end was never opened.
    let (a, b) = link::cross(cx.eal, "lk", 1, 63).unwrap();
    let (port, rx, mut tx) = open(cx, &a, &queues(&pool, 1));
    send(&mut tx, 10);
    drop((port, rx, tx));
    assert!(pool.is_full());
    drop((a, b));
    assert!(Port::by_name(cx.eal, "net_ring_lka").is_err());
}

fn link_errors_name_the_limit(cx: &Context<'_>) {
    let refused = |name: &str, queues, size| link::cross(cx.eal, name, queues, size).unwrap_err().to_string();
    assert!(refused("lk", 17, 64).contains("1 to 16"));
    assert!(refused("lk", 0, 64).contains("1 to 16"));
    assert!(refused("", 1, 64).contains("name"));
    assert!(refused(&"x".repeat(link::NAME_MAX + 1), 1, 64).contains("name"));
    assert!(refused("lk", 1, u32::MAX).contains("rings"));
    let _longest = link::cross(cx.eal, &"x".repeat(link::NAME_MAX), 16, 64).unwrap();
    let _first = link::cross(cx.eal, "lk", 1, 64).unwrap();
    assert!(refused("lk", 1, 64).contains("another name"));
}

fn queues_work_on_other_threads(cx: &Context<'_>) {
    const FRAMES: u32 = 20_000;
    let pool = cx.buffers(1023);
    let [(_a, mut a_rx, mut a_tx), (_b, b_rx, b_tx)] = linked(cx, &pool, 2, 64);
    // Each queue pair of one end echoes on a thread of its own: an lcore and a plain one.
    let echo = |(mut rx, mut tx): (RxQueue, TxQueue)| {
        move || {
            let mut burst: Burst<16> = Burst::new();
            let mut left = FRAMES;
            while left > 0 {
                rx.rx(&mut burst);
                left -= tx.tx(&mut burst) as u32;
                std::thread::yield_now();
            }
        }
    };
    let mut echoes = b_rx.into_iter().zip(b_tx).map(echo);
    let worker = cx.eal.worker_lcores()[0];
    cx.eal.scope(|lcores| {
        lcores.launch(worker, echoes.next().unwrap()).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(echoes.next().unwrap());
            let (mut sent, mut received) = ([0; 2], [0; 2]);
            let mut burst: Burst<16> = Burst::new();
            while received != [FRAMES; 2] {
                for q in 0..2 {
                    burst.extend_with(
                        (sent[q]..FRAMES.min(sent[q] + 16))
                            .map_while(|i| pool.copy_from(&i.to_be_bytes().repeat(16))),
                    );
                    sent[q] += a_tx[q].tx(&mut burst) as u32;
                    burst.clear();
                    a_rx[q].rx(&mut burst);
                    for mbuf in burst.drain() {
                        assert_eq!(tag(&mbuf), received[q]);
                        received[q] += 1;
                    }
                }
                std::thread::yield_now();
            }
        });
    });
}

fn pools_per_queue(cx: &Context<'_>) {
    let pools = [cx.buffers(255), cx.buffers(255)];
    let config = PortConfig { pools: pools.to_vec(), ..queues(&pools[0], 2) };
    let (_port, mut rx, _tx) = open(cx, &null(cx, ""), &config);
    let mut burst: Burst<8> = Burst::new();
    rx[1].rx(&mut burst);
    assert_eq!((pools[0].in_use(), pools[1].in_use()), (0, 8));
}

fn a_tap_has_interrupts(cx: &Context<'_>) {
    let id = match Vdev::create(cx.eal, "net_tap7", "iface=dpdkbindtap") {
        Ok(id) => id,
        Err(e) => return println!("SKIPPED a_tap_has_interrupts: {e}"),
    };
    let pool = cx.buffers(1023);
    let config = PortConfig { rx_interrupt: Demand::Require, ..queues(&pool, 1) };
    let (mut port, mut rx, tx) = open(cx, &id, &config);
    let interrupt = rx[0].interrupt().expect("net_tap has RX interrupts");
    let mut burst: Burst = Burst::new();
    // What the kernel sends of its own accord when the interface comes up is not ours.
    while rx[0].rx(&mut burst) > 0 || interrupt.acknowledge() {
        burst.clear();
    }
    interrupt.enable().unwrap();
    support::sockets::send_frame("dpdkbindtap", &[0x42; 60]);
    let ours = |burst: &Burst| burst.iter().any(|m| m.data() == [0x42; 60]);
    while !ours(&burst) {
        assert!(support::sockets::readable(&interrupt), "no interrupt within 10 s");
        assert!(interrupt.acknowledge());
        rx[0].rx(&mut burst);
    }
    interrupt.disable().unwrap();
    drop((rx, tx));
    assert!(matches!(port.stop(), Err(PortError::QueuesAlive { alive: 1, .. })));
    drop(interrupt);
    port.stop().unwrap();
}

/// `librte_net_ring` is linked, and the EAL loads every driver of its directory: it must be the same file.
fn net_ring_is_loaded_once(_cx: &Context<'_>) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let code = |l: &&str| l.contains("librte_net_ring") && l.contains("r-xp");
    assert_eq!(maps.lines().filter(code).count(), 1, "{maps}");
}
