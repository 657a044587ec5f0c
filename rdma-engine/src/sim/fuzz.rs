//! What a fuzzer makes of a run: it bends one of the simulator's scenarios, the oracle judges.

use super::run::run_scenario;
use super::scenario::Scenario;

/// Most requests of a queue pair, so that one input takes milliseconds.
const MAX_REQUESTS: u32 = 24;

/// Runs the scenario that `bytes` describe; panics if a promise of the transport is broken.
///
/// The first eight bytes are the seed; of the rest each pair changes one setting.
pub fn fuzz_operations(bytes: &[u8]) {
    let Some((seed, changes)) = bytes.split_first_chunk::<8>() else { return };
    let mut scenario = Scenario::new(u64::from_le_bytes(*seed));
    scenario.requests = scenario.requests.min(MAX_REQUESTS);
    for change in changes.as_chunks::<2>().0.iter().take(32) {
        bend(&mut scenario, *change);
    }
    if let Err(failure) = run_scenario(scenario.clone(), false) {
        panic!("{failure}\nwith {scenario:?}");
    }
}

/// Changes a setting whose value decides nothing about what is allowed to happen.
fn bend(scenario: &mut Scenario, [what, value]: [u8; 2]) {
    let value16 = u16::from(value);
    match what % 12 {
        0 => scenario.requests = 1 + u32::from(value) % MAX_REQUESTS,
        1 => scenario.window = 1 + value16,
        2 => scenario.quantum = 1 + value16 % 32,
        3 => scenario.copybreak = value16 * 16,
        4 => scenario.burst = 1 + usize::from(value) % 64,
        5 => scenario.frames = 2 + usize::from(value) * 2,
        6 => scenario.selective = value % 2 == 1,
        7 => scenario.depth = 1 + u32::from(value) % 64,
        8 => scenario.rd_atomic = 1 + value % 16,
        9 => scenario.receive_ppm = 20_000 + u32::from(value) * 3800,
        10 => scenario.post_ppm = 50_000 + u32::from(value) * 3700,
        _ => scenario.longest = scenario.longest.min(64 + u32::from(value) * 32),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;

    /// Inputs of the test run; a fuzzer tries more.
    const INPUTS: u64 = 150;

    #[test]
    #[cfg_attr(miri, ignore = "too many bytes for an interpreter")]
    fn bent_scenarios_keep_the_promises_too() {
        for seed in 0..INPUTS {
            let mut rng = Rng::new(seed);
            let bytes: Vec<u8> = (0..24).map(|_| rng.bits() as u8).collect();
            super::fuzz_operations(&bytes);
        }
    }
}
