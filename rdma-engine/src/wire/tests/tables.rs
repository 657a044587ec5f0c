//! The opcode table and the code tables agree with themselves and with the standard.

use std::collections::HashSet;

use crate::types::{Psn, Qpn};
use crate::wire::*;

fn known() -> impl Iterator<Item = (Opcode, &'static OpcodeInfo)> {
    (0..=255).map(Opcode).map(|opcode| (opcode, opcode.info())).filter(|(_, info)| info.is_known())
}

#[test]
fn names_are_unique_and_say_the_transport() {
    let names: HashSet<_> = known().map(|(_, info)| info.name).collect();
    assert_eq!(names.len(), known().count());
    for (opcode, info) in known().filter(|(opcode, _)| *opcode != Opcode::CNP) {
        let (transport, operation) = info.name.split_once('_').unwrap();
        assert_eq!(transport, info.transport.to_string(), "{opcode:?}");
        assert_eq!(operation, info.operation_name());
    }
    assert_eq!(Opcode::CNP.info().operation_name(), "CNP");
}

#[test]
fn constructors_find_the_rows_they_mean() {
    let positions = [Position::First, Position::Middle, Position::Last, Position::Only];
    let tails = [Tailing::Plain, Tailing::Immediate, Tailing::Invalidate];
    for transport in [Transport::Rc, Transport::Uc] {
        for position in positions {
            for tail in tails {
                let info = Opcode::send(transport, position, tail).info();
                assert_eq!((info.operation, info.position), (Operation::Send, position));
                assert_eq!(info.transport, transport);
                let imm = position.ends() && tail == Tailing::Immediate;
                assert_eq!(info.headers.contains(Header::ImmDt), imm);
                let inv = position.ends() && tail == Tailing::Invalidate && transport == Transport::Rc;
                assert_eq!(info.headers.contains(Header::Ieth), inv);
            }
            for imm in [false, true] {
                let info = Opcode::write(transport, position, imm).info();
                assert_eq!((info.operation, info.position), (Operation::Write, position));
                assert_eq!(info.headers.contains(Header::Reth), position.starts());
                assert_eq!(info.takes_receive(), imm && position.ends());
            }
        }
    }
    for position in positions {
        let info = Opcode::read_response(position).info();
        assert_eq!((info.operation, info.position), (Operation::ReadResponse, position));
        assert_eq!(info.headers.contains(Header::Aeth), position != Position::Middle);
    }
    for tail in [Tailing::Plain, Tailing::Immediate] {
        let info = Opcode::send(Transport::Ud, Position::Only, tail).info();
        assert!(info.is_known() && info.headers.contains(Header::Deth));
    }
}

#[test]
fn only_full_packets_come_before_the_last() {
    for (opcode, info) in known() {
        let rule = info.payload;
        if !info.position.ends() {
            assert_eq!(rule, PayloadRule::Full, "{opcode:?}");
        }
        assert_eq!(
            rule.permits(1024, 1024),
            !matches!(rule, PayloadRule::None | PayloadRule::Eight | PayloadRule::Sixteen)
        );
        assert!(!rule.permits(1025, 1024));
        assert_eq!(rule.permits(0, 1024), matches!(rule, PayloadRule::None | PayloadRule::UpToFull));
    }
}

#[test]
fn answers_are_due_for_reliable_requests_only() {
    for (opcode, info) in known() {
        let due = info.transport == Transport::Rc && info.is_request();
        assert_eq!(info.ack != AckRule::Never, due, "{opcode:?}");
    }
    assert_eq!(Opcode::RC_READ_REQUEST.info().ack, AckRule::OwnResponse);
    assert_eq!(Opcode::send(Transport::Rc, Position::First, Tailing::Plain).info().ack, AckRule::OnRequest);
}

#[test]
fn header_lengths_are_those_of_the_structs() {
    assert_eq!(Opcode::RC_ATOMIC_ACKNOWLEDGE.info().headers_len, 12);
    assert_eq!(Opcode::RC_FETCH_ADD.info().headers_len, 28);
    assert_eq!(Opcode::write(Transport::Rc, Position::Only, true).info().headers_len, 20);
    assert_eq!(Opcode::UD_SEND_ONLY_IMM.info().headers_len, 12);
    assert!(known().all(|(_, info)| info.headers.len() == usize::from(info.headers_len)));
    assert_eq!(<RethImm as ExtendedHeaders>::SET.len(), size_of::<RethImm>());
    assert_eq!(<AethAtomicAck as ExtendedHeaders>::SET.len(), size_of::<AethAtomicAck>());
    assert_eq!(<DethImm as ExtendedHeaders>::SET.len(), size_of::<DethImm>());
    assert_eq!(<FethReth as ExtendedHeaders>::SET.len(), size_of::<FethReth>());
    assert!(<NoHeaders as ExtendedHeaders>::SET.is_empty() && size_of::<NoHeaders>() == 0);
}

#[test]
fn every_syndrome_byte_keeps_its_value() {
    for byte in 0..=255 {
        assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        assert!(!Syndrome::from_byte(byte).to_string().is_empty());
    }
    assert_eq!(Syndrome::from_byte(0x1F), Syndrome::ACK);
    assert_eq!(Syndrome::from_byte(0x60), Syndrome::Nak { code: NakCode::PsnSequence });
    assert_eq!(Syndrome::from_byte(0x62).to_string(), "NAK, remote access error");
    assert_eq!(Syndrome::from_byte(0x20).to_string(), "RNR NAK, no receive posted, wait 655.36 ms");
    assert_eq!(Syndrome::from_byte(0x40), Syndrome::Reserved(0x40));
    assert_eq!(Syndrome::from_byte(0xE0), Syndrome::Reserved(0xE0));
}

#[test]
fn rnr_codes_and_waits_match() {
    assert_eq!(RnrTimer::new(0).wait_ns(), 655_360_000);
    assert_eq!(RnrTimer::new(12).wait_ns(), 640_000);
    assert_eq!(RnrTimer::new(31).wait_ns(), 491_520_000);
    assert_eq!(RnrTimer::at_least_ns(0).code(), 1);
    assert_eq!(RnrTimer::at_least_ns(10_001).code(), 2);
    assert_eq!(RnrTimer::at_least_ns(500_000_000).code(), 0);
    for code in 0..32 {
        let timer = RnrTimer::new(code);
        assert_eq!(RnrTimer::at_least_ns(timer.wait_ns()), timer);
    }
}

#[test]
fn credit_codes_and_counts_match() {
    assert_eq!(CreditCode::UNLIMITED.credits(), None);
    assert_eq!(CreditCode::new(30).credits(), Some(32768));
    assert_eq!(CreditCode::new(5).credits(), Some(6));
    assert_eq!(CreditCode::at_most(0).code(), 0);
    assert_eq!(CreditCode::at_most(5).code(), 4);
    assert_eq!(CreditCode::at_most(u16::MAX).code(), 30);
}

#[test]
fn positions_of_a_message() {
    let of = |count| (0..count).map(|i| Position::of(i, count)).collect::<Vec<_>>();
    assert_eq!(of(1), [Position::Only]);
    assert_eq!(of(2), [Position::First, Position::Last]);
    assert_eq!(of(3), [Position::First, Position::Middle, Position::Last]);
}

#[test]
fn bth_bits_do_not_disturb_each_other() {
    let bth = Bth::new(Opcode::RC_ACKNOWLEDGE, Qpn::new(0xABCDEF), Psn::new(0x123456));
    let all = bth.with_solicited(true).with_migrated(true).with_ack_request(true).with_pad_for(61);
    assert!(all.solicited() && all.migrated() && all.ack_request());
    assert_eq!((all.pad(), all.transport_version()), (3, 0));
    assert_eq!(all.psn.psn(), Psn::new(0x123456));
    let none = all.with_solicited(false).with_migrated(false).with_ack_request(false).with_pad_for(64);
    assert_eq!(none, bth);
    let pads: Vec<_> = (0..5).map(Bth::pad_for).collect();
    assert_eq!(pads, [0, 3, 2, 1, 0]);
}

#[test]
fn partition_keys_match_by_number_and_membership() {
    assert!(pkeys_match(0xFFFF, 0x7FFF) && pkeys_match(0xFFFF, 0xFFFF));
    assert!(!pkeys_match(0x7FFF, 0x7FFF) && !pkeys_match(0xFFFF, 0x8001));
}
