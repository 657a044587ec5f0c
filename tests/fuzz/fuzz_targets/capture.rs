//! Bytes as a capture file into the decoder, in words and in JSON.
#![no_main]

use isthmus::decode::{DecodeOptions, Show, run_stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let json = DecodeOptions { json: true, ..Default::default() };
    let conversations = DecodeOptions { json: true, show: Show::Conversations, ..Default::default() };
    for options in [DecodeOptions::default(), json, conversations] {
        let _ = run_stream(bytes, &options, &mut std::io::sink());
    }
});
