use super::neighbours::{ASK_NS, MAX_ENTRIES, MAX_QUESTIONS};
use super::*;
use proptest::prelude::*;
use rdma_engine::wire::{
    ArpPacket, EthernetHeader, HeaderTemplate, IcmpEcho, Ipv4Header, Ipv6Header, Link, NoHeaders, Route,
    Vlans, icmp_type, internet_checksum, ip_protocol,
};
use zerocopy::{FromBytes, IntoBytes};

mod duplicates;
mod hostile;

const SECOND: u64 = 1_000_000_000;

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn settings(last: u8, vlan: Option<u16>) -> HostSettings {
    let addresses = [format!("192.0.2.{last}/24"), format!("2001:db8::{last:x}/64")];
    HostSettings {
        mac: mac(last),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        gateway: Some("192.0.2.254".parse().unwrap()),
        vlan,
        duplicates: None,
        other_vlan: OtherVlan::default(),
    }
}

fn host(last: u8) -> Host {
    Host::new(settings(last, None), false, Time(0))
}

fn v4(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn v6(last: u8) -> IpAddr {
    format!("2001:db8::{last:x}").parse().unwrap()
}

/// All frames that wait.
fn frames(host: &mut Host) -> Vec<Vec<u8>> {
    let mut out = [0; MAX_FRAME];
    std::iter::from_fn(|| host.next_frame(&mut out).map(|len| out[..len].to_vec())).collect()
}

/// Gives each frame of `from` to `to` as a port would; how many were for it.
fn carry(now: Time, from: &mut Host, to: &mut Host) -> usize {
    let mut taken = 0;
    for mut frame in frames(from) {
        if matches!(to.sort(&frame), Sort::Host | Sort::Overheard) {
            assert_eq!(to.receive(now, &mut frame), Fate::Read);
            taken += 1;
        }
    }
    taken
}

#[test]
fn neighbours_find_each_other() {
    for vlan in [None, Some(100)] {
        for peer in [v4(2), v6(2)] {
            let mut a = Host::new(settings(1, vlan), false, Time(0));
            let mut b = Host::new(settings(2, vlan), false, Time(0));
            b.resolve(Time(0), if peer.is_ipv4() { v4(1) } else { v6(1) });
            a.resolve(Time(0), peer);
            a.poll(Time(0));
            assert_eq!(carry(Time(0), &mut a, &mut b), 1, "{peer} {vlan:?}");
            // The question told where the asker is.
            assert_eq!(b.next_resolved().map(|(_, m)| m), Some(mac(1)));
            assert_eq!(carry(Time(0), &mut b, &mut a), 1);
            assert_eq!((a.next_resolved(), a.next_resolved()), (Some((peer, mac(2))), None));
            assert_eq!((a.next_timer(), a.counters().malformed, b.counters().malformed), (Time::NEVER, 0, 0));
        }
    }
}

#[test]
fn frames_of_another_vlan_are_none_of_ours() {
    let sort = |from: Option<u16>, to: Option<u16>| {
        let mut a = Host::new(settings(1, from), false, Time(0));
        a.resolve(Time(0), v4(2));
        a.poll(Time(0));
        Host::new(settings(2, to), false, Time(0)).sort(&frames(&mut a)[0])
    };
    assert_eq!(sort(Some(7), Some(7)), Sort::Host);
    assert_eq!(sort(None, None), Sort::Host);
    assert_eq!(sort(Some(0), None), Sort::Host, "a tag that only gives a priority");
    for (from, to) in [(Some(7), Some(8)), (Some(7), None), (None, Some(7))] {
        assert_eq!(sort(from, to), Sort::Other, "{from:?} {to:?}");
    }
}

#[test]
fn a_destination_outside_goes_by_the_gateway() {
    let mut a = host(1);
    let far = IpAddr::from([198, 51, 100, 7]);
    a.resolve(Time(0), far);
    a.poll(Time(0));
    let asked = frames(&mut a);
    let arp = ArpPacket::ref_from_prefix(&asked[0][14..]).unwrap().0;
    assert_eq!(arp.target_ip, [192, 0, 2, 254]);
    a.hear(v4(254), mac(99));
    assert_eq!(a.next_resolved(), Some((far, mac(99))));
    assert_eq!(a.settings().next_hop("2001:db8:1::1".parse().unwrap()), None, "no gateway of that family");
    let link_local: IpAddr = "fe80::1".parse().unwrap();
    assert_eq!(a.settings().next_hop(link_local), Some(link_local));
}

#[test]
fn a_silent_neighbour_is_asked_a_few_times_ever_more_slowly() {
    let mut a = host(1);
    a.resolve(Time(0), v4(2));
    let (mut now, mut asked, mut pauses) = (Time(0), 0, vec![]);
    for _ in 0..20 {
        a.poll(now);
        asked += frames(&mut a).len();
        if a.next_timer() == Time::NEVER {
            break;
        }
        pauses.push(a.next_timer().since_ns(now));
        now = a.next_timer();
    }
    assert_eq!((asked, a.counters().unanswered), (usize::from(MAX_QUESTIONS), 1));
    assert_eq!(pauses, (0..MAX_QUESTIONS).map(|i| ASK_NS << i).collect::<Vec<_>>());
    assert_eq!(a.next_resolved(), None);
    // Whoever still waits asks again.
    a.resolve(now, v4(2));
    a.poll(now);
    assert_eq!(frames(&mut a).len(), 1);
}

#[test]
fn a_neighbour_that_moves_is_followed_and_strangers_are_not_remembered() {
    let (mut a, mut b) = (host(1), host(2));
    a.resolve(Time(0), v4(2));
    a.hear(v4(2), mac(2));
    assert_eq!(a.next_resolved(), Some((v4(2), mac(2))));
    a.hear(v4(2), mac(2));
    assert_eq!(a.next_resolved(), None, "nothing new");
    // It comes back with another card, and says so.
    b.settings.mac = mac(22);
    b.say(Message::Announce(v4(2)));
    assert_eq!(carry(Time(0), &mut b, &mut a), 1);
    assert_eq!(a.next_resolved(), Some((v4(2), mac(22))));
    b.say(Message::Announce(v4(2)));
    let said = frames(&mut b).pop().unwrap();
    assert!(
        a.sort(&said) == Sort::Overheard && a.is_from_neighbour(&said) && !host(3).is_from_neighbour(&said)
    );
    for stranger in 3..250 {
        a.hear(v4(stranger), mac(stranger));
    }
    assert_eq!(a.neighbours.sizes(), (1, 1));
}

/// The kernel's hash decides which worker gets the answer: it may be one that knows the neighbour since before the other asked,
/// or one that has nothing to do with it.
#[test]
fn answers_to_other_workers_are_passed_on() {
    let (mut knows, mut asks) = (host(1), host(1));
    knows.resolve(Time(0), v4(2));
    knows.hear(v4(2), mac(2));
    let (ip, at) = knows.take_learned().unwrap();
    asks.learn(ip, at);
    assert_eq!(asks.next_resolved(), None, "nobody has asked here");
    asks.resolve(Time(1), v4(2));
    assert_eq!(asks.next_resolved(), None);
    knows.hear(v4(2), mac(2));
    let (ip, at) = knows.take_learned().unwrap();
    assert_eq!(knows.take_learned(), None, "once");
    asks.learn(ip, at);
    assert_eq!(asks.next_resolved(), Some((v4(2), mac(2))));
    let mut idle = host(1);
    idle.hear(v4(2), mac(2));
    assert_eq!(idle.take_learned(), Some((v4(2), mac(2))));
}

#[test]
fn a_known_neighbour_can_be_confirmed() {
    let (mut a, mut b) = (host(1), host(2));
    a.confirm(Time(0), v4(2));
    a.hear(v4(2), mac(7));
    assert_eq!(a.next_resolved(), Some((v4(2), mac(7))));
    a.confirm(Time(5), v4(2));
    a.poll(Time(5));
    assert_eq!(carry(Time(5), &mut a, &mut b), 1);
    assert_eq!(carry(Time(5), &mut b, &mut a), 1);
    assert_eq!(a.next_resolved(), Some((v4(2), mac(2))), "it had moved");
}

#[test]
fn a_start_is_announced_a_few_times_by_one_worker() {
    let mut a = Host::new(settings(1, None), true, Time(0));
    let mut said = 0;
    for second in 0..10 {
        a.poll(Time(second * SECOND));
        said += frames(&mut a).len();
    }
    assert_eq!(said, 2 * usize::from(ANNOUNCEMENTS), "both addresses");
    assert_eq!(a.next_timer(), Time::NEVER);
}

#[test]
fn somebody_with_our_address_is_counted() {
    let (mut a, mut twin) = (host(1), host(1));
    twin.settings.mac = mac(66);
    twin.say(Message::Announce(v4(1)));
    twin.say(Message::Announce(v6(1)));
    assert_eq!(carry(Time(0), &mut twin, &mut a), 2);
    assert_eq!(a.counters().conflicts, 2);
}

#[test]
fn tables_are_bounded() {
    let mut a = host(1);
    a.settings.addresses = vec!["10.0.0.1/8".parse().unwrap()];
    let ip = |i: usize| IpAddr::from([10, 1, (i >> 8) as u8, i as u8]);
    for i in 0..3 * MAX_ENTRIES {
        a.resolve(Time(i as u64), ip(i));
        a.hear(ip(i), mac(i as u8));
        while a.next_resolved().is_some() {}
    }
    assert_eq!(a.neighbours.sizes(), (MAX_ENTRIES, MAX_ENTRIES));
    // All of them asked for at once: what does not fit is counted, and nobody is pushed out.
    let mut b = host(1);
    b.settings.addresses = vec!["10.0.0.1/8".parse().unwrap()];
    for i in 0..2 * MAX_ENTRIES {
        b.resolve(Time(0), ip(i));
    }
    assert_eq!(b.counters().left_out, MAX_ENTRIES as u64);
    b.poll(Time(0));
    assert_eq!(frames(&mut b).len(), MAX_WAITING);
}

/// An echo request with `data` from host 2 to host 1.
fn ping4(data: &[u8]) -> Vec<u8> {
    let mut icmp = IcmpEcho {
        kind: icmp_type::ECHO_REQUEST,
        code: 0,
        checksum: 0.into(),
        id: 77.into(),
        sequence: 3.into(),
    };
    let sum = internet_checksum(&[icmp.as_bytes(), data].concat());
    icmp.checksum = sum.into();
    let mut ip = Ipv4Header {
        version_ihl: Ipv4Header::VERSION_IHL,
        tos: 0,
        total_len: (28 + data.len() as u16).into(),
        id: 9.into(),
        flags_fragment: 0.into(),
        ttl: 3,
        protocol: ip_protocol::ICMP,
        checksum: 0.into(),
        source: [192, 0, 2, 2],
        destination: [192, 0, 2, 1],
    };
    ip.set_checksum();
    let link = EthernetHeader { destination: mac(1), source: mac(2), ethertype: 0x0800.into() };
    [link.as_bytes(), ip.as_bytes(), icmp.as_bytes(), data].concat()
}

fn ping6(data: &[u8]) -> Vec<u8> {
    let octets = |last| match v6(last) {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(_) => unreachable!(),
    };
    let ip = Ipv6Header {
        version_class_flow: Ipv6Header::first_word(0, 0),
        payload_len: (8 + data.len() as u16).into(),
        next_header: ip_protocol::ICMPV6,
        hop_limit: 3,
        source: octets(2),
        destination: octets(1),
    };
    let mut icmp = IcmpEcho {
        kind: icmp_type::ECHO_REQUEST_V6,
        code: 0,
        checksum: 0.into(),
        id: 77.into(),
        sequence: 3.into(),
    };
    icmp.checksum = ip.icmpv6_checksum(&[icmp.as_bytes(), data].concat()).into();
    let link = EthernetHeader { destination: mac(1), source: mac(2), ethertype: 0x86DD.into() };
    [link.as_bytes(), ip.as_bytes(), icmp.as_bytes(), data].concat()
}

proptest! {
    #[test]
    fn pings_are_answered(data in prop::collection::vec(any::<u8>(), 0..200), padding in 0usize..20) {
        let mut a = host(1);
        for (ping, l3) in [(ping4(&data), 20), (ping6(&data), 40)] {
            let mut frame = ping.clone();
            frame.resize(ping.len() + padding, 0);
            prop_assert_eq!(a.sort(&frame), Sort::Host);
            prop_assert_eq!(a.receive(Time(0), &mut frame), Fate::Answer(ping.len()));
            frame.truncate(ping.len());
            let link = Link::parse(&frame).unwrap();
            prop_assert_eq!((link.ethernet.source, link.ethernet.destination), (mac(1), mac(2)));
            let icmp = &frame[14 + l3..];
            prop_assert_eq!(&icmp[4..], &ping[14 + l3 + 4..], "id, sequence and data come back");
            if l3 == 20 {
                let ip = Ipv4Header::ref_from_prefix(&frame[14..]).unwrap().0;
                prop_assert!(ip.checksum_ok() && internet_checksum(icmp) == 0);
                prop_assert_eq!((icmp[0], ip.source, ip.ttl), (icmp_type::ECHO_REPLY, [192, 0, 2, 1], 64));
            } else {
                let ip = Ipv6Header::ref_from_prefix(&frame[14..]).unwrap().0;
                prop_assert_eq!((icmp[0], ip.icmpv6_checksum(icmp)), (icmp_type::ECHO_REPLY_V6, 0));
            }
        }
    }
}

#[test]
fn damaged_pings_are_not_answered() {
    let mut a = host(1);
    for ping in [ping4(&[1, 2, 3]), ping6(&[1, 2, 3])] {
        let mut bad = ping.clone();
        *bad.last_mut().unwrap() ^= 1;
        assert_eq!(a.receive(Time(0), &mut bad), Fate::Read);
    }
    assert_eq!(a.counters().malformed, 2);
    let mut reply = ping4(&[]);
    reply[34] = icmp_type::ECHO_REPLY;
    assert_eq!(a.receive(Time(0), &mut reply), Fate::Read, "a reply is not answered");
}

#[test]
fn roce_packets_are_told_by_address_port_and_vlan() {
    let frame = |to: Mac, destination: IpAddr, vlans: Vlans| {
        let source = if destination.is_ipv4() { v4(2) } else { v6(2) };
        let route = Route {
            source_mac: mac(2),
            destination_mac: to,
            vlans,
            source,
            destination,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            source_port: 50_000,
        };
        let template = HeaderTemplate::new(&route).unwrap();
        let bth = rdma_engine::wire::Bth::new(
            rdma_engine::wire::Opcode(0x04),
            rdma_engine::types::Qpn::new(0x0A_0B0C),
            rdma_engine::types::Psn::new(1),
        );
        let mut out = vec![0; 400];
        let len = template.write_frame(&mut out, &[7; 32], 1, bth, &NoHeaders);
        out.truncate(len);
        out
    };
    let a = host(1);
    let sort = |to, destination, vlans| match a.sort(&frame(to, destination, vlans)) {
        Sort::Roce(bth) => {
            let bytes = frame(to, destination, vlans);
            assert_eq!(bytes[bth + 5..bth + 8], [0x0A, 0x0B, 0x0C]);
            true
        }
        _ => false,
    };
    assert!(sort(mac(1), v4(1), Vlans::NONE) && sort(mac(1), v6(1), Vlans::NONE));
    assert!(!sort(mac(3), v4(1), Vlans::NONE), "another MAC address");
    assert!(!sort(mac(1), v4(3), Vlans::NONE) && !sort(mac(1), v6(3), Vlans::NONE), "another IP address");
    assert!(!sort(mac(1), v4(1), Vlans::single(0, 5)), "a VLAN we are not in");
    let mut returned = frame(mac(1), v4(1), Vlans::NONE);
    returned[6..12].copy_from_slice(&mac(1).0);
    assert_eq!(a.sort(&returned), Sort::Returned);
    let mut other_port = frame(mac(1), v4(1), Vlans::NONE);
    other_port[14 + 20 + 3] ^= 1;
    assert_eq!(a.sort(&other_port), Sort::Other);
}
