//! A fingerprint of everything that a result depends on, so that results of two sweeps never mix.

use serde::Serialize;

/// FNV-1a, 64 bits: one pass, the same on every machine.
#[derive(Clone, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Takes in a text.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    /// Takes in a value by its JSON.
    #[must_use]
    pub fn value(self, value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).unwrap_or_else(|error| error.to_string());
        self.text(&text)
    }

    /// As text.
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
