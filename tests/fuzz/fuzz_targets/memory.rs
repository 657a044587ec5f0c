//! Calls of a hostile gateway into a memory node: each is answered, another gateway and what is stored do not suffer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| isthmus::service::kv::sim::fuzz_calls(bytes));
