//! Pipelines of a shape that are left to explore.

use super::bounded::{BoundedPipeline, PipelineBound};
use super::certificate::Counts;
use super::explorer::Explorer;
use super::frontier::Ready;
use super::recomputed::Recomputed;
use super::state::SearchState;
use super::tables::SearchShape;
use crate::space::Rejection;

impl Explorer<'_> {
    /// Pipelines of a shape that may enter the answer, by ascending bound; of equal bounds in the order of the space.
    pub(super) fn open_pipelines(
        &self,
        shape: &SearchShape,
        layers: &Recomputed,
        ready: &Ready,
        found: &mut SearchState,
    ) -> Vec<BoundedPipeline<'_>> {
        // A search for the nearest plan leaves out the layouts whose states alone are more than the known best's memory.
        let nearest = if ready.most.is_none() { found.best.most_memory() } else { None };
        let most = ready.most.or(nearest);
        let layouts = self.pipelines.layouts(shape, most, &found.best, &mut Counts::default());
        let mut open = Vec::new();
        for layout in &layouts {
            // What is illegal or too large of the layouts that were bounded with the shape was counted then.
            let is_counted = ready.next.is_none_or(|next| layout.key() < next);
            if found.best.is_hopeless(&layout.plan.layout, layout.bound) {
                continue;
            }
            let mut counts = Counts::default();
            let mut too_slow = 0;
            let is_open = |pipeline: &PipelineBound| {
                let is_next = !is_counted || pipeline.key >= ready.first;
                let is_hopeless = found.best.is_hopeless(&layout.plan.layout, pipeline.price);
                too_slow += if is_next && is_hopeless { pipeline.plans } else { 0 };
                is_next && !is_hopeless
            };
            let (pipelines, left_out) = self.pipelines.of_layout(layout, layers, most, &mut counts, is_open);
            open.extend(pipelines);
            found.counts.flow += too_slow;
            if nearest.is_some() {
                found.counts.flow += left_out;
            } else if !is_counted {
                counts.reject_without_example(Rejection::OUT_OF_MEMORY, left_out);
            }
            if !is_counted {
                found.counts.add(counts);
            }
        }
        open.sort_by_cached_key(BoundedPipeline::key);
        open
    }
}
