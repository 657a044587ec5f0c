//! Protection domains: queue pairs, regions and address handles only work together inside one.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::context::Context;
use super::error::{VerbsError, check};
use super::ffi;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain of an open device.
#[derive(Debug)]
pub(super) struct Pd {
    raw: NonNull<ffi::ibv_pd>,
    /// Its number among those of the device, named in events.
    pub(super) domain: u16,
    pub(super) context: Arc<Context>,
}

// SAFETY: libibverbs locks its objects; every verb may be called from any thread.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(super) fn alloc(context: Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { ffi::ibv_alloc_pd(context.raw()) })
            .ok_or_else(|| VerbsError::AllocPd { source: io::Error::last_os_error() })?;
        let domain = context.next_domain();
        Ok(Arc::new(Pd { raw, domain, context }))
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated by us; everything in it held a reference to us and is gone.
        let rc = unsafe { ffi::ibv_dealloc_pd(self.raw()) };
        if let Err(e) = check(rc) {
            super::event::say_once("cannot free a protection domain", &e);
        }
    }
}
