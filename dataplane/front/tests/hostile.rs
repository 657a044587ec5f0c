//! Whatever comes in, nothing panics, nothing is lost, and what goes out went in as a request.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

/// Frames of all kinds, to be damaged.
fn samples() -> Vec<Vec<u8>> {
    let mut all = vec![];
    for client in [Client::v4(), Client::v6(), Client { options: vec![68, 4, 5, 0], ..Client::v4() }] {
        all.push(client.frame(b"get a b c\r\n"));
        all.extend(client.fragments(&[b'x'; 300], 104));
        all.push(Client { vlan: Some(7), ..client }.frame(b"mn\r\n"));
    }
    let headers =
        [60, 0, 5, 2, 0, 0, 1, 0, 43, 0, 1, 4, 0, 0, 0, 0, 44, 0, 4, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 1];
    all.push(Client { extensions: Some((0, headers.to_vec())), ..Client::v6() }.frame(b"mn\r\n"));
    let v4 = Client::v4();
    all.push(v4.ethernet(&v4.ipv4(0, 1, &[8, 0, 0xF7, 0xFF, 0, 0, 0, 0])));
    let v6 = Client::v6();
    all.push(v6.ethernet(&v6.ipv6(58, &[128, 0, 0, 0, 0, 0, 0, 0])));
    all
}

/// Sums are made right for half of the frames, for otherwise nothing gets behind them.
fn mend(frame: &mut [u8]) {
    if frame.len() > 42 && frame[12..15] == [8, 0, 0x45] {
        frame[24..26].fill(0);
        let sum = naive_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame[40..42].fill(0);
    }
}

fn answer(rig: &mut Rig, frame: HeapBuf) {
    if let Some(request) = rig.give(frame) {
        assert!(!request.text().is_empty());
        assert_ne!(request.peer.port(), 0);
        let Datagram { peer, frame, .. } = request;
        rig.front.send(&peer, frame);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_bytes(frame in prop::collection::vec(any::<u8>(), 1..160)) {
        let mut rig = Rig::new(settings());
        answer(&mut rig, Rig::buffer(&frame));
        rig.flush(99);
        rig.end();
    }

    #[test]
    fn damaged_frames(
        frames in prop::collection::vec(
            (any::<Index>(), prop::collection::vec((any::<Index>(), any::<u8>()), 0..4), any::<Index>(), any::<[bool; 3]>()),
            1..12,
        ),
        tagged in any::<bool>(),
    ) {
        let all = samples();
        let mut rig = Rig::new(FrontSettings::new(host(tagged.then_some(7)), PORT));
        for (which, damage, cut, [whole, mended, linear]) in frames {
            let mut frame = all[which.index(all.len())].clone();
            for (at, value) in damage {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            if mended {
                mend(&mut frame);
            }
            let cut = cut.index(frame.len());
            match (whole, linear) {
                (true, true) => answer(&mut rig, Rig::buffer(&frame)),
                (true, false) => answer(&mut rig, Rig::chain(&[&frame[..cut], &frame[cut..]])),
                (false, _) => answer(&mut rig, Rig::buffer(&frame[..cut])),
            }
            rig.now = rig.now.after_ns(1_000_000);
        }
        for frame in rig.flush(99) {
            let bytes = frame.to_vec();
            prop_assert_eq!(&bytes[6..12], &OURS.0);
        }
        let counters = rig.front.counters();
        let drops: u64 = counters.all_drops().map(|(_, n)| n).sum();
        let fragments = counters.fragments - counters.reassembled;
        prop_assert!(counters.requests + drops + fragments + counters.host.received >= counters.frames);
        rig.front.poll(Time(5 * SECOND));
        prop_assert_eq!(rig.messages.in_use(), 0);
        rig.end();
    }
}
