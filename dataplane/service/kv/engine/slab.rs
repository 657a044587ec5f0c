//! Numbered places of fixed number, each with a generation that tells one use from the next.

/// No place.
pub(super) const NONE: u32 = u32::MAX;

/// Places for values of one kind.
#[derive(Debug)]
pub(super) struct Slab<V> {
    places: Box<[(u16, Option<V>)]>,
    free: Vec<u32>,
}

impl<V> Slab<V> {
    /// With room for `capacity` values, at most 65 000.
    pub(super) fn new(capacity: usize) -> Self {
        Slab {
            places: (0..capacity).map(|_| (0, None)).collect(),
            free: (0..capacity as u32).rev().collect(),
        }
    }

    /// Values that there is still room for.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Values that there may be at once.
    pub(super) fn capacity(&self) -> u32 {
        self.places.len() as u32
    }

    /// True if there is no value.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Takes a value in; its number, or `None` when all places are taken.
    #[inline]
    pub(super) fn insert(&mut self, value: V) -> Option<u32> {
        let at = self.free.pop()?;
        self.places[at as usize].1 = Some(value);
        Some(at)
    }

    /// Looks at the value with this number.
    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&V> {
        self.places.get(at as usize)?.1.as_ref()
    }

    /// The value with this number.
    #[inline]
    pub(super) fn value(&mut self, at: u32) -> Option<&mut V> {
        self.places.get_mut(at as usize)?.1.as_mut()
    }

    /// The end of a value, where it is: to move it out would cost more. Its place has another generation from now on.
    #[inline]
    pub(super) fn discard(&mut self, at: u32) {
        if let Some((generation, value @ Some(_))) = self.places.get_mut(at as usize) {
            *value = None;
            *generation = generation.wrapping_add(1);
            self.free.push(at);
        }
    }

    /// Number and generation in one, for messages.
    #[inline]
    pub(super) fn ticket(&self, at: u32) -> u32 {
        u32::from(self.places[at as usize].0) << 16 | at
    }

    /// The number of a ticket, if it is that of a value that is there.
    #[inline]
    pub(super) fn of_ticket(&self, ticket: u32) -> Option<u32> {
        let at = ticket & 0xFFFF;
        let (generation, value) = self.places.get(at as usize)?;
        (value.is_some() && u32::from(*generation) == ticket >> 16).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_one_value() {
        let mut s = Slab::new(2);
        let a = s.insert('a').unwrap();
        let ticket = s.ticket(a);
        assert_eq!((s.of_ticket(ticket), s.room()), (Some(a), 1));
        s.discard(a);
        s.discard(a);
        assert_eq!(s.of_ticket(ticket), None);
        let b = s.insert('b').unwrap();
        assert_eq!((a, s.of_ticket(ticket)), (b, None), "the same place, another value");
        assert!(s.insert('c').is_some() && s.insert('d').is_none());
        assert_eq!((s.capacity(), s.room()), (2, 0));
        assert_eq!(s.of_ticket(0xFFFF), None);
    }
}
