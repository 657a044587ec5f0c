//! A server that stores nothing: noticed while all keys are written first, told with what to do, and not asked any further.

use super::fault::Quote;
use std::fmt;

/// Writes that are refused before a server is given up that has stored nothing; fewer where there are fewer keys.
pub const REFUSED_MAX: u32 = 100;

/// Refusals of a server that has not stored anything yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// How many.
    pub(super) times: u32,
    /// What was said the last time.
    pub(super) said: Quote,
}

/// What an answer means here, by how it begins.
const REMEDIES: [(&str, &str); 6] = [
    (
        "SERVER_ERROR memory node serves",
        "gateway and memory node have different lists of nodes: give all gateways the same `nodes` and `generation`, and SIGHUP",
    ),
    (
        "SERVER_ERROR memory node",
        "check that the gateway's memory nodes run and are connected: its log says so, and so does `nodes_up` of `stats`",
    ),
    ("SERVER_ERROR object too large", "ask for a smaller --value, or let the server take larger ones"),
    ("SERVER_ERROR out of memory", "give the server more memory"),
    ("CLIENT_ERROR unauth", "switch authentication off"),
    ("", "see what the server's log says"),
];

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy =
            REMEDIES.iter().find(|(begin, _)| self.said.begins(begin)).map_or("", |(_, remedy)| remedy);
        let Refusal { times, said } = self;
        write!(f, "nothing can be stored: all of the first {times} SETs were answered by {said}; {remedy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_remedy() {
        for (said, remedy) in [
            ("SERVER_ERROR memory node down", "run and are connected"),
            ("SERVER_ERROR memory node serves another membership", "`generation`"),
            ("SERVER_ERROR object too large for cache", "smaller --value"),
            ("SERVER_ERROR out of memory storing object", "more memory"),
            ("SERVER_ERROR of no kind that is known", "log"),
        ] {
            let text = Refusal { times: 7, said: Quote::new(said.as_bytes()) }.to_string();
            assert!(text.contains(&format!("first 7 SETs were answered by \"{said}\"; ")), "{text}");
            assert!(text.contains(remedy), "{text}");
        }
    }
}
