//! The writer's private books about segments and the places in them: which are free, taken, or dead and still to be seen.
//!
//! A segment is cut into cells of one size. It may be cut anew only when nothing of it is live or waits for its epoch. The books
//! are two words for every two units, about 6 % of the arena, made once at start; no peer sees them.

use super::geometry::Geometry;

/// No cell, no segment.
const NIL: u32 = u32::MAX;
/// In `next`: the cell holds an item.
const LIVE: u32 = u32::MAX - 1;
/// A segment without a class.
const NO_CLASS: usize = usize::MAX;
/// A class is at most this much larger than the one before, in eighths.
const STEP: u32 = 8;

/// Cell sizes for segments of so many units, smallest first: items lose at most about an eighth of their cell, apart from
/// those of more than a sixteenth of a segment, for which only whole fractions of it make sense.
pub(super) fn sizes(segment_units: u32) -> Vec<u32> {
    let mut sizes = vec![2];
    loop {
        let last = sizes[sizes.len() - 1];
        let wanted = last + (last / STEP).max(1);
        // Values of a power of two, with header and a key of up to 64 bytes, get cells of their own.
        let round = last.next_power_of_two() + 2;
        let wanted = if last > 16 && round > last && round < wanted { round } else { wanted };
        // As large as it can be with as many cells.
        let cells = segment_units / wanted.min(segment_units);
        let size = segment_units / cells;
        if size <= last {
            return sizes;
        }
        // For small sizes the step counts more than the segment's last cell.
        sizes.push(if size > wanted + wanted / 16 && cells > 16 { wanted } else { size });
        if size == segment_units {
            return sizes;
        }
    }
}

#[derive(Clone, Debug)]
struct Segment {
    class: usize,
    /// Its place in the class's list.
    position: usize,
    /// Being emptied: nothing new goes in.
    draining: bool,
    /// Is in the class's list of segments with room.
    open: bool,
    live: u32,
    retired: u32,
    /// Cells handed out since it was cut; those behind have never been used.
    cut: u32,
    /// First of its free cells.
    free: u32,
}

#[derive(Clone, Debug, Default)]
struct Class {
    size: u32,
    /// Without those being drained.
    segments: Vec<u32>,
    open: Vec<u32>,
    /// Items in these segments.
    live: u32,
}

/// The books of one partition.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    first: u64,
    segment_units: u32,
    classes: Vec<Class>,
    segments: Vec<Segment>,
    spare: Vec<u32>,
    /// By cell: LIVE, or the next cell of the list it is in.
    next: Box<[u32]>,
    /// By cell: when it was used last; of a dead one the low bits of its epoch.
    stamp: Box<[u32]>,
    oldest_retired: u32,
    newest_retired: u32,
    retired: u32,
}

impl Arena {
    pub(super) fn new(geometry: &Geometry, partition: u32) -> Self {
        let (count, units) = (geometry.segments(), geometry.segment_units());
        let list = || Vec::with_capacity(count as usize);
        let class = |size| Class { size, segments: list(), open: list(), ..Class::default() };
        let cells = (count as usize * units as usize).div_ceil(2);
        let segment = Segment {
            class: NO_CLASS,
            position: 0,
            draining: false,
            open: false,
            live: 0,
            retired: 0,
            cut: 0,
            free: NIL,
        };
        Arena {
            first: geometry.first_place(partition),
            segment_units: units,
            classes: sizes(units).into_iter().map(class).collect(),
            segments: vec![segment; count as usize],
            spare: (0..count).rev().collect(),
            next: crate::huge::table(NIL, cells),
            stamp: crate::huge::table(0, cells),
            oldest_retired: NIL,
            newest_retired: NIL,
            retired: 0,
        }
    }

    /// The class for items of so many units.
    pub(super) fn class_of(&self, units: u32) -> Option<usize> {
        let class = self.classes.partition_point(|c| c.size < units);
        (class < self.classes.len()).then_some(class)
    }

    pub(super) fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Units of a cell of this class.
    pub(super) fn size(&self, class: usize) -> u32 {
        self.classes[class].size
    }

    pub(super) fn segments_of(&self, class: usize) -> usize {
        self.classes[class].segments.len()
    }

    pub(super) fn live_of(&self, class: usize) -> u32 {
        self.classes[class].live
    }

    /// Cells that the class has in all its segments.
    pub(super) fn cells_of(&self, class: usize) -> u32 {
        let class = &self.classes[class];
        class.segments.len() as u32 * (self.segment_units / class.size)
    }

    /// Segments without a class.
    pub(super) fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Dead places that wait for their epoch.
    pub(super) fn retired(&self) -> u32 {
        self.retired
    }

    fn cell(&self, place: u64) -> usize {
        ((place - self.first) / 2) as usize
    }

    fn segment_at(&self, place: u64) -> usize {
        ((place - self.first) / u64::from(self.segment_units)) as usize
    }

    /// Segments have an even number of units and cells at least two: the only start in a cell's pair of units.
    fn place_of(&self, cell: u32) -> u64 {
        let (unit, units) = (u64::from(cell) * 2, u64::from(self.segment_units));
        let size = u64::from(self.classes[self.segments[(unit / units) as usize].class].size);
        let begin = unit / units * units;
        self.first + begin + (unit - begin).next_multiple_of(size)
    }

    /// True if an item lives there.
    pub(super) fn is_live(&self, place: u64) -> bool {
        let units = self.segments.len() as u64 * u64::from(self.segment_units);
        if place < self.first || place - self.first >= units {
            return false;
        }
        let segment = self.segment_at(place);
        let class = self.segments[segment].class;
        class != NO_CLASS
            && ((place - self.first) % u64::from(self.segment_units))
                .is_multiple_of(u64::from(self.classes[class].size))
            && self.next[self.cell(place)] == LIVE
    }

    /// A free cell of this class, now taken; from a spare segment when the class has none.
    pub(super) fn take(&mut self, class: usize, stamp: u32) -> Option<u64> {
        loop {
            let Some(&index) = self.classes[class].open.last() else {
                let spare = self.spare.pop()?;
                self.cut(spare, class);
                continue;
            };
            if let Some(place) = self.take_in(index as usize) {
                let cell = self.cell(place);
                (self.next[cell], self.stamp[cell]) = (LIVE, stamp);
                self.segments[index as usize].live += 1;
                self.classes[class].live += 1;
                return Some(place);
            }
            self.classes[class].open.pop();
            self.segments[index as usize].open = false;
        }
    }

    fn take_in(&mut self, index: usize) -> Option<u64> {
        let begin = self.first + index as u64 * u64::from(self.segment_units);
        let s = &mut self.segments[index];
        let size = self.classes[s.class].size;
        if s.free != NIL {
            let cell = s.free;
            s.free = self.next[cell as usize];
            return Some(self.place_of(cell));
        }
        if s.cut == self.segment_units / size {
            return None;
        }
        s.cut += 1;
        Some(begin + u64::from((s.cut - 1) * size))
    }

    fn cut(&mut self, index: u32, class: usize) {
        let position = self.classes[class].segments.len();
        let s = &mut self.segments[index as usize];
        debug_assert!(s.class == NO_CLASS && s.live == 0 && s.retired == 0);
        *s = Segment { class, position, draining: false, open: true, live: 0, retired: 0, cut: 0, free: NIL };
        self.classes[class].segments.push(index);
        self.classes[class].open.push(index);
    }

    /// An item has died, and no slot leads to it any more.
    pub(super) fn retire(&mut self, place: u64, epoch: u64) {
        let (cell, segment) = (self.cell(place), self.segment_at(place));
        assert!(self.next[cell] == LIVE, "place {place} dies twice");
        (self.next[cell], self.stamp[cell]) = (NIL, epoch as u32);
        match self.newest_retired {
            NIL => self.oldest_retired = cell as u32,
            newest => self.next[newest as usize] = cell as u32,
        }
        self.newest_retired = cell as u32;
        self.retired += 1;
        let s = &mut self.segments[segment];
        (s.live, s.retired) = (s.live - 1, s.retired + 1);
        if !s.draining {
            self.classes[s.class].live -= 1;
        }
    }

    /// Frees up to `most` places that died before epoch `oldest`; `now` is the epoch of the next death.
    pub(super) fn reclaim(&mut self, oldest: u64, now: u64, most: usize) {
        for _ in 0..most {
            let cell = self.oldest_retired;
            if cell == NIL {
                return;
            }
            // At most as many deaths wait as there are cells: the low bits are enough.
            let died = now - u64::from((now as u32).wrapping_sub(self.stamp[cell as usize]));
            if died >= oldest {
                return;
            }
            self.oldest_retired = self.next[cell as usize];
            if self.oldest_retired == NIL {
                self.newest_retired = NIL;
            }
            self.retired -= 1;
            self.free(cell);
        }
    }

    fn free(&mut self, cell: u32) {
        let index = (u64::from(cell) * 2 / u64::from(self.segment_units)) as usize;
        let s = &mut self.segments[index];
        let class = s.class;
        s.retired -= 1;
        self.next[cell as usize] = s.free;
        s.free = cell;
        if s.live == 0 && s.retired == 0 {
            self.release(index);
        } else if !s.open && !s.draining {
            s.open = true;
            self.classes[class].open.push(index as u32);
        }
    }

    /// An empty segment may be cut anew.
    fn release(&mut self, index: usize) {
        if !self.segments[index].draining {
            self.unlist(index);
        }
        let s = &mut self.segments[index];
        (s.class, s.draining) = (NO_CLASS, false);
        self.spare.push(index as u32);
    }

    /// Takes a segment out of its class's lists.
    fn unlist(&mut self, index: usize) {
        let Segment { class, position, open, .. } = self.segments[index];
        let class = &mut self.classes[class];
        class.segments.swap_remove(position);
        if let Some(&moved) = class.segments.get(position) {
            self.segments[moved as usize].position = position;
        }
        if open {
            class.open.retain(|s| *s != index as u32);
            self.segments[index].open = false;
        }
    }

    /// The item there was used.
    pub(super) fn stamp(&mut self, place: u64, stamp: u32) {
        let cell = self.cell(place);
        self.stamp[cell] = stamp;
    }

    /// When the item there was used last.
    pub(super) fn stamp_of(&self, place: u64) -> u32 {
        self.stamp[self.cell(place)]
    }

    /// The item in a cell of the class, picked by two random numbers; `None` if that cell has none.
    pub(super) fn pick(&self, class: usize, random: [u32; 2]) -> Option<u64> {
        let list = &self.classes[class].segments;
        let scale = |bits: u32, n: u32| ((u64::from(bits) * u64::from(n)) >> 32) as u32;
        let index = *list.get(scale(random[0], list.len() as u32) as usize)?;
        let s = &self.segments[index as usize];
        let unit = scale(random[1], s.cut) * self.classes[class].size;
        let place = self.first + u64::from(index) * u64::from(self.segment_units) + u64::from(unit);
        (s.cut > 0 && self.next[self.cell(place)] == LIVE).then_some(place)
    }

    /// Lets nothing new into one of the class's segments, so that it becomes spare when its items have gone; which one.
    pub(super) fn drain(&mut self, class: usize, random: u32) -> Option<u32> {
        let list = &self.classes[class].segments;
        let index = *list.get(((u64::from(random) * list.len() as u64) >> 32) as usize)?;
        self.unlist(index as usize);
        let s = &mut self.segments[index as usize];
        s.draining = true;
        self.classes[class].live -= s.live;
        Some(index)
    }

    /// The next item of a segment from cell `from` on, and its number.
    pub(super) fn item_in(&self, segment: u32, from: u32) -> Option<(u32, u64)> {
        let s = &self.segments[segment as usize];
        if s.class == NO_CLASS {
            return None;
        }
        let size = self.classes[s.class].size;
        let begin = self.first + u64::from(segment) * u64::from(self.segment_units);
        let place = |n: u32| begin + u64::from(n * size);
        (from..s.cut).find(|n| self.next[self.cell(place(*n))] == LIVE).map(|n| (n, place(n)))
    }

    /// Counts everything anew and panics if that differs.
    pub(super) fn check(&self) {
        let (mut live, mut retired, mut drained) = (0, 0, 0);
        for (i, s) in self.segments.iter().enumerate().filter(|(_, s)| s.class != NO_CLASS) {
            let mut from = 0;
            let mut count = 0;
            while let Some((n, place)) = self.item_in(i as u32, from) {
                assert_eq!(self.place_of(self.cell(place) as u32), place);
                (from, count) = (n + 1, count + 1);
            }
            assert_eq!(count, s.live, "segment {i}");
            assert!(s.draining || self.classes[s.class].segments[s.position] == i as u32);
            live += if s.draining { 0 } else { s.live };
            retired += s.retired;
            drained += usize::from(s.draining);
        }
        assert_eq!(retired, self.retired);
        assert_eq!(live, self.classes.iter().map(|c| c.live).sum::<u32>());
        let taken: usize = self.classes.iter().map(|c| c.segments.len()).sum();
        assert_eq!(taken + drained + self.spare.len(), self.segments.len());
    }
}

#[cfg(test)]
mod tests;
