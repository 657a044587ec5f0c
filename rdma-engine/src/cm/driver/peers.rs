//! One connection per node and service, and no generation twice.

use std::collections::VecDeque;

use super::super::offer::ServiceId;
use super::super::refuse::{Refusal, RefuseReason};
use super::super::session::Peer;

/// Most peers whose last generation is remembered; the oldest is forgotten.
const MAX_REMEMBERED: usize = 1024;

/// Node and service: what may be connected once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PeerKey {
    node: String,
    service: ServiceId,
}

impl PeerKey {
    pub(super) fn of(peer: &Peer) -> Self {
        PeerKey { node: peer.identity.node.clone(), service: peer.offer.service.clone() }
    }
}

struct Seen {
    key: PeerKey,
    instance: u64,
    generation: u64,
}

/// The last generation of each peer.
#[derive(Default)]
pub(super) struct Generations(VecDeque<Seen>);

impl Generations {
    /// Notes the generation of `peer`, or refuses one that is not newer than the last of the same
    /// run of its process.
    pub(super) fn admit(&mut self, key: &PeerKey, peer: &Peer) -> Result<(), Refusal> {
        let (instance, generation) = (peer.identity.instance, peer.identity.generation);
        if let Some(at) = self.0.iter().position(|seen| seen.key == *key) {
            let seen = &self.0[at];
            if seen.instance == instance && generation <= seen.generation {
                let detail =
                    format!("you are generation {generation}, generation {} came before", seen.generation);
                return Err(Refusal::new(RefuseReason::StaleGeneration, detail));
            }
            self.0.remove(at);
        }
        if self.0.len() == MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Seen { key: key.clone(), instance, generation });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::message::Identity;
    use super::super::super::pair::offer;
    use super::*;

    fn peer(node: &str, instance: u64, generation: u64) -> Peer {
        Peer { identity: Identity { node: node.into(), instance, generation }, offer: offer(1, 1) }
    }

    #[test]
    fn only_newer_generations_of_a_run_are_admitted() {
        let mut generations = Generations::default();
        let mut admit = |node, instance, generation| {
            let peer = peer(node, instance, generation);
            generations.admit(&PeerKey::of(&peer), &peer).map_err(|refusal| refusal.to_string())
        };
        assert!(admit("west", 1, 5).is_ok());
        let text = admit("west", 1, 5).unwrap_err();
        assert!(text.contains("you are generation 5") && text.contains("generation 5 came before"), "{text}");
        assert!(admit("west", 1, 4).is_err());
        assert!(admit("west", 1, 6).is_ok());
        assert!(admit("west", 2, 1).is_ok(), "a restarted process counts anew");
        assert!(admit("north", 1, 5).is_ok(), "another node");
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many comparisons for an interpreter")]
    fn memory_is_bounded() {
        let mut generations = Generations::default();
        for n in 0..3 * MAX_REMEMBERED {
            let peer = peer(&format!("n{n}"), 1, 1);
            generations.admit(&PeerKey::of(&peer), &peer).unwrap();
        }
        assert_eq!(generations.0.len(), MAX_REMEMBERED);
    }
}
