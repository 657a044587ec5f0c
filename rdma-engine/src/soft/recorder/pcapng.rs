//! The capture file of a flight record, in the pcapng format.

use super::{KEPT, Record};

/// A capture file, in the byte order of this machine.
pub(super) struct PcapNg(pub(super) Vec<u8>);

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
    pub(super) fn new(comment: &str, interface: &str) -> Self {
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

    pub(super) fn packet(&mut self, record: &Record, epoch_ns: u64) {
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
