//! The front end of a service that speaks memcached's protocol over UDP: from frames to requests, from replies to frames.
//!
//! | file | what it does |
//! |---|---|
//! | `receive`, `packet` | a received frame: VLAN, addresses, options, lengths, checksums, frame header |
//! | `guard` | who is answered, and how often requests that make no sense are |
//! | `reassembly` | requests that come in fragments of IP packets |
//! | `send`, `local` | replies as datagrams: headers in place, parts shared or copied, checksums |
//! | `peer` | where a reply goes |
//! | `port` | what buffers know about the port's checksums |
//!
//! Sans-IO: frames and times go in by [`Front::receive`], frames come out by [`Front::flush`]. One worker of a port has
//! one; several share nothing. Nothing is allocated after the start, and nothing that comes in makes it panic or grow:
//! what is not served costs a counter, see [`FrontDrop`]. ARP, neighbour discovery and pings go through [`crate::host`].
//!
//! A reply goes back to where the frame of its request came from, so no neighbour is looked up. No ICMP error is sent.

mod counter;
mod guard;
mod local;
mod packet;
mod peer;
mod port;
mod reassembly;
mod receive;
mod send;
mod settings;

pub use counter::{FrontCounters, FrontDrop};
pub use peer::Peer;
pub use port::PortBuf;
pub use receive::Datagram;
pub use settings::{FrontSettings, ReassemblySettings, TxChecksums};

use crate::host::Host;
use arrayvec::ArrayVec;
use guard::Guard;
use local::Local;
use rdma_engine::cm::Budget;
use rdma_engine::types::Time;
use reassembly::Reassembly;
use send::{Layout, Reply};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Answers to pings that wait for the egress.
const MAX_ANSWERS: usize = 32;
/// Bytes of a UDP header.
const UDP_BYTES: usize = 8;
/// What a request that stores a value has beside it at most: frame header, the longest line with the longest key, line ends.
pub const REQUEST_LINE_BYTES: usize = 340;

/// The front end of one worker.
#[derive(Debug)]
pub struct Front<B> {
    host: Host,
    locals: Box<[Local]>,
    guard: Guard,
    errors: Budget,
    port: u16,
    layout: Layout,
    /// Bytes of the largest value that a request can bring.
    value_bytes_max: usize,
    reassembly: Reassembly<B>,
    answers: ArrayVec<B, MAX_ANSWERS>,
    backlog: VecDeque<Reply<B>>,
    backlog_max: usize,
    /// The last time we were told.
    now: Time,
    counters: FrontCounters,
}

impl<B: PortBuf> Front<B> {
    /// A front end that announces its addresses from `now` on if `announces`: one worker of a port does.
    ///
    /// # Panics
    /// With more than 65535 addresses.
    pub fn new(settings: FrontSettings, announces: bool, now: Time) -> Self {
        assert!(settings.host.addresses.len() <= usize::from(u16::MAX), "too many addresses on one port");
        let addresses = &settings.host.addresses;
        let packet_bytes_max =
            settings.request_bytes_max.saturating_add(UDP_BYTES).min(usize::from(u16::MAX));
        Front {
            locals: addresses.iter().map(|own| Local::new(own.address, &settings)).collect(),
            guard: Guard::new(settings.allow.clone(), addresses.clone(), settings.port),
            errors: Budget::new(now, settings.errors_per_second),
            port: settings.port,
            layout: Layout { segments_max: settings.segments_max.max(1), copybreak: settings.copybreak },
            value_bytes_max: settings.request_bytes_max.saturating_sub(REQUEST_LINE_BYTES),
            reassembly: Reassembly::new(settings.reassembly, packet_bytes_max),
            answers: ArrayVec::new(),
            backlog: VecDeque::with_capacity(settings.backlog),
            backlog_max: settings.backlog,
            now,
            counters: FrontCounters::default(),
            host: Host::new(settings.host, announces, now),
        }
    }

    /// What was counted.
    pub fn counters(&self) -> FrontCounters {
        FrontCounters { host: self.host.counters(), ..self.counters }
    }

    /// When [`poll`](Self::poll) is due.
    #[inline]
    pub fn next_timer(&self) -> Time {
        self.host.next_timer().min(self.reassembly.next_timer())
    }

    /// Announcements that are due, and the end of packets whose fragments do not come. [`flush`](Self::flush) calls it.
    #[inline]
    pub fn poll(&mut self, now: Time) {
        self.now = now;
        if now >= self.host.next_timer() {
            self.host.poll(now);
            self.give_up_duplicates();
        }
        if now >= self.reassembly.next_timer() {
            self.reassembly.expire(now, &mut self.counters);
        }
    }

    /// Takes no more requests to addresses that other stations have.
    #[cold]
    fn give_up_duplicates(&mut self) {
        while let Some(duplicate) = self.host.next_duplicate() {
            let given_up = IpAddr::V6(duplicate.address);
            self.locals.iter_mut().filter(|own| own.address() == given_up).for_each(Local::give_up);
            if duplicate.first {
                tracing::error!("{duplicate}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
