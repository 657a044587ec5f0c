//! Bytes of a hostile peer, or a bent wire between two honest ones, into both ends of the exchange.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rdma_engine::cm::fuzz_session(bytes));
