//! `--version`.

use std::sync::OnceLock;

/// Our version, that of the DPDK in use, and what it was built against.
pub(super) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let running = dpdk_bind::Eal::version();
        let built = env!("ISTHMUS_DPDK_VERSION");
        let rdma = env!("ISTHMUS_RDMA_CORE_VERSION");
        format!("{}\n{running} (built against {built})\nrdma-core {rdma}", env!("ISTHMUS_VERSION"))
    })
}
