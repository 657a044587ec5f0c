//! Every reason to drop something, reached on purpose.

use super::*;

/// What is counted for this frame, given after `damage`.
fn dropped(client: &Client, damage: impl Fn(&mut Vec<u8>)) -> Vec<(FrontDrop, u64)> {
    let mut rig = Rig::new(settings());
    let mut frame = client.frame(b"get a\r\n");
    damage(&mut frame);
    assert!(rig.receive(&frame).is_none());
    let drops = rig.drops();
    rig.end();
    drops
}

/// Puts the IPv4 header checksum right.
fn resum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = naive_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn frames_that_are_not_for_us() {
    for client in [Client::v4(), Client::v6()] {
        let damaged = |damage: fn(&mut Vec<u8>)| dropped(&client, damage);
        assert_eq!(damaged(|f| f.truncate(13)), [(FrontDrop::Runt, 1)]);
        assert_eq!(damaged(|f| f.truncate(30)), [(FrontDrop::Runt, 1)]);
        assert_eq!(damaged(|f| f.truncate(f.len() - 1)), [(FrontDrop::Runt, 1)]);
        assert_eq!(damaged(|f| f[5] = 77), [(FrontDrop::NotForUs, 1)]);
        assert_eq!(damaged(|f| f[..6].fill(0xFF)), [(FrontDrop::NotForUs, 1)], "broadcast");
        assert_eq!(damaged(|f| f[6..12].copy_from_slice(&OURS.0)), [(FrontDrop::Returned, 1)]);
        assert_eq!(damaged(|f| f[6] |= 1), [(FrontDrop::Source, 1)], "from a group");
        assert_eq!(damaged(|f| f[12..14].copy_from_slice(&[0x88, 0xB5])), [(FrontDrop::NotIp, 1)]);
        let tagged = Client { vlan: Some(7), ..client.clone() };
        assert_eq!(dropped(&tagged, |_| ()), [(FrontDrop::Vlan, 1)]);
        assert_eq!(
            damaged(|f| f[12..14].copy_from_slice(&[8, 6])),
            [(FrontDrop::NotForUs, 1)],
            "ARP of a kind"
        );
        let other_port = Client { to_port: 11_212, ..client.clone() };
        assert_eq!(dropped(&other_port, |_| ()), [(FrontDrop::OtherPort, 1)]);
    }
    let other = Client::new("192.0.2.9", "192.0.2.77");
    assert_eq!(dropped(&other, |_| ()), [(FrontDrop::NotForUs, 1)]);
    let other = Client::new("2001:db8::9", "2001:db8::77");
    assert_eq!(dropped(&other, |_| ()), [(FrontDrop::NotForUs, 1)]);
    let group = Client::new("192.0.2.9", "224.0.0.1");
    assert_eq!(dropped(&group, |_| ()), [(FrontDrop::NotForUs, 1)]);
}

#[test]
fn ip_headers_that_make_no_sense() {
    let v4 = |damage: fn(&mut Vec<u8>)| dropped(&Client::v4(), damage);
    assert_eq!(v4(|f| f[14] = 0x65), [(FrontDrop::Malformed, 1)], "version");
    assert_eq!(v4(|f| f[14] = 0x44), [(FrontDrop::Malformed, 1)], "header length");
    assert_eq!(v4(|f| f[16..18].fill(0)), [(FrontDrop::Malformed, 1)], "total length");
    assert_eq!(v4(|f| f[16..18].copy_from_slice(&[9, 9])), [(FrontDrop::Runt, 1)], "total length");
    assert_eq!(v4(|f| f[22] += 1), [(FrontDrop::IpChecksum, 1)]);
    let not_udp = |f: &mut Vec<u8>| {
        f[23] = 6;
        resum(f);
    };
    assert_eq!(v4(not_udp), [(FrontDrop::NotUdp, 1)]);
    let v6 = |damage: fn(&mut Vec<u8>)| dropped(&Client::v6(), damage);
    assert_eq!(v6(|f| f[14] = 0x45), [(FrontDrop::Malformed, 1)], "version");
    assert_eq!(v6(|f| f[18..20].copy_from_slice(&[9, 9])), [(FrontDrop::Runt, 1)]);
    assert_eq!(v6(|f| f[20] = 6), [(FrontDrop::NotUdp, 1)]);
}

#[test]
fn options_that_may_not_be_ignored() {
    for options in [
        vec![131, 4, 4, 0],             // Loose source route.
        vec![1, 1, 1, 137, 4, 4, 0, 0], // Strict source route.
        vec![68, 1, 0, 0],              // Length below 2.
        vec![68, 9, 0, 0],              // Length beyond the header.
        vec![1, 1, 1, 68],              // No length.
    ] {
        let client = Client { options: options.clone(), ..Client::v4() };
        assert_eq!(dropped(&client, |_| ()), [(FrontDrop::IpOptions, 1)], "{options:?}");
    }
    for (first, headers, reason) in [
        (0, vec![17, 0, 0x85, 4, 0, 0, 0, 0], FrontDrop::IpOptions), // Unknown option, "discard".
        (60, vec![17, 0, 1, 9, 0, 0, 0, 0], FrontDrop::IpOptions),   // Option beyond the header.
        (60, vec![17, 0, 1, 3, 0, 0, 0, 1], FrontDrop::IpOptions),   // Option without a length.
        (43, vec![17, 0, 0, 1, 0, 0, 0, 0], FrontDrop::IpOptions),   // One more segment to go.
        (60, vec![0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0], FrontDrop::IpOptions), // Hop by hop, too late.
        (60, [60, 0, 1, 4, 0, 0, 0, 0].repeat(9), FrontDrop::IpOptions),                   // Too many.
        (60, vec![17, 99, 1, 4, 0, 0, 0, 0], FrontDrop::Runt), // Longer than the packet.
        (51, vec![17, 4, 0, 0, 0, 0, 0, 0], FrontDrop::NotUdp), // Authentication.
        (44, vec![6, 0, 0, 1, 0, 0, 0, 1], FrontDrop::NotUdp), // Fragment of something else.
    ] {
        let client = Client { extensions: Some((first, headers.clone())), ..Client::v6() };
        assert_eq!(dropped(&client, |_| ()), [(reason, 1)], "{first} {headers:?}");
    }
}

#[test]
fn clients_that_are_not_answered() {
    for from in ["192.0.2.1", "198.51.100.1", "192.0.2.255", "224.0.0.9", "0.0.0.0", "127.0.0.1"] {
        assert_eq!(dropped(&Client::new(from, "192.0.2.1"), |_| ()), [(FrontDrop::Source, 1)], "{from}");
    }
    for from in ["2001:db8::1", "ff02::1", "::", "::1"] {
        assert_eq!(dropped(&Client::new(from, "2001:db8::1"), |_| ()), [(FrontDrop::Source, 1)], "{from}");
    }
    for port in [0, 53, 123, 161, 389, 1900, 4791, 5353, PORT] {
        for client in [Client::v4(), Client::v6()] {
            assert_eq!(dropped(&Client { port, ..client }, |_| ()), [(FrontDrop::Reflector, 1)], "{port}");
        }
    }
    let allow = vec!["192.0.2.8/30".parse().unwrap()];
    let mut rig = Rig::new(FrontSettings { allow, ..settings() });
    assert!(rig.receive(&Client::v4().frame(b"mn\r\n")).is_some());
    assert!(rig.receive(&Client::new("192.0.2.12", "192.0.2.1").frame(b"mn\r\n")).is_none());
    assert!(rig.receive(&Client::v6().frame(b"mn\r\n")).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::NotAllowed, 2)]);
}

#[test]
fn datagrams_that_are_no_requests() {
    for client in [Client::v4(), Client::v6()] {
        let l4 = if client.from.is_ipv4() { 34 } else { 54 };
        let damaged = |damage: &dyn Fn(&mut Vec<u8>)| dropped(&client, damage);
        assert_eq!(damaged(&|f| f[l4 + 4..l4 + 6].copy_from_slice(&[0, 7])), [(FrontDrop::UdpLength, 1)]);
        assert_eq!(damaged(&|f| f[l4 + 5] += 1), [(FrontDrop::UdpLength, 1)]);
        assert_eq!(damaged(&|f| *f.last_mut().unwrap() ^= 1), [(FrontDrop::UdpChecksum, 1)]);
        let given = |payload: &[u8]| {
            let mut rig = Rig::new(settings());
            assert!(rig.receive(&client.datagram(payload)).is_none());
            rig.drops()
        };
        for short in 0..=8 {
            assert_eq!(given(&b"\0\x01\0\0\0\x01\0\0"[..short]), [(FrontDrop::ShortRequest, 1)]);
        }
        assert_eq!(given(b"\0\x01\0\0\0\x02\0\0get "), [(FrontDrop::SplitRequest, 1)]);
    }
    let client = Client { no_checksum: true, ..Client::v6() };
    assert_eq!(dropped(&client, |_| ()), [(FrontDrop::NoUdpChecksum, 1)]);
    // A packet too short for UDP.
    let client = Client::v4();
    let mut rig = Rig::new(settings());
    assert!(rig.receive(&client.ethernet(&client.ipv4(0, 17, &[1; 7]))).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::UdpLength, 1)]);
}

#[test]
fn copies_that_cannot_be_made() {
    let frame = Client::v4().frame(&[b'x'; 2000]);
    let mut rig = Rig::new(settings());
    rig.messages = HeapPool::new(1, 1000);
    assert!(rig.give(Rig::chain(&[&frame[..100], &frame[100..]])).is_none());
    let taken = rig.messages.alloc();
    assert!(rig.give(Rig::chain(&[&frame[..100], &frame[100..]])).is_none());
    assert_eq!(rig.drops(), [(FrontDrop::TooLong, 1), (FrontDrop::NoBuffer, 1)]);
    drop(taken);
    rig.end();
}

#[test]
fn more_pings_than_are_answered() {
    let client = Client::v4();
    let ping = client.ethernet(&client.ipv4(0, 1, &[8, 0, 0xF7, 0xFF, 0, 0, 0, 0]));
    let mut rig = Rig::new(settings());
    for _ in 0..40 {
        assert!(rig.receive(&ping).is_none());
    }
    assert_eq!(rig.drops(), [(FrontDrop::PingsFull, 8)]);
    assert_eq!(rig.flush(99).len(), 32);
    rig.end();
}

#[test]
fn replies_that_are_not_sent() {
    let client = Client::v4();
    let mut rig = Rig::new(FrontSettings { backlog: 2, datagram_bytes: 9, ..settings() });
    let peer = rig.peer(&client);
    rig.front.send(&peer, Rig::buffer(b""));
    assert_eq!(rig.front.room(), 2);
    rig.front.send(&peer, Rig::buffer(&vec![0; 65_536]));
    assert_eq!(rig.front.room(), 2);
    for _ in 0..3 {
        rig.front.send(&peer, Rig::buffer(b"x"));
    }
    assert_eq!(rig.front.room(), 0);
    rig.now = Time(SECOND);
    assert!(rig.flush(9).is_empty());
    let reasons = [(FrontDrop::BacklogFull, 1), (FrontDrop::ReplyTooLong, 1), (FrontDrop::Stale, 2)];
    assert_eq!(rig.drops(), reasons);
    rig.end();

    let mut rig = Rig::new(FrontSettings { segments_max: 1, ..settings() });
    rig.frames = HeapPool::new(4, 600);
    let peer = rig.peer(&client);
    rig.front.send(&peer, Rig::chain(&[&[1; 300], &[2; 301]]));
    assert!(rig.flush(9).is_empty());
    assert_eq!(rig.drops(), [(FrontDrop::DoesNotFit, 1)]);
    rig.end();
}

/// An egress that says it has room and has none.
struct Liar;

impl Egress<HeapBuf> for Liar {
    fn push(&mut self, frame: HeapBuf) -> Result<(), HeapBuf> {
        Err(frame)
    }
    fn room(&self) -> usize {
        1
    }
}

#[test]
fn an_egress_that_refuses() {
    let mut rig = Rig::new(settings());
    let peer = rig.peer(&Client::v4());
    rig.front.send(&peer, Rig::buffer(b"END\r\n"));
    rig.front.flush(rig.now, &rig.frames, &rig.slices, &mut Liar);
    assert_eq!(rig.drops(), [(FrontDrop::EgressFull, 1)]);
    rig.end();
}

#[test]
fn errors_are_told_at_a_bounded_rate() {
    let mut rig = Rig::new(FrontSettings { errors_per_second: 3, ..settings() });
    let peer = rig.peer(&Client::v4());
    for _ in 0..10 {
        rig.front.send_error(&peer, Rig::buffer(b"ERROR\r\n"));
        rig.front.send(&peer, Rig::buffer(b"END\r\n"));
    }
    assert_eq!(rig.drops(), [(FrontDrop::ErrorRate, 7)]);
    assert_eq!(rig.flush(99).len(), 13);
    rig.front.poll(Time(SECOND));
    rig.front.send_error(&peer, Rig::buffer(b"ERROR\r\n"));
    assert_eq!(rig.front.room(), 1023);
    drop(rig.front.backlog.drain(..));
    rig.end();
}

#[test]
fn names_of_reasons_are_their_own() {
    let mut names: Vec<_> = FrontDrop::ALL.iter().map(|reason| reason.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FrontDrop::ALL.len());
    assert!(FrontDrop::ALL.iter().enumerate().all(|(at, reason)| *reason as usize == at));
}
