//! What the flight recorder of the soft transport writes, this tool reads.

use rdma_engine::sim::{Faults, Scenario, stream::Stream};
use rdma_engine::types::Time;
use rdma_engine::wr::OpKind;

use super::decode;
use crate::decode::DecodeOptions;

#[test]
fn flight_records_can_be_read() {
    let scenario = Scenario { recorder_frames: 1000, selective: true, ..Stream::scenario(1) };
    let lossy = Faults { loss_ppm: 30_000, ..Faults::none(5000) };
    let mut stream = Stream::new(scenario, OpKind::Write, lossy);
    stream.run(1, Time(300_000)).expect("no error");
    for end in 0..2 {
        let record = stream.flight_record(end, 0).expect("the recorder is on");
        let (text, summary) = decode(&record.pcapng, &DecodeOptions::default());
        assert!(record.frames > 100, "{}", record.frames);
        // Of the answers most are our own opcode, as something is always missing.
        for name in ["RC_WRITE_FIRST", "RC_WRITE_MIDDLE", "vendor_SACK"] {
            assert!(text.contains(name), "{name} in {}", &text[..text.len().min(2000)]);
        }
        assert_eq!((summary.frames, summary.roce_v2), (record.frames as u64, record.frames as u64));
        assert!(summary.stopped.is_none() && summary.malformed == 0, "{summary:?}");
    }
}
