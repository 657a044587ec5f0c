//! Virtual devices made at run time.

#![allow(unsafe_code)] // Plugs devices into the vdev bus.

use std::ffi::CString;

use dpdk_sys as sys;

use crate::eal::{Eal, Said, errno};
use crate::port::device::Device;
use crate::port::{Port, PortError, PortId};

/// Makes virtual Ethernet devices, as `--vdev` does at start.
pub struct Vdev;

impl Vdev {
    /// Makes the device `name` (driver and number, such as `net_null0`) with the driver's `args` (such as
    /// `size=64,copy=0`) and returns its port. The device goes with the last id of it.
    pub fn create(eal: &Eal, name: &str, args: &str) -> Result<PortId, PortError> {
        let refuse = |reason: &str, said: Said| PortError::device(name, reason, said);
        let c_string =
            |s: &str| CString::new(s).map_err(|_| refuse("a NUL byte in name or arguments", Said::default()));
        let (c_name, c_args) = (c_string(name)?, c_string(args)?);
        // DPDK says "done" to a device that is there already.
        if Port::by_name(eal, name).is_ok() {
            return Err(refuse("it exists already: choose another number", Said::default()));
        }
        let add = || {
            // SAFETY: the EAL is up; DPDK copies the strings.
            unsafe { sys::rte_eal_hotplug_add(c"vdev".as_ptr(), c_name.as_ptr(), c_args.as_ptr()) }
        };
        let (rc, said) = eal.inner().journal.listen(add);
        if rc != 0 {
            return Err(refuse(&failure(-rc, args), said));
        }
        let mut index = 0;
        // SAFETY: as above; `index` is written on success.
        let rc = unsafe { sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut index) };
        if rc != 0 {
            // SAFETY: the device was just made and has no port anybody could use.
            unsafe { sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), c_name.as_ptr()) };
            return Err(refuse("the driver made no Ethernet port of this name", Said::default()));
        }
        let device = Device::register(eal.inner(), vec![c_name], vec![index], None);
        Ok(PortId::new(index, Some(device)))
    }
}

fn failure(code: i32, args: &str) -> String {
    let code = if code == 1 { errno() } else { code };
    let os = std::io::Error::from_raw_os_error(code);
    format!("the driver refused ({os}): check the driver's name and its arguments '{args}'")
}
