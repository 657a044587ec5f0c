use super::*;
use crate::load::meter::Counts;
use crate::load::settings::{Arrivals, LoadSettings};
use crate::load::testing::{Server, datagrams, settings};
use crate::load::{Dialect, Random};
use crate::memcached::udp;
use proptest::prelude::*;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// What happens to a reply on the way.
type Spoil = fn(number: u64, request: &[u8], reply: Vec<u8>) -> Vec<u8>;

/// A network in virtual time, and a server behind it.
struct Net {
    random: Random,
    /// Chances in a thousand.
    loss: u64,
    double: u64,
    delay_ns: (u64, u64),
    /// What is on its way, by time of arrival.
    flying: BTreeMap<(u64, u64), (u16, Vec<u8>, bool)>,
    sent: u64,
    server: Server,
    reply_datagram: usize,
    spoil: Option<Spoil>,
    answered: u64,
    /// Writes are said to be stored and are not, once there are some.
    forgets: bool,
}

impl Net {
    fn new(seed: u64) -> Self {
        Net {
            random: Random::new(seed),
            loss: 0,
            double: 0,
            delay_ns: (5_000, 6_000),
            flying: BTreeMap::new(),
            sent: 0,
            server: Server::new(),
            reply_datagram: 1400,
            spoil: None,
            answered: 0,
            forgets: false,
        }
    }

    fn send(&mut self, now: u64, flow: u16, datagram: Vec<u8>, to_server: bool) {
        // A request that comes twice would be done twice, and undo a later one: not the client's affair.
        let doubled = !to_server && self.random.below(1000) < self.double;
        for _ in 0..1 + u8::from(doubled) {
            if self.random.below(1000) >= self.loss {
                let (least, most) = self.delay_ns;
                let at = now + least + self.random.below(most - least + 1);
                self.sent += 1;
                self.flying.insert((at, self.sent), (flow, datagram.clone(), to_server));
            }
        }
    }

    fn answer(&mut self, now: u64, flow: u16, request: &[u8]) {
        self.answered += 1;
        if self.forgets && self.answered > 50 && request[8..].starts_with(b"set") {
            let (header, _) = udp::request(request).unwrap();
            let stored = datagrams(header, b"STORED\r\n", 1400).remove(0);
            return self.send(now, flow, stored, false);
        }
        let replies = match self.spoil {
            None => self.server.serve_datagram(request, self.reply_datagram),
            Some(spoil) => {
                let (header, text) = udp::request(request).unwrap();
                let (reply, _) = self.server.serve(text);
                datagrams(header, &spoil(self.answered, text, reply), self.reply_datagram)
            }
        };
        replies.into_iter().for_each(|reply| self.send(now, flow, reply, false));
    }
}

/// Runs a load to its end; the client and the time.
fn run(settings: LoadSettings, net: &mut Net, flows: u16, depth: u32) -> (Datagrams, u64) {
    let mut client = Datagrams::new(Caller::new(settings), flows, depth);
    let mut now = 0;
    while !client.caller().is_done() {
        assert!(now < 60_000_000_000, "it does not end: {:?}", client.caller().phase());
        client.tick(Time(now));
        client.caller_mut().release(Time(now));
        for flow in 0..flows {
            while let Some(request) = client.next(Time(now), flow) {
                let mut bytes = vec![0; request.len()];
                request.write(0..request.len(), &mut bytes);
                net.send(now, flow, bytes, true);
            }
        }
        let due = net.flying.keys().next().map_or(u64::MAX, |key| key.0);
        now = due.min(client.next_timer(Time(now)).0).max(now + 1);
        while let Some(entry) = net.flying.first_entry()
            && entry.key().0 <= now
        {
            let (flow, datagram, to_server) = entry.remove();
            if to_server {
                net.answer(now, flow, &datagram);
            } else {
                let (header, text) = FrameHeader::read_from_prefix(&datagram).unwrap();
                let (front, back) = text.split_at(text.len() / 3);
                client.receive(Time(now), flow, &header, text.len(), [front, back].into_iter());
            }
        }
    }
    (client, now)
}

fn counts(client: &Datagrams) -> Counts {
    let meter = client.caller().meter();
    assert_eq!(meter.counts.faults, 0, "{:?}", meter.faults);
    assert_eq!(meter.gets.len() + meter.sets.len(), meter.requests());
    meter.counts
}

#[test]
fn a_quiet_network_loses_nothing() {
    for dialect in [Dialect::Text, Dialect::Meta, Dialect::Touch] {
        let mut net = Net::new(1);
        let (client, _) = run(LoadSettings { dialect, requests: 3000, ..settings() }, &mut net, 4, 8);
        let seen = counts(&client);
        assert!(seen.hits > 1500 && seen.hits + seen.stored == 3000, "{seen:?}");
        let share = seen.stored as f64 / (seen.hits + seen.stored) as f64;
        assert!((share - 0.3).abs() < 0.04, "{share}");
        let nothing = [seen.misses, seen.losses, seen.late, seen.unsent, seen.strangers];
        assert_eq!(nothing, [0; 5]);
        let meter = client.caller().meter();
        assert!(meter.gets.min() >= 10_000 && meter.gets.max() < 100_000);
    }
}

#[test]
fn a_bad_network_costs_losses_and_no_errors() {
    for seed in 0..6 {
        let mut net = Net { loss: 50, double: 50, delay_ns: (5_000, 400_000), ..Net::new(seed) };
        net.reply_datagram = 300;
        let (client, _) = run(LoadSettings { retries: 2, seed, ..settings() }, &mut net, 4, 16);
        let seen = counts(&client);
        assert!(seen.hits > 1000 && seen.losses > 100 && seen.strangers > 0, "{seen:?}");
        assert!(seen.unanswered < seen.losses / 4, "{seen:?}");
    }
}

#[test]
fn a_slow_server_is_late_and_not_wrong() {
    // Half of the replies come after the time, when their slot and key have other requests.
    let mut net = Net { delay_ns: (10_000, 1_900_000), ..Net::new(3) };
    let (client, _) = run(settings(), &mut net, 2, 64);
    let seen = counts(&client);
    assert!(seen.late > 100 && seen.losses >= seen.late, "{seen:?}");
    assert_eq!(seen.strangers, 0);
}

#[test]
fn an_open_loop_measures_from_when_a_request_was_due() {
    let rate = LoadSettings { arrivals: Arrivals::Uniform(100_000.0), ..settings() };
    let (client, _) = run(rate.clone(), &mut Net::new(4), 4, 8);
    let seen = counts(&client);
    assert!(client.caller().meter().requests().abs_diff(5_000) <= 2, "{seen:?}");
    assert_eq!(seen.unsent, 0);
    // One request at a time and 10 us for each: a server that is twice too slow.
    let slow = LoadSettings { arrivals: Arrivals::Poisson(200_000.0), timeout_ns: 1 << 40, ..rate };
    let (client, _) = run(slow, &mut Net::new(4), 1, 1);
    let seen = counts(&client);
    assert!(seen.unsent > 4_000, "{seen:?}");
    let meter = client.caller().meter();
    assert!(meter.gets.max() > 20_000_000, "the wait before sending counts: {}", meter.gets.max());
}

#[test]
fn a_number_of_requests_ends_it() {
    let some = LoadSettings { requests: 777, measure_ns: 1 << 50, ..settings() };
    let (client, _) = run(some, &mut Net::new(5), 2, 4);
    assert_eq!(client.caller().meter().requests(), 777);
}

#[test]
fn silence_ends_too() {
    let quiet = LoadSettings { preload: false, ..settings() };
    let (client, _) = run(quiet, &mut Net { loss: 1000, ..Net::new(6) }, 1, 4);
    let seen = client.caller().meter().counts;
    assert_eq!((seen.hits, seen.faults), (0, 0));
    assert!(seen.losses > 0 && seen.losses == seen.unanswered);
}

/// Runs a load whose writes are refused from the first to the last but `good`, and says what became of it.
fn refused(keys: u32, good: Spoil) -> (Counts, Option<String>) {
    let load = LoadSettings { keys, ..settings() };
    let (client, _) = run(load, &mut Net { spoil: Some(good), ..Net::new(8) }, 2, 4);
    let caller = client.caller();
    (caller.meter().counts, caller.refusal().map(ToString::to_string))
}

#[test]
fn a_server_that_stores_nothing_is_not_asked_for_long() {
    let refuse: Spoil = |_, _, _| b"SERVER_ERROR memory node down\r\n".to_vec();
    for (keys, least) in [(1000, 100), (20, 20)] {
        let (counts, why) = refused(keys, refuse);
        let why = why.unwrap();
        assert!(why.contains(&format!("first {least} SETs")) && why.contains("memory node down"), "{why}");
        assert!((least..least + 8).contains(&counts.faults), "{counts:?}");
        assert_eq!((counts.hits, counts.misses, counts.stored), (0, 0, 0));
    }
    // One that stores some is measured, and what it refuses is wrong.
    let mostly: Spoil = |number, request, reply| match request.get(..3) {
        Some(b"set") if number > 1 => b"SERVER_ERROR out of memory storing object\r\n".to_vec(),
        _ => reply,
    };
    let (counts, why) = refused(1000, mostly);
    assert_eq!(why, None);
    assert!(counts.faults > 999 && counts.hits > 0, "{counts:?}");
}

fn spoiled(spoil: Spoil) -> Vec<String> {
    let fixed = LoadSettings { sizes: crate::load::Sizes::Fixed(512), requests: 4000, ..settings() };
    let (client, _) = run(fixed, &mut Net { spoil: Some(spoil), ..Net::new(7) }, 2, 8);
    let meter = client.caller().meter();
    assert_eq!(meter.faults.len() as u64, meter.counts.faults.min(20));
    meter.faults.clone()
}

fn value_at(reply: &[u8]) -> Option<usize> {
    reply.starts_with(b"VALUE").then(|| reply.iter().position(|b| *b == b'\n').unwrap() + 1)
}

#[test]
fn a_server_that_is_wrong_is_found_out() {
    let torn = spoiled(|number, _, mut reply| {
        if let Some(at) = value_at(&reply).filter(|_| number % 100 == 0) {
            reply[at + 64..at + 512].rotate_left(64);
        }
        reply
    });
    assert!(!torn.is_empty() && torn.iter().all(|f| f.contains("torn: byte 64")), "{torn:?}");
    let refused =
        spoiled(
            |number, _, reply| {
                if number % 1000 == 0 { b"SERVER_ERROR out of memory\r\n".to_vec() } else { reply }
            },
        );
    assert!(!refused.is_empty() && refused.iter().all(|f| f.contains("SERVER_ERROR out of memory")));
    let cut = spoiled(|number, _, mut reply| {
        reply.truncate(reply.len() - usize::from(number % 1000 == 0));
        reply
    });
    assert!(!cut.is_empty() && cut.iter().all(|f| f.contains("too early")), "{cut:?}");
}

#[test]
fn a_server_that_forgets_writes_is_found_out() {
    // It says STORED, and reads find what was there before.
    let some = LoadSettings { keys: 3, ratio: (1, 1), requests: 500, ..settings() };
    let mut net = Net { forgets: true, ..Net::new(8) };
    let (client, _) = run(some, &mut net, 1, 1);
    let meter = client.caller().meter();
    assert!(meter.counts.faults > 50, "{:?}", meter.counts);
    assert!(meter.faults.iter().all(|fault| fault.contains("stale: version")), "{:?}", meter.faults);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever arrives, nothing panics, and the client still ends.
    #[test]
    fn strange_datagrams_are_survived(
        stranger in prop::collection::vec((0u16..5000, 0u16..4, 0u16..4, prop::collection::vec(any::<u8>(), 0..50)), 0..50),
    ) {
        let one = LoadSettings { preload: false, requests: 200, ..settings() };
        let mut client = Datagrams::new(Caller::new(one), 2, 4);
        client.tick(Time(0));
        client.caller_mut().release(Time(0));
        for flow in [0, 1] {
            while client.next(Time(0), flow).is_some() {}
        }
        for (id, sequence, datagrams, bytes) in stranger {
            let header = FrameHeader {
                request_id: id.into(), sequence: sequence.into(), datagrams: datagrams.into(), reserved: 0.into(),
            };
            client.receive(Time(1), id % 2, &header, bytes.len(), [&bytes[..]].into_iter());
        }
        let mut now = 1;
        while !client.caller().is_done() {
            now += 100_000;
            client.tick(Time(now));
            client.caller_mut().release(Time(now));
            while client.next(Time(now), 0).is_some() {}
            prop_assert!(now < 10_000_000_000);
        }
    }
}
