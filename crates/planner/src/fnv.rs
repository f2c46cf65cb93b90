//! Hashes that are the same on every platform and in every release.

/// FNV-1a hash of 64 bits of the bytes added so far.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes to the hash.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        const PRIME: u64 = 0x0100_0000_01b3;
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)))
    }

    /// Hash as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Hash as hexadecimal text.
    pub fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Fnv;

    /// Vectors of the algorithm's authors (draft-eastlake-fnv, appendix C).
    #[test]
    fn hashes_are_those_of_the_published_vectors() {
        let hash = |text: &str| Fnv::default().bytes(text.as_bytes());
        assert_eq!(hash("").hex(), "cbf29ce484222325");
        assert_eq!(hash("a").get(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar").get(), 0x8594_4171_f739_67e8);
        assert_eq!(hash("foo").bytes(b"bar").get(), hash("foobar").get());
    }
}
