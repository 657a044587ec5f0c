//! A flight record: the capture file of one queue pair, and in words what went wrong.

use super::pcapng::PcapNg;
use super::ring::{Ring, Standing};
use crate::soft::counters::DropReason;
use crate::types::{Psn, Qpn};
use crate::wr::Status;
use std::io;
use std::path::{Path, PathBuf};

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

impl FlightRecord {
    /// Tells what is in `ring` of the queue pair that stood so. Allocates.
    pub(super) fn new(standing: &Standing, ring: &Ring, epoch_ns: u64) -> Self {
        let comment = in_words(standing, ring);
        let mut file = PcapNg::new(&comment, &format!("QP {:#08x}", standing.qpn.value()));
        ring.frames().for_each(|record| file.packet(record, epoch_ns));
        FlightRecord { qpn: standing.qpn, comment, frames: ring.len(), pcapng: file.0 }
    }
}

/// What went wrong, for people.
fn in_words(standing: &Standing, ring: &Ring) -> String {
    let peer = standing.peer.map_or("nobody yet".into(), |ip| ip.to_string());
    let (qpn, dest_qpn) = (standing.qpn.value(), standing.dest_qpn.value());
    let who = format!("queue pair {qpn:#08x}, connected to {dest_qpn:#08x} at {peer}");
    let mut words = match &standing.failure {
        None => format!("{who}: in state {:?}, no error so far", standing.state),
        Some(failure) => format!("{who}, failed: {}. {}", failure.status, cause(failure)),
    };
    if let Some(last) = ring.last_refused {
        let n = ring.refused;
        words += &format!(
            ". {n} frames for it were dropped unread and are not in here, the last for {}",
            flaw(last)
        );
    }
    words
}

/// What is wrong with a frame that is dropped before it is read.
fn flaw(reason: DropReason) -> &'static str {
    match reason {
        DropReason::WrongTransport => "an opcode of another transport",
        DropReason::State => "coming before the queue pair was ready",
        DropReason::Address => "an address that is not the peer's or ours",
        DropReason::Pkey => "another partition",
        DropReason::Icrc => "a wrong ICRC",
        _ => "another reason",
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
