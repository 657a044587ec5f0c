//! Going through all buckets, some at a time: `flush_all`, a new membership, expiry.

use super::index;
use super::layout::{Life, MOST_KEY, UNIT};
use super::writer::Writer;

/// A sweep under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sweep {
    next: u32,
    /// Items from this one on are younger than the sweep.
    before_seq: u64,
}

impl Writer {
    /// Begins `flush_all`: it may be answered when [`Writer::flush`] has come to the end.
    pub fn begin_flush(&self) -> Sweep {
        Sweep { next: 0, before_seq: self.seq + 1 }
    }

    /// Ends what was there when the sweep began, in up to `buckets` buckets. True at the end: no cached location can hit any
    /// more.
    pub fn flush(&mut self, sweep: &mut Sweep, buckets: u32) -> bool {
        let before = sweep.before_seq;
        self.sweep(sweep, buckets, |w, place| index::header(&w.memory, place).seq.get() < before)
    }

    /// Ends what a key had when the sweep began, before its bucket's turn: whatever is made of it later would outlive the sweep.
    pub fn flush_key(&mut self, sweep: &Sweep, key: &[u8], now_ms: u64) {
        if let Some(entry) = self.entry(&self.probe(key), key, now_ms)
            && index::header(&self.memory, entry.slot.place).seq.get() < sweep.before_seq
        {
            self.remove(&entry);
        }
    }

    /// Takes a newer membership: from here on the number tells so, and keys that are not the node's any more go by
    /// [`Writer::drop_foreign`], after whose end the gateway that told of it gets its answer. `None` if it is not newer.
    ///
    /// First the number, then what it takes away: whoever misses a key and after that reads the old number has missed
    /// nothing.
    pub fn begin_join(&mut self, generation: u64) -> Option<Sweep> {
        (generation > self.generation()).then(|| {
            self.write_generation(generation);
            self.begin_flush()
        })
    }

    /// Ends items whose keys are not `ours`, in up to `buckets` buckets. True at the end.
    pub fn drop_foreign(&mut self, sweep: &mut Sweep, buckets: u32, ours: impl Fn(&[u8]) -> bool) -> bool {
        self.sweep(sweep, buckets, |w, place| {
            let mut bytes = [0; MOST_KEY];
            let key = &mut bytes[..usize::from(index::header(&w.memory, place).key_len.get())];
            w.memory.read(place as usize * UNIT + UNIT, key);
            !ours(key)
        })
    }

    /// Ends items that are past their time, in up to `buckets` buckets; begins again at the end.
    pub fn expire(&mut self, sweep: &mut Sweep, buckets: u32, now_ms: u64) {
        let before = self.counts.items;
        let end = self.sweep(sweep, buckets, |w, place| {
            Life::from_word(index::header(&w.memory, place).life.get()).is_past(now_ms)
        });
        self.counts.expired += before - self.counts.items;
        if end {
            sweep.next = 0;
        }
    }

    fn sweep(&mut self, sweep: &mut Sweep, buckets: u32, ends: impl Fn(&Writer, u64) -> bool) -> bool {
        let last = self.geometry.buckets().min(sweep.next.saturating_add(buckets));
        for bucket in sweep.next..last {
            let offset = self.geometry.bucket_offset(self.partition, bucket);
            for slot in 0..super::layout::SLOTS {
                let entry = index::entry_at(&self.memory, offset + 8 * slot);
                if let Some(entry) = entry.filter(|e| ends(self, e.slot.place)) {
                    self.remove(&entry);
                }
            }
        }
        sweep.next = last;
        last == self.geometry.buckets()
    }
}
