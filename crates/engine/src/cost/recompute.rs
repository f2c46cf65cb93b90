//! Recomputation in backward (specification §6.4).

use super::costs::Costs;
use super::layer::{LayerCost, MOE_LAUNCHES};
use crate::gpu::{AttentionKernel, Format};
use crate::model::{Ffn, Layer, Mixer};
use crate::plan::{Modules, Plan, Recompute};
use crate::units::Seconds;

/// Share of a layer's forward tensor-parallel communication that follows its last GEMM.
const LAST_COLLECTIVE: f64 = 0.25;

impl Costs<'_> {
    /// Extra backward time of one layer.
    ///
    /// ```text
    /// full          F + tensor, context and expert communication of the forward
    /// every other   half of that
    /// per op        ½(F − T_attn − T_e) + ½·(tensor and context communication) + T_e + T_ep
    ///               T_e = routed experts and T_ep = their communication, each 0 where the stack keeps its results;
    ///               F − T_attn − T_e counts whole in layers that checkpointing by operator does not see into
    /// modules       the sum of their forwards: core_attn T_attn, where it keeps scores or the stack repeats fused kernels;
    ///               layernorm ½ of norms and residuals; act the activation function; mla_up_proj its GEMMs and ½ of the
    ///               norms; mlp, moe the whole feed-forward part
    /// ```
    ///
    /// Recomputing `moe` dispatches the tokens again. Under JAX the modules are those of [`Self::policy`]. Source:
    /// specification §6.4 with version 1.1.
    pub(super) fn recomputed(&self, layer: &Layer, plan: &Plan, cost: &LayerCost) -> Seconds {
        if let Some(modules) = self.policy(plan.recompute) {
            return self.recomputed_modules(modules, layer, cost);
        }
        match plan.recompute {
            Recompute::None | Recompute::FirstLayers(_) => Seconds::ZERO,
            Recompute::Full => self.repeated_forward(cost),
            Recompute::EveryOther => self.repeated_forward(cost) * 0.5,
            Recompute::PerOp => self.recomputed_operators(layer, cost),
            Recompute::Selective(modules) => self.recomputed_modules(modules, layer, cost),
        }
    }

    /// Extra backward time of a layer under checkpointing by operator.
    fn recomputed_operators(&self, layer: &Layer, cost: &LayerCost) -> Seconds {
        let memory = &self.device.stack.memory;
        let when = |on: bool, time: Seconds| if on { time } else { Seconds::ZERO };
        let experts = when(memory.recomputes_experts, cost.routed);
        let exchange = when(memory.recomputes_experts && !memory.keeps_exchanged_tokens, cost.ep.forward);
        let beside = cost.forward - cost.attention - experts;
        let again = if self.hides_layer(layer) { 1.0 } else { 0.5 };
        beside * again + (cost.tp.forward + cost.cp.forward) * 0.5 + experts + exchange
    }

    /// Whether checkpointing by operator sees no matmul of a layer, so that it recomputes all of them (`memory.hides_expert_layers`, `hides_nvfp4_layers`).
    pub(super) fn hides_layer(&self, layer: &Layer) -> bool {
        let memory = &self.device.stack.memory;
        memory.hides_expert_layers && layer.moe().is_some()
            || memory.hides_nvfp4_layers && self.device.format == Format::Nvfp4
    }

    /// Forward time of a layer up to the last result that backward needs.
    fn repeated_forward(&self, cost: &LayerCost) -> Seconds {
        if self.stops_early(cost) {
            whole_forward(cost) - cost.last_gemm - cost.tp.forward * LAST_COLLECTIVE
        } else {
            whole_forward(cost)
        }
    }

    /// Whether recomputation leaves out the last GEMM, whose output nothing needs, and so its collective, one of four:
    /// `torch.utils.checkpoint` without re-entry stops before it, and JAX computes nothing that is not read. Source:
    /// [torch-checkpoint]; [jax-checkpoint].
    fn stops_early(&self, cost: &LayerCost) -> bool {
        self.device.stack.checkpoint_early_stop && cost.last_gemm > Seconds::ZERO
    }

    /// Forward time of the modules that are recomputed.
    fn recomputed_modules(&self, modules: Modules, layer: &Layer, cost: &LayerCost) -> Seconds {
        let when = |on: bool, time: Seconds| if on { time } else { Seconds::ZERO };
        let is_moe = matches!(layer.ffn, Ffn::Moe(_));
        let Modules { core_attn, layernorm, act, mla_up_proj, mlp, moe } = modules;
        let whole_ffn = (mlp && !is_moe) || (moe && is_moe);
        let sparse = matches!(&layer.mixer, Mixer::Mla(mla) if mla.indexer.is_some());
        let again = self.device.stack.checkpoints_fused_attention;
        let saves = self.keeps_scores() || self.device.stack.memory.keeps_matmul_outputs || sparse || again;
        let left_out = if self.stops_early(cost) { cost.last_gemm } else { Seconds::ZERO };
        when(core_attn && saves, cost.attention)
            + when(layernorm, cost.norms * 0.5)
            + when(act && !whole_ffn, cost.activation)
            + when(mla_up_proj && cost.up_projections > Seconds::ZERO, cost.up_projections + cost.norms * 0.5)
            + when(whole_ffn, cost.ffn - left_out)
            + when(moe && is_moe, cost.ep.forward)
    }

    /// Number of kernels that the backward of a layer with experts launches again: all `forward` ones under full
    /// recomputation, half of them where every other layer or operator is recomputed. Of recomputed modules, attention
    /// and the activation function are one kernel each, norms and up-projections two, routing and dispatch those of
    /// [`MOE_LAUNCHES`].
    pub(super) fn recomputed_launches(recompute: Recompute, forward: f64) -> f64 {
        let Modules { core_attn, layernorm, act, mla_up_proj, mlp: _, moe } = match recompute {
            Recompute::None | Recompute::FirstLayers(_) => return 0.0,
            Recompute::Full => return forward,
            Recompute::EveryOther | Recompute::PerOp => return forward / 2.0,
            Recompute::Selective(modules) => modules,
        };
        let kernels = [(core_attn, 1.0), (act, 1.0), (layernorm, 2.0), (mla_up_proj, 2.0), (moe, MOE_LAUNCHES.forward)];
        kernels.into_iter().filter_map(|(on, count)| on.then_some(count)).sum()
    }

    /// Whether attention writes its scores to memory, so that recomputing them saves memory.
    pub(super) fn keeps_scores(&self) -> bool {
        self.device.stack.attention == AttentionKernel::Unfused
    }
}

/// Forward time of one layer, communication included.
pub(super) fn whole_forward(cost: &LayerCost) -> Seconds {
    cost.forward + cost.tp.forward + cost.cp.forward + cost.ep.forward
}
