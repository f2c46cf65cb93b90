//! Host time of a layer: what launching its operators takes.

use super::costs::Costs;
use super::layer::{MOE_LAUNCHES, PassTimes, graphs_between_counts, local_experts};
use super::operators::{relative_operators, relative_operators_from_dispatch, relative_operators_of_attention};
use super::work::Work;
use crate::kernel::PerPass;
use crate::model::{Ffn, Layer, Mixer, Moe};
use crate::plan::{Plan, Recompute};
use crate::units::Seconds;

impl Costs<'_> {
    /// Adds the wait of a layer for the host beyond its other work, so that it takes no less than its operators take to launch. Routing,
    /// permutation and dispatch of experts are many small ones; those on PyTorch's sharded tensors are dispatched in Python.
    ///
    /// ```text
    /// F ≥ (w·(n_f + 14)·o_f + v·n_f + g·r)·t_x86 + n_e·E_loc·t_host                     w = `stack.launches.expert_layer`
    /// B ≥ (w·((n_b + 20)·o_b + n_again·o_f) + v·n_s + g·r)·t_x86 + 2·n_e·E_loc·t_host   v = `stack.launches.sharded_layer`
    /// F ≥ ((p + v)·n_f + r)·t_x86                                                       p = `stack.launches.plain_layer`
    /// B ≥ ((p + v)·n_s + r)·t_x86                                                       n_s = n_b + n_again
    /// ```
    ///
    /// The first two hold for layers with experts, the others for those without. o_f, o_b: [`relative_operators`]. r: [`Self::replay`], g:
    /// [`graphs_between_counts`]. n_again: [`Self::recomputed_launches`]. Launches of experts count where the host reads their tokens first,
    /// and again under full recomputation. v, of tensor parallelism, is halved where experts, which are plain tensors, take the place of an
    /// MLP, and p where a layer has one part only. CUDA graphs leave a share of what they hold (`stack.graph_scope`). Evidence:
    /// docs/cost-model.md, "Host time of a layer with experts", "Host time of a replay", "Host time of a layer without experts" and "Host
    /// time of sharded tensors".
    pub(super) fn wait_for_layer(&self, kind: usize, work: &mut Work, plan: &Plan) {
        let launches = &self.device.stack.launches;
        let layer = &self.problem.model().kinds[kind];
        let mut least = match layer.moe() {
            Some(moe) => self.launched_with_experts(layer, moe, plan),
            None => self.launched_without_experts(layer, plan),
        };
        if plan.layout.tp > 1 {
            let weight = launches.sharded_layer * if layer.moe().is_some() { 0.5 } else { 1.0 };
            let again = Self::recomputed_launches(plan.recompute, launches.forward);
            let left = self.left_by_graphs(plan.recompute, true);
            least.forward += weight * launches.forward * left;
            least.backward += weight * (launches.backward + again) * left;
        }
        let replay = self.replay(plan.recompute) * graphs_between_counts(layer);
        let experts = layer.moe().map_or(PassTimes::default(), |moe| self.launched_experts(moe, plan));
        let time = |launched: f64, experts: Seconds| launches.python_time(launched + replay) + experts;
        work.host.forward += (time(least.forward, experts.forward) - work.forward()).or_zero();
        work.host.backward += (time(least.backward, experts.backward) - work.backward() - work.ep_exposed).or_zero();
    }

    /// Launches of a layer with experts but for those of the experts themselves. Those behind the dispatch of tokens are in no graph of
    /// modules where the host reads the tokens of each expert.
    fn launched_with_experts(&self, layer: &Layer, moe: &Moe, plan: &Plan) -> PerPass {
        let launches = &self.device.stack.launches;
        let parts = [
            (relative_operators_of_attention(layer), self.device.stack.graph_scope.attention),
            (relative_operators_from_dispatch(moe), !self.experts_wait()),
        ];
        let (all, left) = (relative_operators(layer, moe), self.left_by_graphs(plan.recompute, true));
        let mut counted = PerPass::new(all.forward * left, all.backward * left);
        for (part, held) in parts {
            let launched = self.left_by_graphs(plan.recompute, held) - left;
            counted.forward += part.forward * launched;
            counted.backward += part.backward * launched;
        }
        let forward = launches.forward + MOE_LAUNCHES.forward;
        let backward = (launches.backward + MOE_LAUNCHES.backward) * counted.backward;
        let again = Self::recomputed_launches(plan.recompute, forward) * all.forward * left;
        PerPass::new(launches.expert_layer * forward * counted.forward, launches.expert_layer * (backward + again))
    }

    /// Host time of the experts' own launches, where they follow the reading of their tokens; zero where the stack has no floor of layers
    /// with experts (`stack.launches.expert_layer`).
    fn launched_experts(&self, moe: &Moe, plan: &Plan) -> PassTimes {
        let launches = &self.device.stack.launches;
        if !self.experts_wait() || launches.expert_layer <= 0.0 {
            return PassTimes::default();
        }
        let forward = launches.host_time(self.device.host) * (self.launches_per_expert() * local_experts(moe, plan));
        let passes = if plan.recompute == Recompute::Full { 3.0 } else { 2.0 };
        PassTimes { forward, backward: forward * passes }
    }

    /// Launches of a layer without experts.
    fn launched_without_experts(&self, layer: &Layer, plan: &Plan) -> PerPass {
        let (launches, scope) = (&self.device.stack.launches, self.device.stack.graph_scope);
        let parts =
            [(matches!(layer.mixer, Mixer::None), scope.attention), (matches!(layer.ffn, Ffn::None), scope.mlp)];
        let half =
            |(absent, held): (bool, bool)| if absent { 0.0 } else { 0.5 * self.left_by_graphs(plan.recompute, held) };
        let weight = launches.plain_layer * parts.into_iter().map(half).sum::<f64>();
        let again = Self::recomputed_launches(plan.recompute, launches.forward);
        PerPass::new(weight * launches.forward, weight * (launches.backward + again))
    }

    /// Whether CUDA graphs replay a layer: those of modules hold none that is recomputed as a whole.
    ///
    /// Source: [megatron-cuda-graphs].
    pub(super) fn replays(&self, recompute: Recompute) -> bool {
        let stack = self.device.stack;
        stack.cuda_graphs && (stack.graphed_experts || recompute != Recompute::Full)
    }

    /// Launches that the replay of a layer takes in either pass: none of a graph of a whole iteration.
    pub(super) fn replay(&self, recompute: Recompute) -> f64 {
        let stack = self.device.stack;
        if self.replays(recompute) && !stack.graphed_experts { stack.launches.graph_replay } else { 0.0 }
    }

    /// Share of the host's work for a module that CUDA graphs leave: all of it where none holds the module.
    fn left_by_graphs(&self, recompute: Recompute, held: bool) -> f64 {
        let held = held || self.device.stack.graphed_experts;
        if self.replays(recompute) && held { self.device.replayed() } else { 1.0 }
    }
}
