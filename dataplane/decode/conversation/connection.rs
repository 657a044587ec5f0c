//! Connections as connection management opens and closes them.

use std::collections::HashMap;

use rdma_engine::types::{Gid, Psn, Qpn};
use rdma_engine::wire::cm::{CmMessage, CmRep, CmReq, RejectReason};

use crate::decode::packet_view::Moment;

/// Most connections kept; beyond that messages are only shown, not followed.
const MAX_CONNECTIONS: usize = 8192;

/// What a side said about itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct Side {
    pub(in crate::decode) gid: Gid,
    pub(in crate::decode) qpn: Qpn,
    /// PSN that the *other* side starts its requests with.
    pub(in crate::decode) starting_psn: Psn,
}

/// One attempt to connect, and what came of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct Connection {
    pub(in crate::decode) active: Side,
    pub(in crate::decode) passive_gid: Gid,
    pub(in crate::decode) passive: Option<Side>,
    pub(in crate::decode) service_id: u64,
    pub(in crate::decode) path_mtu: Option<u32>,
    pub(in crate::decode) retry_count: u8,
    pub(in crate::decode) rnr_retry_count: u8,
    pub(in crate::decode) ack_timeout: u8,
    pub(in crate::decode) request: Moment,
    /// REQs sent again.
    pub(in crate::decode) repeats: u32,
    pub(in crate::decode) reply: Option<Moment>,
    pub(in crate::decode) ready: Option<Moment>,
    pub(in crate::decode) rejected: Option<(Moment, RejectReason)>,
    pub(in crate::decode) disconnect: Option<Moment>,
    pub(in crate::decode) disconnected: Option<Moment>,
    /// A flow between the two queue pairs was seen.
    pub(in crate::decode) used: bool,
}

/// All connections of a capture.
#[derive(Default, Debug)]
pub(in crate::decode) struct Connections {
    list: Vec<Connection>,
    /// Latest connection of an address and its communication id.
    by_comm_id: HashMap<(Gid, u32), usize>,
    /// Messages that belong to no connection that was seen opening.
    pub(in crate::decode) strays: u64,
}

impl Connections {
    pub(in crate::decode) fn get(&self, at: usize) -> Option<&Connection> {
        self.list.get(at)
    }

    pub(in crate::decode) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.list.iter()
    }

    pub(super) fn mark_used(&mut self, at: usize) {
        if let Some(connection) = self.list.get_mut(at) {
            connection.used = true;
        }
    }

    /// Follows a message from `source` to `destination`. Returns the connection it completes, if it is the
    /// REP that names the second queue pair.
    pub(super) fn observe(
        &mut self,
        source: Gid,
        destination: Gid,
        moment: Moment,
        message: &CmMessage<'_>,
    ) -> Option<usize> {
        match message {
            CmMessage::Req(req) => self.request(source, destination, moment, req),
            CmMessage::Rep(rep) => return self.reply(source, destination, moment, rep),
            CmMessage::Rtu(rtu) => {
                self.update(source, rtu.local_comm_id.get(), |c| c.ready = c.ready.or(Some(moment)));
            }
            CmMessage::Rej(rej) => {
                let reason = rej.reason();
                self.update(destination, rej.remote_comm_id.get(), |c| {
                    c.rejected = c.rejected.or(Some((moment, reason)));
                });
            }
            CmMessage::Dreq(dreq) => {
                self.update(source, dreq.local_comm_id.get(), |c| {
                    c.disconnect = c.disconnect.or(Some(moment))
                });
            }
            CmMessage::Drep(drep) => {
                self.update(source, drep.local_comm_id.get(), |c| {
                    c.disconnected = c.disconnected.or(Some(moment))
                });
            }
            CmMessage::Mra(_) | CmMessage::SidrReq(_) | CmMessage::SidrRep(_) | CmMessage::Other(_) => {}
        }
        None
    }

    fn update(&mut self, gid: Gid, comm_id: u32, change: impl FnOnce(&mut Connection)) {
        match self.by_comm_id.get(&(gid, comm_id)).and_then(|at| self.list.get_mut(*at)) {
            Some(connection) => change(connection),
            None => self.strays += 1,
        }
    }

    fn request(&mut self, source: Gid, destination: Gid, moment: Moment, req: &CmReq) {
        let comm_id = req.local_comm_id.get();
        let known = self.by_comm_id.get(&(source, comm_id)).and_then(|at| self.list.get_mut(*at));
        if let Some(known) = known
            && known.active.qpn == req.local_qpn.qpn()
            && known.active.starting_psn == req.starting_psn.psn()
            && known.active.gid == source
        {
            known.repeats += 1;
            return;
        }
        if self.list.len() == MAX_CONNECTIONS {
            self.strays += 1;
            return;
        }
        self.by_comm_id.insert((source, comm_id), self.list.len());
        self.list.push(Connection {
            active: Side { gid: source, qpn: req.local_qpn.qpn(), starting_psn: req.starting_psn.psn() },
            passive_gid: destination,
            passive: None,
            service_id: req.service_id.get(),
            path_mtu: req.path_mtu().map(|mtu| mtu.bytes()),
            retry_count: req.retry_count(),
            rnr_retry_count: req.rnr_retry_count(),
            ack_timeout: req.primary.ack_timeout(),
            request: moment,
            repeats: 0,
            reply: None,
            ready: None,
            rejected: None,
            disconnect: None,
            disconnected: None,
            used: false,
        });
    }

    fn reply(&mut self, source: Gid, destination: Gid, moment: Moment, rep: &CmRep) -> Option<usize> {
        let Some(&at) = self.by_comm_id.get(&(destination, rep.remote_comm_id.get())) else {
            self.strays += 1;
            return None;
        };
        let connection = self.list.get_mut(at)?;
        if connection.reply.is_some() {
            return None;
        }
        let comm_id = rep.local_comm_id.get();
        connection.reply = Some(moment);
        connection.passive =
            Some(Side { gid: source, qpn: rep.local_qpn.qpn(), starting_psn: rep.starting_psn.psn() });
        self.by_comm_id.insert((source, comm_id), at);
        Some(at)
    }
}
