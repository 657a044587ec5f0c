//! Requests that come in IP fragments.

use super::*;
use proptest::prelude::*;

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + at / 256) as u8).collect()
}

/// Gives all frames; the request that came of it.
fn give(rig: &mut Rig, frames: &[Vec<u8>]) -> Option<Datagram<HeapBuf>> {
    let mut requests = frames.iter().filter_map(|frame| rig.receive(frame));
    let first = requests.next();
    assert!(requests.next().is_none());
    first
}

#[test]
fn fragments_in_order_and_the_other_way_round() {
    for client in [Client::v4(), Client::v6()] {
        for len in [1472, 4096, 65_499] {
            let mut rig = Rig::new(settings());
            let mut frames = client.fragments(&text(len), 1480);
            for _ in 0..2 {
                let request = give(&mut rig, &frames).expect("a request");
                assert_eq!(request.text(), text(len));
                assert_eq!((request.peer.address(), request.peer.port()), (client.from, 40_000));
                frames.reverse();
            }
            assert_eq!(rig.front.counters().reassembled, 2);
            assert_eq!(rig.front.reassembly.len(), 0);
            rig.end();
        }
    }
}

#[test]
fn a_damaged_fragment_is_noticed_by_the_checksum() {
    for client in [Client::v4(), Client::v6()] {
        let mut rig = Rig::new(settings());
        let mut frames = client.fragments(&text(3000), 800);
        *frames[2].last_mut().unwrap() ^= 1;
        assert!(give(&mut rig, &frames).is_none());
        assert_eq!(rig.drops(), [(FrontDrop::UdpChecksum, 1)]);
        rig.end();
    }
}

#[test]
fn a_fragment_that_comes_twice_is_left_out() {
    let mut rig = Rig::new(settings());
    let mut frames = Client::v4().fragments(&text(3000), 800);
    frames.insert(1, frames[0].clone());
    frames.insert(3, frames[2].clone());
    assert_eq!(give(&mut rig, &frames).expect("a request").text(), text(3000));
    assert_eq!(rig.drops(), [(FrontDrop::FragmentDuplicate, 2)]);
    rig.end();
}

/// Offset, length, and whether there are more.
type Piece = (usize, usize, bool);

/// Gives fragments of one packet; what was counted.
fn pieces(rig: &mut Rig, pieces: &[Piece]) -> Vec<(FrontDrop, u64)> {
    for client in [Client::v4(), Client::v6()] {
        for (offset, len, more) in pieces {
            assert!(rig.receive(&client.fragment(*offset, *more, &vec![1; *len])).is_none());
        }
    }
    rig.drops()
}

#[test]
fn fragments_that_make_no_sense_end_their_packet() {
    let cases: [(FrontDrop, &[Piece]); 8] = [
        (FrontDrop::FragmentMalformed, &[(0, 15, true)]),
        (FrontDrop::FragmentMalformed, &[(8, 0, false)]),
        (FrontDrop::FragmentOverlap, &[(0, 32, true), (24, 16, true)]),
        (FrontDrop::FragmentOverlap, &[(24, 16, true), (0, 32, true)]),
        (FrontDrop::FragmentEnd, &[(8, 8, false), (16, 8, true)]),
        (FrontDrop::FragmentEnd, &[(16, 8, true), (8, 8, false)]),
        (FrontDrop::FragmentEnd, &[(16, 8, false), (32, 8, false)]),
        (FrontDrop::FragmentEnd, &[(16, 8, false), (16, 4, false)]),
    ];
    for (reason, fragments) in cases {
        let mut rig = Rig::new(settings());
        assert_eq!(pieces(&mut rig, fragments), [(reason, 2)], "{fragments:?}");
        assert_eq!((rig.front.reassembly.len(), rig.messages.in_use()), (0, 0), "{fragments:?}");
        rig.end();
    }
}

#[test]
fn a_request_beyond_the_limit_is_refused() {
    let limited = FrontSettings { request_bytes_max: 2000, ..settings() };
    let mut rig = Rig::new(limited.clone());
    assert_eq!(pieces(&mut rig, &[(2008, 8, true)]), [(FrontDrop::FragmentTooLong, 2)]);
    rig.end();
    let mut rig = Rig::new(limited.clone());
    assert_eq!(pieces(&mut rig, &[(0, 1480, true), (1480, 1480, true)]), [(FrontDrop::FragmentTooLong, 2)]);
    assert_eq!(rig.front.reassembly.len(), 0);
    rig.end();
    let mut rig = Rig::new(limited);
    let client = Client::v4();
    assert!(give(&mut rig, &client.fragments(&text(1992), 1480)).is_some(), "as long as allowed");
    rig.end();
    // The buffers are smaller than the settings say.
    let mut rig = Rig::new(settings());
    rig.messages = HeapPool::new(4, 1000);
    assert!(give(&mut rig, &client.fragments(&text(1992), 1480)).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::FragmentTooLong, 2)]);
    rig.end();
}

#[test]
fn what_is_not_completed_in_time_is_given_up() {
    let client = Client::v4();
    let mut rig = Rig::new(settings());
    let frames = client.fragments(&text(3000), 800);
    rig.now = Time(7);
    assert!(give(&mut rig, &frames[..2]).is_none());
    rig.now = Time(SECOND / 2);
    assert!(give(&mut rig, &Client { id: 9, ..client }.fragments(&text(3000), 800)[1..]).is_none());
    assert_eq!(rig.front.next_timer(), Time(7 + SECOND));
    rig.front.poll(Time(6 + SECOND));
    assert_eq!(rig.messages.in_use(), 2);
    rig.front.poll(Time(7 + SECOND));
    assert_eq!((rig.messages.in_use(), rig.front.next_timer()), (1, Time(SECOND / 2 + SECOND)));
    rig.now = Time(7 + SECOND);
    assert!(give(&mut rig, &frames[2..]).is_none(), "the rest comes too late");
    rig.front.poll(Time(4 * SECOND));
    assert_eq!(rig.drops(), [(FrontDrop::ReassemblyTimeout, 3)]);
    assert_eq!(rig.front.next_timer(), Time::NEVER);
    rig.end();
}

#[test]
fn the_newest_packet_displaces_the_oldest() {
    let reassembly = ReassemblySettings { packets: 8, packets_per_sender: 3, ..Default::default() };
    let mut rig = Rig::new(FrontSettings { reassembly, ..settings() });
    let begin = |rig: &mut Rig, from: &str, id: u16| {
        rig.now = rig.now.after_ns(1);
        let client = Client { id, ..Client::new(from, "192.0.2.1") };
        assert!(rig.receive(&client.fragments(&text(1000), 800)[0]).is_none());
    };
    let finish = |rig: &mut Rig, from: &str, id: u16| {
        let client = Client { id, ..Client::new(from, "192.0.2.1") };
        rig.receive(&client.fragments(&text(1000), 800)[1]).is_some()
    };
    for id in 0..5 {
        begin(&mut rig, "192.0.2.9", id);
    }
    assert_eq!(rig.front.reassembly.len(), 3, "one sender has its share");
    assert_eq!(rig.drops(), [(FrontDrop::ReassemblyEvicted, 2)]);
    assert!(finish(&mut rig, "192.0.2.9", 4) && finish(&mut rig, "192.0.2.9", 2));
    for sender in 20..40 {
        begin(&mut rig, &format!("192.0.2.{sender}"), 1);
    }
    assert_eq!(rig.front.reassembly.len(), 8);
    assert!(finish(&mut rig, "192.0.2.39", 1) && finish(&mut rig, "192.0.2.32", 1));
    assert!(!finish(&mut rig, "192.0.2.31", 1), "it was the oldest");
    rig.end();
}

#[test]
fn without_a_buffer_nothing_is_kept() {
    let mut rig = Rig::new(settings());
    let frames = Client::v4().fragments(&text(3000), 800);
    let taken: Vec<_> = std::iter::from_fn(|| rig.messages.alloc()).collect();
    assert!(give(&mut rig, &frames).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::NoBuffer, 4)]);
    drop(taken);
    assert!(give(&mut rig, &frames).is_some());
    rig.end();
}

/// Answers to requests that are under way come in the last ones: with none left these would never end.
#[test]
fn requests_leave_the_last_buffers_alone() {
    let client = Client::v4();
    let (fragments, frame) = (client.fragments(&text(3000), 800), client.frame(&text(3000)));
    let whole = |rig: &mut Rig| rig.give(Rig::chain(&[&frame[..1000], &frame[1000..2000], &frame[2000..]]));
    let mut rig = Rig::new(settings());
    // Of 64 four are kept back.
    let mut taken: Vec<_> = (0..60).map(|_| rig.messages.alloc()).collect();
    assert!(give(&mut rig, &fragments).is_none() && whole(&mut rig).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::NoBuffer, 5)]);
    taken.pop();
    let request = whole(&mut rig).expect("a request");
    assert!(request.in_message && give(&mut rig, &fragments).is_none());
    drop(request);
    assert!(give(&mut rig, &fragments).expect("a request").in_message);
    assert!(!rig.request(&client.frame(b"mn\r\n")).in_message);
    drop(taken);
    rig.end();
}

#[test]
fn strangers_may_not_take_places() {
    let allow = vec!["198.51.100.0/24".parse().unwrap()];
    let mut rig = Rig::new(FrontSettings { allow, ..settings() });
    assert!(give(&mut rig, &Client::v4().fragments(&text(3000), 800)).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::NotAllowed, 4)]);
    assert_eq!(rig.messages.in_use(), 0);
}

proptest! {
    #[test]
    fn any_order_of_several_packets(
        packets in prop::collection::vec((1_usize..6000, 1_usize..100, any::<bool>()), 1..5),
        order in any::<u64>(),
        again in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let mut rig = Rig::new(settings());
        let mut frames = vec![];
        for (id, (len, units, v6)) in packets.iter().enumerate() {
            let client = Client { id: id as u16, ..if *v6 { Client::v6() } else { Client::v4() } };
            frames.extend(client.fragments(&text(*len), 8 * units.max(&8)));
        }
        let mut state = order | 1;
        for at in (1..frames.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            frames.swap(at, (state >> 33) as usize % (at + 1));
        }
        for index in again {
            let frame = frames[index.index(frames.len())].clone();
            frames.insert(index.index(frames.len()), frame);
        }
        let mut lens: Vec<usize> = frames.iter().filter_map(|frame| rig.receive(frame)).map(|request| {
            assert_eq!(request.text(), text(request.text().len()));
            request.text().len()
        }).collect();
        let mut expected: Vec<usize> = packets.iter().map(|(len, ..)| *len).collect();
        lens.sort_unstable();
        expected.sort_unstable();
        // A whole packet of one fragment may come twice.
        lens.dedup();
        expected.dedup();
        prop_assert_eq!(lens, expected);
        rig.end();
    }
}

#[test]
fn a_value_that_no_request_can_bring_is_answered_by_name() {
    let small = || FrontSettings { request_bytes_max: 4000, ..settings() };
    let set = |line: &str| [line.as_bytes(), &vec![b'v'; 9000], b"\r\n"].concat();
    for client in [Client::v4(), Client::v6()] {
        for line in ["set key 0 0 9000\r\n", "set key 0 0 9000 noreply\r\n", "ms key 9000\r\n"] {
            let mut rig = Rig::new(small());
            let request = give(&mut rig, &client.fragments(&set(line), 1480)).expect("its beginning");
            assert!(request.text().starts_with(line.as_bytes()), "{line}");
            assert_eq!((request.peer.address(), request.peer.port()), (client.from, 40_000));
            // That one, and those behind the end.
            assert!(matches!(rig.drops()[..], [(FrontDrop::FragmentTooLong, 2..)]), "{:?}", rig.drops());
            drop(request);
            rig.end();
        }
        // What is long for another reason is not answered.
        let long = [b"get".as_slice(), &b" key".repeat(3000)].concat();
        let mut rig = Rig::new(small());
        assert!(give(&mut rig, &client.fragments(&long, 1480)).is_none());
        assert!(matches!(rig.drops()[..], [(FrontDrop::FragmentTooLong, _)]), "{:?}", rig.drops());
    }
}
