//! Where a value comes from, and how surely a prediction is known.

use serde::{Deserialize, Serialize};

/// A value with the key of its source in `docs/sources.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Key of the source in `docs/sources.toml`.
    pub source: String,
}

/// How a predicted time was come by, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Timed on this very device.
    Measured,
    /// From curves fitted to public measurements of the same device.
    Calibrated,
    /// From a datasheet and the curves of a relative.
    Datasheet,
}

impl Basis {
    /// A sum is only as good as its weakest term.
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
