//! The common suite on the loopback transport.

mod rig;

use rdma_engine::suite;
use rig::LoopRig;

#[test]
fn the_suite_passes_on_loopback() {
    let report = suite::run(&mut LoopRig::default(), "");
    println!("{report}");
    assert!(report.skipped.iter().all(|(_, why)| why.contains("registration")), "{report}");
}
