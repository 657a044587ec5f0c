//! The flight recorder: the headers of the last frames of every queue pair, and the capture file made of them when one
//! fails or somebody asks.
//!
//! Each queue pair has a ring of its own, so that what others carry cannot push out what it will be asked for; the rings
//! are made with the worker, one for each queue pair that it may own. Only frames that pass the checks of
//! [`ingress`](super::ingress) are kept: a ring that anybody could fill with forged ones would prove nothing.
//!
//! Nothing is allocated or written on a worker. It hands the ring out ([`Recording`]) and puts a spare one in its place;
//! a thread that may wait makes the bytes of a file of it and puts them on disk ([`FlightRecord::write_to`]).

mod pcapng;
mod record;
mod ring;

use super::counters::DropReason;
use super::endpoint::SoftTransport;
use super::qp::Qp;
use crate::buf::{Buf, Pool};
use crate::types::Time;
use crate::wire::icrc::LEN;
use crate::wr::QpId;
pub(crate) use record::Failure;
pub use record::FlightRecord;
pub use ring::Recording;
use ring::{Ring, Standing};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes kept of a frame: the longest headers, Ethernet with two tags and IPv6 included, and a little payload.
const KEPT: usize = 112;

/// Recordings of one worker that may be under way at once: taken, and not dropped yet.
pub const MAX_RECORDINGS: u32 = 16;

/// One frame.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: Time,
    /// Bytes on the wire, without the frame check sequence.
    len: u32,
    kept: u8,
    sent: bool,
    bytes: [u8; KEPT],
}

const _: () = assert!(size_of::<Record>() == 128);

impl Record {
    const EMPTY: Record = Record { at: Time(0), len: 0, kept: 0, sent: false, bytes: [0; KEPT] };
}

/// Bytes that the flight recorder of a worker with `max_qps` queue pairs takes, with `frames` frames kept of each.
pub const fn recorder_bytes(frames: u32, max_qps: u32) -> u64 {
    let rings = max_qps as u64 + spares(max_qps) as u64;
    rings * frames as u64 * size_of::<Record>() as u64
}

/// No more recordings can be under way than there are queue pairs to ask about.
const fn spares(max_qps: u32) -> u32 {
    if max_qps < MAX_RECORDINGS { max_qps } else { MAX_RECORDINGS }
}

/// The rings of a worker.
pub(crate) struct Recorder {
    /// Of the queue pairs that are attached, by slot.
    rings: Box<[Option<Ring>]>,
    /// For those that may still come.
    free: Vec<Ring>,
    /// What takes the place of a ring that is handed out, and the way back for those.
    spares: Receiver<Ring>,
    back: SyncSender<Ring>,
    now: Time,
    /// Bytes at the end of a frame that mean nothing.
    tail: usize,
}

impl Recorder {
    /// Keeps the last `frames` frames of each of `max_qps` queue pairs in `slots` slots. Those without an ICRC end before
    /// its place, so that nobody takes it for a wrong one.
    pub(crate) fn new(frames: u32, slots: usize, max_qps: u16, icrc: bool) -> Self {
        let most = spares(max_qps.into());
        let (back, spares) = sync_channel(most as usize);
        // There is room for exactly these.
        (0..most).for_each(|_| back.try_send(Ring::new(frames)).unwrap_or_default());
        Recorder {
            rings: (0..slots).map(|_| None).collect(),
            free: (0..max_qps).map(|_| Ring::new(frames)).collect(),
            spares,
            back,
            now: Time(0),
            tail: if icrc { 0 } else { LEN },
        }
    }

    /// It is `now`.
    #[inline]
    pub(crate) fn tick(&mut self, now: Time) {
        self.now = now;
    }

    /// A queue pair is attached in `slot`.
    pub(crate) fn attach(&mut self, slot: u16) {
        if let Some(place) = self.rings.get_mut(usize::from(slot)) {
            *place = self.free.pop();
        }
    }

    /// The queue pair in `slot` is gone.
    pub(crate) fn detach(&mut self, slot: u16) {
        if let Some(mut ring) = self.rings.get_mut(usize::from(slot)).and_then(Option::take) {
            ring.clear();
            self.free.push(ring);
        }
    }

    #[inline]
    fn ring(&mut self, slot: u16) -> Option<&mut Ring> {
        self.rings.get_mut(usize::from(slot))?.as_mut()
    }

    /// A frame of the queue pair in `slot` came, or left.
    #[inline]
    pub(crate) fn note<B: Buf>(&mut self, slot: u16, sent: bool, frame: &B) {
        let (now, tail) = (self.now, self.tail);
        if let Some(ring) = self.ring(slot) {
            ring.note(now, sent, frame, tail);
        }
    }

    /// A frame for the queue pair in `slot` is dropped unread.
    #[cold]
    pub(crate) fn refuse(&mut self, slot: u16, reason: DropReason) {
        if let Some(ring) = self.ring(slot) {
            ring.refused += 1;
            ring.last_refused = Some(reason);
        }
    }

    /// Hands out the ring of a queue pair and puts an empty one there, or hands out a copy; `None` while all spare ones
    /// are out.
    fn hand_out(&mut self, slot: u16, standing: Standing, copy: bool) -> Option<Recording> {
        let own = self.rings.get_mut(usize::from(slot))?.as_mut()?;
        let mut ring = self.spares.try_recv().ok()?;
        match copy {
            true => ring.copy_from(own),
            false => std::mem::swap(&mut ring, own),
        }
        Some(Recording { standing, ring: Some(ring), back: self.back.clone() })
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({} slots, {} rings free)", self.rings.len(), self.free.len())
    }
}

impl<P: Pool> SoftTransport<P> {
    /// Takes what was recorded of a queue pair, usually after [`Event::QpError`](super::Event::QpError); it goes on with
    /// an empty ring. `None` if the recorder is off ([`SoftConfig::recorder_frames`](super::SoftConfig::recorder_frames)),
    /// `qp` is stale, or [`MAX_RECORDINGS`] that were taken before are not dropped yet. Does not allocate.
    pub fn take_recording(&mut self, qp: QpId) -> Option<Recording> {
        self.hand_out(qp, false)
    }

    /// Like [`SoftTransport::take_recording`], but the queue pair keeps what was recorded. Copies 128 bytes a frame.
    pub fn copy_recording(&mut self, qp: QpId) -> Option<Recording> {
        self.hand_out(qp, true)
    }

    fn hand_out(&mut self, qp: QpId, copy: bool) -> Option<Recording> {
        let standing = self.recorded(qp)?.standing();
        self.shared.recorder.as_mut()?.hand_out(qp.slot, standing, copy)
    }

    /// The last frames of a queue pair as a capture file, made at once: for tools and tests. `epoch_ns` is the moment of
    /// `Time(0)` in nanoseconds since 1970. `None` if the recorder is off or `qp` is stale. Allocates.
    pub fn flight_record(&self, qp: QpId, epoch_ns: u64) -> Option<FlightRecord> {
        let standing = self.recorded(qp)?.standing();
        let recorder = self.shared.recorder.as_ref()?;
        let ring = recorder.rings.get(usize::from(qp.slot))?.as_ref()?;
        Some(FlightRecord::new(&standing, ring, epoch_ns))
    }

    fn recorded(&self, qp: QpId) -> Option<&Qp<P::Buf>> {
        self.qps.get(usize::from(qp.slot))?.as_deref().filter(|q| q.id == qp)
    }
}

impl<B: Buf> Qp<B> {
    fn standing(&self) -> Standing {
        Standing {
            qpn: self.number.qpn,
            dest_qpn: self.dest_qpn,
            peer: self.path.as_ref().map(|path| path.peer_ip()),
            state: self.state,
            failure: self.failure,
        }
    }
}
