//! What reading, writing and sealing a RoCEv2 frame costs.

use std::hint::black_box;
use std::net::IpAddr;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rdma_engine::types::{Psn, Qpn, Rkey};
use rdma_engine::wire::{
    Aeth, Bth, HeaderTemplate, Mac, Opcode, Position, Reth, RoceFrame, Route, Syndrome, Transport, Vlans,
};

const HEADROOM: usize = 128;

fn template() -> HeaderTemplate {
    let route = Route {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlans: Vlans::NONE,
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 0, 2]),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xC011,
    };
    HeaderTemplate::new(&route).expect("one family")
}

fn write_only(psn: u32) -> Bth {
    let opcode = Opcode::write(Transport::Rc, Position::Only, false);
    Bth::new(opcode, Qpn::new(0x11), Psn::new(psn)).with_ack_request(true)
}

/// A WRITE_ONLY frame with this payload, and where it lies in the buffer.
fn wrapped(payload_len: usize) -> (Vec<u8>, std::ops::Range<usize>) {
    let mut buffer = vec![0x5A; HEADROOM + payload_len + 8];
    let reth = Reth::new(0x1000, Rkey(0x401), payload_len as u32);
    let payload = HEADROOM..HEADROOM + payload_len;
    let frame = template().wrap(&mut buffer, payload, 1, write_only(1), &reth);
    (buffer, frame)
}

fn bench_parse(c: &mut Criterion) {
    let (buffer, range) = wrapped(64);
    let frame = &buffer[range];
    c.bench_function("parse/write_only_64", |b| {
        b.iter(|| {
            let frame = RoceFrame::parse(black_box(frame)).expect("valid");
            let reth = frame.packet.reth().expect("has one");
            black_box((frame.bth().psn.psn(), frame.bth().dest_qpn.qpn(), reth.addr, frame.payload()))
        });
    });
}

fn bench_emit(c: &mut Criterion) {
    let template = template();
    let mut buffer = vec![0x5A; HEADROOM + 64 + 8];
    let reth = Reth::new(0x1000, Rkey(0x401), 64);
    let mut psn = 0;
    c.bench_function("emit/write_only_64_headers", |b| {
        b.iter(|| {
            psn += 1;
            let headroom = black_box(&mut buffer[..HEADROOM]);
            black_box(template.write_headers(headroom, 64, psn as u16, write_only(psn), &reth).start)
        });
    });
    c.bench_function("emit/write_only_64_with_icrc", |b| {
        b.iter(|| {
            psn += 1;
            let payload = HEADROOM..HEADROOM + 64;
            black_box(template.wrap(black_box(&mut buffer), payload, psn as u16, write_only(psn), &reth))
        });
    });
    let aeth = Aeth::new(Syndrome::ACK, 7);
    c.bench_function("emit/ack_with_icrc", |b| {
        b.iter(|| {
            psn += 1;
            let bth = Bth::new(Opcode::RC_ACKNOWLEDGE, Qpn::new(0x11), Psn::new(psn));
            black_box(template.write_frame(black_box(&mut buffer), &[], psn as u16, bth, &aeth))
        });
    });
}

fn bench_icrc(c: &mut Criterion) {
    let mut group = c.benchmark_group("icrc");
    for len in [0, 64, 256, 1024, 4096] {
        let (buffer, range) = wrapped(len);
        let frame = RoceFrame::parse(&buffer[range]).expect("valid");
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("check/{len}"), |b| b.iter(|| black_box(&frame).icrc_ok()));
    }
    group.finish();
}

criterion_group!(benches, bench_parse, bench_emit, bench_icrc);
criterion_main!(benches);
