//! In-memory links: two ports joined by rings, in one process.

#![allow(unsafe_code)] // Makes ports from raw rings.

use core::ffi::c_uint;
use std::ffi::CString;
use std::io;

use dpdk_sys as sys;

use crate::eal::{Eal, Said, errno};
use crate::port::device::{Device, Ring, Rings};
use crate::port::{PortError, PortId};

/// Most queues of an in-memory link (`RTE_PMD_RING_MAX_RX_RINGS`).
pub const QUEUES_MAX: u16 = 16;

/// Longest name of a link in bytes: the driver's name goes before it and the end's letter behind.
pub const NAME_MAX: usize = sys::DPDK_SYS_RING_NAME as usize - 1 - "net_ring_".len() - 1;

/// Makes two ports, `net_ring_<name>a` and `net_ring_<name>b`: what one sends on queue `q` the other receives
/// on its queue `q`. Each ring holds `ring_size` frames, rounded up to a power of two minus one; what does not
/// fit stays with the sender's burst.
///
/// Frames pass by pointer: the receiver gets the sender's mbuf itself, chain, shared segments and all. What is
/// under way when a port stops is freed, so that pools are full again after both ports are closed.
pub fn cross(eal: &Eal, name: &str, queues: u16, ring_size: u32) -> Result<(PortId, PortId), PortError> {
    let refuse = |reason: String| PortError::device(name, reason, Said::default());
    if !(1..=NAME_MAX).contains(&name.len()) || name.contains('\0') {
        return Err(refuse(format!("give the link a name of 1 to {NAME_MAX} bytes")));
    }
    if !(1..=QUEUES_MAX).contains(&queues) {
        return Err(refuse(format!("{queues} queues: an in-memory link has 1 to {QUEUES_MAX}")));
    }
    let rings = |end: char| -> io::Result<Vec<Ring>> {
        (0..queues).map(|q| Ring::create(&format!("{name}_{end}{q}"), ring_size)).collect()
    };
    let failed = |e: io::Error| {
        refuse(format!("its rings could not be made ({e}): use another name or smaller rings"))
    };
    let (to_a, to_b) = (rings('a').map_err(failed)?, rings('b').map_err(failed)?);
    let (name_a, port_a) = port_from_rings(&format!("{name}a"), &to_a, &to_b).map_err(refuse)?;
    let (name_b, port_b) = match port_from_rings(&format!("{name}b"), &to_b, &to_a) {
        Ok(made) => made,
        Err(reason) => {
            // SAFETY: just made, and known to nobody.
            unsafe { sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), name_a.as_ptr()) };
            return Err(refuse(reason));
        }
    };
    let rings = Rings::new([to_a, to_b]);
    let device = Device::register(eal.inner(), vec![name_a, name_b], vec![port_a, port_b], Some(rings));
    Ok((PortId::new(port_a, Some(device.clone())), PortId::new(port_b, Some(device))))
}

/// A port over the given rings, with its name on the vdev bus.
fn port_from_rings(name: &str, rx: &[Ring], tx: &[Ring]) -> Result<(CString, u16), String> {
    let raw = |rings: &[Ring]| rings.iter().map(Ring::raw).collect::<Vec<_>>();
    let (rx, tx) = (raw(rx), raw(tx));
    let c_string = |s: &str| CString::new(s).map_err(|e| e.to_string());
    let (c_name, vdev_name) = (c_string(name)?, c_string(&format!("net_ring_{name}"))?);
    // SAFETY: the EAL is up and the arrays are as long as stated; the driver copies them.
    let port = unsafe {
        sys::rte_eth_from_rings(
            c_name.as_ptr(),
            rx.as_ptr(),
            rx.len() as c_uint,
            tx.as_ptr(),
            tx.len() as c_uint,
            0,
        )
    };
    u16::try_from(port).map(|port| (vdev_name, port)).map_err(|_| {
        format!("no port could be made from its rings ({})", io::Error::from_raw_os_error(errno()))
    })
}
