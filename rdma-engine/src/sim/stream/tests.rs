use super::super::network::Marking;
use super::*;
use crate::soft::Dcqcn;

/// 10 Gb/s and 10 us each way: a round trip holds 25 kB.
fn wire() -> Faults {
    Faults { byte_ps: 800, ..Faults::none(10_000) }
}

/// Bytes carried in 10 ms by one queue pair.
fn carried(kind: OpKind, selective: bool, loss_ppm: u32) -> (u64, SoftCounters) {
    let scenario = Scenario { selective, ..Stream::scenario(1) };
    let mut stream = Stream::new(scenario, kind, Faults { loss_ppm, ..wire() });
    stream.run(1, Time(10_000_000)).unwrap();
    (stream.carried[0], stream.counters(0))
}

#[test]
#[cfg_attr(miri, ignore = "too many frames for an interpreter")]
fn one_percent_loss_leaves_more_than_half_of_the_throughput() {
    for kind in [OpKind::Write, OpKind::Read] {
        let (whole, _) = carried(kind, true, 0);
        let (lossy, counters) = carried(kind, true, 10_000);
        let (before, go_back) = carried(kind, false, 10_000);
        println!(
            "{kind:?}: {whole} lossless, {lossy} selective ({} again), {before} go-back-N ({} again)",
            counters.retransmitted, go_back.retransmitted
        );
        assert!(whole > 11_000_000, "{whole}");
        assert!(2 * lossy > whole, "{kind:?}: {lossy} of {whole}");
        assert!(lossy > before && counters.held + counters.sacks > 10, "{lossy} {before}");
    }
}

/// A bottleneck that marks as the paper of DCQCN advises for 10 Gb/s.
fn marking() -> Faults {
    let marking = Marking { from_bytes: 20_000, to_bytes: 200_000, most_ppm: 100_000 };
    Faults { marking: Some(marking), ..wire() }
}

#[test]
#[cfg_attr(miri, ignore = "too many frames for an interpreter")]
fn two_flows_share_a_bottleneck_and_keep_its_queue_short() {
    let scenario = Scenario { dcqcn: Some(Dcqcn::new(10_000)), ..Stream::scenario(2) };
    let mut stream = Stream::new(scenario, OpKind::Write, marking());
    // The first one has the wire to itself before the second one comes.
    stream.run(1, Time(5_000_000)).unwrap();
    stream.run(2, Time(60_000_000)).unwrap();
    stream.take_most_queued();
    let before = stream.carried.clone();
    stream.run(2, Time(110_000_000)).unwrap();
    let shares: Vec<u64> = stream.carried.iter().zip(&before).map(|(now, then)| now - then).collect();
    let (total, queued) = (shares.iter().sum::<u64>(), stream.take_most_queued());
    println!("{shares:?} bytes in 50 ms, {queued} queued at most, {} CNPs", stream.counters(0).cnps);
    assert!(total > 50_000_000, "the wire is used: {total} of 62 500 000");
    let fair = total / 2;
    assert!(shares.iter().all(|s| s.abs_diff(fair) < fair / 4), "{shares:?}");
    assert!(queued < 400_000, "{queued}");
    assert!(stream.counters(0).cnps > 0 && stream.counters(0).timeouts == 0);
}

#[test]
#[cfg_attr(miri, ignore = "too many frames for an interpreter")]
fn without_rate_control_the_queue_holds_the_windows() {
    let mut stream = Stream::new(Stream::scenario(2), OpKind::Write, marking());
    stream.run(2, Time(10_000_000)).unwrap();
    assert!(stream.take_most_queued() > 1_500_000);
}

#[test]
#[cfg_attr(miri, ignore = "too many frames for an interpreter")]
fn packets_above_the_standard_cross_where_both_ends_agreed() {
    let scenario = Scenario { jumbo: true, selective: true, ..Stream::scenario(1) };
    let mut stream = Stream::new(scenario, OpKind::Write, Faults { loss_ppm: 1000, ..wire() });
    stream.run(1, Time(10_000_000)).unwrap();
    let frames = stream.counters(0).frames_out;
    assert!(stream.carried[0] > 10_000_000, "{:?}", stream.carried);
    assert!(stream.carried[0] / frames > 6000, "two packets a message: {frames} frames");
}

/// What all queue pairs carry together, and what the sender counted.
fn carried_by(
    pairs: usize,
    kind: OpKind,
    selective: bool,
    faults: &Faults,
    until: Time,
) -> (u64, SoftCounters) {
    // A timer that is longer than any queue.
    let scenario = Scenario { selective, timeout: 14, ..Stream::scenario(pairs) };
    let mut stream = Stream::new(scenario, kind, faults.clone());
    stream.run(pairs, until).unwrap();
    (stream.carried.iter().sum(), stream.counters(0))
}

/// However long the queues that the queue pairs make for each other.
#[test]
#[cfg_attr(miri, ignore = "too many frames for an interpreter")]
fn nothing_is_sent_twice_over_a_wire_that_loses_nothing() {
    for (pairs, kind) in [(4, OpKind::Write), (8, OpKind::Write), (8, OpKind::Read)] {
        let run = |selective| carried_by(pairs, kind, selective, &wire(), Time(8_000_000));
        let ((selective, counters), (go_back, _)) = (run(true), run(false));
        assert_eq!((counters.retransmitted, counters.timeouts), (0, 0), "{pairs} {kind:?}");
        assert_eq!(selective, go_back, "{pairs} {kind:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many frames for an interpreter")]
fn selective_repeat_is_better_than_going_back_with_many_queue_pairs() {
    // 100 Gb/s and 100 us each way: a round trip holds 2.5 MB.
    let long = Faults { byte_ps: 80, ..Faults::none(100_000) };
    let wires = [("10 Gb/s", wire(), 8_000_000), ("100 Gb/s", long, 2_000_000)];
    for (name, wire, until) in wires {
        for (pairs, kind) in [(8, OpKind::Write), (8, OpKind::Read)] {
            let run = |selective, loss_ppm| {
                carried_by(pairs, kind, selective, &Faults { loss_ppm, ..wire.clone() }, Time(until)).0
            };
            let (whole, lossy, before) = (run(true, 0), run(true, 10_000), run(false, 10_000));
            println!(
                "{name}, {pairs} queue pairs, {kind:?}: {whole} lossless, {before} go-back-N, {lossy} selective"
            );
            assert!(lossy > before, "{name} {pairs} {kind:?}: {lossy} {before}");
        }
    }
}

/// A receiver without room costs what going back costs, and no more.
#[test]
#[cfg_attr(miri, ignore = "too many frames for an interpreter")]
fn a_pool_that_is_too_small_costs_no_more_than_going_back() {
    let faults = Faults { loss_ppm: 10_000, ..wire() };
    for kind in [OpKind::Write, OpKind::Read] {
        let (before, _) = carried_by(4, kind, false, &faults, Time(6_000_000));
        for max_held in [0, 100] {
            let scenario = Scenario { selective: true, max_held, timeout: 14, ..Stream::scenario(4) };
            let mut stream = Stream::new(scenario, kind, faults.clone());
            stream.run(4, Time(6_000_000)).unwrap();
            let now: u64 = stream.carried.iter().sum();
            println!("{kind:?}, room for {max_held}: {now}, go-back-N {before}");
            assert!(4 * now > 3 * before, "{kind:?} {max_held}: {now} {before}");
        }
    }
}
