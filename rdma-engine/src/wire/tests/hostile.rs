//! Bytes from a peer never panic, in any accessor.

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::FromBytes;

use super::samples::vectors;
use crate::wire::cm::CmMessage;
use crate::wire::*;

fn cases() -> ProptestConfig {
    let cases = if cfg!(miri) { 3 } else { 4096 };
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

/// Calls everything that reads.
fn exercise(bytes: &[u8], frame_len: usize) {
    let parsed = [RoceFrame::parse_head(bytes, frame_len), RoceFrame::parse_any(bytes, frame_len)];
    parsed.iter().flatten().for_each(exercise_frame);
    let _ = CmMessage::parse(bytes).map(|(mad, message)| (mad.is_cm(), message.attribute()));
    let _ = ArpPacket::ref_from_prefix(bytes).map(|(arp, _)| (arp.operation(), arp.reply(Mac([0; 6]))));
    let _ = icrc::IcrcBuilder::ipv4(bytes).finish();
    let _ = icrc::IcrcBuilder::ipv6(bytes).finish();
}

fn exercise_frame(frame: &RoceFrame<'_>) {
    let packet = &frame.packet;
    if !cfg!(miri) {
        assert!(!format!("{:?} {:?} {:?}", frame.link, frame.datagram, packet).is_empty());
    }
    let _ = (packet.reth(), packet.atomic(), packet.atomic_ack(), packet.imm());
    let _ = (packet.ieth(), packet.deth(), packet.feth());
    let _ = packet.aeth().map(|aeth| aeth.meaning().to_string());
    let _ = (frame.payload(), frame.icrc(), frame.computed_icrc(), frame.icrc_ok());
    let _ = frame.icrc_ok_with([&[][..], &[1, 2, 3]]);
    let _ = (packet.pad_fits(), packet.tail_range(), packet.info.operation_name());
    let _ = frame.link.vlans.ids().count();
    let network = &frame.datagram.network;
    let _ = (network.source_ip(), network.congestion_experienced(), network.hop_limit());
    let _ = CmMessage::parse(frame.payload());
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400), more in 0usize..2000) {
        exercise(&bytes, bytes.len() + more);
    }

    #[test]
    fn damaged_frames_never_panic(
        which in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        cut_short in any::<bool>(),
    ) {
        let vectors = vectors();
        let mut bytes = which.get(&vectors).clone();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let frame_len = bytes.len();
        if cut_short {
            bytes.truncate(cut.index(frame_len + 1));
        }
        exercise(&bytes, frame_len);
        exercise(&bytes, bytes.len());
    }
}

/// A valid frame, changed by `change`, must be refused with `error`.
fn refused(change: impl Fn(&mut Vec<u8>), error: WireError) {
    let mut bytes = super::samples::vector("RC WRITE_ONLY 64B");
    change(&mut bytes);
    assert_eq!(RoceFrame::parse(&bytes).unwrap_err(), error);
}

#[test]
fn every_refusal_has_its_name() {
    refused(|b| b.truncate(13), WireError::TooShort);
    refused(|b| b.truncate(60), WireError::Length);
    refused(|b| b[12] = 0x12, WireError::NotIp);
    refused(|b| b[14] = 0x46, WireError::IpOptions);
    refused(|b| b[14] = 0x65, WireError::IpVersion);
    refused(|b| b[20] = 0x20, WireError::IpFragment);
    refused(|b| b[21] = 1, WireError::IpFragment);
    refused(|b| b[23] = 6, WireError::NotUdp);
    refused(|b| b[36] = 0, WireError::NotRocePort);
    refused(|b| b[39] += 1, WireError::Length);
    refused(|b| b[43] |= 1, WireError::TransportVersion);
    refused(|b| b[42] = 0x1F, WireError::UnknownOpcode);
    refused(|b| (b[16], b[17], b[38], b[39]) = (0, 51, 0, 31), WireError::PacketLength);
    refused(
        |b| {
            let tags = [0x88, 0xA8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3];
            b.splice(12..12, tags);
        },
        WireError::VlanDepth,
    );
}

#[test]
fn fragments_and_extension_headers_over_ipv6_are_refused() {
    let frame = super::samples::vector("over IPv6, opcode 0x4");
    for (next_header, error) in [(44, WireError::IpFragment), (0, WireError::NotUdp)] {
        let mut bytes = frame.clone();
        bytes[20] = next_header;
        assert_eq!(RoceFrame::parse(&bytes).unwrap_err(), error);
    }
}

#[test]
fn ethernet_padding_is_not_payload() {
    let bytes = super::samples::vector("RC ACK synd 0x1f");
    let mut padded = bytes.clone();
    padded.extend([0xEE; 20]);
    let frame = RoceFrame::parse(&padded).unwrap();
    assert_eq!(frame.datagram.end, bytes.len());
    assert!(frame.icrc_ok() && frame.payload().is_empty());
}
