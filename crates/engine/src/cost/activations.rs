//! Activations that one layer keeps for its backward (specification §6.3, §6.4).

use super::costs::Costs;
use super::traffic::chunked::BlockSizes;
use super::traffic::{SHORT_CONV_KEPT, gated_delta, kimi_delta};
use crate::gpu::Format;
use crate::model::{Attention, DeltaNet, Ffn, KimiDelta, Mixer, Mla, Moe, QkNorm};
use crate::plan::{Modules, Plan, Recompute};
use crate::units::Bytes;

/// Bytes of the log-sum-exp of one head, in fp32. Source: specification §6.3.
const LOG_SUM_EXP: f64 = 4.0;
/// Bytes that dropout keeps of one attention score: the mask and the score after dropout. Source: [korthikanti22].
const SCORE_MASKS: f64 = 3.0;
/// Bytes that a token's routing keeps for each expert. Source: specification §6.3.
const ROUTED: f64 = 8.0;
/// Bytes that a norm in plain PyTorch keeps of an element in addition to a fused one: the input in fp32 instead of 16 bits, and the
/// result before it is scaled. Source: [memory-oracle].
pub(super) const UNFUSED_NORM: f64 = 4.0;

/// Bytes per token that a gated delta rule keeps: `(10·w + 8·k + 2·Q·heads + 18·heads + 8·key heads)/t` (specification §2.3).
fn gated_delta_kept(net: &DeltaNet, tp: f64) -> f64 {
    let of_heads = gated_delta::KEPT_OF_VALUES * f64::from(net.value_heads);
    let of_keys = gated_delta::KEPT_OF_KEYS * f64::from(net.key_heads);
    (gated_delta::KEPT.bytes(&BlockSizes::of_delta_rule(net)) + of_heads + of_keys) / tp
}

/// Bytes per token that Kimi Delta Attention keeps: `(20·w + 4·Q·heads + 18·heads)/t + 4·d` (specification §2.3).
fn kimi_delta_kept(net: &KimiDelta, tp: f64) -> f64 {
    let heads = f64::from(net.heads) * (kimi_delta::KEPT.chunk * kimi_delta::TOKENS + kimi_delta::KEPT_OF_HEAD);
    (kimi_delta::KEPT.channel * net.width() as f64 + heads) / tp + kimi_delta::KEPT_LOW_RANK * f64::from(net.head_dim)
}

impl Costs<'_> {
    /// Bytes that full recomputation keeps of a layer: its input, 2·n·h/ts bytes.
    pub(super) fn checkpoint(&self, plan: &Plan) -> Bytes {
        Bytes::new(self.tokens(plan) * 2.0 * f64::from(self.problem.model().hidden) / plan.sequence_shards())
    }

    /// Activations that one layer keeps for its backward, for one micro-batch on one rank, after recomputation (§6.3, §6.4).
    pub fn kept_activations(&self, kind: usize, plan: &Plan) -> Bytes {
        if let Some(recomputed) = self.policy(plan.recompute) {
            return self.kept_outputs(kind, plan, recomputed);
        }
        match plan.recompute {
            Recompute::None | Recompute::FirstLayers(_) => self.all_activations(kind, plan, Modules::default()),
            Recompute::Selective(modules) => self.all_activations(kind, plan, modules),
            Recompute::PerOp => self.kept_by_operator(kind, plan),
            Recompute::EveryOther => {
                self.all_activations(kind, plan, Modules::default()) * 0.5 + self.checkpoint(plan) * 0.5
            }
            Recompute::Full => self.checkpoint(plan),
        }
    }

    /// Activations of one layer under checkpointing by operator: those that PyTorch's list of operators keeps, or a share of all
    /// where the stack has no such list. Routed experts that run again (`memory.recomputes_experts`) keep at most the exchanged
    /// tokens. A layer whose matmuls the checkpoint does not see ([`Self::hides_layer`]) keeps
    ///
    /// ```text
    /// n·(2·a·d/t + 4a/t + 2h/ts)               attention and the layer's input
    /// + n·2h/ts·(1 + [t_e > 1])  where t > 1   reduced outputs of attention and of experts that are split
    /// ```
    ///
    /// Sources: [torchtitan] `activation_checkpoint.py`; hidden layers, [meshwright-silicon].
    fn kept_by_operator(&self, kind: usize, plan: &Plan) -> Bytes {
        let (layer, stack) = (&self.problem.model().kinds[kind], self.device.stack);
        let routed = layer.moe().filter(|_| stack.memory.recomputes_experts);
        let exchanged = routed.map_or(Bytes::ZERO, |moe| self.kept_exchange(moe, plan));
        if let Mixer::Attention(attention) = &layer.mixer
            && self.hides_layer(layer)
        {
            let reduced = if plan.layout.tp == 1 { 0.0 } else { 1.0 + f64::from(u8::from(plan.layout.etp > 1)) };
            return self.kept_attention(attention, plan) + self.checkpoint(plan) * (1.0 + reduced) + exchanged;
        }
        let shared = routed.and_then(Moe::shared);
        let mlp_width = match &layer.ffn {
            Ffn::Dense(mlp) => Some(f64::from(mlp.intermediate)),
            Ffn::Moe(_) => routed.map(|_| shared.as_ref().map_or(0.0, |mlp| f64::from(mlp.intermediate))),
            Ffn::None => None,
        };
        if let (Mixer::Attention(attention), Some(mlp_width)) = (&layer.mixer, mlp_width)
            && let Some(listed) = self.listed_operators(attention, mlp_width, plan)
        {
            return listed + exchanged;
        }
        let recomputed = Modules { moe: routed.is_some(), ..Modules::default() };
        let of_shared = shared
            .map_or(0.0, |mlp| self.mlp_activations(mlp.gates() as f64, f64::from(mlp.intermediate), plan, recomputed));
        let all = self.all_activations(kind, plan, recomputed)
            + Bytes::new(self.tokens(plan) * of_shared) * stack.activation_memory;
        all * stack.per_op_kept + exchanged
    }

    /// Bytes that PyTorch's list of operators keeps of a layer with attention and an MLP of width `mlp_width` (f; 0 without an MLP).
    /// `None` if the stack does not keep that list.
    ///
    /// ```text
    /// n·(2·(d(a+2g) + f)/t + 2h + 2·a·d/t + 4a/t + 2h/ts)   every second matmul, with an MLP down's whole partial sums, attention,
    ///                                                       the input
    /// n·(2·(d(a+g) + f)/t + 2·a·d/t + 4a/t + 2h/ts)         compiled: queries, values, the gate, attention, the input
    ///                                                       and with t > 1 the reduced output of attention 2h/ts
    /// ```
    ///
    /// Sources: [memory-oracle]; compiled, [meshwright-silicon].
    fn listed_operators(&self, attention: &Attention, mlp_width: f64, plan: &Plan) -> Option<Bytes> {
        let memory = &self.device.stack.memory;
        let (hidden, tp) = (f64::from(self.problem.model().hidden), f64::from(plan.layout.tp));
        let qkv = attention.qkv_width() as f64;
        let keys = f64::from(attention.kv_heads) * f64::from(attention.head_dim);
        let reduced = if plan.layout.tp > 1 { 2.0 * hidden / plan.sequence_shards() } else { 0.0 };
        let down = if mlp_width > 0.0 { hidden } else { 0.0 };
        let matmuls = if memory.keeps_needed_operators {
            2.0 * (qkv - keys + mlp_width) / tp + reduced
        } else if memory.keeps_listed_operators {
            2.0 * ((qkv + mlp_width) / tp + down)
        } else {
            return None;
        };
        let kept = Bytes::new(self.tokens(plan) * matmuls);
        Some(kept + self.kept_attention(attention, plan) + self.checkpoint(plan))
    }

    /// Bytes of attention's output and of its log-sum-exp.
    fn kept_attention(&self, attention: &Attention, plan: &Plan) -> Bytes {
        let heads = f64::from(attention.heads) / f64::from(plan.layout.tp);
        Bytes::new(self.tokens(plan) * (2.0 * f64::from(attention.v_dim()) + LOG_SUM_EXP) * heads)
    }

    /// Bytes that checkpointing by operator keeps of the exchange of tokens between experts' ranks, `2ℓ·(T + n·k)`.
    fn kept_exchange(&self, moe: &Moe, plan: &Plan) -> Bytes {
        if !self.device.stack.memory.keeps_exchanged_tokens || plan.layout.ep <= 1 {
            return Bytes::ZERO;
        }
        let copies = self.most_received(moe, plan) + self.owned_tokens(plan) * f64::from(moe.top_k);
        Bytes::new(2.0 * f64::from(moe.token_width(self.problem.model().hidden)) * copies)
    }

    /// Activations of one layer, without those of the recomputed modules.
    ///
    /// ```text
    /// common   n·(4h/ts + 2·ε·h/ts + 2δ·h/ts)               residual inputs, normed inputs of two GEMMs, dropout masks
    /// + mixer + feed-forward part                          below; ε = bytes of a stored input of a GEMM: 2, 1, NVFP4 0.5625
    /// + n·ε·h/ts                                           where attention and Mamba each scale the normed input for themselves
    /// ```
    ///
    /// Source: specification §6.3, reproducing [korthikanti22] s·b·h·(10 + 24/t + 5·a·s/(h·t)).
    pub(super) fn all_activations(&self, kind: usize, plan: &Plan, recomputed: Modules) -> Bytes {
        let layer = &self.problem.model().kinds[kind];
        let (tokens, hidden) = (self.tokens(plan), f64::from(self.problem.model().hidden));
        let blocks = f64::from(u8::from(layer.mixer != Mixer::None)) + f64::from(u8::from(layer.ffn != Ffn::None));
        let mask = if self.problem.model().dropout { 1.0 } else { 0.0 };
        let normed = if recomputed.layernorm { 0.0 } else { self.input_bytes() };
        let norms = if self.device.stack.memory.unfused_norms { UNFUSED_NORM } else { 0.0 };
        let common =
            blocks * hidden * ((2.0 + mask + norms) / plan.sequence_shards() + normed / self.input_shards(plan));
        let mixer = self.mixer_activations(&layer.mixer, plan, recomputed);
        let ffn = match &layer.ffn {
            Ffn::Dense(_) if recomputed.mlp => Bytes::ZERO,
            Ffn::Dense(mlp) => Bytes::new(
                tokens * self.mlp_activations(mlp.gates() as f64, f64::from(mlp.intermediate), plan, recomputed),
            ),
            Ffn::Moe(_) if recomputed.moe => Bytes::ZERO,
            Ffn::Moe(moe) => self.moe_activations(moe, plan, recomputed),
            Ffn::None => Bytes::ZERO,
        };
        (Bytes::new(tokens * (common + mixer)) + ffn) * self.device.stack.activation_memory
    }

    /// Bytes per token of a mixer beyond its input, which `common` has once.
    fn mixer_activations(&self, mixer: &Mixer, plan: &Plan, recomputed: Modules) -> f64 {
        let (hidden, tp) = (f64::from(self.problem.model().hidden), f64::from(plan.layout.tp));
        match mixer {
            Mixer::Attention(attention) => self.attention_activations(attention, plan, recomputed),
            Mixer::Mla(mla @ Mla { indexer: Some(indexer), .. }) => {
                self.sparse_activations(mla, indexer, plan, recomputed)
            }
            Mixer::Mla(mla) => self.mla_activations(mla, plan, recomputed),
            Mixer::Mamba(m) => 2.0 * (m.in_width() + 2 * m.inner()) as f64 / tp,
            Mixer::DeltaNet(d) => gated_delta_kept(d, tp),
            Mixer::KimiDelta(d) => kimi_delta_kept(d, tp),
            Mixer::ShortConv(_) => SHORT_CONV_KEPT * hidden / tp,
            Mixer::AttentionMamba(both) => {
                let parts = both.mixers().map(|part| self.mixer_activations(&part, plan, recomputed));
                parts.iter().sum::<f64>() + self.input_bytes() * hidden / self.input_shards(plan)
            }
            Mixer::None => 0.0,
        }
    }

    /// Ranks among which the kept inputs of column-parallel matmuls are split: 1 where the stack keeps the gathered inputs.
    pub(super) fn input_shards(&self, plan: &Plan) -> f64 {
        if self.device.stack.memory.keeps_gathered_inputs { 1.0 } else { plan.sequence_shards() }
    }

    /// Bytes of a stored input of a GEMM.
    const fn input_bytes(&self) -> f64 {
        self.device.format.element_bytes()
    }

    /// Bytes per token of attention: `2·d(a+2g)/t + 2·a·d/t + 4a/t`, and `a/t·s·(2 + 3δ)` for unfused scores (§6.3).
    /// Another `2·d(a+g)/t` where rotated queries and keys are kept in addition to the whole output of QKV, and again
    /// where norms of queries and keys keep their input (6 instead of 2 if unfused).
    fn attention_activations(&self, attention: &Attention, plan: &Plan, recomputed: Modules) -> f64 {
        let tp = f64::from(plan.layout.tp);
        let heads = f64::from(attention.heads) / tp;
        let output = self.device.stack.memory.attention_output_bytes * heads * f64::from(attention.v_dim());
        let mut bytes = 2.0 * attention.qkv_width() as f64 / tp + output + LOG_SUM_EXP * heads;
        let rotated = f64::from(attention.heads + attention.kv_heads) * f64::from(attention.head_dim) / tp;
        let memory = &self.device.stack.memory;
        if memory.keeps_whole_qkv {
            bytes += 2.0 * rotated;
        }
        if attention.qk_norm != QkNorm::None {
            bytes += rotated * if memory.unfused_norms { 2.0 + UNFUSED_NORM } else { 2.0 };
        }
        if self.keeps_scores() && !recomputed.core_attn {
            let masks = if self.problem.model().dropout { SCORE_MASKS } else { 0.0 };
            bytes += heads * f64::from(self.problem.workload().seq_len) * (2.0 + masks);
        }
        bytes
    }

    /// Bytes per token of latent attention: `(2+ε)(q_r+kv_r) + 2d_r + 2(a/t)(2·d_qk + d_v) + 2·a·d_v/t + 4a/t` (§6.3); recomputing
    /// the up-projections leaves the compressions and the context.
    fn mla_activations(&self, mla: &Mla, plan: &Plan, recomputed: Modules) -> f64 {
        let heads = f64::from(mla.heads) / f64::from(plan.layout.tp);
        let (qk, v) = (f64::from(mla.qk_dim()), f64::from(mla.v_dim));
        let ranks = (2.0 + self.input_bytes()) * f64::from(mla.q_rank + mla.kv_rank) + 2.0 * f64::from(mla.rope_dim);
        let up = if recomputed.mla_up_proj { 0.0 } else { 2.0 * heads * (2.0 * qk + v) };
        ranks + up + self.device.stack.memory.attention_output_bytes * heads * v + LOG_SUM_EXP * heads
    }

    /// Bytes per token of a dense MLP: `2·G·f/t + ε·f/t`, and `2·f/t` where the activated gate is kept; recomputing the activation
    /// function leaves the first term.
    fn mlp_activations(&self, gates: f64, intermediate: f64, plan: &Plan, recomputed: Modules) -> f64 {
        let width = intermediate / f64::from(plan.layout.tp);
        let activated = if recomputed.act { 0.0 } else { (self.input_bytes() + self.gate_bytes(gates)) * width };
        self.device.stack.memory.activation_input_bytes * gates * width + activated
    }

    /// Bytes of an element of the activated gate of an MLP, where the stack keeps it.
    fn gate_bytes(&self, gates: f64) -> f64 {
        if self.device.stack.memory.keeps_activated_gate && gates > 1.0 { 2.0 } else { 0.0 }
    }

    /// Activations of a mixture of experts with T copies of tokens, as the busiest rank receives them:
    ///
    /// ```text
    /// T·(ε·h + 2·G·f_e/t_e + ε·f_e/t_e + 2h) + n·shared MLP + 8·n·E/t          specification §6.3
    /// ```
    ///
    /// Experts of a latent space have ℓ in place of h, and the rank's own tokens are inputs of the projections: `ε·ℓ` each, and
    /// another `ε·h` in formats that copy the hidden state, which the shared MLP keeps otherwise.
    fn moe_activations(&self, moe: &Moe, plan: &Plan, recomputed: Modules) -> Bytes {
        let (tokens, hidden) = (self.tokens(plan), self.problem.model().hidden);
        let token = f64::from(moe.token_width(hidden));
        let received = self.most_received(moe, plan);
        let (width, gates) = (f64::from(moe.intermediate) / f64::from(plan.layout.etp), moe.expert().gates() as f64);
        let activated = if recomputed.act { 0.0 } else { (self.input_bytes() + self.gate_bytes(gates)) * width };
        let memory = &self.device.stack.memory;
        let outputs = if memory.keeps_expert_outputs { 2.0 * token } else { 0.0 };
        let inputs = memory.activation_input_bytes * gates * width;
        let routed = received * (self.input_bytes() * token + inputs + activated + outputs);
        let shared = moe
            .shared()
            .map_or(0.0, |mlp| self.mlp_activations(mlp.gates() as f64, f64::from(mlp.intermediate), plan, recomputed));
        let router = ROUTED * f64::from(moe.experts) / f64::from(plan.layout.tp);
        let copied = if self.device.format == Format::Bf16 { 0.0 } else { f64::from(hidden) };
        let projected = if moe.latent == 0 { 0.0 } else { self.input_bytes() * (token + copied) };
        Bytes::new(routed + tokens * (shared + router) + self.owned_tokens(plan) * projected)
    }
}
