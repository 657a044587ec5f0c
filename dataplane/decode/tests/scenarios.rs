//! What goes wrong in RoCE networks, and what is said about it.

use rdma_engine::types::{Psn, Qpn};
use rdma_engine::wire::{Bth, NakCode, NoHeaders, Opcode, Position, Transport};

use super::peers::From::{A, B};
use super::peers::{PMTU, Talk};

#[track_caller]
fn assert_says(talk: &Talk, words: &[&str]) {
    let (text, _) = talk.decoded();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
}

#[test]
fn a_good_conversation_has_nothing_to_complain_of() {
    let mut talk = Talk::new();
    talk.send(A, 10, 64).ack(B, 10).send(B, 500, 100).ack(A, 500).send_long(A, 11, 3).ack(B, 13);
    assert_eq!(talk.verdict(), "nothing");
    assert_says(
        &talk,
        &[
            "RC 10.0.0.1 QP 0x100 <-> 10.0.0.2 QP 0x200, frames 1 to 8 (paired by PSN)",
            "10.0.0.1 asked: 2 SENDs, 3136 B, all answered, after 10.0 us to 10.0 us",
            "10.0.0.2 asked: 1 SEND, 100 B, all answered",
        ],
    );
}

#[test]
fn coalesced_acks_answer_everything_before_them() {
    let mut talk = Talk::new();
    talk.send(A, 0xFF_FFFE, 8).send(A, 0xFF_FFFF, 8).send(A, 0, 8).ack(B, 0);
    assert_eq!(talk.verdict(), "nothing");
    assert_says(&talk, &["3 SENDs, 24 B, all answered"]);
}

#[test]
fn a_lost_packet_shows_as_nak_and_retransmission() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).ack(B, 1).send(A, 2, 8).send(A, 3, 8);
    talk.nak(B, 2, NakCode::PsnSequence).send(A, 2, 8).send(A, 3, 8).ack(B, 3);
    assert!(
        talk.verdict()
            .starts_with("packet loss, repaired: the responder missed packets (1 sequence NAK, 2 packets")
    );
    assert_says(
        &talk,
        &[
            "NAK, PSN sequence error (this PSN is the one expected)",
            "[retransmission (message of frame 3)]",
            "retransmission of 2 packets from PSN 0x000002 on, message of frame 3",
        ],
    );
}

#[test]
fn loss_before_the_capture_point_shows_as_a_gap_that_is_filled() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).ack(B, 1).send(A, 3, 8).send(A, 2, 8).ack(B, 3);
    assert!(talk.verdict().contains("did not come in order"), "{}", talk.verdict());
    assert_says(&talk, &["[1 packet missing before]", "[fills a gap]", "3 SENDs, 24 B, all answered"]);
}

#[test]
fn packets_the_capture_dropped_are_not_blamed_on_the_network() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).ack(B, 1).send(A, 5, 8).ack(B, 5);
    assert!(talk.verdict().contains("the capture dropped them, not the network"), "{}", talk.verdict());
}

#[test]
fn an_unready_receiver_is_named_with_its_wait() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).rnr(B, 1, 14).wait_us(1300).send(A, 1, 8).ack(B, 1);
    assert!(talk.verdict().starts_with("1 RNR NAK: the receiver posted its receives too late"));
    assert_says(
        &talk,
        &[
            "RNR NAK, no receive posted, wait 1.28 ms",
            "[sent again 1.31 ms after RNR NAK]",
            "PSN 0x000001 sent again after an RNR wait of 1.31 ms",
        ],
    );
    let mut impatient = Talk::new();
    impatient.send(A, 1, 8).rnr(B, 1, 14).send(A, 1, 8).ack(B, 1);
    assert_says(&impatient, &["less than the 1.28 ms asked for"]);
    let mut stuck = Talk::new();
    stuck.send(A, 1, 8);
    (0..4).for_each(|_| {
        stuck.rnr(B, 1, 1).wait_us(100).send(A, 1, 8);
    });
    stuck.rnr(B, 1, 1);
    assert!(stuck.verdict().contains("the receiver posts no receives any more"), "{}", stuck.verdict());
}

#[test]
fn refusals_say_what_to_check() {
    for (code, words) in [
        (NakCode::RemoteAccess, "compare rkey, address and length"),
        (NakCode::InvalidRequest, "does not allow remote READs"),
        (NakCode::RemoteOperational, "a fault of its own"),
    ] {
        let mut talk = Talk::new();
        talk.read(A, 7, 64).nak(B, 7, code);
        assert!(talk.verdict().contains(words), "{}", talk.verdict());
        assert_says(
            &talk,
            &["for the READ at PSN 0x000007 (64 B at 0x1000, rkey 0x77)", "none answered, 1 refused"],
        );
    }
}

#[test]
fn a_silent_peer_is_told_from_a_missing_direction() {
    let mut silent = Talk::new();
    silent.send(A, 1, 8);
    (0..3).for_each(|_| {
        silent.wait_us(67_000).send(A, 1, 8);
    });
    let verdict = silent.verdict();
    assert!(
        verdict.starts_with("nothing ever came back for the SEND of frame 1, after 3 retransmissions"),
        "{verdict}"
    );

    let mut one_way = Talk::new();
    (0..5).for_each(|psn| {
        one_way.send(A, psn, 8);
    });
    assert!(one_way.verdict().contains("the answers took another way"), "{}", one_way.verdict());

    let mut answers = Talk::new();
    (0..5).for_each(|psn| {
        answers.ack(B, psn);
    });
    assert!(answers.verdict().starts_with("only answers were captured"), "{}", answers.verdict());

    let mut dying = Talk::new();
    dying.send(A, 1, 8).ack(B, 1).send(A, 2, 8).wait_us(67_000).send(A, 2, 8).wait_us(900_000).send(A, 2, 8);
    assert!(
        dying.verdict().starts_with("the peer stopped answering at the SEND of frame 3"),
        "{}",
        dying.verdict()
    );
}

#[test]
fn an_mtu_that_does_not_fit_is_suspected() {
    let mut talk = Talk::new();
    talk.send(A, 1, 64).ack(B, 1);
    (0..3).for_each(|_| {
        talk.wait_us(67_000).send_long(A, 2, 3);
    });
    let verdict = talk.verdict();
    assert!(verdict.contains("the RDMA MTU does not fit the path"), "{verdict}");
    assert!(verdict.starts_with("packets of 1024 B"), "{verdict}");
}

#[test]
fn reads_are_followed_through_cuts_and_resumption() {
    let mut talk = Talk::new();
    talk.read(A, 10, 3 * PMTU as u32);
    talk.response(B, 10, Position::First, PMTU).response(B, 12, Position::Last, PMTU);
    talk.wait_us(1000).read(A, 11, 2 * PMTU as u32);
    talk.response(B, 11, Position::First, PMTU).response(B, 12, Position::Last, PMTU);
    talk.send(A, 13, 8).ack(B, 13);
    let (text, _) = talk.decoded();
    assert!(text.contains("[resumes a READ]"), "{text}");
    assert!(text.contains("[1 packet missing before]"), "{text}");
    assert!(talk.verdict().starts_with("READ responses were lost"), "{}", talk.verdict());

    let mut whole = Talk::new();
    whole.read(A, 10, 3 * PMTU as u32).send(A, 13, 8);
    whole.response(B, 10, Position::First, PMTU).response(B, 11, Position::Middle, PMTU);
    whole.response(B, 12, Position::Last, PMTU).ack(B, 13).read(A, 14, 64).response(
        B,
        14,
        Position::Only,
        64,
    );
    assert_eq!(whole.verdict(), "nothing");
    assert_says(&whole, &["2 READs, 3136 B, all answered", "1 SEND, 8 B, all answered"]);
}

#[test]
fn an_ack_beyond_a_read_does_not_complete_it() {
    let mut talk = Talk::new();
    talk.read(A, 10, 64).send(A, 11, 8).ack(B, 11).wait_us(800_000).read(A, 10, 64).response(
        B,
        10,
        Position::Only,
        64,
    );
    assert_says(&talk, &["an ACK passed over the READ at PSN 0x00000a", "1 READ, 64 B, all answered"]);
}

#[test]
fn bad_icrcs_are_the_first_suspect() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).damage().wait_us(67_000).send(A, 1, 8).ack(B, 1);
    assert!(talk.verdict().starts_with("1 frame of 3 with a bad ICRC"), "{}", talk.verdict());
    assert_says(&talk, &["ICRC BAD", "1 with a bad ICRC"]);
    let (_, summary) = talk.decoded();
    assert_eq!((summary.bad_icrc, summary.troubled), (1, 1));
}

#[test]
fn congestion_without_loss_is_told_apart() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).mark(3).ack(B, 1);
    talk.packet(B, Opcode::CNP, 0, &NoHeaders, 16);
    assert!(
        talk.verdict().starts_with("congestion: 1 frame marked by switches, 1 notification sent"),
        "{}",
        talk.verdict()
    );
    assert_says(&talk, &["CNP  QP 0x100, slow down", "marked by a switch (CE)"]);
    assert!(Bth::cnp(Qpn::new(1)).psn.psn() == Psn::new(0));
}

#[test]
fn a_mirror_port_that_shows_frames_twice_is_noticed() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).capture_again().ack(B, 1).capture_again().send(A, 2, 8).capture_again().ack(B, 2);
    assert_eq!(talk.verdict(), "nothing");
    assert_says(&talk, &["[same packet captured twice]", "2 SENDs, 16 B, all answered"]);
}

#[test]
fn queue_pairs_of_one_host_pair_are_kept_apart_by_psn() {
    let mut talk = Talk::new();
    for (i, psn) in [(1, 100), (2, 900), (3, 5000)] {
        talk.qpns = [0x100 + i, 0x200 + i];
        talk.send(A, psn, 8);
    }
    for (i, psn) in [(3, 5000), (1, 100), (2, 900)] {
        talk.qpns = [0x100 + i, 0x200 + i];
        talk.ack(B, psn);
    }
    let (text, summary) = talk.decoded();
    assert_eq!((summary.conversations, summary.troubled), (3, 0), "{text}");
    for i in 1..=3 {
        assert!(text.contains(&format!("QP {:#x} <-> 10.0.0.2 QP {:#x},", 0x100 + i, 0x200 + i)), "{text}");
    }
}

#[test]
fn a_reused_queue_pair_starts_anew() {
    let mut talk = Talk::new();
    talk.send(A, 1, 8).ack(B, 1).send(A, 0x80_0001, 8).ack(B, 0x80_0001);
    assert_says(&talk, &["[PSNs start anew]", "2 SENDs, 16 B, all answered"]);
}

#[test]
fn unreliable_messages_wait_for_no_answer() {
    let mut talk = Talk::new();
    for psn in [1, 2, 4] {
        let opcode = Opcode::send(Transport::Uc, Position::Only, rdma_engine::wire::Tailing::Plain);
        talk.packet(A, opcode, psn, &NoHeaders, 32);
    }
    assert_says(&talk, &["3 SENDs, 96 B, not acknowledged on this transport"]);
    assert_eq!(talk.verdict(), "1 packet lost before this point; UC does not repeat them");
}

#[test]
fn an_atomic_is_followed_to_its_result() {
    use rdma_engine::types::Rkey;
    use rdma_engine::wire::{Aeth, AethAtomicAck, AtomicAckEth, AtomicEth, Syndrome};
    let mut talk = Talk::new();
    talk.packet(A, Opcode::RC_COMPARE_SWAP, 3, &AtomicEth::compare_swap(0x40, Rkey(9), 5, 6), 0);
    let atomic = AtomicAckEth { original: 5.into() };
    let result = AethAtomicAck { aeth: Aeth::new(Syndrome::ACK, 1), atomic };
    talk.packet(B, Opcode::RC_ATOMIC_ACKNOWLEDGE, 3, &result, 0);
    assert_eq!(talk.verdict(), "nothing");
    assert_says(
        &talk,
        &["makes it 0x6 if it is 0x5, at 0x40, rkey 0x9", "it was 0x5", "1 COMPARE_SWAP, 8 B, all answered"],
    );
}
