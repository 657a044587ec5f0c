//! The operations of connected queue pairs, one by one.

use super::case::Case;
use super::session::{A, B, Link, Session, all_rights};
use super::{Features, Rig, contents, pattern};
use crate::types::{Pmtu, QpType};
use crate::wr::{Done, Op, OpKind, Received};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::always("rc_send", |r| sends(r, QpType::Rc)),
        Case::always("rc_write", |r| writes(r, QpType::Rc)),
        Case::always("rc_read", reads),
        Case::always("rc_atomics", atomics),
        Case::always("rc_every_pmtu", every_pmtu),
        Case::unless("rc_send_inv", needs_inv, send_inv),
        Case::unless("uc_send", needs_uc, |r| sends(r, QpType::Uc)),
        Case::unless("uc_write", needs_uc, |r| writes(r, QpType::Uc)),
    ]
}

pub(super) fn needs_uc(f: &Features) -> Option<&'static str> {
    (!f.uc).then_some("no unreliable connections")
}

fn needs_inv(f: &Features) -> Option<&'static str> {
    (!f.send_inv).then_some("no SEND_INV against ordinary regions")
}

/// Message lengths around everything that cuts messages.
pub(super) fn lengths(f: &Features) -> Vec<usize> {
    let p = f.pmtu.bytes() as usize;
    let around = |n: usize| [n - 1, n, n + 1];
    let mut all = vec![0, 1, 2, 3, 4, 7, 64];
    all.extend([p, 2 * p, 3 * p].into_iter().flat_map(around));
    all.push(f.max_message);
    all.retain(|n| *n <= f.max_message);
    all
}

/// SEND and SEND_IMM of every length: bytes, immediate value and order at the other end.
fn sends<R: Rig>(rig: &mut R, kind: QpType) {
    let mut s = Session::open(rig);
    let link = Link::new(kind, &s.features);
    let pair = s.connect(&link);
    for (i, len) in lengths(&s.features).into_iter().enumerate() {
        let (from, to) = if i % 2 == 0 { (A, B) } else { (B, A) };
        for imm in [None, Some(0xDEAD_0000 + i as u32)] {
            let bytes = pattern(len as u64, len);
            let r = s.recv(to, pair.qp[to], len);
            let op = imm.map_or(Op::Send, Op::SendImm);
            let c = s.send(from, pair.qp[from], op, &bytes);
            let got = s.wait_ok(to, r);
            assert_eq!(contents(&got.buf), bytes, "{len} bytes");
            assert_eq!(got.done, Done::Received(Received { imm, ..Received::default() }));
            assert_eq!(s.wait_ok(from, c).done, Done::Sent(OpKind::Send));
        }
    }
    s.tear_down(&pair);
    s.finish();
}

/// WRITE and WRITE_IMM of every length: only the named bytes change, and only the latter is seen by software.
fn writes<R: Rig>(rig: &mut R, kind: QpType) {
    let mut s = Session::open(rig);
    let link = Link::new(kind, &s.features);
    let pair = s.connect(&link);
    let size = s.features.max_message + 64;
    let region = s.region(B, size, all_rights());
    let mut want = vec![0; size];
    for (i, len) in lengths(&s.features).into_iter().enumerate() {
        let (offset, bytes) = (i % 13, pattern(i as u64, len));
        let target = region.slice(offset, len as u32).expect("inside");
        want[offset..offset + len].copy_from_slice(&bytes);
        let r = s.recv(B, pair.qp[B], 0);
        let plain = s.send(A, pair.qp[A], Op::Write(target), &bytes);
        assert_eq!(s.wait_ok(A, plain).done, Done::Sent(OpKind::Write));
        let with_imm = s.send(A, pair.qp[A], Op::WriteImm(target, i as u32), &bytes);
        let got = s.wait_ok(B, r);
        let expected = Received { imm: Some(i as u32), written: Some(len as u32), ..Received::default() };
        assert_eq!((got.done, contents(&got.buf)), (Done::Received(expected), vec![]));
        assert_eq!(s.wait_ok(A, with_imm).done, Done::Sent(OpKind::Write));
        let mut memory = vec![0; size];
        region.window().copy_out(0, &mut memory);
        assert_eq!(memory, want, "{len} bytes at {offset}");
    }
    s.tear_down(&pair);
    s.finish();
}

/// READ of every length at odd places: the bytes come, and the other end sees nothing.
fn reads<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let size = s.features.max_message + 64;
    let region = s.region(B, size, all_rights());
    let memory = pattern(9, size);
    region.window().copy_in(0, &memory);
    for (i, len) in lengths(&s.features).into_iter().enumerate() {
        let offset = i % 13;
        let c = s.fetch(A, pair.qp[A], Op::Read(region.slice(offset, len as u32).expect("inside")));
        let got = s.wait_ok(A, c);
        assert_eq!(got.done, Done::Sent(OpKind::Read));
        assert_eq!(contents(&got.buf), memory[offset..offset + len], "{len} bytes at {offset}");
    }
    s.quiet();
    s.tear_down(&pair);
    s.finish();
}

/// Atomics answer with the value before, in host order, and change memory exactly once.
fn atomics<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let region = s.region(B, 64, all_rights());
    let window = region.window();
    let word = region.word(8).expect("aligned");
    window.copy_in(8, &u64::MAX.to_ne_bytes());
    let ask = |s: &mut Session<'_, R>, op: Op| {
        let c = s.fetch(A, pair.qp[A], op);
        let got = s.wait_ok(A, c);
        assert_eq!(got.done, Done::Sent(op.kind()));
        u64::from_ne_bytes(contents(&got.buf).try_into().expect("8 bytes"))
    };
    assert_eq!(ask(&mut s, Op::FetchAdd { word, add: 0x0102_0304_0506_0708 }), u64::MAX, "then it wraps");
    let value = 0x0102_0304_0506_0707;
    assert_eq!(ask(&mut s, Op::CompareSwap { word, compare: 1, swap: 2 }), value, "nothing swapped");
    assert_eq!(ask(&mut s, Op::CompareSwap { word, compare: value, swap: 77 }), value, "swapped");
    assert_eq!(ask(&mut s, Op::FetchAdd { word, add: 0 }), 77);
    let mut memory = [0; 64];
    window.copy_out(0, &mut memory);
    assert_eq!(memory[8..16], 77u64.to_ne_bytes());
    assert!(memory[..8].iter().chain(&memory[16..]).all(|b| *b == 0), "the neighbours are untouched");
    s.quiet();
    s.tear_down(&pair);
    s.finish();
}

/// SEND, WRITE and READ of a few packets at each path MTU the link carries.
fn every_pmtu<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let region = s.region(B, s.features.max_message, all_rights());
    let most = s.features.pmtu;
    for pmtu in Pmtu::ALL.into_iter().filter(|p| *p <= most) {
        let mut link = Link::new(QpType::Rc, &s.features);
        link.pmtu = pmtu;
        let pair = s.connect(&link);
        for extra in [0, 1, pmtu.bytes() as usize - 1] {
            let len = (2 * pmtu.bytes() as usize + extra).min(s.features.max_message);
            let bytes = pattern(extra as u64 + 1, len);
            let slice = region.slice(0, len as u32).expect("inside");
            let r = s.recv(B, pair.qp[B], len);
            let sent = s.send(A, pair.qp[A], Op::Send, &bytes);
            let written = s.send(A, pair.qp[A], Op::Write(slice), &bytes);
            let read = s.fetch(A, pair.qp[A], Op::Read(slice));
            assert_eq!(contents(&s.wait_ok(B, r).buf), bytes, "{len} bytes at PMTU {pmtu}");
            s.wait_ok(A, sent);
            s.wait_ok(A, written);
            assert_eq!(contents(&s.wait_ok(A, read).buf), bytes, "{len} bytes at PMTU {pmtu}");
        }
        s.tear_down(&pair);
    }
    s.finish();
}

/// SEND_INV reports the key it took away, and the key is gone.
fn send_inv<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let region = s.region(B, 64, all_rights());
    let r = s.recv(B, pair.qp[B], 5);
    let c = s.send(A, pair.qp[A], Op::SendInv(region.rkey()), b"taken");
    let got = s.wait_ok(B, r);
    let expected = Received { invalidated: Some(region.rkey()), ..Received::default() };
    assert_eq!((got.done, contents(&got.buf)), (Done::Received(expected), b"taken".to_vec()));
    drop(got);
    s.wait_ok(A, c);
    s.fetch(A, pair.qp[A], Op::Read(region.slice(0, 8).expect("inside")));
    assert_eq!(s.wait(A, 1)[0].status, crate::wr::Status::RemAccessErr);
    s.tear_down(&pair);
    s.finish();
}
