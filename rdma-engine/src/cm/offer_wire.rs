//! An [`Offer`] and its [`Terms`] as tagged values.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::negotiate::Terms;
use super::offer::{Features, Offer, QpOffer, RegionOffer, ServiceId, ServiceKind, TransportKind};
use super::tlv::{Malformed, Values, exactly, first, put, row, text};
use crate::mem::Access;
use crate::types::{Gid, Pmtu, Psn, QpType, Qpn, Rkey};

pub(super) const TAG_SERVICE: u16 = 2;
pub(super) const TAG_ENDPOINT: u16 = 3;
pub(super) const TAG_QPS: u16 = 4;
pub(super) const TAG_REGIONS: u16 = 5;
pub(super) const TAG_BLOB: u16 = 6;
pub(super) const TAG_TERMS: u16 = 7;
pub(super) const TAG_APPLICATION: u16 = 9;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireEndpoint {
    transport: U16,
    qp_type: u8,
    path_mtu: u8,
    features: U64,
    gid: [u8; 16],
    mac: [u8; 6],
    mac_present: u8,
    min_rnr_timer: u8,
    ack_timeout: u8,
    retry_count: u8,
    rnr_retry: u8,
    initiator_depth: u8,
    responder_depth: u8,
    reserved: u8,
    workers: U16,
    max_segments: U16,
    message_size: U32,
    min_message_size: U32,
    jumbo_payload: U32,
    qkey: U32,
    keepalive_ms: U32,
    dead_after_ms: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireQp {
    qpn: U32,
    psn: U32,
    worker: U16,
    udp_source_port: U16,
    receive_credits: U16,
    lane: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireRegion {
    addr: U64,
    len: U64,
    rkey: U32,
    access: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireTerms {
    qp_type: u8,
    path_mtu: u8,
    initiator_depth: u8,
    responder_depth: u8,
    min_rnr_timer: u8,
    ack_timeout: u8,
    retry_count: u8,
    rnr_retry: u8,
    features: U64,
    jumbo_payload: U32,
    message_size: U32,
    max_segments: U16,
    qp_pairs: U16,
    keepalive_ms: U32,
    dead_after_ms: U32,
}

const _: () = {
    assert!(size_of::<WireEndpoint>() == 70);
    assert!(size_of::<WireQp>() == 16);
    assert!(size_of::<WireRegion>() == 24);
    assert!(size_of::<WireTerms>() == 36);
};

fn qp_type_code(qp_type: QpType) -> u8 {
    match qp_type {
        QpType::Rc => 1,
        QpType::Uc => 2,
        QpType::Ud => 3,
    }
}

fn qp_type_from(code: u8) -> Result<QpType, Malformed> {
    match code {
        1 => Ok(QpType::Rc),
        2 => Ok(QpType::Uc),
        3 => Ok(QpType::Ud),
        _ => Err(Malformed::Code("qp_type", u64::from(code))),
    }
}

fn path_mtu_from(code: u8) -> Result<Pmtu, Malformed> {
    Pmtu::from_code(code).ok_or(Malformed::Code("path_mtu", u64::from(code)))
}

/// Appends `offer`; it must have passed [`Offer::check`].
pub(super) fn put_offer(out: &mut Vec<u8>, offer: &Offer) {
    put(out, TAG_SERVICE, |out| {
        out.extend_from_slice(&offer.service.kind.code().to_be_bytes());
        out.extend_from_slice(offer.service.name.as_bytes());
    });
    put(out, TAG_ENDPOINT, |out| out.extend_from_slice(WireEndpoint::from(offer).as_bytes()));
    put(out, TAG_QPS, |out| {
        offer.qps.iter().for_each(|qp| out.extend_from_slice(WireQp::from(qp).as_bytes()));
    });
    put(out, TAG_REGIONS, |out| {
        offer.regions.iter().for_each(|region| out.extend_from_slice(WireRegion::from(region).as_bytes()));
    });
    put(out, TAG_BLOB, |out| out.extend_from_slice(&offer.blob));
    if !offer.application.is_empty() {
        put(out, TAG_APPLICATION, |out| out.extend_from_slice(&offer.application));
    }
}

/// The offer among `values`, within its bounds.
pub(super) fn take_offer(values: &Values<'_>) -> Result<Offer, Malformed> {
    let (kind, name) = first::<U16>(values.required(TAG_SERVICE, "the service")?, "the service")?;
    let service =
        ServiceId { kind: ServiceKind::from_code(kind.get()), name: text(name, "the service name")? };
    let wire: WireEndpoint = exactly(values.required(TAG_ENDPOINT, "the endpoint")?, "the endpoint")?;
    let qps = row::<WireQp>(values.required(TAG_QPS, "the list of queue pairs")?, "the list of queue pairs")?;
    let regions = row::<WireRegion>(values.optional(TAG_REGIONS).unwrap_or(&[]), "the list of regions")?;
    let offer = Offer {
        features: Features(wire.features.get()),
        qp_type: qp_type_from(wire.qp_type)?,
        mac: (wire.mac_present != 0).then_some(wire.mac),
        path_mtu: path_mtu_from(wire.path_mtu)?,
        jumbo_payload: wire.jumbo_payload.get(),
        initiator_depth: wire.initiator_depth,
        responder_depth: wire.responder_depth,
        min_rnr_timer: wire.min_rnr_timer,
        ack_timeout: wire.ack_timeout,
        retry_count: wire.retry_count,
        rnr_retry: wire.rnr_retry,
        message_size: wire.message_size.get(),
        min_message_size: wire.min_message_size.get(),
        max_segments: wire.max_segments.get(),
        workers: wire.workers.get(),
        qkey: wire.qkey.get(),
        keepalive_ms: wire.keepalive_ms.get(),
        dead_after_ms: wire.dead_after_ms.get(),
        qps: qps.iter().map(qp_from).collect::<Result<_, _>>()?,
        regions: regions.iter().map(region_from).collect(),
        blob: values.optional(TAG_BLOB).unwrap_or(&[]).to_vec(),
        application: values.optional(TAG_APPLICATION).unwrap_or(&[]).to_vec(),
        ..Offer::new(service, transport_from(wire.transport.get())?, Gid(wire.gid))
    };
    offer.check()?;
    Ok(offer)
}

fn transport_from(code: u16) -> Result<TransportKind, Malformed> {
    TransportKind::from_code(code).ok_or(Malformed::Code("transport", u64::from(code)))
}

impl From<&Offer> for WireEndpoint {
    fn from(offer: &Offer) -> Self {
        WireEndpoint {
            transport: U16::new(offer.transport as u16),
            qp_type: qp_type_code(offer.qp_type),
            path_mtu: offer.path_mtu.code(),
            features: U64::new(offer.features.0),
            gid: offer.gid.0,
            mac: offer.mac.unwrap_or_default(),
            mac_present: u8::from(offer.mac.is_some()),
            min_rnr_timer: offer.min_rnr_timer,
            ack_timeout: offer.ack_timeout,
            retry_count: offer.retry_count,
            rnr_retry: offer.rnr_retry,
            initiator_depth: offer.initiator_depth,
            responder_depth: offer.responder_depth,
            reserved: 0,
            workers: U16::new(offer.workers),
            max_segments: U16::new(offer.max_segments),
            message_size: U32::new(offer.message_size),
            min_message_size: U32::new(offer.min_message_size),
            jumbo_payload: U32::new(offer.jumbo_payload),
            qkey: U32::new(offer.qkey),
            keepalive_ms: U32::new(offer.keepalive_ms),
            dead_after_ms: U32::new(offer.dead_after_ms),
        }
    }
}

impl From<&QpOffer> for WireQp {
    fn from(qp: &QpOffer) -> Self {
        WireQp {
            qpn: U32::new(qp.qpn.value()),
            psn: U32::new(qp.psn.value()),
            worker: U16::new(qp.worker),
            udp_source_port: U16::new(qp.udp_source_port),
            receive_credits: U16::new(qp.receive_credits),
            lane: U16::new(qp.lane),
        }
    }
}

fn qp_from(wire: &WireQp) -> Result<QpOffer, Malformed> {
    let (qpn, psn) = (Qpn::new(wire.qpn.get()), Psn::new(wire.psn.get()));
    if qpn.value() != wire.qpn.get() {
        return Err(Malformed::Code("qpn", u64::from(wire.qpn.get())));
    }
    if psn.value() != wire.psn.get() {
        return Err(Malformed::Code("psn", u64::from(wire.psn.get())));
    }
    Ok(QpOffer {
        qpn,
        psn,
        worker: wire.worker.get(),
        udp_source_port: wire.udp_source_port.get(),
        receive_credits: wire.receive_credits.get(),
        lane: wire.lane.get(),
    })
}

impl From<&RegionOffer> for WireRegion {
    fn from(region: &RegionOffer) -> Self {
        WireRegion {
            addr: U64::new(region.addr),
            len: U64::new(region.len),
            rkey: U32::new(region.rkey.0),
            access: U32::new(remote_rights(|right| region.access.allows(right)).bits()),
        }
    }
}

/// The remote rights that `has` confirms; local ones are the owner's business.
fn remote_rights(has: impl Fn(Access) -> bool) -> Access {
    [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC]
        .into_iter()
        .filter(|right| has(*right))
        .fold(Access::LOCAL, Access::and)
}

fn region_from(wire: &WireRegion) -> RegionOffer {
    RegionOffer {
        addr: wire.addr.get(),
        len: wire.len.get(),
        rkey: Rkey(wire.rkey.get()),
        access: remote_rights(|right| wire.access.get() & right.bits() != 0),
    }
}

/// Appends `terms` as the sender sees them.
pub(super) fn put_terms(out: &mut Vec<u8>, terms: &Terms) {
    let wire = WireTerms {
        qp_type: qp_type_code(terms.qp_type),
        path_mtu: terms.path_mtu.code(),
        initiator_depth: terms.initiator_depth,
        responder_depth: terms.responder_depth,
        min_rnr_timer: terms.min_rnr_timer,
        ack_timeout: terms.ack_timeout,
        retry_count: terms.retry_count,
        rnr_retry: terms.rnr_retry,
        features: U64::new(terms.features.0),
        jumbo_payload: U32::new(terms.jumbo_payload),
        message_size: U32::new(terms.message_size),
        max_segments: U16::new(terms.max_segments),
        qp_pairs: U16::new(terms.qp_pairs),
        keepalive_ms: U32::new(terms.keepalive_ms),
        dead_after_ms: U32::new(terms.dead_after_ms),
    };
    put(out, TAG_TERMS, |out| out.extend_from_slice(wire.as_bytes()));
}

/// The terms among `values`, as the sender sees them.
pub(super) fn take_terms(values: &Values<'_>) -> Result<Terms, Malformed> {
    let wire: WireTerms = exactly(values.required(TAG_TERMS, "the agreed terms")?, "the agreed terms")?;
    Ok(Terms {
        qp_type: qp_type_from(wire.qp_type)?,
        path_mtu: path_mtu_from(wire.path_mtu)?,
        features: Features(wire.features.get()),
        jumbo_payload: wire.jumbo_payload.get(),
        initiator_depth: wire.initiator_depth,
        responder_depth: wire.responder_depth,
        min_rnr_timer: wire.min_rnr_timer,
        ack_timeout: wire.ack_timeout,
        retry_count: wire.retry_count,
        rnr_retry: wire.rnr_retry,
        message_size: wire.message_size.get(),
        max_segments: wire.max_segments.get(),
        qp_pairs: wire.qp_pairs.get(),
        keepalive_ms: wire.keepalive_ms.get(),
        dead_after_ms: wire.dead_after_ms.get(),
    })
}
