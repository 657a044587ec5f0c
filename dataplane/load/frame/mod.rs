//! A client on a port of our own: whole Ethernet frames in and out, no socket.
//!
//! | file | what it does |
//! |---|---|
//! | `headers` | frames around requests, fragments where the MTU asks for them |
//! | `arrival` | finds the reply in a frame |
//! | `silence` | a server that never answers |
//! | `service` | the client as a [`Service`](crate::service::Service) of a worker |
//!
//! Sans-IO: frames and times go in, frames come out. Each flow has a UDP source port of its own, so that a server with
//! several queues sees them spread; several clients on one port need ports whose replies come to their own queues.

mod arrival;
mod headers;
mod service;
mod silence;

use super::caller::Caller;
use super::datagram::{Datagrams, OUTSTANDING_MAX};
use super::meter::Meter;
use super::settings::LoadSettings;
use crate::host::{Fate, Host, HostSettings, MAX_FRAME, Sort};
use crate::memcached::udp::{FrameHeader, HEADER_BYTES};
use crate::service::Burst;
use arrayvec::ArrayVec;
use arrival::{Arrival, Reply};
use headers::{Ends, FRAGMENTS_MAX, Packing};
use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::types::Time;
use rdma_engine::wire::Mac;
use silence::Hearing;
pub use silence::{PATIENCE_NS, Silence};
use std::net::{IpAddr, SocketAddr};
use zerocopy::FromBytes;

/// Requests sent in one turn.
const REQUESTS_A_TURN: usize = 32;
/// Time after which the server's MAC address is asked for again.
const ASK_AGAIN_NS: u64 = 1_000_000_000;
/// Smallest MTU that IPv6 allows.
const MTU_MIN: u16 = 1280;

/// A client's port, its server and its load.
#[derive(Clone, Debug)]
pub struct FrameClientSettings {
    /// What to ask for.
    pub load: LoadSettings,
    /// Who we are on the port.
    pub host: HostSettings,
    /// Whom to ask.
    pub server: SocketAddr,
    /// UDP source ports, one a flow; all different.
    pub source_ports: Vec<u16>,
    /// Requests under way on each flow.
    pub depth: u32,
    /// Longest IP packet. With 4200 and more a value of 4 KiB is one frame. Bytes.
    pub mtu: u16,
    /// Set UDP checksums over IPv4 too, and verify those that come.
    pub checksums: bool,
    /// Announce our addresses at start: one client of a port does.
    pub announces: bool,
}

/// Why there is no such client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameClientError {
    /// No address of the server's family.
    #[error("no address of our own to ask {0} from; give the port one of the same family")]
    NoAddress(IpAddr),
    /// Outside our subnets, and no gateway.
    #[error("no way to {0}; give the port an address in its subnet, or a gateway")]
    NoWay(IpAddr),
    /// No flow, or two with the same port.
    #[error("source ports are none or not all different; give each flow its own")]
    Ports,
    /// Too many requests under way, or none.
    #[error("{0} requests under way at once; 1 to {OUTSTANDING_MAX} are possible, all flows together")]
    Depth(usize),
    /// No packet of ours fits.
    #[error(
        "an MTU of {mtu} bytes; it takes {MTU_MIN} and more, and for values this long as much as makes {FRAGMENTS_MAX} fragments suffice"
    )]
    Mtu {
        /// As it was given.
        mtu: u16,
    },
}

/// What a client counts beside its [`Meter`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FrameCounts {
    /// Requests sent, in all phases.
    pub requests: u64,
    /// Frames they took.
    pub frames_sent: u64,
    /// Frames with replies.
    pub replies: u64,
    /// Frames with a wrong checksum.
    pub bad_checksums: u64,
    /// Frames that are nothing to us.
    pub not_wanted: u64,
}

/// The client.
#[derive(Debug)]
pub struct FrameClient<B: Buf> {
    ends: Ends,
    host: Host,
    datagrams: Datagrams,
    source_ports: Box<[u16]>,
    /// Which flow a port is, plus 1; 0 for none.
    flow_of: Box<[u16]>,
    server_mac: Option<Mac>,
    /// When the server's MAC address is asked for, while it is not known.
    ask_at: Time,
    mtu: usize,
    checksums: bool,
    /// Empty buffers for the next request.
    empty: ArrayVec<B, FRAGMENTS_MAX>,
    /// The flow to be served next.
    turn: u16,
    id: u32,
    is_open: bool,
    hearing: Hearing,
    counts: FrameCounts,
}

impl<B: Buf> FrameClient<B> {
    /// A client that sends no request before [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// When the settings contradict each other.
    pub fn new(settings: FrameClientSettings, now: Time) -> Result<Self, FrameClientError> {
        let FrameClientSettings { load, host, server, source_ports, depth, mtu, checksums, announces } =
            settings;
        let ends = Ends::new(&host, server)?;
        let mut flow_of = vec![0; 1 << 16].into_boxed_slice();
        for (flow, port) in source_ports.iter().enumerate() {
            let place = &mut flow_of[usize::from(*port)];
            if *place != 0 || *port == 0 {
                return Err(FrameClientError::Ports);
            }
            *place = flow as u16 + 1;
        }
        let most = source_ports.len() * depth as usize;
        match (source_ports.len(), most) {
            (0, _) => return Err(FrameClientError::Ports),
            (_, 1..=OUTSTANDING_MAX) => {}
            (_, other) => return Err(FrameClientError::Depth(other)),
        }
        if mtu < MTU_MIN || ends.frames(load.request_bytes_max(), usize::from(mtu)).is_none() {
            return Err(FrameClientError::Mtu { mtu });
        }
        Ok(FrameClient {
            ends,
            host: Host::new(host, announces, now),
            datagrams: Datagrams::new(Caller::new(load), source_ports.len() as u16, depth),
            source_ports: source_ports.into_boxed_slice(),
            flow_of,
            server_mac: None,
            ask_at: now,
            mtu: usize::from(mtu),
            checksums,
            empty: ArrayVec::new(),
            turn: 0,
            id: 0,
            is_open: false,
            hearing: Hearing::NotYet,
            counts: FrameCounts::default(),
        })
    }

    /// Begins; until then it only answers as a host.
    pub fn start(&mut self) {
        self.is_open = true;
    }

    /// Ends the measurement, and sends nothing more.
    pub fn stop(&mut self, now: Time) {
        self.datagrams.caller_mut().stop(now);
    }

    /// True when all replies are there, or given up.
    pub fn is_done(&self) -> bool {
        self.datagrams.caller().is_done()
    }

    /// What was measured so far.
    pub fn meter(&self) -> &Meter {
        self.datagrams.caller().meter()
    }

    /// The part that knows no transport.
    pub fn caller(&self) -> &Caller {
        self.datagrams.caller()
    }

    /// What was counted beside that.
    pub fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// A turn: takes `frames`, puts frames to send into `tx`, with buffers from `pool`. True if anything was done.
    #[inline]
    pub fn on_burst<P: Pool<Buf = B>>(
        &mut self,
        now: Time,
        pool: &P,
        frames: &mut Burst<B>,
        tx: &mut impl Egress<B>,
    ) -> bool {
        let mut any = !frames.is_empty();
        for frame in frames.drain(..) {
            self.take(now, frame, tx);
        }
        if !matches!(self.hearing, Hearing::Heard | Hearing::Never(_)) {
            self.listen(now);
        }
        self.datagrams.tick(now);
        self.datagrams.caller_mut().release(now);
        if self.host.has_frame() || self.host.next_timer() <= now || self.server_mac.is_none() {
            any |= self.be_host(now, pool, tx);
        }
        any | self.send(now, pool, tx)
    }

    #[inline]
    fn take(&mut self, now: Time, frame: B, tx: &mut impl Egress<B>) {
        match self.ends.arrival(frame.first(), frame.len(), self.checksums) {
            Arrival::Reply(reply) if self.flow_of[usize::from(reply.port)] > 0 => {
                self.counts.replies += 1;
                self.take_reply(now, &reply, frame);
            }
            Arrival::BadChecksum => self.counts.bad_checksums += 1,
            _ => self.take_other(now, frame, tx),
        }
    }

    #[inline]
    fn take_reply(&mut self, now: Time, reply: &Reply, mut frame: B) {
        let flow = self.flow_of[usize::from(reply.port)] - 1;
        let len = reply.payload.len().saturating_sub(HEADER_BYTES);
        if let Some((header, text)) =
            frame.first().get(reply.payload.clone()).and_then(|p| FrameHeader::read_from_prefix(p).ok())
        {
            return self.datagrams.receive(now, flow, &header, len, std::iter::once(text));
        }
        // In several pieces: cut off what is around it.
        frame.truncate(reply.payload.end);
        frame.adj(reply.payload.start);
        let mut bytes = [0; HEADER_BYTES];
        if rdma_engine::buf::copy_out(&frame, 0, &mut bytes) < HEADER_BYTES {
            self.counts.not_wanted += 1;
            return;
        }
        let header: FrameHeader = zerocopy::transmute!(bytes);
        frame.adj(HEADER_BYTES);
        self.datagrams.receive(now, flow, &header, len, frame.segments());
    }

    #[cold]
    fn take_other(&mut self, now: Time, mut frame: B, tx: &mut impl Egress<B>) {
        if !matches!(self.host.sort(frame.first()), Sort::Host | Sort::Overheard) {
            self.counts.not_wanted += 1;
            return;
        }
        let Some(bytes) = frame.try_unique() else {
            self.counts.not_wanted += 1;
            return;
        };
        if let Fate::Answer(len) = self.host.receive(now, bytes) {
            frame.truncate(len);
            // A port that takes nothing loses answers, as any network does.
            tx.push(frame).ok();
        }
        self.hear();
    }

    fn hear(&mut self) {
        while let Some((ip, mac)) = self.host.next_resolved() {
            if ip == self.ends.server.ip() {
                self.server_mac = Some(mac);
            }
        }
    }

    /// Questions and announcements.
    #[cold]
    fn be_host<P: Pool<Buf = B>>(&mut self, now: Time, pool: &P, tx: &mut impl Egress<B>) -> bool {
        if self.server_mac.is_none() && now >= self.ask_at {
            self.ask_at = now.after_ns(ASK_AGAIN_NS);
            self.host.resolve(now, self.ends.server.ip());
            self.hear();
        }
        self.host.poll(now);
        let mut any = false;
        while self.host.has_frame() && tx.room() > 0 {
            let Some(mut frame) = pool.alloc() else { break };
            let mut bytes = [0; MAX_FRAME];
            let Some(len) = self.host.next_frame(&mut bytes) else { break };
            let Some(out) = frame.append(len) else { break };
            out.copy_from_slice(&bytes[..len]);
            any |= tx.push(frame).is_ok();
        }
        any
    }

    /// Requests that are due, flow after flow.
    #[inline]
    fn send<P: Pool<Buf = B>>(&mut self, now: Time, pool: &P, tx: &mut impl Egress<B>) -> bool {
        let Some(next_hop) = self.server_mac.filter(|_| self.is_open && !self.is_done()) else {
            self.empty.clear();
            return false;
        };
        let flows = self.source_ports.len() as u16;
        let (mut sent, mut idle) = (0, 0);
        while sent < REQUESTS_A_TURN && idle < flows {
            let flow = self.turn;
            self.turn = if flow + 1 == flows { 0 } else { flow + 1 };
            if self.datagrams.is_full(flow) {
                idle += 1;
                continue;
            }
            if !self.has_room(pool, tx) {
                break;
            }
            let Some(request) = self.datagrams.next(now, flow) else { break };
            self.id = self.id.wrapping_add(1);
            let packing = Packing {
                ends: &self.ends,
                next_hop,
                source_port: self.source_ports[usize::from(flow)],
                id: self.id,
                mtu: self.mtu,
                checksums: self.checksums,
            };
            let frames_sent = &mut self.counts.frames_sent;
            let packed = packing.pack(&request, &mut self.empty, |frame| {
                *frames_sent += 1;
                tx.push(frame).unwrap_or_else(|_| unreachable!("room was seen"));
            });
            assert!(packed.is_some(), "buffers and MTU were seen to be enough");
            self.counts.requests += 1;
            (sent, idle) = (sent + 1, 0);
        }
        sent > 0
    }

    /// Takes care that the longest request finds buffers and a place.
    #[inline]
    fn has_room<P: Pool<Buf = B>>(&mut self, pool: &P, tx: &impl Egress<B>) -> bool {
        // Small buffers are a small MTU.
        let longest = pool.buf_room().saturating_sub(self.ends.link_bytes());
        self.mtu = self.mtu.min(longest);
        let bytes = self.datagrams.caller().settings().request_bytes_max();
        let Some(frames) = self.ends.frames(bytes, self.mtu) else { return false };
        while self.empty.len() < frames {
            let Some(buf) = pool.alloc() else { return false };
            self.empty.push(buf);
        }
        tx.room() >= frames
    }
}

#[cfg(test)]
#[path = "../tests/frame.rs"]
mod tests;
