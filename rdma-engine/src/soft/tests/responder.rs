//! What the responder answers, and what it does not.

use super::lab::{Lab, MEMORY, Out, PMTU, Setup, all_rights, bytes};
use crate::mem::{Access, Arena, Backing};
use crate::qp::QpState;
use crate::soft::DropReason;
use crate::transport::Device;
use crate::types::Rkey;
use crate::wire::{
    AtomicEth, Bth, Ieth, ImmDt, NakCode, NoHeaders, Opcode, Reth, RethImm, RnrTimer, Syndrome,
};
use crate::wr::Status;
use zerocopy::big_endian::U32;

const NAK_SEQUENCE: Syndrome = Syndrome::Nak { code: NakCode::PsnSequence };
const NAK_INVALID: Syndrome = Syndrome::Nak { code: NakCode::InvalidRequest };
const NAK_ACCESS: Syndrome = Syndrome::Nak { code: NakCode::RemoteAccess };

/// The acknowledgements in `out`: which of the peer's packets, and how.
fn acks(out: &[Out]) -> Vec<(i32, Syndrome, u32)> {
    let acks = out.iter().filter(|o| o.name == "ACKNOWLEDGE");
    acks.map(|o| (o.psn.since(Lab::psn(0)), o.aeth.unwrap().0, o.aeth.unwrap().1)).collect()
}

fn reth(lab: &Lab, offset: usize, len: u32) -> Reth {
    let slice = lab.slice(offset, len);
    Reth::new(slice.addr, slice.rkey, len)
}

fn fetch_add(lab: &Lab, offset: usize, add: u64) -> AtomicEth {
    let slice = lab.slice(offset, 1);
    AtomicEth::fetch_add(slice.addr, slice.rkey, add)
}

#[test]
fn acknowledgements_coalesce_and_count_messages() {
    let mut lab = Lab::new();
    (0..4).for_each(|n| lab.post_recv(n));
    (0..4).for_each(|n| lab.give_send(n, &[n as u8; 5]));
    assert_eq!(acks(&lab.out()), [(3, Syndrome::ACK, 4)]);
    let done = lab.poll();
    assert_eq!(done.iter().map(bytes).collect::<Vec<_>>(), [0, 1, 2, 3].map(|b| vec![b; 5]));
}

/// rxe sends no more than 128 packets without an answer, and asks for one in the middle of a message.
#[test]
fn an_acknowledge_request_in_the_middle_of_a_message_is_honoured() {
    let mut lab = Lab::new();
    let whole = reth(&lab, 0, 4 * PMTU as u32);
    lab.give(lab.bth(0x06, 0, true), &whole, &[1; PMTU]);
    assert_eq!(acks(&lab.out()), [(0, Syndrome::ACK, 0)]);
    lab.give(lab.bth(0x07, 1, false), &NoHeaders, &[2; PMTU]);
    assert_eq!(acks(&lab.out()), []);
    lab.give(lab.bth(0x07, 2, true), &NoHeaders, &[3; PMTU]);
    assert_eq!(acks(&lab.out()), [(2, Syndrome::ACK, 0)]);
    lab.give(lab.bth(0x08, 3, true), &NoHeaders, &[4; PMTU]);
    assert_eq!(acks(&lab.out()), [(3, Syndrome::ACK, 1)]);
    assert_eq!(lab.memory(3 * PMTU - 1, 2), [3, 4]);
}

#[test]
fn a_gap_is_told_once_until_it_is_filled() {
    let mut lab = Lab::new();
    (0..8).for_each(|n| lab.post_recv(n));
    lab.give_send(0, b"a");
    lab.give_send(2, b"c");
    lab.give_send(3, b"d");
    assert_eq!(acks(&lab.out()), [(1, NAK_SEQUENCE, 1)]);
    lab.give_send(4, b"e");
    assert_eq!(acks(&lab.out()), []);
    lab.give_send(1, b"b");
    assert_eq!(acks(&lab.out()), [(1, Syndrome::ACK, 2)]);
    lab.give_send(3, b"d");
    assert_eq!(acks(&lab.out()), [(2, NAK_SEQUENCE, 2)]);
    assert_eq!(lab.poll().len(), 2);
}

#[test]
fn duplicates_are_acknowledged_unasked_and_never_executed_again() {
    let mut lab = Lab::new();
    (0..4).for_each(|n| lab.post_recv(n));
    let (write, read) = (reth(&lab, 0, 3), reth(&lab, 0, 3));
    lab.give_send(0, b"a");
    lab.give(lab.bth(0x0A, 1, false), &write, b"abc");
    lab.give(lab.bth(0x0C, 2, true), &read, &[]);
    assert_eq!(lab.names(), ["READ_RESP_ONLY"], "the response acknowledges what came before");
    lab.region.window().copy_in(0, b"xyz");
    lab.give(lab.bth(0x0A, 1, false), &write, b"abc");
    // The newest SEND or WRITE, not the PSN of the READ.
    assert_eq!(acks(&lab.out()), [(1, Syndrome::ACK, 3)]);
    assert_eq!(lab.memory(0, 3), b"xyz");
    lab.give_send(0, b"a");
    assert_eq!(acks(&lab.out()), [(1, Syndrome::ACK, 3)]);
    assert_eq!(lab.poll().len(), 1);
}

#[test]
fn a_duplicate_atomic_is_answered_from_memory_of_it() {
    let mut lab = Lab::with(Setup { dest_rd_atomic: 2, ..Setup::default() });
    let add = fetch_add(&lab, 8, 5);
    (0..3).for_each(|n| {
        lab.give(lab.bth(0x14, n, true), &add, &[]);
        assert_eq!(lab.out()[0].original, Some(u64::from(n) * 5));
    });
    lab.give(lab.bth(0x14, 1, true), &add, &[]);
    let out = lab.out();
    assert_eq!((out[0].original, out[0].psn, out[0].aeth), (Some(5), Lab::psn(1), Some((Syndrome::ACK, 2))));
    lab.give(lab.bth(0x14, 0, true), &add, &[]);
    assert_eq!(lab.names(), [""; 0], "forgotten: only two are kept");
    assert_eq!(lab.transport.soft_counters().drops(DropReason::NotReplayable), 1);
    assert_eq!(lab.memory(8, 8), 15u64.to_ne_bytes());
}

#[test]
fn a_read_is_resumed_inside_its_range_only() {
    let mut lab = Lab::new();
    let len = 3 * PMTU as u32 + 10;
    let whole = reth(&lab, 16, len);
    lab.region.window().copy_in(16 + 2 * PMTU, &[9; PMTU]);
    lab.give(lab.bth(0x0C, 0, true), &whole, &[]);
    assert_eq!(lab.names(), ["READ_RESP_FIRST", "READ_RESP_MIDDLE", "READ_RESP_MIDDLE", "READ_RESP_LAST"]);
    let rest = reth(&lab, 16 + 2 * PMTU, len - 2 * PMTU as u32);
    lab.give(lab.bth(0x0C, 2, true), &rest, &[]);
    let out = lab.out();
    assert_eq!(out.iter().map(|o| o.name).collect::<Vec<_>>(), ["READ_RESP_FIRST", "READ_RESP_LAST"]);
    assert_eq!((out[0].psn, &out[0].payload[..]), (Lab::psn(2), &[9; PMTU][..]));
    for wrong in [reth(&lab, 17 + 2 * PMTU, len - 2 * PMTU as u32), reth(&lab, 16 + 2 * PMTU, len)] {
        lab.give(lab.bth(0x0C, 2, true), &wrong, &[]);
        assert_eq!(lab.names(), [""; 0]);
    }
    assert_eq!(lab.state(), QpState::Rts);
}

#[test]
fn answers_leave_in_order_and_a_long_read_holds_back_acknowledgements() {
    let mut lab = Lab::new();
    lab.post_recv(0);
    let (read, add) = (reth(&lab, 0, 2 * PMTU as u32), fetch_add(&lab, 0, 1));
    lab.give(lab.bth(0x0C, 0, true), &read, &[]);
    lab.give_send(2, b"x");
    lab.give(lab.bth(0x14, 3, true), &add, &[]);
    lab.give(lab.bth(0x0A, 4, true), &reth(&lab, 100, 1), b"y");
    assert_eq!(lab.names(), ["READ_RESP_FIRST", "READ_RESP_LAST", "ATOMIC_ACKNOWLEDGE", "ACKNOWLEDGE"]);
}

#[test]
fn without_a_receive_the_peer_is_told_to_wait() {
    let mut lab = Lab::new();
    let wait = Syndrome::RnrNak { timer: RnrTimer::new(12) };
    lab.give_send(0, b"a");
    lab.give_send(1, b"b");
    assert_eq!(acks(&lab.out()), [(0, wait, 0)], "nothing about what followed");
    lab.post_recv(0);
    lab.give_send(0, b"a");
    assert_eq!(acks(&lab.out()), [(0, Syndrome::ACK, 1)]);
    // WRITE with immediate: at its last packet, which then has not been executed.
    let whole = reth(&lab, 0, PMTU as u32 + 1);
    lab.give(lab.bth(0x06, 1, false), &whole, &[1; PMTU]);
    lab.give(lab.bth(0x09, 2, true), &ImmDt { data: [0, 0, 0, 9] }, &[2]);
    assert_eq!(acks(&lab.out()), [(2, wait, 1)]);
    assert_eq!(lab.memory(PMTU, 1), [0]);
    lab.post_recv(1);
    lab.give(lab.bth(0x09, 2, true), &ImmDt { data: [0, 0, 0, 9] }, &[2]);
    assert_eq!(acks(&lab.out()), [(2, Syndrome::ACK, 2)]);
    let done = lab.poll();
    let crate::wr::Done::Received(received) = done[1].done else { panic!() };
    assert_eq!((received.imm, received.written), (Some(9), Some(PMTU as u32 + 1)));
}

/// A refused request: its name, what is given, the NAK.
type Refusal = (&'static str, fn(&mut Lab), Syndrome);

const REFUSALS: [Refusal; 14] = [
    ("middle without first", |l| l.give(l.bth(0x01, 0, true), &NoHeaders, &[0; PMTU]), NAK_INVALID),
    ("last without first", |l| l.give(l.bth(0x08, 0, true), &NoHeaders, &[0; 4]), NAK_INVALID),
    ("short first", |l| l.give(l.bth(0x00, 0, true), &NoHeaders, &[0; 8]), NAK_INVALID),
    ("long only", |l| l.give(l.bth(0x04, 0, true), &NoHeaders, &[0; PMTU + 4]), NAK_INVALID),
    ("write shorter than it says", |l| l.give(l.bth(0x0A, 0, true), &reth(l, 0, 10), &[0; 12]), NAK_INVALID),
    (
        "write first of one packet",
        |l| {
            l.give(l.bth(0x06, 0, true), &reth(l, 0, PMTU as u32), &[0; PMTU]);
        },
        NAK_INVALID,
    ),
    (
        "wrong key",
        |l| {
            let slice = l.slice(0, 4);
            l.give(l.bth(0x0A, 0, true), &Reth::new(slice.addr, Rkey(slice.rkey.0 ^ 1), 4), &[0; 4]);
        },
        NAK_ACCESS,
    ),
    (
        "before the region",
        |l| {
            let slice = l.slice(0, 4);
            l.give(l.bth(0x0C, 0, true), &Reth::new(slice.addr - 1, slice.rkey, 4), &[]);
        },
        NAK_ACCESS,
    ),
    (
        "beyond the region",
        |l| {
            let slice = l.slice(0, MEMORY as u32);
            l.give(l.bth(0x0C, 0, true), &Reth::new(slice.addr, slice.rkey, MEMORY as u32 + 1), &[]);
        },
        NAK_ACCESS,
    ),
    (
        "address wraps",
        |l| {
            let slice = l.slice(0, 4);
            l.give(l.bth(0x0C, 0, true), &Reth::new(u64::MAX - 1, slice.rkey, 4), &[]);
        },
        NAK_ACCESS,
    ),
    ("misaligned atomic", |l| l.give(l.bth(0x14, 0, true), &fetch_add(l, 4, 1), &[]), NAK_INVALID),
    (
        "misaligned atomic with a wrong key",
        |l| {
            let slice = l.slice(4, 4);
            let eth = AtomicEth::fetch_add(slice.addr, Rkey(slice.rkey.0 ^ 1), 1);
            l.give(l.bth(0x13, 0, true), &eth, &[]);
        },
        NAK_ACCESS,
    ),
    ("read with a payload", |l| l.give(l.bth(0x0C, 0, true), &reth(l, 0, 4), &[0; 4]), NAK_INVALID),
    (
        "read longer than 2^31",
        |l| {
            let slice = l.slice(0, 4);
            l.give(l.bth(0x0C, 0, true), &Reth::new(slice.addr, slice.rkey, 1 << 31 | 1), &[]);
        },
        NAK_INVALID,
    ),
];

/// What is refused: by which NAK, and how the receive in use ends.
#[test]
fn refusals_end_the_connection_with_the_code_of_the_standard() {
    for (name, give, nak) in REFUSALS {
        let mut lab = Lab::new();
        lab.post_recv(0);
        lab.post(crate::wr::Op::Send, b"unanswered");
        assert_eq!(lab.names(), ["SEND_ONLY"]);
        give(&mut lab);
        assert_eq!(acks(&lab.out()), [(0, nak, 0)], "{name}");
        assert_eq!(lab.state(), QpState::Err, "{name}");
        assert_eq!(lab.statuses(), [Status::WrFlushErr; 2], "{name}");
        give(&mut lab);
        assert_eq!(lab.names(), [""; 0], "{name}: after that, silence");
    }
}

#[test]
fn a_message_inside_another_one_is_refused() {
    for (opcode, extended) in [(0x04, false), (0x00, false), (0x0C, true), (0x0A, true)] {
        let mut lab = Lab::new();
        lab.post_recv(0);
        lab.give(lab.bth(0x00, 0, false), &NoHeaders, &[0; PMTU]);
        let payload = if opcode == 0x0C { vec![] } else { vec![0; PMTU] };
        match extended {
            true => lab.give(lab.bth(opcode, 1, true), &reth(&lab, 0, PMTU as u32), &payload),
            false => lab.give(lab.bth(opcode, 1, true), &NoHeaders, &payload),
        }
        assert_eq!(acks(&lab.out()), [(1, NAK_INVALID, 0)]);
        assert_eq!(lab.statuses(), [Status::RemInvReqErr], "the receive in use");
    }
}

#[test]
fn rights_of_queue_pair_and_region_are_both_needed() {
    type Request = (fn(&mut Lab), Access);
    let requests: [Request; 3] = [
        (|l| l.give(l.bth(0x0A, 0, true), &reth(l, 0, 4), &[1; 4]), Access::REMOTE_WRITE),
        (|l| l.give(l.bth(0x0C, 0, true), &reth(l, 0, 4), &[]), Access::REMOTE_READ),
        (|l| l.give(l.bth(0x13, 0, true), &fetch_add(l, 0, 4), &[]), Access::REMOTE_ATOMIC),
    ];
    for (give, right) in requests {
        let others = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
        let lacking = others.into_iter().filter(|a| *a != right).fold(Access::LOCAL_WRITE, Access::and);
        for (setup, nak) in [
            (Setup { access: lacking, ..Setup::default() }, NAK_INVALID),
            (Setup { region: lacking, ..Setup::default() }, NAK_ACCESS),
        ] {
            let mut lab = Lab::with(setup);
            give(&mut lab);
            assert_eq!(acks(&lab.out()), [(0, nak, 0)], "{right:?}");
            assert_eq!(lab.memory(0, 8), [0; 8]);
        }
        let mut lab = Lab::new();
        give(&mut lab);
        assert_eq!(lab.state(), QpState::Rts);
    }
}

#[test]
fn a_send_longer_than_its_receive_ends_it_with_a_length_error() {
    let mut lab = Lab::new();
    lab.post_recv(0);
    lab.give(lab.bth(0x00, 0, false), &NoHeaders, &[0; PMTU]);
    (1..16).for_each(|n| lab.give(lab.bth(0x01, n, false), &NoHeaders, &[0; PMTU]));
    assert_eq!(lab.state(), QpState::Rts, "4096 bytes fit");
    lab.give(lab.bth(0x02, 16, true), &NoHeaders, &[0; 1]);
    assert_eq!(acks(&lab.out()), [(16, NAK_INVALID, 0)]);
    assert_eq!(lab.statuses(), [Status::LocLenErr]);
}

#[test]
fn more_reads_than_allowed_are_refused() {
    let mut lab = Lab::with(Setup { dest_rd_atomic: 2, ..Setup::default() });
    (0..2).for_each(|n| lab.give(lab.bth(0x0C, n, true), &reth(&lab, 0, 4), &[]));
    assert_eq!(lab.names(), ["READ_RESP_ONLY"; 2]);
    (2..5).for_each(|n| lab.give(lab.bth(0x0C, n, true), &reth(&lab, 0, 4), &[]));
    let out = lab.out();
    assert_eq!(
        out.iter().map(|o| o.name).collect::<Vec<_>>(),
        ["READ_RESP_ONLY", "READ_RESP_ONLY", "ACKNOWLEDGE"]
    );
    assert_eq!(acks(&out), [(4, NAK_INVALID, 4)]);
    let mut lab = Lab::with(Setup { dest_rd_atomic: 0, ..Setup::default() });
    lab.give(lab.bth(0x0C, 0, true), &reth(&lab, 0, 4), &[]);
    assert_eq!(acks(&lab.out()), [(0, NAK_INVALID, 0)]);
}

#[test]
fn without_bytes_neither_key_nor_address_is_looked_at() {
    let mut lab = Lab::new();
    let nowhere = Reth::new(1, Rkey(0), 0);
    lab.give(lab.bth(0x0A, 0, true), &nowhere, &[]);
    assert_eq!(acks(&lab.out()), [(0, Syndrome::ACK, 1)]);
    lab.give(lab.bth(0x0C, 1, true), &nowhere, &[]);
    let out = lab.out();
    assert_eq!((out[0].name, out[0].payload.len()), ("READ_RESP_ONLY", 0));
}

#[test]
fn a_send_can_invalidate_a_key_that_allows_it() {
    let mut lab = Lab::new();
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    let region = lab.device.register_invalidable(&arena, all_rights()).unwrap();
    (0..2).for_each(|n| lab.post_recv(n));
    let slice = region.slice(0, 2).unwrap();
    let write = Reth::new(slice.addr, slice.rkey, 2);
    lab.give(lab.bth(0x0A, 0, true), &write, b"in");
    lab.give(lab.bth(0x17, 1, true), &Ieth { rkey: U32::new(region.rkey().0) }, b"gone");
    assert_eq!(acks(&lab.out()), [(1, Syndrome::ACK, 2)]);
    let done = lab.poll();
    let crate::wr::Done::Received(received) = done[0].done else { panic!() };
    assert_eq!((received.invalidated, bytes(&done[0])), (Some(region.rkey()), b"gone".to_vec()));
    lab.give(lab.bth(0x0A, 2, true), &write, b"no");
    assert_eq!(acks(&lab.out()), [(2, NAK_ACCESS, 2)]);

    // An ordinary region may not be invalidated: ERR, and the peer hears nothing.
    let mut lab = Lab::new();
    lab.post_recv(0);
    lab.give(lab.bth(0x17, 0, true), &Ieth { rkey: U32::new(lab.region.rkey().0) }, b"gone");
    assert_eq!((lab.names(), lab.state()), (vec![], QpState::Err));
    assert_eq!(lab.statuses(), [Status::RemInvReqErr]);
}

#[test]
fn a_region_dropped_while_it_is_read_ends_the_connection() {
    let mut lab = Lab::new();
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    let region = lab.device.register(&arena, all_rights()).unwrap();
    let slice = region.slice(0, 4).unwrap();
    lab.give(lab.bth(0x0C, 0, true), &Reth::new(slice.addr, slice.rkey, 4), &[]);
    drop(region);
    assert_eq!(acks(&lab.out()), [(0, NAK_ACCESS, 1)]);
    assert_eq!(lab.state(), QpState::Err);
}

#[test]
fn answers_owed_leave_before_the_refusal() {
    let mut lab = Lab::new();
    lab.give(lab.bth(0x0C, 0, true), &reth(&lab, 0, 2 * PMTU as u32), &[]);
    lab.give(lab.bth(0x01, 2, true), &NoHeaders, &[0; PMTU]);
    assert_eq!(lab.names(), ["READ_RESP_FIRST", "READ_RESP_LAST", "ACKNOWLEDGE"]);
    lab.give(lab.bth(0x0C, 2, true), &reth(&lab, 0, 1), &[]);
    assert_eq!(lab.names(), [""; 0]);
}

#[test]
fn another_protection_domain_has_no_access() {
    let mut lab = Lab::new();
    let stranger = lab.device.with_new_pd();
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    let region = stranger.register(&arena, all_rights()).unwrap();
    let slice = region.slice(0, 4).unwrap();
    lab.give(lab.bth(0x0C, 0, true), &Reth::new(slice.addr, slice.rkey, 4), &[]);
    assert_eq!(acks(&lab.out()), [(0, NAK_ACCESS, 0)]);
}

#[test]
fn immediates_and_solicited_events_arrive() {
    let mut lab = Lab::new();
    (0..2).for_each(|n| lab.post_recv(n));
    let data = ImmDt { data: [1, 2, 3, 4] };
    lab.give(lab.bth(0x05, 0, true), &data, b"x");
    assert!(!lab.transport.take_solicited());
    let both = RethImm { reth: reth(&lab, 0, 1), imm: data };
    lab.give(lab.bth(0x0B, 1, true).with_solicited(true), &both, b"y");
    assert!(lab.transport.take_solicited() && !lab.transport.take_solicited());
    for c in lab.poll() {
        let crate::wr::Done::Received(received) = c.done else { panic!() };
        assert_eq!(received.imm, Some(0x0102_0304));
    }
}

#[test]
fn marked_frames_are_answered_by_notifications_at_a_bounded_rate() {
    let mut lab = Lab::new();
    (0..3).for_each(|n| lab.post_recv(n));
    let mut marked = super::lab::route();
    marked.traffic_class = 3;
    lab.template = crate::wire::HeaderTemplate::new(&marked).unwrap();
    lab.give_send(0, b"a");
    lab.give_send(1, b"b");
    let out = lab.out();
    assert_eq!(out.iter().map(|o| o.name).collect::<Vec<_>>(), ["CNP", "ACKNOWLEDGE"]);
    assert_eq!(out[0].payload, [0; 16]);
    lab.pass(60_000);
    lab.give_send(2, b"c");
    assert_eq!(lab.names(), ["CNP", "ACKNOWLEDGE"]);
    lab.give(Bth::cnp(lab.qpn), &NoHeaders, &Bth::CNP_PAYLOAD);
    assert_eq!(lab.transport.soft_counters().cnps, 1);
    assert_eq!(lab.bth(0x81, 0, false).opcode, Opcode::CNP);
}
