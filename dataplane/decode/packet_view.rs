//! What the conversations need of a packet: plain values, nothing borrowed.

use rdma_engine::types::{Gid, Psn, Qpn};
use rdma_engine::wire::{IbPacket, Network, OpcodeInfo, Operation, Syndrome};

use super::dissect::{IcrcVerdict, Packet};

/// A frame and when it was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) frame: u64,
    pub(super) time_ns: Option<u64>,
}

impl Moment {
    /// Nanoseconds since `earlier`, if both times are known and in order.
    pub(super) fn since_ns(&self, earlier: &Moment) -> Option<u64> {
        self.time_ns?.checked_sub(earlier.time_ns?)
    }
}

/// Memory of the peer that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Remote {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    /// Bytes; 8 for atomics.
    pub(super) len: u32,
}

/// What else a BTH says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BthBits {
    pub(super) ack_request: bool,
    pub(super) solicited: bool,
    pub(super) pad: u8,
    pub(super) pkey: u16,
}

/// A packet, by value.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) moment: Moment,
    pub(super) source: Gid,
    pub(super) destination: Gid,
    pub(super) source_port: u16,
    /// IPv4 identification, 0 where there is none.
    pub(super) ip_id: u16,
    pub(super) congestion_experienced: bool,
    pub(super) info: &'static OpcodeInfo,
    pub(super) opcode: u8,
    pub(super) dest_qpn: Qpn,
    pub(super) psn: Psn,
    pub(super) payload_len: u32,
    pub(super) bits: BthBits,
    pub(super) remote: Option<Remote>,
    pub(super) syndrome: Option<Syndrome>,
    /// The AETH as it is: syndrome byte and MSN.
    pub(super) aeth: Option<(u8, u32)>,
    /// What an atomic found.
    pub(super) original: Option<u64>,
    pub(super) imm: bool,
    pub(super) invalidate: bool,
    /// Sender, of datagrams.
    pub(super) source_qpn: Option<Qpn>,
    pub(super) icrc: IcrcVerdict,
    /// False if the headers were cut off or make no sense.
    pub(super) intact: bool,
}

impl View {
    pub(super) fn of(packet: &Packet<'_>) -> Self {
        let (ib, bth) = (packet.ib.as_ref().ok(), packet.bth);
        let aeth = ib.and_then(|ib| ib.aeth());
        View {
            moment: Moment { frame: packet.number, time_ns: packet.time_ns },
            source: packet.source(),
            destination: packet.destination(),
            source_port: packet.source_port,
            ip_id: match packet.network {
                Network::V4(ip) => ip.id.get(),
                _ => 0,
            },
            congestion_experienced: packet.network.congestion_experienced(),
            info: packet.info,
            opcode: bth.opcode.0,
            dest_qpn: bth.dest_qpn.qpn(),
            psn: bth.psn.psn(),
            payload_len: packet.payload_len() as u32,
            bits: BthBits {
                ack_request: bth.ack_request(),
                solicited: bth.solicited(),
                pad: bth.pad(),
                pkey: bth.pkey.get(),
            },
            remote: ib.and_then(remote),
            syndrome: aeth.map(|aeth| aeth.meaning()),
            aeth: aeth.map(|aeth| (aeth.syndrome, aeth.msn.value())),
            original: ib.and_then(|ib| ib.atomic_ack()).map(|atomic| atomic.original.get()),
            imm: ib.is_some_and(|ib| ib.imm().is_some()),
            invalidate: ib.is_some_and(|ib| ib.ieth().is_some()),
            source_qpn: ib.and_then(|ib| ib.deth()).map(|deth| deth.source_qpn.qpn()),
            icrc: packet.icrc,
            intact: ib.is_some(),
        }
    }

    pub(super) fn is_cnp(&self) -> bool {
        self.info.operation == Operation::CongestionNotification
    }
}

fn remote(ib: &IbPacket<'_>) -> Option<Remote> {
    let reth =
        ib.reth().map(|reth| Remote { addr: reth.addr.get(), rkey: reth.rkey.get(), len: reth.len.get() });
    reth.or_else(|| {
        ib.atomic().map(|atomic| Remote { addr: atomic.addr.get(), rkey: atomic.rkey.get(), len: 8 })
    })
}
