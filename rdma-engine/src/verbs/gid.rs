//! The GID table of a port: addresses, their protocol and the network device under each.
#![allow(unsafe_code)] // reason: calls libibverbs and the C library's interface lists.

use super::context::Context;
use super::error::VerbsError;
use super::ffi;
use crate::cm::gid::{GidEntry, GidKind};
use crate::types::Gid;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The valid entries of `port`, in index order.
pub(super) fn table(context: &Context, port: u8) -> Result<Vec<GidEntry>, VerbsError> {
    // The call reports the entries of all ports.
    let room = context.port(port)?.gid_tbl_len.max(0) as usize * usize::from(context.ports());
    let mut entries: Vec<ffi::ibv_gid_entry> = Vec::with_capacity(room);
    // SAFETY: the context is open and the vector has room for so many.
    let n = unsafe { ffi::query_gid_table(context.raw(), entries.as_mut_ptr(), room) };
    let Ok(n) = usize::try_from(n) else {
        let source = io::Error::from_raw_os_error((-n) as i32);
        return Err(VerbsError::Query { device: context.name.clone(), what: "the GID table", source });
    };
    // SAFETY: the library has written `n` entries, at most `room`.
    unsafe { entries.set_len(n.min(room)) };
    let prefixes = Prefixes::read();
    let mut found: Vec<_> =
        entries.iter().filter(|e| e.port_num == u32::from(port)).filter_map(|e| read(e, &prefixes)).collect();
    found.sort_by_key(|e| e.index);
    Ok(found)
}

/// One entry of `port`; `None` if it is empty.
pub(super) fn entry(context: &Context, port: u8, index: u32) -> Option<GidEntry> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut raw: ffi::ibv_gid_entry = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open.
    let rc = unsafe { ffi::query_gid_ex(context.raw(), port, index, &mut raw) };
    if rc != 0 { None } else { read(&raw, &Prefixes::read()) }
}

/// The entries as one line of text.
pub(super) fn in_words(entries: &[GidEntry]) -> String {
    if entries.is_empty() {
        return "none".to_string();
    }
    let words: Vec<_> = entries.iter().map(|e| format!("{} = {}", e.index, e.gid)).collect();
    words.join(", ")
}

/// `None` for an empty entry.
fn read(raw: &ffi::ibv_gid_entry, prefixes: &Prefixes) -> Option<GidEntry> {
    // SAFETY: every byte pattern is a GID.
    let gid = Gid(unsafe { raw.gid.raw });
    let kind = match raw.gid_type {
        ffi::IBV_GID_TYPE_IB => GidKind::Ib,
        ffi::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        _ => GidKind::RoceV2,
    };
    let netdev = netdev_name(raw.ndev_ifindex);
    let prefix_len = prefixes.of(gid.ip());
    (!gid.is_empty()).then_some(GidEntry { index: raw.gid_index, gid, kind, netdev, prefix_len })
}

fn netdev_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the array has the size that the call wants.
    let p = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    // SAFETY: the call ended the name with a zero.
    (index != 0 && !p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
}

/// The addresses of this machine with their prefix lengths.
struct Prefixes(Vec<(IpAddr, u8)>);

impl Prefixes {
    /// Empty if the system does not tell.
    fn read() -> Self {
        let mut head = std::ptr::null_mut();
        // SAFETY: `head` is writable.
        if unsafe { libc::getifaddrs(&mut head) } != 0 {
            return Prefixes(Vec::new());
        }
        let mut found = Vec::new();
        let mut at = head;
        while !at.is_null() {
            // SAFETY: a node of the list, freed only below.
            let node = unsafe { &*at };
            // SAFETY: the addresses are null or a sockaddr of their family.
            if let (Some(ip), Some(mask)) = unsafe { (ip_of(node.ifa_addr), ip_of(node.ifa_netmask)) } {
                found.push((ip, ones(mask)));
            }
            at = node.ifa_next;
        }
        // SAFETY: from getifaddrs.
        unsafe { libc::freeifaddrs(head) };
        Prefixes(found)
    }

    fn of(&self, ip: IpAddr) -> Option<u8> {
        self.0.iter().find(|(have, _)| *have == ip).map(|(_, prefix)| *prefix)
    }
}

fn ones(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(m) => m.to_bits().leading_ones() as u8,
        IpAddr::V6(m) => m.to_bits().leading_ones() as u8,
    }
}

/// The IP address in a socket address; `None` for null and other families.
///
/// # Safety
/// `addr` is null or points to a socket address of its family.
unsafe fn ip_of(addr: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    let family = unsafe { addr.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an AF_INET address is a sockaddr_in.
            let v4 = unsafe { &*addr.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an AF_INET6 address is a sockaddr_in6.
            let v6 = unsafe { &*addr.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_this_machine_are_known() {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let prefixes = Prefixes::read();
        assert!(prefixes.0.is_empty() || prefixes.of(loopback).is_none_or(|p| p == 8));
        assert_eq!(ones("255.255.240.0".parse().unwrap()), 20);
        assert_eq!(ones("ffff:ffff:ffff:fff0::".parse().unwrap()), 60);
    }
}
