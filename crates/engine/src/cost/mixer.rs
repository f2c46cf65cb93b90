//! Cost of the token mixer of a layer: norms, attention, or a recurrence (Mamba, gated delta rule).

use super::adapters::Adapted;
use super::costs::Costs;
use super::groups;
use super::layer::{LayerCost, PassTimes};
use super::traffic::chunked::{BlockSizes, PerToken};
use super::traffic::{self, Streamed, StreamedPasses, beside, chunked, gated_delta, kimi_delta, latent, split_passes};
use crate::gpu::AttentionKernel;
use crate::kernel::{AttentionShape, ContextSplit, LinearShape};
use crate::model::attention::{Projection, Widths};
use crate::model::{
    Attention, AttentionMamba, DeltaNet, Ffn, KimiDelta, Layer, Mamba, Mixer, Mla, Norm, QkNorm, ShortConv, Span,
};
use crate::plan::{CpKind, Plan};
use crate::units::Bytes;

/// Heads of the attention of a whole layer, and the dimensions of each.
struct Heads {
    /// Heads of queries.
    queries: f64,
    /// Heads of keys and values.
    keys: f64,
    /// Dimension of a head of queries and keys.
    qk_dim: f64,
    /// Dimension of a head of values.
    v_dim: f64,
}

impl Costs<'_> {
    /// Adds the norms and residuals of a layer to its cost, for the tokens that this rank holds.
    pub(super) fn norms(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        let model = self.problem.model();
        let residuals = f64::from(u8::from(layer.mixer != Mixer::None)) + f64::from(u8::from(layer.ffn != Ffn::None));
        let of_layer = f64::from(layer.norms);
        let (norms, eager) = if self.norms_are_eager() { (0.0, of_layer) } else { (of_layer, 0.0) };
        let mask = f64::from(u8::from(model.dropout));
        let engine = self.device.stack.transformer_engine;
        let residual_forward = traffic::RESIDUAL.forward + if engine { 0.0 } else { mask };
        let residual_backward =
            if engine && !model.dropout { traffic::FUSED_RESIDUAL_BACKWARD } else { traffic::RESIDUAL.backward };
        let elements = self.tokens(plan) / plan.sequence_shards() * f64::from(model.hidden);
        let bytes = |norm: f64, residual: f64| Bytes::new((norms * norm + residuals * residual) * elements);
        let kernels = norms + residuals;
        cost.norms = self.device.stream(bytes(traffic::NORM.forward, residual_forward), kernels);
        cost.forward += cost.norms;
        cost.dgrad += self
            .device
            .stream(bytes(traffic::NORM.backward, residual_backward), kernels * traffic::NORM_BACKWARD_KERNELS);
        if eager > 0.0 {
            let PassTimes { forward, backward } = self.by_operators(&traffic::EAGER_NORM, eager * elements, eager);
            cost.norms += forward;
            cost.forward += forward;
            cost.dgrad += backward;
        }
    }

    /// Whether norms run operator by operator; a `LayerNorm` is one kernel in PyTorch too.
    fn norms_are_eager(&self) -> bool {
        let stack = &self.device.stack;
        stack.eager_operators && !stack.fused_norms && self.problem.model().norm == Norm::Rms
    }

    /// Time of `calls` calls over `elements` elements in all, operator by operator.
    fn by_operators(&self, passes: &StreamedPasses, elements: f64, calls: f64) -> PassTimes {
        let time = |of: &Streamed| self.device.stream_fused(Bytes::new(of.bytes * elements), of.kernels * calls);
        PassTimes { forward: time(&passes.forward), backward: time(&passes.backward) }
    }

    /// Adds the mixer of a layer to its cost: attention, latent attention or a recurrence.
    pub(super) fn mixer(&self, layer: &Layer, plan: &Plan, cost: &mut LayerCost) {
        match &layer.mixer {
            Mixer::Attention(attention) => self.attention(attention, plan, cost),
            Mixer::Mla(mla) => self.mla(mla, plan, cost),
            Mixer::Mamba(mamba) => self.mamba(mamba, plan, cost),
            Mixer::AttentionMamba(both) => {
                self.attention(&both.attention, plan, cost);
                self.mamba(&both.mamba, plan, cost);
                self.multipliers_and_sum(both, &layer.ffn, plan, cost);
            }
            Mixer::DeltaNet(net) => self.gated_delta_net(net, plan, cost),
            Mixer::KimiDelta(net) => self.kimi_delta_attention(net, plan, cost),
            Mixer::ShortConv(_) => self.short_conv(plan, cost),
            Mixer::None => {}
        }
    }

    /// Adds projections and scan of a Mamba-2 block to a layer's cost.
    fn mamba(&self, mamba: &Mamba, plan: &Plan, cost: &mut LayerCost) {
        self.input_and_output_projections(&mamba.projections(self.problem.model().hidden), plan, cost);
        if self.device.stack.scans_by_chunk {
            self.scan_by_chunk(mamba, plan, cost);
        } else {
            self.scan(mamba.inner(), plan, cost);
        }
    }

    /// Adds the elementwise kernels of a layer with attention and Mamba side by side to its cost: the products with the
    /// multipliers of `config.json`, and the sum of both outputs.
    ///
    /// ```text
    /// n·(26·h/ts + 4·(g·d + d_in + f)/t), 9 kernels, in either pass          specification §2.3
    /// ```
    ///
    /// g·d = width of the keys, d_in = width of Mamba's input projection, f = width of the MLP's gate.
    fn multipliers_and_sum(&self, both: &AttentionMamba, ffn: &Ffn, plan: &Plan, cost: &mut LayerCost) {
        let (hidden, tp) = (f64::from(self.problem.model().hidden), f64::from(plan.layout.tp));
        let keys = f64::from(both.attention.kv_heads) * f64::from(both.attention.head_dim);
        let gate = match ffn {
            Ffn::Dense(mlp) => f64::from(mlp.intermediate),
            Ffn::Moe(_) | Ffn::None => 0.0,
        };
        let whole = (beside::HIDDEN_PRODUCTS * beside::PRODUCT + beside::SUM) * hidden / plan.sequence_shards();
        let split = beside::PRODUCT * (keys + both.mamba.in_width() as f64 + gate) / tp;
        let time = self.device.stream(Bytes::new(self.tokens(plan) * (whole + split)), beside::KERNELS);
        cost.forward += time;
        cost.dgrad += time;
    }

    /// Adds projections, rotary embedding and the core of grouped-query attention to a layer's cost.
    fn attention(&self, attention: &Attention, plan: &Plan, cost: &mut LayerCost) {
        let (hidden, tp, tokens) =
            (f64::from(self.problem.model().hidden), f64::from(plan.layout.tp), self.tokens(plan));
        let format = self.device.format;
        let qkv = attention.qkv_width() as f64 / tp;
        let out = attention.context_width() as f64 / tp;
        cost.add(self.device.linear(LinearShape::dense(tokens, hidden, qkv), format));
        cost.add(self.device.linear(LinearShape::dense(tokens, out, hidden), format));
        let keys = f64::from(attention.kv_heads) * f64::from(attention.head_dim) / tp;
        let values = f64::from(attention.kv_heads) * f64::from(attention.v_dim()) / tp;
        let values = if attention.keys_are_values { 0.0 } else { values };
        let into = [qkv - keys - values, keys, values].into_iter().filter(|width| *width > 0.0);
        let projections =
            into.map(|output| Widths { input: hidden, output }).chain([Widths { input: out, output: hidden }]);
        self.adapters(Adapted::Mixer, tokens, projections, cost);
        let PassTimes { forward, backward } = self.rotation(attention, tokens, qkv, tp);
        cost.forward += forward;
        cost.dgrad += backward;
        if attention.qk_norm != QkNorm::None && (self.device.stack.qk_norm_kernels || self.norms_are_eager()) {
            self.query_key_norms(attention, plan, cost);
        }
        let kernel = if attention.sinks && !self.device.stack.fused_sinks {
            AttentionKernel::Unfused
        } else {
            self.device.stack.attention
        };
        let heads = Heads {
            queries: f64::from(attention.heads),
            keys: f64::from(attention.kv_heads),
            qk_dim: f64::from(attention.head_dim),
            v_dim: f64::from(attention.v_dim()),
        };
        self.attention_core(&heads, attention.span, kernel, plan, cost);
    }

    /// Time of the split of the fused projection and of the rotation of queries and keys.
    fn rotation(&self, attention: &Attention, tokens: f64, qkv: f64, tp: f64) -> PassTimes {
        if attention.rope && self.device.stack.eager_operators {
            let rotated = f64::from(attention.heads + attention.kv_heads) * f64::from(attention.head_dim) / tp;
            return self.by_operators(&traffic::EAGER_ROTARY, tokens * rotated, 1.0);
        }
        let passes = match (attention.rope, self.device.stack.transformer_engine) {
            (false, false) => split_passes::PLAIN,
            (true, false) => split_passes::ROTARY,
            (false, true) => split_passes::FUSED,
            (true, true) => split_passes::FUSED_ROTARY,
        };
        let split = Bytes::new(traffic::SPLIT.bytes * tokens * qkv * passes);
        let split = self.device.stream(split, traffic::SPLIT.kernels);
        PassTimes { forward: split, backward: split }
    }

    /// Norms of queries and of keys, a kernel each: those of a layer's input over n·(a + g)·d/t elements (specification §2.4).
    fn query_key_norms(&self, attention: &Attention, plan: &Plan, cost: &mut LayerCost) {
        let heads = f64::from(attention.heads + attention.kv_heads) / f64::from(plan.layout.tp);
        let elements = self.tokens(plan) * heads * f64::from(attention.head_dim);
        let PassTimes { forward, backward } = if self.norms_are_eager() {
            self.by_operators(&traffic::EAGER_NORM, elements, 2.0)
        } else {
            let time = |bytes: f64, kernels: f64| self.device.stream(Bytes::new(bytes * elements), kernels);
            PassTimes {
                forward: time(traffic::NORM.forward, 2.0),
                backward: time(traffic::NORM.backward, 2.0 * traffic::NORM_BACKWARD_KERNELS),
            }
        };
        cost.forward += forward;
        cost.dgrad += backward;
    }

    /// Adds projections, norms, rotary parts and the core of latent attention to a layer's cost.
    fn mla(&self, mla: &Mla, plan: &Plan, cost: &mut LayerCost) {
        let (tp, tokens) = (f64::from(plan.layout.tp), self.tokens(plan));
        for projection in mla.token_projections(self.problem.model().hidden) {
            let widths = projection.on_rank(tp);
            let linear =
                self.device.linear(LinearShape::dense(tokens, widths.input, widths.output), self.device.format);
            self.adapters(Adapted::Mixer, tokens, [widths], cost);
            if projection.is_up {
                cost.up_projections += linear.forward;
            }
            cost.add(linear);
        }
        let (ranks, heads) = (f64::from(mla.q_rank + mla.kv_rank), f64::from(mla.heads) / tp);
        let of_head = if mla.rope {
            latent::ROTARY_BYTES * f64::from(mla.qk_dim())
        } else {
            latent::COPIED * f64::from(mla.nope_dim) + latent::EXPANDED * f64::from(mla.rope_dim)
        };
        let joined = if mla.indexer.is_some() { 0.0 } else { heads * of_head };
        let bytes = tokens * (latent::NORM_BYTES * ranks + joined);
        cost.forward += self.device.stream(Bytes::new(bytes), latent::KERNELS.forward);
        cost.dgrad += self.device.stream(Bytes::new(latent::BACKWARD * bytes), latent::KERNELS.backward);
        if let Some(indexer) = &mla.indexer {
            self.sparse_attention(mla, indexer, plan, cost);
            return;
        }
        let heads = f64::from(mla.heads);
        let (qk_dim, v_dim) = (f64::from(mla.qk_dim()), f64::from(mla.v_dim));
        let heads = Heads { queries: heads, keys: heads, qk_dim, v_dim };
        self.attention_core(&heads, Span::Full, self.device.stack.attention, plan, cost);
    }

    /// Adds scores, softmax and context of one rank to a layer's cost: a sequence of documents costs what its documents cost as
    /// sequences. Where there are more tensor-parallel ranks than heads of keys, ranks hold copies of a head.
    fn attention_core(&self, heads: &Heads, span: Span, kernel: AttentionKernel, plan: &Plan, cost: &mut LayerCost) {
        let seq_len = self.attention_len(kernel);
        let shape = AttentionShape {
            sequences: f64::from(plan.micro_batch) * (f64::from(self.problem.workload().seq_len) / seq_len),
            heads: heads.queries / f64::from(plan.layout.tp),
            kv_heads: (heads.keys / f64::from(plan.layout.tp)).max(1.0),
            seq_len,
            attended: span.mean_keys(seq_len) / seq_len,
            qk_dim: heads.qk_dim,
            v_dim: heads.v_dim,
            dropout: self.problem.model().dropout,
            context_split: self.context_split(plan),
        };
        let PassTimes { forward, backward } = self.device.attention(&shape, kernel);
        cost.attention += forward;
        cost.attention_backward += backward;
        cost.forward += forward;
        cost.dgrad += backward;
    }

    /// Split of one layer's attention over the plan's context-parallel ranks.
    fn context_split(&self, plan: &Plan) -> ContextSplit {
        let ranks = f64::from(plan.layout.cp);
        let whole = ContextSplit { ranks, ..ContextSplit::WHOLE };
        match plan.cp_kind {
            CpKind::Ring => ContextSplit { by_chunks: ranks, ..whole },
            CpKind::AllGather if self.device.stack.attends_by_shard => ContextSplit { by_chunks: ranks, ..whole },
            CpKind::AllGather => ContextSplit { by_queries: ranks, ..whole },
            CpKind::AllToAll => ContextSplit { by_heads: ranks, ..whole },
            CpKind::Hierarchical => {
                let inside = f64::from(self.fabric.inside_domain(groups::cp(plan)));
                ContextSplit { by_heads: inside, by_chunks: ranks / inside, ..whole }
            }
        }
    }

    /// Adds the projections of a state-space or delta-rule block to a layer's cost.
    fn input_and_output_projections(&self, projections: &[Projection], plan: &Plan, cost: &mut LayerCost) {
        let (tp, tokens) = (f64::from(plan.layout.tp), self.tokens(plan));
        for projection in projections {
            let widths = projection.on_rank(tp);
            cost.add(self.device.linear(LinearShape::dense(tokens, widths.input, widths.output), self.device.format));
            self.adapters(Adapted::Mixer, tokens, [widths], cost);
        }
    }

    /// Adds the projections, gates and convolution of a gated short convolution to a layer's cost: streaming kernels
    /// over the h channels.
    ///
    /// ```text
    /// forward    16·n·h/t, 3 kernels          backward    42·n·h/t, 6 kernels          specification §2.3
    /// ```
    fn short_conv(&self, plan: &Plan, cost: &mut LayerCost) {
        let hidden = self.problem.model().hidden;
        self.input_and_output_projections(&ShortConv::projections(hidden), plan, cost);
        let channels = self.tokens(plan) * f64::from(hidden) / f64::from(plan.layout.tp);
        let time = |pass: &Streamed| self.device.stream_fused(Bytes::new(pass.bytes * channels), pass.kernels);
        cost.forward += time(&traffic::SHORT_CONV.forward);
        cost.dgrad += time(&traffic::SHORT_CONV.backward);
    }

    /// Adds the projections and kernels of a gated delta rule to a layer's cost: w channels of values, k of keys, e of
    /// the keys expanded to the heads of values, head dimension d of keys, chunks of Q tokens.
    ///
    /// ```text
    /// forward    n·((38 + 4·d/Q)·w + 50·k + 4·e + 6·Q·heads)/t
    /// backward   n·((58 + 8·d/Q)·w + 64·k + 16·e + 4·Q·heads)/t, and n·6·(k + e)/t where heads of values share keys
    /// specification §2.3
    /// ```
    fn gated_delta_net(&self, net: &DeltaNet, plan: &Plan, cost: &mut LayerCost) {
        self.input_and_output_projections(&net.projections(self.problem.model().hidden), plan, cost);
        let share = self.tokens(plan) / f64::from(plan.layout.tp);
        let sizes = BlockSizes::of_delta_rule(net);
        let (sums, sum_kernels) =
            if net.shares_keys() { (gated_delta::SHARED, gated_delta::SHARED_KERNELS) } else { (PerToken::NONE, 0.0) };
        let time = |bytes: f64, kernels: f64| self.device.stream_fused(Bytes::new(share * bytes), kernels);
        let slowdown = self.slowdown_by_chunk();
        let forward = gated_delta::FORWARD.streamed(&gated_delta::FORWARD_BY_CHUNK, slowdown, &sizes);
        let forward = time(forward, gated_delta::KERNELS.forward);
        cost.attention += forward;
        cost.forward += forward;
        let backward =
            gated_delta::BACKWARD.streamed(&gated_delta::BACKWARD_BY_CHUNK, slowdown, &sizes) + sums.bytes(&sizes);
        cost.dgrad += time(backward, gated_delta::KERNELS.backward + sum_kernels);
    }

    /// Adds the projections and kernels of Kimi Delta Attention to a layer's cost: width w, heads of d, chunks of Q tokens.
    ///
    /// ```text
    /// forward    n·((82 + 4·d/Q)·w + 12.5·Q·heads)/t
    /// backward   n·((202 + 8·d/Q)·w + 22·Q·heads)/t          specification §2.3
    /// ```
    fn kimi_delta_attention(&self, net: &KimiDelta, plan: &Plan, cost: &mut LayerCost) {
        self.input_and_output_projections(&net.projections(self.problem.model().hidden), plan, cost);
        let share = self.tokens(plan) / f64::from(plan.layout.tp);
        let sizes = BlockSizes {
            channels: net.width() as f64,
            state: f64::from(net.head_dim) / kimi_delta::TOKENS,
            group: 0.0,
            expanded: 0.0,
            chunk: f64::from(net.heads) * kimi_delta::TOKENS,
        };
        let slowdown = self.slowdown_by_chunk();
        let time = |[pass, by_chunk]: [&PerToken; 2], kernels: f64| {
            self.device.stream_fused(Bytes::new(share * pass.streamed(by_chunk, slowdown, &sizes)), kernels)
        };
        let forward = time([&kimi_delta::FORWARD, &kimi_delta::FORWARD_BY_CHUNK], kimi_delta::KERNELS.forward);
        cost.attention += forward;
        cost.forward += forward;
        cost.dgrad += time([&kimi_delta::BACKWARD, &kimi_delta::BACKWARD_BY_CHUNK], kimi_delta::KERNELS.backward);
    }

    /// Time of kernels that multiply a chunk's matrices, relative to streaming kernels, on the problem's device:
    /// [`chunked::slowdown`].
    fn slowdown_by_chunk(&self) -> f64 {
        chunked::slowdown(self.device.streaming_bandwidth(), self.device.gpu.processors.value)
    }

    /// Adds a memory-bound scan of `inner` channels to a layer's cost.
    fn scan(&self, inner: u64, plan: &Plan, cost: &mut LayerCost) {
        let channels = self.tokens(plan) * inner as f64 / f64::from(plan.layout.tp);
        let time = |pass: Streamed| self.device.stream(Bytes::new(pass.bytes * channels), pass.kernels);
        let forward = time(traffic::SCAN.forward);
        cost.attention += forward;
        cost.forward += forward;
        cost.dgrad += time(traffic::SCAN.backward);
    }

    /// Convolution, scan by chunks and gated norm of a state-space block, kernel by kernel: d inner channels, g groups of state
    /// N, chunks of Q tokens.
    ///
    /// ```text
    /// forward    n·((18 + 12·N/Q)·d + 16·g·N + 8·g·Q)          backward    n·((52 + 34·N/Q)·d + 58·g·N + 24·g·Q)
    /// + n·(12·d + 8·g·N) in either pass with several sequences a micro-batch: copies to sequence-first order and back
    /// − 4·n·d forward, 8·n·d backward without the norm
    /// ```
    ///
    /// Source: specification §2.3 ([mamba-ssm], [megatron-lm] `mamba_mixer.py`).
    fn scan_by_chunk(&self, mamba: &Mamba, plan: &Plan, cost: &mut LayerCost) {
        let share = self.tokens(plan) / f64::from(plan.layout.tp);
        let (state, groups) = (f64::from(mamba.state), f64::from(mamba.groups));
        let sizes = BlockSizes {
            channels: mamba.inner() as f64,
            state: state / chunked::TOKENS,
            group: groups * state,
            expanded: 0.0,
            chunk: groups * chunked::TOKENS,
        };
        let copied = if plan.micro_batch > 1 { chunked::COPIES } else { PerToken::NONE };
        let norm_left_out = f64::from(u8::from(!mamba.norm));
        let slowdown = self.slowdown_by_chunk();
        let time = |[pass, by_chunk]: [&PerToken; 2], kernels: f64, norm: f64| {
            let bytes = pass.streamed(by_chunk, slowdown, &sizes) + copied.bytes(&sizes)
                - norm_left_out * norm * sizes.channels;
            self.device.stream_fused(Bytes::new(share * bytes), kernels - norm_left_out)
        };
        let forward =
            time([&chunked::FORWARD, &chunked::FORWARD_BY_CHUNK], chunked::KERNELS.forward, chunked::NORM.forward);
        cost.attention += forward;
        cost.forward += forward;
        cost.dgrad +=
            time([&chunked::BACKWARD, &chunked::BACKWARD_BY_CHUNK], chunked::KERNELS.backward, chunked::NORM.backward);
    }
}
