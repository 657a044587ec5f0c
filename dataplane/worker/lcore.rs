//! The loop of an lcore over its roles.

use super::idle::{IdlePolicy, Sleeper};
use super::role::{Role, RoleLoop};
use crate::fabric::WorkerTransport;
use dpdk_bind::tsc::{Clock, rdtsc};
use rdma_engine::types::Time;

/// Runs the roles in turn until each has been told to stop; gives them back.
///
/// The time stamp counter is read once a turn: the end of one is the start of the next.
pub fn run_lcore<T: WorkerTransport>(roles: Vec<Role<T>>, clock: &Clock, policy: IdlePolicy) -> Vec<Role<T>> {
    let mut sleeper = Sleeper::new(policy, &roles);
    let mut loops: Vec<_> = roles.into_iter().map(RoleLoop::new).collect();
    let mut before = rdtsc();
    while !loops.iter().all(RoleLoop::is_stopped) {
        let mut busy = false;
        for role in &mut loops {
            let now = Time(clock.at(before));
            let worked = role.run_once(now);
            let after = rdtsc();
            role.account(after.wrapping_sub(before), worked);
            before = after;
            busy |= worked;
        }
        if sleeper.rest(busy, &mut loops) {
            before = rdtsc();
            // What was slept through is due now: timers, orders, credits.
            let now = Time(clock.at(before));
            loops.iter_mut().for_each(|role| role.tick(now));
        }
    }
    loops.into_iter().map(RoleLoop::finish).collect()
}
