mod captures;
mod faults;
mod files;
mod flight_record;
mod hostile;
mod peers;
mod scenarios;

use std::path::PathBuf;

use super::{DecodeOptions, DecodeSummary, run_stream};

/// A file of the project's test data.
fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The captures of kernel rxe.
const CAPTURES: [&str; 3] = ["rxe61-ipv4", "rxe61-ipv6", "rxe61-active-cm-rping"];

/// Decodes the bytes of a file.
fn decode(bytes: &[u8], options: &DecodeOptions) -> (String, DecodeSummary) {
    let mut out = Vec::new();
    let summary = run_stream(bytes, options, &mut out).expect("a capture");
    (String::from_utf8(out).expect("text"), summary)
}
