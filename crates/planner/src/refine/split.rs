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

/// Fastest split of a program so far, with its step time.
#[derive(Clone, Debug)]
pub(super) struct Incumbent {
    /// Step time in seconds.
    pub step: f64,
    /// The split.
    pub split: StagedSplit,
}

impl Incumbent {
    /// Step time that a better split must beat: that of the incumbent, if there is one and it is less than `cutoff`; seconds.
    pub fn lower(incumbent: Option<&Self>, cutoff: f64) -> f64 {
        incumbent.map_or(cutoff, |incumbent| incumbent.step.min(cutoff))
    }
}

/// Incumbent of one program with a lower bound.
pub(super) struct Solution {
    /// Incumbent; none where no split was found.
    pub best: Option<Incumbent>,
    /// Lower bound on the step time of every split.
    pub bound: f64,
    /// Number of splits that were evaluated.
    pub evaluated: usize,
    /// Whether a limit on the work ended the search.
    pub cut_short: bool,
}

impl Solution {
    /// Step time of the incumbent, or `cutoff` if that is less; seconds.
    pub fn step_time(&self, cutoff: f64) -> f64 {
        Incumbent::lower(self.best.as_ref(), cutoff)
    }
}

/// Parameters of a stage or of some layers on their rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageParameters {
    /// All but the routed experts.
    pub dense: f64,
    /// Routed experts.
    pub experts: f64,
}

impl StageParameters {
    /// Dense parameters and experts together.
    pub const fn total(self) -> f64 {
        self.dense + self.experts
    }

    /// The larger of both, part by part.
    pub fn max(self, other: Self) -> Self {
        Self { dense: self.dense.max(other.dense), experts: self.experts.max(other.experts) }
    }
}

impl Add for StageParameters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { dense: self.dense + other.dense, experts: self.experts + other.experts }
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
