//! The flight recorder.

use super::lab::{Lab, Setup};
use crate::soft::Event;
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
