//! Pruning of pipelines in a search for a Pareto front, by lower bounds of time and memory under each recomputation.
//!
//! ```text
//! (T(r), M(r)) dominated for each recomputation r       T ≤ time of the flow, M ≤ memory of the first rank
//! ```
//!
//! One pair of bounds over all recomputations would prune few pipelines: the recomputation with the least time needs the most
//! memory.

use smallvec::SmallVec;

use super::bounded::BoundedPipeline;
use super::first_layers::firsts;
use super::incumbents::Incumbents;
use super::on_host::shares_on_host;
use super::pipelines::Pipelines;
use super::recomputed::Recomputed;
use super::tables::Recomputes;
use meshwright_engine::cost::incremental::{FirstRank, Layers, Price, Stages, least_parameters, least_time_of_flow};
use meshwright_engine::plan::{Offload, Plan, Recompute, ZeroStage};
use meshwright_engine::units::Bytes;

impl Pipelines<'_> {
    /// Whether the Pareto front dominates every plan of a pipeline; false in a search with an objective. Plans over `most` bytes
    /// count as dominated: that is the memory budget once a plan over it was met, which the answer shows as an example.
    pub fn is_dominated(
        &self,
        bounded: &BoundedPipeline,
        layers: &Recomputed,
        most: Option<Bytes>,
        best: &Incumbents,
    ) -> bool {
        let BoundedPipeline { ref plan, entry, stages: own, .. } = *bounded;
        let is_testable = best.objective().is_none() && !self.tables.engines(plan.layout.pp).gathered;
        if !is_testable
            || self.costs.is_by_moment(plan)
            || plan.schedule.is_bidirectional()
            || !self.has_same_split(bounded, layers)
        {
            return false;
        }
        let plan = Plan { offload: Offload { activations: entry.most_offloaded, ..plan.offload }, ..plan.clone() };
        let first = FirstRank::new(self.costs, &plan, own, self.states_of_first(&plan, own));
        // Whether all plans that take at least the time of one bound and the memory of another are dominated.
        let is_excluded = |time: (&Layers, &Stages), memory: (Recompute, &Layers, &Stages)| {
            let time = least_time_of_flow(self.costs, &plan, time.0, time.1, &bounded.around) + bounded.ends.replicated;
            let recomputing = Plan { recompute: memory.0, ..plan.clone() };
            let memory = first.memory_bound(self.costs, &recomputing, memory.1, memory.2).max(bounded.memory);
            most.is_some_and(|most| memory > most) || best.is_hopeless(&plan.layout, Price { time, memory })
        };
        let is_first = |choice: &Recomputes| matches!(choice.recompute, Recompute::FirstLayers(_));
        let from = entry.recomputes.iter().position(is_first).unwrap_or(entry.recomputes.len());
        let (before, others) = entry.recomputes.split_at(from);
        let (first_layers, after) = others.split_at(firsts(others).len());
        let groups = layers.groups();
        let mut known_groups: SmallVec<[Option<bool>; 16]> = SmallVec::from_elem(None, groups.len());
        let is_group_excluded =
            |group: usize| is_excluded((groups.floor(group), own), (Recompute::None, groups.floor(group), own));
        let mut is_choice_excluded = |choice: &Recomputes| {
            let (layers, of_group) = (layers.at(choice.at), |group: usize| {
                *known_groups[group].get_or_insert_with(|| is_group_excluded(group))
            });
            groups.group_of(choice.at).is_some_and(of_group)
                || is_excluded((layers, own), (choice.recompute, layers, own))
        };
        let stages =
            |choice: &Recomputes| self.tables.stages(&bounded.plan, entry, choice.recompute, layers.head(choice.at));
        let are_firsts_excluded = |fewest: &Recomputes, most: &Recomputes| {
            let layers = layers.at(fewest.at);
            is_excluded((layers, stages(fewest)), (most.recompute, layers, stages(most)))
        };
        let mut others = before.iter().chain(after);
        others.all(
            |choice| if is_first(choice) { are_firsts_excluded(choice, choice) } else { is_choice_excluded(choice) },
        ) && all_excluded(first_layers, &are_firsts_excluded)
    }

    /// Whether all recomputations of a pipeline have one split of the layers over the virtual stages.
    fn has_same_split(&self, bounded: &BoundedPipeline, layers: &Recomputed) -> bool {
        let last = |head: f64| Stages::last_chunk_of(self.costs, &bounded.plan, head);
        let (least, most) = layers.range_of_heads();
        bounded.has_one_split() || last(least) == last(most)
    }

    /// Lower bound of the bytes of the states of a pipeline's first rank, over all shardings.
    fn states_of_first(&self, plan: &Plan, stages: &Stages) -> Bytes {
        let has_hosts = self.space.most_optimizer_on_host() > 0.0;
        let of_layers = has_hosts.then(|| least_parameters(self.costs, plan));
        let of_stage = |zero: ZeroStage| {
            let plan = Plan { zero, shard_group: None, ..plan.clone() };
            let most = of_layers.map_or(Some(0.0), |parameters| {
                shares_on_host(self.space, &plan, &parameters).iter().copied().reduce(f64::max)
            });
            let offload = Offload { optimizer: most?, ..plan.offload };
            Some(stages.states_of_first(self.costs, &Plan { offload, ..plan }))
        };
        self.space.zero_stages(plan.layout.pp).into_iter().filter_map(of_stage).reduce(Bytes::min).unwrap_or_default()
    }
}

/// Whether every number of first layers in a range is excluded, by bisection. `are_excluded(fewest, most)` tests the numbers
/// between two at once: the fewest take the least time, the most need the least memory.
fn all_excluded(range: &[Recomputes], are_excluded: &impl Fn(&Recomputes, &Recomputes) -> bool) -> bool {
    let ([fewest, ..], [.., most]) = (range, range) else { return true };
    are_excluded(fewest, most)
        || range.len() > 1 && {
            let (fewer, more) = range.split_at(range.len() / 2);
            all_excluded(fewer, are_excluded) && all_excluded(more, are_excluded)
        }
}
