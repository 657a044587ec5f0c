//! Capture files, record by record: pcap (both byte orders, micro- and nanoseconds) and pcapng.
//!
//! Written here because no crate met the need: of the two that exist one reads power-of-two timestamp
//! resolutions and big-endian offsets wrongly, the other is between releases. Memory is bounded by the
//! longest record accepted; a length that makes no sense ends the file with a sentence, not the process.

mod fields;
mod pcap;
mod pcapng;

use std::io::{self, BufReader, Read};

use pcap::Pcap;
use pcapng::PcapNg;

/// Longest record or block that is read as a whole. The largest snap length of common tools is 256 KiB.
const MAX_RECORD: usize = 1 << 20;

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// Position in the file, from 1.
    pub(super) number: u64,
    /// Nanoseconds since 1970, where the file tells.
    pub(super) time_ns: Option<u64>,
    /// What the bytes begin with (LINKTYPE_ value).
    pub(super) link_type: u16,
    /// The bytes captured.
    pub(super) data: &'a [u8],
    /// Length of the frame on the wire; never less than the captured bytes.
    pub(super) original_len: usize,
}

/// Why reading stopped before the end of the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaptureError {
    /// Neither pcap nor pcapng.
    #[error("not a pcap or pcapng file; capture with `tcpdump -w` or save as pcapng in Wireshark")]
    NotACapture,
    /// The file ends inside a record.
    #[error(
        "the file ends inside a record after frame {after}; the capture was cut short or is still being written"
    )]
    Truncated {
        /// The last whole frame.
        after: u64,
    },
    /// The file contradicts itself.
    #[error("the file is damaged after frame {after}: {what}; nothing beyond it can be read")]
    Damaged {
        /// The last whole frame.
        after: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// More than this program takes.
    #[error(
        "a section describes more than {} interfaces, the last of them after frame {after}; nothing beyond can be \
         read: save the frames as pcap, or those of fewer interfaces",
        pcapng::MAX_INTERFACES
    )]
    Interfaces {
        /// The last whole frame.
        after: u64,
    },
    /// The operating system says no.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

/// What a reader of one format does with the bytes after its file header.
enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// An open capture file.
pub(super) struct Capture<R> {
    source: Source<R>,
    format: Format,
}

/// The bytes of the file, a record at a time.
struct Source<R> {
    input: BufReader<R>,
    record: Vec<u8>,
    frames: u64,
}

impl<R: Read> Capture<R> {
    /// Reads the file header.
    pub(super) fn open(input: R) -> Result<Self, CaptureError> {
        let mut source =
            Source { input: BufReader::with_capacity(1 << 16, input), record: Vec::new(), frames: 0 };
        let mut magic = [0; 4];
        if source.fill(&mut magic)? < magic.len() {
            return Err(CaptureError::NotACapture);
        }
        let format = if magic == pcapng::SECTION_MAGIC {
            Format::PcapNg(PcapNg::open(&mut source)?)
        } else {
            Format::Pcap(Pcap::open(magic, &mut source)?)
        };
        Ok(Capture { source, format })
    }

    /// True if all that was read so far is taken: the next frame has to be waited for.
    pub(super) fn is_drained(&self) -> bool {
        self.source.input.buffer().is_empty()
    }

    /// The next frame, `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        let Some(head) = (match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.source)?,
            Format::PcapNg(pcapng) => pcapng.next(&mut self.source)?,
        }) else {
            return Ok(None);
        };
        self.source.frames += 1;
        let data = self.source.record.get(head.data).unwrap_or_default();
        Ok(Some(Record {
            number: self.source.frames,
            time_ns: head.time_ns,
            link_type: head.link_type,
            data,
            original_len: head.original_len.max(data.len()),
        }))
    }
}

/// What a format found out about a record; the bytes are in the source.
struct RecordHead {
    time_ns: Option<u64>,
    link_type: u16,
    original_len: usize,
    data: std::ops::Range<usize>,
}

impl<R: Read> Source<R> {
    fn damaged(&self, what: &'static str) -> CaptureError {
        CaptureError::Damaged { after: self.frames, what }
    }

    /// Fills `bytes` as far as the file goes; returns how far.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, CaptureError> {
        let mut have = 0;
        while have < bytes.len() {
            match self.input.read(&mut bytes[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(have)
    }

    /// `N` bytes, or `None` if the file ends exactly here.
    fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, CaptureError> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            0 => Ok(None),
            n if n == N => Ok(Some(bytes)),
            _ => Err(CaptureError::Truncated { after: self.frames }),
        }
    }

    /// Reads `len` bytes into the record buffer.
    fn read_record(&mut self, len: usize) -> Result<(), CaptureError> {
        if len > MAX_RECORD {
            return Err(self.damaged("a record claims more than 1 MiB"));
        }
        let mut record = std::mem::take(&mut self.record);
        record.resize(len, 0);
        let have = self.fill(&mut record)?;
        self.record = record;
        if have < len {
            return Err(CaptureError::Truncated { after: self.frames });
        }
        Ok(())
    }

    /// Reads past `len` bytes.
    fn skip(&mut self, len: u64) -> Result<(), CaptureError> {
        let skipped = io::copy(&mut self.input.by_ref().take(len), &mut io::sink())?;
        if skipped < len {
            return Err(CaptureError::Truncated { after: self.frames });
        }
        Ok(())
    }
}
