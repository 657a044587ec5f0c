//! Lists of operations between two endpoints over a network the input describes: the simulator's oracle holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rdma_engine::sim::fuzz_operations(bytes));
