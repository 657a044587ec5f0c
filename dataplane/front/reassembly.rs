//! Puts the fragments of IP packets together, within bounds.
//!
//! Every packet has one contiguous buffer, into which its fragments are copied, and one bit for each 8 bytes that have
//! come. Nothing is allocated after the start. Where there is no room for one more packet, the oldest one is given up:
//! fragments of a packet follow each other closely, so what has waited long will hardly be completed. Packets whose
//! fragments overlap or disagree are given up at once (RFC 5722); a fragment that comes twice is left out.

use super::counter::FrontCounters;
use super::packet::Fragment;
use super::receive::spare;
use super::settings::ReassemblySettings;
use super::{FrontDrop, PortBuf};
use rdma_engine::buf::Pool;
use rdma_engine::types::Time;
use std::net::IpAddr;

/// Fragment offsets count in these.
const BLOCK: usize = 8;

/// Which packet a fragment is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    /// Index of our address.
    pub(super) local: u16,
    /// The sender.
    pub(super) remote: IpAddr,
    /// The packet's identification.
    pub(super) id: u32,
}

/// A packet that is being put together.
#[derive(Debug)]
struct Assembly<B> {
    key: Key,
    /// As long as the largest packet; holds what came so far.
    buf: B,
    since: Time,
    /// Bytes of the packet, once the last fragment has come.
    end: Option<usize>,
    /// Where the farthest fragment ends.
    highest: usize,
    /// Bytes that have come.
    received: usize,
}

#[derive(Debug)]
struct Slot<B> {
    assembly: Option<Assembly<B>>,
    /// One bit a block.
    blocks: Box<[u64]>,
}

/// All packets that are being put together.
#[derive(Debug)]
pub(super) struct Reassembly<B> {
    settings: ReassemblySettings,
    slots: Box<[Slot<B>]>,
    /// Largest packet, bytes from the UDP header on.
    packet_bytes_max: usize,
    /// No packet times out before.
    next_timer: Time,
    /// The beginning of a packet that turned out to be too long.
    too_long: Option<B>,
}

impl<B: PortBuf> Reassembly<B> {
    pub(super) fn new(settings: ReassemblySettings, packet_bytes_max: usize) -> Self {
        let words = packet_bytes_max.div_ceil(BLOCK).div_ceil(64);
        let slot = || Slot { assembly: None, blocks: vec![0; words].into_boxed_slice() };
        let slots = (0..settings.packets).map(|_| slot()).collect();
        Reassembly { settings, slots, packet_bytes_max, next_timer: Time::NEVER, too_long: None }
    }

    /// Keeps a fragment with these bytes; gives the whole packet if it was the last one missing.
    pub(super) fn take(
        &mut self,
        now: Time,
        key: Key,
        fragment: Fragment,
        bytes: &[u8],
        messages: &impl Pool<Buf = B>,
        counters: &mut FrontCounters,
    ) -> Result<Option<B>, FrontDrop> {
        if bytes.is_empty() || (fragment.more && !bytes.len().is_multiple_of(BLOCK)) {
            return Err(FrontDrop::FragmentMalformed);
        }
        let known = self.slots.iter().position(|slot| slot.assembly.as_ref().is_some_and(|a| a.key == key));
        let at = match known {
            Some(at) => at,
            None if fragment.offset + bytes.len() > self.packet_bytes_max => {
                return Err(FrontDrop::FragmentTooLong);
            }
            None => self.begin(now, key, messages, counters)?,
        };
        let slot = &mut self.slots[at];
        match slot.add(fragment, bytes) {
            Ok(()) => {}
            Err(FrontDrop::FragmentDuplicate) => return Err(FrontDrop::FragmentDuplicate),
            Err(reason) => {
                let start = slot.beginning();
                self.too_long = start.filter(|_| reason == FrontDrop::FragmentTooLong);
                return Err(reason);
            }
        }
        counters.fragments += 1;
        let whole = slot.assembly.take_if(|assembly| assembly.end == Some(assembly.received));
        Ok(whole.map(|mut assembly| {
            assembly.buf.truncate(assembly.received);
            assembly.buf
        }))
    }

    /// What there was of the packet that has just been refused as too long: as much as came without a gap from its beginning.
    pub(super) fn take_too_long(&mut self) -> Option<B> {
        self.too_long.take()
    }

    /// Makes room for one more packet.
    fn begin(
        &mut self,
        now: Time,
        key: Key,
        messages: &impl Pool<Buf = B>,
        counters: &mut FrontCounters,
    ) -> Result<usize, FrontDrop> {
        let at = self.place_for(key.remote).ok_or(FrontDrop::NoBuffer)?;
        let slot = &mut self.slots[at];
        if slot.assembly.take().is_some() {
            counters.drop(FrontDrop::ReassemblyEvicted);
        }
        let mut buf = spare(messages)?;
        let room = buf.tailroom().min(self.packet_bytes_max);
        buf.append(room).ok_or(FrontDrop::NoBuffer)?;
        slot.blocks.fill(0);
        slot.assembly = Some(Assembly { key, buf, since: now, end: None, highest: 0, received: 0 });
        self.next_timer = self.next_timer.min(now.after_ns(self.settings.timeout_ns));
        Ok(at)
    }

    /// A slot for a packet of `remote`: of its oldest one where it has its share, else a free one, else the oldest.
    fn place_for(&self, remote: IpAddr) -> Option<usize> {
        let live =
            || self.slots.iter().enumerate().filter_map(|(at, slot)| Some((at, slot.assembly.as_ref()?)));
        let oldest = |(_, assembly): &(usize, &Assembly<B>)| assembly.since;
        let of_remote = || live().filter(|(_, assembly)| assembly.key.remote == remote);
        if of_remote().count() >= self.settings.packets_per_sender {
            return of_remote().min_by_key(oldest).map(|(at, _)| at);
        }
        let free = self.slots.iter().position(|slot| slot.assembly.is_none());
        free.or_else(|| live().min_by_key(oldest).map(|(at, _)| at))
    }

    /// When [`expire`](Self::expire) is due.
    #[inline]
    pub(super) fn next_timer(&self) -> Time {
        self.next_timer
    }

    /// Gives up what has waited too long.
    #[cold]
    pub(super) fn expire(&mut self, now: Time, counters: &mut FrontCounters) {
        self.next_timer = Time::NEVER;
        for slot in &mut self.slots {
            let Some(assembly) = &slot.assembly else { continue };
            let due = assembly.since.after_ns(self.settings.timeout_ns);
            if due > now {
                self.next_timer = self.next_timer.min(due);
                continue;
            }
            slot.assembly = None;
            counters.drop(FrontDrop::ReassemblyTimeout);
        }
    }

    /// Packets that are being put together.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.iter().filter(|slot| slot.assembly.is_some()).count()
    }
}

impl<B: PortBuf> Slot<B> {
    /// Gives its packet up; what came of it without a gap from the beginning, if that is anything.
    fn beginning(&mut self) -> Option<B> {
        let Assembly { mut buf, .. } = self.assembly.take()?;
        let full = self.blocks.iter().take_while(|word| **word == u64::MAX).count();
        let rest = self.blocks.get(full).map_or(0, |word| word.trailing_ones() as usize);
        buf.truncate(((full * 64 + rest) * BLOCK).min(buf.len()));
        Some(buf).filter(|buf| buf.len() > 0)
    }

    /// Copies a fragment to its place.
    fn add(&mut self, fragment: Fragment, bytes: &[u8]) -> Result<(), FrontDrop> {
        let Slot { assembly: Some(assembly), blocks } = self else { return Err(FrontDrop::NoBuffer) };
        let (start, end) = (fragment.offset, fragment.offset + bytes.len());
        if end > assembly.buf.len() {
            return Err(FrontDrop::FragmentTooLong);
        }
        let beyond = assembly.end.is_some_and(|known| end > known || (!fragment.more && end != known));
        if beyond || (!fragment.more && assembly.highest > end) {
            return Err(FrontDrop::FragmentEnd);
        }
        let wanted = start / BLOCK..end.div_ceil(BLOCK);
        match count(blocks, wanted.clone()) {
            0 => {}
            all if all == wanted.len() => return Err(FrontDrop::FragmentDuplicate),
            _ => return Err(FrontDrop::FragmentOverlap),
        }
        // The buffer is ours alone since it was allocated.
        let place = assembly.buf.try_unique().and_then(|contents| contents.get_mut(start..end));
        place.ok_or(FrontDrop::NoBuffer)?.copy_from_slice(bytes);
        mark(blocks, wanted);
        assembly.received += bytes.len();
        assembly.highest = assembly.highest.max(end);
        assembly.end = assembly.end.or((!fragment.more).then_some(end));
        Ok(())
    }
}

/// The words that hold the bits of `range`, each with a mask of them.
fn words(range: std::ops::Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    (range.start / 64..range.end.div_ceil(64)).map(move |word| {
        let (from, to) = (range.start.saturating_sub(word * 64), (range.end - word * 64).min(64));
        (word, u64::MAX >> (64 - (to - from)) << from)
    })
}

/// How many bits of `range` are set.
fn count(bits: &[u64], range: std::ops::Range<usize>) -> usize {
    words(range).map(|(word, mask)| (bits[word] & mask).count_ones() as usize).sum()
}

fn mark(bits: &mut [u64], range: std::ops::Range<usize>) {
    words(range).for_each(|(word, mask)| bits[word] |= mask);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_of_ranges(start in 0_usize..400, len in 1_usize..400) {
            let (mut bits, range) = ([0_u64; 16], start..start + len);
            prop_assert_eq!(count(&bits, range.clone()), 0);
            mark(&mut bits, range.clone());
            for bit in 0..1024 {
                prop_assert_eq!(bits[bit / 64] >> (bit % 64) & 1 == 1, range.contains(&bit));
            }
            prop_assert_eq!(count(&bits, start..start + len + 1), len);
            prop_assert_eq!(count(&bits, range), len);
        }
    }
}
