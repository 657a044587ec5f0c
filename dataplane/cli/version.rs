//! `--version`.

/// Our version with those of the libraries it was built with.
pub(super) fn text() -> &'static str {
    use std::sync::OnceLock;
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let dpdk = option_env!("ISTHMUS_DPDK_VERSION").map_or_else(dpdk_bind::Eal::version, str::to_owned);
        let rdma = option_env!("ISTHMUS_RDMA_CORE_VERSION").unwrap_or("of unknown version");
        format!("{}\n{dpdk}\nrdma-core {rdma}", env!("CARGO_PKG_VERSION"))
    })
}
