//! A heap buffer that a port has reported on, and that remembers what was asked of one.

use super::*;
use dpdk_bind::mbuf::{Checksum, TxOffload};
use rdma_engine::heap::{Segments, Spare};

#[derive(Debug)]
pub(super) struct Report {
    pub(super) buf: HeapBuf,
    pub(super) ip: Checksum,
    pub(super) udp: Checksum,
    pub(super) asked: Option<TxOffload>,
}

impl Report {
    pub(super) fn new(buf: HeapBuf, ip: Checksum, udp: Checksum) -> Self {
        Report { buf, ip, udp, asked: None }
    }
}

impl PortBuf for Report {
    fn ip_checksum(&self) -> Checksum {
        self.ip
    }
    fn udp_checksum(&self) -> Checksum {
        self.udp
    }
    fn clear_offloads(&mut self) {
        (self.ip, self.udp, self.asked) = (Checksum::Unknown, Checksum::Unknown, None);
    }
    fn request_tx(&mut self, offload: TxOffload) {
        self.asked = Some(offload);
    }
}

impl Buf for Report {
    type Segments<'a> = Segments<'a>;
    type Spare<'a> = Spare<'a>;

    fn len(&self) -> usize {
        self.buf.len()
    }
    fn segment_count(&self) -> usize {
        self.buf.segment_count()
    }
    fn segments(&self) -> Segments<'_> {
        self.buf.segments()
    }
    fn first(&self) -> &[u8] {
        self.buf.first()
    }
    fn headroom(&self) -> usize {
        self.buf.headroom()
    }
    fn tailroom(&self) -> usize {
        self.buf.tailroom()
    }
    fn is_unique(&self) -> bool {
        self.buf.is_unique()
    }
    fn try_unique(&mut self) -> Option<&mut [u8]> {
        self.buf.try_unique()
    }
    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        self.buf.prepend(n)
    }
    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        self.buf.append(n)
    }
    fn adj(&mut self, n: usize) {
        self.buf.adj(n);
    }
    fn truncate(&mut self, len: usize) {
        self.buf.truncate(len);
    }
    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        let Report { buf, ip, udp, asked } = tail;
        self.buf.chain(buf).map_err(|buf| Report { buf, ip, udp, asked })
    }
    fn reserve(&mut self, n: usize) -> bool {
        self.buf.reserve(n)
    }
    fn spare(&mut self) -> Spare<'_> {
        self.buf.spare()
    }
    fn room(&self) -> usize {
        self.buf.room()
    }
    fn filled(&mut self, n: usize) {
        self.buf.filled(n);
    }
}

/// A pool of these.
#[derive(Debug)]
pub(super) struct ReportPool(pub(super) HeapPool);

fn fresh(buf: HeapBuf) -> Report {
    Report::new(buf, Checksum::Unknown, Checksum::Unknown)
}

impl Pool for ReportPool {
    type Buf = Report;

    fn alloc(&self) -> Option<Report> {
        self.0.alloc().map(fresh)
    }
    fn alloc_bulk(&self, n: usize, mut put: impl FnMut(Report)) -> bool {
        self.0.alloc_bulk(n, |buf| put(fresh(buf)))
    }
    fn slice(&self, of: &Report, offset: usize, len: usize) -> Option<Report> {
        self.0.slice(&of.buf, offset, len).map(fresh)
    }
    fn buf_room(&self) -> usize {
        self.0.buf_room()
    }
    fn available(&self) -> usize {
        self.0.available()
    }
    fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// An egress without end.
#[derive(Debug, Default)]
pub(super) struct Sent(pub(super) Vec<Report>);

impl Egress<Report> for Sent {
    fn push(&mut self, frame: Report) -> Result<(), Report> {
        self.0.push(frame);
        Ok(())
    }
    fn room(&self) -> usize {
        usize::MAX
    }
}
