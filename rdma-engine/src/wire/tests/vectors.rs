//! Real frames parse, carry the right ICRC and come out of the encoder as they were.

use zerocopy::IntoBytes;

use super::samples::{captured, vector, vectors};
use crate::wire::icrc::PeerIcrc;
use crate::wire::*;

/// Bytes of one frame written anew from the meaning of `frame`, Ethernet padding included.
fn re_encoded(frame: &RoceFrame<'_>, original: &[u8]) -> Vec<u8> {
    let mut out = match frame.datagram.network {
        Network::Grh(grh) => re_encoded_v1(frame, grh),
        _ => re_encoded_v2(frame),
    };
    out.resize(original.len(), 0);
    out
}

fn re_encoded_v2(frame: &RoceFrame<'_>) -> Vec<u8> {
    let (ip_id, flow_label) = match frame.datagram.network {
        Network::V4(ip) => (ip.id.get(), 0),
        Network::V6(ip) | Network::Grh(ip) => (0, ip.flow_label()),
    };
    let udp = frame.datagram.udp.expect("RoCEv2");
    let template = HeaderTemplate::new(&Route {
        source_mac: frame.link.ethernet.source,
        destination_mac: frame.link.ethernet.destination,
        vlans: frame.link.vlans,
        source: frame.datagram.network.source_ip(),
        destination: frame.datagram.network.destination_ip(),
        traffic_class: frame.datagram.network.traffic_class(),
        hop_limit: frame.datagram.network.hop_limit(),
        flow_label,
        source_port: udp.source_port.get(),
    })
    .expect("one address family");
    let mut out = vec![0; 9000];
    let len = write_with_headers(&template, &mut out, frame, ip_id);
    out.truncate(len);
    if udp.checksum.get() != 0 {
        fill_udp_checksum(&mut out);
    }
    out
}

fn write_with_headers(template: &HeaderTemplate, out: &mut [u8], frame: &RoceFrame<'_>, ip_id: u16) -> usize {
    let packet = &frame.packet;
    let bth = Bth::new(packet.bth.opcode, packet.bth.dest_qpn.qpn(), packet.bth.psn.psn())
        .with_ack_request(packet.bth.ack_request())
        .with_solicited(packet.bth.solicited())
        .with_migrated(packet.bth.migrated());
    let bth = Bth { pkey: packet.bth.pkey, congestion: packet.bth.congestion, ..bth };
    let payload = frame.payload();
    let write = |out: &mut [u8]| match (packet.reth(), packet.aeth(), packet.deth(), packet.imm()) {
        (Some(&reth), _, _, Some(&imm)) => {
            template.write_frame(out, payload, ip_id, bth, &RethImm { reth, imm })
        }
        (Some(reth), ..) => template.write_frame(out, payload, ip_id, bth, reth),
        (_, Some(&aeth), ..) => match packet.atomic_ack() {
            Some(&atomic) => template.write_frame(out, payload, ip_id, bth, &AethAtomicAck { aeth, atomic }),
            None => template.write_frame(out, payload, ip_id, bth, &aeth),
        },
        (_, _, Some(&deth), Some(&imm)) => {
            template.write_frame(out, payload, ip_id, bth, &DethImm { deth, imm })
        }
        (_, _, Some(deth), None) => template.write_frame(out, payload, ip_id, bth, deth),
        (.., Some(imm)) => template.write_frame(out, payload, ip_id, bth, imm),
        _ => match (packet.atomic(), packet.ieth()) {
            (Some(atomic), _) => template.write_frame(out, payload, ip_id, bth, atomic),
            (_, Some(ieth)) => template.write_frame(out, payload, ip_id, bth, ieth),
            _ => template.write_frame(out, payload, ip_id, bth, &NoHeaders),
        },
    };
    write(out)
}

fn fill_udp_checksum(frame: &mut [u8]) {
    let parsed = RoceFrame::parse(frame).unwrap();
    let udp = parsed.datagram.udp.unwrap();
    let pseudo_header = match parsed.datagram.network {
        Network::V4(ip) => ip.pseudo_header(udp.len.get()),
        Network::V6(ip) | Network::Grh(ip) => ip.pseudo_header(ip_protocol::UDP, udp.len.get()),
    };
    let payload = &frame[parsed.datagram.bth..parsed.datagram.end];
    let checksum = udp.compute_checksum(pseudo_header, payload);
    let filled = UdpHeader { checksum: checksum.into(), ..*udp };
    let at = parsed.datagram.bth - size_of::<UdpHeader>();
    frame[at..at + size_of::<UdpHeader>()].copy_from_slice(filled.as_bytes());
    let parsed = RoceFrame::parse(frame).unwrap();
    assert!(parsed.datagram.udp.unwrap().checksum_ok(pseudo_header, &frame[parsed.datagram.bth..]));
}

/// RoCEv1 is only read by this crate; its headers are put together by hand.
fn re_encoded_v1(frame: &RoceFrame<'_>, grh: &Ipv6Header) -> Vec<u8> {
    let mut out = frame.link.ethernet.as_bytes().to_vec();
    let headers = [grh.as_bytes(), frame.bth().as_bytes(), frame.packet.extended()].concat();
    let mut builder = icrc::IcrcBuilder::roce_v1(&headers);
    builder.update(frame.payload());
    builder.update(&[0; 3][..usize::from(frame.bth().pad())]);
    let tail = Tail::new(frame.bth().pad(), builder.finish());
    out.extend([&headers, frame.payload(), tail.as_bytes()].concat());
    out
}

fn check(bytes: &[u8]) {
    let frame = RoceFrame::parse_any(bytes, bytes.len()).expect("a RoCE frame");
    assert!(frame.icrc_ok(), "{:?}", frame.bth());
    check_remembered(&frame, bytes);
    assert!(frame.packet.pad_fits());
    assert!(frame.packet.info.payload.permits(frame.packet.payload_len() as u32, 1024));
    assert_eq!(re_encoded(&frame, bytes), bytes, "{:?}", frame.bth());
}

/// The ICRC by what is remembered of a peer agrees: at first, again, after a frame of another port, and if it is wrong.
fn check_remembered(frame: &RoceFrame<'_>, bytes: &[u8]) {
    let mut peer = PeerIcrc::default();
    assert!(frame.icrc_ok_of(&mut peer) && frame.icrc_ok_of(&mut peer));
    for at in [frame.datagram.l3 + 5, frame.datagram.bth - 8, frame.datagram.bth + 9, frame.datagram.end - 1]
    {
        let mut wrong = bytes.to_vec();
        wrong[at] ^= 1;
        if let Ok(wrong) = RoceFrame::parse(&wrong) {
            assert_eq!(wrong.icrc_ok_of(&mut peer), wrong.icrc_ok(), "byte {at}");
        }
        assert!(frame.icrc_ok_of(&mut peer), "after byte {at}");
    }
}

#[test]
fn every_vector_parses_checks_and_re_encodes() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 23);
    vectors.iter().for_each(|frame| check(frame));
}

#[test]
fn every_captured_frame_parses_checks_and_re_encodes() {
    let mut roce = 0;
    let limit = if cfg!(miri) { 30 } else { usize::MAX };
    for bytes in captured().take(limit) {
        match RoceFrame::parse(bytes) {
            Ok(_) => {
                check(bytes);
                roce += 1;
            }
            // ARP, neighbour discovery and the TCP exchange of perftest.
            Err(WireError::NotIp | WireError::NotUdp) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(cfg!(miri) || roce == 363, "{roce} RoCEv2 frames in the captures");
}

#[test]
fn a_congestion_notification_is_built_as_connectx_builds_it() {
    let bytes = vector("ConnectX-4 Lx CNP");
    let frame = RoceFrame::parse(&bytes).unwrap();
    let cnp = Bth::cnp(frame.bth().dest_qpn.qpn());
    assert_eq!(Bth { ..*frame.bth() }, cnp);
    assert_eq!(frame.payload(), Bth::CNP_PAYLOAD);
    assert!(frame.bth().becn() && !frame.bth().fecn());
}

#[test]
fn fields_of_a_write_read_as_documented() {
    let bytes = vector("RC WRITE_ONLY 64B");
    let frame = RoceFrame::parse(&bytes).unwrap();
    let reth = frame.packet.reth().unwrap();
    assert_eq!(frame.bth().opcode.info().name, "RC_WRITE_ONLY");
    assert_eq!(frame.bth().dest_qpn.value(), 0x11);
    assert_eq!(frame.bth().psn.value(), 0x5E_7B05);
    assert!(frame.bth().ack_request() && !frame.bth().solicited());
    assert_eq!((reth.addr.get(), reth.rkey.get(), reth.len.get()), (0x55C1_B114_A550, 0x401, 64));
    assert_eq!(frame.payload().len(), 64);
    assert!(frame.payload().starts_with(b"rdma-ping-0: "));
    assert_eq!(frame.datagram.network.source_ip().to_string(), "10.9.0.1");
    assert!(frame.packet.aeth().is_none() && frame.packet.imm().is_none());
}

#[test]
fn a_roce_v1_frame_is_refused_by_name() {
    let bytes = vector("RoCEv1 RC ACKNOWLEDGE");
    assert_eq!(RoceFrame::parse(&bytes).unwrap_err(), WireError::RoceV1);
    let frame = RoceFrame::parse_any(&bytes, bytes.len()).unwrap();
    assert_eq!(frame.packet.aeth().unwrap().msn.value(), 5);
    assert!(frame.datagram.udp.is_none());
}

#[test]
fn source_ports_are_those_of_rxe() {
    use crate::types::Qpn;
    assert_eq!(rxe_source_port(Qpn::GSI), 55410);
    assert_eq!(rxe_source_port(Qpn::new(0x12)), 0xF806);
    // Connected: from the flow label of CM, or from the two QPNs where there was no CM.
    assert_eq!(mlx_source_port(0x02596, Qpn::new(0x11), Qpn::new(0x11)), 0xE596);
    assert_eq!(mlx_source_port(0, Qpn::new(0x16), Qpn::new(0x16)), 0xC1E4);
    assert_eq!(mlx_source_port(0x1FACE, Qpn::new(1), Qpn::new(2)), 0xC000 | (0x3ACE ^ 7));
    assert_eq!(mlx_source_port(0, Qpn::new(3), Qpn::new(5)), 0xC00F);
}
