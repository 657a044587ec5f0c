//! Whatever comes in, nothing panics, nothing grows, and what goes out is for somebody.

use super::*;

/// Frames of all kinds, to be damaged.
fn samples() -> Vec<Vec<u8>> {
    let mut peer = Host::new(settings(2, None), true, Time(0));
    peer.resolve(Time(0), v4(1));
    peer.resolve(Time(0), v6(1));
    peer.poll(Time(0));
    let mut all = frames(&mut peer);
    let mut a = host(1);
    for frame in &all {
        a.receive(Time(0), &mut frame.clone());
    }
    all.extend(frames(&mut a));
    all.extend([ping4(&[1; 40]), ping6(&[2; 40])]);
    all
}

fn give(host: &mut Host, frame: &[u8]) {
    let mut frame = frame.to_vec();
    let len = frame.len();
    // Also what is not for it: the sort must not be what keeps it from panicking.
    let _ = host.sort(&frame);
    match host.receive(Time(1), &mut frame) {
        Fate::Read => {}
        Fate::Answer(n) => assert!((42..=len).contains(&n)),
    }
    while host.next_resolved().is_some() {}
}

proptest! {
    #[test]
    fn any_bytes(frame in prop::collection::vec(any::<u8>(), 0..160)) {
        let mut a = host(1);
        give(&mut a, &frame);
        prop_assert_eq!(a.neighbours.sizes(), (0, 0));
    }

    #[test]
    fn damaged_frames(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let all = samples();
        let mut frame = all[which.index(all.len())].clone();
        for (at, value) in damage {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        if !whole {
            frame.truncate(cut.index(frame.len() + 1));
        }
        let mut a = host(1);
        a.resolve(Time(0), v4(2));
        a.resolve(Time(0), v6(2));
        give(&mut a, &frame);
        prop_assert_eq!(a.neighbours.sizes(), (2, 2));
        for answer in frames(&mut a) {
            let link = Link::parse(&answer).unwrap();
            prop_assert_eq!(link.ethernet.source, mac(1));
        }
    }
}

#[test]
fn a_flood_of_questions_is_answered_as_far_as_there_is_room() {
    let mut a = host(1);
    let mut peer = host(2);
    peer.resolve(Time(0), v4(1));
    peer.poll(Time(0));
    let question = frames(&mut peer).pop().unwrap();
    for _ in 0..1000 {
        give(&mut a, &question);
    }
    assert_eq!(frames(&mut a).len(), MAX_WAITING);
    assert_eq!(a.counters().left_out, 1000 - MAX_WAITING as u64);
}
