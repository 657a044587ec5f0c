//! Frames of clients, and answers that no node gave, into a gateway: each request is over in time, no buffer is lost.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| isthmus::service::kv::sim::fuzz_clients(bytes));
