//! RoCEv2 of our own against kernel rxe, operation by operation, in one process: rxe0 through verbs, and the other end of
//! its wire as a raw socket.
//!
//! Outside of the guest the tests say SKIPPED; `tests/guest/interop.sh` runs this binary there. Environment variables:
//!
//! | `ISTHMUS_INTEROP_...` | |
//! |---|---|
//! | `SUITE` | selects cases of the suite by a part of their name |
//! | `ROUNDS` | how often the matrix of operations is gone through |
//! | `LONG_ROUNDS` | how often megabytes go over |
//! | `SEED` | makes the soak and what befalls its frames another one |
//! | `CAPTURE` | a capture file of the last wire's frames |
//!
//! What is found: `docs/interop.md`.
#![cfg(feature = "verbs")]
#![allow(unreachable_pub)] // modules of a program.

#[path = "../arena_pool/mod.rs"]
mod arena_pool;
mod counters;
mod deviations;
mod ends;
mod injected;
mod matrix;
mod places;
mod rig;
mod wire;

use counters::Growth;
use matrix::Matrix;
use rdma_engine::suite::{self, A, B, Case, Link, NodeSpec, Rng, Session, contents, pattern};
use rdma_engine::types::{Pmtu, QpType};
use rdma_engine::wr::Op;
use rig::{InteropRig, rig, say, seed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use wire::Fate;

/// Left out where no filter names it: what counts completions of one poll takes it for granted that all messages of a
/// turn arrive at once.
const LEFT_OUT: &str = "rc_cq_priority";

fn suite_passes(rig: &mut InteropRig) {
    let filter = std::env::var("ISTHMUS_INTEROP_SUITE").unwrap_or_default();
    let wanted = |name: &str| if filter.is_empty() { name != LEFT_OUT } else { name.contains(&filter) };
    let cases: Vec<_> = Case::<InteropRig>::all().into_iter().filter(|c| wanted(c.name)).collect();
    // A case that fails does not keep the others from running.
    let run = |c: &Case<InteropRig>| {
        catch_unwind(AssertUnwindSafe(|| suite::run_case(rig, c.name))).err().map(|_| c.name)
    };
    let failed: Vec<_> = cases.iter().filter_map(run).collect();
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:?}", failed.len(), cases.len());
}

#[test]
fn the_suite_passes_from_own_to_kernel() {
    let Some(mut rig) = rig("the_suite_passes_from_own_to_kernel", B, false) else { return };
    suite_passes(&mut rig);
}

#[test]
fn the_suite_passes_from_kernel_to_own_over_ipv6() {
    let Some(mut rig) = rig("the_suite_passes_from_kernel_to_own_over_ipv6", A, true) else { return };
    suite_passes(&mut rig);
}

fn number_in(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Operations of each kind, direction, path MTU and IP version: every one of these together with every other.
#[test]
fn every_operation_at_every_path_mtu() {
    let rounds = number_in("ISTHMUS_INTEROP_ROUNDS").unwrap_or(4);
    let growth = ["duplicate_request", "out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err"];
    for ipv6 in [false, true] {
        let Some(mut rig) = rig("every_operation_at_every_path_mtu", A, ipv6) else { return };
        let growth = Growth::of(growth);
        let done = Matrix::open(&mut rig, 5 + u64::from(ipv6)).go_through(rounds);
        say(&format!("{done} operations, IPv6 {ipv6}; of rxe's counters grew by {:?}", growth.so_far()));
    }
}

/// SEND, WRITE and READ of megabytes, from both ends.
#[test]
fn long_messages() {
    const MIB: usize = 1 << 20;
    let Some(mut rig) = rig("long_messages", A, false) else { return };
    rig.pool = Some(NodeSpec { buffers: 6, room: 8 * MIB });
    let mut s = Session::open(&mut rig);
    let mut link = Link::new(QpType::Rc, &s.features);
    link.pmtu = Pmtu::B4096;
    let pair = s.connect(&link);
    let regions = [A, B].map(|end| s.region(end, 8 * MIB, matrix::all_rights()));
    let lengths = [(A, MIB), (B, MIB + 4097), (A, 8 * MIB), (B, 8 * MIB)];
    let rounds = number_in("ISTHMUS_INTEROP_LONG_ROUNDS").unwrap_or(1);
    for (from, len) in (0..rounds).flat_map(|_| lengths) {
        let (to, bytes) = (1 - from, pattern(len as u64, len));
        let slice = regions[to].slice(0, len as u32).expect("inside");
        let c = s.send(from, pair.qp[from], Op::Write(slice), &bytes);
        s.wait_ok(from, c);
        let c = s.fetch(from, pair.qp[from], Op::Read(slice));
        assert!(contents(&s.wait_ok(from, c).buf) == bytes, "a READ of {len} bytes by end {from}");
        let r = s.recv(to, pair.qp[to], len);
        let c = s.send(from, pair.qp[from], Op::Send, &bytes);
        assert!(contents(&s.wait_ok(to, r).buf) == bytes, "a SEND of {len} bytes by end {from}");
        s.wait_ok(from, c);
    }
    s.tear_down(&pair);
    drop(regions);
    s.finish();
}

/// Random operations both ways over a wire that does this to one frame in a hundred.
fn soak_with(test: &str, fate: Fate, grows: &'static str) {
    for (kernel, ipv6) in [(A, true), (B, false)] {
        let Some(mut rig) = rig(test, kernel, ipv6) else { return };
        rig.features.soak_ops = 300;
        let mut rng = Rng::new(2 * seed() + kernel as u64);
        rig.judge(Box::new(move |_, _| if rng.once_in(100) { fate } else { Fate::Passes }));
        let growth = Growth::of([grows]);
        assert_eq!(suite::run_case(&mut rig, "rc_soak"), None);
        say(&format!("{grows} grew by {}", growth.so_far()[0]));
    }
}

#[test]
fn one_frame_in_a_hundred_is_lost() {
    soak_with("one_frame_in_a_hundred_is_lost", Fate::IsLost, "out_of_seq_request");
}

#[test]
fn one_frame_in_a_hundred_is_late() {
    soak_with("one_frame_in_a_hundred_is_late", Fate::IsLate, "out_of_seq_request");
}

#[test]
fn one_frame_in_a_hundred_comes_twice() {
    soak_with("one_frame_in_a_hundred_comes_twice", Fate::ComesTwice, "duplicate_request");
}

#[test]
fn one_frame_in_a_hundred_is_corrupt() {
    soak_with("one_frame_in_a_hundred_is_corrupt", Fate::IsCorrupt, "out_of_seq_request");
}
