use super::super::frame::{FrameKind, MAX_BODY, append, split};
use super::super::negotiate::negotiate;
use super::super::offer::strategy::{offer, offer_pair};
use super::super::offer::{QpOffer, RegionOffer, ServiceId, ServiceKind, TransportKind};
use super::*;
use crate::mem::Access;
use crate::types::{Gid, Psn, Rkey};
use proptest::prelude::*;

fn identity() -> impl Strategy<Value = Identity> {
    ("[a-z.0-9]{1,64}", any::<u64>(), any::<u64>()).prop_map(|(node, instance, generation)| Identity {
        node,
        instance,
        generation,
    })
}

fn fence() -> impl Strategy<Value = Fence> {
    (any::<u64>(), any::<u64>()).prop_map(|(from, to)| Fence { from, to })
}

fn goodbye() -> impl Strategy<Value = Goodbye> {
    let total = (0u32..1 << 24, any::<u64>(), any::<u64>()).prop_map(|(qpn, messages, frames)| QpTotal {
        qpn: Qpn::new(qpn),
        messages,
        frames,
    });
    (fence(), any::<u16>(), prop::collection::vec(total, 0..20)).prop_map(|(fence, reason, totals)| Goodbye {
        fence,
        reason: GoodbyeReason::from_code(reason),
        totals,
    })
}

fn message() -> impl Strategy<Value = Message> {
    let challenge = (any::<[u8; 32]>(), any::<bool>()).prop_map(|(nonce, keyed)| {
        let auth = if keyed { AuthMode::PresharedKey } else { AuthMode::None };
        Message::Challenge(Challenge { nonce, auth })
    });
    let hello = (any::<[u8; 32]>(), identity(), offer())
        .prop_map(|(nonce, identity, offer)| Message::Hello(Box::new(Hello { nonce, identity, offer })));
    let reply = (identity(), offer_pair()).prop_filter_map("agreement", |(identity, (offer, peer))| {
        let terms = negotiate(&offer, &peer).ok()?.terms;
        Some(Message::HelloReply(Box::new(HelloReply { identity, offer, terms })))
    });
    let refusal = (any::<u16>(), prop::collection::vec(any::<char>(), 0..200)).prop_map(|(code, detail)| {
        Message::Refuse(Refusal::new(RefuseReason::from_code(code), String::from_iter(detail)))
    });
    prop_oneof![
        challenge,
        hello,
        reply,
        refusal,
        fence().prop_map(Message::Ready),
        (fence(), any::<u64>()).prop_map(|(fence, n)| Message::Keepalive(fence, n)),
        (fence(), any::<u64>()).prop_map(|(fence, n)| Message::KeepaliveReply(fence, n)),
        goodbye().prop_map(Message::Goodbye),
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, message.kind(), |out| message.encode_body(out), None);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_survives_the_wire(message in message()) {
        let bytes = encoded(&message);
        let frame = split(&bytes).unwrap().unwrap();
        prop_assert_eq!(frame.len, bytes.len());
        prop_assert_eq!(Message::decode_body(frame.kind, frame.body).unwrap(), message);
    }

    #[test]
    fn any_bytes_decode_or_fail(kind in 0usize..8, body in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Message::decode_body(FrameKind::ALL[kind], &body);
        let _ = split(&body);
    }

    /// Cut and bent messages reach deeper than random bytes.
    #[test]
    fn bent_messages_decode_or_fail(message in message(), at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
        let mut body = Vec::new();
        message.encode_body(&mut body);
        if !body.is_empty() {
            let at = at.index(body.len());
            body[at] = to;
        }
        let _ = Message::decode_body(message.kind(), &body);
        let _ = Message::decode_body(message.kind(), &body[..cut.index(body.len() + 1)]);
    }
}

fn largest_offer() -> Offer {
    let service = ServiceId { kind: ServiceKind::KvMemory, name: "s".repeat(MAX_NAME) };
    let mut offer = Offer::new(service, TransportKind::Soft, Gid([0xFD; 16]));
    let qp = |n| QpOffer {
        qpn: Qpn::new(n + 2),
        psn: Psn::new(n),
        worker: 0,
        udp_source_port: 0,
        receive_credits: 2,
        lane: 0,
    };
    offer.qps = (0..MAX_QPS as u32).map(qp).collect();
    let region = |n| RegionOffer { addr: n, len: 1, rkey: Rkey(1), access: Access::REMOTE_READ };
    offer.regions = (0..MAX_REGIONS as u64).map(region).collect();
    offer.blob = vec![7; MAX_BLOB];
    offer.application = vec![9; MAX_APPLICATION];
    offer.check().unwrap();
    offer
}

#[test]
fn the_largest_messages_fit_a_frame() {
    let identity = Identity { node: "n".repeat(MAX_NAME), instance: 1, generation: 1 };
    let offer = largest_offer();
    let mut peer = offer.clone();
    peer.service.kind = ServiceKind::KvGateway;
    let terms = negotiate(&offer, &peer).unwrap().terms;
    let total = QpTotal { qpn: Qpn::new(2), messages: 1, frames: 1 };
    let goodbye = Goodbye {
        fence: Fence { from: 1, to: 1 },
        reason: GoodbyeReason::Shutdown,
        totals: vec![total; MAX_QPS],
    };
    for message in [
        Message::Hello(Box::new(Hello { nonce: [1; 32], identity: identity.clone(), offer: offer.clone() })),
        Message::HelloReply(Box::new(HelloReply { identity, offer, terms })),
        Message::Goodbye(goodbye),
    ] {
        let mut body = Vec::new();
        message.encode_body(&mut body);
        assert!(body.len() + TAG_LEN <= MAX_BODY, "{:?}: {} bytes", message.kind(), body.len());
        assert_eq!(Message::decode_body(message.kind(), &body).unwrap(), message);
    }
}

#[test]
fn what_is_wrong_is_named() {
    let mut body = Vec::new();
    let hello = Hello {
        nonce: [1; 32],
        identity: Identity { node: "n".into(), instance: 1, generation: 1 },
        offer: largest_offer(),
    };
    Message::Hello(Box::new(hello)).encode_body(&mut body);
    let error = |body: &[u8]| Message::decode_body(FrameKind::Hello, body).unwrap_err().to_string();
    assert_eq!(error(&body[..3]), "a tag header is cut short");
    assert_eq!(error(&body[..9]), "a tagged value is cut short");
    assert_eq!(error(&[]), "the nonce is missing");
    assert_eq!(error(&[0, 6, 0, 0, 0, 6, 0, 0]), "tag 6 came twice");
    let ready = Message::decode_body(FrameKind::Ready, &[0; 17]).unwrap_err();
    assert_eq!(ready.to_string(), "ready has 1 bytes too many");
}

#[test]
fn tags_of_a_later_minor_version_are_passed_over() {
    let hello = Message::Hello(Box::new(Hello {
        nonce: [1; 32],
        identity: Identity { node: "n".into(), instance: 1, generation: 1 },
        offer: largest_offer(),
    }));
    let mut body = Vec::new();
    put(&mut body, 200, |out| out.extend_from_slice(b"later"));
    hello.encode_body(&mut body);
    put(&mut body, 10, |out| out.extend_from_slice(b"still later"));
    assert_eq!(Message::decode_body(FrameKind::Hello, &body).unwrap(), hello);
}
