//! Captured frames: the project's own captures and the checked vectors.

const VECTORS: &str = include_str!("../../../../tests/data/roce/vectors.txt");
const CAPTURES: [&[u8]; 3] = [
    include_bytes!("../../../../tests/data/roce/rxe61-ipv4.pcap"),
    include_bytes!("../../../../tests/data/roce/rxe61-ipv6.pcap"),
    include_bytes!("../../../../tests/data/roce/rxe61-active-cm-rping.pcap"),
];

/// The frames of vectors.txt.
pub(super) fn vectors() -> Vec<Vec<u8>> {
    let lines = VECTORS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(unhex).collect()
}

/// The vector whose comment contains `words`.
pub(super) fn vector(words: &str) -> Vec<u8> {
    let mut lines = VECTORS.lines();
    lines.find(|line| line.starts_with('#') && line.contains(words)).expect("a vector of that name");
    unhex(lines.next().expect("a frame after the comment"))
}

fn unhex(line: &str) -> Vec<u8> {
    let (pairs, rest) = line.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(byte).collect()
}

/// Every frame of the captures (little-endian pcap files, frames not cut short).
pub(super) fn captured() -> impl Iterator<Item = &'static [u8]> {
    CAPTURES.into_iter().flat_map(|file| Records { rest: &file[24..] })
}

struct Records {
    rest: &'static [u8],
}

impl Iterator for Records {
    type Item = &'static [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.rest.split_at_checked(16)?;
        let len = u32::from_le_bytes(*header[8..].first_chunk()?);
        let (frame, rest) = rest.split_at(len as usize);
        self.rest = rest;
        Some(frame)
    }
}
