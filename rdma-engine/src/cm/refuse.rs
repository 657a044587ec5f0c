//! Why a session is refused, in words that name the value and the remedy.

use std::fmt;

/// Longest detail of a refusal on the wire, in bytes.
pub const MAX_DETAIL: usize = 512;

/// Why one end will not talk to the other.
///
/// The code of each reason is part of the protocol and never changes its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefuseReason {
    /// The address is not on the allow-list.
    NotAllowed,
    /// Another protocol speaks on this TCP port.
    Protocol,
    /// The major versions differ.
    Version,
    /// A frame exceeds the bound.
    TooLong,
    /// A message is short or carries a value that cannot be.
    Malformed,
    /// A message that has no place here.
    Unexpected,
    /// One end has a key and the other none.
    AuthMode,
    /// The proof of the key is wrong.
    AuthFailed,
    /// This end does not serve that service.
    Service,
    /// Another node answered than the one that was wanted.
    Node,
    /// Both ends are the same node.
    SelfConnection,
    /// A connection from that node is up already.
    AlreadyConnected,
    /// A generation that is over.
    StaleGeneration,
    /// Nothing came before the deadline.
    Silence,
    /// No room for another session.
    Busy,
    /// This end is draining.
    Draining,
    /// The transports cannot reach each other.
    Transport,
    /// The types of the queue pairs differ.
    QpType,
    /// One GID is IPv4, the other IPv6.
    AddressFamily,
    /// One end offers no queue pair.
    NoQueuePairs,
    /// The n-th queue pairs serve different lanes.
    Lane,
    /// The agreed message is smaller than a service can use.
    MessageSize,
    /// A queue pair that must receive has no credits.
    Credits,
    /// Client and server computed different terms.
    Disagreement,
    /// The application says no; the detail says why.
    Application,
    /// A reason that this version does not know.
    Unknown(u16),
}

struct Row {
    reason: RefuseReason,
    code: u16,
    summary: &'static str,
    remedy: &'static str,
}

const fn row(code: u16, reason: RefuseReason, summary: &'static str, remedy: &'static str) -> Row {
    Row { reason, code, summary, remedy }
}

const TABLE: [Row; 25] = [
    row(
        1,
        RefuseReason::NotAllowed,
        "address not allowed",
        "add the address to the allow-list of the refusing end, or set a key on both",
    ),
    row(
        2,
        RefuseReason::Protocol,
        "not this protocol",
        "check address and TCP port: something else speaks there",
    ),
    row(3, RefuseReason::Version, "protocol versions differ", "install the same version on both ends"),
    row(
        4,
        RefuseReason::TooLong,
        "message too long",
        "check that both ends run an unmodified release; the bound is fixed",
    ),
    row(
        5,
        RefuseReason::Malformed,
        "malformed message",
        "check that both ends run an unmodified release; correct the value named",
    ),
    row(
        6,
        RefuseReason::Unexpected,
        "message out of turn",
        "check that nothing but this program answers on that TCP port",
    ),
    row(
        7,
        RefuseReason::AuthMode,
        "one end uses a key, the other none",
        "set the same key on both ends, or auth = \"none\" on both",
    ),
    row(8, RefuseReason::AuthFailed, "authentication failed", "give both ends the same key: key or key_file"),
    row(9, RefuseReason::Service, "service not served here", "make service kind and name match on both ends"),
    row(
        10,
        RefuseReason::Node,
        "another node answered",
        "correct the peer's address, or the node name expected there",
    ),
    row(
        11,
        RefuseReason::SelfConnection,
        "a node connected to itself",
        "correct the peer's address: it leads back to this node",
    ),
    row(
        12,
        RefuseReason::AlreadyConnected,
        "already connected",
        "stop the other process of that node name, or give each node its own name; a dead connection is dropped by itself",
    ),
    row(
        13,
        RefuseReason::StaleGeneration,
        "generation is over",
        "nothing to do: the newer connection counts, the old one must end",
    ),
    row(
        14,
        RefuseReason::Silence,
        "no message before the deadline",
        "check that the other process runs and is not stopped, or raise the timeout",
    ),
    row(
        15,
        RefuseReason::Busy,
        "no free session",
        "try again later, or raise the limit of sessions of the refusing end",
    ),
    row(16, RefuseReason::Draining, "shutting down", "connect again when the other end is back"),
    row(
        17,
        RefuseReason::Transport,
        "transports cannot reach each other",
        "set the same transport on both ends, or verbs with soft",
    ),
    row(
        18,
        RefuseReason::QpType,
        "queue pair types differ",
        "set the same qp_type (rc, uc, ud) on both ends",
    ),
    row(
        19,
        RefuseReason::AddressFamily,
        "GID families differ",
        "pin a gid_index of the same family, IPv4 or IPv6, on both ends",
    ),
    row(
        20,
        RefuseReason::NoQueuePairs,
        "no queue pairs offered",
        "set at least one queue pair per worker on both ends",
    ),
    row(
        21,
        RefuseReason::Lane,
        "queue pairs serve different lanes",
        "give both ends the same numbers of queue pairs per worker and purpose",
    ),
    row(
        22,
        RefuseReason::MessageSize,
        "agreed message too small",
        "raise message_size, or the MTU, on the end with the smaller one",
    ),
    row(
        23,
        RefuseReason::Credits,
        "no receive credits",
        "raise the receive depth of that queue pair to at least 2",
    ),
    row(
        24,
        RefuseReason::Disagreement,
        "ends computed different terms",
        "install the same version on both ends and report this",
    ),
    row(25, RefuseReason::Application, "refused by the service", "follow the reason given"),
];

impl RefuseReason {
    /// All reasons that this version can give.
    pub fn all() -> impl Iterator<Item = RefuseReason> {
        TABLE.iter().map(|row| row.reason)
    }

    /// The number on the wire.
    pub fn code(self) -> u16 {
        match self {
            RefuseReason::Unknown(code) => code,
            known => known.row().map_or(0, |row| row.code),
        }
    }

    /// The reason with this number.
    pub fn from_code(code: u16) -> Self {
        TABLE.iter().find(|row| row.code == code).map_or(RefuseReason::Unknown(code), |row| row.reason)
    }

    /// A few words that say what is wrong.
    pub fn summary(self) -> &'static str {
        self.row().map_or("a reason unknown to this version", |row| row.summary)
    }

    /// What the reader can do about it.
    pub fn remedy(self) -> &'static str {
        self.row().map_or("read the log of the other end", |row| row.remedy)
    }

    /// True if trying again soon may succeed without anybody changing a setting.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            RefuseReason::AlreadyConnected
                | RefuseReason::StaleGeneration
                | RefuseReason::Silence
                | RefuseReason::Busy
                | RefuseReason::Draining
        )
    }

    fn row(self) -> Option<&'static Row> {
        TABLE.iter().find(|row| row.reason == self)
    }
}

/// A refusal as it is sent and logged: reason and the values it is about.
///
/// The detail is written by the refusing end ("we" is the refusing end, "you" the refused one).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub reason: RefuseReason,
    /// The values it is about: one line without control characters, at most [`MAX_DETAIL`] bytes.
    detail: String,
}

impl Refusal {
    /// A refusal; control characters in `detail` are replaced and its end is cut at the bound.
    pub fn new(reason: RefuseReason, detail: impl AsRef<str>) -> Self {
        Refusal { reason, detail: one_line(detail.as_ref()) }
    }

    /// The values it is about.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// `text` fit for a log line: no control characters, at most [`MAX_DETAIL`] bytes.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(MAX_DETAIL));
    for c in text.chars() {
        let c = if c.is_control() || is_bidi_control(c) { '\u{fffd}' } else { c };
        if line.len() + c.len_utf8() > MAX_DETAIL {
            break;
        }
        line.push(c);
    }
    line
}

/// Characters that reorder the text around them on a terminal.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.summary())?;
        if let RefuseReason::Unknown(code) = self.reason {
            write!(f, " (code {code})")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        write!(f, "; {}", self.reason.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_unique_and_known_both_ways() {
        let codes: HashSet<u16> = RefuseReason::all().map(RefuseReason::code).collect();
        assert_eq!(codes.len(), TABLE.len());
        for reason in RefuseReason::all() {
            assert_eq!(RefuseReason::from_code(reason.code()), reason);
        }
        assert_eq!(RefuseReason::from_code(999), RefuseReason::Unknown(999));
        assert_eq!(RefuseReason::Unknown(999).code(), 999);
    }

    #[test]
    fn text_names_summary_value_and_remedy() {
        for reason in RefuseReason::all() {
            let text = Refusal::new(reason, "we 4, you 5").to_string();
            assert!(text.contains(reason.summary()) && text.contains("we 4, you 5"), "{text}");
            assert!(text.ends_with(reason.remedy()) && reason.remedy().len() > 15, "{text}");
        }
        assert!(Refusal::new(RefuseReason::Unknown(77), "").to_string().contains("code 77"));
    }

    #[test]
    fn detail_from_a_peer_cannot_forge_log_lines() {
        let refusal = Refusal::new(RefuseReason::Busy, format!("a\nb\u{1b}[31m\u{202e}{}", "é".repeat(600)));
        assert!(!refusal.to_string().contains(['\n', '\u{1b}', '\u{202e}']));
        assert!(refusal.detail().len() <= MAX_DETAIL);
    }
}
