//! The queue pairs of a connection, from the offer to the workers.

use super::endpoint::Endpoint;
use super::node::{NodeControl, Phase};
use super::slot::{Slot, Working};
use crate::service::relay::MIN_RECEIVES;
use crate::worker::{Order, PathOrder};
use rdma_engine::cm::{Agreement, Offer, QpOffer, QpPair};
use rdma_engine::qp::{BringUp, RtrAttr, RtsAttr};
use rdma_engine::types::{Psn, QpType, Time};
use rdma_engine::wr::UdDest;
use std::net::IpAddr;
use tracing::info;

impl<D: Endpoint> NodeControl<'_, D> {
    pub(super) fn make_offer(&mut self, peer: IpAddr) -> Result<Offer, String> {
        let reason = self.device.choose_address(Some(peer))?;
        if reason != self.last_address {
            info!(node = %self.settings.name, "{reason}");
            self.last_address = reason;
        }
        let mut offer = self.settings.offer.clone();
        offer.gid = self.device.gid();
        offer.blob = self.device.steering();
        (offer.features, offer.jumbo_payload) = self.device.features();
        offer.path_mtu = offer.path_mtu.min(self.device.path_mtu());
        for at in 0..self.places.len() {
            let worker = self.places[at].worker;
            let made = BringUp::create(self.device, worker, &self.settings.spec)
                .and_then(|qp| qp.init(self.settings.init))
                .map_err(|e| e.to_string())?;
            let (qpn, psn) = (made.qpn(), random_psn()?);
            self.places[at].slot = Slot::Fresh { qp: made.pause(), qpn, psn };
            offer.qps.push(QpOffer {
                qpn,
                psn,
                worker: worker as u16,
                udp_source_port: self.device.wanted_udp_port(worker),
                receive_credits: self.settings.credits.min(u32::from(u16::MAX)) as u16,
                lane: 0,
            });
        }
        Ok(offer)
    }

    /// Both sides know all numbers: queue pairs up, then to the workers.
    pub(super) fn on_agreed(&mut self, now: Time, agreement: &Agreement) {
        let terms = &agreement.agreed.terms;
        for (at, pair) in agreement.agreed.qps.iter().enumerate() {
            if let Err(error) = self.hand_over(now, at, pair, agreement) {
                self.refuse(now, format!("queue pair {}: {error}", pair.local.qpn));
                return;
            }
        }
        for at in agreement.agreed.qps.len()..self.places.len() {
            if let Some((qp, ..)) = self.places[at].take_fresh() {
                self.destroy(qp);
            }
        }
        let Some(m) = &mut self.meeting else { return };
        m.peer_name.clone_from(&agreement.peer.identity.node);
        m.phase = Phase::Arming;
        info!(
            node = %self.settings.name,
            "agreed with {} at {}: {} {} queue pairs, path MTU {}, messages of {} bytes and {} segments",
            m.peer_name,
            m.peer,
            terms.qp_pairs,
            terms.qp_type,
            terms.path_mtu,
            terms.message_size,
            terms.max_segments
        );
    }

    fn hand_over(
        &mut self,
        now: Time,
        at: usize,
        pair: &QpPair,
        agreement: &Agreement,
    ) -> Result<(), String> {
        let terms = &agreement.agreed.terms;
        let mut path = self.device.path_to(agreement.peer.offer.gid);
        // Each queue pair its own port: several ways through the network, and through the peer's RSS.
        path.flow_label = (0x1000 + at as u32 * 0x111) & 0xF_FFFF;
        let wanted = Some(pair.remote.udp_source_port).filter(|p| *p != 0);
        path.udp_source_port =
            wanted.or_else(|| self.device.udp_source_port(&agreement.peer.offer, &pair.remote));
        let rtr = RtrAttr {
            path,
            dest_qpn: pair.remote.qpn,
            rq_psn: pair.remote.psn,
            pmtu: terms.path_mtu,
            max_dest_rd_atomic: terms.responder_depth,
            min_rnr_timer: terms.min_rnr_timer,
        };
        let rts = RtsAttr {
            sq_psn: pair.local.psn,
            timeout: terms.ack_timeout,
            retry_cnt: terms.retry_count,
            rnr_retry: terms.rnr_retry,
            max_rd_atomic: terms.initiator_depth,
        };
        let (worker, index) = (self.places[at].worker, self.places[at].path);
        let credits = pair.remote.receive_credits;
        if u32::from(credits) < MIN_RECEIVES {
            return Err(format!(
                "the peer posts {credits} receives, {MIN_RECEIVES} are the least; raise its recv_depth"
            ));
        }
        let (mut qp, qpn, _) = self.places[at].take_fresh().ok_or("it is gone")?;
        self.device.agree(&mut qp, terms).map_err(|e| e.to_string())?;
        let up = BringUp::resume(self.device, qp)
            .rtr(rtr)
            .and_then(|qp| qp.rts(rts))
            .map_err(|e| e.to_string())?;
        let ud = match terms.qp_type {
            QpType::Ud => Some(UdDest {
                ah: self.device.create_ah(worker, &path).map_err(|e| e.to_string())?,
                qpn: pair.remote.qpn,
                qkey: agreement.peer.offer.qkey,
            }),
            _ => None,
        };
        let order = PathOrder {
            kind: terms.qp_type,
            generation: generation_of(pair),
            peer_credits: u32::from(pair.remote.receive_credits),
            recv_depth: u32::from(pair.local.receive_credits),
            message_bytes: terms.message_size,
            max_segments: terms.max_segments,
            ud,
            srq: self.settings.spec.srq,
        };
        let working = Working { qpn, peer_qpn: pair.remote.qpn, armed: false, failing: false, since: now };
        self.places[at].slot = Slot::Working(working);
        self.places[at].connections += 1;
        self.order(worker, Order::Attach { path: index, qp: up, order });
        Ok(())
    }
}

/// The same number at both ends, and another one for each connection: the starting PSNs are random.
fn generation_of(pair: &QpPair) -> u32 {
    let psns = pair.local.psn.value() ^ pair.remote.psn.value();
    let qpns = pair.local.qpn.value() ^ pair.remote.qpn.value();
    psns << 8 ^ qpns
}

fn random_psn() -> Result<Psn, String> {
    getrandom::u32().map(Psn::new).map_err(|e| format!("no random numbers: {e}"))
}
