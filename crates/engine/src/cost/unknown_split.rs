//! Imported runs whose source does not state the split of layers over stages: their ranks are priced by the pipeline's mean.
//!
//! Frameworks differ in which rank gets one layer less, the first and the last rank also hold the embedding and the head, and
//! published peaks of uneven splits follow the mean. So memory counts no rank below the mean, and ZeRO 3 spreads its layers
//! evenly. Plans that are searched, explained or written have a definite split; only their interval under an assumed network is priced this way,
//! as the runs are that it comes from.

use std::borrow::Cow;

use super::costs::Costs;
use super::counts::{Counted, StageCounts};
use super::data::RankParameters;
use super::runs::{PerKind, Runs};
use super::work::Work;
use crate::plan::Plan;
use crate::split::LayerSplit;
use crate::units::Bytes;

impl Costs<'_> {
    /// Costs that price plans as published runs whose split is not known: by the mean of their pipeline.
    #[must_use]
    pub const fn with_unknown_splits(mut self) -> Self {
        self.splits_unknown = true;
        self
    }

    /// Layers of ranks that all hold an even share.
    pub(super) fn even_counts(&self, plan: &Plan) -> StageCounts {
        self.stage_counts(&Plan { split: LayerSplit::Even, ..plan.clone() }, None, Counted::Ranks)
    }

    /// Layers by which a rank is below the mean L/p, where splits are not known; 0 otherwise.
    fn shortfall(&self, counts: &StageCounts, rank: u32) -> f64 {
        if !self.splits_unknown {
            return 0.0;
        }
        let mean = f64::from(self.problem.model().layers()) / f64::from(counts.ranks.places());
        (mean - counts.ranks.at(rank).iter().sum::<f64>()).max(0.0)
    }

    /// Layers of each kind among `layers` layers of the mean composition of the model.
    fn mean_layers(&self, layers: f64) -> PerKind {
        let all = f64::from(self.problem.model().layers());
        self.kind_counts().iter().map(|&count| layers * f64::from(count) / all).collect()
    }

    /// Parameters of a rank, those of its layers raised to the mean of the pipeline.
    pub(super) fn raised_to_mean(
        &self,
        parameters: RankParameters,
        counts: &StageCounts,
        rank: u32,
        plan: &Plan,
    ) -> RankParameters {
        let shortfall = self.shortfall(counts, rank);
        if shortfall <= 0.0 {
            return parameters;
        }
        let of_kind = |kind| RankParameters::of_layer(self.layer_parameters(kind), &plan.layout);
        let shortfall = self.mean_layers(shortfall).into_iter().enumerate().filter(|(_, times)| *times > 0.0);
        shortfall.fold(parameters, |sum, (kind, times)| sum.plus(&of_kind(kind), times))
    }

    /// Layers of each choice on each rank as its activations count them: where splits are not known, without multi-token
    /// prediction, and under `DualPipe` the mean of the two stages that a rank runs half of its micro-batches through.
    pub(super) fn resident_layers<'c>(&self, plan: &Plan, counts: &'c StageCounts) -> Cow<'c, Runs> {
        if !self.splits_unknown {
            return counts.all_on_ranks(plan);
        }
        if plan.pipeline().distinct_ranks() == plan.layout.pp {
            return Cow::Borrowed(&counts.ranks);
        }
        let mean = |(a, b): (&PerKind, &PerKind)| (a.iter().zip(b).map(|(a, b)| f64::midpoint(*a, *b)).collect(), 1);
        Cow::Owned(counts.ranks.each().zip(counts.ranks.each().rev()).map(mean).collect())
    }

    /// Activations of the layers by which a rank is below the mean; `kept` holds the bytes of one layer of each choice.
    pub(super) fn shortfall_activations(&self, counts: &StageCounts, rank: u32, kept: &[Bytes]) -> Bytes {
        let shortfall = self.shortfall(counts, rank);
        if shortfall <= 0.0 {
            return Bytes::ZERO;
        }
        self.mean_layers(shortfall).iter().zip(kept).map(|(times, bytes)| *bytes * *times).sum()
    }

    /// Where splits are not known, all of a rank's compute hides its expert traffic, whichever of its layers exchange.
    pub(super) fn expose_by_rank(&self, plan: &Plan, works: &mut [Work]) {
        if self.splits_unknown {
            for work in works {
                work.ep_exposed = self.exposed_beside(work);
                self.expose_alone(plan, work);
            }
        }
    }

    /// Ranks whose update may be the longest: all, or the one with the most parameters where splits are not known.
    pub(super) const fn updating<'p>(
        &self,
        parameters: &'p [RankParameters],
        heaviest: &'p RankParameters,
    ) -> &'p [RankParameters] {
        if self.splits_unknown { std::slice::from_ref(heaviest) } else { parameters }
    }
}
