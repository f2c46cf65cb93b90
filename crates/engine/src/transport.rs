//! Transport of a network between nodes: the share of the wire rate that its collectives reach, and its latency.

use serde::{Deserialize, Serialize};

/// Transport of a network, such as InfiniBand verbs, EFA or Omni-Path.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// Name as printed.
    pub name: String,
    /// Key of the source.
    pub source: String,
    /// Share of the wire rate that collectives reach (specification §3.4).
    pub efficiency: f64,
    /// Latency of a ring's hop, as a multiple of that in the table of specification §3.3.
    pub hop_latency: f64,
}

impl Transport {
    /// Validates the transport.
    ///
    /// # Errors
    ///
    /// Names the field that is out of its range.
    pub fn check(&self) -> Result<(), String> {
        if !(self.efficiency > 0.0 && self.efficiency <= 1.0) {
            return Err(format!("`efficiency` is {}, and must be above 0 and at most 1", self.efficiency));
        }
        if !(self.hop_latency.is_finite() && self.hop_latency >= 0.0) {
            return Err(format!("`hop_latency` is {}, and must be 0 or more", self.hop_latency));
        }
        Ok(())
    }
}
