//! Which entry of the local GID table a connection uses, and why.
//!
//! Rule: RoCEv2, same family as the peer, routable (not fe80::/10, unless the peer is link-local
//! too), in the subnet of the peer, lowest index. The config may pin an index; one that cannot work
//! is refused.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

use super::allow::Cidr;
use crate::types::Gid;

/// Protocol of a GID table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand.
    Ib,
    /// RoCE over Ethernet, not routable.
    RoceV1,
    /// RoCE over UDP.
    RoceV2,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidKind::Ib => "InfiniBand",
            GidKind::RoceV1 => "RoCEv1",
            GidKind::RoceV2 => "RoCEv2",
        })
    }
}

/// One entry of the local GID table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// Its index.
    pub index: u32,
    /// Its value; all-zero entries are passed over.
    pub gid: Gid,
    /// Its protocol.
    pub kind: GidKind,
    /// Network device it belongs to, if known.
    pub netdev: Option<String>,
    /// Prefix length of that device's address, if known. Otherwise /24 and /64 are assumed.
    pub prefix_len: Option<u8>,
}

/// The entry to use and the sentence to print.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidChoice {
    /// Index in the table.
    pub index: u32,
    /// Its value.
    pub gid: Gid,
    /// Why this one.
    pub reason: String,
}

/// Why no entry can be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum GidError {
    /// The pinned index is not in the table.
    #[error("gid_index {index} is pinned, but the table has {known}; remove gid_index or pin one of those")]
    PinnedMissing {
        /// The pinned index.
        index: u32,
        /// What the table has.
        known: String,
    },
    /// The pinned entry is of another protocol.
    #[error(
        "gid_index {index} is pinned, but it is {kind} ({gid}) and only RoCEv2 is spoken; the table has {known}; remove gid_index or pin a RoCEv2 one"
    )]
    PinnedKind {
        /// The pinned index.
        index: u32,
        /// Its protocol.
        kind: GidKind,
        /// Its value.
        gid: Gid,
        /// What the table has.
        known: String,
    },
    /// The pinned entry is IPv4 and the peer IPv6, or the other way round.
    #[error("gid_index {index} is pinned, but it is {gid} and the peer is {peer}: {} cannot reach {}; the table has {known}; remove gid_index or pin one of the peer's family", family(gid.ip()), family(*peer))]
    PinnedFamily {
        /// The pinned index.
        index: u32,
        /// Its value.
        gid: Gid,
        /// The peer.
        peer: IpAddr,
        /// What the table has.
        known: String,
    },
    /// Nothing in the table fits.
    #[error("no GID fits{}: a RoCEv2 GID is needed{}; the table has {known}; give the port such an address, for example: ip addr add ADDRESS/PREFIX dev {netdev}", to_peer(*peer), of_family(*peer))]
    NoneFits {
        /// The peer, if known.
        peer: Option<IpAddr>,
        /// What the table has.
        known: String,
        /// A device of the table.
        netdev: String,
    },
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn to_peer(peer: Option<IpAddr>) -> String {
    peer.map_or(String::new(), |peer| format!(" to reach {peer}"))
}

fn of_family(peer: Option<IpAddr>) -> String {
    let routable = |peer: IpAddr| if is_link_local(peer) { "" } else { ", routable (not fe80::/10)" };
    peer.map_or(", routable (not fe80::/10)".into(), |peer| {
        format!(" of an {} address{}", family(peer), routable(peer))
    })
}

fn is_link_local(ip: IpAddr) -> bool {
    Gid::from(ip).is_link_local()
}

/// Chooses the entry of `table` to reach `peer` with (its GID as an address, or the TCP address of
/// the exchange; `None` if not known yet), or checks the `pinned` one.
pub fn choose_gid(
    table: &[GidEntry],
    peer: Option<IpAddr>,
    pinned: Option<u32>,
) -> Result<GidChoice, GidError> {
    let peer = peer.map(|peer| peer.to_canonical());
    if let Some(index) = pinned {
        return check_pinned(table, peer, index);
    }
    let fits: Vec<&GidEntry> = table.iter().filter(|entry| is_candidate(entry, peer)).collect();
    let best = fits.iter().min_by_key(|entry| (!in_subnet(entry, peer), entry.index));
    let Some(best) = best else {
        let netdev = table.iter().find_map(|entry| entry.netdev.clone()).unwrap_or_else(|| "NETDEV".into());
        return Err(GidError::NoneFits { peer, known: describe(table), netdev });
    };
    Ok(GidChoice { index: best.index, gid: best.gid, reason: reason(best, &fits, peer) })
}

fn is_candidate(entry: &GidEntry, peer: Option<IpAddr>) -> bool {
    let link_local_wanted = peer.is_some_and(is_link_local);
    entry.kind == GidKind::RoceV2
        && !entry.gid.is_empty()
        && entry.gid.is_link_local() == link_local_wanted
        && peer.is_none_or(|peer| peer.is_ipv4() == entry.gid.ip().is_ipv4())
}

fn subnet(entry: &GidEntry) -> Cidr {
    let ip = entry.gid.ip();
    Cidr::new(ip, entry.prefix_len.unwrap_or(if ip.is_ipv4() { 24 } else { 64 }))
}

fn in_subnet(entry: &GidEntry, peer: Option<IpAddr>) -> bool {
    peer.is_some_and(|peer| subnet(entry).contains(peer))
}

fn reason(best: &GidEntry, fits: &[&GidEntry], peer: Option<IpAddr>) -> String {
    let gid = best.gid;
    let netdev = best.netdev.as_deref().map_or(String::new(), |netdev| format!(" on {netdev}"));
    let mut reason = format!("gid_index {} ({gid}{netdev}): RoCEv2", best.index);
    let rivals = match peer {
        None => {
            reason += ", routable";
            fits.len()
        }
        Some(peer) => {
            let near = in_subnet(best, Some(peer));
            let assumed = if best.prefix_len.is_none() { " (assumed)" } else { "" };
            reason += if is_link_local(peer) { ", link-local as the peer " } else { ", routable, " };
            reason += &match near {
                true => format!("in the subnet {}{assumed} of the peer {peer}", subnet(best)),
                false => format!("same family as the peer {peer}, no entry in its subnet"),
            };
            fits.iter().filter(|entry| in_subnet(entry, Some(peer)) == near).count()
        }
    };
    if rivals > 1 {
        reason += &format!(", lowest index of {rivals} that fit");
    }
    reason
}

fn check_pinned(table: &[GidEntry], peer: Option<IpAddr>, index: u32) -> Result<GidChoice, GidError> {
    let known = || describe(table);
    let entry = table.iter().find(|entry| entry.index == index && !entry.gid.is_empty());
    let entry = entry.ok_or_else(|| GidError::PinnedMissing { index, known: known() })?;
    let gid = entry.gid;
    if entry.kind != GidKind::RoceV2 {
        return Err(GidError::PinnedKind { index, kind: entry.kind, gid, known: known() });
    }
    match peer {
        Some(peer) if peer.is_ipv4() != gid.ip().is_ipv4() => {
            Err(GidError::PinnedFamily { index, gid, peer, known: known() })
        }
        _ => Ok(GidChoice { index, gid, reason: format!("gid_index {index} ({gid}): pinned by the config") }),
    }
}

/// The table in a few words.
fn describe(table: &[GidEntry]) -> String {
    let mut entries: Vec<&GidEntry> = table.iter().filter(|entry| !entry.gid.is_empty()).collect();
    entries.sort_by_key(|entry| entry.index);
    if entries.is_empty() {
        return "no entries".into();
    }
    let words: Vec<String> = entries
        .iter()
        .take(8)
        .map(|entry| format!("{}: {} {}", entry.index, entry.kind, entry.gid))
        .collect();
    let more = if entries.len() > 8 { ", ..." } else { "" };
    format!("{}{more}", words.join(", "))
}

#[cfg(test)]
mod tests;
