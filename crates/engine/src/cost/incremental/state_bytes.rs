//! Bytes of model states of the ranks of a pipeline, and their least over shardings.

use crate::cost::moments::Temporary;
use crate::units::Bytes;

/// Bytes of model states of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StateBytes {
    /// Weights and optimizer states.
    pub resident: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Tensors that exist only while the optimizer updates the weights.
    pub update: Bytes,
}

impl StateBytes {
    /// Sum of what is resident outside the update.
    pub fn total(self) -> Bytes {
        self.resident + self.gradients
    }

    /// Minimum, part by part.
    pub fn lesser(self, other: Self) -> Self {
        Self {
            resident: self.resident.min(other.resident),
            gradients: self.gradients.min(other.gradients),
            update: self.update.min(other.update),
        }
    }

    /// Whether no part exceeds that of `other`.
    pub fn within(self, other: Self) -> bool {
        self.resident <= other.resident && self.gradients <= other.gradients && self.update <= other.update
    }
}

/// Lower bound of the bytes of states and unsharded weights of a class of ranks over many shardings. Shardings
/// whose peaks are timed the same way are bounded together; `None` where no sharding has that timing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeastStates {
    /// Bytes where all tensors are resident at once. `resident` then counts states and unsharded weights, and `update`
    /// only what exceeds the unsharded weights.
    pub(super) together: Option<StateBytes>,
    /// Bytes by moment, each part the least of any sharding.
    pub(super) by_moment: Option<MomentBytes>,
}

/// Bytes of model states of a rank whose tensors are resident by moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MomentBytes {
    /// Bytes of the states.
    pub states: StateBytes,
    /// Temporarily unsharded weights and gradients.
    pub unsharded: Temporary,
}

impl MomentBytes {
    /// Minimum, part by part.
    fn lesser(self, other: Self) -> Self {
        Self { states: self.states.lesser(other.states), unsharded: self.unsharded.lesser(other.unsharded) }
    }

    /// Whether no part exceeds that of `other`.
    fn within(self, other: Self) -> bool {
        self.states.within(other.states) && self.unsharded.within(other.unsharded)
    }
}

impl LeastStates {
    /// Bytes of one sharding. `is_by_moment`: its tensors are timed by moment, not all resident at once.
    pub(super) fn new(is_by_moment: bool, states: StateBytes, unsharded: Temporary) -> Self {
        if is_by_moment {
            Self { together: None, by_moment: Some(MomentBytes { states, unsharded }) }
        } else {
            let whole = unsharded.loss + unsharded.backward;
            let update = (states.update - whole).or_zero();
            let together = StateBytes { resident: states.total() + whole, gradients: Bytes::ZERO, update };
            Self { together: Some(together), by_moment: None }
        }
    }

    /// Whether no part is more than that of another with the same timing.
    pub fn within(&self, other: &Self) -> bool {
        self.together.zip(other.together).is_none_or(|(a, b)| a.within(b))
            && self.by_moment.zip(other.by_moment).is_none_or(|(a, b)| a.within(b))
    }

    /// Lower bound over the shardings of both.
    #[must_use]
    pub fn lesser(self, other: Self) -> Self {
        Self {
            together: self.together.into_iter().chain(other.together).reduce(StateBytes::lesser),
            by_moment: self.by_moment.into_iter().chain(other.by_moment).reduce(MomentBytes::lesser),
        }
    }
}
