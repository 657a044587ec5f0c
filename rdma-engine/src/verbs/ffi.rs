//! The C interface: everything of `rdma-sys`, and what its release 0.3.0 lacks or gets wrong.
//!
//! - `_ibv_query_gid_table` and `_ibv_query_gid_ex` are not declared there.
//! - Its `ibv_async_event` holds a Rust enum, so an event of a newer kernel would be undefined behaviour.
//! - Its wrappers of extended verbs look for the mark `u32::MAX` where the library sets `UINTPTR_MAX`, so none of them
//!   ever finds an extended context. Of these only the port query is needed here; see [`query_port`].
//!
//! The fast path (`ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`, `ibv_poll_cq`, `ibv_req_notify_cq`) is static
//! inline in C; the wrappers of `rdma-sys` call through the context's table as the header does.
#![allow(unsafe_code)] // reason: declares foreign functions.

pub(super) use rdma_sys::*;

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};

/// `struct ibv_async_event` with the event's number as a number.
#[repr(C)]
pub(super) struct RawAsyncEvent {
    /// What the event is about; which member is meant depends on the number.
    pub(super) element: AsyncElement,
    /// `enum ibv_event_type`.
    pub(super) event_type: u32,
}

/// The union inside [`RawAsyncEvent`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union AsyncElement {
    pub(super) cq: *mut ibv_cq,
    pub(super) qp: *mut ibv_qp,
    pub(super) srq: *mut ibv_srq,
    pub(super) port_num: c_int,
    pub(super) word: *mut c_void,
}

unsafe extern "C" {
    /// 0, or -1 with errno; EAGAIN when the descriptor does not block and nothing is there.
    #[link_name = "ibv_get_async_event"]
    pub(super) fn get_async_event(context: *mut ibv_context, event: *mut RawAsyncEvent) -> c_int;

    /// Gives an event back; destroying what it is about waits for this.
    #[link_name = "ibv_ack_async_event"]
    pub(super) fn ack_async_event(event: *mut RawAsyncEvent);

    /// The number of valid entries written, or a negative errno.
    #[link_name = "_ibv_query_gid_table"]
    fn query_gid_table_sized(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;

    /// 0 or errno.
    #[link_name = "_ibv_query_gid_ex"]
    fn query_gid_sized(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int;
}

/// All valid GID entries of all ports: their number, or a negative errno.
///
/// # Safety
/// `context` is open; `entries` has room for `max_entries`.
pub(super) unsafe fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
) -> isize {
    // SAFETY: the caller's promise; the entry's size is that of the header this was built against.
    unsafe { query_gid_table_sized(context, entries, max_entries, 0, size_of::<ibv_gid_entry>()) }
}

/// One GID entry: 0 or errno.
///
/// # Safety
/// `context` is open.
pub(super) unsafe fn query_gid_ex(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    entry: &mut ibv_gid_entry,
) -> c_int {
    // SAFETY: the caller's promise; `entry` is writable and of the size given.
    unsafe { query_gid_sized(context, port.into(), index, entry, 0, size_of::<ibv_gid_entry>()) }
}

/// The attributes of a port: 0 or errno. The exported function fills the older, shorter part of the structure, which
/// ends at `flags`; the rest stays zero.
///
/// # Safety
/// `context` is open.
pub(super) unsafe fn query_port(context: *mut ibv_context, port: u8, attr: &mut ibv_port_attr) -> c_int {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    *attr = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's promise; `attr` is longer than what is written.
    unsafe { ibv_query_port(context, port, std::ptr::from_mut(attr).cast()) }
}

// The layouts written by hand in `rdma-sys` and here, as the C header has them on 64-bit machines.
const _: () = {
    assert!(size_of::<ibv_wc>() == 48 && offset_of!(ibv_wc, qp_num) == 28);
    assert!(offset_of!(ibv_wc, imm_data_invalidated_rkey_union) == 24);
    assert!(size_of::<ibv_send_wr>() == 128 && offset_of!(ibv_send_wr, wr) == 40);
    assert!(offset_of!(ibv_send_wr, imm_data_invalidated_rkey_union) == 36);
    assert!(offset_of!(ibv_send_wr, bind_mw_tso_union) == 80);
    assert!(offset_of!(atomic_t, rkey) == 24 && offset_of!(ud_t, remote_qkey) == 12);
    assert!(size_of::<ibv_recv_wr>() == 32 && size_of::<ibv_sge>() == 16);
    assert!(size_of::<ibv_ah_attr>() == 32 && size_of::<ibv_global_route>() == 24);
    assert!(size_of::<RawAsyncEvent>() == 16 && offset_of!(RawAsyncEvent, event_type) == 8);
    assert!(size_of::<ibv_gid_entry>() == 32 && size_of::<ibv_port_attr>() == 52);
};
