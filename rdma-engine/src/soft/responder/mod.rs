//! The responder of a reliable queue pair: requests of the peer checked, executed and answered.
//!
//! | file | event or step |
//! |---|---|
//! | [`check`] | a request arrives: PSN, sequence, rights, lengths, in the order of the standard |
//! | [`execute`] | an expected request is carried out |
//! | [`duplicate`] | a request from the past |
//! | [`refuse`] | a request is answered by a NAK |
//! | [`answer`] | responses and acknowledgements are sent |
//! | [`replay`] | READs and atomics whose answers may be asked for again |
//!
//! Nothing is sent from here at once: answers are owed, and paid in PSN order when the queue pair has its turn. That
//! is where acknowledgements coalesce.

mod answer;
mod check;
mod duplicate;
mod execute;
mod refuse;
mod replay;

pub(crate) use check::{is_continuation, message_fault};
pub(crate) use execute::write_in_progress;

use crate::qp::RtrAttr;
use crate::types::{MASK_24, Psn, Rkey};
use crate::wire::{NakCode, RnrTimer, Syndrome};
use replay::Replay;

/// The message whose packets are arriving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// None: the next packet starts one.
    Idle,
    /// A SEND.
    Send,
    /// A WRITE; where its next byte goes, how many are to come and how many there are in all.
    Write {
        /// Address of the next byte.
        addr: u64,
        /// Key of the region.
        rkey: Rkey,
        /// Bytes to come.
        left: u32,
        /// Bytes of the message.
        total: u32,
    },
}

/// What the responder knows of its peer.
#[derive(Debug)]
pub(crate) struct Responder {
    /// PSN of the next request.
    pub(crate) expected: Psn,
    /// Request messages completed.
    msn: u32,
    pub(crate) message: Message,
    /// Newest SEND or WRITE packet executed: what duplicates are acknowledged with.
    newest: Option<Psn>,
    /// A gap was answered by a NAK; no other one until it is filled.
    gap_told: bool,
    /// The ACK or NAK that is owed.
    owed: Option<(Psn, Syndrome)>,
    /// READs and atomics, answered and to be answered.
    replay: Replay,
    rnr_timer: RnrTimer,
}

impl Responder {
    pub(crate) fn new() -> Self {
        Responder {
            expected: Psn::default(),
            msn: 0,
            message: Message::Idle,
            newest: None,
            gap_told: false,
            owed: None,
            replay: Replay::new(0),
            rnr_timer: RnrTimer::new(0),
        }
    }

    /// INIT to RTR.
    pub(crate) fn ready(&mut self, attr: &RtrAttr) {
        self.expected = attr.rq_psn;
        self.replay = Replay::new(attr.max_dest_rd_atomic.into());
        self.rnr_timer = RnrTimer::new(attr.min_rnr_timer);
    }

    /// A request message is complete.
    #[inline]
    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & MASK_24;
    }

    /// Request messages completed.
    pub(crate) fn msn(&self) -> u32 {
        self.msn
    }

    /// Everything before the expected request was acknowledged: an ACK that is owed says nothing new.
    pub(crate) fn acknowledged(&mut self) {
        self.owed.take_if(|(_, syndrome)| matches!(syndrome, Syndrome::Ack { .. }));
    }

    /// True if anything is to be sent.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owed.is_some() || self.replay.is_pending()
    }

    /// True if a NAK that ends the connection is to be sent.
    pub(crate) fn owes_refusal(&self) -> bool {
        matches!(self.owed, Some((_, Syndrome::Nak { code })) if code != NakCode::PsnSequence)
    }

    /// Nothing is sent any more.
    pub(crate) fn silence(&mut self) {
        self.owed = None;
        self.replay.silence();
    }
}
