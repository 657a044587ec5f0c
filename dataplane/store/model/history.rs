//! What clients saw and nodes did, and whether one order of it explains everything: linearizability, per key.

use super::Key;
use super::memory::Version;
use std::collections::HashSet;

/// One thing that happened to a key between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Answered with a value, or with "not found".
    Get(Option<Version>),
    Set(Version),
    /// A client's DELETE or `flush_all`, and what a node does on its own: eviction, handing over, loss in a restart.
    Remove,
    /// The value ends if it is this one.
    Expire(Version),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    pub(crate) began: u64,
    /// None if nobody knows: it may have happened or not.
    pub(crate) ended: Option<u64>,
    /// The client, and the number of the request among its requests.
    pub(crate) program: Option<(usize, u64)>,
}

impl Event {
    /// True if this must have happened before `other`.
    fn precedes(&self, other: &Event) -> bool {
        let get = |e: &Event| matches!(e.kind, Kind::Get(_));
        let in_program = match (self.program, other.program) {
            // Of two GETs under way at once, either may be the first.
            (Some((a, i)), Some((b, j))) => a == b && i < j && !(get(self) && get(other)),
            _ => false,
        };
        let born = matches!((self.kind, other.kind), (Kind::Set(v), Kind::Expire(w)) if v == w);
        in_program || born || self.ended.is_some_and(|e| e < other.began)
    }
}

/// Most events of a key in one run.
pub(super) const MOST: usize = 120;
/// States after which a history counts as unexplained. Those of a right run need a few thousand.
const PATIENCE: usize = 1_000_000;

/// Tries to explain a key's events; on failure says what cannot be explained.
pub(crate) fn explain(events: &[Event]) -> Result<(), String> {
    assert!(events.len() <= 128, "{} events of one key", events.len());
    let before: Vec<u128> = events
        .iter()
        .map(|e| events.iter().enumerate().filter(|(_, o)| o.precedes(e)).fold(0, |m, (i, _)| m | 1 << i))
        .collect();
    let must =
        events.iter().enumerate().filter(|(_, e)| e.ended.is_some()).fold(0u128, |m, (i, _)| m | 1 << i);
    let mut search = Search { events, before: &before, must, seen: HashSet::new(), furthest: 0 };
    if search.from(0, None) {
        return Ok(());
    }
    let stuck = search.furthest;
    let open = (0..events.len()).filter(|i| stuck >> i & 1 == 0 && before[*i] & must & !stuck == 0);
    Err(open.map(|i| format!("  cannot be next: {:?}", events[i])).collect::<Vec<_>>().join("\n"))
}

struct Search<'a> {
    events: &'a [Event],
    before: &'a [u128],
    must: u128,
    seen: HashSet<(u128, Option<Version>)>,
    furthest: u128,
}

impl Search<'_> {
    /// Depth first from what is done already and the value the key has.
    fn from(&mut self, done: u128, value: Option<Version>) -> bool {
        if done & self.must == self.must {
            return true;
        }
        if done.count_ones() > self.furthest.count_ones() {
            self.furthest = done;
        }
        if self.seen.len() > PATIENCE || !self.seen.insert((done, value)) {
            return false;
        }
        for (i, event) in self.events.iter().enumerate() {
            // What may not have happened does not hold others back.
            let ready = done >> i & 1 == 0 && self.before[i] & self.must & !done == 0;
            if !ready {
                continue;
            }
            let after = match event.kind {
                Kind::Get(seen) if seen == value => value,
                Kind::Get(_) => continue,
                Kind::Set(version) => Some(version),
                Kind::Remove => None,
                Kind::Expire(version) => value.filter(|v| *v != version),
            };
            if self.from(done | 1 << i, after) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, began: u64, ended: u64) -> Event {
        Event { key: 0, kind, began, ended: Some(ended), program: None }
    }

    #[test]
    fn overlapping_events_may_be_in_either_order() {
        let set = event(Kind::Set(1), 0, 10);
        assert!(explain(&[set, event(Kind::Get(None), 2, 4), event(Kind::Get(Some(1)), 5, 6)]).is_ok());
    }

    #[test]
    fn a_value_that_was_seen_does_not_go_away() {
        let set = event(Kind::Set(1), 0, 10);
        assert!(explain(&[set, event(Kind::Get(Some(1)), 2, 4), event(Kind::Get(None), 5, 6)]).is_err());
    }

    #[test]
    fn an_acknowledged_value_is_seen() {
        let sets = [event(Kind::Set(1), 0, 1), event(Kind::Set(2), 2, 3)];
        assert!(explain(&[sets[0], sets[1], event(Kind::Get(Some(1)), 4, 5)]).is_err());
        assert!(explain(&[sets[0], sets[1], event(Kind::Get(Some(2)), 4, 5)]).is_ok());
    }

    #[test]
    fn a_lost_request_may_have_happened() {
        let mut lost = event(Kind::Set(1), 0, 0);
        lost.ended = None;
        assert!(explain(&[lost, event(Kind::Get(None), 4, 5)]).is_ok());
        assert!(explain(&[lost, event(Kind::Get(Some(1)), 4, 5)]).is_ok());
    }

    #[test]
    fn a_client_sees_its_own_requests_in_order() {
        let (mut set, mut get) = (event(Kind::Set(1), 0, 10), event(Kind::Get(None), 1, 2));
        assert!(explain(&[set, get]).is_ok());
        (set.program, get.program) = (Some((0, 0)), Some((0, 1)));
        assert!(explain(&[set, get]).is_err());
    }

    #[test]
    fn expiry_takes_only_its_own_value() {
        let set = [event(Kind::Set(1), 0, 1), event(Kind::Set(2), 2, 3)];
        let expire = event(Kind::Expire(1), 4, 5);
        assert!(explain(&[set[0], set[1], expire, event(Kind::Get(Some(2)), 6, 7)]).is_ok());
        assert!(explain(&[set[0], expire, event(Kind::Get(Some(1)), 6, 7)]).is_err());
    }
}
