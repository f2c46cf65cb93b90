//! Model states of one rank.

use crate::units::Bytes;

/// Model states of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct States {
    /// Weights that the GEMMs read.
    pub weights: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Master weights and moments.
    pub optimizer: Bytes,
    /// Tensors beside these while the optimizer updates them.
    pub update: Bytes,
}

impl States {
    /// Bytes of all that stays from step to step.
    pub fn total(self) -> Bytes {
        self.weights + self.gradients + self.optimizer
    }
}

/// Bytes of one weight on a rank that holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightBytes {
    /// Of a layer.
    pub layer: f64,
    /// Of the embedding or the head.
    pub table: f64,
}
