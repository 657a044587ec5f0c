//! Detection of duplicate IPv6 addresses, on virtual time.

use super::super::dad::PROBE_NS;
use super::*;
use rdma_engine::wire::{NeighborAdvertisement, NeighborSolicitation};

/// A worker's host side at this station with the address of station 1; the first of a port announces.
fn with_detection(station: u8, duplicates: &Duplicates, announces: bool) -> Host {
    let settings =
        HostSettings { mac: mac(station), duplicates: Some(duplicates.clone()), ..settings(1, None) };
    Host::new(settings, announces, Time(0))
}

fn known() -> Duplicates {
    Duplicates::new(&settings(1, None).addresses)
}

fn solicitation(frame: &[u8]) -> Option<(Ipv6Header, NeighborSolicitation)> {
    let (ip, message) = super::super::nd::icmpv6(frame, 14)?;
    let solicitation = header::<NeighborSolicitation>(message, 0).filter(|s| s.is_valid(ip))?;
    (message.len() == size_of::<NeighborSolicitation>()).then_some((*ip, *solicitation))
}

/// Flags and destination of an advertisement.
fn advertisement(frame: &[u8]) -> Option<(u32, Ipv6Addr)> {
    let (ip, message) = super::super::nd::icmpv6(frame, 14)?;
    let advertisement = header::<NeighborAdvertisement>(message, 0).filter(|a| a.is_valid(ip))?;
    Some((advertisement.flags.get(), ip.destination_addr()))
}

#[test]
fn an_address_is_probed_for_once_and_used_meanwhile() {
    let (known, mut b) = (known(), host(2));
    let mut a = with_detection(1, &known, true);
    assert_eq!(a.next_timer(), Time(0));
    a.resolve(Time(0), v6(2));
    a.poll(Time(0));
    let said = frames(&mut a);
    let probes: Vec<_> = said.iter().filter_map(|frame| solicitation(frame)).collect();
    let [(ip, probe)] = probes[..] else { panic!("{probes:?}") };
    assert!(ip.source_addr().is_unspecified() && ip.destination_addr().octets()[..2] == [0xFF, 2]);
    assert_eq!(IpAddr::V6(probe.target.into()), v6(1));
    // Announced, but nobody is to forget another station for it.
    let announced: Vec<_> = said.iter().filter_map(|frame| advertisement(frame)).collect();
    assert!(matches!(announced[..], [(0, _)]), "{announced:?}");
    // It asks and is asked, as if it were its own already.
    b.resolve(Time(1), v6(1));
    b.poll(Time(1));
    assert_eq!(carry(Time(1), &mut b, &mut a), 1);
    let answers = frames(&mut a);
    assert!(matches!(advertisement(&answers[0]), Some((NeighborAdvertisement::SOLICITED, _))), "{answers:?}");
    let over = Time(2 * PROBE_NS);
    a.poll(over);
    assert!(!a.is_optimistic() && a.next_duplicate().is_none() && a.counters().duplicates == 0);
    let later: Vec<_> = frames(&mut a).iter().filter_map(|frame| advertisement(frame)).collect();
    assert!(matches!(later[..], [(NeighborAdvertisement::OVERRIDE, _)]), "{later:?}");
    assert_eq!(known.other(v6(1)), None);
}

#[test]
fn an_address_in_use_is_defended_and_the_newcomer_gives_it_up() {
    let (mut owner, known) = (host(1), known());
    let mut newcomer = with_detection(66, &known, true);
    let mut second_worker = with_detection(66, &known, false);
    newcomer.poll(Time(0));
    second_worker.poll(Time(0));
    assert!(frames(&mut second_worker).is_empty(), "one worker probes");
    newcomer.neighbours.want(Time(0), v6(2), v6(2));
    let probe = frames(&mut newcomer).into_iter().find(|frame| solicitation(frame).is_some()).unwrap();
    assert_eq!(owner.sort(&probe), Sort::Host);
    owner.receive(Time(0), &mut probe.clone());
    let mut answers = frames(&mut owner);
    // To all nodes, for the newcomer has no address to be answered at.
    let all_nodes = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
    assert_eq!(advertisement(&answers[0]), Some((NeighborAdvertisement::OVERRIDE, all_nodes)));
    assert_eq!(newcomer.sort(&answers[0]), Sort::Overheard);
    newcomer.receive(Time(500), &mut answers[0]);
    let found = newcomer.next_duplicate().unwrap();
    assert_eq!((IpAddr::V6(found.address), found.mac, found.first), (v6(1), mac(1), true));
    assert!(found.to_string().contains("give one of the two another address"));
    assert_eq!((newcomer.counters().duplicates, known.other(v6(1))), (1, Some(mac(1))));
    // Nothing of it is ours any more, and nothing is asked or said in its name.
    let mut other = host(3);
    other.resolve(Time(600), v6(1));
    other.poll(Time(600));
    assert_eq!(newcomer.sort(&frames(&mut other)[0]), Sort::Other);
    newcomer.poll(Time(3 * PROBE_NS));
    let said = frames(&mut newcomer);
    assert!(said.iter().all(|frame| advertisement(frame).is_none() && solicitation(frame).is_none()));
    assert_eq!(newcomer.settings().addresses.len(), 1, "the IPv4 address stays");
    // The other worker is told, at the latest when the time is over.
    second_worker.poll(second_worker.next_timer());
    let told = second_worker.next_duplicate().unwrap();
    assert!(!told.first && told.address == found.address && second_worker.counters().duplicates == 0);
    assert!(second_worker.v6.is_empty());
}

#[test]
fn of_two_that_probe_at_once_neither_gets_the_address() {
    let (one, two) = (known(), known());
    let (mut a, mut b) = (with_detection(1, &one, true), with_detection(66, &two, true));
    a.poll(Time(0));
    b.poll(Time(0));
    let (from_a, from_b) = (frames(&mut a), frames(&mut b));
    let probe = |frames: &[Vec<u8>]| frames.iter().find(|f| solicitation(f).is_some()).unwrap().clone();
    a.receive(Time(1), &mut probe(&from_b));
    b.receive(Time(1), &mut probe(&from_a));
    assert_eq!((one.other(v6(1)), two.other(v6(1))), (Some(mac(66)), Some(mac(1))));
    assert!(a.v6.is_empty() && b.v6.is_empty() && frames(&mut a).is_empty());
}

#[test]
fn once_it_is_ours_an_objection_is_only_counted() {
    let known = known();
    let (mut a, mut twin) = (with_detection(1, &known, true), host(1));
    a.poll(Time(0));
    a.poll(Time(2 * PROBE_NS));
    twin.settings.mac = mac(66);
    twin.say(Message::Announce(v6(1)));
    carry(Time(2 * PROBE_NS), &mut twin, &mut a);
    assert_eq!((a.counters().conflicts, a.counters().duplicates), (1, 0));
    assert_eq!((known.other(v6(1)), a.v6.len()), (None, 1));
}

#[test]
fn nothing_is_probed_for_where_that_is_not_wanted_or_there_is_no_such_address() {
    let mut a = Host::new(settings(1, None), true, Time(0));
    a.poll(Time(0));
    assert!(frames(&mut a).iter().all(|frame| solicitation(frame).is_none()));
    let mut only_v4 = settings(1, None);
    only_v4.addresses.truncate(1);
    only_v4.duplicates = Some(known());
    assert_eq!(Host::new(only_v4, false, Time(0)).next_timer(), Time::NEVER);
}

#[test]
fn an_advertisement_without_override_replaces_nothing() {
    let known = known();
    let mut a = host(2);
    a.resolve(Time(0), v6(1));
    a.hear(v6(1), mac(1));
    assert_eq!(a.next_resolved(), Some((v6(1), mac(1))));
    let mut twin = with_detection(66, &known, true);
    twin.poll(Time(0));
    assert!(carry(Time(0), &mut twin, &mut a) >= 1);
    assert_eq!(a.next_resolved(), None);
}

#[test]
fn a_frame_of_ours_in_another_vlan_is_noted() {
    let seen = |from: Option<u16>, own: Option<u16>, to: u8| {
        let mut a = Host::new(settings(1, from), false, Time(0));
        a.resolve(Time(0), v4(to));
        a.poll(Time(0));
        let b = Host::new(settings(2, own), false, Time(0));
        assert_eq!(b.sort(&frames(&mut a)[0]), Sort::Other);
        let noted = b.settings().other_vlan.take();
        assert_eq!(b.settings().other_vlan.take(), None, "once");
        noted
    };
    assert_eq!(seen(Some(7), None, 2), Some(Some(7)));
    assert_eq!(seen(Some(7), Some(8), 2), Some(Some(7)));
    assert_eq!(seen(None, Some(8), 2), Some(None));
    assert_eq!(seen(Some(7), None, 3), None, "for somebody else");
}
