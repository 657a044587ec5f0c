//! Raw bindings to libdpdk, generated at build time from the installed headers, and the one hand-written
//! mirror of a DPDK structure: [`MbufHeader`].
//!
//! Nothing here is safe or stable. The crate `dpdk-bind` wraps it; nobody else should depend on it. Names
//! are DPDK's own; `dpdk_sys_*` are out-of-line copies of static inline functions (`csrc/shim.c`) and
//! `DPDK_SYS_*` are constants that DPDK keeps in macros.

mod mbuf;

pub use bindings::*;
pub use mbuf::MbufHeader;

/// Version of libdpdk this build was made against, as pkg-config names it.
pub const BUILT_AGAINST: &str = env!("DPDK_SYS_VERSION");

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    dead_code,
    rust_2018_idioms,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::cognitive_complexity
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
