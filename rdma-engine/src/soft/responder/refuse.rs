//! A request is answered by a NAK.

use super::super::counters::DropReason;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::check::Fault;
use crate::buf::{Buf, Pool};
use crate::types::Psn;
use crate::wire::Syndrome;
use crate::wr::{Received, Status};

impl<B: Buf> Qp<B> {
    /// Tells the peer, and goes to ERR unless it may try again.
    #[cold]
    pub(super) fn refuse<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, psn: Psn, fault: Fault) {
        match fault {
            Fault::NoReceive => {
                shared.drop(DropReason::NoReceive);
                let timer = self.responder.rnr_timer;
                self.responder.owed = Some((psn, Syndrome::RnrNak { timer }));
                // What follows lies in the future; the peer knows why.
                self.responder.gap_told = true;
            }
            Fault::Fatal(code, status) => {
                shared.drop(DropReason::Refused);
                self.responder.owed = Some((psn, Syndrome::Nak { code }));
                self.end(shared, status);
            }
            Fault::Silent(status) => {
                shared.drop(DropReason::Refused);
                self.end(shared, status);
            }
        }
    }

    fn end<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, status: Status) {
        if self.receives.in_use() {
            self.complete_receive(shared, Received::default(), status);
        }
        self.fail(shared, status);
    }
}
