//! What the tests of both engines share: a server in memory.

use crate::load::settings::LoadSettings;
use crate::load::{Arrivals, Popularity, Sizes};
use crate::memcached::udp::{self, FrameHeader, Split};
use crate::memcached::{ItemMap, Limits, Served, StatsGroup, serve};
use zerocopy::IntoBytes;

const LIMITS: Limits = Limits { value_bytes_max: 1 << 20 };

/// memcached in memory.
pub(in crate::load) struct Server {
    items: ItemMap,
}

impl Server {
    pub(in crate::load) fn new() -> Self {
        Server { items: ItemMap::new(LIMITS.value_bytes_max) }
    }

    /// Serves the whole commands in front of `input`: the replies, and how many bytes they took.
    pub(in crate::load) fn serve(&mut self, input: &[u8]) -> (Vec<u8>, usize) {
        let (mut reply, mut at) = (vec![], 0);
        let mut stats = |_: StatsGroup, _: &mut Vec<u8>| {};
        while at < input.len() {
            match serve(&input[at..], &mut self.items, &LIMITS, 1_700_000_000, &mut stats, &mut reply) {
                Served::Done { used, skip } => at += used + skip,
                Served::Incomplete { .. } | Served::Close => break,
            }
        }
        (reply, at)
    }

    /// Serves a datagram with its frame header: the datagrams of the reply.
    pub(in crate::load) fn serve_datagram(&mut self, datagram: &[u8], reply_datagram: usize) -> Vec<Vec<u8>> {
        let (header, text) = udp::request(datagram).expect("requests are whole");
        let (reply, used) = self.serve(text);
        assert_eq!(used, text.len());
        datagrams(header, &reply, reply_datagram)
    }
}

/// A reply as datagrams.
pub(in crate::load) fn datagrams(header: FrameHeader, reply: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let split = Split::new(header.request_id.get(), reply.len(), bytes).expect("a reply that fits");
    split.map(|(header, range)| [header.as_bytes(), &reply[range]].concat()).collect()
}

/// A short load.
pub(in crate::load) fn settings() -> LoadSettings {
    LoadSettings {
        keys: 200,
        popularity: Popularity::Zipf(0.99),
        sizes: Sizes::LogUniform(24, 4096),
        ratio: (7, 3),
        warm_up_ns: 1_000_000,
        measure_ns: 50_000_000,
        timeout_ns: 2_000_000,
        run: 1000,
        arrivals: Arrivals::Closed,
        ..LoadSettings::default()
    }
}
