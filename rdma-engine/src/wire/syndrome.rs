//! The syndrome byte of the AETH, and the tables its codes index.

use std::fmt;

/// What an acknowledgement says (IBTA 9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Everything up to this PSN arrived.
    Ack {
        /// How many more requests that need a receive may be sent.
        credits: CreditCode,
    },
    /// No receive was posted: wait, then send again from this PSN.
    RnrNak {
        /// How long to wait at least.
        timer: RnrTimer,
    },
    /// Refused.
    Nak {
        /// Why.
        code: NakCode,
    },
    /// A pattern the standard reserves.
    Reserved(u8),
}

impl Syndrome {
    /// A plain acknowledgement without credits, what Linux sends (0x1F).
    pub const ACK: Syndrome = Syndrome::Ack { credits: CreditCode::UNLIMITED };

    /// Reads a syndrome byte; every byte has a meaning.
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1F;
        match byte >> 5 {
            0 => Syndrome::Ack { credits: CreditCode(value) },
            1 => Syndrome::RnrNak { timer: RnrTimer(value) },
            3 => Syndrome::Nak { code: NakCode::from_value(value) },
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The byte that [`Syndrome::from_byte`] read.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits.0,
            Syndrome::RnrNak { timer } => 0x20 | timer.0,
            Syndrome::Nak { code } => 0x60 | code.value(),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Ack { credits } => match credits.credits() {
                None => f.write_str("ACK"),
                Some(n) => write!(f, "ACK, {n} credits"),
            },
            Syndrome::RnrNak { timer } => {
                let us = timer.wait_ns() / 1000;
                write!(f, "RNR NAK, no receive posted, wait {}.{:02} ms", us / 1000, us % 1000 / 10)
            }
            Syndrome::Nak { code } => write!(f, "NAK, {code}"),
            Syndrome::Reserved(byte) => write!(f, "reserved syndrome {byte:#04x}"),
        }
    }
}

/// Credit code of an ACK, 0 to 31.
///
/// Peers that do not use end-to-end credits send 31, some send 0: heed codes only where credits were
/// negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CreditCode(u8);

/// Requests allowed by credit codes 0 to 30.
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl CreditCode {
    /// Code 31: no limit is stated.
    pub const UNLIMITED: CreditCode = CreditCode(0x1F);

    /// The low five bits of `code`.
    pub const fn new(code: u8) -> Self {
        CreditCode(code & 0x1F)
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Requests allowed, `None` if no limit is stated.
    pub fn credits(self) -> Option<u16> {
        CREDITS.get(usize::from(self.0)).copied()
    }

    /// The largest code that allows no more than `credits` requests.
    pub fn at_most(credits: u16) -> Self {
        let fitting = CREDITS.partition_point(|&c| c <= credits);
        CreditCode(fitting.saturating_sub(1) as u8)
    }
}

/// Timer code of an RNR NAK, 0 to 31. Code 0 is the longest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "min_rnr_timer")]
pub struct RnrTimer(u8);

/// Waits of RNR timer codes in units of 10 us.
const RNR_WAIT_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// The low five bits of `code`.
    pub const fn new(code: u8) -> Self {
        RnrTimer(code & 0x1F)
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The least time to wait, in nanoseconds.
    pub const fn wait_ns(self) -> u64 {
        RNR_WAIT_10US[(self.0 & 0x1F) as usize] as u64 * 10_000
    }

    /// The code with the shortest wait that lasts at least `wait_ns`; the longest one if none does.
    pub fn at_least_ns(wait_ns: u64) -> Self {
        let lasting = (1..32).map(RnrTimer).find(|t| t.wait_ns() >= wait_ns);
        lasting.unwrap_or(RnrTimer(0))
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A packet is missing; the NAK's PSN is the one expected.
    PsnSequence,
    /// Malformed, out of sequence within its message, or not allowed on this queue pair.
    InvalidRequest,
    /// Bad key, bounds or rights of the responder's memory.
    RemoteAccess,
    /// The responder could not complete it.
    RemoteOperational,
    /// Reliable datagram only.
    InvalidRdRequest,
    /// A code the standard reserves, 5 to 31.
    Reserved(u8),
}

impl NakCode {
    const fn from_value(value: u8) -> Self {
        match value {
            0 => NakCode::PsnSequence,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperational,
            4 => NakCode::InvalidRdRequest,
            other => NakCode::Reserved(other),
        }
    }

    /// The low five bits of the syndrome.
    pub const fn value(self) -> u8 {
        match self {
            NakCode::PsnSequence => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Reserved(other) => other & 0x1F,
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NakCode::PsnSequence => f.write_str("PSN sequence error"),
            NakCode::InvalidRequest => f.write_str("invalid request"),
            NakCode::RemoteAccess => f.write_str("remote access error"),
            NakCode::RemoteOperational => f.write_str("remote operational error"),
            NakCode::InvalidRdRequest => f.write_str("invalid RD request"),
            NakCode::Reserved(code) => write!(f, "reserved code {code}"),
        }
    }
}
