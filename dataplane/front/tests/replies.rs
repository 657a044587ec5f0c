//! Replies as clients get them.

use super::report::{Report, ReportPool, Sent};
use super::*;
use dpdk_bind::mbuf::{Checksum, TxL3, TxL4, TxOffload};
use proptest::prelude::*;

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// The reply in these frames to `client`, put together.
fn read(client: &Client, frames: &[HeapBuf], datagram_bytes: usize) -> Vec<u8> {
    let mut text = vec![];
    for (n, frame) in frames.iter().enumerate() {
        let seen = see(&frame.to_vec());
        assert_eq!((seen.to_mac, seen.from_mac, seen.vlan), (THEIRS.0, OURS.0, client.vlan));
        assert_eq!((seen.from, seen.to, seen.hops), (client.to, client.from, 64));
        assert_eq!((seen.ports, seen.id), ((PORT, client.port), 0x1234));
        assert_eq!((usize::from(seen.sequence), usize::from(seen.count)), (n, frames.len()));
        assert!(seen.text.len() + 8 <= datagram_bytes);
        text.extend(seen.text);
    }
    text
}

#[test]
fn a_short_reply_is_sent_where_it_lies() {
    for vlan in [None, Some(7)] {
        for client in [Client::v4(), Client::v6()] {
            let client = Client { vlan, ..client };
            let mut rig = Rig::new(FrontSettings::new(host(vlan), PORT));
            let peer = rig.peer(&client);
            for len in [1, 5, 64, 1392] {
                let bytes = body(len);
                let reply = Rig::buffer(&bytes);
                let place = reply.first().as_ptr();
                rig.front.send(&peer, reply);
                let frames = rig.flush(9);
                assert_eq!(read(&client, &frames, 1400), bytes);
                let headers = 14 + vlan.map_or(0, |_| 4) + if client.from.is_ipv4() { 20 } else { 40 } + 16;
                assert_eq!(frames[0].first()[headers..].as_ptr(), place, "not where it lay");
                assert_eq!(rig.frames.in_use() + rig.slices.in_use(), 0);
            }
            assert_eq!((rig.front.counters().in_place, rig.front.counters().replies), (4, 4));
            rig.end();
        }
    }
}

#[test]
fn a_reply_is_sent_at_once_unless_others_wait_or_there_is_no_room() {
    let client = Client::v4();
    let mut rig = Rig::new(settings());
    let peer = rig.peer(&client);
    assert_eq!(read(&client, &rig.send_now(&peer, Rig::buffer(&body(5)), 9), 1400), body(5));
    // One that found no room, one that found it in part, and one that finds others waiting.
    assert!(rig.send_now(&peer, Rig::buffer(&body(6)), 0).is_empty());
    assert_eq!(read(&client, &rig.flush(9), 1400), body(6));
    let mut frames = rig.send_now(&peer, Rig::buffer(&body(2000)), 1);
    assert_eq!(frames.len(), 1);
    assert!(rig.send_now(&peer, Rig::buffer(&body(7)), 9).is_empty());
    let mut later = rig.flush(9);
    let last = later.split_off(1);
    frames.append(&mut later);
    assert_eq!(read(&client, &frames, 1400), body(2000));
    assert_eq!(read(&client, &last, 1400), body(7));
    // An empty one is none, and those beyond the backlog are dropped.
    assert!(rig.send_now(&peer, Rig::buffer(&[]), 9).is_empty());
    (0..rig.front.room() + 1).for_each(|_| drop(rig.send_now(&peer, Rig::buffer(&body(1)), 0)));
    assert_eq!(rig.drops(), [(FrontDrop::BacklogFull, 1)]);
    assert_eq!(rig.front.counters().replies, 4);
    drop((frames, last));
    rig.end();
}

#[test]
fn a_reply_that_cannot_grow_in_front_goes_behind_its_headers() {
    for client in [Client::v4(), Client::v6()] {
        for len in [9, 256, 257, 1200] {
            let mut rig = Rig::new(settings());
            let peer = rig.peer(&client);
            let bytes = body(len);
            // One without headroom, one shared with somebody.
            let whole = Rig::buffer(&[vec![0; 100], bytes.clone()].concat());
            let shared = rig.slices.slice(&whole, 100, len).unwrap();
            let mut tight = HeapPool::new(1, len).alloc().unwrap();
            tight.prepend(120).unwrap().fill(b'.');
            tight.append(len).unwrap().copy_from_slice(&bytes);
            for reply in [shared, tight] {
                let expected = reply.to_vec();
                rig.front.send(&peer, reply);
                let frames = rig.flush(9);
                assert_eq!(read(&client, &frames, 1400), expected);
                let copied = expected.len() <= 256;
                assert_eq!(frames[0].segment_count(), if copied { 1 } else { 2 }, "{len}");
            }
            drop(whole);
            rig.end();
        }
    }
}

#[test]
fn a_long_reply_takes_several_datagrams() {
    for client in [Client::v4(), Client::v6()] {
        for len in [1393, 2784, 2785, 4096, 20_000] {
            let mut rig = Rig::new(settings());
            let peer = rig.peer(&client);
            let bytes = body(len);
            let (front, back) = bytes.split_at(len / 3);
            rig.front.send(&peer, Rig::chain(&[front, back]));
            let frames = rig.flush(99);
            assert_eq!(frames.len(), len.div_ceil(1392));
            assert_eq!(read(&client, &frames, 1400), bytes);
            drop(frames);
            assert_eq!(rig.front.counters().datagrams, len.div_ceil(1392) as u64);
            rig.end();
        }
    }
}

#[test]
fn jumbo_datagrams_fill_the_mtu_of_their_family() {
    for (client, ip) in [(Client::v4(), 20), (Client::v6(), 40)] {
        let mut rig = Rig::new(FrontSettings { mtu: 9000, datagram_bytes: u16::MAX, ..settings() });
        let peer = rig.peer(&client);
        let bytes = body(30_000);
        rig.front.send(&peer, Rig::buffer(&bytes));
        let frames = rig.flush(99);
        assert_eq!(frames[0].len(), 14 + 9000);
        assert_eq!(read(&client, &frames, 9000 - ip - 8), bytes);
        rig.front.send(&peer, Rig::buffer(&body(4200)));
        assert_eq!(rig.flush(9)[0].segment_count(), 1, "in place");
    }
}

#[test]
fn a_port_of_linear_frames_gets_copies() {
    let client = Client::v4();
    let mut rig = Rig::new(FrontSettings { segments_max: 1, ..settings() });
    let peer = rig.peer(&client);
    let bytes = body(5000);
    rig.front.send(&peer, Rig::chain(&[&bytes[..33], &bytes[33..2000], &bytes[2000..]]));
    rig.front.send(&peer, Rig::chain(&[&bytes[..33], &bytes[33..1000]]));
    let frames = rig.flush(99);
    assert!(frames.iter().all(|frame| frame.segment_count() == 1));
    assert_eq!(read(&client, &frames[..4], 1400), bytes);
    assert_eq!(read(&client, &frames[4..], 1400), bytes[..1000]);
    drop(frames);
    rig.end();
}

#[test]
fn no_frame_has_more_segments_than_the_port_sends() {
    let client = Client::v4();
    for segments_max in 1..6 {
        let mut rig = Rig::new(FrontSettings { segments_max, copybreak: 0, ..settings() });
        rig.frames = HeapPool::new(64, 1400);
        let peer = rig.peer(&client);
        let bytes = body(3001);
        let pieces: Vec<&[u8]> = bytes.chunks(301).collect();
        rig.front.send(&peer, Rig::chain(&pieces));
        rig.front.send(&peer, Rig::chain(&pieces[..4]));
        let frames = rig.flush(99);
        assert!(frames.iter().all(|frame| frame.segment_count() <= segments_max));
        assert_eq!(read(&client, &frames[..3], 1400), bytes);
        assert_eq!(read(&client, &frames[3..], 1400), bytes[..1204]);
        let at_once = rig.send_now(&peer, Rig::chain(&pieces[..4]), 9);
        assert!(at_once.iter().all(|frame| frame.segment_count() <= segments_max));
        assert_eq!(read(&client, &at_once, 1400), bytes[..1204]);
        drop((frames, at_once));
        rig.end();
    }
}

#[test]
fn long_replies_take_turns_and_wait_for_room() {
    let client = Client::v4();
    let mut rig = Rig::new(settings());
    let peer = rig.peer(&client);
    let bytes = body(1392 * 40);
    rig.front.send(&peer, Rig::buffer(&bytes));
    rig.front.send(&peer, Rig::buffer(b"END\r\n"));
    let mut frames = vec![];
    for _ in 0..30 {
        let sent = rig.flush(3);
        assert!(sent.len() <= 3);
        frames.extend(sent);
    }
    assert!(!rig.front.has_output());
    let short = frames.iter().position(|frame| see(&frame.to_vec()).count == 1).unwrap();
    assert!(short <= 16, "a short reply waited for {short} datagrams of a long one");
    frames.remove(short);
    assert_eq!(read(&client, &frames, 1400), bytes);
}

#[test]
fn a_reply_waits_for_buffers_as_long_as_somebody_waits_for_it() {
    let client = Client::v4();
    let mut rig = Rig::new(settings());
    let peer = rig.peer(&client);
    let bytes = body(5000);
    for dry in ["frames", "slices"] {
        rig.front.send(&peer, Rig::buffer(&bytes));
        rig.front.send(&peer, Rig::buffer(b"END\r\n"));
        let pool = if dry == "frames" { &rig.frames } else { &rig.slices };
        let mut taken = vec![];
        while let Some(buf) = pool.alloc() {
            taken.push(buf);
        }
        let sent = rig.flush(99);
        assert_eq!(sent.len(), 1, "what needs no buffer goes");
        assert_eq!(see(&sent[0].to_vec()).text, b"END\r\n");
        drop((sent, taken));
        assert_eq!(read(&client, &rig.flush(99), 1400), bytes, "{dry}");
    }
    assert_eq!(rig.front.counters().starved, 2);
    rig.end();
}

#[test]
fn the_port_is_asked_for_checksums() {
    for (client, l3_len) in [(Client::v4(), 20_u16), (Client::v6(), 40)] {
        for (ip, udp) in [(false, false), (false, true), (true, false), (true, true)] {
            let tx_checksums = TxChecksums { ip, udp };
            let pool = ReportPool(HeapPool::new(64, 2048));
            let mut front = Front::new(FrontSettings { tx_checksums, ..settings() }, false, Time(0));
            let request = Report::new(Rig::buffer(&client.frame(b"mn\r\n")), Checksum::Good, Checksum::Good);
            let peer = front.receive(Time(0), request, &pool, &pool).unwrap().peer;
            // A body that was received itself.
            front.send(&peer, Report::new(Rig::buffer(&body(3000)), Checksum::Good, Checksum::Good));
            let mut sent = Sent::default();
            front.flush(Time(0), &pool, &pool, &mut sent);
            assert_eq!(sent.0.len(), 3);
            for frame in sent.0 {
                let v4 = client.from.is_ipv4();
                let l3 = if v4 { TxL3::Ipv4 { checksum: ip } } else { TxL3::Ipv6 };
                let asked = (udp || (ip && v4)).then_some(TxOffload {
                    l2_len: 14,
                    l3_len,
                    l3,
                    l4: udp.then_some(TxL4::Udp),
                });
                assert_eq!((frame.asked, frame.ip), (asked, Checksum::Unknown));
                // What the port would do then.
                let mut bytes = frame.buf.to_vec();
                let l4 = 14 + usize::from(l3_len);
                if v4 && ip {
                    assert_eq!(word(&bytes, 24), 0);
                    let sum = naive_sum(&bytes[14..34]);
                    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                if udp {
                    let sum = naive_sum(&bytes[l4..]);
                    bytes[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
                }
                see(&bytes);
            }
        }
    }
}

#[test]
fn pings_and_questions_are_answered() {
    let client = Client::v4();
    let mut rig = Rig::new(settings());
    let mut ping = vec![8, 0, 0, 0, 1, 2, 3, 4, 5];
    let sum = naive_sum(&ping);
    ping[2..4].copy_from_slice(&sum.to_be_bytes());
    let ping = client.ethernet(&client.ipv4(0, 1, &ping));
    assert!(rig.receive(&ping).is_none());
    // One whose bytes are somebody else's as well.
    let whole = Rig::buffer(&ping);
    let shared = rig.slices.slice(&whole, 0, ping.len()).unwrap();
    assert!(rig.give(shared).is_none());
    let arp =
        [&[0xFF; 6][..], &THEIRS.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &THEIRS.0, &[192, 0, 2, 9]].concat();
    let arp = [&arp[..], &[0; 6], &[192, 0, 2, 1]].concat();
    assert!(rig.receive(&arp).is_none());
    let sent: Vec<_> = rig.flush(9).iter().map(HeapBuf::to_vec).collect();
    assert_eq!(sent.len(), 3, "{:?}", rig.drops());
    for pong in &sent[..2] {
        assert_eq!((&pong[..6], pong[34], naive_sum(&pong[34..])), (&THEIRS.0[..], 0, 0));
    }
    assert_eq!((&sent[2][..6], &sent[2][22..28]), (&THEIRS.0[..], &OURS.0[..]));
    assert_eq!((rig.front.counters().host.received, rig.front.counters().host.sent), (3, 3));
    drop(whole);
    rig.end();
}

#[test]
fn addresses_are_announced_by_one_worker() {
    let mut front = Front::<HeapBuf>::new(settings(), true, Time(5));
    assert_eq!(front.next_timer(), Time(5));
    front.poll(Time(5));
    assert!(front.has_output());
    assert_eq!(Front::<HeapBuf>::new(settings(), false, Time(5)).next_timer(), Time::NEVER);
}

proptest! {
    #[test]
    fn chains_of_any_segments(
        lens in prop::collection::vec(0_usize..900, 1..12),
        v6 in any::<bool>(),
        vlan in prop::option::of(1_u16..4095),
        segments_max in 1_usize..6,
        copybreak in 0_usize..600,
        datagram_bytes in 20_u16..1480,
        room in 1_usize..9,
        at_once in any::<bool>(),
    ) {
        let client = Client { vlan, ..if v6 { Client::v6() } else { Client::v4() } };
        let host = host(vlan);
        let mut rig = Rig::new(FrontSettings {
            segments_max, copybreak, datagram_bytes, ..FrontSettings::new(host, PORT)
        });
        let peer = rig.peer(&client);
        let bytes = body(lens.iter().sum());
        let mut at = 0;
        let pieces: Vec<&[u8]> = lens.iter().map(|len| { at += len; &bytes[at - len..at] }).collect();
        let mut frames = vec![];
        if at_once {
            frames = rig.send_now(&peer, Rig::chain(&pieces), room);
        } else {
            rig.front.send(&peer, Rig::chain(&pieces));
        }
        let mut text = vec![];
        let mut count = 0;
        for _ in 0..10_000 {
            if frames.is_empty() && !rig.front.has_output() { break }
            for frame in frames.drain(..) {
                prop_assert!(frame.segment_count() <= segments_max);
                // A last segment without room for padding is left to the port.
                let mut bytes = frame.to_vec();
                bytes.resize(bytes.len().max(60), 0);
                let seen = see(&bytes);
                prop_assert_eq!(seen.sequence, count);
                prop_assert!(seen.text.len() + 8 <= usize::from(datagram_bytes));
                count += 1;
                text.extend(seen.text);
            }
            frames = rig.flush(room);
        }
        prop_assert_eq!(text, bytes);
        prop_assert_eq!(rig.drops(), vec![]);
        rig.end();
    }
}
