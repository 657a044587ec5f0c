//! What a front end counts.

use crate::host::HostCounters;

macro_rules! drops {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a frame or a reply ended here.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum FrontDrop {
            $($(#[$doc])* $name,)*
        }

        impl FrontDrop {
            /// All of them, in order of their numbers.
            pub const ALL: &[FrontDrop] = &[$(FrontDrop::$name,)*];

            /// Name in statistics.
            pub const fn name(self) -> &'static str {
                match self { $(FrontDrop::$name => $text,)* }
            }
        }
    };
}

drops! {
    /// The frame ends inside its headers.
    Runt = "runt",
    /// Tagged for another VLAN, or not tagged as ours.
    Vlan = "vlan",
    /// One of our own that has come back: the port is part of a loop.
    Returned = "returned",
    /// To another MAC or IP address.
    NotForUs = "not_for_us",
    /// Neither ARP nor IP.
    NotIp = "not_ip",
    /// Lengths or versions of IP headers contradict each other.
    Malformed = "malformed",
    /// Wrong IPv4 header checksum.
    IpChecksum = "ip_checksum",
    /// IP options or extension headers that we may not ignore, or too many.
    IpOptions = "ip_options",
    /// To one of our addresses, neither UDP nor something for the host side.
    NotUdp = "not_udp",
    /// From an address that nobody may be answered at: a group, a broadcast address, our own.
    Source = "source",
    /// From an address outside the list of clients.
    NotAllowed = "not_allowed",
    /// UDP to another port.
    OtherPort = "other_port",
    /// From a port where a service listens that might answer our answer.
    Reflector = "reflector",
    /// The UDP header contradicts the length of the packet.
    UdpLength = "udp_length",
    /// Wrong UDP checksum.
    UdpChecksum = "udp_checksum",
    /// No UDP checksum, which only IPv4 allows.
    NoUdpChecksum = "no_udp_checksum",
    /// No text behind the frame header, or not even that.
    ShortRequest = "short_request",
    /// Part of a request of several datagrams, which memcached does not take.
    SplitRequest = "split_request",
    /// A fragment of no bytes, or one that is not the last and no multiple of 8 bytes.
    FragmentMalformed = "fragment_malformed",
    /// A fragment that has come before.
    FragmentDuplicate = "fragment_duplicate",
    /// A fragment that covers part of another one; the packet is given up.
    FragmentOverlap = "fragment_overlap",
    /// Fragments that disagree about the end of the packet; it is given up.
    FragmentEnd = "fragment_end",
    /// A fragment beyond the largest request; the packet is given up.
    FragmentTooLong = "fragment_too_long",
    /// A packet whose fragments did not all arrive in time.
    ReassemblyTimeout = "reassembly_timeout",
    /// A packet given up for a newer one.
    ReassemblyEvicted = "reassembly_evicted",
    /// A frame in several segments that does not fit into one buffer.
    TooLong = "too_long",
    /// No buffer for what has to be copied.
    NoBuffer = "no_buffer",
    /// More pings in one turn than are answered.
    PingsFull = "pings_full",
    /// A reply that found the backlog full.
    BacklogFull = "backlog_full",
    /// An error reply above the rate of these.
    ErrorRate = "error_rate",
    /// A reply of more than 65535 datagrams.
    ReplyTooLong = "reply_too_long",
    /// A reply that fits into a frame neither in its segments nor copied.
    DoesNotFit = "does_not_fit",
    /// A reply that waited for buffers or room until nobody expects it any more.
    Stale = "stale",
    /// A frame that the egress refused although it had room.
    EgressFull = "egress_full",
}

/// Totals of a front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrontCounters {
    /// Frames received.
    pub frames: u64,
    /// Requests handed out.
    pub requests: u64,
    /// Their bytes of text.
    pub request_bytes: u64,
    /// Fragments kept.
    pub fragments: u64,
    /// Packets put together from fragments.
    pub reassembled: u64,
    /// Requests that were copied because they came in several segments.
    pub linearized: u64,
    /// Replies sent as a whole.
    pub replies: u64,
    /// Their datagrams.
    pub datagrams: u64,
    /// Datagrams whose headers went in front of the reply in place.
    pub in_place: u64,
    /// Datagrams whose part of the reply was copied.
    pub copied: u64,
    /// Turns that could not go on with a reply for want of buffers.
    pub starved: u64,
    /// What the host side counted.
    pub host: HostCounters,
    pub(super) drops: [u64; FrontDrop::ALL.len()],
}

impl Default for FrontCounters {
    fn default() -> Self {
        FrontCounters {
            frames: 0,
            requests: 0,
            request_bytes: 0,
            fragments: 0,
            reassembled: 0,
            linearized: 0,
            replies: 0,
            datagrams: 0,
            in_place: 0,
            copied: 0,
            starved: 0,
            host: HostCounters::default(),
            drops: [0; FrontDrop::ALL.len()],
        }
    }
}

impl FrontCounters {
    /// How often this was the reason.
    pub fn drops(&self, reason: FrontDrop) -> u64 {
        self.drops[reason as usize]
    }

    /// All reasons that occurred.
    pub fn all_drops(&self) -> impl Iterator<Item = (FrontDrop, u64)> + '_ {
        FrontDrop::ALL.iter().map(|reason| (*reason, self.drops(*reason))).filter(|(_, n)| *n > 0)
    }

    #[cold]
    pub(super) fn drop(&mut self, reason: FrontDrop) {
        self.drops[reason as usize] += 1;
    }
}
