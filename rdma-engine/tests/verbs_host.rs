//! A machine without RDMA devices gets an error that says what to do, never a crash.
#![cfg(feature = "verbs")]

use rdma_engine::heap::HeapBuf;
use rdma_engine::verbs::{VerbsDevice, VerbsError, devices};

#[test]
fn no_device_is_a_clear_error() {
    let error = match devices() {
        Ok(found) => {
            use std::io::Write;
            let line = format!("SKIPPED no_device_is_a_clear_error: there are {} devices\n", found.len());
            let _ = std::io::stderr().write_all(line.as_bytes());
            return;
        }
        Err(error) => error,
    };
    assert!(matches!(error, VerbsError::NoDevices), "{error:?}");
    assert!(error.to_string().contains("rdma link add"), "{error}");
    let opened = VerbsDevice::<HeapBuf>::open("rxe0", 1).unwrap_err();
    assert!(matches!(opened, VerbsError::NoDevices), "{opened:?}");
}
