//! The short way of frames against the long one: whatever bears an imprint would have been admitted as just that packet.

use super::lab::{Lab, Setup, bytes as contents};
use crate::buf::Buf;
use crate::heap::HeapPool;
use crate::sim::rig::{frame_from, mac};
use crate::soft::arrived::Arrived;
use crate::soft::ingress::admit;
use crate::types::QpType;
use crate::wire::{Aeth, Bth, NoHeaders, Opcode, Reth, RoceFrame, Syndrome, Vlans};
use proptest::prelude::*;

/// What the two ways make of `bytes`: the packet, in words.
fn both_ways(lab: &mut Lab, bytes: &[u8], icrc: bool) -> (Option<String>, Option<String>) {
    let slot = usize::from(lab.qp.slot);
    let transport = &mut lab.transport;
    let mut config = (*transport.shared.config).clone();
    config.icrc = icrc;
    transport.shared.config = config.into();
    let qp = transport.qps[slot].as_deref_mut().unwrap();
    let short = qp.recognise(bytes, icrc);
    let long = RoceFrame::parse(bytes).ok().and_then(|view| {
        let packet = Arrived::new(&view);
        let ours =
            view.bth().dest_qpn.qpn() == qp.number.qpn && !view.datagram.network.congestion_experienced();
        (ours && admit(qp, &transport.shared, &packet, &view).is_ok()).then_some(packet)
    });
    let words = |packet: Option<Arrived>| packet.map(|p| format!("{p:?}"));
    (words(short), words(long))
}

/// A frame of the peer with any opcode that has its headers.
fn frame(lab: &Lab, opcode: u8, psn: u32, len: usize, ask: bool) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let bth = Bth::new(Opcode(opcode), lab.qpn, crate::types::Psn::new(psn)).with_ack_request(ask);
    match bth.opcode.info().headers {
        set if set == <Aeth as crate::wire::ExtendedHeaders>::SET => {
            lab.bytes_of(bth, &Aeth::new(Syndrome::ACK, 7), &payload)
        }
        set if set == <Reth as crate::wire::ExtendedHeaders>::SET => {
            lab.bytes_of(bth, &Reth::new(9, crate::types::Rkey(5), 3), &payload)
        }
        _ => {
            let mut bytes = lab.bytes_of(Bth { opcode: Opcode(4), ..bth }, &NoHeaders, &payload);
            bytes[42] = opcode;
            bytes
        }
    }
}

proptest! {
    #[test]
    fn what_bears_the_imprint_is_what_the_long_way_admits(
        opcode: u8,
        reliable: bool,
        psn: u32,
        len in 0usize..300,
        ask: bool,
        icrc: bool,
        trailer in 0usize..20,
        cut in prop::option::weighted(0.2, 0usize..400),
        changes in prop::collection::vec((0usize..70, any::<u8>()), 0..3),
    ) {
        let mut lab = Lab::new();
        let opcode = if reliable { opcode & 0x1F } else { opcode };
        let mut bytes = frame(&lab, opcode, psn, len, ask);
        let whole = changes.is_empty() && cut.is_none_or(|cut| cut >= bytes.len());
        bytes.resize(bytes.len() + trailer, 0xEE);
        changes.iter().for_each(|&(at, xor)| if let Some(b) = bytes.get_mut(at) { *b ^= xor });
        bytes.truncate(cut.unwrap_or(usize::MAX));
        let (short, long) = both_ways(&mut lab, &bytes, icrc);
        if short.is_some() {
            prop_assert_eq!(&short, &long);
        }
        // The usual frames really take it.
        if whole && reliable {
            prop_assert_eq!(short, long);
        }
    }
}

#[test]
fn every_bit_of_the_headers_that_matters_is_looked_at() {
    let mut lab = Lab::new();
    let bytes = frame(&lab, 0x0A, 77, 40, true);
    assert!(both_ways(&mut lab, &bytes, false).0.is_some());
    let mut refused = 0;
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (short, long) = both_ways(&mut lab, &changed, false);
        // Of the addresses below IP the long way knows nothing; the host side does.
        assert!(short == long || short.is_none() && bit < 8 * 12, "bit {bit}: {short:?}, {long:?}");
        refused += usize::from(short.is_none());
    }
    assert!(refused > 8 * 12 + 16 + 8 + 64 + 16, "{refused} bits matter");
}

#[test]
fn marked_frames_and_frames_to_unresolved_peers_take_the_long_way() {
    let mut lab = Lab::new();
    let mut bytes = frame(&lab, 0x04, 1, 8, true);
    bytes[15] |= 3;
    assert_eq!(both_ways(&mut lab, &bytes, false).0, None);
    let mut lab = Lab::with(Setup { resolved: false, ..Setup::default() });
    let bytes = frame(&lab, 0x04, 1, 8, true);
    let (short, long) = both_ways(&mut lab, &bytes, false);
    assert!(short.is_none() && long.is_some());
}

#[test]
fn only_reliable_connections_take_the_short_way() {
    let mut lab = Lab::with(Setup { kind: QpType::Uc, ..Setup::default() });
    for (opcode, is_good) in [(0x04, false), (0x0C, false), (0x11, false), (0x24, true)] {
        let bytes = frame(&lab, opcode, 1, 8, false);
        let (short, long) = both_ways(&mut lab, &bytes, false);
        assert_eq!((short, long.is_some()), (None, is_good), "opcode {opcode:#x}");
    }
    let mut lab = Lab::with(Setup { kind: QpType::Ud, ..Setup::default() });
    let bytes = frame(&lab, 0x04, 1, 8, false);
    assert_eq!(both_ways(&mut lab, &bytes, false), (None, None));
}

#[test]
fn frames_of_a_tagged_path_and_of_our_own_address_bear_no_imprint() {
    let mut lab = Lab::with(Setup { vlans: Vlans::single(0, 5), ..Setup::default() });
    let bytes = frame(&lab, 0x04, 1, 8, true);
    assert_eq!(both_ways(&mut lab, &bytes, true).0, None, "untagged, where a tag is used");
    let mut lab = Lab::with(Setup { peer_mac: mac(0), ..Setup::default() });
    let mut bytes = frame(&lab, 0x04, 1, 8, true);
    bytes[6..12].copy_from_slice(&mac(0).0);
    assert_eq!(both_ways(&mut lab, &bytes, true).0, None, "it may be one of ours");
}

#[test]
fn a_frame_in_pieces_is_for_the_long_way_and_every_frame_is_counted_once() {
    let mut lab = Lab::new();
    let pool = HeapPool::new(8, 2000);
    let bytes = frame(&lab, 0x04, 0x10_0000, 40, true);
    let mut pieces = frame_from(&pool, &bytes).unwrap();
    assert!(pieces.chain(frame_from(&pool, b"behind it").unwrap()).is_ok());
    let pieces = lab.transport.ingress_from_peer(lab.now, pieces).expect_err("it lies in two pieces");
    assert_eq!(lab.transport.soft_counters().frames_in, 0, "nothing has happened");
    lab.post_recv(1);
    lab.post_recv(2);
    lab.transport.ingress_unrecognized(lab.now, pieces);
    assert_eq!(lab.transport.soft_counters().frames_in, 1);
    let next = frame_from(&pool, &frame(&lab, 0x04, 0x10_0001, 40, true)).unwrap();
    assert!(lab.transport.ingress_from_peer(lab.now, next).is_ok());
    assert_eq!(lab.transport.soft_counters().frames_in, 2);
    let expected: Vec<u8> = (0..40).collect();
    let received: Vec<Vec<u8>> = lab.poll().iter().map(contents).collect();
    assert_eq!(received, [expected.clone(), expected]);
}
