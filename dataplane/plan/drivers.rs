//! Virtual device drivers whose limits are known without asking them.

/// What is known about a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverFacts {
    /// Driver name, the device name without its number.
    pub driver: &'static str,
    /// Queue pairs it can have at most.
    pub max_queues: u32,
    /// Device argument that sets the number of queue pairs; without it there is one.
    pub queues_arg: Option<&'static str>,
    /// Every queue pair of that argument has to be polled.
    pub polls_all: bool,
    /// Answers `set_mtu`.
    pub set_mtu: bool,
    /// Largest MTU.
    pub max_mtu: u32,
    /// Spreads flows by hash.
    pub rss: bool,
    /// Computes checksums.
    pub checksum: bool,
    /// The speed of the link that it reports is a constant of its source, and says nothing about what it joins.
    pub speed_is_made_up: bool,
}

const PLAIN: DriverFacts = DriverFacts {
    driver: "",
    max_queues: 1024,
    queues_arg: None,
    polls_all: false,
    set_mtu: true,
    max_mtu: 9216,
    rss: false,
    checksum: false,
    speed_is_made_up: true,
};

/// DPDK 22.11: tried, not read.
const DRIVERS: [DriverFacts; 10] = [
    DriverFacts { driver: "net_null", ..PLAIN },
    DriverFacts { driver: "net_ring", max_queues: 16, set_mtu: false, ..PLAIN },
    DriverFacts { driver: "eth_ring", max_queues: 16, set_mtu: false, ..PLAIN },
    DriverFacts { driver: "net_memif", max_queues: 255, set_mtu: false, ..PLAIN },
    DriverFacts {
        driver: "net_af_packet",
        max_queues: 16,
        queues_arg: Some("qpairs"),
        polls_all: true,
        set_mtu: false,
        ..PLAIN
    },
    DriverFacts {
        driver: "net_af_xdp",
        max_queues: 64,
        queues_arg: Some("queue_count"),
        max_mtu: 3498,
        ..PLAIN
    },
    // Transmitting more than 1500 bytes fails.
    DriverFacts { driver: "net_tap", max_queues: 16, max_mtu: 1500, rss: true, checksum: true, ..PLAIN },
    DriverFacts { driver: "net_pcap", max_queues: 1, set_mtu: false, ..PLAIN },
    DriverFacts { driver: "net_vhost", queues_arg: Some("queues"), checksum: true, ..PLAIN },
    DriverFacts { driver: "net_virtio_user", queues_arg: Some("queues"), checksum: true, ..PLAIN },
];

/// Facts about `driver`, if it is one we know.
pub fn driver_facts(driver: &str) -> Option<&'static DriverFacts> {
    DRIVERS.iter().find(|facts| facts.driver == driver)
}

/// The value of `key` in device arguments such as `size=64,copy=1`; the last one counts.
pub(crate) fn device_arg<'a>(args: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = args.split(',').rev().filter_map(|arg| arg.split_once('='));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// The value of `key` as a number.
pub(crate) fn device_number(args: &str, key: &str) -> Option<u32> {
    device_arg(args, key)?.parse().ok()
}
