//! Fingerprint of everything that a result depends on, so that results of different sweeps are never mixed.

use meshwright_planner::fnv::Fnv;
use serde::Serialize;

/// Hash of texts and values, identical on every machine; a zero byte ends each text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digest(Fnv);

impl Digest {
    /// Adds a text to the hash.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        Self(self.0.bytes(text.as_bytes()).bytes(&[0]))
    }

    /// Adds a value to the hash, as JSON.
    #[must_use]
    pub fn value(self, value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).unwrap_or_else(|error| error.to_string());
        self.text(&text)
    }

    /// Hash as hexadecimal text.
    pub fn hex(self) -> String {
        self.0.hex()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_run_together() {
        let digest_of = |texts: &[&str]| texts.iter().fold(Digest::default(), |digest, text| digest.text(text)).hex();
        assert_ne!(digest_of(&["ab", "c"]), digest_of(&["a", "bc"]));
        // FNV-1a of the bytes `ab\0`: results on disk hold digests, which stay the same.
        assert_eq!(digest_of(&["ab"]), "e72003190541fc1e");
    }
}
