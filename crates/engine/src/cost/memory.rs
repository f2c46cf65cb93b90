//! Memory of each pipeline rank, by tenant (specification §6).

use std::ops::Range;

use smallvec::SmallVec;

use super::costs::Costs;
use super::counts::{Counted, LayerChoice, StageCounts, each_rank};
use super::data::RankParameters;
use super::footprint::{Footprint, Reserve, fullest};
use super::moments::{EndBytes, FUSED_LOGIT, LOGIT, Needs, Temporary, Timing};
use super::runs::{PerKind, Runs};
use super::states::{States, WeightBytes};
use crate::gpu::Format;
use crate::model::{Ffn, Mixer};
use crate::plan::{Modules, Offload, Plan, Recompute, ZeroStage};
use crate::schedule::BackwardRun;
use crate::schedule::RankBytes;
use crate::schedule::closed::in_flight;
use crate::schedule::peaks::fullest_of;
use crate::stack::Dispatcher;
use crate::units::Bytes;

/// Bytes of the working set for each element of the head's input, of the hidden states of a layer with experts, and of the
/// intermediate activations of a dense MLP.
///
/// Source: specification §6.5.
mod element_bytes {
    pub const HEAD_INPUT: f64 = 4.0;
    pub const EXPERT_LAYER: f64 = 4.0;
    pub const DENSE_MLP: f64 = 6.0;
}

/// GiB of NCCL's buffers for stacks that do not state those of one communicator: two classes of 0.4 GiB. Source:
/// specification §6.5.
const NCCL_GIB: f64 = 0.8;
/// Bytes of a 16-bit weight: of the tables, and of other weights that no GEMM reads in a narrow format.
const WIDE: f64 = 2.0;

/// Bytes of one layer of each choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LayerBytes {
    /// Kept on the device between forward and backward of one micro-batch.
    pub kept: SmallVec<[Bytes; 4]>,
    /// Working set of recomputing the whole layer; nothing where it is not recomputed whole.
    pub recomputed: SmallVec<[Bytes; 4]>,
    /// Working set of the backward of the layer, where peaks are by moment.
    pub backward: SmallVec<[Bytes; 4]>,
}

/// Layers of each rank, with the bytes of one of each choice.
#[derive(Clone, Copy)]
pub(super) struct CountedBytes<'c> {
    /// Number of layers of each choice.
    pub counts: &'c StageCounts,
    /// Bytes of one layer of each choice.
    pub bytes: &'c LayerBytes,
}

impl Costs<'_> {
    /// Memory of the rank that needs the most, by tenant.
    pub fn fullest(&self, plan: &Plan) -> Footprint {
        fullest(&self.footprints(plan))
    }

    /// Lower bound of the memory beyond the tensors of a rank of any plan: that without process groups.
    pub fn least_context(&self) -> Bytes {
        let memory = &self.device.stack.memory;
        let cuda = memory.context + memory.communicator.map_or(Bytes::gib(NCCL_GIB), |_| Bytes::ZERO);
        self.device.gpu.runtime_memory.as_ref().map_or(cuda, |runtime| runtime.value)
    }

    /// Memory beyond the tensors of a rank of this plan.
    ///
    /// ```text
    /// context + communicator·(kinds of process group with two ranks or more) + all-to-all buffers where NCCL moves tokens
    /// ```
    pub(super) fn reserve(&self, plan: &Plan) -> Reserve {
        let (memory, layout) = (&self.device.stack.memory, &plan.layout);
        let groups = [layout.tp, layout.cp, layout.pp, layout.dense_replicas(), layout.ep];
        let used = groups.into_iter().filter(|ranks| *ranks > 1).count() as f64;
        let buffers = memory.communicator.map_or(Bytes::gib(NCCL_GIB), |of_group| of_group * used);
        let sends_tokens = layout.ep > 1 && plan.dispatcher == Dispatcher::AllToAll;
        let tokens = if sends_tokens { memory.all_to_all } else { Bytes::ZERO };
        let pools = if self.device.stack.cuda_graphs { memory.graph_pools } else { Bytes::ZERO };
        let cuda = memory.context + buffers + tokens + pools;
        let context = self.device.gpu.runtime_memory.as_ref().map_or(cuda, |runtime| runtime.value);
        Reserve { fragmentation: memory.fragmentation, context }
    }

    /// Memory that the profile leaves for the tensors of a rank of this plan: without context and fragmentation.
    pub fn tensor_room(&self, plan: &Plan) -> Bytes {
        let reserve = self.reserve(plan);
        (self.problem.hbm_budget() - reserve.context) / (1.0 + reserve.fragmentation)
    }

    /// Memory of every pipeline rank, by tenant, in the order of ranks.
    pub fn footprints(&self, plan: &Plan) -> Vec<Footprint> {
        let counts =
            if self.splits_unknown { self.even_counts(plan) } else { self.stage_counts(plan, None, Counted::Ranks) };
        let classes = each_rank(plan.layout.pp);
        let parameters = self.parameters_of(plan, &counts, &classes);
        let bytes = self.layer_bytes(plan, &counts.choices);
        self.footprints_of(plan, CountedBytes { counts: &counts, bytes: &bytes }, &classes, &parameters, |_| {
            plan.offload
        })
    }

    /// Memory of the rank of each class that needs the most; `offload` = shares that a rank keeps on the host.
    ///
    /// ```text
    /// states + max over moments of Σ over virtual stages of n·A + working set + caches, and the reserve beyond the tensors
    /// ```
    pub(super) fn footprints_of(
        &self,
        plan: &Plan,
        layers: CountedBytes,
        classes: &[Range<u32>],
        parameters: &[RankParameters],
        offload: impl Fn(usize) -> Offload,
    ) -> Vec<Footprint> {
        let CountedBytes { counts, bytes } = layers;
        let activations = self.peak_activations(plan, counts, classes, &bytes.kept);
        let (caches, unsharded, reserve) = (self.caches(plan), self.unsharded(plan, counts), self.reserve(plan));
        let (timing, on_ranks) = (self.timing(plan), counts.all_on_ranks(plan));
        let largest = |rank: u32, of_choice: &[Bytes]| self.largest_layer(plan, &on_ranks, rank, of_choice);
        let ends = self.end_bytes(timing, plan);
        let backward = if timing == Timing::Together { &bytes.recomputed } else { &bytes.backward };
        let of_rank = |(resident, RankBytes { rank, bytes: activations }): (&RankParameters, RankBytes)| {
            let resident = self.raised_to_mean(*resident, counts, rank, plan);
            let states = self.states(&resident, &plan.offloading(offload(rank as usize)));
            let loss = ends.on_rank(plan.pipeline().holds_last(rank));
            let own = Temporary { loss, backward: largest(rank, backward), ..Temporary::default() };
            let layer = largest(rank, &bytes.kept);
            let needs = Needs { activations, layer, temporary: own.plus(unsharded) };
            Footprint::of_rank(rank, reserve, timing, states, &needs, caches)
        };
        parameters.iter().zip(activations).map(of_rank).collect()
    }

    /// Bytes of one layer of each choice.
    pub(super) fn layer_bytes(&self, plan: &Plan, choices: &[LayerChoice]) -> LayerBytes {
        let kept = |choice: &LayerChoice| {
            self.kept_activations(choice.kind, &plan.recomputing(choice.recompute)) * (1.0 - choice.on_host)
        };
        let recomputed = |choice: &LayerChoice| match choice.recompute {
            Recompute::Full => self.all_activations(choice.kind, plan, Modules::default()),
            _ => Bytes::ZERO,
        };
        let backward = |choice: &LayerChoice| {
            if self.device.stack.memory.by_moment { self.backward_bytes(choice, plan) } else { Bytes::ZERO }
        };
        LayerBytes {
            kept: choices.iter().map(kept).collect(),
            recomputed: choices.iter().map(recomputed).collect(),
            backward: choices.iter().map(backward).collect(),
        }
    }

    /// Rank of each class with the most activations, and those at the moment when they are the most (§6.5); `kept` = of one
    /// layer of each choice.
    fn peak_activations(
        &self,
        plan: &Plan,
        counts: &StageCounts,
        classes: &[Range<u32>],
        kept: &[Bytes],
    ) -> SmallVec<[RankBytes; 4]> {
        let micro_batches = self.micro_batches(plan);
        let freed = |layers: &[f64], stages: f64| self.freed_inputs(plan, &counts.choices, layers) * stages;
        let bytes_of =
            |layers: &[f64]| -> Bytes { layers.iter().zip(kept).map(|(times, bytes)| *bytes * *times).sum() };
        if self.splits_unknown || !plan.pipeline().peaks_by_chunk() {
            let ranks = self.resident_layers(plan, counts);
            let stages = f64::from(plan.schedule.virtual_stages());
            let of_class = |class: &Range<u32>| {
                let (first, layers) = (class.start, ranks.at(class.start));
                let bytes = bytes_of(layers) + self.shortfall_activations(counts, first, kept) - freed(layers, stages);
                let of_rank = |rank| RankBytes { rank, bytes: bytes * in_flight(plan.pipeline(), rank, micro_batches) };
                class.clone().map(of_rank).reduce(RankBytes::fuller).expect("a class has a rank")
            };
            return classes.iter().map(of_class).collect();
        }
        let mut runs: SmallVec<[(Range<u32>, Bytes); 4]> = SmallVec::new();
        for (chunks, layers) in counts.all_on_chunks().iter() {
            runs.push((chunks, bytes_of(layers) - freed(layers, 1.0)));
        }
        let peaks = self.peaks.of_pipeline(plan.pipeline(), micro_batches);
        classes.iter().map(|class| fullest_of(&peaks[class.start as usize..class.end as usize], &runs)).collect()
    }

    /// Inputs of one virtual stage of these layers that are freed in flight: `2·n·h/ts` where the stack frees them and no layer
    /// needs its input to be recomputed whole.
    fn freed_inputs(&self, plan: &Plan, choices: &[LayerChoice], layers: &[f64]) -> Bytes {
        let present = || choices.iter().zip(layers).filter(|(_, count)| **count > 0.0).map(|(choice, _)| choice);
        let keeps = |choice: &LayerChoice| matches!(choice.recompute, Recompute::None | Recompute::Selective(_));
        match present().next() {
            Some(first) if present().all(keeps) => self.freed_input(plan, first.on_host),
            _ => Bytes::ZERO,
        }
    }

    /// Input of one virtual stage where the stack frees it in a pipeline, without the share on the host.
    pub(super) fn freed_input(&self, plan: &Plan, on_host: f64) -> Bytes {
        if self.device.stack.memory.frees_stage_inputs && plan.layout.pp > 1 {
            self.checkpoint(plan) * (1.0 - on_host)
        } else {
            Bytes::ZERO
        }
    }

    /// Most bytes of any layer of a rank, given those of one layer of each choice; where splits are not known, of any layer of the
    /// model.
    fn largest_layer(&self, plan: &Plan, on_ranks: &Runs, rank: u32, of_choice: &[Bytes]) -> Bytes {
        if self.splits_unknown {
            return of_choice.iter().copied().fold(Bytes::ZERO, Bytes::max);
        }
        let here = |layers: &PerKind| {
            let present = layers.iter().zip(of_choice).filter(|(count, _)| **count > 0.0);
            present.fold(Bytes::ZERO, |most, (_, bytes)| most.max(*bytes))
        };
        let (own, pp) = (here(on_ranks.at(rank)), plan.layout.pp);
        if plan.pipeline().distinct_ranks() == pp { own } else { own.max(here(on_ranks.at(pp - 1 - rank))) }
    }

    /// Weights, gradients and optimizer states of one layer of a kind, and its kept activations of one micro-batch; only
    /// the modules of `Recompute::Selective` are recomputed.
    pub fn layer_memory(&self, kind: usize, plan: &Plan) -> Bytes {
        let states = self.states(&RankParameters::of_layer(self.layer_parameters(kind), &plan.layout), plan);
        let recomputed = if let Recompute::Selective(modules) = plan.recompute { modules } else { Modules::default() };
        states.total() + self.all_activations(kind, plan, recomputed)
    }

    /// Weights, gradients, and optimizer states of a rank.
    ///
    /// ```text
    /// Σ over dense and experts of  P·( w/[z≥3: d] + g/[z≥2: d] + (master + states)/[z≥1: d] )          specification §6.1
    /// update  P·(states/2)/[z≥1: d]          roots of all second moments at once, where the stack has them
    /// ```
    ///
    /// Where ZeRO 3 shards master weights, they are the weights: no other copy is held. The weights of embedding and head may
    /// have other bytes than those of the layers.
    pub(super) fn states(&self, parameters: &RankParameters, plan: &Plan) -> States {
        let recipe = &self.problem.workload().recipe;
        let (gradient, states) =
            if self.is_lora() { (0.0, 0.0) } else { (recipe.gradient, recipe.master + recipe.state) };
        let roots = if self.device.stack.memory.updates_at_once && !self.is_lora() { recipe.state / 2.0 } else { 0.0 };
        let on_device = 1.0 - plan.offload.optimizer;
        let (WeightBytes { layer: weight, table }, states) = if self.shards_are_masters(plan) {
            (WeightBytes { layer: recipe.master * on_device, table: recipe.master * on_device }, recipe.state)
        } else {
            (self.weight_bytes(plan), states)
        };
        let copies = f64::from(plan.schedule.weight_copies());
        let (dense, experts) = (f64::from(plan.dense_shards()), f64::from(plan.layout.expert_replicas()));
        let sharded = |bytes: f64, from: ZeroStage| {
            let over = |shards: f64| if plan.zero >= from { shards } else { 1.0 };
            Bytes::new(bytes * (parameters.dense / over(dense) + parameters.experts / over(experts)))
        };
        let weights = sharded(weight, ZeroStage::Three) + Bytes::new((table - weight) * parameters.tables);
        States {
            weights: weights * copies,
            gradients: sharded(gradient, ZeroStage::Two) * copies,
            optimizer: sharded(states, ZeroStage::One) * on_device,
            update: sharded(roots, ZeroStage::One) * on_device,
        }
    }

    /// Bytes of one weight.
    ///
    /// ```text
    /// weights in 16 bits or more    w + y, w          in 8 bits    y, 2
    /// y = bytes of a weight that GEMMs read (`Gpu::weight_bytes`)
    /// ```
    ///
    /// Without quantized copies (`stack.memory.keeps_quantized_weights`), and under ZeRO 3, both are those of the recipe.
    pub fn weight_bytes(&self, plan: &Plan) -> WeightBytes {
        let of_recipe = self.problem.workload().recipe.weight;
        let format = self.device.format;
        let keeps = self.device.stack.memory.keeps_quantized_weights && format != Format::Bf16;
        if !keeps || plan.zero == ZeroStage::Three {
            return WeightBytes { layer: of_recipe, table: of_recipe };
        }
        let wide = if of_recipe < WIDE { 0.0 } else { of_recipe };
        WeightBytes { layer: wide + self.device.gpu.weight_bytes(format), table: of_recipe.max(WIDE) }
    }

    /// Working set of a rank, in addition to its kept activations, without that of recomputed layers.
    fn end_bytes(&self, timing: Timing, plan: &Plan) -> EndBytes {
        match timing {
            Timing::Together => self.working_set(plan),
            Timing::ByMoment { .. } | Timing::Loop { .. } => EndBytes::of_loss(self.loss_bytes(plan)),
        }
    }

    /// Working set, in addition to the kept activations.
    ///
    /// ```text
    /// last rank     n·V/t·(6 fused | 12) + 4·n·h/ts          others    6·n·f/t, with experts 4·n·h
    /// ```
    ///
    /// Sparse attention adds the scores of its indexer.
    ///
    /// Source: specification §6.5.
    pub(super) fn working_set(&self, plan: &Plan) -> EndBytes {
        let model = self.problem.model();
        let (tokens, hidden, tp) = (self.tokens(plan), f64::from(model.hidden), f64::from(plan.layout.tp));
        let usual = if self.device.stack.fused_cross_entropy { FUSED_LOGIT } else { LOGIT };
        let logits = self.device.stack.logit_bytes.unwrap_or(usual);
        let depth = 1.0 + f64::from(model.mtp_depth);
        let vocab = model.padded_vocab(plan.layout.tp) / tp;
        let head = tokens * (vocab * logits * depth + element_bytes::HEAD_INPUT * hidden / plan.sequence_shards());
        let layer = if model.is_moe() {
            tokens * element_bytes::EXPERT_LAYER * hidden
        } else {
            tokens * element_bytes::DENSE_MLP * self.ffn_widths().map(f64::from).fold(0.0, f64::max) / tp
        };
        let with_scores = |bytes: f64| Bytes::new(bytes) + self.score_bytes(plan);
        EndBytes { head: with_scores(head), others: with_scores(layer) }
    }

    /// Weights and gradients that are temporarily unsharded, although ZeRO shards them.
    pub(super) fn unsharded(&self, plan: &Plan, counts: &StageCounts) -> Temporary {
        match plan.zero {
            ZeroStage::Zero | ZeroStage::One => Temporary::default(),
            ZeroStage::Two => Temporary { loss: self.whole_gradients(plan, counts), ..Temporary::default() },
            ZeroStage::Three => self.gathered_weights(plan, counts),
        }
    }

    /// Unsharded gradients under ZeRO 2 in a pipeline: those of the virtual stage whose backward passes add them up, on
    /// the rank with the most layers; of one layer where the passes of a stage do not follow each other. Source:
    /// [llama3-infrastructure] §3.3.2.
    fn whole_gradients(&self, plan: &Plan, counts: &StageCounts) -> Bytes {
        if plan.layout.pp == 1 || self.is_lora() {
            return Bytes::ZERO;
        }
        let layer = |kind: usize| RankParameters::of_layer(self.layer_parameters(kind), &plan.layout).total();
        let kinds = self.problem.model().kinds.len();
        if plan.schedule.backward_run() == BackwardRun::One {
            let largest = (0..kinds).map(layer).fold(0.0, f64::max);
            return Bytes::new(self.problem.workload().recipe.gradient * largest);
        }
        let of_rank = |layers: &PerKind| -> f64 {
            counts.by_kind(layers, kinds).enumerate().map(|(kind, count)| count * layer(kind)).sum()
        };
        let most = counts.all_on_ranks(plan).iter().map(|(_, layers)| of_rank(layers)).fold(0.0, f64::max);
        Bytes::new(self.problem.workload().recipe.gradient * most / f64::from(plan.schedule.virtual_stages()))
    }

    /// Gathered weights under ZeRO 3: the layer at work, the next, and the embedding (§6.1); without resharding, all layers.
    fn gathered_weights(&self, plan: &Plan, counts: &StageCounts) -> Temporary {
        let model = self.problem.model();
        let tp = f64::from(plan.layout.tp);
        let weight = self.problem.workload().recipe.weight;
        let layer = |kind: usize| RankParameters::of_layer(self.layer_parameters(kind), &plan.layout).total();
        let largest = (0..model.kinds.len()).map(layer).fold(0.0, f64::max);
        let own = if self.splits_unknown {
            let all = self.kind_counts().iter().enumerate();
            all.map(|(kind, &count)| f64::from(count) * layer(kind)).sum::<f64>() / f64::from(plan.layout.pp)
        } else {
            let weights = |layers: &PerKind| -> f64 {
                let layers = counts.by_kind(layers, model.kinds.len());
                layers.enumerate().map(|(kind, count)| count * layer(kind)).sum()
            };
            counts.all_on_ranks(plan).iter().map(|(_, layers)| weights(layers)).fold(0.0, f64::max)
        };
        if self.device.stack.memory.by_moment {
            return self.unsharded_by_moment(plan, largest, own);
        }
        let layers = if plan.reshard_after_forward { 2.0 * largest } else { own };
        // A pipeline reduces its gradients after the last micro-batch only: until then they are whole.
        let summed = if plan.layout.pp > 1 && !plan.reshard_after_forward { own } else { 0.0 };
        let table = model.padded_vocab(plan.layout.tp) * f64::from(model.hidden) / tp;
        let all = Bytes::new(weight * (layers + table) + self.device.stack.reduce_bytes * summed);
        Temporary { loss: all, ..Temporary::default() }
    }

    /// Caches of a rank: tables of rotary embeddings, and one bf16 weight-gradient buffer of Transformer Engine for each distinct
    /// weight shape of a layer (§6.5) [D]; none was seen for latent attention.
    pub(super) fn caches(&self, plan: &Plan) -> Bytes {
        let tables = self.rotary_tables(plan);
        if !self.device.stack.wgrad_cache {
            return tables;
        }
        let model = self.problem.model();
        let tp = f64::from(plan.layout.tp);
        let weights = |layer: &crate::model::Layer| match (layer.attention(), &layer.ffn) {
            (Some(a), Ffn::Dense(mlp)) => (a.weights(model.hidden) + mlp.weights(model.hidden)) as f64,
            (Some(a), Ffn::Moe(_) | Ffn::None) => a.weights(model.hidden) as f64,
            (None, Ffn::Dense(mlp)) if layer.mixer == Mixer::None => mlp.weights(model.hidden) as f64,
            (None, _) => 0.0,
        };
        let largest = model.kinds.iter().map(weights).fold(0.0, f64::max);
        Bytes::new(2.0 * largest / tp) + tables
    }
}
