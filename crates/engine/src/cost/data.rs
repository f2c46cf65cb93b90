//! Data parallelism: exchange of gradients and parameters between replicas, and the parameters of each rank.

use std::ops::Range;

use smallvec::SmallVec;

use super::costs::Costs;
use super::counts::{Counted, StageCounts, by_layers, class_of, each_rank};
use super::groups;
use super::overlap::{outlasting, unhidden};
use super::windows::Windows;
use crate::collective::{GatherScatter, Group};
use crate::gpu::{Collective, Format};
use crate::model::parameters::LayerParameters;
use crate::plan::{Layout, Plan, ZeroStage};
use crate::units::{Bytes, Seconds};

/// Share of the weights that adapters train. Source: specification §2.11, version 1.1.
pub(super) const LORA_SHARE: f64 = 0.002;
/// Smallest gradient bucket of Megatron, in elements.
///
/// Source: [megatron-lm] `distributed_data_parallel_config.py`: max(40 M, 1 M·dp).
const LEAST_BUCKET: f64 = 40e6;
/// Elements of Megatron's gradient bucket for each data-parallel rank; the source is that of [`LEAST_BUCKET`].
const BUCKET_PER_RANK: f64 = 1e6;

/// Parameters on one rank, by the replicas that shard them: dense parameters and experts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankParameters {
    /// Replicated over dp·cp ranks.
    pub dense: f64,
    /// Routed experts, replicated over world/(pp·ep·etp) ranks.
    pub experts: f64,
    /// Dense parameters of the embedding and the head, which GEMMs never take in narrow formats.
    pub tables: f64,
}

impl RankParameters {
    /// Parameters of one layer on a rank: experts are split by ep·etp, the others by tp unless every rank holds them whole.
    ///
    /// ```text
    /// P_dense = P_whole + (P_all − P_experts − P_whole)/t
    /// ```
    pub fn of_layer(layer: &LayerParameters, layout: &Layout) -> Self {
        let whole = layer.whole() as f64;
        Self {
            dense: whole + (layer.dense() as f64 - whole) / f64::from(layout.tp),
            experts: layer.experts as f64 / f64::from(layout.ep * layout.etp),
            tables: 0.0,
        }
    }

    /// Dense parameters and experts together.
    pub const fn total(&self) -> f64 {
        self.dense + self.experts
    }

    /// Sum with `times` of `other`.
    pub(super) const fn plus(&self, other: &Self, times: f64) -> Self {
        Self {
            dense: self.dense + other.dense * times,
            experts: self.experts + other.experts * times,
            tables: self.tables + other.tables * times,
        }
    }
}

/// Parameters of the tables at the ends of the model, on the ranks that hold them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableParameters {
    /// Embedding table, with learned positions.
    pub embedding: RankParameters,
    /// Table of the output head; none where it is tied to the embedding on the same rank, without a pipeline.
    pub head: RankParameters,
}

/// Time of the exchange between replicas once a step, before overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Reduction of gradients.
    pub reduce: Seconds,
    /// Gathering of parameters.
    pub gather: Seconds,
}

/// The rank with the most parameters: it sends the most and updates the longest.
pub(super) fn heaviest(ranks: &[RankParameters]) -> RankParameters {
    ranks.iter().fold(RankParameters::default(), |a, b| if b.total() > a.total() { *b } else { a })
}

/// Parameters of each rank from those of its stages: under `DualPipe` the mean of its two stages, elsewhere its own.
pub(super) fn mirrored(plan: &Plan, stages: Vec<RankParameters>) -> Vec<RankParameters> {
    if plan.pipeline().distinct_ranks() == plan.layout.pp {
        return stages;
    }
    let mean = |(a, b): (&RankParameters, &RankParameters)| RankParameters {
        dense: f64::midpoint(a.dense, b.dense),
        experts: f64::midpoint(a.experts, b.experts),
        tables: f64::midpoint(a.tables, b.tables),
    };
    stages.iter().zip(stages.iter().rev()).map(mean).collect()
}

impl Costs<'_> {
    /// Parameters of each pipeline rank of a plan.
    pub fn rank_parameters(&self, plan: &Plan) -> Vec<RankParameters> {
        self.parameters_of(plan, &self.stage_counts(plan, None, Counted::Ranks), &each_rank(plan.layout.pp))
    }

    /// Parameters of a rank of each class with the layers of `counts`: those layers, the embedding on the first rank, the head on
    /// the last, and multi-token prediction where the split puts it. Under `DualPipe`, whose ranks hold two stages, the mean of
    /// both stages, since the bytes count every parameter twice.
    ///
    /// Tensor-parallel parameters are divided by tp, experts by ep·etp. A tied head on another rank is a copy. Source:
    /// specification §3.9.
    pub(super) fn parameters_of(
        &self,
        plan: &Plan,
        counts: &StageCounts,
        classes: &[Range<u32>],
    ) -> Vec<RankParameters> {
        let model = self.problem.model();
        let of_kind = |kind| RankParameters::of_layer(self.layer_parameters(kind), &plan.layout);
        let kinds: SmallVec<[RankParameters; 4]> = (0..model.kinds.len()).map(of_kind).collect();
        let of_rank = |layers: &[f64]| {
            let layers = counts.by_kind(layers, kinds.len());
            kinds.iter().zip(layers).fold(RankParameters::default(), |sum, (one, times)| sum.plus(one, times))
        };
        let mut resident = by_layers(counts.of_classes(classes), of_rank);
        let last = plan.pipeline().chunks() - 1;
        let mut add_at = |chunk: u32, of: &RankParameters, times: f64| {
            let class = &mut resident[class_of(classes, plan.pipeline().rank_of(chunk))];
            *class = class.plus(of, times);
        };
        let TableParameters { embedding, head } = self.table_parameters(plan);
        add_at(0, &embedding, 1.0);
        add_at(last, &head, 1.0);
        if counts.mtp > 0 {
            let depth = f64::from(counts.mtp);
            let layer = counts.mtp_choice.map_or_else(RankParameters::default, |_| of_kind(model.last_kind()));
            add_at(counts.mtp_chunk, &layer.plus(&self.mtp_parameters(plan), 1.0), depth);
        }
        mirrored(plan, resident)
    }

    /// Parameters of the tables at the ends of the model.
    pub(super) fn table_parameters(&self, plan: &Plan) -> TableParameters {
        let model = self.problem.model();
        let tp = f64::from(plan.layout.tp);
        let hidden = f64::from(model.hidden);
        let table = model.padded_vocab(plan.layout.tp) * hidden / tp;
        let shared = model.tied_embeddings && plan.layout.pp == 1;
        let table_of = |dense| RankParameters { dense, experts: 0.0, tables: dense };
        TableParameters {
            embedding: table_of(table + f64::from(model.learned_positions) * hidden),
            head: table_of(if shared { 0.0 } else { table }),
        }
    }

    /// Parameters that multi-token prediction adds to its layer: the projection, 2·h².
    pub(super) fn mtp_parameters(&self, plan: &Plan) -> RankParameters {
        let hidden = f64::from(self.problem.model().hidden);
        RankParameters { dense: 2.0 * hidden.powi(2) / f64::from(plan.layout.tp), ..RankParameters::default() }
    }

    /// Number of gradient messages: by the stack's bucket size, else Megatron's rule (§3.3, version 1.1).
    pub(super) fn buckets(&self, parameters: f64, ranks: u32) -> f64 {
        let stack = self.device.stack;
        let number = match stack.bucket {
            Some(bucket) => Bytes::new(parameters * stack.reduce_bytes) / bucket,
            None => parameters / LEAST_BUCKET.max(BUCKET_PER_RANK * f64::from(ranks)),
        };
        number.max(1.0)
    }

    /// Time of the exchange of gradients and parameters between replicas, before overlap.
    ///
    /// ```text
    /// ZeRO 0   ar(P·g)                      ZeRO 1, 2   rs(P·g) + ag(P·w) over the shard group, ar(P·g/K) across groups
    ///                                       or ar(P·g) + ag(P·w) and copies, where the stack scatters no gradients
    /// ```
    ///
    /// Source: specification §3.9.
    pub(super) fn exchange(&self, plan: &Plan, heaviest: &RankParameters) -> Exchange {
        self.exchange_beside(self.exchange_of_experts(plan, heaviest), plan, heaviest)
    }

    /// Exchange of all parameters, given that of the experts.
    pub(super) fn exchange_beside(&self, experts: Exchange, plan: &Plan, heaviest: &RankParameters) -> Exchange {
        self.dense_exchange(plan, heaviest.dense * self.trained_share()).plus(experts)
    }

    /// Exchange of expert parameters between their own replicas. It depends on the rank order, and on whether ZeRO shards, but
    /// not on the shard group.
    pub(super) fn exchange_of_experts(&self, plan: &Plan, heaviest: &RankParameters) -> Exchange {
        let (stack, experts) = (self.device.stack, heaviest.experts * self.trained_share());
        let group = groups::experts(plan);
        if experts <= 0.0 || group.ranks <= 1 {
            return Exchange::default();
        }
        let time = |op, bytes: f64| self.fabric.time(op, Bytes::new(experts * bytes), group, 1.0);
        if plan.zero == ZeroStage::Zero {
            return Exchange { reduce: time(Collective::AllReduce, stack.reduce_bytes), gather: Seconds::ZERO };
        }
        let reduce = time(Collective::ReduceScatter, stack.reduce_bytes);
        Exchange { reduce, gather: time(Collective::AllGather, self.sent_weight_bytes()) }
    }

    /// Bytes of a parameter on the wire after the update: those of the weights themselves where they are held in 8 bits with one
    /// scale a tensor or a block of 128. MXFP8 weights are quantized where they arrive, which takes 16 bits. Source: [megatron-lm]
    /// `param_and_grad_buffer.py`.
    fn sent_weight_bytes(&self) -> f64 {
        let (sent, weight) = (self.device.stack.gather_bytes, self.problem.workload().recipe.weight);
        if matches!(self.device.format, Format::Fp8 | Format::Fp8Block) { sent.min(weight) } else { sent }
    }

    /// Share of the parameters whose gradients are exchanged.
    fn trained_share(&self) -> f64 {
        if self.is_lora() { LORA_SHARE } else { 1.0 }
    }

    /// Exposed time of an exchange: the part that no window hides.
    ///
    /// ```text
    /// rs/nb + max(0, rs·(1+σ/2) − window_B) + ag/nb + max(0, ag·(1+σ/2) − window_F) + σ·(hidden parts)
    /// ```
    ///
    /// nb = layers of a rank. The ZeRO stage is `zero`, whatever the plan's. ZeRO 2 reduces whenever the
    /// backward passes of a virtual stage end ([`Windows::run`]), all but the last time behind the next ones. Source:
    /// specification §5.2 with version 1.1.
    #[inline]
    pub(super) fn exposed_exchange(
        &self,
        plan: &Plan,
        zero: ZeroStage,
        exchange: Exchange,
        windows: &Windows,
        micro_batches: f64,
    ) -> Seconds {
        let stack = self.device.stack;
        let Exchange { reduce, gather } = exchange;
        let overlaps = stack.overlap.dp && (zero == ZeroStage::Zero || stack.overlap.dp_sharded);
        let exposed = if overlaps {
            let sigma = self.device.gpu.contention.value;
            let edge = |time: Seconds, window: Seconds| {
                time / windows.layers + outlasting(time, window, sigma) + time.min(window) * sigma
            };
            let early = if zero == ZeroStage::Two && micro_batches > 1.0 {
                let window = windows.micro_backward * windows.run;
                unhidden(reduce, window, sigma) * (micro_batches / windows.run - 1.0)
            } else {
                Seconds::ZERO
            };
            edge(reduce, windows.backward) + edge(gather, windows.forward) + early
        } else {
            let times = if zero == ZeroStage::Two { (micro_batches / windows.run).max(1.0) } else { 1.0 };
            reduce * times + gather
        };
        if stack.quirks.sync_every_micro_batch && zero == ZeroStage::Zero && plan.layout.pp > 1 {
            return exposed * micro_batches.max(1.0);
        }
        exposed
    }

    /// Exchange of dense parameters over dp·cp ranks.
    fn dense_exchange(&self, plan: &Plan, parameters: f64) -> Exchange {
        let stack = self.device.stack;
        let (all, shards) = (plan.layout.dense_replicas(), plan.dense_shards());
        if all <= 1 {
            return Exchange::default();
        }
        let whole = groups::dp(plan, all);
        let group = groups::dp(plan, shards);
        let gradients = Bytes::new(parameters * stack.reduce_bytes);
        let all_reduce = |buckets| self.fabric.time(Collective::AllReduce, gradients, whole, buckets);
        if plan.zero == ZeroStage::Zero {
            return Exchange { reduce: all_reduce(self.buckets(parameters, all)), gather: Seconds::ZERO };
        }
        let buckets = self.buckets(parameters, shards);
        let weights = Bytes::new(parameters * self.sent_weight_bytes());
        let gathered = |buckets| self.fabric.time(Collective::AllGather, weights, group, buckets);
        if stack.quirks.broadcast_per_owner > Seconds::ZERO {
            let gather = gathered(buckets) + stack.quirks.broadcast_per_owner * f64::from(shards);
            return Exchange { reduce: all_reduce(1.0), gather };
        }
        if stack.quirks.zero_all_reduce {
            return Exchange { reduce: all_reduce(1.0), gather: gathered(1.0) + self.tensor_copies(plan, shards) };
        }
        let GatherScatter { gather, scatter: mut reduce } =
            self.fabric.gather_and_scatter(weights, gradients, group, buckets);
        if shards < all {
            let across = Group { ranks: all / shards, stride: group.stride * shards };
            reduce += self.fabric.time(Collective::AllReduce, gradients / f64::from(shards), across, 1.0);
        }
        Exchange { reduce, gather }
    }

    /// Copies of gathered parameters into their tensors: launches of the host for each tensor and rank.
    fn tensor_copies(&self, plan: &Plan, shards: u32) -> Seconds {
        let layers = f64::from(self.problem.model().layers()) / f64::from(plan.layout.pp);
        let launches = self.device.stack.quirks.copies_per_gather * layers * f64::from(shards);
        self.device.stack.launches.host_time(self.device.host) * launches
    }

    /// All-reduce of a tied embedding's gradient between the first and the last stage.
    pub(super) fn tied_ends(&self, plan: &Plan) -> Seconds {
        let model = self.problem.model();
        let pp = plan.layout.pp;
        if pp == 1 || !model.tied_embeddings || self.is_lora() || plan.pipeline().joins_ends() {
            return Seconds::ZERO;
        }
        let table = model.padded_vocab(plan.layout.tp) * f64::from(model.hidden) / f64::from(plan.layout.tp);
        let group = Group { ranks: 2, stride: groups::stage_distance(plan) };
        self.fabric.time(Collective::AllReduce, Bytes::new(table * self.device.stack.reduce_bytes), group, 1.0)
    }
}
