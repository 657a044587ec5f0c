//! Bytes of a client into the memcached parser: what comes out is within the protocol's bounds, and reaches a node as it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| isthmus::memcached::fuzz_parse(bytes));
