//! An opened device, and the list of those there are.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::error::{VerbsError, check};
use super::ffi;
use super::report::{DeviceReport, Limits, PortReport};
use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

/// An open device. Everything made from it holds a reference, so it closes last.
#[derive(Debug)]
pub(super) struct Context {
    raw: NonNull<ffi::ibv_context>,
    pub(super) name: String,
    pub(super) limits: Limits,
    attr: DeviceNumbers,
    /// Protection domains opened so far: their numbers in events.
    domains: AtomicU16,
    /// Buffers given up because the device did not let go of them.
    pub(super) leaked: AtomicU64,
    /// Fences of queue pairs made from now on are kept here, not on the device.
    pub(super) software_fences: AtomicBool,
}

// SAFETY: libibverbs locks its contexts; every verb may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What soft-RoCE gives as its vendor. Once it has to send a fenced request again it may never do so: see docs/interop.md.
const RXE_VENDOR: u32 = 0xFF_FFFF;

/// What identifies a device, read once.
#[derive(Clone, Debug)]
struct DeviceNumbers {
    node_guid: u64,
    firmware: String,
    vendor: u32,
    part: u32,
    ports: u8,
}

impl Context {
    /// Opens the device `name`.
    pub(super) fn open(name: &str) -> Result<Self, VerbsError> {
        let list = List::read()?;
        let device = list.devices().find(|d| d.name == name);
        let Some(device) = device else {
            let known: Vec<_> = list.devices().map(|d| d.name).collect();
            return Err(match known.is_empty() {
                true => VerbsError::NoDevices,
                false => VerbsError::UnknownDevice { name: name.to_string(), known: known.join(", ") },
            });
        };
        Self::open_listed(&device)
    }

    fn open_listed(device: &Listed) -> Result<Self, VerbsError> {
        let fail = |source| VerbsError::Open { device: device.name.clone(), source };
        // SAFETY: the list the device is from is still held.
        let raw = NonNull::new(unsafe { ffi::ibv_open_device(device.raw) })
            .ok_or_else(|| fail(io::Error::last_os_error()))?;
        let opened = Opened(raw);
        // SAFETY: the context is open.
        nonblocking(unsafe { raw.as_ref() }.async_fd).map_err(fail)?;
        let (limits, attr) = opened.query(&device.name)?;
        std::mem::forget(opened);
        let software_fences = AtomicBool::new(attr.vendor == RXE_VENDOR);
        Ok(Context {
            raw,
            name: device.name.clone(),
            limits,
            attr,
            domains: AtomicU16::new(0),
            leaked: AtomicU64::new(0),
            software_fences,
        })
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_context {
        self.raw.as_ptr()
    }

    /// The descriptor that turns readable with asynchronous events.
    pub(super) fn async_fd(&self) -> i32 {
        // SAFETY: the context is open; the field never changes.
        unsafe { self.raw.as_ref() }.async_fd
    }

    /// How many ports it has; the first is number 1.
    pub(super) fn ports(&self) -> u8 {
        self.attr.ports
    }

    /// A number for a new protection domain.
    pub(super) fn next_domain(&self) -> u16 {
        self.domains.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts buffers given up.
    pub(super) fn give_up(&self, buffers: usize) {
        self.leaked.fetch_add(buffers as u64, Ordering::Relaxed);
    }

    /// Checks a number against the most this device takes.
    pub(super) fn within(&self, what: &'static str, asked: u64, most: u64) -> Result<(), VerbsError> {
        if asked <= most {
            return Ok(());
        }
        Err(VerbsError::Limit { what, asked, most, device: self.name.clone() })
    }

    /// The attributes of a port at this moment.
    pub(super) fn port(&self, port: u8) -> Result<ffi::ibv_port_attr, VerbsError> {
        if port == 0 || port > self.attr.ports {
            return Err(VerbsError::UnknownPort { device: self.name.clone(), port, ports: self.attr.ports });
        }
        // SAFETY: plain numbers, for which zero is a value.
        let mut attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open.
        check(unsafe { ffi::query_port(self.raw(), port, &mut attr) })
            .map_err(|source| VerbsError::Query { device: self.name.clone(), what: "a port", source })?;
        Ok(attr)
    }

    /// All that is known of the device now.
    pub(super) fn report(&self) -> Result<DeviceReport, VerbsError> {
        let mut ports = Vec::new();
        for number in 1..=self.attr.ports {
            let gids = super::gid::table(self, number)?;
            ports.push(PortReport::new(number, &self.port(number)?, gids));
        }
        Ok(DeviceReport {
            name: self.name.clone(),
            node_guid: self.attr.node_guid,
            firmware: self.attr.firmware.clone(),
            vendor: self.attr.vendor,
            part: self.attr.part,
            limits: self.limits,
            ports,
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by us; everything made from it held a reference to us and is gone.
        let rc = unsafe { ffi::ibv_close_device(self.raw()) };
        if let Err(e) = check(rc) {
            super::event::say_once("cannot close an RDMA device", &e);
        }
    }
}

/// Closes a context whose opening did not get to its end.
struct Opened(NonNull<ffi::ibv_context>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: open, and nothing has been made from it.
        unsafe { ffi::ibv_close_device(self.0.as_ptr()) };
    }
}

impl Opened {
    fn query(&self, name: &str) -> Result<(Limits, DeviceNumbers), VerbsError> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut attr: ffi::ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open.
        check(unsafe { ffi::ibv_query_device(self.0.as_ptr(), &mut attr) })
            .map_err(|source| VerbsError::Query { device: name.to_string(), what: "the limits", source })?;
        // SAFETY: the library ends the text with a zero inside the array.
        let firmware = unsafe { CStr::from_ptr(attr.fw_ver.as_ptr()) }.to_string_lossy().into_owned();
        let numbers = DeviceNumbers {
            node_guid: u64::from_be(attr.node_guid),
            firmware,
            vendor: attr.vendor_id,
            part: attr.vendor_part_id,
            ports: attr.phys_port_cnt,
        };
        Ok((Limits::new(&attr), numbers))
    }
}

/// Every RDMA device of this machine. Empty is an error that says what to do.
pub fn devices() -> Result<Vec<DeviceReport>, VerbsError> {
    let list = List::read()?;
    let reports: Result<Vec<_>, _> = list.devices().map(|d| Context::open_listed(&d)?.report()).collect();
    match reports {
        Ok(found) if found.is_empty() => Err(VerbsError::NoDevices),
        other => other,
    }
}

/// The library's device list, freed with this value.
struct List {
    base: NonNull<*mut ffi::ibv_device>,
    len: usize,
}

struct Listed {
    raw: *mut ffi::ibv_device,
    name: String,
}

impl List {
    fn read() -> Result<Self, VerbsError> {
        let mut len = 0;
        // SAFETY: `len` is writable.
        let base = unsafe { ffi::ibv_get_device_list(&mut len) };
        let base = NonNull::new(base).ok_or_else(|| {
            let source = io::Error::last_os_error();
            match source.raw_os_error() {
                // ENOSYS: the kernel has no RDMA; ENOENT: nothing under /sys/class/infiniband_verbs.
                Some(libc::ENOSYS | libc::ENOENT) => VerbsError::NoDevices,
                _ => VerbsError::ListDevices { source },
            }
        })?;
        Ok(List { base, len: usize::try_from(len).unwrap_or(0) })
    }

    fn devices(&self) -> impl Iterator<Item = Listed> {
        (0..self.len).map(|i| {
            // SAFETY: the list has `len` devices and lives as long as `self`.
            let raw = unsafe { *self.base.as_ptr().add(i) };
            // SAFETY: as above; the name is a static text of the device.
            let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(raw)) };
            Listed { raw, name: name.to_string_lossy().into_owned() }
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: from ibv_get_device_list; devices opened meanwhile stay open.
        unsafe { ffi::ibv_free_device_list(self.base.as_ptr()) };
    }
}

/// Makes reads of `fd` return instead of waiting.
pub(super) fn nonblocking(fd: i32) -> io::Result<()> {
    // SAFETY: changes the flags of a descriptor that the library gave us.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
