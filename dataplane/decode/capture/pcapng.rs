//! The block format: sections of either byte order, interfaces with their own link type and clock, packets.

use std::io::Read;

use super::fields::{Endian, Fields};
use super::{CaptureError, MAX_RECORD, RecordHead, Source};

/// First bytes of a section header block, the same in both byte orders.
pub(super) const SECTION_MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Most interfaces of a section: each takes memory.
pub(super) const MAX_INTERFACES: usize = 4096;

/// Bytes of a block around its body: type and length before, length again after.
const BLOCK_FRAME: usize = 12;

const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;

/// State of a pcapng file.
pub(super) struct PcapNg {
    endian: Endian,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy)]
struct Interface {
    link_type: u16,
    snap_len: usize,
    clock: Clock,
}

/// How an interface counts time.
#[derive(Clone, Copy)]
struct Clock {
    /// Ticks of a second; 0 if they are too fine to count.
    ticks_per_second: u128,
    offset_seconds: i64,
}

impl Clock {
    /// Resolution byte 6: microseconds.
    const DEFAULT: Clock = Clock { ticks_per_second: 1_000_000, offset_seconds: 0 };

    fn set_resolution(&mut self, byte: u8) {
        let exponent = u32::from(byte & 0x7F);
        let base: u128 = if byte & 0x80 == 0 { 10 } else { 2 };
        self.ticks_per_second = base.checked_pow(exponent).unwrap_or(0);
    }

    /// Nanoseconds since 1970; `None` if that is before, or beyond what 64 bits hold.
    fn time_ns(&self, high: u32, low: u32) -> Option<u64> {
        let ticks = u128::from(high) << 32 | u128::from(low);
        let ns = (ticks * 1_000_000_000).checked_div(self.ticks_per_second)?;
        let ns = i128::try_from(ns).ok()? + i128::from(self.offset_seconds) * 1_000_000_000;
        u64::try_from(ns).ok()
    }
}

impl PcapNg {
    /// Reads the rest of the first section header, whose block type was read.
    pub(super) fn open<R: Read>(source: &mut Source<R>) -> Result<Self, CaptureError> {
        let mut pcapng = PcapNg { endian: Endian::Little, interfaces: Vec::new() };
        let len = source.array()?.ok_or(CaptureError::NotACapture)?;
        pcapng.section(len, source)?;
        Ok(pcapng)
    }

    /// Reads a section header after its type; `len` is its length in the byte order it will tell.
    fn section<R: Read>(&mut self, len: [u8; 4], source: &mut Source<R>) -> Result<(), CaptureError> {
        let order: [u8; 4] = source.array()?.ok_or(CaptureError::Truncated { after: source.frames })?;
        self.endian = match order {
            [0x1A, 0x2B, 0x3C, 0x4D] => Endian::Big,
            [0x4D, 0x3C, 0x2B, 0x1A] => Endian::Little,
            _ => return Err(source.damaged("a section header names no byte order")),
        };
        let len = self.endian.u32(len) as usize;
        let rest =
            len.checked_sub(BLOCK_FRAME).ok_or_else(|| source.damaged("a section header is too short"))?;
        self.interfaces.clear();
        source.skip(rest as u64)
    }

    /// Reads blocks up to the next packet, which is left in the source.
    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
    ) -> Result<Option<RecordHead>, CaptureError> {
        loop {
            let Some(kind) = source.array::<4>()? else { return Ok(None) };
            let len = source.array::<4>()?.ok_or(CaptureError::Truncated { after: source.frames })?;
            if kind == SECTION_MAGIC {
                self.section(len, source)?;
                continue;
            }
            if let Some(head) = self.block(self.endian.u32(kind), self.endian.u32(len), source)? {
                return Ok(Some(head));
            }
        }
    }

    /// Reads the body of a block. `Some` if it is a packet.
    fn block<R: Read>(
        &mut self,
        kind: u32,
        len: u32,
        source: &mut Source<R>,
    ) -> Result<Option<RecordHead>, CaptureError> {
        let len = len as usize;
        if len < BLOCK_FRAME || !len.is_multiple_of(4) {
            return Err(source.damaged("a block has an impossible length"));
        }
        let body = len - BLOCK_FRAME;
        if kind == INTERFACE && self.interfaces.len() >= MAX_INTERFACES {
            return Err(CaptureError::Interfaces { after: source.frames });
        }
        if !matches!(kind, INTERFACE | OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
            source.skip(body as u64 + 4)?;
            return Ok(None);
        }
        // The length again, after the body, comes along.
        source.read_record(body + 4)?;
        let (body, trailer) = source.record.split_at(body);
        if Fields::new(self.endian, trailer).u32() != Some(len as u32) {
            return Err(source.damaged("the two lengths of a block differ"));
        }
        let mut fields = Fields::new(self.endian, body);
        let head = match kind {
            INTERFACE => self.interface(&mut fields),
            OLD_PACKET => self.old_packet(&mut fields).map(Some),
            SIMPLE_PACKET => self.simple_packet(&mut fields, body.len()).map(Some),
            _ => self.enhanced_packet(&mut fields).map(Some),
        };
        match head {
            Some(Some(head)) if head.data.end > body.len() => {
                Err(source.damaged("a packet is longer than its block"))
            }
            Some(head) => Ok(head),
            None => Err(source.damaged("a block is too short, or names an interface that was not described")),
        }
    }

    fn interface(&mut self, fields: &mut Fields<'_>) -> Option<Option<RecordHead>> {
        let link_type = fields.u16()?;
        let _reserved = fields.u16()?;
        let snap_len = match fields.u32()? as usize {
            0 => MAX_RECORD,
            len => len,
        };
        let clock = self.clock(fields);
        self.interfaces.push(Interface { link_type, snap_len, clock });
        Some(None)
    }

    /// The clock that the options of an interface describe. Options that are cut off end the list.
    fn clock(&self, fields: &mut Fields<'_>) -> Clock {
        let mut clock = Clock::DEFAULT;
        while let (Some(code), Some(len)) = (fields.u16(), fields.u16()) {
            let Some(value) = fields.padded(usize::from(len)) else { break };
            match (code, value) {
                (OPTION_END, _) => break,
                (OPTION_TIME_RESOLUTION, &[byte, ..]) => clock.set_resolution(byte),
                (OPTION_TIME_OFFSET, value) => {
                    if let Some(&bytes) = value.first_chunk() {
                        clock.offset_seconds = self.endian.i64(bytes);
                    }
                }
                _ => {}
            }
        }
        clock
    }

    fn enhanced_packet(&self, fields: &mut Fields<'_>) -> Option<RecordHead> {
        let interface = fields.u32()?;
        self.packet(interface, fields)
    }

    fn old_packet(&self, fields: &mut Fields<'_>) -> Option<RecordHead> {
        let interface = fields.u16()?;
        let _drops = fields.u16()?;
        self.packet(u32::from(interface), fields)
    }

    /// What enhanced and old packets share: time, lengths, data, all after 20 bytes.
    fn packet(&self, interface: u32, fields: &mut Fields<'_>) -> Option<RecordHead> {
        const DATA: usize = 20;
        let interface = self.interfaces.get(interface as usize)?;
        let (high, low) = (fields.u32()?, fields.u32()?);
        let (captured, original) = (fields.u32()? as usize, fields.u32()? as usize);
        Some(RecordHead {
            time_ns: interface.clock.time_ns(high, low),
            link_type: interface.link_type,
            original_len: original,
            data: DATA..DATA.checked_add(captured)?,
        })
    }

    fn simple_packet(&self, fields: &mut Fields<'_>, body: usize) -> Option<RecordHead> {
        const DATA: usize = 4;
        let interface = self.interfaces.first()?;
        let original_len = fields.u32()? as usize;
        let captured = original_len.min(interface.snap_len).min(body.checked_sub(DATA)?);
        Some(RecordHead {
            time_ns: None,
            link_type: interface.link_type,
            original_len,
            data: DATA..DATA + captured,
        })
    }
}
