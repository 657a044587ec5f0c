use super::super::offer::strategy::{offer, offer_pair};
use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_ends_compute_the_same((a, b) in offer_pair()) {
        match (negotiate(&a, &b), negotiate(&b, &a)) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours.mirrored(), theirs),
            (Err(ours), Err(theirs)) => prop_assert_eq!(ours.reason, theirs.reason),
            (ours, theirs) => prop_assert!(false, "{ours:?} against {theirs:?}"),
        }
    }

    #[test]
    fn nobody_gets_more_than_either_offers((a, b) in offer_pair()) {
        let Ok(Agreed { terms, qps }) = negotiate(&a, &b) else { return Ok(()) };
        for offer in [&a, &b] {
            prop_assert!(terms.path_mtu <= offer.path_mtu);
            prop_assert!(terms.message_size <= offer.message_size);
            prop_assert!(terms.message_size >= offer.min_message_size);
            prop_assert!(terms.max_segments <= offer.max_segments);
            prop_assert!(terms.retry_count <= offer.retry_count && terms.rnr_retry <= offer.rnr_retry);
            prop_assert!(offer.features.contains(terms.features));
            prop_assert!(terms.jumbo_payload <= offer.jumbo_payload);
            prop_assert!(qps.len() <= offer.qps.len());
            prop_assert!(terms.dead_after_ms <= offer.dead_after_ms);
        }
        prop_assert!(terms.initiator_depth <= a.initiator_depth.min(b.responder_depth));
        prop_assert!(terms.responder_depth <= a.responder_depth.min(b.initiator_depth));
        prop_assert!(terms.dead_after_ms >= 2 * terms.keepalive_ms);
        prop_assert_eq!(usize::from(terms.qp_pairs), qps.len());
        prop_assert!(terms.features == Features::NONE || a.transport != TransportKind::Verbs);
        prop_assert!(terms.features == Features::NONE || a.qp_type == QpType::Rc);
    }

    #[test]
    fn an_offer_agrees_with_its_like(a in offer()) {
        let mut b = a.clone();
        b.service.kind = a.service.kind.counterpart();
        let credits = a.qps.iter().all(|qp| qp.receive_credits != 1);
        let size = a.qp_type != QpType::Ud || a.min_message_size <= a.path_mtu.bytes();
        if !a.qps.is_empty() && credits && size {
            let terms = negotiate(&a, &b).unwrap().terms;
            prop_assert_eq!((terms.path_mtu, terms.max_segments), (a.path_mtu, a.max_segments));
        }
    }
}

#[test]
fn codes_with_a_longest_zero_yield_to_the_shorter_time() {
    assert_eq!(shorter_code(0, 12), 12);
    assert_eq!(shorter_code(31, 0), 31);
    assert_eq!(shorter_code(14, 18), 14);
    assert_eq!(shorter_code(0, 0), 0);
}
