//! Frames and ends that are wrong themselves: damaged, odd, refused, or counting from elsewhere.

use rdma_engine::types::Rkey;
use rdma_engine::wire::{AtomicEth, NakCode, Opcode, Position, Reth, Transport};

use super::peers::From::{A, B};
use super::peers::{PMTU, Talk};
use crate::decode::DecodeOptions;

/// BTH bytes of the destination QPN and of the PSN.
const QPN: usize = 6;
const PSN: usize = 9;

/// A conversation that works, up to PSN 102.
fn warm() -> Talk {
    let mut talk = Talk::new();
    (100..103).for_each(|psn| {
        talk.send(A, psn, 64).ack(B, psn);
    });
    talk
}

#[track_caller]
fn assert_verdict(talk: &Talk, words: &[&str]) {
    let verdict = talk.verdict();
    words.iter().for_each(|word| assert!(verdict.contains(word), "{word:?} is not in {verdict:?}"));
}

/// Whatever bit is wrong: a frame that no receiver takes starts no connection, opens no gap and asks for nothing.
#[test]
fn damaged_requests_lead_nowhere() {
    for at in [PSN, PSN + 1, PSN + 2, QPN, QPN + 1, 0, 30] {
        let mut talk = warm();
        talk.send(A, 103, 64).flip(at, 0x40).wait_us(67_000).send(A, 103, 64).ack(B, 103);
        assert_verdict(&talk, &["1 frame of 9 with a bad ICRC: receivers drop them silently"]);
        let (text, _) = talk.decoded();
        assert!(text.contains("4 SENDs, 256 B, all answered"), "{at}: {text}");
        for wrong in ["PSNs jump", "gap:", "missing", "without request"] {
            assert!(!text.contains(wrong), "{at}, {wrong}: {text}");
        }
    }
}

#[test]
fn damaged_answers_and_connection_requests_lead_nowhere() {
    let mut talk = warm();
    talk.send(A, 103, 64).nak(B, 103, NakCode::RemoteAccess).damage().ack(B, 103);
    talk.ack(B, 103).flip(QPN, 0x40);
    assert_verdict(&talk, &["2 frames of 10 with a bad ICRC"]);
    // Flows that nothing but one damaged frame speaks of are nobody's.
    let mut other = warm();
    let qpns = other.qpns;
    other.qpns = [0x101, 0x201];
    other.send(A, 900, 8).ack(B, 900);
    other.qpns = qpns;
    other.send(A, 103, 64).flip(QPN, 0x40).send(A, 103, 64).ack(B, 103);
    let (text, summary) = other.decoded();
    assert_eq!((summary.conversations, summary.troubled), (2, 0), "{text}");
    assert!(text.contains("1 with a bad ICRC, 1 of these of no known conversation"), "{text}");
}

/// What is acknowledged was not dropped: the damage is the capture's.
#[test]
fn a_damaged_frame_that_was_taken_is_not_called_dropped() {
    for last in [false, true] {
        let mut talk = warm();
        talk.send(A, 103, 64).flip(30, 4);
        if !last {
            talk.send(A, 104, 64).ack(B, 104);
        } else {
            talk.ack(B, 103).send(A, 104, 64).ack(B, 104);
        }
        assert_verdict(
            &talk,
            &["acknowledged all the same and never sent again", "what the receiver got was good"],
        );
        let (text, _) = talk.decoded();
        assert!(text.contains("[what comes before it has a bad ICRC]") && !text.contains("gap:"), "{text}");
    }
}

/// Other addresses were put in, say: then the ICRC means nothing, and everything else is told all the same.
#[test]
fn a_capture_without_one_good_icrc_is_followed() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).damage().ack(B, 1).damage().read(A, 2, 8).damage();
    talk.nak(B, 2, NakCode::RemoteAccess).damage();
    assert_verdict(&talk, &["READ refused", "every frame has a bad ICRC, yet they are answered"]);
    let (text, _) = talk.decoded();
    assert!(text.contains("1 SEND, 8 B, all answered"), "{text}");
}

#[test]
fn a_sender_whose_icrcs_are_all_wrong_is_named() {
    let mut talk = Talk::new();
    talk.send(B, 7, 8).ack(A, 7).damage();
    (0..3).for_each(|_| {
        talk.send(A, 1, 8).damage().wait_us(67_000);
    });
    assert_verdict(&talk, &["all that one side sent", "that side computes the ICRC wrongly"]);
}

#[test]
fn ends_that_start_at_different_psns_are_told() {
    let mut ahead = Talk::new();
    let mut behind = Talk::new();
    (0..8).for_each(|_| {
        ahead.send(A, 500, 64).nak(B, 100, NakCode::PsnSequence).wait_us(67_000);
        behind.send(A, 500, 64).ack(B, 900).wait_us(67_000);
    });
    let start = "compare the PSNs that the two sides were told to start with";
    assert_verdict(
        &ahead,
        &["expects 0x000064 (8 sequence NAKs, from frame 2 on)", "sends 0x0001f4 again", start],
    );
    assert!(ahead.decoded().0.contains("(paired by repetition)"), "{}", ahead.decoded().0);
    assert_verdict(&behind, &["expects 0x000385 (8 ACKs of what was never sent, from frame 2 on)", start]);
}

#[test]
fn a_requester_that_does_not_heed_its_naks_is_told() {
    let mut deaf = warm();
    (0..8).for_each(|_| {
        deaf.send(A, 104, 64).nak(B, 103, NakCode::PsnSequence);
    });
    assert_verdict(&deaf, &["expects 0x000067", "sends 0x000068 again and again", "they agreed before"]);
    // One that heeds them late has only lost packets.
    deaf.send(A, 103, 64).send(A, 104, 64).ack(B, 104);
    assert_verdict(&deaf, &["packet loss, repaired"]);
}

/// Other queue pairs between the two hosts must not be taken for the one that repeats.
#[test]
fn answers_of_others_are_not_taken_for_disagreement() {
    let mut talk = Talk::new();
    talk.qpns = [0x101, 0x201];
    talk.send(A, 500, 8).ack(B, 500).send(A, 501, 8);
    talk.qpns = [0x102, 0x202];
    talk.ack(B, 40).ack(B, 41);
    talk.qpns = [0x101, 0x201];
    talk.ack(B, 501);
    let (text, summary) = talk.decoded();
    assert_eq!(summary.conversations, 2, "{text}");
    assert!(text.contains("2 SENDs, 16 B, all answered") && !text.contains("disagree"), "{text}");
}

#[test]
fn a_peer_that_answers_is_not_called_silent() {
    let mut talk = warm();
    (0..4).for_each(|_| {
        talk.send(A, 103, 64).ack(B, 102).wait_us(67_000);
    });
    assert_verdict(&talk, &["SEND of frame 7 is never answered", "though the peer does send answers"]);
}

#[test]
fn an_invalid_request_is_explained_by_what_was_asked() {
    let refused = |ask: fn(&mut Talk), words: &[&str]| {
        let mut talk = warm();
        ask(&mut talk);
        talk.nak(B, 103, NakCode::InvalidRequest);
        assert_verdict(&talk, words);
        assert!(!talk.verdict().contains("atomic is not"), "{}", talk.verdict());
    };
    refused(|talk| _ = talk.send(A, 103, 64), &["the SEND of 64 B is longer than the receive posted"]);
    refused(
        |talk| _ = talk.send_part(A, 103, Position::First, PMTU),
        &["1024 B so far, is longer than the receive", "another path MTU"],
    );
    let write = Reth::new(0x1000, Rkey(5), 64);
    let mut talk = warm();
    talk.packet(A, Opcode::write(Transport::Rc, Position::Only, false), 103, &write, 60).nak(
        B,
        103,
        NakCode::InvalidRequest,
    );
    assert_verdict(&talk, &["does not allow remote WRITEs", "not the 64 B that the RETH announces"]);
    refused(|talk| _ = talk.read(A, 103, 64), &["max_dest_rd_atomic is 0", "does not allow remote READs"]);
    let add = |addr| AtomicEth::fetch_add(addr, Rkey(5), 1);
    let mut odd = warm();
    odd.packet(A, Opcode::RC_FETCH_ADD, 103, &add(0x1001), 0).nak(B, 103, NakCode::InvalidRequest);
    assert_verdict(&odd, &["its address 0x1001 is no multiple of 8"]);
    let mut even = warm();
    even.packet(A, Opcode::RC_FETCH_ADD, 103, &add(0x1000), 0).nak(B, 103, NakCode::InvalidRequest);
    assert_verdict(&even, &["does not allow remote atomics"]);
    let mut many = warm();
    (103..107).for_each(|psn| _ = many.read(A, psn, 64));
    many.nak(B, 105, NakCode::InvalidRequest);
    assert_verdict(&many, &["with it 3 READs and atomics waited", "max_dest_rd_atomic"]);
}

#[test]
fn a_response_to_a_request_that_was_not_captured_is_told() {
    let mut talk = Talk::new();
    talk.read(A, 10, 64).response(B, 10, Position::Only, 64).read(A, 11, 64).lose();
    talk.response(B, 11, Position::Only, 64).read(A, 12, 64).response(B, 12, Position::Only, 64);
    assert_verdict(&talk, &["the capture dropped them, not the network"]);
}

/// What tshark shows, we show: with what is odd about it.
#[test]
fn odd_lower_headers_are_decoded_with_what_is_odd() {
    let mut talk = Talk::new();
    let tag = [0x81, 0, 0, 5];
    talk.send(A, 1, 8).change(|frame| drop(frame.splice(12..12, [tag, tag, tag].concat())));
    talk.send(A, 2, 8).change(|frame| {
        (frame[14], frame[17]) = (0x46, frame[17] + 4);
        frame.splice(34..34, [1; 4]);
    });
    talk.send(A, 3, 8).change(|frame| frame[39] -= 4);
    talk.send(A, 4, 8).change(|frame| frame[17] += 4);
    let (text, _) = talk.decoded();
    let json = super::decode(&talk.file(), &DecodeOptions { json: true, ..Default::default() }).0;
    assert_eq!(json.lines().count(), 4, "{json}");
    let words =
        ["3 VLAN tags", "IP options", "UDP length 28, but 32 B", "the IP length reaches beyond the frame"];
    for ((line, psn), words) in json.lines().zip(1..).zip(words) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&object["psn"], &object["dest_qpn"]), (&psn.into(), &0x200.into()), "{line}");
        assert!(
            object["problem"].as_str().unwrap().contains(words) && text.contains(words),
            "{line}\n{text}"
        );
    }
    assert!(json.contains(r#""vlan":[5,5,5]"#), "{json}");
}
