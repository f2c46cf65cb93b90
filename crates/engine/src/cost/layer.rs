//! One layer on one rank for one micro-batch: compute, exposed communication, host floor, recomputation.

use super::costs::Costs;
use super::groups;
use crate::gpu::{AttentionKernel, Format};
use crate::kernel::GemmShape;
use crate::kernel::{Core, Cut};
use crate::model::{Attention, Ffn, Layer, Mixer, Mla, Mlp, Moe, Span};
use crate::plan::{CpKind, Plan};
use crate::units::{Bytes, Seconds};

/// A forward and a backward time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair {
    /// Forward.
    pub forward: Seconds,
    /// Backward.
    pub backward: Seconds,
}

impl Pair {
    /// Forward and backward together.
    pub fn sum(self) -> Seconds {
        self.forward + self.backward
    }
}

/// Cost of one layer on one rank for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerCost {
    /// Forward kernels, with the contention of hidden communication.
    pub forward: Seconds,
    /// Backward kernels but weight gradients.
    pub dgrad: Seconds,
    /// Weight gradients.
    pub wgrad: Seconds,
    /// Of `forward`: the attention core.
    pub attention: Seconds,
    /// Of `dgrad`: the attention core.
    pub attention_backward: Seconds,
    /// Of `forward`: norms and residuals.
    pub norms: Seconds,
    /// Of `forward`: activation functions.
    pub activation: Seconds,
    /// Of `forward`: the feed-forward part.
    pub ffn: Seconds,
    /// Part of `forward`: the last GEMM of the feed-forward part.
    pub last_gemm: Seconds,
    /// Part of `forward` and of backward: GEMMs and activation of the routed experts.
    pub experts: Pair,
    /// Host time to launch those, once the number of tokens of each expert is known.
    pub expert_host: Pair,
    /// Of `forward`: up-projections of latent attention.
    pub up_projections: Seconds,
    /// Exposed tensor-parallel collectives.
    pub tp: Pair,
    /// Exposed context-parallel exchange.
    pub cp: Pair,
    /// Expert dispatch and combine, before any overlap.
    pub ep: Pair,
    /// Recomputation in backward.
    pub recompute: Seconds,
    /// Host time to launch the kernels.
    pub host: Pair,
}

impl LayerCost {
    /// All kernels so far.
    fn all(&self) -> Pair {
        Pair { forward: self.forward, backward: self.dgrad + self.wgrad }
    }

    /// Two parts of one layer, term by term.
    fn plus(&self, other: &Self) -> Self {
        let pair = |a: Pair, b: Pair| Pair { forward: a.forward + b.forward, backward: a.backward + b.backward };
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

/// Bytes per token and hidden element of norms and residual additions, forward and backward.
///
/// Source: specification §2.4.
mod element {
    pub const NORM: (f64, f64) = (4.0, 8.0);
    pub const RESIDUAL: (f64, f64) = (6.0, 5.0);
    /// Transformer Engine fuses the residual's backward into the norm's.
    pub const FUSED_RESIDUAL_BACKWARD: f64 = 2.0;
}

/// Launches that a mixture of experts adds, beside those per expert. Source: specification §2.9, version 1.1 [P].
const MOE_LAUNCHES: (f64, f64) = (14.0, 20.0);
/// Weight-gradient work of adapters against full training. Source: specification §2.11, version 1.1.
const LORA_WGRAD: f64 = 0.03;

impl Costs<'_> {
    /// The price of layer kind `kind` under `plan`; depends on tp, sp, cp, ep, etp, micro-batch, dispatcher and recomputation
    /// only, so that plans which share those share it.
    pub fn layer(&self, kind: usize, plan: &Plan) -> LayerCost {
        self.joined(kind, plan, &self.mixing(kind, plan), &self.feeding(kind, plan))
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
    pub(super) fn feeding(&self, kind: usize, plan: &Plan) -> LayerCost {
        let layer = &self.problem.model().kinds[kind];
        let mut cost = LayerCost::default();
        self.ffn(layer, plan, &mut cost);
        self.tensor_parallel(layer, plan, &mut cost);
        cost
    }

    /// Both parts as one layer, with what only the whole has: adapters, the host floor, recomputation.
    pub(super) fn joined(&self, kind: usize, plan: &Plan, mixing: &LayerCost, feeding: &LayerCost) -> LayerCost {
        let layer = &self.problem.model().kinds[kind];
        let mut cost = mixing.plus(feeding);
        if self.is_lora() {
            cost.wgrad = cost.wgrad * LORA_WGRAD;
        }
        self.host_floor(layer, plan, &mut cost);
        cost.recompute = self.recomputed(layer, plan, &cost);
        cost
    }

    /// Norms and residuals of the tokens that this rank holds.
    fn norms(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        let model = self.problem.model();
        let residuals = f64::from(u8::from(layer.mixer != Mixer::None)) + f64::from(u8::from(layer.ffn != Ffn::None));
        let norms = f64::from(layer.norms);
        let mask = f64::from(u8::from(model.dropout));
        let engine = self.device.stack.transformer_engine;
        let residual_forward = element::RESIDUAL.0 + if engine { 0.0 } else { mask };
        let residual_backward =
            if engine && !model.dropout { element::FUSED_RESIDUAL_BACKWARD } else { element::RESIDUAL.1 };
        let elements = self.tokens(plan) / plan.sequence_shards() * f64::from(model.hidden);
        let bytes = |norm: f64, residual: f64| Bytes::new((norms * norm + residuals * residual) * elements);
        let kernels = norms + residuals;
        cost.norms = self.device.stream(bytes(element::NORM.0, residual_forward), kernels);
        cost.forward += cost.norms;
        cost.dgrad += self.device.stream(bytes(element::NORM.1, residual_backward), kernels * 1.5);
    }

    fn mixer(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        match &layer.mixer {
            Mixer::Attention(attention) => self.attention(attention, plan, cost),
            Mixer::Mla(mla) => self.mla(mla, plan, cost),
            Mixer::Mamba(mamba) => {
                self.recurrent(&mamba.projections(self.problem.model().hidden), mamba.inner(), plan, cost);
            }
            Mixer::DeltaNet(net) => {
                self.recurrent(&net.projections(self.problem.model().hidden), net.values(), plan, cost);
            }
            Mixer::None => {}
        }
    }

    /// Projections, rotary embedding and the attention core.
    fn attention(&self, attention: &Attention, plan: &Plan, cost: &mut LayerCost) {
        let (hidden, tp, tokens) =
            (f64::from(self.problem.model().hidden), f64::from(plan.layout.tp), self.tokens(plan));
        let format = self.device.format;
        let qkv = attention.qkv_width() as f64 / tp;
        let out = f64::from(attention.heads) * f64::from(attention.head_dim) / tp;
        cost.add(self.device.linear(tokens, hidden, qkv, 1.0, format));
        cost.add(self.device.linear(tokens, out, hidden, 1.0, format));
        // Splitting the fused projection and rotating queries and keys: 4 bytes an element (specification §2.4).
        let passes = match (attention.rope, self.device.stack.transformer_engine) {
            (true, true) => 0.65,
            (true, false) => 1.3,
            (false, true) => 0.0,
            (false, false) => 1.0,
        };
        let split = self.device.stream(Bytes::new(4.0 * tokens * qkv * passes), 2.0);
        cost.forward += split;
        cost.dgrad += split;
        let dim = f64::from(attention.head_dim);
        let kernel = if attention.sinks && !self.device.stack.fused_sinks {
            AttentionKernel::Unfused
        } else {
            self.device.stack.attention
        };
        let heads = (f64::from(attention.heads), f64::from(attention.kv_heads));
        self.core(heads, (dim, dim), attention.span, kernel, plan, cost);
    }

    /// Projections, norms and rotary parts of latent attention, and the core.
    fn mla(&self, mla: &Mla, plan: &Plan, cost: &mut LayerCost) {
        let (tp, tokens) = (f64::from(plan.layout.tp), self.tokens(plan));
        for projection in mla.projections(self.problem.model().hidden) {
            let (input, output) = projection.on_rank(tp);
            let linear = self.device.linear(tokens, input, output, 1.0, self.device.format);
            if projection.is_up {
                cost.up_projections += linear.forward;
            }
            cost.add(linear);
        }
        // Two low-rank norms, and the rotary part joined to each head: 4(q_r + kv_r) + 12·a·d_qk/t (specification §2.4).
        let (ranks, heads) = (f64::from(mla.q_rank + mla.kv_rank), f64::from(mla.heads) / tp);
        let bytes = tokens * (4.0 * ranks + 12.0 * heads * f64::from(mla.qk_dim()));
        cost.forward += self.device.stream(Bytes::new(bytes), 6.0);
        cost.dgrad += self.device.stream(Bytes::new(1.5 * bytes), 8.0);
        let dims = (f64::from(mla.qk_dim()), f64::from(mla.v_dim));
        let heads = f64::from(mla.heads);
        self.core((heads, heads), dims, Span::Full, self.device.stack.attention, plan, cost);
    }

    /// Scores, softmax and context of one rank; a head of keys is not cut, but copied.
    fn core(
        &self,
        (heads, kv_heads): (f64, f64),
        (qk_dim, v_dim): (f64, f64),
        span: Span,
        kernel: AttentionKernel,
        plan: &Plan,
        cost: &mut LayerCost,
    ) {
        let seq_len = f64::from(self.problem.workload().seq_len);
        let core = Core {
            sequences: f64::from(plan.micro_batch),
            heads: heads / f64::from(plan.layout.tp),
            kv_heads: (kv_heads / f64::from(plan.layout.tp)).max(1.0),
            seq_len,
            seen: span.mean_keys(seq_len) / seq_len,
            qk_dim,
            v_dim,
            dropout: self.problem.model().dropout,
            cut: self.cut(plan),
        };
        let (forward, backward) = self.device.attention(&core, kernel);
        cost.attention = forward;
        cost.attention_backward = backward;
        cost.forward += forward;
        cost.dgrad += backward;
    }

    /// How the plan's context parallelism cuts one layer's attention.
    fn cut(&self, plan: &Plan) -> Cut {
        let ranks = f64::from(plan.layout.cp);
        let whole = Cut { ranks, ..Cut::WHOLE };
        match plan.cp_kind {
            CpKind::Ring => Cut { by_chunks: ranks, ..whole },
            CpKind::AllGather if self.device.stack.attends_by_shard => Cut { by_chunks: ranks, ..whole },
            CpKind::AllGather => Cut { by_queries: ranks, ..whole },
            CpKind::AllToAll => Cut { by_heads: ranks, ..whole },
            CpKind::Hierarchical => {
                let inside = f64::from(self.fabric.inside_domain(groups::cp(plan)));
                Cut { by_heads: inside, by_chunks: ranks / inside, ..whole }
            }
        }
    }

    /// A state-space or delta-rule block: two projections and a scan that the memory bounds.
    ///
    /// Source: specification §2.3 [A]: 12 bytes per token and inner channel forward, 30 backward.
    fn recurrent(
        &self,
        projections: &[crate::model::attention::Projection],
        inner: u64,
        plan: &Plan,
        cost: &mut LayerCost,
    ) {
        let (tp, tokens) = (f64::from(plan.layout.tp), self.tokens(plan));
        for projection in projections {
            let (input, output) = projection.on_rank(tp);
            cost.add(self.device.linear(tokens, input, output, 1.0, self.device.format));
        }
        let channels = tokens * inner as f64 / tp;
        let scan = self.device.stream(Bytes::new(12.0 * channels), 2.0);
        cost.attention = scan;
        cost.forward += scan;
        cost.dgrad += self.device.stream(Bytes::new(30.0 * channels), 3.0);
    }

    fn ffn(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        let before = cost.forward;
        match &layer.ffn {
            Ffn::Dense(mlp) => self.mlp(mlp, plan, cost),
            Ffn::Moe(moe) => self.moe(moe, plan, cost),
            Ffn::None => {}
        }
        cost.ffn = cost.forward - before;
    }

    /// A dense (or shared) MLP, split by tensor parallelism.
    ///
    /// Activation: `2(G+1)·f/t` bytes per token forward, `2(2G+1)·f/t` backward (specification §2.4).
    fn mlp(&self, mlp: &Mlp, plan: &Plan, cost: &mut LayerCost) {
        let hidden = f64::from(self.problem.model().hidden);
        let width = f64::from(mlp.intermediate) / f64::from(plan.layout.tp);
        let (tokens, gates) = (self.tokens(plan), mlp.gates() as f64);
        cost.add(self.device.linear(tokens, hidden, gates * width, 1.0, self.device.format));
        let down = self.device.linear(tokens, width, hidden, 1.0, self.device.format);
        cost.last_gemm = down.forward;
        cost.add(down);
        self.activation(tokens * width, gates, cost);
    }

    fn activation(&self, elements: f64, gates: f64, cost: &mut LayerCost) {
        let forward = self.device.stream(Bytes::new(elements * 2.0 * (gates + 1.0)), 1.0);
        cost.activation += forward;
        cost.forward += forward;
        cost.dgrad += self.device.stream(Bytes::new(elements * 2.0 * (2.0 * gates + 1.0)), 1.0);
    }

    /// Router, permutation, grouped experts and shared expert; the all-to-all goes to `cost.ep`.
    ///
    /// Source: specification §2.2 (grouped GEMMs), §2.4 (permutation), §2.8 (imbalance ξ on the critical rank).
    fn moe(&self, moe: &Moe, plan: &Plan, cost: &mut LayerCost) {
        let hidden = f64::from(self.problem.model().hidden);
        let expert_tp = f64::from(plan.layout.etp);
        let local = (f64::from(moe.experts) / f64::from(plan.layout.ep)).floor().max(1.0);
        let owned = self.owned_tokens(plan);
        let received = owned * f64::from(moe.top_k);
        let per_expert = received / local * self.problem.workload().imbalance;
        let (width, gates) = (f64::from(moe.intermediate) / expert_tp, moe.expert().gates() as f64);
        let before = cost.all();
        cost.add(self.device.linear(per_expert, hidden, gates * width, local, self.device.format));
        cost.add(self.device.linear(per_expert, width, hidden, local, self.device.format));
        self.activation(received * width, gates, cost);
        if self.device.stack.launches.expert_gaps {
            let gaps = self.device.gap() * (self.launches_per_expert() * local);
            cost.forward += gaps;
            cost.dgrad += gaps * 2.0;
        }
        let after = cost.all();
        cost.experts = Pair { forward: after.forward - before.forward, backward: after.backward - before.backward };
        // Permute and un-permute: 2h(1+k) + 4h·k bytes per owned token.
        let moved = owned * hidden * 2.0 * (1.0 + f64::from(moe.top_k)) + received * hidden * 4.0;
        let router = GemmShape { m: owned, n: f64::from(moe.experts), k: hidden, batch: 1.0, output_bytes: 4.0 };
        let router = self.device.gemm(&router, Format::Bf16);
        let moved = moved * self.device.stack.permute_traffic;
        cost.forward += self.device.stream(Bytes::new(moved), 6.0) + router;
        cost.dgrad += self.device.stream(Bytes::new(1.2 * moved), 8.0) + router * 2.0;
        if let Some(shared) = moe.shared() {
            self.mlp(&shared, plan, cost);
        }
        // Backward of the weighted sum needs what the experts gave: nothing of their products can be left out.
        cost.last_gemm = Seconds::ZERO;
        cost.ep = self.expert_exchange(moe, plan);
    }

    /// Launch time of a layer's kernels (specification §2.9, version 1.1), and of its experts where they wait for the host:
    ///
    /// ```text
    /// T_experts = max(T_experts,gpu , w·n_e·E_loc·t_host)          backward twice the launches
    /// ```
    fn host_floor(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        let launches = &self.device.stack.launches;
        let (mut forward, mut backward) = (launches.forward, launches.backward);
        if let Some(moe) = layer.moe() {
            let each = self.launches_per_expert();
            let local = (f64::from(moe.experts) / f64::from(plan.layout.ep)).floor().max(1.0);
            forward += MOE_LAUNCHES.0;
            backward += MOE_LAUNCHES.1;
            if self.experts_wait() {
                let host = launches.host_time(self.device.host) * (launches.expert_wait * each * local);
                cost.expert_host = Pair { forward: host, backward: host * 2.0 };
            } else {
                forward += each * local;
                backward += 2.0 * each * local;
            }
        }
        cost.host = Pair { forward: self.device.host_floor(forward), backward: self.device.host_floor(backward) };
    }

    /// Launches of one local expert, forward (n_e).
    fn launches_per_expert(&self) -> f64 {
        let launches = &self.device.stack.launches;
        if self.device.format == Format::Bf16 { launches.per_expert_bf16 } else { launches.per_expert_narrow }
    }

    /// Whether experts are launched only once the host has read how many tokens each has.
    pub(super) fn experts_wait(&self) -> bool {
        let stack = self.device.stack;
        let graphed = stack.cuda_graphs && stack.graphed_experts;
        stack.launches.expert_wait > 0.0 && !graphed && !self.problem.workload().drops_tokens
    }
}
