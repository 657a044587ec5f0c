//! The end that connected, up to the agreement.

use super::super::auth::{Auth, Label, Seal};
use super::super::frame::{self, Frame, FrameKind, MINOR, TAG_LEN, Tagger, agreed_minor};
use super::super::message::{AuthMode, Hello, HelloReply, Message};
use super::super::negotiate::negotiate;
use super::super::offer::{Offer, OfferError};
use super::super::refuse::{Refusal, RefuseReason};
use super::{Agreement, Peer, Role, Session, SessionEvent, State};
use crate::types::Time;

impl Session {
    /// What this end brings, in answer to [`SessionEvent::OfferWanted`].
    ///
    /// A client says hello with it; a server agrees the terms, or refuses if there are none. Without
    /// effect in any other state. An offer outside its bounds is returned as an error; the session
    /// goes on waiting.
    pub fn offer(&mut self, now: Time, offer: Offer) -> Result<(), OfferError> {
        offer.check()?;
        if !matches!(self.state, State::AwaitOffer(_)) {
            return Ok(());
        }
        match std::mem::replace(&mut self.state, State::Finished) {
            State::AwaitOffer(Some(peer)) => self.reply_hello(now, *peer, &offer),
            _ => self.send_hello(now, offer),
        }
        Ok(())
    }

    pub(super) fn handle_challenge(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), Refusal> {
        let message = self.decode(frame, FrameKind::Challenge)?;
        let Message::Challenge(challenge) = message else { return Err(self.unexpected(frame.kind)) };
        if challenge.auth != self.config.auth.mode() {
            // No falling back: a server without key gets no hello from a client with one.
            let detail = format!("we use {}, you {}", words(self.config.auth.mode()), words(challenge.auth));
            return Err(Refusal::new(RefuseReason::AuthMode, detail));
        }
        self.minor = agreed_minor(MINOR, frame.minor);
        self.transcript.absorb(frame.signed);
        self.enter(now, State::AwaitOffer(None), Some(self.config.timing.handshake_ms));
        self.events.push_back(SessionEvent::OfferWanted(None));
        Ok(())
    }

    fn send_hello(&mut self, now: Time, offer: Offer) {
        let hello =
            Hello { nonce: self.config.nonce, identity: self.config.identity.clone(), offer: offer.clone() };
        self.send_proof(&Message::Hello(Box::new(hello)), Label::ClientProof);
        self.enter(now, State::AwaitReply(Box::new(offer)), Some(self.config.timing.handshake_ms));
    }

    /// Queues `message` with the proof of the key, and takes both into the transcript.
    pub(super) fn send_proof(&mut self, message: &Message, label: Label) {
        self.compact();
        let Session { unsent, transcript, config, .. } = self;
        let mut prove = |signed: &[u8]| {
            transcript.absorb(signed);
            let Auth::PresharedKey(key) = &config.auth else { return [0; TAG_LEN] };
            let tag = transcript.tag(key, label);
            transcript.absorb(&tag);
            tag
        };
        let sealed = matches!(config.auth, Auth::PresharedKey(_));
        let tag = sealed.then_some(&mut prove as Tagger<'_>);
        frame::append(unsent, message.kind(), |out| message.encode_body(out), tag);
    }

    /// Checks the proof on `frame`, and takes both into the transcript. One answer for all failures.
    pub(super) fn check_proof(&mut self, frame: &Frame<'_>, label: Label) -> Result<(), Refusal> {
        self.transcript.absorb(frame.signed);
        match (&self.config.auth, frame.tag) {
            (Auth::None, None) => Ok(()),
            (Auth::PresharedKey(key), Some(tag)) if self.transcript.proves(key, label, tag) => {
                self.transcript.absorb(tag);
                Ok(())
            }
            (Auth::PresharedKey(_), Some(_)) => Err(Refusal::new(RefuseReason::AuthFailed, "")),
            (ours, theirs) => {
                let theirs = if theirs.is_some() { "a key" } else { "no key" };
                let detail = format!("we use {}, you {theirs}", words(ours.mode()));
                Err(Refusal::new(RefuseReason::AuthMode, detail))
            }
        }
    }

    /// Derives the seals of both directions from the finished transcript.
    pub(super) fn seal(&mut self) {
        let Auth::PresharedKey(key) = &self.config.auth else { return };
        let to_server = Seal::new(&self.transcript, key, Label::ClientToServer);
        let to_client = Seal::new(&self.transcript, key, Label::ServerToClient);
        let (ours, theirs) = match self.role {
            Role::Client(_) => (to_server, to_client),
            Role::Server(_) => (to_client, to_server),
        };
        self.sealing = Some(ours);
        self.opening = Some(theirs);
    }

    pub(super) fn handle_hello_reply(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), Refusal> {
        if frame.kind != FrameKind::HelloReply {
            return Err(self.unexpected(frame.kind));
        }
        self.check_proof(frame, Label::ServerProof)?;
        self.seal();
        let Message::HelloReply(reply) = self.decode(frame, FrameKind::HelloReply)? else {
            return Err(self.unexpected(frame.kind));
        };
        let agreement = self.agree(*reply)?;
        self.become_ready_for(now, agreement);
        Ok(())
    }

    /// Computes the terms and compares them with the server's.
    fn agree(&self, reply: HelloReply) -> Result<Agreement, Refusal> {
        self.check_node(&reply.identity.node)?;
        let State::AwaitReply(offer) = &self.state else {
            return Err(self.unexpected(FrameKind::HelloReply));
        };
        let agreed = negotiate(offer, &reply.offer)?;
        if agreed.terms.mirrored() != reply.terms {
            let detail = format!("we have {:?}, you {:?}", agreed.terms.mirrored(), reply.terms);
            return Err(Refusal::new(RefuseReason::Disagreement, detail));
        }
        let peer = Peer { identity: reply.identity, offer: reply.offer };
        Ok(Agreement { peer, agreed, minor: self.minor })
    }

    fn check_node(&self, node: &str) -> Result<(), Refusal> {
        match &self.role {
            Role::Client(Some(expected)) if expected != node => {
                let detail = format!("we want '{expected}', you are '{node}'");
                Err(Refusal::new(RefuseReason::Node, detail))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn decode(&self, frame: &Frame<'_>, kind: FrameKind) -> Result<Message, Refusal> {
        if frame.kind != kind {
            return Err(self.unexpected(frame.kind));
        }
        decode_any(frame)
    }
}

pub(super) fn decode_any(frame: &Frame<'_>) -> Result<Message, Refusal> {
    Message::decode_body(frame.kind, frame.body)
        .map_err(|error| Refusal::new(RefuseReason::Malformed, format!("your {:?}: {error}", frame.kind)))
}

fn words(mode: AuthMode) -> &'static str {
    match mode {
        AuthMode::None => "no key",
        AuthMode::PresharedKey => "a key",
    }
}
