//! The newest figures on DPDK's telemetry socket.

use crate::stats::telemetry::{COMMANDS, Latest};
use dpdk_bind::Eal;
use dpdk_bind::telemetry::{Handler, Telemetry};
use std::sync::Arc;

/// Registers the commands; they answer as long as what is returned lives. One that cannot be had is no reason not to
/// run: it is said in the log.
pub(super) fn register(eal: &Eal, latest: &Arc<Latest>) -> Vec<Telemetry> {
    let one = |command: &'static crate::stats::telemetry::Command| {
        let latest = Arc::clone(latest);
        let handler: Handler = Arc::new(move |parameter| command.answer(&latest, parameter));
        Telemetry::register(eal, command.name, command.help, handler)
            .inspect_err(|error| tracing::warn!("no statistics on DPDK's telemetry socket: {error}"))
            .ok()
    };
    COMMANDS.iter().filter_map(one).collect()
}
