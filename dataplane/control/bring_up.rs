//! The queue pairs of a link, from the offer to the workers.

use super::endpoint::Endpoint;
use super::link::{Phase, Wanted};
use super::node::NodeControl;
use super::slot::{Slot, Working};
use crate::worker::{Order, PathOrder};
use rdma_engine::cm::{Agreement, Offer, QpOffer, QpPair};
use rdma_engine::qp::{AddressVector, BringUp, RtrAttr, RtsAttr};
use rdma_engine::types::{Psn, QpType, Time};
use rdma_engine::wr::UdDest;
use std::net::IpAddr;
use std::sync::Arc;
use tracing::info;

impl<D: Endpoint> NodeControl<'_, D> {
    /// The offer of a session, and the places of its queue pairs in their order.
    pub(super) fn make_offer(&mut self, link: usize, wanted: &Wanted) -> Result<(Offer, Vec<usize>), String> {
        let met = self.links[link].met_workers;
        let offered = self.settings.layout.offered(self.workers(), wanted.offer(), met)?;
        if let Some(theirs) = wanted.offer() {
            self.settings.layout.check_messages(&self.settings.offer, theirs)?;
        }
        self.choose_address(link, wanted.address)?;
        let mut offer = self.settings.offer.clone();
        offer.regions.extend(self.settings.staging.get(link));
        offer.gid = self.device.gid();
        offer.blob = self.device.steering();
        (offer.features, offer.jumbo_payload) = self.device.features();
        offer.path_mtu = offer.path_mtu.min(self.device.path_mtu());
        for &at in &offered {
            let place = &mut self.links[link].places[at];
            let lane = &self.settings.lanes[usize::from(place.lane)];
            let made = BringUp::create(self.device, place.worker, &lane.spec)
                .and_then(|qp| qp.init(lane.init))
                .map_err(|e| e.to_string())?;
            let (qpn, psn) = (made.qpn(), random_psn()?);
            place.slot = Slot::Fresh { qp: made.pause(), qpn, psn };
            offer.qps.push(QpOffer {
                qpn,
                psn,
                worker: place.worker as u16,
                udp_source_port: self.device.wanted_udp_port(place.worker),
                receive_credits: lane.credits.min(u32::from(u16::MAX)) as u16,
                lane: place.lane,
            });
        }
        Ok((offer, offered))
    }

    /// The device's address follows the peer at hand: another link may have chosen another one meanwhile.
    fn choose_address(&mut self, link: usize, peer: IpAddr) -> Result<(), String> {
        let reason = self.device.choose_address(Some(peer))?;
        let last = &mut self.links[link].last_address;
        if reason != *last {
            info!(node = %self.settings.name, "{reason}");
            *last = reason;
        }
        Ok(())
    }

    /// Both sides know all numbers: queue pairs up, then to the workers.
    pub(super) fn on_agreed(&mut self, now: Time, link: usize, agreement: &Agreement) {
        if let Err(why) = self.bring_up(now, link, agreement) {
            self.refuse(now, link, why);
            return;
        }
        let terms = &agreement.agreed.terms;
        let l = &mut self.links[link];
        l.met_workers = Some(agreement.peer.offer.workers.into());
        let Some(m) = &mut l.meeting else { return };
        m.peer_name.clone_from(&agreement.peer.identity.node);
        m.phase = Phase::Arming;
        info!(
            node = %self.settings.name,
            "agreed with {} at {}: {} {} queue pair{}, packets of up to {} bytes, messages of {} bytes and {} segments",
            m.peer_name,
            m.peer,
            terms.qp_pairs,
            terms.qp_type,
            if terms.qp_pairs == 1 { "" } else { "s" },
            terms.path_mtu.bytes().max(terms.jumbo_payload),
            terms.message_size,
            terms.max_segments
        );
    }

    fn bring_up(&mut self, now: Time, link: usize, agreement: &Agreement) -> Result<(), String> {
        self.settings.layout.check(self.workers(), agreement)?;
        self.settings.layout.check_messages(&self.settings.offer, &agreement.peer.offer)?;
        let Some(m) = &self.links[link].meeting else { return Ok(()) };
        let (offered, address) = (m.offered.clone(), m.peer);
        self.choose_address(link, address)?;
        let pairs = &agreement.agreed.qps;
        let application: Arc<[u8]> = agreement.peer.offer.application.as_slice().into();
        for (at, pair) in offered.iter().zip(pairs) {
            self.hand_over(now, (link, *at), pair, agreement, &application)
                .map_err(|error| format!("queue pair {}: {error}", pair.local.qpn))?;
        }
        for at in offered.into_iter().skip(pairs.len()) {
            if let Some((qp, ..)) = self.links[link].places[at].take_fresh() {
                self.destroy(qp);
            }
        }
        Ok(())
    }

    /// Brings one queue pair up and gives it to its worker.
    fn hand_over(
        &mut self,
        now: Time,
        (link, at): (usize, usize),
        pair: &QpPair,
        agreement: &Agreement,
        application: &Arc<[u8]>,
    ) -> Result<(), String> {
        let (terms, peer) = (&agreement.agreed.terms, &agreement.peer.offer);
        let place = &self.links[link].places[at];
        let (worker, index, lane_number) = (place.worker, place.path, place.lane);
        let lane = &self.settings.lanes[usize::from(lane_number)];
        let (credits, least) = (u32::from(pair.remote.receive_credits), lane.least_peer_credits);
        if credits < least {
            return Err(format!(
                "the peer posts {credits} receives, {least} are the least; raise its recv_depth"
            ));
        }
        let srq = lane.spec.srq;
        let path = self.path_to(at, peer, &pair.remote);
        let ud = match terms.qp_type {
            QpType::Ud => Some(UdDest {
                ah: self.device.create_ah(worker, &path).map_err(|e| e.to_string())?,
                qpn: pair.remote.qpn,
                qkey: peer.qkey,
            }),
            _ => None,
        };
        let (mut qp, qpn, _) = self.links[link].places[at].take_fresh().ok_or("it is gone")?;
        if let Err(error) = self.device.agree(&mut qp, terms) {
            self.destroy(qp);
            return Err(error.to_string());
        }
        let (rtr, rts) = attributes(path, pair, agreement);
        let up = BringUp::resume(self.device, qp)
            .rtr(rtr)
            .and_then(|qp| qp.rts(rts))
            .map_err(|e| e.to_string())?;
        let order = PathOrder {
            lane: lane_number,
            peer: link as u16,
            local_worker: worker as u16,
            peer_worker: pair.remote.worker,
            region: peer.regions.first().copied(),
            staging: peer.regions.get(1).copied().map(Box::new),
            application: Arc::clone(application),
            kind: terms.qp_type,
            generation: generation_of(pair),
            peer_credits: credits,
            recv_depth: u32::from(pair.local.receive_credits),
            message_bytes: terms.message_size,
            max_segments: terms.max_segments,
            ud,
            srq,
        };
        let place = &mut self.links[link].places[at];
        let working = Working { qpn, peer_qpn: pair.remote.qpn, armed: false, failing: false, since: now };
        place.slot = Slot::Working(working);
        place.connections += 1;
        self.order(worker, Order::Attach { path: index, qp: up, order });
        Ok(())
    }

    /// The path to the peer's queue pair. Each queue pair has its own port: several ways through the network, and
    /// through the peer's RSS.
    fn path_to(&self, at: usize, peer: &Offer, remote: &QpOffer) -> AddressVector {
        let mut path = self.device.path_to(peer.gid);
        path.flow_label = (0x1000 + at as u32 * 0x111) & 0xF_FFFF;
        let wanted = Some(remote.udp_source_port).filter(|p| *p != 0);
        path.udp_source_port = wanted.or_else(|| self.device.udp_source_port(peer, remote));
        path
    }
}

fn attributes(path: AddressVector, pair: &QpPair, agreement: &Agreement) -> (RtrAttr, RtsAttr) {
    let terms = &agreement.agreed.terms;
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
    (rtr, rts)
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
