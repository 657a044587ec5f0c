//! The states of a queue pair and the table of changes, one for all transports (IBTA vol. 1, 10.3).

use super::attr::Change;
use crate::types::QpType;
use std::fmt;

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_qp_state")]
#[repr(u8)]
pub enum QpState {
    /// Created; takes nothing.
    #[doc(alias = "IBV_QPS_RESET")]
    Reset,
    /// Takes receives; packets are dropped.
    #[doc(alias = "IBV_QPS_INIT")]
    Init,
    /// Answers the peer, sends nothing of its own.
    #[doc(alias = "IBV_QPS_RTR")]
    Rtr,
    /// Answers and sends.
    #[doc(alias = "IBV_QPS_RTS")]
    Rts,
    /// Finishes the sends it has started; answers.
    #[doc(alias = "IBV_QPS_SQD")]
    Sqd,
    /// The send queue failed (UC, UD); answers.
    #[doc(alias = "IBV_QPS_SQE")]
    Sqe,
    /// Flushes everything.
    #[doc(alias = "IBV_QPS_ERR")]
    Err,
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        })
    }
}

/// A change that the table does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a {kind} queue pair cannot go from {from} to {to}; the way up is RESET, INIT, RTR, RTS")]
pub struct IllegalChange {
    /// Transport type.
    pub kind: QpType,
    /// Present state.
    pub from: QpState,
    /// State asked for.
    pub to: QpState,
}

impl QpState {
    /// All states.
    pub const ALL: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

    /// The state that `change` leads to from here, or why it is not possible.
    pub fn after(self, kind: QpType, change: &Change) -> Result<QpState, IllegalChange> {
        use QpState::{Init, Reset, Rtr, Rts, Sqd, Sqe};
        let to = change.target();
        let legal = match (self, change) {
            (Reset | Init, Change::Init(_)) => true,
            (Init, Change::Rtr(_)) => true,
            (Rtr, Change::Rts(_)) => true,
            (Rts, Change::Sqd) => true,
            (Sqd, Change::Resume) => true,
            // SQE is entered by a send error of an unreliable queue pair only.
            (Sqe, Change::Resume) => kind != QpType::Rc,
            (Reset, Change::Err) => false,
            (_, Change::Err | Change::Reset) => true,
            _ => false,
        };
        if legal { Ok(to) } else { Err(IllegalChange { kind, from: self, to }) }
    }

    /// True where a send may be posted; in ERR it is flushed.
    #[inline]
    pub const fn takes_sends(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err)
    }

    /// True where a receive may be posted; in ERR it is flushed.
    #[inline]
    pub const fn takes_receives(self) -> bool {
        !matches!(self, QpState::Reset)
    }

    /// True where packets of the peer are served.
    #[inline]
    pub const fn answers(self) -> bool {
        matches!(self, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// True where new requests are put on the wire.
    #[inline]
    pub const fn transmits(self) -> bool {
        matches!(self, QpState::Rts)
    }
}

impl Change {
    /// The state this change leads to.
    pub const fn target(&self) -> QpState {
        match self {
            Change::Init(_) => QpState::Init,
            Change::Rtr(_) => QpState::Rtr,
            Change::Rts(_) | Change::Resume => QpState::Rts,
            Change::Sqd => QpState::Sqd,
            Change::Err => QpState::Err,
            Change::Reset => QpState::Reset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Access;
    use crate::qp::attr::{AddressVector, InitAttr, RtrAttr, RtsAttr};
    use crate::types::{Gid, Pmtu, Psn, Qpn};

    fn changes() -> [Change; 7] {
        let init = InitAttr { access: Access::LOCAL, qkey: 0 };
        let rtr = RtrAttr {
            path: AddressVector::to(Gid::default(), 0),
            dest_qpn: Qpn::new(2),
            rq_psn: Psn::new(0),
            pmtu: Pmtu::B1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
        };
        let rts = RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        [
            Change::Init(init),
            Change::Rtr(rtr),
            Change::Rts(rts),
            Change::Sqd,
            Change::Resume,
            Change::Err,
            Change::Reset,
        ]
    }

    /// The whole table, drawn: one row a state, one column a change in the order of `changes()`.
    #[test]
    fn the_table_is_this_one() {
        let drawn = [
            ("RESET", "y.....y"),
            ("INIT", "yy...yy"),
            ("RTR", "..y..yy"),
            ("RTS", "...y.yy"),
            ("SQD", "....yyy"),
            ("SQE", ".....yy"),
            ("ERR", ".....yy"),
        ];
        for (state, (name, row)) in QpState::ALL.into_iter().zip(drawn) {
            let got: String = changes()
                .iter()
                .map(|c| if state.after(QpType::Rc, c).is_ok() { 'y' } else { '.' })
                .collect();
            assert_eq!((state.to_string().as_str(), got.as_str()), (name, row));
        }
        assert_eq!(QpState::Sqe.after(QpType::Ud, &Change::Resume), Ok(QpState::Rts));
    }
}
