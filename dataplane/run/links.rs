//! Links of ports that are down: said once, with what to do, and said again when they are back.

use crate::plan::{Plan, PortSource};
use crate::stats::sample::PortSample;
use rdma_engine::types::Time;
use tracing::{info, warn};

/// How long a link may be down unsaid: peers start in any order. Nanoseconds.
const PATIENCE_NS: u64 = 3_000_000_000;

/// One port's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Up,
    /// Since then.
    Down(Time),
    /// Down, and said so.
    Told,
}

/// What happened to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    None,
    Down,
    Back,
}

/// The links of all ports.
pub(super) struct Links(Vec<(State, &'static str)>);

impl Links {
    pub(super) fn new(plan: &Plan) -> Self {
        Links(plan.ports.iter().map(|port| (State::Up, remedy(&port.source))).collect())
    }

    /// Looks at all ports.
    pub(super) fn look(&mut self, now: Time, ports: &[PortSample]) {
        for ((state, remedy), port) in self.0.iter_mut().zip(ports) {
            match state.note(now, port.link_up) {
                News::Down => warn!(port = %port.name, "the link is down: nothing comes or goes; {remedy}"),
                News::Back => info!(port = %port.name, "the link is up again"),
                News::None => {}
            }
        }
    }
}

impl State {
    fn note(&mut self, now: Time, is_up: bool) -> News {
        let (next, news) = match (*self, is_up) {
            (State::Told, true) => (State::Up, News::Back),
            (_, true) => (State::Up, News::None),
            (State::Up, false) => (State::Down(now), News::None),
            (State::Down(since), false) if now.since_ns(since) >= PATIENCE_NS => (State::Told, News::Down),
            (other, false) => (other, News::None),
        };
        *self = next;
        news
    }
}

/// What brings a link up.
fn remedy(source: &PortSource) -> &'static str {
    let PortSource::Vdev { driver, args, .. } = source else { return "check the cable and the other end" };
    match driver.as_str() {
        // The driver's client forgets a server that has gone, and a server waits for a client to come.
        "net_memif" if args.split(',').any(|arg| arg == "role=client") => {
            "start the process at the server's end of the socket; if it was started anew, restart this one as well, as a memif client joins its server once"
        }
        "net_memif" => {
            "start the process at the client's end of the socket; if it was joined to an earlier run of this one, restart it, as a memif client joins its server once"
        }
        "net_tap" => "set the interface up: ip link set dev INTERFACE up",
        "net_af_packet" | "net_af_xdp" => {
            "set the interface up (ip link set dev INTERFACE up); if it was removed and made anew, restart this process, whose socket stays with the old one"
        }
        _ => "check the other end",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_stays_down_is_told_once_and_its_return_too() {
        let mut state = State::Up;
        let second = 1_000_000_000;
        let news: Vec<News> = [true, false, false, true, false, false, false, false, false, true, true]
            .iter()
            .zip(1..)
            .map(|(up, at)| state.note(Time(at * second), *up))
            .collect();
        let mut expected = [News::None; 11];
        (expected[7], expected[9]) = (News::Down, News::Back);
        assert_eq!(news, expected);
    }

    #[test]
    fn each_end_of_a_memif_has_its_remedy() {
        let end = |args: &str| PortSource::Vdev {
            device: "net_memif0".into(),
            args: args.into(),
            driver: "net_memif".into(),
        };
        assert!(remedy(&end("role=client,socket=a")).contains("restart this one"));
        assert!(remedy(&end("role=server,socket=a")).contains("restart it"));
    }
}
