//! Arbitrary offers within their bounds, for property tests.

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;

fn name() -> impl Strategy<Value = String> {
    let exotic = vec(any::<char>(), 1..16).prop_map(String::from_iter);
    prop_oneof![Just("east".to_owned()), "[a-z0-9-]{1,64}", exotic]
        .prop_filter("a name", |name| check_name("name", name).is_ok())
}

fn service() -> impl Strategy<Value = ServiceId> {
    let kind = prop_oneof![Just(1), Just(2), Just(3), any::<u16>()].prop_map(ServiceKind::from_code);
    (kind, name()).prop_map(|(kind, name)| ServiceId { kind, name })
}

fn gid() -> impl Strategy<Value = Gid> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|ip| Gid::from(std::net::Ipv4Addr::from(ip))),
        any::<[u8; 16]>().prop_map(Gid),
    ]
    .prop_filter("a unicast address", |gid| !gid.is_empty() && !gid.ip().is_multicast())
}

fn transport() -> impl Strategy<Value = TransportKind> {
    prop_oneof![Just(TransportKind::Verbs), Just(TransportKind::Soft), Just(TransportKind::Loopback)]
}

fn qp_type() -> impl Strategy<Value = QpType> {
    prop_oneof![4 => Just(QpType::Rc), 1 => Just(QpType::Uc), 1 => Just(QpType::Ud)]
}

fn qps(workers: u16) -> impl Strategy<Value = Vec<QpOffer>> {
    let one = (any::<u32>(), 0..workers, any::<u16>(), prop_oneof![9 => 2u16..100, 1 => 0u16..2], 0u16..2);
    (btree_set(2u32..0xFF_FFFF, 0..6), vec(one, 6)).prop_map(|(qpns, rest)| {
        let qp = |(qpn, (psn, worker, udp_source_port, receive_credits, lane))| QpOffer {
            qpn: Qpn::new(qpn),
            psn: Psn::new(psn),
            worker,
            udp_source_port,
            receive_credits,
            lane,
        };
        qpns.into_iter().zip(rest).map(qp).collect()
    })
}

fn access() -> impl Strategy<Value = Access> {
    any::<[bool; 3]>().prop_map(|[write, read, atomic]| {
        let right = |given, right| if given { right } else { Access::LOCAL };
        right(write, Access::REMOTE_WRITE)
            .and(right(read, Access::REMOTE_READ))
            .and(right(atomic, Access::REMOTE_ATOMIC))
    })
}

fn region() -> impl Strategy<Value = RegionOffer> {
    (any::<u64>(), 1u64.., any::<u32>(), access()).prop_map(|(addr, len, rkey, access)| {
        let len = len.min(u64::MAX - addr).max(1);
        RegionOffer { addr: addr.min(u64::MAX - len), len, rkey: Rkey(rkey), access }
    })
}

/// Any offer that passes [`Offer::check`].
pub(in crate::cm) fn offer() -> impl Strategy<Value = Offer> {
    let place = (service(), transport(), any::<u64>(), qp_type(), gid(), option::of(any::<[u8; 6]>()));
    let codes = (0usize..5, 0u8..=31, 0u8..=31, 0u8..=7, 0u8..=7, any::<u8>(), any::<u8>());
    let sizes = (1u32..=1 << 31, any::<u32>(), any::<u32>(), 1u16.., 0u32..1 << 31);
    let beats = (MIN_KEEPALIVE_MS..=MAX_DEAD_AFTER_MS / 2, 0u32..1000);
    let lists = (1u16..40).prop_flat_map(|workers| (Just(workers), qps(workers)));
    let tail = (vec(region(), 0..4), vec(any::<u8>(), 0..200), vec(any::<u8>(), 0..200));
    (place, codes, sizes, beats, lists, tail).prop_map(|(place, codes, sizes, beats, lists, tail)| {
        let (service, transport, features, qp_type, gid, mac) = place;
        let (message_size, min, jumbo_payload, max_segments, qkey) = sizes;
        Offer {
            features: Features(features),
            qp_type,
            mac: mac.map(|[first, rest @ ..]| {
                let [b, c, d, e, f] = rest;
                [first & 0xFE, b, c, d, e, f]
            }),
            path_mtu: Pmtu::ALL[codes.0],
            jumbo_payload,
            min_rnr_timer: codes.1,
            ack_timeout: codes.2,
            retry_count: codes.3,
            rnr_retry: codes.4,
            initiator_depth: codes.5,
            responder_depth: codes.6,
            message_size,
            min_message_size: min % 5000 % (message_size + 1),
            max_segments,
            workers: lists.0,
            qkey,
            keepalive_ms: beats.0,
            dead_after_ms: (2 * beats.0 + beats.1).min(MAX_DEAD_AFTER_MS),
            qps: lists.1,
            regions: tail.0,
            blob: tail.1,
            application: tail.2,
            ..Offer::new(service, transport, gid)
        }
    })
}

/// Two offers that are likely to agree.
pub(in crate::cm) fn offer_pair() -> impl Strategy<Value = (Offer, Offer)> {
    (offer(), offer(), any::<bool>()).prop_map(|(a, mut b, alike)| {
        if alike {
            b.service = ServiceId { kind: a.service.kind.counterpart(), name: a.service.name.clone() };
            (b.transport, b.qp_type, b.gid) = (a.transport, a.qp_type, a.gid);
            b.qps.iter_mut().zip(&a.qps).for_each(|(b, a)| b.lane = a.lane);
        }
        (a, b)
    })
}

fn sound() -> Offer {
    let service = ServiceId { kind: ServiceKind::Relay, name: "east".into() };
    let mut offer = Offer::new(service, TransportKind::Soft, std::net::Ipv4Addr::new(10, 0, 0, 1).into());
    offer.qps = vec![QpOffer {
        qpn: Qpn::new(17),
        psn: Psn::new(1),
        worker: 0,
        udp_source_port: 0,
        receive_credits: 8,
        lane: 0,
    }];
    offer
}

const REGION: RegionOffer =
    RegionOffer { addr: u64::MAX, len: 1, rkey: Rkey(1), access: Access::REMOTE_READ };

/// A field and a way to break its bound.
type Spoilt = (&'static str, fn(&mut Offer));

const SPOILT: [Spoilt; 29] = [
    ("service name", |o| o.service.name = "x".repeat(65)),
    ("service name", |o| o.service.name = "a\nb".into()),
    ("service name", |o| o.service.name.clear()),
    ("gid", |o| o.gid = Gid::default()),
    ("gid", |o| o.gid = std::net::Ipv4Addr::new(224, 0, 0, 1).into()),
    ("mac", |o| o.mac = Some([1, 0, 0, 0, 0, 0])),
    ("min_rnr_timer", |o| o.min_rnr_timer = 32),
    ("ack_timeout", |o| o.ack_timeout = 32),
    ("retry_count", |o| o.retry_count = 8),
    ("rnr_retry", |o| o.rnr_retry = 8),
    ("message_size", |o| o.message_size = 0),
    ("message_size", |o| o.message_size = (1 << 31) + 1),
    ("min_message_size", |o| o.min_message_size = o.message_size + 1),
    ("max_segments", |o| o.max_segments = 0),
    ("workers", |o| o.workers = 0),
    ("keepalive_ms", |o| o.keepalive_ms = 9),
    ("dead_after_ms", |o| o.dead_after_ms = 399),
    ("dead_after_ms", |o| o.dead_after_ms = MAX_DEAD_AFTER_MS + 1),
    ("qkey", |o| o.qkey = 1 << 31),
    ("qpn", |o| o.qps[0].qpn = Qpn::GSI),
    ("qpn", |o| o.qps[0].qpn = Qpn::MULTICAST),
    ("qpn", |o| o.qps.push(o.qps[0])),
    ("worker of a queue pair", |o| o.qps[0].worker = 1),
    ("number of queue pairs", |o| o.qps = vec![o.qps[0]; MAX_QPS + 1]),
    ("region address", |o| o.regions = vec![REGION]),
    ("region length", |o| o.regions = vec![RegionOffer { len: 0, ..REGION }]),
    ("number of regions", |o| o.regions = vec![REGION; MAX_REGIONS + 1]),
    ("blob bytes", |o| o.blob = vec![0; MAX_BLOB + 1]),
    ("application bytes", |o| o.application = vec![0; MAX_APPLICATION + 1]),
];

#[test]
fn the_bounds_are_enforced_by_name() {
    sound().check().unwrap();
    for (field, spoil) in SPOILT {
        let mut offer = sound();
        spoil(&mut offer);
        let error = offer.check().unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.to_string().contains("must be"), "{error}");
    }
}
