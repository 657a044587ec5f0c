//! Finds libdpdk, compiles the C shim and generates the bindings.

use std::env;
use std::path::{Path, PathBuf};
use std::process::exit;

const DPDK_MIN: &str = "22.11";

/// Types and functions that the bindings cover; everything they mention follows.
const ALLOWED: &[&str] = &[
    "dpdk_sys_.*",
    "DPDK_SYS_.*",
    "rte_eal_(init|cleanup|iova_mode|has_hugepages|get_runtime_dir|process_type)",
    "rte_eal_(remote_launch|wait_lcore|get_lcore_state|hotplug_add|hotplug_remove)",
    "rte_get_(main_lcore|next_lcore|tsc_hz)",
    "rte_lcore_(to_socket_id|to_cpu_id|count)",
    "rte_(version|strerror)",
    "rte_log_(cur_msg_loglevel|cur_msg_logtype|set_level_pattern)",
    "rte_malloc_get_socket_stats",
    "rte_socket_(count|id_by_idx)",
    "rte_eth_dev_(count_avail|get_name_by_port|get_port_by_name|is_valid_port|info_get|socket_id)",
    "rte_eth_dev_(configure|adjust_nb_rx_tx_desc|start|stop|close|get_mtu|set_mtu)",
    "rte_eth_dev_(set_link_up|set_link_down|rss_reta_query|rss_reta_update|rss_hash_conf_get)",
    "rte_eth_dev_rx_intr_(enable|disable|ctl_q)",
    "rte_epoll_wait",
    "RTE_INTR_EVENT_.*",
    "rte_eth_(find_next|rx_queue_setup|tx_queue_setup|macaddr_get)",
    "rte_eth_(promiscuous|allmulticast)_(enable|disable|get)",
    "rte_eth_(stats|xstats)_(get|reset)",
    "rte_eth_xstats_get_names",
    "rte_eth_from_rings",
    "rte_pktmbuf_(pool_create|free_bulk|copy)",
    "rte_mempool_(free|avail_count|in_use_count|mem_iter)",
    "rte_ring_(create|free)",
    "rte_telemetry_register_cmd",
    "rte_tel_data_(alloc|free|string|start_dict|start_array)",
    "rte_tel_data_add_(array_string|array_int|dict_string|dict_int|dict_container)",
    "RTE_TEL_(STRING|INT)_VAL",
    "RTE_(PROC|IOVA)_.*",
    "RTE_MAX_LCORE",
];

/// Ends the build with one sentence instead of a backtrace.
fn refuse(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    exit(1)
}

fn find_dpdk() -> pkg_config::Library {
    let found = pkg_config::Config::new()
        .cargo_metadata(false)
        .env_metadata(true)
        .print_system_cflags(true)
        .atleast_version(DPDK_MIN)
        .probe("libdpdk");
    match found {
        Ok(lib) => lib,
        Err(pkg_config::Error::Command { .. }) => {
            refuse("pkg-config is missing: install the Debian package pkg-config.")
        }
        Err(_) => refuse(
            "libdpdk 22.11 or newer was not found by pkg-config: install the Debian package libdpdk-dev \
             (or point PKG_CONFIG_PATH at the libdpdk.pc of your own build).",
        ),
    }
}

/// Compiler flags as libdpdk.pc states them (include paths, `-march`, `-include rte_config.h`).
fn compiler_flags() -> Vec<String> {
    let pkg_config = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let out = std::process::Command::new(pkg_config).args(["--cflags", "libdpdk"]).output();
    let Ok(out) = out else { refuse("pkg-config is missing: install the Debian package pkg-config.") };
    String::from_utf8_lossy(&out.stdout).split_whitespace().map(str::to_owned).collect()
}

fn compile_shim(flags: &[String]) {
    let mut build = cc::Build::new();
    build.file("csrc/shim.c").include("csrc").opt_level(3).warnings(true).std("gnu11");
    for flag in flags {
        build.flag(flag);
    }
    // DPDK's own headers trip these; the shim is too small to need them.
    build.flag("-Wno-unused-parameter").flag("-Wno-sign-compare").flag("-Wno-deprecated-declarations");
    if let Err(e) = build.try_compile("dpdk_sys_shim") {
        refuse(&format!(
            "the C shim over libdpdk did not compile: install the Debian package gcc (or set CC) ({}).",
            e.to_string().lines().next().unwrap_or("no compiler output")
        ));
    }
}

/// Loads libclang the way bindgen will, to tell its absence from a real failure.
fn libclang_present() -> bool {
    std::panic::set_hook(Box::new(|_| {}));
    let found = std::panic::catch_unwind(bindgen::clang_version).is_ok();
    let _ = std::panic::take_hook();
    found
}

fn generate_bindings(flags: &[String], out: &Path) {
    if !libclang_present() {
        refuse("libclang was not found: install the Debian package libclang-dev (or set LIBCLANG_PATH).");
    }
    let mut builder = bindgen::Builder::default()
        .header("csrc/wrapper.h")
        .clang_arg("-Icsrc")
        .clang_args(flags)
        .layout_tests(true)
        .derive_default(true)
        .derive_debug(false)
        .generate_comments(false)
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .default_non_copy_union_style(bindgen::NonCopyUnionStyle::ManuallyDrop)
        // Rust reaches these through the shim or through `MbufHeader`, never by field.
        .opaque_type("rte_mbuf")
        .opaque_type("rte_mempool")
        .opaque_type("rte_ring")
        .opaque_type("rte_device")
        .opaque_type("rte_tel_data")
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap_or_default())
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()));
    for pattern in ALLOWED {
        builder = builder.allowlist_item(pattern);
    }
    match builder.generate() {
        Ok(bindings) => {
            if let Err(e) = bindings.write_to_file(out) {
                refuse(&format!("cannot write {}: {e}.", out.display()));
            }
        }
        Err(e) => refuse(&format!(
            "bindgen could not read DPDK's headers: check that libdpdk-dev and libclang-dev are complete ({}).",
            e.to_string().lines().next().unwrap_or("no message")
        )),
    }
}

fn link(lib: &pkg_config::Library) {
    for dir in &lib.link_paths {
        println!("cargo::rustc-link-search=native={}", dir.display());
    }
    if let Ok(dir) = pkg_config::get_variable("libdpdk", "libdir") {
        println!("cargo::rustc-link-search=native={dir}");
        println!("cargo::metadata=libdir={dir}");
    }
    // Only what the bindings call; the loader brings the rest in. librte_net_ring is a driver and therefore
    // not part of libdpdk.pc; the EAL later finds the very same file in its driver directory.
    for name in ["net_ring", "ethdev", "mbuf", "mempool", "ring", "telemetry", "eal"] {
        println!("cargo::rustc-link-lib=dylib=rte_{name}");
    }
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=csrc");
    let lib = find_dpdk();
    let flags = compiler_flags();
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else { refuse("cargo did not set OUT_DIR.") };
    compile_shim(&flags);
    generate_bindings(&flags, &out.join("bindings.rs"));
    link(&lib);
    println!("cargo::metadata=version={}", lib.version);
    println!("cargo::rustc-env=DPDK_SYS_VERSION={}", lib.version);
}
