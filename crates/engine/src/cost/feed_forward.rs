//! Feed-forward part of a layer: a dense MLP, or a mixture of experts.

use std::iter;

use super::adapters::Adapted;
use super::costs::Costs;
use super::layer::{LayerCost, PassTimes};
use super::traffic::{self, biased, permute};
use crate::gpu::Format;
use crate::kernel::{GemmShape, LinearShape};
use crate::model::attention::Widths;
use crate::model::{Ffn, Layer, Mlp, Moe};
use crate::plan::Plan;
use crate::stack::Dispatcher;
use crate::units::{Bytes, Seconds};

impl Costs<'_> {
    /// Adds the feed-forward part of a layer on one rank.
    pub(super) fn ffn(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        let before = cost.forward;
        match &layer.ffn {
            Ffn::Dense(mlp) => self.mlp(mlp, plan, cost),
            Ffn::Moe(moe) => self.moe(moe, plan, cost),
            Ffn::None => {}
        }
        cost.ffn = cost.forward - before;
    }

    /// Adds a dense (or shared) MLP, split by tensor parallelism.
    ///
    /// Activation: `2(G+1)·f/t` bytes per token forward, `2(2G+1)·f/t` backward (specification §2.4).
    fn mlp(&self, mlp: &Mlp, plan: &Plan, cost: &mut LayerCost) {
        let hidden = f64::from(self.problem.model().hidden);
        let width = f64::from(mlp.intermediate) / f64::from(plan.layout.tp);
        let (tokens, gates) = (self.tokens(plan), mlp.gates() as f64);
        cost.add(self.device.linear(LinearShape::dense(tokens, hidden, gates * width), self.device.format));
        let down = self.device.linear(LinearShape::dense(tokens, width, hidden), self.device.format);
        cost.last_gemm = down.forward;
        cost.add(down);
        let (up, down) = (Widths { input: hidden, output: width }, Widths { input: width, output: hidden });
        let projections = iter::repeat_n(up, mlp.gates() as usize).chain([down]);
        self.adapters(Adapted::Mlp, tokens, projections, cost);
        self.activation(tokens * width, gates, cost);
    }

    /// Adds an activation function of `elements` outputs, each of `gates` inputs.
    fn activation(&self, elements: f64, gates: f64, cost: &mut LayerCost) {
        let forward = self.device.stream(Bytes::new(elements * traffic::BF16 * (gates + 1.0)), 1.0);
        cost.activation += forward;
        cost.forward += forward;
        cost.dgrad += self.device.stream(Bytes::new(elements * traffic::BF16 * (2.0 * gates + 1.0)), 1.0);
    }

    /// Adds activation and bias of experts with a bias, where they run operator by operator; `outputs` and
    /// `activations` are elements of all local experts together.
    ///
    /// ```text
    /// T = β·((OUTPUT·outputs + ACTIVATION·activations)/(BW·e_mem) + KERNELS·experts·t_op)          specification §2.4
    /// ```
    fn biased(&self, outputs: f64, activations: f64, experts: f64, cost: &mut LayerCost) {
        let share = self.device.stack.expert_bias;
        let time = |output: f64, activation: f64, kernels: f64| {
            let bytes = share * (output * outputs + activation * activations);
            self.device.stream_fused(Bytes::new(bytes), share * kernels * experts)
        };
        cost.forward += time(biased::OUTPUT.forward, biased::ACTIVATION.forward, biased::KERNELS.forward);
        cost.dgrad += time(biased::OUTPUT.backward, biased::ACTIVATION.backward, biased::KERNELS.backward);
    }

    /// Adds router, permutation, grouped experts and shared expert; the all-to-all goes to `cost.ep`.
    ///
    /// Tokens are as wide as the experts' latent space where they have one, between a projection into it before the permutation and
    /// one out of it after the weighted sum.
    ///
    /// Sources: specification §2.2 (grouped GEMMs), §2.4 (permutation), §2.8 (imbalance ξ on the critical rank); [latent-moe] §2 and
    /// [megatron-lm] `moe/moe_layer.py` (latent space).
    fn moe(&self, moe: &Moe, plan: &Plan, cost: &mut LayerCost) {
        let hidden = f64::from(self.problem.model().hidden);
        let expert_tp = f64::from(plan.layout.etp);
        let local = (f64::from(moe.experts) / f64::from(plan.layout.ep)).floor().max(1.0);
        let owned = self.owned_tokens(plan);
        let received = owned * f64::from(moe.top_k);
        let per_expert = self.most_received(moe, plan) / local;
        let (width, gates) = (f64::from(moe.intermediate) / expert_tp, moe.expert().gates() as f64);
        let before = cost.all();
        let token = f64::from(moe.token_width(self.problem.model().hidden));
        let of_experts = |input, output| LinearShape { tokens: per_expert, input, output, batch: local };
        cost.add(self.device.expert_linear(of_experts(token, gates * width), self.device.format));
        cost.add(self.device.expert_linear(of_experts(width, token), self.device.format));
        self.activation(received * width, gates, cost);
        if self.device.stack.launches.expert_gaps {
            let gaps = self.device.gap() * (self.gaps_per_expert() * local);
            cost.forward += gaps;
            cost.dgrad += gaps * 2.0;
        }
        if moe.bias && self.device.stack.expert_bias > 0.0 {
            self.biased(received * token, received * width, local, cost);
        }
        let after = cost.all();
        cost.experts =
            PassTimes { forward: after.forward - before.forward, backward: after.backward - before.backward };
        let moved =
            owned * token * permute::SCATTERED * (1.0 + f64::from(moe.top_k)) + received * token * permute::GATHERED;
        let router =
            GemmShape { m: owned, n: f64::from(moe.experts), k: hidden, batch: 1.0, output_bytes: traffic::FP32 };
        let router = self.device.gemm(&router, Format::Bf16);
        let moved = moved * self.device.stack.permute_traffic;
        cost.forward += self.device.stream(Bytes::new(moved), permute::KERNELS.forward) + router;
        cost.dgrad += self.device.stream(Bytes::new(permute::BACKWARD * moved), permute::KERNELS.backward) + router;
        cost.wgrad += router;
        let exchanged = plan.layout.ep > 1 && plan.dispatcher == Dispatcher::AllToAll;
        if exchanged && local > 1.0 && self.device.stack.sorts_received_tokens {
            let sorted = self.device.stream(Bytes::new(permute::SORTED * received * token), permute::SORTS);
            cost.forward += sorted;
            cost.dgrad += sorted;
        }
        if moe.latent > 0 {
            cost.add(self.device.linear(LinearShape::dense(owned, hidden, token), self.device.format));
            cost.add(self.device.linear(LinearShape::dense(owned, token, hidden), self.device.format));
            let (down, up) = (Widths { input: hidden, output: token }, Widths { input: token, output: hidden });
            self.adapters(Adapted::Mlp, owned, [down, up], cost);
        }
        cost.routed = cost.forward - before.forward;
        if let Some(shared) = moe.shared() {
            self.mlp(&shared, plan, cost);
        }
        // Backward of the weighted sum needs the outputs of the experts: none of their GEMMs can be left out.
        cost.last_gemm = Seconds::ZERO;
        cost.ep = self.expert_exchange(moe, plan);
    }
}
