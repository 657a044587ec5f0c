//! What buffers of a port can do beside being buffers: tell and ask about checksums.

use crate::bridge::Packet;
use dpdk_bind::mbuf::{Checksum, TxOffload};
use rdma_engine::buf::Buf;

/// A buffer that comes in by a port and leaves by one. What a buffer does not implement it does not know.
pub trait PortBuf: Buf {
    /// What the port says about the IPv4 header checksum of a received frame.
    #[inline]
    fn ip_checksum(&self) -> Checksum {
        Checksum::Unknown
    }

    /// What the port says about the UDP checksum of a received frame.
    #[inline]
    fn udp_checksum(&self) -> Checksum {
        Checksum::Unknown
    }

    /// Forgets what a port said and was asked, for a frame that is made of other ones.
    #[inline]
    fn clear_offloads(&mut self) {}

    /// Asks the port to fill in checksums.
    #[inline]
    fn request_tx(&mut self, offload: TxOffload) {
        let _ = offload;
    }
}

impl PortBuf for Packet {
    #[inline]
    fn ip_checksum(&self) -> Checksum {
        self.0.rx_ip_checksum()
    }

    #[inline]
    fn udp_checksum(&self) -> Checksum {
        self.0.rx_l4_checksum()
    }

    #[inline]
    fn clear_offloads(&mut self) {
        self.0.clear_offloads();
    }

    #[inline]
    fn request_tx(&mut self, offload: TxOffload) {
        self.0.request_tx(offload);
    }
}

impl PortBuf for rdma_engine::heap::HeapBuf {}
