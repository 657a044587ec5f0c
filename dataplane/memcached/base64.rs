//! Base64 of binary keys, with the standard alphabet and padding, as lenient as memcached: bytes that are not of the
//! alphabet are passed over.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Six bits of a character; padding counts as zero.
fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Decodes into `out` and says how many bytes; `None` when nothing comes out, the text is no multiple of four, its
/// padding is wrong, or there is no room.
pub fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let characters = || text.iter().filter_map(|&b| sextet(b).map(|bits| (b, bits)));
    let count = characters().count();
    if count == 0 || count % 4 != 0 || count / 4 * 3 > out.len() {
        return None;
    }
    let (mut length, mut group, mut in_group, mut padding) = (0, 0_u32, 0, 0);
    for (byte, bits) in characters() {
        group = group << 6 | bits;
        in_group += 1;
        padding += usize::from(byte == b'=');
        if in_group == 4 {
            out[length..length + 3].copy_from_slice(&group.to_be_bytes()[1..]);
            length += 3;
            (group, in_group) = (0, 0);
            if padding > 2 {
                return None;
            }
            if padding > 0 {
                length -= padding;
                break;
            }
        }
    }
    Some(length)
}

/// Calls `put` with four characters for every three bytes.
pub fn encode(bytes: &[u8], mut put: impl FnMut(&[u8])) {
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, &b| group << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        let mut characters = [b'='; 4];
        for (index, character) in characters.iter_mut().take(chunk.len() + 1).enumerate() {
            *character = ALPHABET[(group >> (18 - 6 * index)) as usize & 63];
        }
        put(&characters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut text = vec![];
        encode(bytes, |four| text.extend_from_slice(four));
        text
    }

    #[test]
    fn samples() {
        for (bytes, text) in
            [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encoded(bytes.as_bytes()), text.as_bytes());
        }
        let mut out = [0; 16];
        for text in ["", "Zg=", "Zm9", "====", "Z===", "!!!!", "Zm9vZm9vZm9vZm9vZm9vZm9v"] {
            assert_eq!(decode(text.as_bytes(), &mut out), None, "{text}");
        }
        assert_eq!(decode(b"Z!m-9v", &mut out), Some(3));
        assert_eq!(&out[..3], b"foo");
    }

    proptest! {
        #[test]
        fn decodes_what_it_encodes(bytes in proptest::collection::vec(any::<u8>(), 1..180)) {
            let mut out = [0; 250];
            prop_assert_eq!(decode(&encoded(&bytes), &mut out), Some(bytes.len()));
            prop_assert_eq!(&out[..bytes.len()], &bytes[..]);
        }

        #[test]
        fn takes_any_text(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&text, &mut [0; 60]);
        }
    }
}
