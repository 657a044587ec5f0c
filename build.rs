//! Checks that DPDK and rdma-core are there before anything is linked, and names the versions of this build.

use std::path::Path;
use std::process::{Command, exit};

/// Libraries the application links: pkg-config name, oldest version, that version as people call it, and the Debian
/// package that has it.
const LIBRARIES: [(&str, &str, &str, &str); 3] = [
    ("libdpdk", "22.11", "version 22.11", "libdpdk-dev"),
    ("libibverbs", "1.11.32", "libibverbs 1.11 (rdma-core 32)", "libibverbs-dev"),
    ("librdmacm", "1.3.32", "librdmacm 1.3 (rdma-core 32)", "librdmacm-dev"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let [dpdk, verbs, _] = LIBRARIES.map(find);
    println!("cargo::rustc-env=ISTHMUS_VERSION={}", version());
    println!("cargo::rustc-env=ISTHMUS_DPDK_VERSION={dpdk}");
    println!("cargo::rustc-env=ISTHMUS_RDMA_CORE_VERSION={}", rdma_core(&verbs));
}

/// Version of an installed library; ends the build with one sentence if there is none.
fn find((name, oldest, words, package): (&str, &str, &str, &str)) -> String {
    let probe = pkg_config::Config::new().cargo_metadata(false).atleast_version(oldest).probe(name);
    match probe {
        Ok(library) => library.version,
        Err(pkg_config::Error::Command { .. }) => {
            refuse("pkg-config is missing: install the Debian package pkg-config.")
        }
        Err(pkg_config::Error::ProbeFailure { .. }) => {
            let found = pkg_config::Config::new().cargo_metadata(false).probe(name);
            let trouble = match found {
                Ok(library) => format!("is too old (version {})", library.version),
                Err(_) => "was not found by pkg-config".to_owned(),
            };
            refuse(&format!(
                "{name} {trouble}: Isthmus needs {words} or newer, install the Debian package {package}."
            ))
        }
        Err(e) => refuse(&format!("{name} could not be looked for: {}.", first_line(&e.to_string()))),
    }
}

fn refuse(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    exit(1)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The release of rdma-core is the third part of its libraries' versions: libibverbs 1.14.44.0 is of rdma-core 44.
fn rdma_core(verbs: &str) -> &str {
    verbs.split('.').nth(2).unwrap_or(verbs)
}

/// The package's version, with the commit it was built from where git can tell.
fn version() -> String {
    let package = env!("CARGO_PKG_VERSION");
    watch_head();
    let describe = Command::new("git").args(["describe", "--always", "--tags"]).output();
    match describe {
        Ok(out) if out.status.success() => {
            format!("{package} ({})", first_line(String::from_utf8_lossy(&out.stdout).trim()))
        }
        _ => package.to_owned(),
    }
}

/// Has the version looked up again when another commit is checked out.
fn watch_head() {
    let log = Command::new("git").args(["rev-parse", "--git-path", "logs/HEAD"]).output();
    let Ok(out) = log else { return };
    let path = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    if !path.is_empty() && Path::new(&path).exists() {
        println!("cargo::rerun-if-changed={path}");
    }
}
