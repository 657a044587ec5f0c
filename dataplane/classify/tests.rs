use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const C: Classifier = Classifier::new(0x1234_5678_9ABC_DEF1);

fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    f.extend(ether_type.to_be_bytes());
    f.extend(rest);
    f
}

fn ipv4(protocol: u8, fragment: u16, source: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut h = vec![0x45, 0, 0, 40, 0, 1, 0, 0, 64, protocol, 0, 0];
    h[6..8].copy_from_slice(&fragment.to_be_bytes());
    h.extend(source);
    h.extend([10, 0, 0, 9]);
    ports.iter().for_each(|p| h.extend(p.to_be_bytes()));
    h.resize(46, 0);
    h
}

fn ipv6(next: u8, last: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut h = vec![0x60, 0, 0, 0, 0, 8, next, 64];
    h.extend([0xFD; 15]);
    h.push(last);
    h.extend([0xFE; 16]);
    ports.iter().for_each(|p| h.extend(p.to_be_bytes()));
    h
}

fn signature(frame: &[u8]) -> u64 {
    C.classify(frame).signature
}

#[test]
fn every_field_of_the_tuple_counts() {
    let frames = [
        ethernet(IPV4, &ipv4(UDP, 0, [10, 0, 0, 1], [1, 2])),
        ethernet(IPV4, &ipv4(TCP, 0, [10, 0, 0, 1], [1, 2])),
        ethernet(IPV4, &ipv4(UDP, 0, [10, 0, 0, 2], [1, 2])),
        ethernet(IPV4, &ipv4(UDP, 0, [10, 0, 0, 1], [2, 1])),
        ethernet(IPV6, &ipv6(UDP, 1, [1, 2])),
        ethernet(IPV6, &ipv6(UDP, 2, [1, 2])),
        ethernet(IPV6, &ipv6(UDP, 1, [1, 3])),
        ethernet(VLAN, &[&[0, 7, 8, 0], &ipv4(UDP, 0, [10, 0, 0, 1], [1, 2])[..]].concat()),
        ethernet(VLAN, &[&[0, 8, 8, 0], &ipv4(UDP, 0, [10, 0, 0, 1], [1, 2])[..]].concat()),
        ethernet(0x0806, &[0; 46]),
        ethernet(0x88CC, &[0; 46]),
    ];
    let distinct: HashSet<u64> = frames.iter().map(|f| signature(f)).collect();
    assert_eq!(distinct.len(), frames.len());
}

#[test]
fn what_is_not_the_tuple_does_not_count() {
    let mut a = ethernet(IPV4, &ipv4(UDP, 0, [10, 0, 0, 1], [1, 2]));
    let before = C.classify(&a);
    a[0] = 9; // the MAC address
    a[ETHERNET + 8] = 3; // the time to live
    a[ETHERNET + 24] = 0xEE; // behind the ports
    a[ETHERNET + 7 - 1] |= 0x40; // "do not fragment"
    assert_eq!(C.classify(&a), before);
    assert_eq!(before.kind, FrameKind::Ipv4);
}

#[test]
fn fragments_of_a_datagram_stay_together() {
    let first = ethernet(IPV4, &ipv4(UDP, 0x2000, [10, 0, 0, 1], [1, 2]));
    let later = ethernet(IPV4, &ipv4(UDP, 0x00B9, [10, 0, 0, 1], [0xFFFF, 0xABCD]));
    assert_eq!(signature(&first), signature(&later));
}

#[test]
fn broken_headers_are_other_and_short_frames_runts() {
    let mut bad = ethernet(IPV4, &ipv4(UDP, 0, [10, 0, 0, 1], [1, 2]));
    bad[ETHERNET] = 0x41;
    assert_eq!(C.classify(&bad).kind, FrameKind::Other);
    assert_eq!(C.classify(&bad[..ETHERNET + 5]).kind, FrameKind::Other);
    assert_eq!(C.classify(&bad[..13]).kind, FrameKind::Runt);
    assert_eq!(C.classify(&[]).kind, FrameKind::Runt);
    assert_eq!(C.classify(&ethernet(IPV4, &ipv4(UDP, 0, [1; 4], [1, 2])[..20])).kind, FrameKind::Ipv4);
}

#[test]
fn tags_and_options_are_stepped_over() {
    let plain = ipv4(UDP, 0, [10, 0, 0, 1], [1, 2]);
    let tagged = |tags: &[[u8; 2]]| {
        let mut payload = vec![];
        for (i, tag) in tags.iter().enumerate() {
            let next = if i + 1 < tags.len() { VLAN } else { IPV4 };
            payload.extend(tag);
            payload.extend(next.to_be_bytes());
        }
        payload.extend(&plain);
        ethernet(QINQ, &payload)
    };
    let one = C.classify(&tagged(&[[0, 5]]));
    let two = C.classify(&tagged(&[[0, 5], [0, 6]]));
    let three = C.classify(&tagged(&[[0, 5], [0, 6], [0, 7]]));
    assert_eq!([one.kind, two.kind, three.kind], [FrameKind::Ipv4, FrameKind::Ipv4, FrameKind::Other]);
    assert_ne!(one.signature, two.signature);
    // Priority bits are no part of the VLAN.
    assert_eq!(one.signature, signature(&tagged(&[[0xE0, 5]])));
    // With options the ports lie further behind.
    let with_options = |port: u16| {
        let mut h = ipv4(UDP, 0, [10, 0, 0, 1], [0, 0]);
        h[0] = 0x46;
        h[24..26].copy_from_slice(&port.to_be_bytes());
        ethernet(IPV4, &h)
    };
    assert_ne!(signature(&with_options(1)), signature(&with_options(2)));
    // Behind an extension header there are no ports to see; the datagram's fragments have the same flow.
    let [a, b] = [[1, 2], [3, 4]].map(|ports| signature(&ethernet(IPV6, &ipv6(44, 1, ports))));
    assert_eq!(a, b);
}

#[test]
fn a_million_flows_do_not_collide() {
    let all: HashSet<u64> = (0..1_000_000u32)
        .map(|i| {
            let [_, a, b, c] = i.to_be_bytes();
            signature(&ethernet(IPV4, &ipv4(UDP, 0, [10, a, b, c], [5000, 5001])))
        })
        .collect();
    assert_eq!(all.len(), 1_000_000);
    // The low bits spread as well: the flow table and the choice of a queue pair use them.
    let mut buckets = [0u32; 64];
    all.iter().for_each(|s| buckets[(s % 64) as usize] += 1);
    assert!(buckets.iter().all(|n| (14_000..17_500).contains(n)), "{buckets:?}");
}

proptest! {
    #[test]
    fn no_bytes_panic(frame in prop::collection::vec(any::<u8>(), 0..80)) {
        prop_assert_ne!(C.classify(&frame).signature, 0);
    }

    #[test]
    fn ip_in_tags_with_any_bytes(tags in 0usize..4, rest in prop::collection::vec(any::<u8>(), 0..60), v6 in any::<bool>()) {
        let mut payload = vec![];
        for _ in 1..tags {
            payload.extend([0, 1, 0x81, 0]);
        }
        if tags > 0 {
            payload.extend([0, 1]);
            payload.extend((if v6 { IPV6 } else { IPV4 }).to_be_bytes());
        }
        payload.extend(rest);
        let outer = if tags > 0 { VLAN } else if v6 { IPV6 } else { IPV4 };
        prop_assert_ne!(C.classify(&ethernet(outer, &payload)).signature, 0);
    }
}
