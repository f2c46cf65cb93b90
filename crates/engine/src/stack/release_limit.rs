//! Limits of a release of a framework.

use serde::{Deserialize, Serialize};

/// Values of one key of a plan that a release has, where other releases of its framework have more.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseLimit {
    /// The values, as `--fix` writes them: `cp=1`, `recompute=none,full`.
    pub values: String,
    /// Reason: the change that brought the others, and when.
    pub why: String,
    /// Key of the source.
    pub source: String,
}
