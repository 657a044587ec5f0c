//! The flight recorder.

use super::lab::{Lab, Setup, bring_up};
use crate::qp::QpState;
use crate::soft::{Event, MAX_RECORDINGS, recorder_bytes};
use crate::transport::{Device, Transport};
use crate::types::Rkey;
use crate::wire::{Bth, NoHeaders, Opcode, Reth};
use crate::wr::{Op, Status};

#[test]
fn a_queue_pair_that_fails_leaves_a_capture_that_says_why() {
    let mut lab = Lab::with(Setup { recorder_frames: 6, retry_cnt: 2, ..Setup::default() });
    lab.post_recv(0);
    lab.give_send(0, b"hello");
    lab.post(Op::Send, &[7; 200]);
    lab.out();
    let healthy = lab.transport.flight_record(lab.qp, 0).unwrap();
    assert_eq!(healthy.frames, 3, "a SEND of either side and an acknowledgement");
    assert!(healthy.comment.contains("no error"), "{}", healthy.comment);
    for _ in 0..4 {
        lab.pass(100_000_000);
        lab.out();
    }
    assert!(lab.statuses().contains(&Status::RetryExcErr));
    let failed = lab.transport.poll_event();
    assert!(matches!(failed, Some(Event::QpError { qp, status: Status::RetryExcErr }) if qp == lab.qp));
    let record = lab.transport.flight_record(lab.qp, 1_700_000_000_000_000_000).unwrap();
    assert_eq!((record.frames, record.qpn), (5, lab.qpn));
    let psn = Lab::our_psn(0).value().to_string();
    assert!(
        record.comment.contains(&psn) && record.comment.contains("never acknowledged"),
        "{}",
        record.comment
    );
    assert_eq!(record.pcapng[..4], 0x0A0D_0D0A_u32.to_ne_bytes());
    let text = record.comment.as_bytes();
    assert!(record.pcapng.windows(text.len()).any(|w| w == text), "the comment is in the file");
    // Section, interface and packets, each as long as it says.
    let (mut rest, mut blocks) = (&record.pcapng[..], 0);
    while !rest.is_empty() {
        let len = u32::from_ne_bytes(*rest[4..].first_chunk().unwrap()) as usize;
        assert_eq!(rest[len - 4..len], (len as u32).to_ne_bytes());
        (rest, blocks) = (&rest[len..], blocks + 1);
    }
    assert_eq!(blocks, 2 + record.frames);
}

#[test]
fn the_ring_is_bounded_and_off_unless_asked_for() {
    let mut lab = Lab::with(Setup { recorder_frames: 4, ..Setup::default() });
    (0..10).for_each(|_| lab.post(Op::Send, b"x"));
    lab.out();
    assert_eq!(lab.transport.flight_record(lab.qp, 0).unwrap().frames, 4);
    let lab = Lab::new();
    assert!(lab.transport.flight_record(lab.qp, 0).is_none());
}

/// What others carry between two of its timeouts pushes nothing out.
#[test]
fn a_busy_queue_pair_does_not_push_out_what_a_failing_one_did() {
    let mut lab = Lab::with(Setup { recorder_frames: 64, ..Setup::default() });
    let busy = bring_up(&lab.device, &Setup::default());
    let busy_qpn = lab.device.qpn(&busy);
    let busy = lab.transport.attach(busy).unwrap();
    lab.post(Op::Send, b"lost");
    lab.out();
    for round in 0..9 {
        for n in 0..40 {
            let bth = Bth::new(Opcode(0x0A), busy_qpn, Lab::psn(round * 40 + n)).with_ack_request(true);
            lab.give(bth, &Reth::new(0, Rkey(0), 0), &[]);
            lab.out();
        }
        lab.pass(70_000_000);
        lab.out();
    }
    assert_eq!(lab.state(), QpState::Err);
    let record = lab.transport.flight_record(lab.qp, 0).unwrap();
    assert_eq!(record.frames, 8, "the request and its seven repetitions: {}", record.comment);
    assert_eq!(lab.transport.flight_record(busy, 0).unwrap().frames, 64);
}

/// Nor do frames that anybody can send: those that are not admitted are counted, with what was wrong.
#[test]
fn forged_frames_do_not_push_out_evidence() {
    let mut lab = Lab::with(Setup { recorder_frames: 4, retry_cnt: 1, ..Setup::default() });
    lab.post(Op::Send, b"lost");
    lab.out();
    let mut forged = lab.bytes_of(lab.bth(0x04, 0, true), &NoHeaders, b"forged");
    *forged.last_mut().unwrap() ^= 1;
    (0..100).for_each(|_| lab.give_bytes(&forged));
    lab.pass(70_000_000);
    lab.out();
    lab.pass(200_000_000);
    lab.out();
    assert_eq!(lab.state(), QpState::Err);
    // Nor what the peer sends to a queue pair that is in error already.
    (0..100).for_each(|n| lab.give_send(n, b"late"));
    let record = lab.transport.flight_record(lab.qp, 0).unwrap();
    assert_eq!(record.frames, 2, "{}", record.comment);
    assert!(
        record.comment.ends_with(
            "100 frames for it were dropped unread and are not in here, the last for a wrong ICRC"
        ),
        "{}",
        record.comment
    );
}

#[test]
fn recordings_are_handed_out_as_long_as_there_are_spare_rings() {
    let mut lab = Lab::with(Setup { recorder_frames: 4, ..Setup::default() });
    lab.post(Op::Send, b"x");
    lab.out();
    let copies: Vec<_> = std::iter::from_fn(|| lab.transport.copy_recording(lab.qp)).collect();
    assert_eq!(copies.len(), 4, "as many as queue pairs, and no more than {MAX_RECORDINGS}");
    assert!(copies.iter().all(|copy| copy.record(0).unwrap().frames == 1));
    assert!(lab.transport.take_recording(lab.qp).is_none());
    drop(copies);
    let taken = lab.transport.take_recording(lab.qp).unwrap().record(0).unwrap();
    assert_eq!((taken.frames, lab.transport.flight_record(lab.qp, 0).unwrap().frames), (1, 0));
    assert_eq!(recorder_bytes(64, 1000), 1016 * 64 * 128);
    // A ring that is used again holds nothing of the one before.
    lab.post(Op::Send, b"y");
    lab.out();
    lab.transport.modify(lab.qp, &crate::qp::Change::Err).unwrap();
    lab.poll();
    assert!(lab.transport.detach(lab.qp).is_some());
    assert!(lab.transport.flight_record(lab.qp, 0).is_none());
    for _ in 0..8 {
        let qp = lab.transport.attach(bring_up(&lab.device, &Setup::default())).unwrap();
        assert_eq!(lab.transport.flight_record(qp, 0).unwrap().frames, 0);
        assert!(lab.transport.detach(qp).is_some());
    }
}

#[test]
#[cfg_attr(miri, ignore = "touches files")]
fn files_do_not_overwrite_each_other() {
    let lab = Lab::with(Setup { recorder_frames: 4, ..Setup::default() });
    let dir = std::env::temp_dir().join(format!("isthmus-flight-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let record = lab.transport.flight_record(lab.qp, 0).unwrap();
    let (a, b) = (record.write_to(&dir).unwrap(), record.write_to(&dir).unwrap());
    assert_ne!(a, b);
    assert_eq!(std::fs::read(b).unwrap(), record.pcapng);
    std::fs::remove_dir_all(&dir).unwrap();
}
