//! What is written can be read back, carries the right ICRC, and leaves other bytes alone.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::types::{Psn, Qpn, Rkey};
use crate::wire::*;

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 512 },
        failure_persistence: None,
        ..Default::default()
    }
}

fn vlans() -> impl Strategy<Value = Vlans> {
    prop_oneof![
        3 => Just(Vlans::NONE),
        1 => (0u8..8, 0u16..4096).prop_map(|(priority, id)| Vlans::single(priority, id)),
        1 => (0u8..8, 0u16..4096, any::<u16>()).prop_map(|(priority, id, inner)| {
            let mut vlans = Vlans::NONE;
            let outer = Vlans::single(priority, id);
            assert!(vlans.push(ethertype::QINQ, outer.tags()[0].1));
            assert!(vlans.push(ethertype::VLAN, inner));
            vlans
        }),
    ]
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
    ]
}

pub(super) fn routes() -> impl Strategy<Value = Route> {
    let macs = any::<([u8; 6], [u8; 6])>();
    let fields = (any::<u8>(), any::<u8>(), 0u32..1 << 20, any::<u16>());
    (macs, vlans(), addresses(), fields).prop_map(|(macs, vlans, ips, fields)| Route {
        source_mac: Mac(macs.0),
        destination_mac: Mac(macs.1),
        vlans,
        source: ips.0,
        destination: ips.1,
        traffic_class: fields.0,
        hop_limit: fields.1,
        flow_label: fields.2,
        source_port: fields.3,
    })
}

pub(super) fn write_frame(route: &Route, payload: &[u8], reth: &Reth, psn: u32) -> Vec<u8> {
    let opcode = Opcode::write(Transport::Rc, Position::Only, false);
    let bth = Bth::new(opcode, Qpn::new(0x0012_3456), Psn::new(psn)).with_ack_request(true);
    let mut out = vec![0; 256 + payload.len()];
    let len = HeaderTemplate::new(route).unwrap().write_frame(&mut out, payload, 77, bth, reth);
    out.truncate(len);
    out
}

/// True if `frame` with bit `bit` flipped still parses with a good ICRC.
fn survives_flip(frame: &[u8], bit: usize) -> bool {
    let mut frame = frame.to_vec();
    frame[bit / 8] ^= 1 << (bit % 8);
    RoceFrame::parse(&frame).is_ok_and(|f| f.icrc_ok())
}

/// Bits of the frame that the ICRC leaves out: what routers may change.
fn is_variant(route: &Route, l3: usize, bit: usize) -> bool {
    let Some(byte) = (bit / 8).checked_sub(l3) else { return true };
    let (tclass_and_ttl, bth, udp_checksum) = match route.source {
        IpAddr::V4(_) => (byte == 1 || byte == 8 || byte == 10 || byte == 11, 28, 26),
        IpAddr::V6(_) => {
            let class_and_flow = (byte == 0 && bit % 8 < 4) || (1..4).contains(&byte);
            (class_and_flow || byte == 7, 48, 46)
        }
    };
    tclass_and_ttl || byte == bth + 4 || byte == udp_checksum || byte == udp_checksum + 1
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn written_frames_read_back(
        route in routes(),
        payload in vec(any::<u8>(), 0..1100),
        reth in any::<(u64, u32, u32)>(),
        psn in 0u32..1 << 24,
    ) {
        let reth = Reth::new(reth.0, Rkey(reth.1), reth.2);
        let bytes = write_frame(&route, &payload, &reth, psn);
        let frame = RoceFrame::parse(&bytes).unwrap();
        prop_assert_eq!(frame.payload(), &payload[..]);
        prop_assert_eq!(frame.packet.reth().unwrap(), &reth);
        prop_assert_eq!(frame.bth().psn.value(), psn);
        prop_assert_eq!(frame.bth().dest_qpn.value(), 0x0012_3456);
        prop_assert_eq!(frame.link.vlans, route.vlans);
        prop_assert_eq!(frame.datagram.network.source_ip(), canonical(route.source));
        prop_assert_eq!(frame.datagram.network.destination_ip(), canonical(route.destination));
        prop_assert_eq!(frame.datagram.network.traffic_class(), route.traffic_class);
        prop_assert_eq!(frame.datagram.end, bytes.len());
        prop_assert!(frame.packet.pad_fits() && frame.icrc_ok());
        if let Network::V4(ip) = frame.datagram.network {
            prop_assert!(ip.checksum_ok());
            prop_assert_eq!(ip.id.get(), 77);
        }
    }

    #[test]
    fn the_icrc_notices_every_flipped_bit_it_covers(
        route in routes(),
        payload in vec(any::<u8>(), 0..70),
        position in any::<prop::sample::Index>(),
    ) {
        let route = Route { vlans: Vlans::NONE, ..route };
        let bytes = write_frame(&route, &payload, &Reth::new(1, Rkey(2), 3), 4);
        let bit = 14 * 8 + position.index((bytes.len() - 14) * 8);
        prop_assert_eq!(survives_flip(&bytes, bit), is_variant(&route, 14, bit), "bit {}", bit);
    }

    #[test]
    fn pieces_give_the_same_verdict_as_the_whole(
        route in routes(),
        payload in vec(any::<u8>(), 0..200),
        cuts in vec(any::<prop::sample::Index>(), 0..4),
        corrupt in any::<bool>(),
        padding in 0usize..9,
    ) {
        let mut bytes = write_frame(&route, &payload, &Reth::new(1, Rkey(2), 3), 4);
        if corrupt {
            *bytes.last_mut().unwrap() ^= 1;
        }
        bytes.resize(bytes.len() + padding, 0);
        let headers = RoceFrame::parse(&bytes).unwrap().packet.payload_range().start;
        let mut cuts: Vec<usize> =
            cuts.iter().map(|cut| headers + cut.index(bytes.len() - headers + 1)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let head = &bytes[..cuts[0]];
        let rest = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]);
        let frame = RoceFrame::parse_head(head, bytes.len()).unwrap();
        prop_assert_eq!(frame.icrc_ok_with(rest), !corrupt);
    }

    #[test]
    fn wrapping_leaves_other_bytes_alone(
        route in routes(),
        headroom in 128usize..160,
        payload_len in 0usize..99,
        tailroom in 7usize..20,
    ) {
        let template = HeaderTemplate::new(&route).unwrap();
        let mut buffer = vec![0xA5; headroom + payload_len + tailroom];
        let bth = Bth::new(Opcode::send(Transport::Uc, Position::Only, Tailing::Immediate), Qpn::new(9), Psn::new(1));
        let imm = ImmDt { data: *b"imm!" };
        let frame = template.wrap(&mut buffer, headroom..headroom + payload_len, 0, bth, &imm);
        prop_assert!(buffer[..frame.start].iter().chain(&buffer[frame.end..]).all(|b| *b == 0xA5));
        let parsed = RoceFrame::parse(&buffer[frame]).unwrap();
        prop_assert!(parsed.icrc_ok());
        prop_assert_eq!(parsed.packet.imm(), Some(&imm));
        prop_assert!(parsed.payload().iter().all(|b| *b == 0xA5) && parsed.payload().len() == payload_len);
    }

    #[test]
    fn sealing_pieces_equals_sealing_the_whole(
        route in routes(),
        payload in vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let template = HeaderTemplate::new(&route).unwrap();
        let whole = write_frame(&route, &payload, &Reth::new(1, Rkey(2), 3), 4);
        let opcode = Opcode::write(Transport::Rc, Position::Only, false);
        let bth = Bth::new(opcode, Qpn::new(0x0012_3456), Psn::new(4)).with_ack_request(true);
        let mut headers = vec![0; template.headroom::<Reth>()];
        let reth = Reth::new(1, Rkey(2), 3);
        let written = template.write_headers(&mut headers, payload.len(), 77, bth, &reth);
        prop_assert_eq!(&headers[written.start..], &whole[..headers.len()]);
        let (a, b) = payload.split_at(cut.index(payload.len() + 1));
        prop_assert!(whole.ends_with(written.seal([a, b]).as_bytes()));
        prop_assert_eq!(template.seal(&headers, [a, b]), written.seal([a, b]));
    }
}

/// An IPv4-mapped IPv6 address is shown as the IPv4 address it stands for.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

#[test]
fn addresses_of_two_families_make_no_template() {
    let route = Route {
        source_mac: Mac([2; 6]),
        destination_mac: Mac([4; 6]),
        vlans: Vlans::NONE,
        source: "10.0.0.1".parse().unwrap(),
        destination: "::1".parse().unwrap(),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xC000,
    };
    assert!(HeaderTemplate::new(&route).is_none());
}
