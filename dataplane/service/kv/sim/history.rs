//! What clients of a race asked and were told, and whether one order of it explains everything: linearizability, per key.
//!
//! No two mutations of a key write the same value, so no search is needed (Gibbons and Korach, "Testing Shared Memories",
//! 1997): a value's operations, its SET and the GETs that returned it, span a zone between the first end and the last begin
//! among them. If the first end comes first, the value was certainly there from then to the last begin: such zones of a key
//! must not overlap. Otherwise all of them may have happened in one moment between the last begin and the first end, and some
//! such moment must be outside of every zone of the first kind. A key may be lost at any moment (eviction, restart, another
//! owner), so being told of nothing is a zone of its own: what was seen before must not come back after it. Where nothing is
//! ever lost, there is none such after the first value.
//!
//! What a mutation found is judged apart from what it wrote: one that found nothing is a moment without a value, and one that
//! found a value that is not told may not lie in a zone of the only one that it cannot have been.

use super::request::What;
use std::collections::{HashMap, HashSet};

/// What was asked, and of a GET what was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Answered with the value of a version, or with nothing.
    Get(Option<u64>),
    /// Writes a version of its own.
    Set(u64),
    /// Leaves nothing.
    Delete,
    /// Found a value, whichever but that of this version; 0 for any.
    Other(u64),
}

/// One request, between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    /// The key.
    pub(super) key: u32,
    /// What it was.
    pub(super) kind: Kind,
    /// When it was asked.
    pub(super) began: u64,
    /// When it was answered; `None` if the answer leaves open whether it happened.
    pub(super) ended: Option<u64>,
    /// What was asked in so many words.
    pub(super) what: What,
    /// Who asked: requests of a client on a key happen in their order, GETs among themselves in any.
    pub(super) client: u64,
}

/// All that happened in a race. No two of its moments are the same, but for those of one request; where a client's order makes
/// two the same below, what ends comes first.
#[derive(Debug)]
pub(super) struct History {
    keys: HashMap<u32, Vec<Event>>,
    /// Nothing is lost, and nobody deletes.
    keeps: bool,
}

/// Operations of one value, or of none.
#[derive(Clone, Copy)]
struct Zone {
    version: Option<u64>,
    /// First end among them.
    end: u64,
    /// Last begin among them.
    begin: u64,
}

impl std::fmt::Display for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.version {
            Some(version) => write!(f, "version {version}")?,
            None => f.write_str("nothing")?,
        }
        write!(f, " (first end {}, last begin {})", self.end, self.begin)
    }
}

impl History {
    /// Of nothing yet; with `keeps` a value goes only when another one takes its place.
    pub(super) fn new(keeps: bool) -> Self {
        History { keys: HashMap::new(), keeps }
    }

    /// Something was asked and answered.
    pub(super) fn push(&mut self, event: Event) {
        self.keys.entry(event.key).or_default().push(event);
    }

    /// Looks for an order of each key's events.
    ///
    /// # Errors
    /// What cannot be explained.
    pub(super) fn check(&self) -> Result<(), String> {
        self.keys.iter().try_for_each(|(key, events)| {
            explain(events, self.keeps).map_err(|why| format!("key {key}: {why}"))
        })
    }
}

/// Looks for an order of one key's events.
fn explain(events: &[Event], keeps: bool) -> Result<(), String> {
    let mut events = events.to_vec();
    keep_program_order(&mut events);
    let (mut present, mut moments) = zones(&events)?;
    present.sort_by_key(|z| z.end);
    if let Some(pair) = present.windows(2).find(|pair| pair[1].end <= pair[0].begin) {
        return Err(format!("both were there at one moment: {} and {}", pair[0], pair[1]));
    }
    moments.sort_by_key(|z| z.begin);
    for moment in &moments {
        let before = present.partition_point(|z| z.end <= moment.begin);
        if let Some(around) = before.checked_sub(1).map(|at| &present[at]).filter(|z| moment.end <= z.begin) {
            let about = told(&events, moment.begin, around.begin);
            return Err(format!("{moment} cannot have been while {around} was there:{about}"));
        }
    }
    if keeps {
        explain_kept(&events, present.iter().chain(&moments))?;
    }
    events.iter().try_for_each(|event| explain_other(event, &events, &present))
}

/// Where nothing is lost, nothing is there only before the first value, and one `add` at most finds that.
fn explain_kept<'z>(events: &[Event], zones: impl Iterator<Item = &'z Zone> + Clone) -> Result<(), String> {
    let values = zones.clone().filter(|z| z.version.is_some());
    if let Some(first) = values.min_by_key(|z| z.end)
        && let Some(nothing) = zones.clone().find(|z| z.version.is_none() && first.end <= z.begin)
    {
        let about = told(events, first.end, nothing.begin);
        return Err(format!("{nothing} was there after {first}, and nothing may be lost:{about}"));
    }
    let added = |e: &&Event| e.what == What::Add && matches!(e.kind, Kind::Set(_)) && e.ended.is_some();
    match events.iter().filter(added).count() {
        0 | 1 => Ok(()),
        adds => Err(format!("{adds} adds found nothing")),
    }
}

/// An event that found a value that is not told: somebody else's was asked for before it ended, and the only one that it
/// cannot have been was not there all the time. `present` is sorted by its first ends.
fn explain_other(event: &Event, events: &[Event], present: &[Zone]) -> Result<(), String> {
    let (Kind::Other(not), Some(ended)) = (event.kind, event.ended) else { return Ok(()) };
    let may_be = |e: &Event| matches!(e.kind, Kind::Set(v) if v != not) && e.began < ended;
    if !events.iter().any(may_be) {
        return Err(format!("{:?} found a value that nobody had written: {event:?}", event.what));
    }
    let before = present.partition_point(|z| z.end <= event.began);
    match before.checked_sub(1).map(|at| &present[at]) {
        Some(z) if z.version == Some(not) && ended <= z.begin => {
            let about = told(events, z.end, z.begin);
            Err(format!("{:?} found another value while {z} was there: {event:?}:{about}", event.what))
        }
        _ => Ok(()),
    }
}

/// What was asked or answered between two moments.
fn told(events: &[Event], from: u64, to: u64) -> String {
    let meanwhile = |e: &&Event| e.began <= to && e.ended.is_none_or(|ended| ended >= from);
    let line = |e: &Event| {
        let ended = e.ended.map_or("?".to_owned(), |ended| ended.to_string());
        format!("\n{} to {ended}, client {:x}: {:?}, {:?}", e.began, e.client, e.what, e.kind)
    };
    events.iter().filter(meanwhile).map(line).collect()
}

/// What a client asked before begins later ones not before it has ended. Events that began at one moment are of one request.
fn keep_program_order(events: &mut [Event]) {
    events.sort_by_key(|e| e.began);
    // By client: the last end among its mutations, and among all its requests.
    let mut last: HashMap<u64, (u64, u64)> = HashMap::new();
    for request in events.chunk_by_mut(|a, b| (a.client, a.began) == (b.client, b.began)) {
        let (mutations, all) = last.entry(request[0].client).or_default();
        let reads = request.iter().all(|e| matches!(e.kind, Kind::Get(_) | Kind::Other(_)));
        let earliest = if reads { *mutations } else { *all };
        request.iter_mut().for_each(|e| e.began = e.began.max(earliest));
        if let Some(ended) = request.iter().filter_map(|e| e.ended).max() {
            *all = ended.max(*all);
            *mutations = if reads { *mutations } else { ended.max(*mutations) };
        }
    }
}

/// Zones in which a value was certainly there, and those that may have been one moment.
fn zones(events: &[Event]) -> Result<(Vec<Zone>, Vec<Zone>), String> {
    let (mut values, mut moments) = (HashMap::<u64, Zone>::new(), Vec::new());
    for event in events {
        let end = event.ended.unwrap_or(u64::MAX);
        let version = match event.kind {
            Kind::Get(version) => version,
            Kind::Set(version) => Some(version),
            Kind::Delete => None,
            Kind::Other(_) => continue,
        };
        match version {
            Some(v) => {
                let zone = values.entry(v).or_insert(Zone { version, end, begin: event.began });
                zone.end = zone.end.min(end);
                zone.begin = zone.begin.max(event.began);
            }
            None if event.ended.is_some() => moments.push(Zone { version, end, begin: event.began }),
            None => {}
        }
    }
    let written: HashSet<u64> =
        events.iter().filter_map(|e| if let Kind::Set(v) = e.kind { Some(v) } else { None }).collect();
    if let Some(version) = values.keys().find(|v| !written.contains(v)) {
        return Err(format!("version {version} was seen, and nobody wrote it"));
    }
    for event in events {
        if let Kind::Set(v) = event.kind
            && let Some(zone) = values.get(&v)
            && zone.end <= event.began
        {
            return Err(format!("version {v} was seen at {} and asked for at {}", zone.end, event.began));
        }
    }
    // What nobody saw and may not have happened explains itself.
    let seen = values.into_values().filter(|z| z.end < u64::MAX);
    let (present, single): (Vec<_>, Vec<_>) = seen.partition(|z| z.end < z.begin);
    moments.extend(single);
    Ok((present, moments))
}

#[cfg(test)]
mod tests {
    use super::{Event, Kind, What};
    use crate::store::model::history::{Event as Found, Kind as Was, explain as search};
    use proptest::prelude::*;

    fn event(kind: Kind, began: u64, ended: u64) -> Event {
        Event { key: 0, kind, began, ended: Some(ended), what: What::Get, client: began }
    }

    fn explain(events: &[Event]) -> Result<(), String> {
        super::explain(events, false)
    }

    #[test]
    fn what_is_kept_is_not_missing_and_added_once() {
        let (set, miss) = (event(Kind::Set(1), 2, 5), |began, ended| event(Kind::Get(None), began, ended));
        for (nothing, is_good) in [(miss(0, 1), true), (miss(3, 9), true), (miss(6, 7), false)] {
            assert_eq!(explain(&[set, nothing]), Ok(()), "it may be lost");
            assert_eq!(super::explain(&[set, nothing], true).is_ok(), is_good, "{nothing:?}");
        }
        let [first, second] =
            [Kind::Set(1), Kind::Set(2)].map(|kind| Event { what: What::Add, ..event(kind, 2, 5) });
        assert_eq!(super::explain(&[first, event(Kind::Set(2), 3, 6)], true), Ok(()));
        assert!(super::explain(&[first, second], true).is_err());
    }

    #[test]
    fn a_value_that_was_found_was_there() {
        let (set, seen) = (event(Kind::Set(1), 2, 5), event(Kind::Get(Some(1)), 10, 12));
        let other = |not, began, ended| event(Kind::Other(not), began, ended);
        assert!(explain(&[set, other(0, 0, 1)]).is_err(), "before it was asked for");
        assert_eq!(explain(&[set, other(0, 1, 3)]), Ok(()));
        assert!(explain(&[set, other(1, 1, 3)]).is_err(), "there is no other one");
        let second = event(Kind::Set(2), 1, 20);
        assert!(explain(&[set, second, seen, other(1, 6, 9)]).is_err(), "it was the first one all the time");
        assert_eq!(explain(&[set, second, seen, other(1, 6, 11)]), Ok(()));
        assert_eq!(explain(&[set, second, seen, other(1, 4, 9)]), Ok(()));
        assert_eq!(explain(&[set, second, seen, other(2, 6, 9)]), Ok(()));
    }

    #[test]
    fn a_value_that_went_does_not_come_back() {
        let set = event(Kind::Set(1), 0, 1);
        let (there, gone, back) =
            (event(Kind::Get(Some(1)), 2, 3), event(Kind::Get(None), 4, 5), event(Kind::Get(Some(1)), 6, 7));
        assert_eq!(explain(&[set, there, gone]), Ok(()));
        assert!(explain(&[set, gone, back]).is_err());
        assert_eq!(explain(&[set, event(Kind::Get(None), 4, 8), back]), Ok(()), "it may have been last");
    }

    #[test]
    fn a_client_sees_what_it_asked_before() {
        let (mut set, mut get) = (event(Kind::Set(1), 0, 10), event(Kind::Get(None), 1, 12));
        assert_eq!(explain(&[set, get, event(Kind::Get(Some(1)), 20, 21)]), Ok(()));
        (set.client, get.client) = (3, 3);
        assert!(explain(&[set, get, event(Kind::Get(Some(1)), 20, 21)]).is_err());
    }

    #[test]
    fn nobody_sees_what_is_written_later_or_never() {
        let (mut get, mut set) = (event(Kind::Get(Some(1)), 1, 4), event(Kind::Set(1), 2, 6));
        assert_eq!(explain(&[get, set]), Ok(()));
        (get.client, set.client) = (3, 3);
        assert!(explain(&[get, set]).is_err(), "asked for after it was seen");
        assert!(explain(&[get]).is_err());
    }

    /// Of a few requests, the versions that are written counted on.
    fn histories() -> impl Strategy<Value = Vec<Event>> {
        let one = (0..4u8, 0..5u64, 0..40u64, 1..12u64, any::<bool>(), 0..4u64);
        prop::collection::vec(one, 1..9).prop_map(|list| {
            let mut sets = 0;
            let events = list.into_iter().enumerate().map(|(i, (what, seen, began, took, known, client))| {
                let kind = match what {
                    0 => {
                        sets += 1;
                        Kind::Set(sets)
                    }
                    1 => Kind::Delete,
                    _ => Kind::Get(Some(seen).filter(|v| *v > 0)),
                };
                let known = known || matches!(kind, Kind::Get(_));
                // Moments differ.
                let at = |time: u64| time * 10 + i as u64;
                let ended = known.then(|| at(began + took));
                Event { key: 0, kind, began: at(began), ended, what: What::Get, client }
            });
            events.collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// Zones and a search through all orders say the same. Clients are each their own here: the search knows program
        /// order as an order of moments, not of ends.
        #[test]
        fn zones_find_what_a_search_finds(mut events in histories()) {
            let written: Vec<u64> =
                events.iter().filter_map(|e| if let Kind::Set(v) = e.kind { Some(v) } else { None }).collect();
            events.retain(|e| !matches!(e.kind, Kind::Get(Some(v)) if !written.contains(&v)));
            events.iter_mut().zip(100..).for_each(|(e, client)| e.client = client);
            let mut found: Vec<Found> = Vec::new();
            for e in &events {
                let kind = match e.kind {
                    Kind::Get(version) => Was::Get(version.map(|v| v as u32)),
                    Kind::Set(version) => Was::Set(version as u32),
                    Kind::Delete => Was::Remove,
                    Kind::Other(_) => unreachable!("none is made"),
                };
                found.push(Found { key: 0, kind, began: e.began, ended: e.ended, program: None });
                if e.kind == Kind::Get(None) {
                    // It may be lost at any moment.
                    found.push(Found { key: 0, kind: Was::Remove, began: 0, ended: None, program: None });
                }
            }
            prop_assert_eq!(explain(&events).is_ok(), search(&found).is_ok(), "{:?}", explain(&events));
        }
    }
}
