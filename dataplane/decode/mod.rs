//! `isthmus decode FILE`: a capture of RoCE traffic in words.
//!
//! Every RoCE frame on one line; then the conversations, two queue pairs each, with what was asked, what was
//! answered and what most likely went wrong; then the life of one message. Works on captures of any peer: no
//! DPDK, no RDMA device. Nothing in a file can make it panic or use more than bounded memory.

mod capture;
mod conversation;
mod dissect;
mod input;
mod json;
mod lower;
mod packet_view;
mod recall;
mod refusal;
mod report;
mod story;
mod units;
mod verdict;
mod words;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use capture::Capture;
use conversation::{Follow, Tracker};
use dissect::{Dissected, IcrcVerdict, Other, Packet, dissect};
use input::Input;
use packet_view::View;
use recall::Recall;
use story::Story;
use units::Count;

/// What to print, and how.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DecodeOptions {
    /// One JSON object a line instead of words.
    pub json: bool,
    /// Which parts.
    pub show: Show,
    /// Which message's life to tell. Words only.
    pub follow: Followed,
}

impl DecodeOptions {
    /// True if the life of a message is to be told.
    fn tells_a_story(&self) -> bool {
        !self.json && self.show != Show::Frames && self.follow != Followed::Nothing
    }
}

/// Parts of the output.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Show {
    /// Frames, then conversations. In JSON only frames, so that all objects are of one kind.
    #[default]
    All,
    /// Only frames.
    Frames,
    /// Only conversations.
    Conversations,
}

/// Which message's life is told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Followed {
    /// The first SEND, preferably one that was answered.
    #[default]
    FirstSend,
    /// The message that this frame (from 1) belongs to, or answers.
    Frame(u64),
    /// None.
    Nothing,
}

/// What a capture held.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DecodeSummary {
    /// Frames of any kind.
    pub frames: u64,
    /// RoCEv2 frames.
    pub roce_v2: u64,
    /// RoCEv1 frames.
    pub roce_v1: u64,
    /// RoCE frames whose ICRC is wrong.
    pub bad_icrc: u64,
    /// RoCE frames whose ICRC was not captured.
    pub unknown_icrc: u64,
    /// RoCE frames whose headers make no sense or were cut off.
    pub malformed: u64,
    /// Conversations found.
    pub conversations: u64,
    /// Conversations in which something went wrong.
    pub troubled: u64,
    /// Why reading stopped before the end of the file; what was read was decoded.
    pub stopped: Option<String>,
}

/// Why a capture could not be decoded. A file that is cut short or damaged further on is no error: see
/// [`DecodeSummary::stopped`].
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The file cannot be opened.
    #[error("{path}: cannot open: {source}; check the name and the permissions")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is not a capture.
    #[error("{path}: {reason}")]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Decodes the capture at `path` (`-` for standard input) and writes what `options` ask for to `out`. What cannot be
/// read twice is decoded as [`run_stream`] does.
///
/// # Errors
/// [`DecodeError`]: the file cannot be opened, is no capture, or `out` does not take the text.
pub fn run(path: &Path, options: &DecodeOptions, out: &mut dyn Write) -> Result<DecodeSummary, DecodeError> {
    let name = input::name(path);
    let mut input = Input::open(path).map_err(|source| DecodeError::Open { path: name.clone(), source })?;
    let recall = if input.can_rewind() { None } else { Some(Recall::default()) };
    let mut pass = Pass::new(*options, recall);
    pass.read(open_capture(&name, &input)?, out)?;
    pass.finish(out)?;
    pass.tell(out, |story| {
        if input.rewind().is_ok()
            && let Ok(capture) = Capture::open(&input)
        {
            retell(capture, story);
        }
    })?;
    out.flush()?;
    Ok(pass.summary)
}

/// Decodes a capture that is read from `input` as it comes. The packets of the last while are kept in memory, some 15 MB
/// at most, so that the life of a message can be told at the end.
///
/// # Errors
/// [`DecodeError::NotACapture`] (with an empty path) or [`DecodeError::Write`].
pub fn run_stream(
    input: impl Read,
    options: &DecodeOptions,
    out: &mut dyn Write,
) -> Result<DecodeSummary, DecodeError> {
    let mut pass = Pass::new(*options, Some(Recall::default()));
    pass.read(open_capture(Path::new(""), input)?, out)?;
    pass.finish(out)?;
    pass.tell(out, |_| ())?;
    out.flush()?;
    Ok(pass.summary)
}

fn open_capture<R: Read>(path: &Path, input: R) -> Result<Capture<R>, DecodeError> {
    Capture::open(input)
        .map_err(|error| DecodeError::NotACapture { path: path.into(), reason: error.to_string() })
}

/// One pass over a file.
struct Pass {
    options: DecodeOptions,
    tracker: Tracker,
    /// Where the story finds its packets, if not in the file.
    recall: Option<Recall>,
    summary: DecodeSummary,
    others: BTreeMap<Other, u64>,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    line: String,
}

impl Pass {
    fn new(options: DecodeOptions, recall: Option<Recall>) -> Self {
        Pass {
            options,
            tracker: Tracker::new(Follow::new(options.follow)),
            recall: recall.filter(|_| options.tells_a_story()),
            summary: DecodeSummary::default(),
            others: BTreeMap::new(),
            start_ns: None,
            end_ns: None,
            line: String::new(),
        }
    }

    fn read<R: Read>(&mut self, mut capture: Capture<R>, out: &mut dyn Write) -> io::Result<()> {
        loop {
            if capture.is_drained() {
                // The next frame may be long in coming.
                out.flush()?;
            }
            let record = match capture.next() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.summary.stopped = Some(error.to_string());
                    return Ok(());
                }
            };
            self.summary.frames += 1;
            self.start_ns = self.start_ns.or(record.time_ns);
            self.end_ns = self.end_ns.max(record.time_ns);
            match dissect(&record) {
                Dissected::Roce(packet) => self.packet(&packet, out)?,
                Dissected::Other(other) => *self.others.entry(other).or_default() += 1,
            }
        }
    }

    fn packet(&mut self, packet: &Packet<'_>, out: &mut dyn Write) -> io::Result<()> {
        match packet.is_roce_v1() {
            true => self.summary.roce_v1 += 1,
            false => self.summary.roce_v2 += 1,
        }
        self.summary.malformed += u64::from(packet.ib.is_err());
        self.summary.bad_icrc += u64::from(packet.icrc == IcrcVerdict::Bad);
        self.summary.unknown_icrc += u64::from(packet.icrc == IcrcVerdict::Unknown);
        let cm = packet.cm().map(|(_, message)| message);
        let view = View::of(packet);
        self.remember(view);
        let mark = self.tracker.observe(&view, cm.as_ref());
        if self.options.show == Show::Conversations {
            return Ok(());
        }
        if self.options.json {
            return writeln!(out, "{}", json::packet(packet, mark)?);
        }
        self.line.clear();
        let since_ns = packet.time_ns.zip(self.start_ns).map(|(time, start)| time.saturating_sub(start));
        // Writing to a string cannot fail.
        let _ = words::write_packet(&mut self.line, packet, since_ns, mark);
        self.line.push('\n');
        out.write_all(self.line.as_bytes())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.tracker.finish();
        let told = report::judge(&self.tracker, self.end_ns);
        self.summary.conversations = told.len() as u64;
        self.summary.troubled = told.iter().filter(|told| told.verdict.is_err()).count() as u64;
        if self.options.json {
            if self.options.show == Show::Conversations {
                told.iter().try_for_each(|told| writeln!(out, "{}", report::json(told)))?;
            }
            return Ok(());
        }
        let mut text = String::new();
        if self.options.show != Show::Frames {
            let _ = report::write_all(&mut text, &self.tracker, &told, self.start_ns);
        }
        out.write_all(text.as_bytes())?;
        self.write_summary(out)
    }

    fn write_summary(&self, out: &mut dyn Write) -> io::Result<()> {
        let summary = &self.summary;
        write!(out, "\n{}, {} RoCEv2", Count(summary.frames, "frame"), summary.roce_v2)?;
        let numbers = [
            (summary.roce_v1, "RoCEv1"),
            (summary.bad_icrc, "with a bad ICRC"),
            (self.tracker.strays, "of these of no known conversation"),
            (summary.unknown_icrc, "with the ICRC not captured"),
            (summary.malformed, "malformed or cut off"),
            (self.tracker.unknown, "of transports not followed"),
            (self.tracker.not_followed, "not followed, tables full"),
        ];
        for (n, what) in numbers.iter().filter(|(n, _)| *n > 0) {
            write!(out, ", {n} {what}")?;
        }
        let others: Vec<String> =
            self.others.iter().map(|(other, n)| format!("{n} {}", other.name())).collect();
        if !others.is_empty() {
            write!(out, "; not RoCE: {}", others.join(", "))?;
        }
        writeln!(out)?;
        match &summary.stopped {
            Some(why) => writeln!(out, "Stopped early: {why}"),
            None => Ok(()),
        }
    }

    fn remember(&mut self, view: View) {
        let seen = self.summary.roce_v1 + self.summary.roce_v2;
        // What was found in nothing but damaged frames may be found again in better ones.
        let is_found = self.tracker.follow.is_settled() && self.summary.bad_icrc < seen;
        if let Some(recall) = self.recall.as_mut().filter(|_| !is_found) {
            recall.push(view);
        }
    }

    /// Tells the life of a message; `show` shows the story its packets, where they are not remembered.
    fn tell(&self, out: &mut dyn Write, show: impl FnOnce(&mut Story)) -> io::Result<()> {
        if !self.options.tells_a_story() {
            return Ok(());
        }
        let Some((key, message)) = self.tracker.follow.found() else {
            return match self.options.follow {
                Followed::Frame(frame) => {
                    writeln!(out, "\nFrame {frame} is not part of a message that can be followed.")
                }
                _ => Ok(()),
            };
        };
        let mut story = Story::new(key, message, self.tracker.own_qpn(&key), self.start_ns);
        match &self.recall {
            Some(recall) => {
                story.forget_through(recall.forgotten);
                recall.iter().for_each(|view| story.observe(view));
            }
            None => show(&mut story),
        }
        let mut text = String::new();
        let _ = story.tell(&mut text);
        out.write_all(text.as_bytes())
    }
}

/// Shows the story the packets of the file once more.
fn retell<R: Read>(mut capture: Capture<R>, story: &mut Story) {
    while let Ok(Some(record)) = capture.next() {
        if record.number > story.last_frame() {
            break;
        }
        if let Dissected::Roce(packet) = dissect(&record) {
            story.observe(&View::of(&packet));
        }
    }
}

#[cfg(test)]
mod tests;
