//! What a replayed run prints: every frame in words, and what the ends did.

use crate::types::Time;
use crate::wire::RoceFrame;

/// Names of the ends.
const ENDS: [&str; 2] = ["A", "B"];

/// A trace, printed as it happens, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace {
    on: bool,
}

impl Trace {
    /// Prints everything if `on`.
    pub const fn new(on: bool) -> Self {
        Trace { on }
    }

    /// A frame left `from`, and what became of it.
    pub fn frame(&mut self, now: Time, from: usize, fate: &str, bytes: &[u8]) {
        if self.on {
            println!("{:>12} {}>{} {fate:<10} {}", now.0, ENDS[from], ENDS[1 - from], words(bytes));
        }
    }

    /// Something else happened at an end.
    pub fn note(&mut self, now: Time, end: usize, what: impl FnOnce() -> String) {
        if self.on {
            println!("{:>12} {}   {}", now.0, ENDS[end], what());
        }
    }
}

/// A frame in words.
fn words(bytes: &[u8]) -> String {
    let frame = match RoceFrame::parse(bytes) {
        Ok(frame) => frame,
        Err(error) => return error.to_string(),
    };
    let (bth, packet) = (frame.bth(), &frame.packet);
    let mut text =
        format!("{} {} {} {}B", packet.info.name, bth.dest_qpn.qpn(), bth.psn.psn(), packet.payload_len());
    if let Some(reth) = packet.reth() {
        text += &format!(" va {:#x} len {}", reth.addr.get(), reth.len.get());
    }
    if let Some(aeth) = packet.aeth() {
        text += &format!(" {} msn {}", aeth.meaning(), aeth.msn.value());
    }
    if bth.ack_request() {
        text += " ackreq";
    }
    if !frame.icrc_ok() {
        text += " BAD ICRC";
    }
    text
}
