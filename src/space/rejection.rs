//! Why a plan cannot run.

use crate::units::Bytes;

/// Why a plan cannot run.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The batch does not divide.
    #[error("a global batch of {batch} does not divide over dp={dp}")]
    Batch {
        /// Sequences.
        batch: u32,
        /// Replicas.
        dp: u32,
    },
    /// Too large.
    #[error("needs {needed} of HBM, {available} may be filled")]
    OutOfMemory {
        /// Needed.
        needed: Bytes,
        /// Available.
        available: Bytes,
    },
}

impl Rejection {
    /// The rule's name.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Batch { .. } => "batch",
            Self::OutOfMemory { .. } => "out-of-memory",
        }
    }
}
