//! Latent attention over the keys that an indexer chooses, as Megatron core runs it from 0.19 on with fused kernels.
//!
//! Symbols: n tokens of a micro-batch, s of a sequence, a heads on a rank, q_r, r and d_r ranks and rotary width of
//! latent attention, a_i and d_i heads and width of the indexer, k keys chosen, σ = s/2 and κ = k·(1 − k/(2s)) the mean
//! keys before a token and chosen for it.
//!
//! Source of all: [megatron-lm] `experimental_attention_variant/dsa.py`, `absorbed_mla.py` and `dsa_cudnn_kernels.py`,
//! release 0.19.

use super::costs::Costs;
use super::layer::{LayerCost, PassTimes};
use super::traffic::{self, BF16, FP32, StreamedPasses, sparse};
use crate::collective::Group;
use crate::gpu::{Collective, Format};
use crate::kernel::{Linear, LinearShape, Pass};
use crate::model::{Indexer, Layer, Mixer, Mla, Span};
use crate::plan::{Modules, Plan};
use crate::problem::IndexScores;
use crate::units::{Bytes, Flops, Seconds};

/// Heads of queries that the kernels compute together, to whose multiple they are padded; heads of the indexer in
/// backward likewise.
const PADDED_HEADS: u32 = 64;

/// GEMMs of the backward of sparse attention over the width of the joined keys: scores, and the gradients of queries and keys.
const BACKWARD_GEMMS_OF_KEYS: f64 = 3.0;
/// GEMMs of the backward of sparse attention over the width of the values: gradients of scores and of values.
const BACKWARD_GEMMS_OF_VALUES: f64 = 2.0;

/// GEMMs over the chosen keys in the indexer's backward: its scores once more, gradients of index queries and of index keys.
const INDEX_BACKWARD_GEMMS: f64 = 3.0;

/// Bytes that the choice among scores takes beside them, at the most. Source: `_TOPK_WRAPPER_MAX_SCRATCH_BYTES`.
const MOST_SCRATCH: Bytes = Bytes::new(2_147_483_648.0);

/// Keys and values of latent attention where its maps are absorbed: one head of both for all heads of queries.
#[derive(Clone, Copy)]
struct Absorbed {
    /// Heads of queries on a rank.
    heads: f64,
    /// Heads that the kernels compute, a'.
    padded: f64,
    /// Width of a key: the compression and the rotary part.
    keys: f64,
    /// Width of a value: the compression.
    values: f64,
}

impl Absorbed {
    fn of(mla: &Mla, plan: &Plan) -> Self {
        let heads = f64::from(mla.heads) / f64::from(plan.layout.tp);
        let rank = f64::from(mla.kv_rank);
        let block = f64::from(PADDED_HEADS);
        let padded = (heads / block).ceil() * block;
        Self { heads, padded, keys: rank + f64::from(mla.rope_dim), values: rank }
    }
}

/// Mean number of keys that are chosen for a token.
fn mean_chosen(indexer: &Indexer, seq_len: u32) -> f64 {
    indexer.span().mean_keys(f64::from(seq_len))
}

impl Costs<'_> {
    /// Adds the maps that are absorbed, the indexer and attention over the chosen keys to a layer's cost.
    ///
    /// ```text
    /// absorbed     n·(d_n × r) and n·(r × d_v), a times each; gradients as for any map
    /// attention    2·n·a'·(2r + d_r)·κ                     backward 2·n·a'·(3·(r + d_r) + 2·r)·κ          a' = a, in whole 64s
    /// loss         2·n·a'·(r + d_r)·κ scores once more, 3·2·n·a_i'·d_i·κ for the indexer's gradients, both in backward
    /// ```
    ///
    /// The loss belongs to the forward pass, or to the second one where a layer is recomputed: either way once, so that
    /// it counts in backward here.
    pub(super) fn sparse_attention(&self, mla: &Mla, indexer: &Indexer, plan: &Plan, cost: &mut LayerCost) {
        let tokens = self.tokens(plan);
        let wide = Absorbed::of(mla, plan);
        let absorbed =
            |input, output| self.device.linear(LinearShape { tokens, input, output, batch: wide.heads }, Format::Bf16);
        let queries = absorbed(f64::from(mla.nope_dim), wide.values);
        cost.up_projections += queries.forward;
        cost.add(queries);
        cost.add(absorbed(wide.values, f64::from(mla.v_dim)));
        let joined = self.joined_queries(mla, wide, tokens);
        cost.forward += joined.forward;
        cost.dgrad += joined.backward;
        let chosen = mean_chosen(indexer, self.problem.workload().seq_len);
        let blocks = tokens * wide.padded / f64::from(PADDED_HEADS);
        let time = |pass, width: f64| {
            let work = Flops::new(2.0 * tokens * wide.padded * width * chosen);
            self.device.sparse_attention(work, blocks, pass)
        };
        let attention = time(Pass::Forward, wide.keys + wide.values);
        let back = time(Pass::Dgrad, BACKWARD_GEMMS_OF_KEYS * wide.keys + BACKWARD_GEMMS_OF_VALUES * wide.values);
        let (choice, loss) = if indexer.shared {
            (Seconds::ZERO, Seconds::ZERO)
        } else {
            self.index(mla, indexer, plan, cost);
            (self.choice(indexer, tokens), time(Pass::Forward, wide.keys) + self.index_loss(indexer, tokens))
        };
        cost.attention = attention + choice;
        cost.attention_backward = back;
        cost.forward += cost.attention;
        cost.dgrad += back + loss;
    }

    /// Adds the indexer's maps to a layer's cost: their inputs get no gradient.
    fn index(&self, mla: &Mla, indexer: &Indexer, plan: &Plan, cost: &mut LayerCost) {
        let tokens = self.tokens(plan);
        for map in indexer.projections(mla.queries_from(self.problem.model().hidden), self.problem.model().hidden) {
            let linear = self.device.linear(LinearShape::dense(tokens, map.input, map.output), self.device.format);
            cost.add(Linear { dgrad: Seconds::ZERO, ..linear });
        }
        let norm = Bytes::new(traffic::NORM.forward * tokens * f64::from(indexer.head_dim));
        let rotated = tokens * f64::from(mla.rope_dim) * f64::from(indexer.heads + 1);
        let joined = BF16 * 2.0 * tokens * (indexer.queries() as f64 + f64::from(indexer.head_dim));
        let bytes = norm + Bytes::new(traffic::EAGER_ROTARY.forward.bytes * rotated + joined);
        cost.forward += self.device.stream(bytes, sparse::INDEX_KERNELS);
    }

    /// Queries joined of an absorbed and a rotated part, and both copied into the order of heads.
    ///
    /// ```text
    /// forward    n·a·(4·(r + d_r) + 4·r + 4·d_v + 20·d_r) bytes          backward the same, 30 for 20
    /// ```
    fn joined_queries(&self, mla: &Mla, wide: Absorbed, tokens: f64) -> PassTimes {
        let copied = 2.0 * BF16 * (wide.keys + wide.values + f64::from(mla.v_dim));
        let time = |rotary: &traffic::Streamed| {
            let bytes = tokens * wide.heads * (copied + rotary.bytes * f64::from(mla.rope_dim));
            self.device.stream_fused(Bytes::new(bytes), rotary.kernels + sparse::JOIN_KERNELS)
        };
        let StreamedPasses { forward, backward } = &traffic::EAGER_ROTARY;
        PassTimes { forward: time(forward), backward: time(backward) }
    }

    /// Scores of all keys by the index heads, and the choice of keys.
    ///
    /// ```text
    /// 2·n·a_i·d_i·σ FLOPs;  12 bytes a token and key: scores written, and read twice;  400 bytes a token and chosen key
    /// ```
    fn choice(&self, indexer: &Indexer, tokens: f64) -> Seconds {
        let seq_len = self.problem.workload().seq_len;
        let (before, chosen) = (Span::Full.mean_keys(f64::from(seq_len)), mean_chosen(indexer, seq_len));
        let work = Flops::new(2.0 * tokens * indexer.queries() as f64 * before);
        let blocks = tokens * f64::from(indexer.heads) / f64::from(PADDED_HEADS);
        let scores = Bytes::new(sparse::SCORE * tokens * f64::from(seq_len));
        let selected = Bytes::new(sparse::CHOSEN * tokens * chosen);
        self.device.sparse_attention(work, blocks, Pass::Forward)
            + self.device.stream_fused(scores + selected, sparse::CHOICE_KERNELS)
    }

    /// Divergence of the index scores from attention's over the chosen keys, with the gradients of the indexer.
    fn index_loss(&self, indexer: &Indexer, tokens: f64) -> Seconds {
        let chosen = mean_chosen(indexer, self.problem.workload().seq_len);
        let heads = f64::from(indexer.heads.next_multiple_of(PADDED_HEADS));
        let work = INDEX_BACKWARD_GEMMS * 2.0 * tokens * heads * f64::from(indexer.head_dim) * chosen;
        let blocks = tokens * heads / f64::from(PADDED_HEADS);
        let selected = Bytes::new(sparse::COMPARED * tokens * chosen);
        self.device.sparse_attention(Flops::new(work), blocks, Pass::Dgrad)
            + self.device.stream_fused(selected, sparse::LOSS_KERNELS)
    }

    /// Exchange of the indexer among tensor-parallel ranks: each gathers its inputs, and the sum of attention's scores.
    ///
    /// ```text
    /// forward    ag(2·n·(h + q) bytes) under sequence parallelism          backward    ar(4·n·k bytes)
    /// ```
    pub(super) fn index_exchange(&self, layer: &Layer, plan: &Plan, group: Group) -> PassTimes {
        let Mixer::Mla(mla) = &layer.mixer else { return PassTimes::default() };
        let Some(indexer) = mla.indexer.as_ref().filter(|indexer| !indexer.shared) else { return PassTimes::default() };
        let (tokens, hidden) = (self.tokens(plan), self.problem.model().hidden);
        let time = |op, bytes: f64| self.fabric.time(op, Bytes::new(tokens * bytes), group, 1.0);
        let inputs = BF16 * f64::from(hidden + mla.queries_from(hidden));
        let gathered = if plan.sequence_parallel { time(Collective::AllGather, inputs) } else { Seconds::ZERO };
        PassTimes { forward: gathered, backward: time(Collective::AllReduce, FP32 * self.chosen_at_most(indexer)) }
    }

    /// Most keys that a query attends to.
    fn chosen_at_most(&self, indexer: &Indexer) -> f64 {
        f64::from(indexer.top_k.min(self.problem.workload().seq_len))
    }

    /// Bytes per token that latent attention over chosen keys keeps for its backward.
    ///
    /// ```text
    /// (2+ε)(q_r + r) + 2·d_r + 2·a·(d_n + d_r) + 2·a·(r + d_r) + 2·(r + d_r)      compressions, queries, joined queries and keys
    /// + 2·a·r + 4·a + 4·k + 2·a·d_v                                               results of attention, chosen keys, context
    /// + 2·(a_i·d_i + d_i + a_i) + 4·d_i + 2·(h + q) where tp splits the sequence   indexer: its gradients, key, gathered inputs
    /// ```
    ///
    /// Recomputing the up-projections frees queries and what is joined of them, recomputing attention its results and
    /// the indexer's.
    pub(super) fn sparse_activations(&self, mla: &Mla, indexer: &Indexer, plan: &Plan, recomputed: Modules) -> f64 {
        let wide = Absorbed::of(mla, plan);
        let stored = BF16 + self.device.format.element_bytes();
        let ranks = stored * f64::from(mla.q_rank + mla.kv_rank) + BF16 * f64::from(mla.rope_dim);
        let queries = BF16 * (wide.heads * (f64::from(mla.qk_dim()) + wide.keys) + wide.keys);
        let results = BF16 * wide.heads * wide.values + FP32 * (wide.heads + self.chosen_at_most(indexer));
        let context = self.device.stack.memory.attention_output_bytes * wide.heads * f64::from(mla.v_dim);
        let hidden = self.problem.model().hidden;
        let (mut index, mut key) = (0.0, 0.0);
        if !indexer.shared {
            index = BF16 * (indexer.queries() as f64 + f64::from(indexer.head_dim) + f64::from(indexer.heads));
            let gathered =
                if plan.sequence_shards() > 1.0 { f64::from(hidden + mla.queries_from(hidden)) } else { 0.0 };
            key = FP32 * f64::from(indexer.head_dim) + BF16 * gathered;
        }
        let unless = |recomputed: bool, bytes: f64| if recomputed { 0.0 } else { bytes };
        ranks + unless(recomputed.mla_up_proj, queries) + unless(recomputed.core_attn, results + index + key) + context
    }

    /// Bytes of the scores of all keys and of their choice, a working set of the layer; none without an indexer.
    ///
    /// ```text
    /// min(4·n·s, 1 GiB) + min(8·n·s, 2 GiB) + 48·n·k
    /// ```
    pub(super) fn score_bytes(&self, plan: &Plan) -> Bytes {
        let Some(indexer) = self.problem.model().indexer() else { return Bytes::ZERO };
        let scores = IndexScores::of(plan.micro_batch, self.problem.workload().seq_len);
        let chosen = sparse::CHOSEN_AT_ONCE * self.tokens(plan) * self.chosen_at_most(indexer);
        scores.min(IndexScores::MOST) + (scores * 2.0).min(MOST_SCRATCH) + Bytes::new(chosen)
    }
}
