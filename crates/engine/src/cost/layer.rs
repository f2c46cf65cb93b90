//! One layer on one rank for one micro-batch: compute, exposed communication, host floor, recomputation.

use super::costs::Costs;
use super::operators::relative_operators_from_dispatch;
use super::traffic::{beside, chunked, gated_delta, kimi_delta, sparse};
use crate::gpu::Format;
use crate::kernel::PerPass;
use crate::model::{Ffn, Layer, Mixer, Mlp, Moe};
use crate::plan::{Plan, Recompute};
use crate::units::Seconds;

pub use crate::kernel::PassTimes;

/// Cost of one layer on one rank for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerCost {
    /// Forward kernels, with the contention of hidden communication.
    pub forward: Seconds,
    /// Backward kernels but weight gradients.
    pub dgrad: Seconds,
    /// Weight gradients.
    pub wgrad: Seconds,
    /// Part of `forward`: the attention core.
    pub attention: Seconds,
    /// Part of `dgrad`: the attention core.
    pub attention_backward: Seconds,
    /// Part of `forward`: norms and residuals.
    pub norms: Seconds,
    /// Part of `forward`: activation functions.
    pub activation: Seconds,
    /// Part of `forward`: the feed-forward part.
    pub ffn: Seconds,
    /// Part of `forward`: the last GEMM of the feed-forward part.
    pub last_gemm: Seconds,
    /// Part of `forward`: the routed experts, with their router and the permutation of tokens.
    pub routed: Seconds,
    /// Part of `forward` and of backward: GEMMs and activation of the routed experts.
    pub experts: PassTimes,
    /// Host time from their dispatch on, once the number of tokens of each expert is known.
    pub expert_host: PassTimes,
    /// Part of `forward`: up-projections of latent attention.
    pub up_projections: Seconds,
    /// Exposed tensor-parallel collectives.
    pub tp: PassTimes,
    /// Exposed context-parallel exchange.
    pub cp: PassTimes,
    /// Expert dispatch and combine, before any overlap.
    pub ep: PassTimes,
    /// Recomputation in backward.
    pub recompute: Seconds,
    /// Host time to launch the kernels.
    pub host: PassTimes,
}

impl LayerCost {
    /// All kernels so far.
    pub(super) fn all(&self) -> PassTimes {
        PassTimes { forward: self.forward, backward: self.dgrad + self.wgrad }
    }

    /// Two parts of one layer, term by term.
    fn plus(&self, other: &Self) -> Self {
        let pair = |a: PassTimes, b: PassTimes| PassTimes {
            forward: a.forward + b.forward,
            backward: a.backward + b.backward,
        };
        let Self {
            forward,
            dgrad,
            wgrad,
            attention,
            attention_backward,
            norms,
            activation,
            ffn,
            last_gemm,
            experts,
            routed,
            expert_host,
            up_projections,
            tp,
            cp,
            ep,
            recompute,
            host,
        } = *other;
        Self {
            forward: self.forward + forward,
            dgrad: self.dgrad + dgrad,
            wgrad: self.wgrad + wgrad,
            attention: self.attention + attention,
            attention_backward: self.attention_backward + attention_backward,
            norms: self.norms + norms,
            activation: self.activation + activation,
            ffn: self.ffn + ffn,
            last_gemm: self.last_gemm + last_gemm,
            experts: pair(self.experts, experts),
            routed: self.routed + routed,
            expert_host: pair(self.expert_host, expert_host),
            up_projections: self.up_projections + up_projections,
            tp: pair(self.tp, tp),
            cp: pair(self.cp, cp),
            ep: pair(self.ep, ep),
            recompute: self.recompute + recompute,
            host: pair(self.host, host),
        }
    }

    pub(super) fn add(&mut self, linear: crate::kernel::Linear) {
        self.forward += linear.forward;
        self.dgrad += linear.dgrad;
        self.wgrad += linear.wgrad;
    }
}

/// Launches that a mixture of experts adds, in addition to those of each expert. Source: specification §2.9, version 1.1 [P].
pub(super) const MOE_LAUNCHES: PerPass = PerPass::new(14.0, 20.0);
/// Weight-gradient work of adapters against full training. Source: specification §2.11, version 1.1.
const LORA_WGRAD: f64 = 0.03;

/// CUDA graphs of modules that the host replays from one reading of the experts' tokens to the next: two where the mixer between is a layer
/// of its own.
pub(super) fn graphs_between_counts(layer: &Layer) -> f64 {
    if layer.moe().is_some() && matches!(layer.mixer, Mixer::None) { 2.0 } else { 1.0 }
}

/// Experts of a rank.
pub(super) fn local_experts(moe: &Moe, plan: &Plan) -> f64 {
    (f64::from(moe.experts) / f64::from(plan.layout.ep)).floor().max(1.0)
}

/// Modules of a mixer that have a matrix of their own.
fn mixer_modules(mixer: &Mixer) -> f64 {
    match mixer {
        Mixer::Attention(_) => 4.0,
        // Maps down and up of queries and of keys and values, and the output's.
        Mixer::Mla(mla) => {
            if mla.q_rank > 0 {
                5.0
            } else {
                4.0
            }
        }
        // Maps to queries, keys, values, decays, gates and steps, and the output's.
        Mixer::KimiDelta(_) => 9.0,
        // Maps in, of which a gated delta rule has a second for steps and decays, and out.
        Mixer::DeltaNet(_) => 3.0,
        Mixer::Mamba(_) | Mixer::ShortConv(_) => 2.0,
        Mixer::AttentionMamba(both) => both.mixers().iter().map(mixer_modules).sum(),
        Mixer::None => 0.0,
    }
}

/// Modules of a layer that have a matrix of their own; routed experts and their router, which are gathered together,
/// are none of them. Norms stay whole on every rank.
fn modules(layer: &Layer) -> f64 {
    let gates = |mlp: &Mlp| mlp.gates() as f64 + 1.0;
    mixer_modules(&layer.mixer)
        + match &layer.ffn {
            Ffn::Dense(mlp) => gates(mlp),
            Ffn::Moe(moe) => moe.shared().as_ref().map_or(0.0, gates),
            Ffn::None => 0.0,
        }
}

impl Costs<'_> {
    /// The price of layer kind `kind` under `plan`; depends on tp, sp, cp, ep, etp, micro-batch, dispatcher and recomputation
    /// only, so that plans which share those share it.
    pub fn layer(&self, kind: usize, plan: &Plan) -> LayerCost {
        self.joined(kind, plan, &self.mixing(kind, plan), &self.feed_forward(kind, plan))
    }

    /// The part of a layer that mixes tokens: norms, attention or its like, context exchange. Depends on tp, sp, cp and its
    /// kind, and the micro-batch.
    pub(super) fn mixing(&self, kind: usize, plan: &Plan) -> LayerCost {
        let layer = &self.problem.model().kinds[kind];
        let mut cost = LayerCost::default();
        self.norms(layer, plan, &mut cost);
        self.mixer(layer, plan, &mut cost);
        self.context_parallel(layer, plan, &mut cost);
        cost
    }

    /// The other part: feed-forward or experts, and the collectives of tensor parallelism. Depends on tp, sp, the tokens of a
    /// micro-batch on one rank, ep, etp and the dispatcher.
    pub(super) fn feed_forward(&self, kind: usize, plan: &Plan) -> LayerCost {
        let layer = &self.problem.model().kinds[kind];
        let mut cost = LayerCost::default();
        self.ffn(layer, plan, &mut cost);
        self.tensor_parallel(layer, plan, &mut cost);
        cost
    }

    /// Layer joined of its two parts, with the costs that only the whole layer has: adapters, the host floor, recomputation.
    pub(super) fn joined(&self, kind: usize, plan: &Plan, mixing: &LayerCost, feed_forward: &LayerCost) -> LayerCost {
        let layer = &self.problem.model().kinds[kind];
        let mut cost = mixing.plus(feed_forward);
        if self.is_lora() {
            cost.wgrad = cost.wgrad * LORA_WGRAD;
        }
        self.host_floor(layer, plan, &mut cost);
        cost.recompute = self.recomputed(layer, plan, &cost);
        cost
    }

    /// Launch time of a layer's kernels (specification §2.9, version 1.1), and of its experts where they wait for the host
    /// ([`Self::host_from_dispatch`]).
    fn host_floor(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        let launches = &self.device.stack.launches;
        let (mut forward, mut backward) = (launches.forward, launches.backward);
        if matches!(&layer.mixer, Mixer::Mla(mla) if mla.indexer.is_some()) {
            forward += sparse::LAUNCHES.forward;
            backward += sparse::LAUNCHES.backward;
        }
        if matches!(layer.mixer, Mixer::AttentionMamba(_)) {
            forward += chunked::KERNELS.forward + beside::PROJECTIONS.forward + beside::KERNELS;
            backward += chunked::KERNELS.backward + beside::PROJECTIONS.backward + beside::KERNELS;
        }
        if let Mixer::DeltaNet(net) = &layer.mixer {
            forward += gated_delta::KERNELS.forward;
            backward += gated_delta::KERNELS.backward;
            backward += if net.shares_keys() { gated_delta::SHARED_KERNELS } else { 0.0 };
        }
        if matches!(layer.mixer, Mixer::KimiDelta(_)) {
            forward += kimi_delta::LAUNCHES.forward;
            backward += kimi_delta::LAUNCHES.backward;
        }
        if let Some(moe) = layer.moe() {
            let each = self.launches_per_expert();
            let local = local_experts(moe, plan);
            forward += MOE_LAUNCHES.forward;
            backward += MOE_LAUNCHES.backward;
            if self.experts_wait() {
                cost.expert_host = self.host_from_dispatch(layer, moe, each * local, plan.recompute);
            } else {
                forward += each * local;
                backward += 2.0 * each * local;
            }
        }
        cost.host = PassTimes { forward: self.device.host_floor(forward), backward: self.device.host_floor(backward) };
    }

    /// Host time of a layer with experts from the dispatch of its tokens on, where the host reads the token counts first, so that none of it
    /// runs ahead, nor the replay of the graphs that follow; `launched` is n_e·E_loc, the launches of its experts forward.
    ///
    /// ```text
    /// H_f = w_e·n_e·E_loc·t_host   + (w·(n_f + 14)·x_f + g·r)·t_x86          w_e = `stack.launches.expert_wait`
    /// H_b = 2·w_e·n_e·E_loc·t_host + (w·(n_b + 20)·x_b + g·r)·t_x86          w   = `stack.launches.expert_layer`
    /// ```
    ///
    /// x_f, x_b: [`relative_operators_from_dispatch`], of which CUDA graphs of modules hold none. r: [`Self::replay`]. g:
    /// [`graphs_between_counts`]. Evidence: docs/cost-model.md, "Host floor of experts".
    fn host_from_dispatch(&self, layer: &Layer, moe: &Moe, launched: f64, recompute: Recompute) -> PassTimes {
        let launches = &self.device.stack.launches;
        let operators = relative_operators_from_dispatch(moe);
        let own = launches.host_time(self.device.host) * (launches.expert_wait * launched);
        let forward = launches.expert_layer * (launches.forward + MOE_LAUNCHES.forward) * operators.forward;
        let backward = launches.expert_layer * (launches.backward + MOE_LAUNCHES.backward) * operators.backward;
        let replay = self.replay(recompute) * graphs_between_counts(layer);
        PassTimes {
            forward: own + launches.python_time(forward + replay),
            backward: own * 2.0 + launches.python_time(backward + replay),
        }
    }

    /// A layer's cost under ZeRO 3, where hooks gather and free the weights of each module on the way; `None` where
    /// they cost nothing.
    ///
    /// ```text
    /// n_f·t_host + M·h_f                   backward n_b·t_host + M·h_b
    /// w·n_e·E_loc·t_host + E_loc·x_f       backward 2·w·n_e·E_loc·t_host + E_loc·x_b
    /// backward of full recomputation       + the forward's
    /// ```
    ///
    /// M: [`modules`]. h, x: `stack.launches.module_hooks`. Source: specification §2.9.
    pub(super) fn hooked(&self, kind: usize, cost: &LayerCost, plan: &Plan) -> Option<LayerCost> {
        let hooks = self.device.stack.launches.module_hooks?;
        let layer = &self.problem.model().kinds[kind];
        let mut cost = *cost;
        let modules = modules(layer);
        cost.host.forward += hooks.forward * modules;
        cost.host.backward += hooks.backward * modules;
        if let Some(moe) = layer.moe() {
            let local = local_experts(moe, plan);
            cost.expert_host.forward += hooks.expert_forward * local;
            let experts_again = plan.recompute == Recompute::PerOp && self.device.stack.memory.recomputes_experts;
            let again = if plan.recompute == Recompute::Full || experts_again {
                cost.expert_host.forward
            } else {
                Seconds::ZERO
            };
            cost.expert_host.backward += hooks.expert_backward * local + again;
        }
        Some(cost)
    }

    /// Launches of one local expert, forward (n_e).
    pub(super) fn launches_per_expert(&self) -> f64 {
        let launches = &self.device.stack.launches;
        if self.device.format == Format::Bf16 { launches.per_expert_bf16 } else { launches.per_expert_narrow }
    }

    /// Forward launches of one local expert that each leave a gap on the device: those of its casts alone where the
    /// stack says how its GEMMs run, whose time has their gaps.
    pub(super) fn gaps_per_expert(&self) -> f64 {
        let stack = self.device.stack;
        let gemms = if stack.expert_streams.is_some() { stack.launches.per_expert_bf16 } else { 0.0 };
        (self.launches_per_expert() - gemms).max(0.0)
    }

    /// Whether experts are launched only once the host has read how many tokens each has.
    pub(super) fn experts_wait(&self) -> bool {
        let stack = self.device.stack;
        let graphed = stack.cuda_graphs && stack.graphed_experts;
        stack.launches.expert_wait > 0.0 && !graphed && !self.problem.workload().drops_tokens
    }
}
