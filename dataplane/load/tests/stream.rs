use super::*;
use crate::load::settings::{Arrivals, LoadSettings};
use crate::load::testing::{Server, settings};
use crate::load::{Dialect, Random};

/// A connection: what the server has not read yet, and what the client has not.
#[derive(Default)]
struct Pipe {
    up: Vec<u8>,
    down: Vec<u8>,
}

/// Runs a load over `flows` connections, every read cut at random. `hurt` may spoil what the client reads next, and says
/// whether it reads at all.
fn run(
    settings: LoadSettings,
    flows: u16,
    depth: u32,
    mut hurt: impl FnMut(u64, &mut Vec<u8>) -> bool,
) -> Streams {
    let (mut server, mut random) = (Server::new(), Random::new(settings.seed));
    let mut client = Streams::new(Caller::new(settings), flows, depth);
    let mut pipes: Vec<Pipe> = (0..flows).map(|_| Pipe::default()).collect();
    let mut step = 0;
    while !client.caller().is_done() {
        step += 1;
        assert!(step < 3_000_000, "it does not end: {:?}", client.caller().phase());
        let now = Time(step * 1000);
        if let Some(silent) = client.tick(now) {
            pipes[usize::from(silent)] = Pipe::default();
            client.closed(silent);
        }
        client.caller_mut().release(now);
        let flow = random.below(u64::from(flows)) as u16;
        let pipe = &mut pipes[usize::from(flow)];
        client.fill(now, flow, 10_000, &mut pipe.up);
        let some = random.below(pipe.up.len() as u64 + 1) as usize;
        let (reply, used) = server.serve(&pipe.up[..some]);
        pipe.up.drain(..used);
        pipe.down.extend(reply);
        let reads = hurt(step, &mut pipe.down);
        let n = if reads { random.below(pipe.down.len() as u64 + 1) as usize } else { 0 };
        let bytes: Vec<u8> = pipe.down.drain(..n).collect();
        if client.receive(now, flow, &bytes).is_err() {
            *pipe = Pipe::default();
            client.closed(flow);
        }
    }
    client
}

#[test]
fn streams_cut_anywhere_are_read() {
    for (seed, dialect) in [(1, Dialect::Text), (2, Dialect::Meta), (3, Dialect::Text)] {
        let client = run(
            LoadSettings { seed, dialect, requests: 3000, timeout_ns: 1 << 40, ..settings() },
            3,
            8,
            |_, _| true,
        );
        let meter = client.caller().meter();
        assert_eq!(meter.counts.faults, 0, "{:?}", meter.faults);
        assert!(meter.requests() == 3000 && meter.counts.misses == 0, "{:?}", meter.counts);
        assert_eq!(meter.counts.reconnects, 0);
    }
}

#[test]
fn a_silent_connection_is_given_up() {
    // After a while nothing comes any more, for the timeout and some more; then all is well again.
    let lull = 20_000..30_000;
    let client = run(settings(), 2, 4, |step, _| !lull.contains(&step));
    let meter = client.caller().meter();
    assert_eq!(meter.counts.faults, 0, "{:?}", meter.faults);
    assert!(meter.counts.reconnects > 0 && meter.counts.losses > 0, "{:?}", meter.counts);
    assert!(meter.requests() > 1000);
}

#[test]
fn nonsense_closes_the_connection_and_is_counted() {
    let mut done = false;
    let client = run(LoadSettings { timeout_ns: 1 << 40, ..settings() }, 2, 4, |step, down| {
        if step > 20_000 && !done && down.is_empty() {
            down.extend_from_slice(b"VALUE what is this\r\n");
            done = true;
        }
        true
    });
    let meter = client.caller().meter();
    assert_eq!(meter.counts.reconnects, 1, "{:?}", meter.faults);
    assert_eq!(meter.counts.faults + meter.counts.strangers, 1, "{:?}", meter.faults);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let rate = LoadSettings { arrivals: Arrivals::Poisson(50_000.0), timeout_ns: 1 << 40, ..settings() };
    let client = run(rate, 2, 64, |_, _| true);
    let requests = client.caller().meter().requests() + client.caller().meter().counts.unsent;
    assert!(requests.abs_diff(2500) < 300, "{requests}");
}
