//! What two ends of our own agree on beyond the standard, per queue pair.

use super::config::{SoftConfig, SoftError};
use super::hold::Hold;
use super::qp::Qp;
use super::requester::Selective;
use crate::buf::Buf;
use crate::cm::{Features, Terms};
use crate::qp::QpState;
use crate::types::{Pmtu, QpType};

/// Departures from the standard that both ends of a reliable connection have agreed on; see
/// [`SoftDevice::agree`](super::SoftDevice::agree).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Agreement {
    /// Packets that overtake a lost one are held, and the sender is told which ones are missing.
    pub selective_repeat: bool,
    /// Payload bytes of a full packet instead of those of the path MTU, a multiple of 4; 0 for the path MTU.
    pub jumbo_payload: u32,
}

impl From<&Terms> for Agreement {
    /// What an exchange has come to.
    fn from(terms: &Terms) -> Self {
        let has = |feature| terms.features.contains(feature);
        Agreement {
            selective_repeat: has(Features::SELECTIVE_REPEAT),
            jumbo_payload: if has(Features::JUMBO_PAYLOAD) { terms.jumbo_payload } else { 0 },
        }
    }
}

impl SoftConfig {
    /// The features that this end can offer in the exchange: `jumbo` is [`SoftConfig::jumbo_payload`].
    pub fn features(&self) -> Features {
        let jumbo = if self.jumbo_payload > 0 { Features::JUMBO_PAYLOAD } else { Features::NONE };
        Features::SELECTIVE_REPEAT.union(jumbo)
    }

    /// Payload bytes of the longest packet.
    pub(crate) fn longest_payload(&self) -> u32 {
        self.port_pmtu().map_or(0, Pmtu::bytes).max(self.jumbo_payload)
    }
}

impl<B: Buf> Qp<B> {
    /// Takes over what was agreed; only before the queue pair has a path MTU.
    pub(crate) fn agree(&mut self, config: &SoftConfig, agreed: Agreement) -> Result<(), SoftError> {
        let most = config.jumbo_payload;
        let fits = agreed.jumbo_payload <= most && agreed.jumbo_payload.is_multiple_of(4);
        if self.spec.kind != QpType::Rc || !matches!(self.state, QpState::Reset | QpState::Init) {
            return Err(SoftError::Agreement);
        }
        if !fits {
            let value = agreed.jumbo_payload.into();
            return Err(SoftError::Limit { what: "jumbo_payload", value, least: 0, most: most.into() });
        }
        self.jumbo_payload = agreed.jumbo_payload;
        self.hold = agreed.selective_repeat.then(Hold::new);
        self.requester.selective = agreed.selective_repeat.then(|| Box::new(Selective::new()));
        Ok(())
    }
}
