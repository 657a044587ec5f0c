//! Who may connect: pre-shared keys and networks.

use std::net::SocketAddr;

use rdma_engine::cm::Cidr;
use serde::Serializer;

use super::ledger::{Ledger, fabric_at};
use crate::config::{AuthMode, FabricKeys, KeyPath, KeySource};

/// Where the pre-shared key comes from; `None` within one process (`outside` is false) and where none is wanted.
pub(super) fn key(keys: &FabricKeys, index: usize, outside: bool, ledger: &mut Ledger) -> Option<KeySource> {
    let at = |key| fabric_at(index, key);
    if keys.auth == Some(AuthMode::None) {
        check_open(keys, index, ledger);
        return None;
    }
    match (&keys.key, &keys.key_file) {
        (Some(_), Some(_)) => {
            ledger.refuse(at("key_file"), "key and key_file are both given", "keep one of them");
            None
        }
        (Some(key), None) => {
            if let Err(error) = key.key() {
                let (what, remedy) = halves(&error.to_string(), "make one with: openssl rand -hex 32");
                ledger.refuse(at("key"), what, remedy);
            }
            Some(KeySource::Inline(key.clone()))
        }
        (None, Some(path)) => {
            if path.is_empty() {
                ledger.refuse(at("key_file"), "no path", "name the file that holds the key");
            }
            Some(KeySource::File(path.into()))
        }
        (None, None) if !outside => None,
        (None, None) => {
            let remedy = "set key_file (or key) to the same secret at both ends";
            ledger.refuse(at("key_file"), "peers prove themselves by a pre-shared key", remedy);
            None
        }
    }
}

/// Without a key only loopback addresses and those that `allow` names may connect.
fn check_open(keys: &FabricKeys, index: usize, ledger: &mut Ledger) {
    if keys.key.is_some() || keys.key_file.is_some() {
        let remedy = "remove the key, or set auth = \"key\"";
        ledger.refuse(fabric_at(index, "auth"), "a key is given as well", remedy);
    }
    let listens = keys.listen.as_ref().and_then(|text| text.parse::<SocketAddr>().ok());
    let exposed = listens.is_some_and(|address| !address.ip().is_loopback());
    if exposed && keys.allow.as_ref().is_none_or(Vec::is_empty) {
        let remedy = "name the peers in allow, or use a key";
        ledger.refuse(
            fabric_at(index, "auth"),
            "without a key nobody outside this machine may connect",
            remedy,
        );
    }
}

/// "what is wrong; what to do", or only the former.
pub(super) fn halves(text: &str, otherwise: &str) -> (String, String) {
    let (what, remedy) = text.split_once(';').unwrap_or((text, otherwise));
    (what.trim().to_owned(), remedy.trim().to_owned())
}

pub(super) fn as_texts<S: Serializer>(networks: &[Cidr], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(networks.iter().map(Cidr::to_string))
}

/// Networks of a list.
pub(super) fn networks(texts: Option<&Vec<String>>, at: &[KeyPath], ledger: &mut Ledger) -> Vec<Cidr> {
    let mut allowed = Vec::new();
    for text in texts.into_iter().flatten() {
        match text.parse::<Cidr>() {
            Ok(network) => allowed.push(network),
            Err(error) => {
                let (what, remedy) = halves(&error.to_string(), "write a network such as 10.9.0.0/24");
                ledger.refuse(at.to_vec(), what, remedy);
            }
        }
    }
    allowed
}

/// Networks that a peer may come from.
pub(super) fn allow(keys: &FabricKeys, index: usize, ledger: &mut Ledger) -> Vec<Cidr> {
    let allowed = networks(keys.allow.as_ref(), &fabric_at(index, "allow"), ledger);
    if keys.allow.as_ref().is_some_and(Vec::is_empty) {
        ledger.refuse(fabric_at(index, "allow"), "nobody may connect", "list networks, or leave it out");
    }
    allowed
}
