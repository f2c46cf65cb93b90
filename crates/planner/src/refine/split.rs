//! Splits of the layers into stages, and the best of one program.

use std::ops::{Add, Sub};

/// Split of the layers into stages, with the load of each stage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StagedSplit {
    /// First item of each stage, and the number of items at the end.
    pub cuts: Vec<usize>,
    /// Load of each stage.
    pub loads: Vec<StageLoad>,
}

/// Incumbent of one program with a lower bound.
pub(super) struct Solution {
    /// Incumbent and its step time; none where no split was found.
    pub best: Option<(f64, StagedSplit)>,
    /// Lower bound on the step time of every split.
    pub bound: f64,
    /// Number of splits that were evaluated.
    pub evaluated: usize,
    /// Whether a limit on the work ended the search.
    pub cut_short: bool,
}

impl Solution {
    /// Step time of the incumbent, or a `known` one if that is less; seconds.
    pub fn least(&self, known: f64) -> f64 {
        self.best.as_ref().map_or(known, |(time, _)| time.min(known))
    }
}

/// Times of a stage or of some layers for one micro-batch, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageSeconds {
    /// Forward time without hidden traffic.
    pub forward: f64,
    /// Backward time with recomputation, without hidden traffic.
    pub backward: f64,
    /// Time of weight gradients, a part of backward.
    pub wgrad: f64,
    /// Expert traffic that pairs may hide.
    pub traffic: f64,
}

impl StageSeconds {
    /// These times joined with others, part by part.
    fn joined(self, other: Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            forward: join(self.forward, other.forward),
            backward: join(self.backward, other.backward),
            wgrad: join(self.wgrad, other.wgrad),
            traffic: join(self.traffic, other.traffic),
        }
    }

    /// The longer of both, part by part.
    pub fn max(self, other: Self) -> Self {
        self.joined(other, f64::max)
    }
}

impl Add for StageSeconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.joined(other, |a, b| a + b)
    }
}

impl Sub for StageSeconds {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.joined(other, |a, b| a - b)
    }
}

/// Times in seconds and bytes of one stage for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageLoad {
    /// Forward time without hidden traffic.
    pub forward: f64,
    /// Backward time with recomputation, without hidden traffic.
    pub backward: f64,
    /// Time of weight gradients, a part of backward.
    pub wgrad: f64,
    /// Expert traffic that pairs may hide.
    pub traffic: f64,
    /// Mean time that a micro-batch occupies its rank, a lower bound.
    pub busy: f64,
    /// Bytes kept for one micro-batch.
    pub kept: f64,
    /// Working set of whole recomputed layers.
    pub working_set: f64,
    /// Upper bound on the backward time that thinning the frontier has added.
    pub slack: f64,
    /// Index in its frontier; none for the fastest options.
    pub point: Option<usize>,
}
