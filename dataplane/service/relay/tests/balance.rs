//! Everything at random: at any time each frame is delivered, dropped by name, held or in flight; at the end every
//! buffer is home.

use super::carry::{all_home, pools};
use super::rig::Setup;
use super::storm::{Storm, setups, storms};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_frame_and_no_buffer_is_lost(setup in setups(), steps in storms(60)) {
        let setup: Setup = setup;
        let mut storm = Storm::new(setup, pools(), 9000);
        steps.iter().for_each(|step| storm.step(step));
        all_home(storm.end());
    }
}
