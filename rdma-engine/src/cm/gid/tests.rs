use super::*;
use proptest::prelude::*;

fn entry(index: u32, kind: GidKind, ip: &str, prefix_len: Option<u8>) -> GidEntry {
    let ip: IpAddr = ip.parse().unwrap();
    GidEntry { index, gid: ip.into(), kind, netdev: Some("rx0".into()), prefix_len }
}

/// What a port with two IPv4 addresses, a global and a link-local IPv6 one shows.
fn table() -> Vec<GidEntry> {
    vec![
        entry(0, GidKind::RoceV1, "fe80::1", None),
        entry(1, GidKind::RoceV2, "fe80::1", None),
        entry(2, GidKind::RoceV1, "10.0.0.1", Some(24)),
        entry(3, GidKind::RoceV2, "10.0.0.1", Some(24)),
        entry(4, GidKind::RoceV2, "10.7.0.1", Some(16)),
        entry(5, GidKind::RoceV2, "fd00::1", None),
        entry(6, GidKind::RoceV2, "10.7.0.2", Some(16)),
    ]
}

fn chosen(peer: &str) -> (u32, String) {
    let choice = choose_gid(&table(), Some(peer.parse().unwrap()), None).unwrap();
    (choice.index, choice.reason)
}

#[test]
fn the_peers_subnet_wins_then_the_lowest_index() {
    let (index, reason) = chosen("10.7.200.9");
    assert_eq!(index, 4);
    assert!(reason.contains("10.7.0.0/16") && reason.contains("lowest index of 2"), "{reason}");
    let (index, reason) = chosen("10.0.0.9");
    assert_eq!(index, 3);
    assert!(reason.contains("10.0.0.0/24") && !reason.contains("lowest"), "{reason}");
    let (index, reason) = chosen("192.0.2.1");
    assert_eq!(index, 3);
    assert!(reason.contains("no entry in its subnet") && reason.contains("lowest index of 3"), "{reason}");
}

#[test]
fn family_and_scope_follow_the_peer() {
    let (index, reason) = chosen("fd00::2");
    assert_eq!(index, 5);
    assert!(reason.contains("(assumed)"), "{reason}");
    assert_eq!(chosen("fe80::2").0, 1);
    assert_eq!(chosen("::ffff:10.0.0.2").0, 3, "IPv4 written as IPv6 is IPv4");
    let unknown = choose_gid(&table(), None, None).unwrap();
    assert_eq!(unknown.index, 3, "routable, lowest index: {}", unknown.reason);
}

#[test]
fn nothing_that_fits_is_an_error_with_the_table_and_the_remedy() {
    let only_v1 = [entry(0, GidKind::RoceV1, "10.0.0.1", None)];
    let text = choose_gid(&only_v1, Some("10.0.0.2".parse().unwrap()), None).unwrap_err().to_string();
    assert!(text.contains("0: RoCEv1") && text.contains("ip addr add") && text.contains("dev rx0"), "{text}");
    let text = choose_gid(&[], None, None).unwrap_err().to_string();
    assert!(text.contains("no entries"), "{text}");
    let only_link_local = [entry(0, GidKind::RoceV2, "fe80::1", None)];
    let text = choose_gid(&only_link_local, Some("fd00::2".parse().unwrap()), None).unwrap_err().to_string();
    assert!(text.contains("IPv6") && text.contains("fe80"), "{text}");
}

#[test]
fn a_pinned_index_is_taken_or_refused_by_name() {
    let peer = Some("10.0.0.2".parse().unwrap());
    let choice = choose_gid(&table(), peer, Some(6)).unwrap();
    assert_eq!(choice.index, 6);
    assert!(choice.reason.contains("pinned"), "{}", choice.reason);
    let refused = |index| choose_gid(&table(), peer, Some(index)).unwrap_err().to_string();
    assert!(refused(99).contains("gid_index 99") && refused(99).contains("remove gid_index"));
    assert!(refused(2).contains("RoCEv1") && refused(2).contains("only RoCEv2"));
    assert!(refused(5).contains("IPv6 cannot reach IPv4"), "{}", refused(5));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the table, a choice is one of its entries and keeps every rule.
    #[test]
    fn a_choice_keeps_the_rules(
        entries in prop::collection::vec((0u8..3, 0u8..5, any::<u8>(), prop::option::of(0u8..=140)), 0..12),
        peer in prop::option::of((0u8..4, any::<u8>())),
    ) {
        let address = |family: u8, last: u8| -> IpAddr {
            match family {
                0 => format!("10.0.{}.{last}", last % 3).parse().unwrap(),
                1 => format!("192.168.0.{last}").parse().unwrap(),
                2 => format!("fd00:{}::{last}", last % 3).parse().unwrap(),
                3 => format!("fe80::{last}").parse().unwrap(),
                _ => "::".parse().unwrap(),
            }
        };
        let table: Vec<GidEntry> = entries.iter().enumerate().map(|(n, &(kind, family, last, prefix_len))| {
            let kind = [GidKind::Ib, GidKind::RoceV1, GidKind::RoceV2][usize::from(kind)];
            let gid = Gid::from(address(family, last));
            GidEntry { index: n as u32, gid, kind, netdev: None, prefix_len }
        }).collect();
        let peer = peer.map(|(family, last)| address(family, last));
        let usable = |e: &GidEntry| e.kind == GidKind::RoceV2 && !e.gid.is_empty()
            && e.gid.is_link_local() == peer.is_some_and(is_link_local)
            && peer.is_none_or(|p| p.is_ipv4() == e.gid.ip().is_ipv4());
        match choose_gid(&table, peer, None) {
            Ok(choice) => {
                let best = &table[choice.index as usize];
                prop_assert!(usable(best));
                let better = |e: &&GidEntry| usable(e)
                    && (!in_subnet(e, peer), e.index) < (!in_subnet(best, peer), best.index);
                prop_assert_eq!(table.iter().find(better), None);
                prop_assert!(choice.reason.contains(&best.index.to_string()));
            }
            Err(_) => prop_assert!(!table.iter().any(usable)),
        }
    }
}
