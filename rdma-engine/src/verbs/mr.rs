//! Memory registration.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::error::{VerbsError, check};
use super::ffi;
use super::pd::Pd;
use crate::mem::{Access, Arena};
use crate::types::{Lkey, Rkey};
use std::io;
use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::Arc;

/// A registered arena; registration ends with this value, then the arena is let go of.
#[derive(Debug)]
pub(super) struct Registration {
    raw: NonNull<ffi::ibv_mr>,
    pub(super) lkey: Lkey,
    pub(super) rkey: Rkey,
    _pd: Arc<Pd>,
    /// The memory lives at least as long as its registration.
    arena: Arena,
}

// SAFETY: libibverbs locks its objects; every verb may be called from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers the whole of `arena`.
    pub(super) fn new(pd: &Arc<Pd>, arena: &Arena, access: Access) -> Result<Self, VerbsError> {
        let access = access.checked()?;
        let window = arena.window();
        pd.context.within("region bytes", window.len() as u64, pd.context.limits.mr_bytes)?;
        let base = with_exposed_provenance_mut(window.addr() as usize);
        // SAFETY: the range is mapped as long as `arena`, of which the registration holds a clone.
        let raw = unsafe { ffi::ibv_reg_mr(pd.raw(), base, window.len(), access.bits() as i32) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::RegMr {
            len: window.len(),
            access: format!("{access:?}"),
            source: io::Error::last_os_error(),
        })?;
        // SAFETY: just registered.
        let (lkey, rkey) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        Ok(Registration {
            raw,
            lkey: Lkey(lkey),
            rkey: Rkey(rkey),
            _pd: Arc::clone(pd),
            arena: arena.clone(),
        })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered by us.
        let rc = unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) };
        let Err(e) = check(rc) else { return };
        super::event::say_once("cannot end a memory registration; its memory is given up", &e);
        // The device may still use it: never unmap.
        std::mem::forget(self.arena.clone());
    }
}
