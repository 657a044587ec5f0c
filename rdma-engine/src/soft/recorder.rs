//! The flight recorder: the headers of the last frames of a worker, in a ring of fixed size, and the capture file made
//! of them when a queue pair fails or somebody asks.
//!
//! Nothing is written from here. The endpoint makes the bytes of a pcapng file; a thread that may wait puts them on
//! disk ([`FlightRecord::write_to`]).

use super::endpoint::SoftTransport;
use super::qp::Qp;
use crate::buf::{Buf, Pool};
use crate::types::{Psn, Qpn, Time};
use crate::wire::icrc::LEN;
use crate::wr::{QpId, Status};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes kept of a frame: the longest headers, Ethernet with two tags and IPv6 included, and a little payload.
const KEPT: usize = 112;

/// One frame.
#[derive(Clone, Copy)]
struct Record {
    at: Time,
    /// Bytes on the wire, without the frame check sequence.
    len: u32,
    /// Queue pair.
    slot: u16,
    kept: u8,
    sent: bool,
    bytes: [u8; KEPT],
}

/// The ring.
pub(crate) struct Recorder {
    records: Box<[Record]>,
    /// Frames ever noted.
    count: u64,
    now: Time,
    /// Bytes at the end of a frame that mean nothing.
    tail: usize,
}

impl Recorder {
    /// Keeps the last `frames` frames. Those without an ICRC end before its place, so that nobody takes it for a wrong one.
    pub(crate) fn new(frames: u32, icrc: bool) -> Self {
        let empty = Record { at: Time(0), len: 0, slot: 0, kept: 0, sent: false, bytes: [0; KEPT] };
        Recorder {
            records: vec![empty; frames as usize].into_boxed_slice(),
            count: 0,
            now: Time(0),
            tail: if icrc { 0 } else { LEN },
        }
    }

    /// It is `now`.
    pub(crate) fn tick(&mut self, now: Time) {
        self.now = now;
    }

    /// A frame of the queue pair in `slot` came, or left.
    pub(crate) fn note<B: Buf>(&mut self, slot: u16, sent: bool, frame: &B) {
        let at = (self.count % self.records.len() as u64) as usize;
        let first = frame.first();
        let kept = first.len().min(KEPT).min(frame.len().saturating_sub(self.tail));
        let record = &mut self.records[at];
        record.bytes[..kept].copy_from_slice(&first[..kept]);
        (record.at, record.len, record.slot) = (self.now, frame.len() as u32, slot);
        (record.kept, record.sent) = (kept as u8, sent);
        self.count += 1;
    }

    /// The frames of a queue pair that are still there, oldest first.
    fn of(&self, slot: u16) -> impl Iterator<Item = &Record> {
        let size = self.records.len() as u64;
        let oldest = self.count.saturating_sub(size);
        let all = (oldest..self.count).map(move |n| &self.records[(n % size) as usize]);
        all.filter(move |r| r.slot == slot)
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({} of {})", self.count.min(self.records.len() as u64), self.records.len())
    }
}

/// Where a queue pair stood when it failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// Oldest request packet that was not acknowledged.
    pub(crate) unacknowledged: Psn,
    /// Request packet expected of the peer.
    pub(crate) expected: Psn,
}

/// What the recorder knows of one queue pair: a capture file, and in words what went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlightRecord {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// What went wrong, or that nothing did; also the comment of the file.
    pub comment: String,
    /// Frames in the file.
    pub frames: usize,
    /// The file, in the pcapng format.
    pub pcapng: Vec<u8>,
}

impl FlightRecord {
    /// Writes the file into the directory `dir`, under a name that is not taken. Waits for the disk: not for workers.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_to(&self, dir: &Path) -> io::Result<PathBuf> {
        use io::Write;
        // Bounded: a directory with this many files of one number is not read by anybody.
        for n in 0..10_000 {
            let path = dir.join(format!("qp-{:06x}-{n}.pcapng", self.qpn.value()));
            match std::fs::File::create_new(&path) {
                Ok(mut file) => return file.write_all(&self.pcapng).map(|()| path),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl<P: Pool> SoftTransport<P> {
    /// The last frames of a queue pair as a capture file, usually after
    /// [`Event::QpError`](super::Event::QpError); `None` if the recorder is off
    /// ([`SoftConfig::recorder_frames`](super::SoftConfig::recorder_frames)) or `qp` is stale. `epoch_ns` is the moment
    /// of `Time(0)` in nanoseconds since 1970. Allocates.
    pub fn flight_record(&self, qp: QpId, epoch_ns: u64) -> Option<FlightRecord> {
        let recorder = self.shared.recorder.as_ref()?;
        let qp = self.qps.get(usize::from(qp.slot))?.as_deref().filter(|q| q.id == qp)?;
        let comment = qp.in_words();
        let records: Vec<&Record> = recorder.of(qp.id.slot).collect();
        let mut file = PcapNg::new(&comment, &format!("QP {:#08x}", qp.number.qpn.value()));
        for record in &records {
            file.packet(record, epoch_ns);
        }
        Some(FlightRecord { qpn: qp.number.qpn, comment, frames: records.len(), pcapng: file.0 })
    }
}

impl<B: Buf> Qp<B> {
    /// What went wrong, for people.
    fn in_words(&self) -> String {
        let peer = self.path.as_ref().map_or("nobody yet".into(), |p| p.peer_ip().to_string());
        let who = format!(
            "queue pair {:#08x}, connected to {:#08x} at {peer}",
            self.number.qpn.value(),
            self.dest_qpn.value()
        );
        match &self.failure {
            None => format!("{who}: in state {:?}, no error so far", self.state),
            Some(failure) => format!("{who}, failed: {}. {}", failure.status, cause(failure)),
        }
    }
}

/// What most likely lies behind an error.
fn cause(failure: &Failure) -> String {
    let (una, expected) = (failure.unacknowledged.value(), failure.expected.value());
    match failure.status {
        Status::RetryExcErr => format!(
            "The request at PSN {una} was sent again and again and never acknowledged: the peer or the path to it is \
             gone, or its queue pair is in error"
        ),
        Status::RnrRetryExcErr => {
            format!("The peer had no receive for the request at PSN {una}, however often it was asked")
        }
        Status::RemAccessErr => format!(
            "The peer refused the request at PSN {una}: its key is wrong, or it lies outside the region or its rights"
        ),
        Status::RemInvReqErr => format!(
            "A request was invalid, ours at PSN {una} or the peer's before PSN {expected}: wrong opcode, length, \
             alignment or a right the queue pair does not have"
        ),
        Status::RemOpErr => format!("The peer could not carry out the request at PSN {una}"),
        Status::LocLenErr => {
            format!("The peer's message at PSN {expected} is longer than the receive posted for it")
        }
        Status::LocAccessErr => format!(
            "The peer's request at PSN {expected} names a wrong key, or lies outside the region or its rights"
        ),
        Status::BadRespErr => format!("The peer's answer does not fit the request at PSN {una}"),
        Status::WrFlushErr => "It was taken down by its owner".into(),
        _ => format!("The next request packet was PSN {una}, the next one of the peer PSN {expected}"),
    }
}

/// A capture file, in the byte order of this machine.
struct PcapNg(Vec<u8>);

/// Block types and options of the format.
const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const OPT_COMMENT: u16 = 1;
const OPT_APPLICATION: u16 = 4;
const OPT_NAME: u16 = 2;
const OPT_RESOLUTION: u16 = 9;
const OPT_FLAGS: u16 = 2;
const LINK_ETHERNET: u16 = 1;

impl PcapNg {
    fn new(comment: &str, interface: &str) -> Self {
        let mut file = PcapNg(Vec::new());
        file.block(SECTION, |out| {
            out.extend(0x1A2B_3C4D_u32.to_ne_bytes());
            out.extend(1_u16.to_ne_bytes());
            out.extend(0_u16.to_ne_bytes());
            // Length not given.
            out.extend(u64::MAX.to_ne_bytes());
            option(out, OPT_COMMENT, comment.as_bytes());
            option(out, OPT_APPLICATION, b"isthmus flight recorder");
            option(out, 0, b"");
        });
        file.block(INTERFACE, |out| {
            out.extend(LINK_ETHERNET.to_ne_bytes());
            out.extend(0_u16.to_ne_bytes());
            out.extend((KEPT as u32).to_ne_bytes());
            option(out, OPT_NAME, interface.as_bytes());
            // Nanoseconds.
            option(out, OPT_RESOLUTION, &[9]);
            option(out, 0, b"");
        });
        file
    }

    fn packet(&mut self, record: &Record, epoch_ns: u64) {
        let time = epoch_ns.wrapping_add(record.at.0);
        let bytes = &record.bytes[..usize::from(record.kept)];
        let direction: u32 = if record.sent { 2 } else { 1 };
        self.block(PACKET, |out| {
            for word in [0, (time >> 32) as u32, time as u32, bytes.len() as u32, record.len] {
                out.extend(word.to_ne_bytes());
            }
            padded(out, bytes);
            option(out, OPT_FLAGS, &direction.to_ne_bytes());
            option(out, 0, b"");
        });
    }

    /// A block: its length stands before and after its body.
    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend(kind.to_ne_bytes());
        self.0.extend([0; 4]);
        body(&mut self.0);
        let len = (self.0.len() - start + 4) as u32;
        self.0[start + 4..start + 8].copy_from_slice(&len.to_ne_bytes());
        self.0.extend(len.to_ne_bytes());
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_ne_bytes());
    out.extend((value.len() as u16).to_ne_bytes());
    padded(out, value);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}
