//! Requests that the peer refuses: the status at both ends, and another queue pair unharmed.

use super::bytes::pattern;
use super::case::Case;
use super::session::{A, B, Link, Pair, Session, all_rights};
use super::{Features, Rig};
use crate::mem::{Access, Region};
use crate::qp::QpState;
use crate::transport::{Device, Transport};
use crate::types::{QpType, Rkey};
use crate::wr::{Completion, Cookie, Op, RecvWr, RemoteSlice, RemoteWord, Status};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::always("rc_wrong_rkey", wrong_rkey),
        Case::always("rc_out_of_bounds", out_of_bounds),
        Case::always("rc_region_lacks_right", region_lacks_right),
        Case::always("rc_queue_pair_lacks_right", queue_pair_lacks_right),
        Case::always("rc_no_read_resources", no_read_resources),
        Case::always("rc_other_protection_domain", other_domain),
        Case::always("rc_registration_ended", registration_ended),
        Case::unless("rc_misaligned_atomic", needs_misaligned, misaligned),
        Case::always("rc_overlong_send", overlong_send),
        Case::always("rc_write_imm_wrong_rkey", write_imm_wrong_rkey),
        Case::always("rc_zero_length_needs_no_key", zero_length),
        Case::unless("uc_bad_write_is_lost", super::connected::needs_uc, uc_bad_write),
        Case::unless("uc_overlong_send_is_lost", needs_uc_lossy, uc_overlong_send),
    ]
}

fn needs_uc_lossy(f: &Features) -> Option<&'static str> {
    super::connected::needs_uc(f)
        .or((!f.lossy_overlong).then_some("an over-long message breaks the queue pair"))
}

fn needs_misaligned(f: &Features) -> Option<&'static str> {
    (!f.misaligned).then_some("the driver sends no misaligned atomic")
}

/// Statuses that say the same, by the standard and by implementations that differ.
const ACCESS: &[Status] = &[Status::RemAccessErr];
const INVALID: &[Status] = &[Status::RemInvReqErr];
const TOO_LONG: &[Status] = &[Status::RemInvReqErr, Status::RemOpErr];
/// Of the first receive at the peer: flushed, or in use when it went wrong.
const FLUSHED: &[Status] = &[Status::WrFlushErr];
const IN_USE: &[Status] =
    &[Status::WrFlushErr, Status::LocAccessErr, Status::RemAccessErr, Status::LocProtErr];
const RECEIVE_TOO_SHORT: &[Status] = &[Status::LocLenErr, Status::LocQpOpErr, Status::RemInvReqErr];

/// A case in the making: the pair that breaks and the pair that must not.
struct Scene<'r, R: Rig> {
    s: Session<'r, R>,
    broken: Pair,
    sound: Pair,
    region: Region,
    memory: Vec<u8>,
}

impl<'r, R: Rig> Scene<'r, R> {
    /// Regions of 256 known bytes at B with these rights.
    fn open(rig: &'r mut R, access: Access, change: impl FnOnce(&mut Link)) -> Self {
        let mut s = Session::open(rig);
        let mut link = Link::new(QpType::Rc, &s.features);
        let sound = s.connect(&link);
        change(&mut link);
        let broken = s.connect(&link);
        let region = s.region(B, 256, access);
        let memory = pattern(1, 256);
        region.window().copy_in(0, &memory);
        Scene { s, broken, sound, region, memory }
    }

    fn slice(&self) -> RemoteSlice {
        self.region.slice(16, 64).expect("inside")
    }

    fn word(&self) -> RemoteWord {
        self.region.word(16).expect("aligned")
    }

    fn post(&mut self, op: Op) -> Cookie {
        let (qp, bytes) = (self.broken.qp[A], pattern(2, 64));
        if op.fills_buffer() { self.s.fetch(A, qp, op) } else { self.s.send(A, qp, op, &bytes) }
    }

    /// `op` breaks the pair with `at_a`; the first receive at B ends with `at_b`, all else is flushed in order, no
    /// memory changes, and the other pair works.
    fn breaks(mut self, op: Op, at_a: &[Status], at_b: &[Status]) {
        let receives: Vec<_> = (0..3).map(|_| self.s.recv(B, self.broken.qp[B], 32)).collect();
        let sends = [self.post(op), self.post(Op::Send), self.post(Op::Write(self.slice()))];
        let asked = self.s.wait(A, 3);
        self.check(&asked, &sends, at_a, &format!("{op:?} at A"));
        let answered = self.s.wait(B, 3);
        self.check(&answered, &receives, at_b, &format!("{op:?} at B"));
        drop((asked, answered));
        self.end();
    }

    fn check(&self, got: &[Completion<R::Buf>], wanted: &[Cookie], first: &[Status], what: &str) {
        let cookies: Vec<_> = got.iter().map(|c| c.cookie).collect();
        assert_eq!(cookies, wanted, "{what}: order");
        assert!(first.contains(&got[0].status), "{what}: {:?}, not one of {first:?}", got[0].status);
        assert!(got[1..].iter().all(|c| c.status == Status::WrFlushErr), "{what}: the rest is flushed");
    }

    fn end(mut self) {
        for end in [A, B] {
            let state = self.s.ends[end].transport.state(self.broken.qp[end]);
            assert_eq!(state, Some(QpState::Err), "state at end {end}");
        }
        let mut memory = vec![0; 256];
        self.region.window().copy_out(0, &mut memory);
        assert_eq!(memory, self.memory, "memory is untouched");
        self.s.exchange(&self.sound);
        self.s.tear_down(&self.broken);
        self.s.exchange(&self.sound);
        self.s.tear_down(&self.sound);
        drop(self.region);
        self.s.finish();
    }
}

/// WRITE, READ, FETCH_ADD and COMPARE_SWAP of this range and word.
fn all_kinds(slice: RemoteSlice, word: RemoteWord) -> [Op; 4] {
    let swap = Op::CompareSwap { word, compare: 0, swap: 1 };
    [Op::Write(slice), Op::Read(slice), Op::FetchAdd { word, add: 1 }, swap]
}

fn wrong_rkey<R: Rig>(rig: &mut R) {
    for kind in 0..4 {
        let scene = Scene::open(rig, all_rights(), |_| {});
        let rkey = Rkey(scene.region.rkey().0 ^ 0x5555_0055);
        let slice = RemoteSlice { rkey, ..scene.slice() };
        let op = all_kinds(slice, RemoteWord { rkey, ..scene.word() })[kind];
        scene.breaks(op, ACCESS, FLUSHED);
    }
}

fn out_of_bounds<R: Rig>(rig: &mut R) {
    for (offset, len) in [(-1, 64), (193, 64), (256, 1), (0, 257), (i64::MAX, 64)] {
        let scene = Scene::open(rig, all_rights(), |_| {});
        let addr = scene.region.window().addr().wrapping_add_signed(offset);
        let slice = RemoteSlice { addr, len, rkey: scene.region.rkey() };
        scene.breaks(Op::Read(slice), ACCESS, FLUSHED);
    }
    let scene = Scene::open(rig, all_rights(), |_| {});
    let addr = scene.region.window().addr() + 200;
    let slice = RemoteSlice { addr, ..scene.slice() };
    scene.breaks(Op::Write(slice), ACCESS, FLUSHED);
    let scene = Scene::open(rig, all_rights(), |_| {});
    let addr = scene.region.window().addr() + 256;
    let word = RemoteWord { addr, ..scene.word() };
    scene.breaks(Op::FetchAdd { word, add: 1 }, ACCESS, FLUSHED);
}

/// The right each of the four kinds needs.
const NEEDED: [Access; 4] =
    [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC, Access::REMOTE_ATOMIC];

/// Every right but the one that is needed.
fn all_but(needed: Access) -> Access {
    [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC]
        .into_iter()
        .filter(|a| *a != needed)
        .fold(Access::LOCAL_WRITE, Access::and)
}

fn region_lacks_right<R: Rig>(rig: &mut R) {
    for (kind, needed) in NEEDED.into_iter().enumerate() {
        let scene = Scene::open(rig, all_but(needed), |_| {});
        let op = all_kinds(scene.slice(), scene.word())[kind];
        scene.breaks(op, ACCESS, FLUSHED);
    }
}

fn queue_pair_lacks_right<R: Rig>(rig: &mut R) {
    for (kind, needed) in NEEDED.into_iter().enumerate() {
        let scene = Scene::open(rig, all_rights(), |link| link.access[B] = all_but(needed));
        let op = all_kinds(scene.slice(), scene.word())[kind];
        scene.breaks(op, INVALID, FLUSHED);
    }
}

fn no_read_resources<R: Rig>(rig: &mut R) {
    let scene = Scene::open(rig, all_rights(), |link| link.max_dest_rd_atomic[B] = 0);
    let op = Op::Read(scene.slice());
    scene.breaks(op, INVALID, FLUSHED);
}

/// A region of the same node in another protection domain.
fn other_domain<R: Rig>(rig: &mut R) {
    for kind in 0..4 {
        let mut scene = Scene::open(rig, all_rights(), |_| {});
        let Some(stranger) = scene.s.rig.stranger(B) else {
            eprintln!("suite: rc_other_protection_domain SKIPPED: the rig has one protection domain");
            scene.s.tear_down(&scene.broken);
            return scene.s.finish();
        };
        let arena = crate::mem::Arena::new(256, crate::mem::Backing::Pages).expect("an arena");
        let theirs = stranger.register(&arena, all_rights()).expect("a region");
        let slice = theirs.slice(16, 64).expect("inside");
        let op = all_kinds(slice, theirs.word(16).expect("aligned"))[kind];
        scene.breaks(op, ACCESS, FLUSHED);
        let mut memory = [1; 256];
        arena.window().copy_out(0, &mut memory);
        assert_eq!(memory, [0; 256], "their memory is untouched");
        drop((theirs, stranger));
    }
}

fn registration_ended<R: Rig>(rig: &mut R) {
    let scene = Scene::open(rig, all_rights(), |_| {});
    let other = scene.s.region(B, 256, all_rights());
    let slice = other.slice(0, 64).expect("inside");
    drop(other);
    scene.breaks(Op::Read(slice), ACCESS, FLUSHED);
}

fn misaligned<R: Rig>(rig: &mut R) {
    for kind in [2, 3] {
        let scene = Scene::open(rig, all_rights(), |_| {});
        let word = RemoteWord { addr: scene.word().addr + 4, ..scene.word() };
        let op = all_kinds(scene.slice(), word)[kind];
        scene.breaks(op, INVALID, FLUSHED);
    }
}

/// A buffer of B with room for 32 bytes and no more.
fn overlong_send<R: Rig>(rig: &mut R) {
    for len in [33, 64] {
        let mut scene = Scene::open(rig, all_rights(), |_| {});
        let receives: Vec<_> = (0..3)
            .map(|_| {
                let (buf, cookie) = (super::lifecycle::small_room(&scene.s, B, 32), scene.s.cookie());
                let taken = scene.s.ends[B].transport.post_recv(scene.broken.qp[B], RecvWr { buf, cookie });
                assert!(taken.is_ok());
                cookie
            })
            .collect();
        let good = scene.s.send(A, scene.broken.qp[A], Op::Send, &[7; 32]);
        let bad = scene.s.send(A, scene.broken.qp[A], Op::Send, &pattern(5, len));
        let behind = scene.s.send(A, scene.broken.qp[A], Op::Send, b"behind");
        scene.s.wait_ok(A, good);
        let asked = scene.s.wait(A, 2);
        scene.check(&asked, &[bad, behind], TOO_LONG, "over-long SEND at A");
        scene.s.wait_ok(B, receives[0]);
        let answered = scene.s.wait(B, 2);
        scene.check(&answered, &receives[1..], RECEIVE_TOO_SHORT, "over-long SEND at B");
        drop((asked, answered));
        scene.end();
    }
}

fn write_imm_wrong_rkey<R: Rig>(rig: &mut R) {
    let scene = Scene::open(rig, all_rights(), |_| {});
    let slice = RemoteSlice { rkey: Rkey(scene.region.rkey().0 ^ 0x100), ..scene.slice() };
    scene.breaks(Op::WriteImm(slice, 1), ACCESS, IN_USE);
}

/// WRITE and READ of no bytes check neither key nor address.
fn zero_length<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let nowhere = RemoteSlice { addr: 0, rkey: Rkey(0xFFFF_FF12), len: 0 };
    let w = s.send(A, pair.qp[A], Op::Write(nowhere), b"");
    let r = s.fetch(A, pair.qp[A], Op::Read(nowhere));
    s.wait_ok(A, w);
    s.wait_ok(A, r);
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}

/// On an unreliable connection the sender learns nothing of a bad WRITE, and the receiver lives on.
fn uc_bad_write<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Uc, &s.features);
    let pair = s.connect(&link);
    let region = s.region(B, 64, all_rights());
    let slice = region.slice(0, 8).expect("inside");
    let bad = RemoteSlice { rkey: Rkey(slice.rkey.0 ^ 0x5500), ..slice };
    for op in [Op::Write(bad), Op::Write(RemoteSlice { addr: slice.addr + 60, ..slice })] {
        let c = s.send(A, pair.qp[A], op, b"12345678");
        s.wait_ok(A, c);
    }
    s.quiet();
    let mut memory = [1; 64];
    region.window().copy_out(0, &mut memory);
    assert_eq!(memory, [0; 64]);
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}

/// A SEND longer than the receive is lost; the receive waits for the next one.
fn uc_overlong_send<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Uc, &s.features);
    let pair = s.connect(&link);
    let (buf, cookie) = (super::lifecycle::small_room(&s, B, 32), s.cookie());
    assert!(s.ends[B].transport.post_recv(pair.qp[B], RecvWr { buf, cookie }).is_ok());
    let long = s.send(A, pair.qp[A], Op::Send, &[1; 33]);
    s.wait_ok(A, long);
    s.quiet();
    let short = s.send(A, pair.qp[A], Op::Send, &[2; 32]);
    assert_eq!(super::contents(&s.wait_ok(B, cookie).buf), [2; 32]);
    s.wait_ok(A, short);
    s.tear_down(&pair);
    s.finish();
}
