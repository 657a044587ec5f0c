//! Frames that neither end would send, put on the wire by the test.

use crate::counters;
use crate::ends::Either;
use crate::matrix::all_rights;
use crate::rig::{InteropRig, KERNEL_MAC, OWN_MAC, connected, end, rig};
use crate::wire::{Fate, Way};
use rdma_engine::qp::QpState;
use rdma_engine::soft::{DropReason, SoftCounters};
use rdma_engine::suite::{A, B, Session, contents, pattern};
use rdma_engine::transport::Transport;
use rdma_engine::types::{Psn, QpType, Qpn};
use rdma_engine::wire::{Bth, HeaderTemplate, NoHeaders, Opcode, Route, Vlans};
use rdma_engine::wr::{Op, Status};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2));
const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 9));

const SEND_FIRST: Opcode = Opcode(0x00);
const SEND_LAST: Opcode = Opcode(0x02);
const SEND_ONLY: Opcode = Opcode(0x04);
const READ_REQUEST: u8 = 0x0C;
const READ_RESPONSES: std::ops::RangeInclusive<u8> = 0x0D..=0x10;
/// An opcode of reliable connections that nobody has a use for.
const UNKNOWN: Opcode = Opcode(0x1B);
/// Where the opcode is in a frame over IPv4 without a tag.
const BTH: usize = 42;

/// A frame that goes this way, whoever it says it is from.
fn forged(way: Way, from: IpAddr, bth: Bth, payload: &[u8]) -> Vec<u8> {
    let (source_mac, destination_mac, destination) = match way {
        Way::ToKernel => (OWN_MAC, KERNEL_MAC, KERNEL),
        Way::ToOwn => (KERNEL_MAC, OWN_MAC, OWN),
    };
    let route = Route {
        source_mac,
        destination_mac,
        vlans: Vlans::NONE,
        source: from,
        destination,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xC001,
    };
    let mut frame = vec![0; 200];
    let template = HeaderTemplate::new(&route).expect("one family");
    let len = template.write_frame(&mut frame, payload, 1, bth, &NoHeaders);
    frame.truncate(len);
    frame
}

/// The packet of a SEND to `qpn` that lies `n` after the first one of its requester.
fn of_send(opcode: Opcode, qpn: Qpn, requester: usize, n: u32) -> Bth {
    let psn: Psn = Session::<InteropRig>::first_psn(requester).advance(n);
    Bth::new(opcode, qpn, psn).with_ack_request(opcode != SEND_FIRST)
}

/// Not a packet, one of nobody that is connected, and, for us, one of nobody's opcode: rxe takes its headers to have a length
/// below zero and sums memory until there is none any more, which ended the guest with 6.1.0-48 (not with 6.1.0-57).
fn nonsense(way: Way, qpn: Qpn, requester: usize) -> Vec<Vec<u8>> {
    let peer = if way == Way::ToKernel { OWN } else { KERNEL };
    let mut broken = forged(way, peer, of_send(SEND_ONLY, qpn, requester, 0), b"broken");
    *broken.last_mut().expect("bytes") ^= 1;
    let foreign = forged(way, STRANGER, of_send(SEND_ONLY, qpn, requester, 0), b"foreign");
    let mut frames = vec![broken, foreign];
    if way == Way::ToOwn {
        frames.push(forged(way, peer, of_send(UNKNOWN, qpn, requester, 0), b"unknown"));
    }
    frames
}

#[test]
fn nonsense_is_dropped_by_the_kernel_without_a_count() {
    let Some(mut rig) = rig("nonsense_is_dropped_by_the_kernel_without_a_count", B, false) else { return };
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    let r = s.recv(B, pair.qp[B], 64);
    let before = counters::all();
    for frame in nonsense(Way::ToKernel, pair.qpn[B], A) {
        s.rig.inject(Way::ToKernel, frame);
    }
    s.quiet();
    assert_eq!(counters::all(), before);
    let c = s.send(A, pair.qp[A], Op::Send, b"sense");
    assert_eq!(contents(&s.wait_ok(B, r).buf), b"sense");
    s.wait_ok(A, c);
    end(s, &pair);
}

fn soft_counters(s: &Session<'_, InteropRig>, end: usize) -> SoftCounters {
    match &s.ends[end].transport {
        Either::Own(transport) => *transport.soft_counters(),
        Either::Kernel(_) => panic!("end {end} is of the kernel"),
    }
}

#[test]
fn nonsense_is_dropped_by_own_under_names() {
    let Some(mut rig) = rig("nonsense_is_dropped_by_own_under_names", A, false) else { return };
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    let r = s.recv(B, pair.qp[B], 64);
    for frame in nonsense(Way::ToOwn, pair.qpn[B], A) {
        s.rig.inject(Way::ToOwn, frame);
    }
    s.quiet();
    let counts = soft_counters(&s, B);
    let named = [DropReason::Icrc, DropReason::Address].map(|reason| counts.drops(reason));
    assert_eq!((named, counts.malformed.iter().sum()), ([1, 1], 1u64));
    let c = s.send(A, pair.qp[A], Op::Send, b"sense");
    assert_eq!(contents(&s.wait_ok(B, r).buf), b"sense");
    s.wait_ok(A, c);
    end(s, &pair);
}

/// All packets of a message but the last are full by the standard. This kernel does not mind, newer ones do.
#[test]
fn the_kernel_takes_packets_that_are_not_full() {
    let Some(mut rig) = rig("the_kernel_takes_packets_that_are_not_full", B, false) else { return };
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    let r = s.recv(B, pair.qp[B], 64);
    s.quiet();
    for (opcode, n, payload) in [(SEND_FIRST, 0, &b"eight by"[..]), (SEND_LAST, 1, b"tes..")] {
        let bth = of_send(opcode, pair.qpn[B], A, n);
        s.rig.inject(Way::ToKernel, forged(Way::ToKernel, OWN, bth, payload));
    }
    assert_eq!(contents(&s.wait_ok(B, r).buf), b"eight bytes..");
    end(s, &pair);
}

#[test]
fn own_refuses_packets_that_are_not_full() {
    let Some(mut rig) = rig("own_refuses_packets_that_are_not_full", A, false) else { return };
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |_| {});
    let r = s.recv(B, pair.qp[B], 64);
    let bth = of_send(SEND_FIRST, pair.qpn[B], A, 0);
    s.rig.inject(Way::ToOwn, forged(Way::ToOwn, KERNEL, bth, b"eight by"));
    let refused = s.wait(B, 1).pop().expect("one");
    assert_eq!(refused.cookie, r);
    assert_ne!(refused.status, Status::Success);
    drop(refused);
    assert_eq!(s.ends[B].transport.state(pair.qp[B]), Some(QpState::Err));
    end(s, &pair);
}

/// What the kernel remembers of a READ moves on with it: from an earlier place it cannot be asked for any more.
#[test]
fn a_resumed_read_is_not_answered_from_before_that() {
    const LEN: u32 = 8000;
    let Some(mut rig) = rig("a_resumed_read_is_not_answered_from_before_that", B, false) else { return };
    let requests: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let (also, mut responses) = (Arc::clone(&requests), 0);
    let answered = Arc::new(Mutex::new(0));
    let answers = Arc::clone(&answered);
    rig.judge(Box::new(move |way, frame| {
        let opcode = frame.get(BTH).copied().filter(|_| frame[12..14] == [8, 0] && frame[23] == 17);
        if way == Way::ToKernel && opcode == Some(READ_REQUEST) {
            also.lock().unwrap_or_else(PoisonError::into_inner).push(frame.to_vec());
        }
        if way == Way::ToOwn && opcode.is_some_and(|op| READ_RESPONSES.contains(&op)) {
            responses += 1;
            *answers.lock().unwrap_or_else(PoisonError::into_inner) = responses;
        }
        // Eight come for the first READ and for its repetition; of the second one the fourth is lost.
        if way == Way::ToOwn && responses == 20 { Fate::IsLost } else { Fate::Passes }
    }));
    let (mut s, pair) = connected(&mut rig, QpType::Rc, |link| link.timeout = 15);
    let (region, bytes) = (s.region(B, LEN as usize, all_rights()), pattern(6, LEN as usize));
    region.window().copy_in(0, &bytes);
    let seen = || *answered.lock().unwrap_or_else(PoisonError::into_inner);
    let slice = region.slice(0, LEN).expect("inside");
    let again = |s: &mut Session<'_, InteropRig>, n: usize| {
        let frame = requests.lock().unwrap_or_else(PoisonError::into_inner)[n].clone();
        s.rig.inject(Way::ToKernel, frame);
    };

    let c = s.fetch(A, pair.qp[A], Op::Read(slice));
    assert_eq!(contents(&s.wait_ok(A, c).buf), bytes);
    again(&mut s, 0);
    s.until("the same answer again", |_| seen() == 16);

    let c = s.fetch(A, pair.qp[A], Op::Read(slice));
    assert_eq!(contents(&s.wait_ok(A, c).buf), bytes);
    let (before, asked) = (seen(), requests.lock().unwrap_or_else(PoisonError::into_inner).len());
    assert!(asked >= 3, "both, and the rest of the second: {asked} requests");
    again(&mut s, 1);
    s.quiet();
    s.exchange(&pair);
    assert_eq!(seen(), before, "not from the start once it was resumed");
    drop(region);
    end(s, &pair);
}
