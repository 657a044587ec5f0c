//! Capture files: frames of many flows, and whether they came out as they went in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Flows in a capture. The last byte of a frame's source address is the flow.
const FLOWS: usize = 50;
/// Magic number, version 2.4, zone, accuracy, longest frame, Ethernet; little-endian.
const FILE_HEADER: [u32; 6] = [0xA1B2_C3D4, 0x0004_0002, 0, 0, 65_535, 1];

/// Frames of UDP over IPv4 and IPv6, with a VLAN tag, without IP, and shorter than Ethernet allows, numbered.
pub fn frames(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(frame).collect()
}

fn frame(number: usize) -> Vec<u8> {
    let flow = (number % FLOWS) as u8;
    let (behind_addresses, sizes): (Vec<u8>, &[usize]) = match flow % 5 {
        0 => (ipv4(flow), &[60, 61, 64, 100, 127, 128, 129, 500, 1000, 1513, 1514]),
        1 => (ipv6(flow), &[64, 80, 128, 129, 1514]),
        2 => ([vec![0x81, 0, 0, flow], ipv4(flow)].concat(), &[64, 129, 1518]),
        3 => (vec![0x88, 0xCC], &[60, 1514]),
        _ => (vec![0x88, 0xCC], &[14, 15, 20, 59]),
    };
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, flow];
    bytes.extend(behind_addresses);
    bytes.resize(sizes[(number / FLOWS) % sizes.len()], number as u8);
    if let Some(at) = bytes.len().checked_sub(4).filter(|at| *at >= 54) {
        bytes[at..].copy_from_slice(&(number as u32).to_be_bytes());
    }
    bytes
}

fn ipv4(flow: u8) -> Vec<u8> {
    let mut bytes = vec![8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 0, 0, 9];
    bytes.extend([4, 0, 4, flow, 0, 20, 0, 0]);
    bytes
}

fn ipv6(flow: u8) -> Vec<u8> {
    let mut bytes = vec![0x86, 0xDD, 0x60, 0, 0, 0, 0, 10, 17, 64];
    bytes.extend([[0xFD; 15].as_slice(), &[flow], &[0xFE; 16], &[4, 0, 4, flow, 0, 10, 0, 0]].concat());
    bytes
}

/// Writes a capture file.
pub fn write(path: &Path, frames: &[Vec<u8>]) {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&FILE_HEADER);
    for frame in frames {
        let len = frame.len() as u32;
        bytes.extend(words(&[0, 0, len, len]));
        bytes.extend(frame);
    }
    fs::write(path, bytes).unwrap();
}

/// The frames of a capture file.
pub fn read(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[24..];
    let mut frames = vec![];
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        frames.push(behind[..len].to_vec());
        rest = &behind[len..];
    }
    frames
}

/// Same frames, in the same order within each flow.
pub fn assert_same(sent: &[Vec<u8>], got: &[Vec<u8>]) {
    let (want, got) = (by_flow(sent), by_flow(got));
    for (flow, want) in &want {
        let got = got.get(flow).map_or(&[][..], Vec::as_slice);
        let same = want.iter().zip(got).take_while(|(a, b)| a == b).count();
        assert_eq!(
            (same, got.len()),
            (want.len(), want.len()),
            "frames of flow {flow} that agree, that came"
        );
    }
    assert_eq!(got.len(), want.len(), "flows");
}

fn by_flow(frames: &[Vec<u8>]) -> BTreeMap<u8, Vec<&[u8]>> {
    let mut flows: BTreeMap<u8, Vec<&[u8]>> = BTreeMap::new();
    for frame in frames {
        flows.entry(frame[11]).or_default().push(frame);
    }
    flows
}
