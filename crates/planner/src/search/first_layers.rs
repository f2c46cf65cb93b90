//! Recomputation of the first layers of each chunk: how many must be recomputed for the plans of a pipeline to fit.

use super::bounded::BoundedPipeline;
use super::explorer::Explorer;
use super::pipelines::SplitFloor;
use super::recomputed::Recomputed;
use super::tables::Recomputes;
use crate::space::Rejection;
use meshwright_engine::cost::incremental::UnsharedMemory;
use meshwright_engine::plan::{Offload, Plan, Recompute};

impl Explorer<'_> {
    /// Fewest first layers whose recomputation may leave the plans of a pipeline small enough, and the rejection of the first of its
    /// recomputations from `from` on if that is fewer. The more layers are recomputed, the fewer bytes are kept.
    pub fn fewest_first_layers(
        &self,
        of_pipeline: (&BoundedPipeline, &[SplitFloor], &Recomputed),
        from: usize,
    ) -> (Recompute, Option<Rejection>) {
        let all = &of_pipeline.0.entry.recomputes[from..];
        let count = all.iter().take_while(|choice| matches!(choice.recompute, Recompute::FirstLayers(_))).count();
        let firsts = &all[..count];
        let reason = firsts.first().and_then(|choice| self.too_large_recomputed(of_pipeline, choice));
        let is_too_large = |choice: &Recomputes| self.too_large_recomputed(of_pipeline, choice).is_some();
        let at = if reason.is_some() { firsts.partition_point(is_too_large) } else { 0 };
        let fewest = firsts.get(at).map_or(Recompute::Full, |choice| choice.recompute);
        (fewest, reason)
    }

    /// Rejection of a recomputation of a pipeline by a lower bound of the memory of its plans.
    fn too_large_recomputed(
        &self,
        (bounded, floors, layers): (&BoundedPipeline, &[SplitFloor], &Recomputed),
        choice: &Recomputes,
    ) -> Option<Rejection> {
        let BoundedPipeline { ref plan, entry, .. } = *bounded;
        let stages = self.tables.stages(plan, entry, choice.recompute, layers.head(choice.at));
        let floor = floors.iter().find(|floor| floor.last_chunk == stages.last_chunk()).unwrap_or(&floors[0]);
        let offload = Offload { activations: entry.most_offloaded, ..plan.offload };
        let plan = Plan { recompute: choice.recompute, offload, ..plan.clone() };
        let memory = UnsharedMemory::new(self.costs, &plan, stages).of(self.costs, &plan, layers.at(choice.at));
        let (needed, rank) = memory.least(&floor.plan_menu.least);
        let available = self.pipelines.budget;
        (needed > available).then_some(Rejection::OutOfMemory { needed, available, rank })
    }
}
