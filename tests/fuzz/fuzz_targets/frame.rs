//! Bytes into the frame parser: no accessor may panic, and what parses must survive being checked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdma_engine::wire::RoceFrame;
use rdma_engine::wire::cm::CmMessage;

fuzz_target!(|bytes: &[u8]| {
    for frame_len in [bytes.len(), bytes.len() + 1000] {
        if let Ok(frame) = RoceFrame::parse_any(bytes, frame_len) {
            let packet = &frame.packet;
            let headers = (packet.reth(), packet.aeth(), packet.atomic(), packet.atomic_ack());
            let more = (packet.imm(), packet.ieth(), packet.deth(), packet.feth());
            let meaning = packet.aeth().map(|aeth| aeth.meaning().to_string());
            std::hint::black_box((headers, more, meaning, frame.payload().len()));
            assert!(!frame.icrc_ok() || frame.icrc() == frame.computed_icrc());
            std::hint::black_box((frame.icrc_ok_with([]), CmMessage::parse(frame.payload()).is_some()));
        }
    }
});
