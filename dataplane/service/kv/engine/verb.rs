//! What a command is called in memcached's statistics, and what is counted of it there.

use crate::memcached::operation::{Mode, Outcome};
use crate::memcached::{Form, Operation};
use crate::stats::{Counter, Tally};

/// Operations on a key as they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    /// Reads, and changes no expiry.
    Read,
    /// Reads, or says that it is there, and changes the expiry.
    Touch {
        /// By a meta command: a miss is one of a read, as in memcached.
        is_meta: bool,
    },
    Store,
    Cas,
    Delete {
        /// The item stays and is marked.
        marks: bool,
    },
    Increment,
    Decrement,
}

impl Verb {
    #[inline]
    pub(super) fn of(operation: &Operation<'_>, form: &Form<'_>) -> Self {
        match operation {
            Operation::Fetch(fetch) if fetch.touch.is_some() => {
                Verb::Touch { is_meta: matches!(form, Form::Meta(_)) }
            }
            Operation::Fetch(_) => Verb::Read,
            Operation::Store(store) if store.mode == Mode::Cas => Verb::Cas,
            Operation::Store(_) => Verb::Store,
            Operation::Delete(delete) => Verb::Delete { marks: delete.stale },
            Operation::Arithmetic(a) if a.decrement => Verb::Decrement,
            Operation::Arithmetic(_) => Verb::Increment,
        }
    }

    /// Counts an item that was read.
    #[inline]
    pub(super) fn hit(self, tally: &mut Tally) {
        tally.add(Counter::KvGetHits, 1);
        if matches!(self, Verb::Touch { .. }) {
            tally.add(Counter::KvTouchHits, 1);
        }
    }

    /// Counts an item that was to be read and is not there.
    #[inline]
    pub(super) fn miss(self, tally: &mut Tally) {
        tally.add(Counter::KvGetMisses, 1);
        if self == (Verb::Touch { is_meta: false }) {
            tally.add(Counter::KvTouchMisses, 1);
        }
    }

    /// Counts what came of an operation that is no read. What memcached counts nowhere is not counted: values that are no
    /// numbers, numbers that had to be made first, items that are marked, and what had no room.
    pub(super) fn done(self, tally: &mut Tally, outcome: &Outcome<'_>) {
        let counter = match (self, outcome) {
            (Verb::Cas, Outcome::Stored { .. }) => Counter::KvCasHits,
            (Verb::Cas, Outcome::NotFound) => Counter::KvCasMisses,
            (Verb::Cas, Outcome::Exists) => Counter::KvCasBadval,
            (Verb::Delete { marks: false }, Outcome::Deleted) => Counter::KvDeleteHits,
            (Verb::Delete { .. }, Outcome::NotFound | Outcome::Exists) => Counter::KvDeleteMisses,
            (Verb::Increment, Outcome::Number(number)) if !number.created => Counter::KvIncrHits,
            (Verb::Increment, Outcome::NotFound) => Counter::KvIncrMisses,
            (Verb::Decrement, Outcome::Number(number)) if !number.created => Counter::KvDecrHits,
            (Verb::Decrement, Outcome::NotFound) => Counter::KvDecrMisses,
            _ => return,
        };
        tally.add(counter, 1);
    }
}
