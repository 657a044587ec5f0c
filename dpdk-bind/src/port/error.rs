//! Why a port operation failed.

use std::io;

use super::info::PortInfo;
use crate::eal::Said;

/// Why a port could not be found, configured or used. Ports are named with their driver.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No port of that name or number.
    #[error("there is no port '{0}': `isthmus devices` lists them; virtual ones are made by --vdev")]
    NoSuchPort(String),
    /// It is configured already.
    #[error("port {0} is in use: each port can be configured once at a time")]
    InUse(String),
    /// The configuration contradicts itself or exceeds a limit of the driver.
    #[error("port {port}: {key} = {value}: {reason}")]
    Config {
        /// The port.
        port: String,
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The configuration requires what the driver does not have.
    #[error(
        "port {port}: {what} is required, but the driver does not offer it: use another port, or do not require it"
    )]
    Unsupported {
        /// The port.
        port: String,
        /// What is missing.
        what: String,
    },
    /// Queue handles exist that should be gone.
    #[error("port {port} still has {alive} queue handles: drop them (end the workers) first")]
    QueuesAlive {
        /// The port.
        port: String,
        /// How many.
        alive: usize,
    },
    /// A name or size of a device to be made.
    #[error("device '{name}': {reason}{said}")]
    Device {
        /// The device.
        name: String,
        /// What is wrong and what would be right.
        reason: String,
        /// What DPDK logged about it.
        said: Said,
    },
    /// The driver refused.
    #[error("port {port}: could not {operation}: {source}{said}")]
    Driver {
        /// The port.
        port: String,
        /// What was tried.
        operation: &'static str,
        /// What its error number says.
        source: io::Error,
        /// What it logged about it.
        said: Said,
    },
}

impl PortError {
    pub(crate) fn device(name: &str, reason: impl Into<String>, said: Said) -> PortError {
        PortError::Device { name: name.to_owned(), reason: reason.into(), said }
    }

    /// From a DPDK return code, which is a negated error number.
    pub(super) fn driver(info: &PortInfo, operation: &'static str, rc: i32, said: Said) -> PortError {
        let source = io::Error::from_raw_os_error(rc.unsigned_abs() as i32);
        PortError::Driver { port: info.label(), operation, source, said }
    }
}
