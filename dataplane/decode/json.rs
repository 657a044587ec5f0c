//! One JSON object for each RoCE packet, and for each conversation where asked for.

use std::collections::BTreeMap;

use rdma_engine::wire::IbPacket;
use rdma_engine::wire::cm::CmMessage;
use serde::Serialize;
use serde_json::{Value, json};

use super::conversation::Mark;
use super::dissect::{IcrcVerdict, Packet};

/// Extended headers by name.
type Headers = BTreeMap<&'static str, Value>;

/// Fields that every packet has.
#[derive(Serialize)]
struct Base {
    frame: u64,
    /// Nanoseconds since 1970; absent where the file tells no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<u64>,
    src: String,
    dst: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vlan: Vec<u16>,
    encapsulation: &'static str,
    src_port: u16,
    opcode: &'static str,
    opcode_value: u8,
    transport: String,
    dest_qpn: u32,
    psn: u32,
    pkey: u16,
    ack_request: bool,
    solicited: bool,
    migrated: bool,
    fecn: bool,
    becn: bool,
    ce: bool,
    pad: u8,
    payload_len: usize,
    icrc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
    #[serde(flatten)]
    headers: Headers,
}

/// The object of a packet.
pub(super) fn packet(packet: &Packet<'_>, mark: Option<Mark>) -> serde_json::Result<String> {
    let bth = packet.bth;
    let base = Base {
        frame: packet.number,
        time_ns: packet.time_ns,
        src: packet.network.source_ip().to_string(),
        dst: packet.network.destination_ip().to_string(),
        vlan: packet.vlans.iter().collect(),
        encapsulation: if packet.is_roce_v1() { "RoCEv1" } else { "RoCEv2" },
        src_port: packet.source_port,
        opcode: packet.info.name,
        opcode_value: bth.opcode.0,
        transport: packet.info.transport.to_string(),
        dest_qpn: bth.dest_qpn.value(),
        psn: bth.psn.value(),
        pkey: bth.pkey.get(),
        ack_request: bth.ack_request(),
        solicited: bth.solicited(),
        migrated: bth.migrated(),
        fecn: bth.fecn(),
        becn: bth.becn(),
        ce: packet.network.congestion_experienced(),
        pad: bth.pad(),
        payload_len: packet.payload_len(),
        icrc: match packet.icrc {
            IcrcVerdict::Good => "ok",
            IcrcVerdict::Bad => "bad",
            IcrcVerdict::Unknown => "unknown",
        },
        problem: packet.problem(),
        mark: mark.map(|mark| mark.to_string()),
        headers: packet.ib.as_ref().map(|ib| headers(packet, ib)).unwrap_or_default(),
    };
    serde_json::to_string(&base)
}

/// Extended headers. 64-bit values are strings in hexadecimal: readers that know only doubles would round
/// them.
fn headers(packet: &Packet<'_>, ib: &IbPacket<'_>) -> Headers {
    let mut map = Headers::new();
    if let Some(reth) = ib.reth() {
        let value = json!({"addr": hex(reth.addr.get()), "rkey": reth.rkey.get(), "len": reth.len.get()});
        map.insert("reth", value);
    }
    if let Some(aeth) = ib.aeth() {
        let value = json!({
            "syndrome": aeth.syndrome,
            "meaning": aeth.meaning().to_string(),
            "msn": aeth.msn.value(),
        });
        map.insert("aeth", value);
    }
    if let Some(atomic) = ib.atomic() {
        let value = json!({
            "addr": hex(atomic.addr.get()),
            "rkey": atomic.rkey.get(),
            "swap_add": hex(atomic.swap_add.get()),
            "compare": hex(atomic.compare.get()),
        });
        map.insert("atomic", value);
    }
    if let Some(atomic) = ib.atomic_ack() {
        map.insert("atomic_ack", json!({"original": hex(atomic.original.get())}));
    }
    if let Some(imm) = ib.imm() {
        map.insert("imm", json!(format!("{:#010x}", u32::from_be_bytes(imm.data))));
    }
    if let Some(ieth) = ib.ieth() {
        map.insert("ieth", json!({"rkey": ieth.rkey.get()}));
    }
    if let Some(deth) = ib.deth() {
        map.insert("deth", json!({"qkey": deth.qkey.get(), "source_qpn": deth.source_qpn.value()}));
    }
    if let Some((mad, message)) = packet.cm() {
        map.insert("cm", cm(mad.transaction_id.get(), &message));
    }
    map
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

fn cm(transaction_id: u64, message: &CmMessage<'_>) -> Value {
    let mut value = match message {
        CmMessage::Req(req) => json!({
            "local_comm_id": req.local_comm_id.get(),
            "service_id": hex(req.service_id.get()),
            "local_qpn": req.local_qpn.value(),
            "starting_psn": req.starting_psn.value(),
            "path_mtu": req.path_mtu().map(|mtu| mtu.bytes()),
            "responder_resources": req.responder_resources,
            "initiator_depth": req.initiator_depth,
            "retry_count": req.retry_count(),
            "rnr_retry_count": req.rnr_retry_count(),
            "ack_timeout": req.primary.ack_timeout(),
            "local_gid": req.primary.local_gid().to_string(),
            "remote_gid": req.primary.remote_gid().to_string(),
        }),
        CmMessage::Rep(rep) => json!({
            "local_comm_id": rep.local_comm_id.get(),
            "remote_comm_id": rep.remote_comm_id.get(),
            "local_qpn": rep.local_qpn.value(),
            "starting_psn": rep.starting_psn.value(),
            "responder_resources": rep.responder_resources,
            "initiator_depth": rep.initiator_depth,
            "rnr_retry_count": rep.rnr_retry_count(),
        }),
        CmMessage::Rej(rej) => json!({
            "local_comm_id": rej.local_comm_id.get(),
            "remote_comm_id": rej.remote_comm_id.get(),
            "reason": rej.reason().0,
            "meaning": rej.reason().words(),
        }),
        CmMessage::Dreq(dreq) => json!({
            "local_comm_id": dreq.local_comm_id.get(),
            "remote_comm_id": dreq.remote_comm_id.get(),
            "remote_qpn": dreq.remote_qpn.value(),
        }),
        CmMessage::Mra(mra) => ids(mra.local_comm_id.get(), mra.remote_comm_id.get()),
        CmMessage::Rtu(rtu) => ids(rtu.local_comm_id.get(), rtu.remote_comm_id.get()),
        CmMessage::Drep(drep) => ids(drep.local_comm_id.get(), drep.remote_comm_id.get()),
        CmMessage::SidrReq(req) => json!({
            "request_id": req.request_id.get(),
            "service_id": hex(req.service_id.get()),
        }),
        CmMessage::SidrRep(rep) => json!({
            "request_id": rep.request_id.get(),
            "status": rep.status,
            "qpn": rep.qpn.value(),
            "qkey": rep.qkey.get(),
        }),
        CmMessage::Other(_) => json!({}),
    };
    if let Some(map) = value.as_object_mut() {
        map.insert("message".into(), json!(message.attribute().name()));
        map.insert("transaction_id".into(), json!(hex(transaction_id)));
    }
    value
}

fn ids(local: u32, remote: u32) -> Value {
    json!({"local_comm_id": local, "remote_comm_id": remote})
}
