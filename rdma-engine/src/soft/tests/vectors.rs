//! Frames that Linux rxe sent, replayed into an endpoint that stands where its peer stood.

use super::lab::{Lab, Setup, read};
use crate::wire::RoceFrame;

/// From a capture of rxe 6.1: SEND_ONLY of 16 bytes, 10.9.0.2 to 10.9.0.1, QPN 0x11, PSN 0x99c61c.
const SEND: &str = "52540000000152540000000208004500003c1dc44000401108d90a0900020a090001e59612b7002800000400ffff000000118099c61c000055c1b114a370000005bf00000040dcec5cb3";
/// What rxe at the other end answered: ACK, MSN 1.
const ACK: &str = "525400000002525400000001080045000030d5904000401151180a0900010a090002e59612b7001c00001100ffff000000110099c61c1f0000019b1e725d";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn our_answer_to_a_frame_of_rxe_says_what_rxe_answered() {
    let theirs = read(&bytes(ACK));
    let frame = bytes(SEND);
    let view = RoceFrame::parse(&frame).unwrap();
    assert!(view.icrc_ok());
    let mut lab = Lab::with(Setup::default());
    lab.post_recv(0);
    // The same packet for our queue pair and the PSN it expects.
    let bth = lab.bth(view.bth().opcode.0, 0, view.bth().ack_request());
    lab.give(bth, &crate::wire::NoHeaders, view.payload());
    let ours = lab.out();
    assert_eq!((ours[0].name, ours[0].aeth), (theirs.name, theirs.aeth));
    assert_eq!(super::lab::bytes(&lab.poll()[0]), view.payload());
}
