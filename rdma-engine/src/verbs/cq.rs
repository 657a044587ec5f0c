//! Completion queues and the channel that wakes a sleeping worker.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::context::{Context, nonblocking};
use super::error::{VerbsError, check};
use super::event::Owner;
use super::ffi;
use crate::transport::CqSpec;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// A completion channel: one descriptor for all queues of a worker that have events.
#[derive(Debug)]
pub(super) struct Channel {
    raw: NonNull<ffi::ibv_comp_channel>,
    _context: Arc<Context>,
}

// SAFETY: libibverbs locks its objects; every verb may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub(super) fn create(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        let fail = |source| VerbsError::CreateChannel { source };
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { ffi::ibv_create_comp_channel(context.raw()) })
            .ok_or_else(|| fail(io::Error::last_os_error()))?;
        let channel = Channel { raw, _context: Arc::clone(context) };
        nonblocking(channel.fd()).map_err(fail)?;
        Ok(Arc::new(channel))
    }

    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: the channel lives; the field never changes.
        unsafe { self.raw.as_ref() }.fd
    }

    /// Takes all events and acknowledges them, at most `most`; returns how many there were.
    pub(super) fn acknowledge(&self, most: usize) -> usize {
        for taken in 0..most {
            let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: both places are writable, the channel lives and does not block.
            if unsafe { ffi::ibv_get_cq_event(self.raw.as_ptr(), &mut cq, &mut context) } != 0 {
                return taken;
            }
            // SAFETY: a queue with an unacknowledged event cannot have been destroyed.
            unsafe { ffi::ibv_ack_cq_events(cq, 1) };
        }
        most
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created by us; the queues on it held a reference to us and are gone.
        let rc = unsafe { ffi::ibv_destroy_comp_channel(self.raw.as_ptr()) };
        if let Err(e) = check(rc) {
            super::event::say_once("cannot destroy a completion channel", &e);
        }
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    raw: NonNull<ffi::ibv_cq>,
    pub(super) spec: CqSpec,
    channel: Option<Arc<Channel>>,
    context: Arc<Context>,
}

// SAFETY: libibverbs locks its objects; every verb may be called from any thread.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue that events call `owner`, on `channel` if its specification asks for events.
    pub(super) fn create(
        context: &Arc<Context>,
        spec: CqSpec,
        channel: Option<&Arc<Channel>>,
        owner: Owner,
    ) -> Result<Arc<Self>, VerbsError> {
        let most = context.limits.cq_depth.min(i32::MAX as u32);
        context.within("completion queue depth", spec.depth.into(), most.into())?;
        let channel = channel.filter(|_| spec.events).cloned();
        let on = channel.as_ref().map_or(std::ptr::null_mut(), |c| c.raw.as_ptr());
        // SAFETY: context and channel live as long as the queue, which holds references to both.
        let raw = unsafe { ffi::ibv_create_cq(context.raw(), spec.depth.max(1) as i32, owner.pack(), on, 0) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| VerbsError::CreateCq { depth: spec.depth, source: io::Error::last_os_error() })?;
        Ok(Arc::new(Cq { raw, spec, channel, context: Arc::clone(context) }))
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_cq {
        self.raw.as_ptr()
    }

    /// A queue like this one, to replace it.
    pub(super) fn again(&self, owner: Owner) -> Result<Arc<Self>, VerbsError> {
        Cq::create(&self.context, self.spec, self.channel.as_ref(), owner)
    }

    /// Takes completions into `out`; how many, or `None` if the queue is broken.
    #[inline]
    pub(super) fn poll(&self, out: &mut [ffi::ibv_wc]) -> Option<usize> {
        // SAFETY: `out` has room for so many, the queue lives.
        let n = unsafe { ffi::ibv_poll_cq(self.raw(), out.len() as i32, out.as_mut_ptr()) };
        usize::try_from(n).ok()
    }

    /// Asks for an event with the next completion; false if the queue has no channel or refuses.
    pub(super) fn arm(&self) -> bool {
        // SAFETY: the queue lives.
        self.channel.is_some() && unsafe { ffi::ibv_req_notify_cq(self.raw(), 0) } == 0
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: created by us; the queue pairs on it held references to us and are gone, and every event taken was
        // acknowledged at once.
        let rc = unsafe { ffi::ibv_destroy_cq(self.raw()) };
        if let Err(e) = check(rc) {
            super::event::say_once("cannot destroy a completion queue", &e);
        }
    }
}
