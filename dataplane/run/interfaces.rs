//! The kernel's interfaces behind ports.
//!
//! A tap port's: the kernel lets a second process take a queue of an interface that is in use, and each then gets some of the
//! frames. A packet socket's: DPDK's driver calls its link up whatever becomes of the interface.

#![allow(unsafe_code)] // Asks the kernel by ioctl: files below /sys may be of another network name space.

use super::error::RunError;
use crate::plan::{Plan, PortSource};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::fs;
use std::os::fd::AsRawFd;

/// `IFF_PERSIST` of `tun_flags`: the interface was made to stay, and waits for a process.
const PERSIST: u32 = 0x0800;

/// Refuses a plan with a tap port whose interface exists and is not one that waits.
///
/// # Errors
/// The port and the interface.
pub(super) fn check_taps(plan: &Plan) -> Result<(), RunError> {
    for port in &plan.ports {
        if let Some(interface) = interface(&port.source)
            && is_taken(interface)
        {
            return Err(RunError::Tap { port: port.name.clone(), interface: interface.to_owned() });
        }
    }
    Ok(())
}

/// Bits of capabilities(7).
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;

/// What to do where these devices could not be made.
pub(super) fn remedy<'d>(devices: impl Iterator<Item = &'d str>) -> &'static str {
    let held = std::fs::read_to_string("/proc/self/status").ok().as_deref().and_then(capabilities);
    remedy_with(devices, held.unwrap_or(u64::MAX))
}

fn remedy_with<'d>(mut devices: impl Iterator<Item = &'d str>, held: u64) -> &'static str {
    let lacks = |bit: u32| held & (1 << bit) == 0;
    let known = devices.find_map(|device| match device {
        _ if device.starts_with("net_tap") && lacks(NET_ADMIN) => Some(
            "making an interface takes root or CAP_NET_ADMIN: run it as root, or give the program the capability (setcap cap_net_admin+ep)",
        ),
        _ if device.starts_with("net_af_packet") && lacks(NET_RAW) => Some(
            "a packet socket takes root or CAP_NET_RAW: run it as root, or give the program the capability (setcap cap_net_raw+ep)",
        ),
        _ => None,
    });
    known.unwrap_or("mend what DPDK names, or leave the device out")
}

/// Those in force, as `/proc/self/status` has them.
fn capabilities(status: &str) -> Option<u64> {
    let text = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(text.trim(), 16).ok()
}

/// The interface of a tap port, where it has a name of its own.
fn interface(source: &PortSource) -> Option<&str> {
    named(source, "net_tap")
}

/// The interface that a packet socket is bound to, whatever is made later under its name.
#[derive(Debug)]
pub(super) struct Bound {
    name: String,
    index: Option<u32>,
}

impl Bound {
    /// That of a port whose socket is open; `None` if it has none.
    pub(super) fn of(source: &PortSource) -> Option<Self> {
        let name = named(source, "net_af_packet")?;
        Some(Bound { name: name.to_owned(), index: index(name) })
    }

    /// True if the interface is there, up, and has a carrier.
    pub(super) fn is_up(&self) -> bool {
        const WORKS: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;
        index(&self.name) == self.index && flags(&self.name).is_some_and(|flags| flags & WORKS == WORKS)
    }
}

fn index(interface: &str) -> Option<u32> {
    let asking = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    name_to_index(asking, interface).ok()
}

fn named<'a>(source: &'a PortSource, wanted: &str) -> Option<&'a str> {
    match source {
        PortSource::Vdev { driver, args, .. } if driver == wanted => {
            args.split(',').find_map(|arg| arg.strip_prefix("iface="))
        }
        _ => None,
    }
}

/// The kernel's flags of an interface of this network name space; `None` if it has none of that name.
fn flags(interface: &str) -> Option<libc::c_int> {
    let asking = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    // SAFETY: plain numbers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.as_bytes();
    // The last byte stays 0: it ends the name.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, byte) in request.ifr_name.iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    // SAFETY: the socket is open, and the request is as this ioctl wants it.
    let rc = unsafe { libc::ioctl(asking.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
    // SAFETY: the kernel has filled in the flags.
    (rc == 0).then(|| libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// True if there is such an interface, and it is not one that waits for a process.
fn is_taken(interface: &str) -> bool {
    let tun_flags = || fs::read_to_string(format!("/sys/class/net/{interface}/tun_flags")).ok();
    flags(interface).is_some_and(|flags| flags & libc::IFF_RUNNING != 0 || !may_wait(tun_flags().as_deref()))
}

/// False for a tap interface that lives as long as its process. One that is down does not show whether it has any.
fn may_wait(tun_flags: Option<&str>) -> bool {
    let number = |text: &str| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    tun_flags.and_then(number).is_none_or(|flags| flags & PERSIST != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_make_an_interface_is_told_what_it_takes() {
        let held = |status| capabilities(status).unwrap();
        let nothing = held("Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t0000000000000000\n");
        let network = held("CapEff:\t0000000000003000\n");
        let tap = ["net_pcap0,x", "net_tap0,iface=isthmus0"];
        assert!(remedy_with(tap.into_iter(), nothing).contains("CAP_NET_ADMIN"));
        assert!(remedy_with(["net_af_packet0"].into_iter(), nothing).contains("CAP_NET_RAW"));
        assert!(remedy_with(tap.into_iter(), network).contains("what DPDK names"));
        assert_eq!(capabilities("Name:\tx\n"), None);
    }

    #[test]
    fn an_interface_that_works_is_taken() {
        let bound = |name: &str, index: Option<u32>| Bound { name: name.to_owned(), index };
        assert!(bound("lo", index("lo")).is_up() && is_taken("lo"));
        assert!(!bound("lo", Some(1 << 20)).is_up(), "made anew");
        for name in ["no-such-face", "", "longer-than-any-name-of-one"] {
            assert!(!bound(name, index(name)).is_up() && !is_taken(name), "{name:?}");
        }
        assert!(!may_wait(Some("0x1002\n")), "of a process");
        assert!(may_wait(Some("0x1802\n")), "made to stay");
        assert!(may_wait(None), "unknown here");
    }

    #[test]
    fn the_name_is_that_of_the_argument() {
        let tap = |driver: &str, args: &str| PortSource::Vdev {
            device: "net_tap0".into(),
            args: args.into(),
            driver: driver.into(),
        };
        assert_eq!(interface(&tap("net_tap", "iface=a0,mac=fixed")), Some("a0"));
        assert_eq!(interface(&tap("net_tap", "")), None);
        assert_eq!(interface(&tap("net_af_packet", "iface=a0")), None);
        assert_eq!(Bound::of(&tap("net_af_packet", "iface=a0")).unwrap().name, "a0");
    }
}
