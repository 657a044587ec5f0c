//! Which message the story is told of.

use super::flow::FlowKey;
use super::message::{Kind, Message, Outcome};
use crate::decode::Followed;
use crate::decode::packet_view::View;

/// Watches messages come and go until the wanted one is found.
#[derive(Debug)]
pub(in crate::decode) struct Follow {
    wanted: Followed,
    /// Where the wanted frame turned out to travel, and whether it is an answer.
    seen: Option<(FlowKey, View, bool)>,
    found: Option<(FlowKey, Message)>,
}

impl Follow {
    pub(in crate::decode) fn new(wanted: Followed) -> Self {
        Follow { wanted, seen: None, found: None }
    }

    pub(super) const fn wanted(&self) -> Followed {
        self.wanted
    }

    /// Notes that a packet belongs to the messages of `key`: as a request, or as an answer to one.
    pub(super) fn sees(&mut self, key: &FlowKey, packet: &View, is_answer: bool) {
        if self.wanted == Followed::Frame(packet.moment.frame) {
            self.seen = Some((*key, *packet, is_answer));
        }
    }

    /// A message is settled.
    pub(super) fn settled(&mut self, key: &FlowKey, message: &Message) {
        let better = match (self.wanted, &self.found) {
            (Followed::Nothing, _) => false,
            (Followed::FirstSend, None) => message.kind == Kind::Send,
            (Followed::FirstSend, Some((_, found))) => {
                message.kind == Kind::Send && is_answered(message) && !is_answered(found)
            }
            (Followed::Frame(_), Some(_)) => false,
            (Followed::Frame(frame), None) => self.seen.is_some_and(|(seen, packet, is_answer)| {
                let same = *key == seen && message.contains(packet.psn);
                same && (is_answer || message.first.frame <= frame)
            }),
        };
        if better {
            self.found = Some((*key, *message));
        }
    }

    /// True once no later packet can lead to a better message.
    pub(in crate::decode) fn is_settled(&self) -> bool {
        match self.wanted {
            Followed::Nothing => true,
            Followed::Frame(_) => self.found.is_some(),
            Followed::FirstSend => self.found.is_some_and(|(_, message)| is_answered(&message)),
        }
    }

    /// The message to tell of, once the capture is at its end.
    pub(in crate::decode) fn found(&self) -> Option<(FlowKey, Message)> {
        self.found
    }
}

fn is_answered(message: &Message) -> bool {
    message.outcome == Outcome::Answered && message.whole
}
