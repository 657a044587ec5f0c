//! Datagrams of the general services interface (QP 1) on their way out: connection management.

use super::frame;
use super::path::Path;
use crate::buf::{Buf, Pool, copy_out};
use crate::types::{Psn, Qpn, Time};
use crate::wire::{Bth, Deth, Opcode};

/// Datagrams that wait at most.
pub(crate) const MAX_OUTGOING: usize = 256;

/// A datagram that waits to be sent from QP 1.
#[derive(Debug)]
pub(crate) struct Outgoing<B> {
    pub(crate) path: Path,
    pub(crate) qpn: Qpn,
    pub(crate) buf: B,
    /// When the destination's MAC address is asked for again.
    pub(crate) ask_again: Time,
}

impl<B: Buf> Outgoing<B> {
    /// Its frame; `None` if the pool is dry.
    pub(crate) fn build<P: Pool<Buf = B>>(&self, pool: &P, icrc: bool, psn: Psn) -> Option<B> {
        let bth = Bth::new(Opcode::UD_SEND_ONLY, self.qpn, psn);
        let deth = Deth::new(Deth::GSI_QKEY, Qpn::GSI);
        let put = |out: &mut [u8]| {
            copy_out(&self.buf, 0, out);
        };
        frame::build(pool, icrc, &self.path.template, bth, &deth, self.buf.len(), put)
    }
}
