//! The opcode table: one row per opcode, everything else derived from it.

use super::opcode::{AckRule, Header, HeaderSet, OpcodeInfo, Operation, PayloadRule, Position, Transport};
use Header::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth};
use Operation as Op;
use PayloadRule::{Eight, Full, None, Sixteen, SomeUpToFull, UpToFull};
use Position::{First, Last, Middle, Only};

/// Opcode, name, operation, position, headers, payload.
type Row = (u8, &'static str, Operation, Position, &'static [Header], PayloadRule);

/// Every opcode that means something here.
const ROWS: [Row; 41] = [
    (0x00, "RC_SEND_FIRST", Op::Send, First, &[], Full),
    (0x01, "RC_SEND_MIDDLE", Op::Send, Middle, &[], Full),
    (0x02, "RC_SEND_LAST", Op::Send, Last, &[], SomeUpToFull),
    (0x03, "RC_SEND_LAST_IMM", Op::Send, Last, &[ImmDt], SomeUpToFull),
    (0x04, "RC_SEND_ONLY", Op::Send, Only, &[], UpToFull),
    (0x05, "RC_SEND_ONLY_IMM", Op::Send, Only, &[ImmDt], UpToFull),
    (0x06, "RC_WRITE_FIRST", Op::Write, First, &[Reth], Full),
    (0x07, "RC_WRITE_MIDDLE", Op::Write, Middle, &[], Full),
    (0x08, "RC_WRITE_LAST", Op::Write, Last, &[], SomeUpToFull),
    (0x09, "RC_WRITE_LAST_IMM", Op::Write, Last, &[ImmDt], SomeUpToFull),
    (0x0A, "RC_WRITE_ONLY", Op::Write, Only, &[Reth], UpToFull),
    (0x0B, "RC_WRITE_ONLY_IMM", Op::Write, Only, &[Reth, ImmDt], UpToFull),
    (0x0C, "RC_READ_REQUEST", Op::ReadRequest, Only, &[Reth], None),
    (0x0D, "RC_READ_RESP_FIRST", Op::ReadResponse, First, &[Aeth], Full),
    (0x0E, "RC_READ_RESP_MIDDLE", Op::ReadResponse, Middle, &[], Full),
    (0x0F, "RC_READ_RESP_LAST", Op::ReadResponse, Last, &[Aeth], SomeUpToFull),
    (0x10, "RC_READ_RESP_ONLY", Op::ReadResponse, Only, &[Aeth], UpToFull),
    (0x11, "RC_ACKNOWLEDGE", Op::Acknowledge, Only, &[Aeth], None),
    (0x12, "RC_ATOMIC_ACKNOWLEDGE", Op::AtomicAcknowledge, Only, &[Aeth, AtomicAckEth], None),
    (0x13, "RC_COMPARE_SWAP", Op::CompareSwap, Only, &[AtomicEth], None),
    (0x14, "RC_FETCH_ADD", Op::FetchAdd, Only, &[AtomicEth], None),
    (0x16, "RC_SEND_LAST_INV", Op::Send, Last, &[Ieth], SomeUpToFull),
    (0x17, "RC_SEND_ONLY_INV", Op::Send, Only, &[Ieth], UpToFull),
    (0x1C, "RC_FLUSH", Op::Flush, Only, &[Feth, Reth], None),
    (0x1D, "RC_ATOMIC_WRITE", Op::AtomicWrite, Only, &[Reth], Eight),
    (0x20, "UC_SEND_FIRST", Op::Send, First, &[], Full),
    (0x21, "UC_SEND_MIDDLE", Op::Send, Middle, &[], Full),
    (0x22, "UC_SEND_LAST", Op::Send, Last, &[], SomeUpToFull),
    (0x23, "UC_SEND_LAST_IMM", Op::Send, Last, &[ImmDt], SomeUpToFull),
    (0x24, "UC_SEND_ONLY", Op::Send, Only, &[], UpToFull),
    (0x25, "UC_SEND_ONLY_IMM", Op::Send, Only, &[ImmDt], UpToFull),
    (0x26, "UC_WRITE_FIRST", Op::Write, First, &[Reth], Full),
    (0x27, "UC_WRITE_MIDDLE", Op::Write, Middle, &[], Full),
    (0x28, "UC_WRITE_LAST", Op::Write, Last, &[], SomeUpToFull),
    (0x29, "UC_WRITE_LAST_IMM", Op::Write, Last, &[ImmDt], SomeUpToFull),
    (0x2A, "UC_WRITE_ONLY", Op::Write, Only, &[Reth], UpToFull),
    (0x2B, "UC_WRITE_ONLY_IMM", Op::Write, Only, &[Reth, ImmDt], UpToFull),
    (0x64, "UD_SEND_ONLY", Op::Send, Only, &[Deth], UpToFull),
    (0x65, "UD_SEND_ONLY_IMM", Op::Send, Only, &[Deth, ImmDt], UpToFull),
    (0x81, "CNP", Op::CongestionNotification, Only, &[], Sixteen),
    // Ours, among those left to manufacturers: only sent where both ends have agreed on it.
    (0xD1, "vendor_SACK", Op::SelectiveAcknowledge, Only, &[Aeth], UpToFull),
];

/// The row of every opcode, indexed by its byte.
pub static OPCODES: [OpcodeInfo; 256] = build();

const fn build() -> [OpcodeInfo; 256] {
    let mut table = [row(&(0, "UNKNOWN", Op::Unknown, Only, &[], None)); 256];
    let mut opcode = 0;
    while opcode < 256 {
        table[opcode].transport = transport_of(opcode as u8);
        opcode += 1;
    }
    let mut i = 0;
    while i < ROWS.len() {
        table[ROWS[i].0 as usize] = row(&ROWS[i]);
        i += 1;
    }
    table
}

const fn row(row: &Row) -> OpcodeInfo {
    let (opcode, name, operation, position, headers, payload) = *row;
    let headers = HeaderSet::of(headers);
    let transport = transport_of(opcode);
    assert!(headers.len() <= HeaderSet::MAX_LEN);
    OpcodeInfo {
        name,
        offsets: headers.offsets(),
        headers,
        headers_len: headers.len() as u8,
        transport,
        operation,
        position,
        payload,
        ack: ack_rule(transport, operation),
    }
}

const fn transport_of(opcode: u8) -> Transport {
    match opcode >> 5 {
        0 => Transport::Rc,
        1 => Transport::Uc,
        2 => Transport::Rd,
        3 => Transport::Ud,
        4 => Transport::Cnp,
        5 => Transport::Xrc,
        _ => Transport::Vendor,
    }
}

const fn ack_rule(transport: Transport, operation: Operation) -> AckRule {
    match (transport, operation) {
        (Transport::Rc, Op::Send | Op::Write) => AckRule::OnRequest,
        (Transport::Rc, Op::ReadRequest | Op::CompareSwap | Op::FetchAdd | Op::Flush | Op::AtomicWrite) => {
            AckRule::OwnResponse
        }
        _ => AckRule::Never,
    }
}
