//! Recomputation of the first layers of each chunk: bounds on how many, by memory and by the Pareto front.

use super::bounded::BoundedPipeline;
use super::explorer::Explorer;
use super::incumbents::Incumbents;
use super::pipelines::SplitFloor;
use super::recomputed::Recomputed;
use super::tables::Recomputes;
use crate::space::Rejection;
use meshwright_engine::cost::incremental::{Price, UnsharedMemory};
use meshwright_engine::plan::{Offload, Plan, Recompute};
use meshwright_engine::schedule::RankBytes;
use meshwright_engine::units::Seconds;

/// Pipeline with the lower bounds (floors) of its splits, and its layers under each recomputation.
#[derive(Clone, Copy)]
pub(super) struct RecomputedSplits<'p> {
    pub bounded: &'p BoundedPipeline<'p>,
    pub floors: &'p [SplitFloor<'p>],
    pub layers: &'p Recomputed<'p>,
}

impl Explorer<'_> {
    /// Fewest first layers that must be recomputed for a plan of the pipeline to fit, by a lower bound of its memory, and the
    /// rejection of the recomputation at index `from` where it does not fit. Memory falls with the number of layers, so
    /// the number is found by bisection; [`Recompute::Full`] where none of the listed numbers fits.
    pub fn fewest_first_layers(&self, splits: RecomputedSplits, from: usize) -> (Recompute, Option<Rejection>) {
        let firsts = firsts(&splits.bounded.entry.recomputes[from..]);
        let reason = firsts.first().and_then(|choice| self.too_large_recomputed(splits, choice));
        let is_too_large = |choice: &Recomputes| self.too_large_recomputed(splits, choice).is_some();
        let at = if reason.is_some() { firsts.partition_point(is_too_large) } else { 0 };
        let fewest = firsts.get(at).map_or(Recompute::Full, |choice| choice.recompute);
        (fewest, reason)
    }

    /// Recomputations of first layers, of those from index `from` on, whose plans the Pareto front dominates.
    /// `soonest` = lower bound of the time of a recomputation's plans.
    ///
    /// ```text
    /// T(n) ≥ T(a),  M(n) ≥ M(b)        for a ≤ n ≤ b first layers recomputed
    /// ```
    ///
    /// One test covers all numbers from a to b; a range that passes it is halved.
    pub fn hopeless_first_layers(
        &self,
        splits: RecomputedSplits,
        from: usize,
        soonest: impl Fn(&Recomputes) -> Seconds,
        best: &Incumbents,
    ) -> Vec<Recompute> {
        let bounded = splits.bounded;
        let firsts = firsts(&bounded.entry.recomputes[from..]);
        let (mut hopeless, mut left) = (Vec::new(), vec![firsts]);
        while let Some(range) = left.pop() {
            let [fewest, ..] = range else { continue };
            let memory = self.least_recomputed(splits, &range[range.len() - 1]).bytes;
            if best.is_hopeless(&bounded.plan.layout, Price { time: soonest(fewest), memory }) {
                hopeless.extend(range.iter().map(|choice| choice.recompute));
            } else if range.len() > 1 {
                let (fewer, more) = range.split_at(range.len() / 2);
                left.extend([fewer, more]);
            }
        }
        hopeless
    }

    /// Rejection of a recomputation of a pipeline by a lower bound of the memory of its plans.
    fn too_large_recomputed(&self, splits: RecomputedSplits, choice: &Recomputes) -> Option<Rejection> {
        let RankBytes { rank, bytes: needed } = self.least_recomputed(splits, choice);
        let available = self.pipelines.hbm_budget;
        (needed > available).then_some(Rejection::OutOfMemory { needed, available, rank })
    }

    /// Lower bound of the memory of the fullest rank of the plans of a recomputation of a pipeline.
    fn least_recomputed(&self, splits: RecomputedSplits, choice: &Recomputes) -> RankBytes {
        let RecomputedSplits { bounded, floors, layers } = splits;
        let BoundedPipeline { ref plan, entry, .. } = *bounded;
        let stages = self.tables.stages(plan, entry, choice.recompute, layers.head(choice.at));
        let floor = floors.iter().find(|floor| floor.last_chunk == stages.last_chunk()).unwrap_or(&floors[0]);
        let offload = Offload { activations: entry.most_offloaded, ..plan.offload };
        let plan = Plan { recompute: choice.recompute, offload, ..plan.clone() };
        let memory =
            UnsharedMemory::new(self.costs, &plan, stages).with_layers(self.costs, &plan, layers.at(choice.at));
        memory.lower_bound(&floor.plan_menu.least)
    }
}

/// Recomputations of first layers at the head of a list.
pub(super) fn firsts(all: &[Recomputes]) -> &[Recomputes] {
    let count = all.iter().take_while(|choice| matches!(choice.recompute, Recompute::FirstLayers(_))).count();
    &all[..count]
}
