//! The end that accepted, up to the agreement.

use super::super::auth::Label;
use super::super::frame::{Frame, FrameKind, MINOR, agreed_minor};
use super::super::message::{Challenge, Hello, HelloReply, Message};
use super::super::negotiate::negotiate;
use super::super::offer::Offer;
use super::super::refuse::{Refusal, RefuseReason};
use super::{Agreement, Peer, Role, Session, SessionEvent, State};
use crate::types::Time;

impl Session {
    pub(super) fn send_challenge(&mut self) {
        let challenge = Challenge { nonce: self.config.nonce, auth: self.config.auth.mode() };
        self.send(&Message::Challenge(challenge));
        self.transcript.absorb(&self.unsent);
    }

    /// The proof is checked before anything the client says is looked at.
    pub(super) fn handle_hello(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), Refusal> {
        if frame.kind != FrameKind::Hello {
            return Err(self.unexpected(frame.kind));
        }
        self.check_proof(frame, Label::ClientProof)?;
        let Message::Hello(hello) = self.decode(frame, FrameKind::Hello)? else {
            return Err(self.unexpected(frame.kind));
        };
        self.check_client(&hello)?;
        self.minor = agreed_minor(MINOR, frame.minor);
        let peer = Box::new(Peer { identity: hello.identity, offer: hello.offer });
        self.enter(now, State::AwaitOffer(Some(peer.clone())), Some(self.config.timing.handshake_ms));
        self.events.push_back(SessionEvent::OfferWanted(Some(peer)));
        Ok(())
    }

    fn check_client(&self, hello: &Hello) -> Result<(), Refusal> {
        let us = &self.config.identity;
        if hello.identity.instance == us.instance && hello.identity.node == us.node {
            return Err(Refusal::new(RefuseReason::SelfConnection, format!("node '{}'", us.node)));
        }
        let Role::Server(services) = &self.role else { return Ok(()) };
        if services.iter().any(|ours| ours.meets(&hello.offer.service)) {
            return Ok(());
        }
        let ours: Vec<String> = services.iter().take(4).map(ToString::to_string).collect();
        let more = if services.len() > ours.len() { " and others" } else { "" };
        let detail = format!("you run {}, we run {}{more}", hello.offer.service, ours.join(", "));
        Err(Refusal::new(RefuseReason::Service, detail))
    }

    pub(super) fn reply_hello(&mut self, now: Time, peer: Peer, offer: &Offer) {
        // `offer` emptied the state; put one back that a refusal can end.
        self.state = State::AwaitHello;
        let agreed = match negotiate(offer, &peer.offer) {
            Ok(agreed) => agreed,
            Err(refusal) => return self.refuse(refusal),
        };
        let identity = self.config.identity.clone();
        let reply = HelloReply { identity, offer: offer.clone(), terms: agreed.terms };
        self.send_proof(&Message::HelloReply(Box::new(reply)), Label::ServerProof);
        self.seal();
        self.become_ready_for(now, Agreement { peer, agreed, minor: self.minor });
    }
}
