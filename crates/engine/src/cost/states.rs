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
    /// Tensors that exist only while the optimizer updates the states.
    pub update: Bytes,
}

impl States {
    /// Bytes of the states that stay from step to step.
    pub fn total(self) -> Bytes {
        self.weights + self.gradients + self.optimizer
    }
}

/// Bytes of one weight on a rank that has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightBytes {
    /// Weight of a layer.
    pub layer: f64,
    /// Weight of the embedding or the head.
    pub table: f64,
}
