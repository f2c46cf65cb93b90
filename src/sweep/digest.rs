//! Fingerprint of everything that a result depends on, so that results of different sweeps are never mixed.

use serde::Serialize;

/// FNV-1a hash of 64 bits, identical on every machine.
#[derive(Clone, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds a text to the hash.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    /// Adds a value to the hash, as JSON.
    #[must_use]
    pub fn value(self, value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).unwrap_or_else(|error| error.to_string());
        self.text(&text)
    }

    /// Hash as hexadecimal text.
    pub fn hex(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_run_together() {
        let of = |texts: &[&str]| texts.iter().fold(Digest::default(), |digest, text| digest.text(text)).hex();
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab"]), of(&["ab"]));
    }
}
