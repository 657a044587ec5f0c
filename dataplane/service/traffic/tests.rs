use super::frame::{Addressing, Proto, Shape, TAG_LEN, Tag};
use crate::classify::{Classifier, FrameKind};
use std::collections::HashSet;
use zerocopy::IntoBytes;

const PROTOS: [Proto; 5] = [Proto::UdpV4, Proto::TcpV4, Proto::UdpV6, Proto::TcpV6, Proto::Other];

const ADDRESSING: Addressing =
    Addressing { source_mac: [2, 0, 0, 0, 0, 1], destination_mac: [2, 0, 0, 0, 0, 2] };

fn frame(shape: Shape, flow: u32, sequence: u32, length: usize) -> Vec<u8> {
    let mut out = vec![0x5A; length];
    let at = ADDRESSING.write(shape, flow, &mut out);
    let tag = Tag::new(flow, sequence, &out[at + TAG_LEN..]);
    out[at..at + TAG_LEN].copy_from_slice(tag.as_bytes());
    out
}

#[test]
fn a_frame_is_read_back_and_damage_is_seen() {
    for vlan in [None, Some(5)] {
        for proto in PROTOS {
            let shape = Shape { proto, vlan };
            for length in [shape.shortest(), 1514, 9000] {
                let mut f = frame(shape, 0x0300_0007, 9, length);
                let at = Addressing::tag_offset(&f).expect("a tag");
                let (tag, intact) = Tag::read(&f[at..]).expect("a tag");
                assert!(intact && (tag.flow(), tag.sequence()) == (0x0300_0007, 9));
                *f.last_mut().unwrap() ^= 1;
                assert!(!Tag::read(&f[at..]).unwrap().1, "{proto:?} of {length}");
            }
        }
    }
}

#[test]
fn flows_are_distinct_tuples_of_the_right_kind() {
    let c = Classifier::new(3);
    for proto in PROTOS {
        let kind = match proto {
            Proto::UdpV4 | Proto::TcpV4 => FrameKind::Ipv4,
            Proto::UdpV6 | Proto::TcpV6 => FrameKind::Ipv6,
            Proto::Other => FrameKind::Other,
        };
        let flows: HashSet<u64> = (0..70_000u32)
            .map(|i| i << 10 | i >> 7)
            .map(|flow| {
                let seen = c.classify(&frame(Shape { proto, vlan: None }, flow, 0, 100));
                assert_eq!(seen.kind, kind);
                seen.signature
            })
            .collect();
        let numbers: HashSet<u32> = (0..70_000u32).map(|i| i << 10 | i >> 7).collect();
        assert_eq!(flows.len(), numbers.len(), "{proto:?}");
    }
}

#[test]
fn the_ipv4_checksum_is_right() {
    let f = frame(Shape { proto: Proto::UdpV4, vlan: None }, 0x00FF_FFFF, 0, 60);
    let sum: u32 = f[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
}
