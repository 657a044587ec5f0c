//! The writer against the reader: contents, races, room.

mod map;
mod race;
mod room;

use super::geometry::Geometry;
use super::layout::{Life, NEVER, Slot, UNIT};
use super::reader::{Found, Times, Verdict, Wanted, candidates, judge};
use super::seal::Secrets;
use super::{Item, Refused, Write, Writer, write_superblock};
use rdma_engine::mem::{Arena, Backing, Window};

/// A memory node with one partition.
struct Node {
    _arena: Arena,
    window: Window,
    geometry: Geometry,
    secrets: Secrets,
    writer: Writer,
}

impl Node {
    fn new(segment_units: u32, bytes: u64) -> Self {
        let geometry = Geometry::with_segments_of(segment_units, bytes, 1).unwrap();
        let arena = Arena::new(bytes as usize, Backing::Pages).unwrap();
        let (window, secrets) = (arena.window(), Secrets::new([1, 2, 3, 4]));
        let writer = Writer::new(window, geometry, 0, secrets, 5, 0).unwrap();
        write_superblock(window, &geometry, 5).unwrap();
        Node { _arena: arena, window, geometry, secrets, writer }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<Item, Refused> {
        self.writer.set(&plain(key, &[value]), 0)
    }

    /// What is there now, as a READ brings it when nobody writes.
    fn bytes(&self, place: u64, units: u32) -> Vec<u8> {
        let mut bytes = vec![0; units as usize * UNIT];
        self.window.copy_out(place as usize * UNIT, &mut bytes);
        bytes
    }

    /// A GET by READs alone.
    fn look_up(&self, key: &[u8], now_ms: u64) -> Option<(Found, Vec<u8>)> {
        let probe = self.geometry.probe(&self.secrets, key);
        for bucket in probe.buckets {
            let mut bytes = [0; UNIT];
            self.window.copy_out(self.geometry.bucket_offset(0, bucket), &mut bytes);
            for slot in candidates(&bytes, probe.tag, &self.geometry) {
                if let (Verdict::Found(found), bytes) = self.judge(key, slot, now_ms) {
                    let value = bytes[found.value_at..found.value_at + found.value_len].to_vec();
                    return Some((found, value));
                }
            }
        }
        None
    }

    fn judge(&self, key: &[u8], slot: Slot, now_ms: u64) -> (Verdict, Vec<u8>) {
        let bytes = self.bytes(slot.place, slot.units);
        let (a, b) = bytes.split_at(bytes.len() / 2 / UNIT * UNIT);
        let pieces: &[&[u8]] = if a.is_empty() { &[b] } else { &[a, b] };
        let times = Times { began_ms: now_ms, now_ms };
        (judge(&self.secrets, &Wanted::by(key, slot), pieces, times), bytes)
    }
}

const FOREVER: Life = Life { expires_ms: NEVER, marks: 0 };

fn plain<'a>(key: &'a [u8], value: &'a [&'a [u8]]) -> Write<'a> {
    Write { key, value, flags: 0, life: FOREVER, cas: None, written_s: 0 }
}
