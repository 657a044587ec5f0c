//! Frames, posts and time into an endpoint of the soft transport: nothing panics, and every buffer comes back.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rdma_engine::soft::fuzz_ingress(bytes));
