//! ARP, neighbour discovery, echo and checksums, against packets written out by hand.

use zerocopy::{FromBytes, IntoBytes};

use super::samples::captured;
use crate::wire::*;

#[test]
fn arp_asks_and_answers() {
    let (ours, theirs) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let request = ArpPacket::request(ours, [10, 0, 0, 1], [10, 0, 0, 2]);
    let bytes = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    assert_eq!(request.as_bytes(), bytes);
    assert_eq!(request.operation(), Some(ArpOperation::Request));
    let reply = request.reply(theirs);
    assert_eq!(reply.operation(), Some(ArpOperation::Reply));
    assert_eq!((reply.sender_mac, reply.sender_ip), (theirs, [10, 0, 0, 2]));
    assert_eq!((reply.target_mac, reply.target_ip), (ours, [10, 0, 0, 1]));
    assert_eq!(ArpPacket { hardware_len: 8, ..request }.operation(), None);
    assert_eq!(ArpPacket { operation_code: 3.into(), ..request }.operation(), None);
}

#[test]
fn captured_arp_packets_are_understood() {
    let arps = captured().filter_map(|bytes| {
        let link = Link::parse(bytes).ok().filter(|link| link.ethertype == ethertype::ARP)?;
        ArpPacket::ref_from_prefix(&bytes[link.l3..]).ok().map(|(arp, _)| arp.operation())
    });
    let operations: Vec<_> = arps.collect();
    assert!(operations.contains(&Some(ArpOperation::Request)));
    assert!(operations.contains(&Some(ArpOperation::Reply)));
    assert!(!operations.contains(&None));
}

#[test]
fn neighbour_discovery_has_a_pseudo_header_checksum() {
    let source = [0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let target = [0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let ip = Ipv6Header {
        version_class_flow: Ipv6Header::first_word(0, 0),
        payload_len: 32.into(),
        next_header: ip_protocol::ICMPV6,
        hop_limit: 255,
        source,
        destination: target,
    };
    let mut solicitation = NeighborSolicitation::new(target);
    let option = Icmpv6LinkOption::source(Mac([2, 0, 0, 0, 0, 1]));
    let message = [solicitation.as_bytes(), option.as_bytes()].concat();
    solicitation.checksum = ip.icmpv6_checksum(&message).into();
    assert!(solicitation.is_valid(&ip) && !solicitation.is_valid(&Ipv6Header { hop_limit: 64, ..ip }));
    let message = [solicitation.as_bytes(), option.as_bytes()].concat();
    assert_eq!(ip.icmpv6_checksum(&message), 0);

    let flags = NeighborAdvertisement::SOLICITED | NeighborAdvertisement::OVERRIDE;
    let advertisement = NeighborAdvertisement::new(target, flags);
    assert_eq!(advertisement.as_bytes()[..8], [136, 0, 0, 0, 0x60, 0, 0, 0]);
    assert!(advertisement.is_valid(&ip));
}

#[test]
fn internet_checksum_of_odd_and_split_input() {
    // The example of RFC 1071, section 3.
    let bytes = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
    assert_eq!(internet_checksum(&bytes), !0xDDF2);
    let split = InternetChecksum::new().with(&bytes[..2]).with(&bytes[2..]).finish();
    assert_eq!(split, !0xDDF2);
    assert_eq!(internet_checksum(&[0xAB]), !0xAB00);
    assert_eq!(internet_checksum(&[]), 0xFFFF);
}

#[test]
fn captured_ipv4_headers_have_good_checksums() {
    let mut seen = 0;
    for bytes in captured().take(60) {
        if let Ok(RoceFrame { datagram: Datagram { network: Network::V4(ip), .. }, .. }) =
            RoceFrame::parse(bytes)
        {
            assert!(ip.checksum_ok());
            assert!(!Ipv4Header { ttl: ip.ttl ^ 1, ..*ip }.checksum_ok());
            seen += 1;
        }
    }
    assert!(seen > 10);
}

#[test]
fn eui64_is_the_guid_linux_makes() {
    assert_eq!(Mac([0x52, 0x54, 0, 0, 0, 2]).eui64(), [0x50, 0x54, 0, 0xFF, 0xFE, 0, 0, 2]);
}

#[test]
fn tags_are_read_outermost_first() {
    let mut bytes = super::samples::vector("RC WRITE_ONLY 64B");
    bytes.splice(12..12, [0x88, 0xA8, 0x20, 0x64, 0x81, 0x00, 0xE0, 0x65]);
    let frame = RoceFrame::parse(&bytes).unwrap();
    assert_eq!(frame.link.vlans.ids().collect::<Vec<_>>(), [100, 101]);
    assert_eq!(frame.link.vlans.tags(), [(ethertype::QINQ, 0x2064), (ethertype::VLAN, 0xE065)]);
    assert!(frame.icrc_ok());
}
