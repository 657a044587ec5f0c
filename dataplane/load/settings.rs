//! What a load is made of.

use super::key::KeyFormat;
use super::ledger::Share;
use super::popularity::Popularity;
use super::request::{Dialect, Speech};
use super::size::Sizes;

/// When requests begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    /// As soon as an earlier one has been answered: as many as there is room for are always under way.
    Closed,
    /// At equal distances. Requests a second.
    Uniform(f64),
    /// At random, independent of each other. Requests a second, on average.
    Poisson(f64),
}

impl Arrivals {
    /// The same with `1 / of` of the rate.
    #[must_use]
    pub fn share(self, of: u32) -> Self {
        match self {
            Arrivals::Closed => Arrivals::Closed,
            Arrivals::Uniform(rate) => Arrivals::Uniform(rate / f64::from(of)),
            Arrivals::Poisson(rate) => Arrivals::Poisson(rate / f64::from(of)),
        }
    }
}

/// One client's load. Several clients of one load differ in `share` and, so that they do not ask for the same, in `stream`.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadSettings {
    /// Keys, above 0.
    pub keys: u32,
    /// Bytes of a key.
    pub key_bytes: u16,
    /// How often each is asked for.
    pub popularity: Popularity,
    /// Lengths of values.
    pub sizes: Sizes,
    /// Weights of reads and writes.
    pub ratio: (u32, u32),
    /// Text or meta commands.
    pub dialect: Dialect,
    /// What is drawn, and what values look like, follows from it.
    pub seed: u64,
    /// Number of this client's random numbers.
    pub stream: u64,
    /// Number of this run, larger than those of earlier runs against the same server: seconds since 1970, say.
    pub run: u32,
    /// Keys this client writes.
    pub share: Share,
    /// Write every key of the share once before anything else.
    pub preload: bool,
    /// Time before the measurement. Nanoseconds.
    pub warm_up_ns: u64,
    /// Time of the measurement. Nanoseconds.
    pub measure_ns: u64,
    /// Requests after which the measurement ends earlier; 0 for no such end.
    pub requests: u64,
    /// When requests begin.
    pub arrivals: Arrivals,
    /// Time after which a request or its reply counts as lost. Nanoseconds.
    pub timeout_ns: u64,
    /// Times a lost request is sent again. While preloading it is at least [`PRELOAD_RETRIES`].
    pub retries: u8,
}

/// See [`LoadSettings::retries`].
pub const PRELOAD_RETRIES: u8 = 20;

impl Default for LoadSettings {
    fn default() -> Self {
        LoadSettings {
            keys: 100_000,
            key_bytes: 16,
            popularity: Popularity::Zipf(0.99),
            sizes: Sizes::Fixed(64),
            ratio: (9, 1),
            dialect: Dialect::Text,
            seed: 1,
            stream: 0,
            run: 1,
            share: Share::ALL,
            preload: true,
            warm_up_ns: 1_000_000_000,
            measure_ns: 10_000_000_000,
            requests: 0,
            arrivals: Arrivals::Closed,
            timeout_ns: 1_000_000_000,
            retries: 0,
        }
    }
}

impl LoadSettings {
    /// How its requests are written.
    pub fn speech(&self) -> Speech {
        Speech { dialect: self.dialect, keys: KeyFormat::new(self.key_bytes), seed: self.seed, run: self.run }
    }

    /// The load of client `index` of `of`, which together are this one.
    ///
    /// # Panics
    /// If there are not as many keys as clients.
    #[must_use]
    pub fn client(&self, index: u32, of: u32) -> Self {
        assert!(index < of && of <= self.keys, "each client needs a key to write");
        LoadSettings {
            share: Share { index, of },
            stream: u64::from(index),
            arrivals: self.arrivals.share(of),
            requests: self.requests.div_ceil(u64::from(of)),
            ..self.clone()
        }
    }

    /// Bytes of the longest reply to a read.
    pub fn reply_bytes_max(&self) -> usize {
        self.sizes.longest() as usize + usize::from(self.key_bytes) + 64
    }

    /// Bytes of the longest request, with the frame header of a datagram.
    pub fn request_bytes_max(&self) -> usize {
        self.sizes.longest() as usize + usize::from(self.key_bytes) + 64
    }
}
