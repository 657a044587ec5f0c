//! Address handles: paths to datagram peers, made by the control thread and used by a worker without a lock.
//!
//! A handle that is replaced may still be in a request on the device. The worker counts up `quiet` at moments when it
//! has no datagram in flight; a handle replaced before such a moment is used by nobody after it and is destroyed then.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::error::{VerbsError, check};
use super::ffi;
use super::modify::ah_attr;
use super::pd::Pd;
use crate::qp::AddressVector;
use crate::wr::AhId;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Paths of one worker at most.
const MOST: usize = 4096;

/// The address handles of a worker.
#[derive(Debug)]
pub(super) struct AhTable {
    slots: Box<[AtomicPtr<ffi::ibv_ah>]>,
    /// Moments without a datagram in flight, counted by the worker.
    quiet: AtomicU64,
    book: Mutex<Book>,
    port: u8,
    pd: Arc<Pd>,
}

/// The control thread's side.
#[derive(Debug, Default)]
struct Book {
    /// The path of each slot in use.
    paths: Vec<AddressVector>,
    /// Replaced handles, with `quiet` as it was after they were replaced.
    retired: Vec<(u64, Handle)>,
}

#[derive(Debug)]
struct Handle(NonNull<ffi::ibv_ah>);

// SAFETY: libibverbs locks its objects; every verb may be called from any thread.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by us and used by no request in flight.
        let rc = unsafe { ffi::ibv_destroy_ah(self.0.as_ptr()) };
        if let Err(e) = check(rc) {
            super::event::say_once("cannot destroy an address handle", &e);
        }
    }
}

impl AhTable {
    pub(super) fn new(pd: &Arc<Pd>, port: u8) -> Self {
        let slots = (0..MOST).map(|_| AtomicPtr::default()).collect();
        AhTable {
            slots,
            quiet: AtomicU64::new(0),
            book: Mutex::new(Book::default()),
            port,
            pd: Arc::clone(pd),
        }
    }

    /// A handle for `path`. A path that is known keeps its number and is resolved anew (the peer's MAC may have
    /// changed).
    pub(super) fn create(&self, path: &AddressVector) -> Result<AhId, VerbsError> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.quiet.load(Ordering::SeqCst);
        book.retired.retain(|(since, _)| *since == now);
        let at = book.paths.iter().position(|p| p == path).unwrap_or(book.paths.len());
        self.pd.context.within("address handles of one worker", at as u64 + 1, MOST as u64)?;
        let handle = self.resolve(path)?;
        let old = self.slots[at].swap(handle.0.as_ptr(), Ordering::SeqCst);
        std::mem::forget(handle);
        match NonNull::new(old) {
            None => book.paths.push(*path),
            Some(old) => book.retired.push((self.quiet.load(Ordering::SeqCst), Handle(old))),
        }
        Ok(AhId(at as u16))
    }

    fn resolve(&self, path: &AddressVector) -> Result<Handle, VerbsError> {
        let mut attr = ah_attr(path, self.port);
        // SAFETY: the domain lives, `attr` is filled.
        let raw = unsafe { ffi::ibv_create_ah(self.pd.raw(), &mut attr) };
        NonNull::new(raw)
            .map(Handle)
            .ok_or_else(|| VerbsError::CreateAh { peer: path.gid, source: io::Error::last_os_error() })
    }

    /// The handle with this number. It may be used in requests posted before the worker next calls `rest`.
    #[inline]
    pub(super) fn handle(&self, id: AhId) -> Option<NonNull<ffi::ibv_ah>> {
        NonNull::new(self.slots.get(usize::from(id.0))?.load(Ordering::SeqCst))
    }

    /// The worker says: no datagram of mine is queued or in flight.
    #[inline]
    pub(super) fn rest(&self) {
        self.quiet.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for AhTable {
    fn drop(&mut self) {
        for slot in &self.slots {
            // The worker and its queue pairs are gone: nobody uses a handle.
            drop(NonNull::new(slot.swap(std::ptr::null_mut(), Ordering::SeqCst)).map(Handle));
        }
    }
}
