//! Sources of values, and the basis of predictions.

use serde::{Deserialize, Serialize};

/// Value with the key of its source in `docs/sources.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// Value itself.
    pub value: T,
    /// Key of the source in `docs/sources.toml`.
    pub source: String,
}

/// Basis of a predicted time, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Measured on this device.
    Measured,
    /// Predicted from curves fitted to public measurements of this device.
    Calibrated,
    /// Predicted from a datasheet and the curves of a related device.
    Datasheet,
}

impl Basis {
    /// Basis of a sum: that of its weakest term.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        self.max(other)
    }
}

impl std::fmt::Display for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Calibrated => "calibrated",
            Self::Datasheet => "datasheet",
        })
    }
}
