/// The Internet checksum (RFC 1071) over bytes that arrive in pieces.
///
/// Every piece but the last must have an even length.
#[derive(Clone, Copy, Default, Debug)]
pub struct InternetChecksum(u64);

impl InternetChecksum {
    /// Nothing summed yet.
    #[inline]
    pub const fn new() -> Self {
        InternetChecksum(0)
    }

    /// With `bytes` added.
    #[inline]
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let mut sum = self.0;
        for &pair in pairs {
            sum += u64::from(u16::from_be_bytes(pair));
        }
        if let [last] = rest {
            sum += u64::from(*last) << 8;
        }
        InternetChecksum(sum)
    }

    /// With one 16-bit word added.
    #[inline]
    #[must_use]
    pub const fn with_word(self, word: u16) -> Self {
        InternetChecksum(self.0 + word as u64)
    }

    /// The ones' complement of the ones' complement sum; 0 when a valid checksum was summed in.
    #[inline]
    pub const fn finish(self) -> u16 {
        let sum = (self.0 & 0xFFFF_FFFF) + (self.0 >> 32);
        let sum = (sum & 0xFFFF) + (sum >> 16);
        let sum = (sum & 0xFFFF) + (sum >> 16);
        let sum = (sum & 0xFFFF) + (sum >> 16);
        !(sum as u16)
    }
}

/// The Internet checksum of `bytes`, as it is stored in ICMP.
#[inline]
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    InternetChecksum::new().with(bytes).finish()
}
