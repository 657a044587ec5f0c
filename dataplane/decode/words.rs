//! One line of words for each RoCE packet.

use std::fmt::{self, Write};

use rdma_engine::wire::cm::{CmMessage, CmReq, CmaHeader, timeout_ns};
use rdma_engine::wire::{IbPacket, MadHeader, Operation, Syndrome, Transport, WireError};
use zerocopy::FromBytes;

use super::conversation::Mark;
use super::dissect::{IcrcVerdict, Packet};
use super::units::{Bytes, Duration};

/// Writes the line of a packet, without its end. `since_ns` is the time since the first frame.
pub(super) fn write_packet(
    out: &mut String,
    packet: &Packet<'_>,
    since_ns: Option<u64>,
    mark: Option<Mark>,
) -> fmt::Result {
    write!(out, "{:>6} ", packet.number)?;
    match since_ns {
        Some(ns) => write!(out, "{:>12.6} ", ns as f64 / 1e9)?,
        None => write!(out, "{:>12} ", "-")?,
    }
    write!(out, "{} -> {}", packet.network.source_ip(), packet.network.destination_ip())?;
    for id in packet.vlans.iter() {
        write!(out, " vlan {id}")?;
    }
    if packet.is_roce_v1() {
        out.push_str(" RoCEv1");
    }
    write_base(out, packet)?;
    match &packet.ib {
        Ok(ib) => write_meaning(out, packet, ib)?,
        Err(error) => write_problem(out, *error)?,
    }
    write_flags(out, packet)?;
    if let Some(oddity) = packet.oddity {
        write!(out, ", {oddity}")?;
    }
    out.push_str(match packet.icrc {
        IcrcVerdict::Good => ", ICRC good",
        IcrcVerdict::Bad => ", ICRC BAD",
        IcrcVerdict::Unknown => ", ICRC unknown",
    });
    match mark {
        Some(mark) => write!(out, "  [{mark}]"),
        None => Ok(()),
    }
}

fn write_base(out: &mut String, packet: &Packet<'_>) -> fmt::Result {
    let bth = packet.bth;
    if packet.info.is_known() {
        write!(out, "  {}", packet.info.name)?;
    } else {
        write!(out, "  {} opcode {:#04x}", packet.info.transport, bth.opcode.0)?;
    }
    write!(out, "  QP {}", bth.dest_qpn.qpn())?;
    if !matches!(packet.info.operation, Operation::CongestionNotification) {
        write!(out, " PSN {}", bth.psn.psn())?;
    }
    Ok(())
}

fn write_problem(out: &mut String, error: WireError) -> fmt::Result {
    match error {
        WireError::TooShort => write!(out, ", headers cut off by the capture"),
        other => write!(out, ", {other}"),
    }
}

fn write_meaning(out: &mut String, packet: &Packet<'_>, ib: &IbPacket<'_>) -> fmt::Result {
    if let Some((mad, message)) = packet.cm() {
        return write_cm(out, mad, &message);
    }
    if let Some(deth) = ib.deth() {
        write!(out, " from QP {}, Q_Key {:#x}", deth.source_qpn.qpn(), deth.qkey.get())?;
    }
    match packet.info.operation {
        Operation::CongestionNotification => out.push_str(", slow down: your packets met congestion"),
        Operation::Acknowledge | Operation::CompareSwap | Operation::FetchAdd => {}
        Operation::ReadRequest | Operation::Flush => {}
        _ => write!(out, ", {}", Bytes(ib.payload_len() as u64))?,
    }
    write_headers(out, packet, ib)?;
    if !ib.pad_fits() {
        write!(out, ", pad {} does not fit", packet.bth.pad())?;
    } else if packet.bth.pad() > 0 {
        write!(out, ", pad {}", packet.bth.pad())?;
    }
    Ok(())
}

fn write_headers(out: &mut String, packet: &Packet<'_>, ib: &IbPacket<'_>) -> fmt::Result {
    if let Some(reth) = ib.reth() {
        let verb = match packet.info.operation {
            Operation::ReadRequest => "asks for",
            Operation::Write if !packet.info.position.ends() => "of a message of",
            _ => "for",
        };
        let (len, addr, rkey) = (reth.len.get(), reth.addr.get(), reth.rkey.get());
        write!(out, ", {verb} {} at {addr:#x}, rkey {rkey:#x}", Bytes(u64::from(len)))?;
    }
    if let Some(atomic) = ib.atomic() {
        let (add, compare) = (atomic.swap_add.get(), atomic.compare.get());
        match packet.info.operation {
            Operation::FetchAdd => write!(out, ", adds {add:#x}")?,
            _ => write!(out, ", makes it {add:#x} if it is {compare:#x}")?,
        }
        write!(out, ", at {:#x}, rkey {:#x}", atomic.addr.get(), atomic.rkey.get())?;
    }
    if let Some(aeth) = ib.aeth() {
        write!(out, ", {}", aeth.meaning())?;
        if let Syndrome::Nak { code: rdma_engine::wire::NakCode::PsnSequence } = aeth.meaning() {
            out.push_str(" (this PSN is the one expected)");
        }
        write!(out, ", MSN {}", aeth.msn.value())?;
    }
    if let Some(atomic) = ib.atomic_ack() {
        write!(out, ", it was {:#x}", atomic.original.get())?;
    }
    if let Some(imm) = ib.imm() {
        write!(out, ", immediate {:#010x}", u32::from_be_bytes(imm.data))?;
    }
    if let Some(ieth) = ib.ieth() {
        write!(out, ", invalidates rkey {:#x}", ieth.rkey.get())?;
    }
    Ok(())
}

fn write_flags(out: &mut String, packet: &Packet<'_>) -> fmt::Result {
    let bth = packet.bth;
    // On datagrams the bit means nothing, but some senders set it.
    if bth.ack_request() && packet.info.transport != Transport::Ud {
        out.push_str(", wants ACK");
    }
    if bth.solicited() {
        out.push_str(", solicited");
    }
    if bth.fecn() {
        out.push_str(", FECN");
    }
    if packet.network.congestion_experienced() {
        out.push_str(", marked by a switch (CE)");
    }
    if bth.pkey.get() != rdma_engine::wire::Bth::DEFAULT_PKEY {
        write!(out, ", P_Key {:#06x}", bth.pkey.get())?;
    }
    Ok(())
}

/// Writes what a connection management message says.
fn write_cm(out: &mut String, mad: &MadHeader, message: &CmMessage<'_>) -> fmt::Result {
    write!(out, ", CM {}", message.attribute())?;
    let ids = |local: u32, remote: u32| format!(" id {local:#010x} for {remote:#010x}");
    match message {
        CmMessage::Req(req) => write_req(out, req)?,
        CmMessage::Rep(rep) => write!(
            out,
            "{}: accepts, QP {}, start with PSN {}, answers {} and issues {} READs at once, RNR retry {}",
            ids(rep.local_comm_id.get(), rep.remote_comm_id.get()),
            rep.local_qpn.qpn(),
            rep.starting_psn.psn(),
            rep.responder_resources,
            rep.initiator_depth,
            Retry(rep.rnr_retry_count())
        )?,
        CmMessage::Rtu(rtu) => {
            write!(out, "{}: ready to use", ids(rtu.local_comm_id.get(), rtu.remote_comm_id.get()))?;
        }
        CmMessage::Rej(rej) => {
            let what = ["REQ", "REP", "connection", "connection"][usize::from(rej.message() & 3)];
            let ids = ids(rej.local_comm_id.get(), rej.remote_comm_id.get());
            write!(out, "{ids}: rejects the {what}, reason {}", rej.reason())?;
        }
        CmMessage::Mra(mra) => write!(
            out,
            "{}: received, wait up to {}",
            ids(mra.local_comm_id.get(), mra.remote_comm_id.get()),
            Duration(timeout_ns(mra.service_timeout()))
        )?,
        CmMessage::Dreq(dreq) => write!(
            out,
            "{}: ends the connection of your QP {}",
            ids(dreq.local_comm_id.get(), dreq.remote_comm_id.get()),
            dreq.remote_qpn.qpn()
        )?,
        CmMessage::Drep(drep) => {
            write!(out, "{}: ended", ids(drep.local_comm_id.get(), drep.remote_comm_id.get()))?;
        }
        CmMessage::SidrReq(req) => {
            write!(
                out,
                " id {:#010x}: asks for the QP of {}",
                req.request_id.get(),
                Service(req.service_id.get())
            )?;
        }
        CmMessage::SidrRep(rep) => match rep.status {
            0 => write!(
                out,
                " id {:#010x}: QP {}, Q_Key {:#x}",
                rep.request_id.get(),
                rep.qpn.qpn(),
                rep.qkey.get()
            )?,
            status => write!(out, " id {:#010x}: refused, status {status}", rep.request_id.get())?,
        },
        CmMessage::Other(_) => {}
    }
    write!(out, ", TID {:#x}", mad.transaction_id.get())
}

fn write_req(out: &mut String, req: &CmReq) -> fmt::Result {
    write!(out, " id {:#010x}: asks for {}", req.local_comm_id.get(), Service(req.service_id.get()))?;
    if let Some((source, destination)) =
        CmaHeader::ref_from_prefix(&req.private_data).ok().and_then(|(cma, _)| cma.addresses())
        && source.is_ipv4() == req.primary.local_gid().ip().is_ipv4()
    {
        write!(out, " ({source} to {destination})")?;
    }
    let mtu = req.path_mtu().map_or("invalid".into(), |mtu| mtu.to_string());
    write!(
        out,
        ", {} QP {}, start with PSN {}, MTU {mtu}, answers {} and issues {} READs at once, retry {}, RNR \
         retry {}, ACK timeout {}",
        ["RC", "UC", "RD", "extended"][usize::from(req.transport() & 3)],
        req.local_qpn.qpn(),
        req.starting_psn.psn(),
        req.responder_resources,
        req.initiator_depth,
        req.retry_count(),
        Retry(req.rnr_retry_count()),
        Duration(timeout_ns(req.primary.ack_timeout()))
    )
}

/// A retry count of three bits whose largest value means "for ever".
struct Retry(u8);

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            7 => f.write_str("without end"),
            n => write!(f, "{n}"),
        }
    }
}

/// A service id, as the IP port it stands for where it does.
pub(super) struct Service(pub(super) u64);

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0 & 0xFFFF;
        match self.0 >> 16 {
            0x0106 => write!(f, "port {port} (RDMA_PS_TCP)"),
            0x0111 => write!(f, "port {port} (RDMA_PS_UDP)"),
            _ => write!(f, "service {:#x}", self.0),
        }
    }
}
