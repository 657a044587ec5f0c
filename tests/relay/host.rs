//! Both ends in one process, over the loopback transport.

use crate::capture;
use crate::end::{End, directory};

const FRAMES: usize = 20_000;

/// The whole of it but the RDMA device. Two queue pairs, so that flows are spread; order holds within each.
#[test]
fn a_capture_comes_out_as_it_went_in() {
    let dir = directory("capture");
    let sent = capture::frames(FRAMES);
    capture::write(&dir.join("in.pcap"), &sent);
    capture::write(&dir.join("none.pcap"), &[]);
    let path = dir.display();
    let conf = format!(
        r#"poll = "adaptive"
        [eal]
        hugepages = "no-huge"
        lcores = "0@0,1@0,2@1"
        [stats]
        format = "json"
        [fabric]
        transport = "loopback"
        [service.relay]
        dead_path_wait_ms = 60000
        [[port]]
        name = "in"
        device = "net_pcap0,rx_pcap={path}/in.pcap,tx_pcap={path}/back.pcap"
        mtu = 1504
        [[port]]
        name = "out"
        device = "net_pcap1,rx_pcap={path}/none.pcap,tx_pcap={path}/out.pcap"
        mtu = 1504
        [[node]]
        name = "a"
        service = "relay"
        ports = ["in"]
        fabric.connect = "b"
        [[node]]
        name = "b"
        service = "relay"
        ports = ["out"]
        "#
    );
    let mut both = End::start(&dir, "both", &conf);
    both.wait_until("frames", |e| e.report().node_count("b", "tx_frames") == FRAMES as u64);
    let report = both.stop();
    assert_eq!(report.node_count("a", "frames_sent"), FRAMES as u64);
    assert!(report.drops("relay").is_empty(), "{:?}", report.drops("relay"));
    capture::assert_same(&sent, &capture::read(&dir.join("out.pcap")));
    assert!(capture::read(&dir.join("back.pcap")).is_empty(), "nothing was sent the other way");
}
