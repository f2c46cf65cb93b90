//! Memory of each pipeline rank, by tenant (specification §6).

use super::data::RankParameters;
use super::footprint::{Footprint, fullest, reserve};
use super::{Costs, PerKind};
use crate::model::{Attention, Ffn, Mixer, Mla, Moe};
use crate::plan::{Modules, Plan, Recompute, ZeroStage};
use crate::schedule::closed::in_flight;
use crate::units::Bytes;

/// Bytes per logit of the loss head's working set: fused, or not. Source: specification §6.5.
const LOGITS: (f64, f64) = (6.0, 12.0);

/// Layers of one rank as memory counts them, by kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Holding {
    /// Pipeline rank.
    pub rank: u32,
    /// Layers that keep only their input (`FirstLayers`).
    pub forgotten: PerKind,
    /// The others; multi-token prediction among them where the split names its stage.
    pub kept: PerKind,
    /// Layers held less than the mean L/p where the split names no stages. Memory counts them nonetheless: which rank gets a
    /// layer less differs between frameworks, the first and the last have tables beside, and published peaks of uneven splits
    /// follow the mean.
    pub spare: f64,
    /// Multi-token-prediction layers among those kept.
    pub mtp: u32,
    /// Whether the head lies here.
    pub is_last: bool,
}

/// Of each rank and the one that mirrors it, the mean.
fn means(ranks: &[PerKind]) -> Vec<PerKind> {
    let mean = |(a, b): (&PerKind, &PerKind)| a.iter().zip(b).map(|(a, b)| f64::midpoint(*a, *b)).collect();
    ranks.iter().zip(ranks.iter().rev()).map(mean).collect()
}

/// What one layer keeps for its backward: by kind, and when only its input is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// By kind of layer.
    pub kinds: Vec<Bytes>,
    /// A layer's input.
    pub checkpoint: Bytes,
}

impl Costs<'_> {
    /// The rank that needs the most.
    pub fn fullest(&self, plan: &Plan) -> Footprint {
        let held = self.layers_of_ranks(plan);
        fullest(self.footprints_of(plan, &self.parameters_of(plan, &held), held))
    }

    /// Tensors that a rank may hold: what the profile allows, without context and fragmentation.
    pub fn tensor_room(&self) -> Bytes {
        let context = Bytes::gib(reserve::CONTEXT_GIB + reserve::NCCL_GIB);
        (self.problem.hbm_budget() - context) / (1.0 + reserve::FRAGMENTATION)
    }

    /// Memory of every pipeline rank.
    pub fn footprints(&self, plan: &Plan) -> Vec<Footprint> {
        let held = self.layers_of_ranks(plan);
        self.footprints_of(plan, &self.parameters_of(plan, &held), held).collect()
    }

    /// The same where the layers of the ranks and their parameters are counted already.
    pub(super) fn footprints_of(
        &self,
        plan: &Plan,
        parameters: &[RankParameters],
        held: Vec<PerKind>,
    ) -> impl Iterator<Item = Footprint> {
        let kept = self.kept_by_kind(plan);
        let caches = self.caches(plan);
        let gathered = self.gathered_weights(plan);
        let working_set = [false, true].map(|is_last| self.working_set(is_last, plan));
        self.holdings_of(plan, held).zip(parameters).map(move |(holding, &parameters)| {
            let states = self.states(&self.with_spare(parameters, &holding, plan), plan);
            let transient = working_set[usize::from(holding.is_last)] + gathered;
            Footprint::of_rank(holding.rank, states, self.activations(&holding, &kept, plan), transient, caches)
        })
    }

    /// Layers of each rank as memory counts them.
    pub(super) fn holdings(&self, plan: &Plan) -> Vec<Holding> {
        self.holdings_of(plan, self.layers_of_ranks(plan)).collect()
    }

    fn holdings_of(&self, plan: &Plan, held: Vec<PerKind>) -> impl Iterator<Item = Holding> {
        let model = self.problem.model();
        let (pp, spelled_out) = (plan.layout.pp, plan.split.is_spelled_out());
        let last = pp * plan.schedule.virtual_stages() - 1;
        // Under `DualPipe` half of a rank's micro-batches come through its stage, half through its copy of another.
        let is_mirrored = plan.schedule.unlike_ranks(pp) < pp;
        let on_ranks = |stages: Vec<PerKind>| if is_mirrored { means(&stages) } else { stages };
        let mean = if spelled_out { 0.0 } else { f64::from(model.layers()) / f64::from(pp) };
        let mut forgotten = match plan.recompute {
            Recompute::FirstLayers(most) => on_ranks(self.first_layers_of_ranks(plan, most)),
            _ => Vec::new(),
        };
        let holds = move |chunk: u32, rank: u32| plan.schedule.holders(chunk, pp).any(|holder| holder == rank);
        let mtp = if spelled_out { model.mtp_depth } else { 0 };
        on_ranks(held).into_iter().enumerate().map(move |(rank, mut kept)| {
            let spare = (mean - kept.iter().sum::<f64>()).max(0.0);
            let forgotten = forgotten.get_mut(rank).map_or_else(|| PerKind::from_elem(0.0, kept.len()), std::mem::take);
            kept.iter_mut().zip(&forgotten).for_each(|(kept, forgotten)| *kept -= forgotten);
            let rank = rank as u32;
            let mtp = if mtp > 0 && holds(Self::mtp_chunk(plan), rank) { mtp } else { 0 };
            kept[model.last_kind()] += f64::from(mtp) * if is_mirrored { 0.5 } else { 1.0 };
            Holding { rank, forgotten, kept, spare, mtp, is_last: holds(last, rank) }
        })
    }

    /// Share of each kind in so many layers of the whole model.
    fn mean_layers(&self, layers: f64) -> impl Iterator<Item = (usize, f64)> + '_ {
        let all = self.problem.model().layers();
        self.kinds_between(0, all).map(move |count| layers * f64::from(count) / f64::from(all)).enumerate()
    }

    /// Parameters of a rank, with those of the layers that it holds less than the mean.
    pub(super) fn with_spare(&self, held: RankParameters, holding: &Holding, plan: &Plan) -> RankParameters {
        if holding.spare <= 0.0 {
            return held;
        }
        self.mean_layers(holding.spare).filter(|(_, times)| *times > 0.0).fold(held, |held, (kind, times)| {
            let one = RankParameters::of_layer(self.layer_parameters(kind), &plan.layout);
            RankParameters { dense: held.dense + times * one.dense, experts: held.experts + times * one.experts }
        })
    }

    /// Weights, gradients and optimizer states of one layer of a kind, and what it keeps of one micro-batch for its backward
    /// with nothing recomputed but what `Recompute::Selective` forgets.
    pub fn layer_memory(&self, kind: usize, plan: &Plan) -> Bytes {
        let (weights, gradients, optimizer) =
            self.states(&RankParameters::of_layer(self.layer_parameters(kind), &plan.layout), plan);
        let forgotten = if let Recompute::Selective(modules) = plan.recompute { modules } else { Modules::default() };
        weights + gradients + optimizer + self.all_activations(kind, plan, forgotten)
    }

    /// What a layer of each kind keeps, and what it would keep of a forgotten one.
    pub(super) fn kept_by_kind(&self, plan: &Plan) -> Kept {
        Kept {
            kinds: (0..self.problem.model().kinds.len()).map(|kind| self.kept_activations(kind, plan)).collect(),
            checkpoint: self.checkpoint(plan),
        }
    }

    /// Activations of a rank at its peak: those of its layers, times the micro-batches in flight (§6.5).
    pub(super) fn activations(&self, holding: &Holding, kept: &Kept, plan: &Plan) -> Bytes {
        let on_device = 1.0 - plan.offload.activations;
        let in_flight = in_flight(plan.schedule, holding.rank, plan.layout.pp, self.micro_batches(plan));
        let layers: Bytes = holding.kept.iter().zip(&kept.kinds).map(|(times, bytes)| *bytes * *times).sum();
        let forgotten: Bytes = holding.forgotten.iter().map(|times| kept.checkpoint * *times).sum();
        let spare: Bytes = if holding.spare > 0.0 {
            self.mean_layers(holding.spare).map(|(kind, times)| kept.kinds[kind] * times).sum()
        } else {
            Bytes::ZERO
        };
        (layers + forgotten + spare) * (on_device * in_flight)
    }

    /// Weights, gradients, and optimizer states of a rank.
    ///
    /// ```text
    /// Σ over dense and experts of  P·( w/[z≥3: d] + g/[z≥2: d] + (master + states)/[z≥1: d] )          specification §6.1
    /// ```
    pub(super) fn states(&self, held: &RankParameters, plan: &Plan) -> (Bytes, Bytes, Bytes) {
        let recipe = &self.problem.workload().recipe;
        let (gradient, states) =
            if self.is_lora() { (0.0, 0.0) } else { (recipe.gradient, recipe.master + recipe.state) };
        let copies = f64::from(plan.schedule.weight_copies());
        let (dense, experts) = (f64::from(plan.dense_shards()), f64::from(plan.layout.expert_replicas()));
        let sharded = |bytes: f64, from: ZeroStage| {
            let over = |shards: f64| if plan.zero >= from { shards } else { 1.0 };
            Bytes::new(bytes * (held.dense / over(dense) + held.experts / over(experts)))
        };
        (
            sharded(recipe.weight, ZeroStage::Three) * copies,
            sharded(gradient, ZeroStage::Two) * copies,
            sharded(states, ZeroStage::One) * (1.0 - plan.offload.optimizer),
        )
    }

    /// What full recomputation keeps of a layer: its input, 2·n·h/ts bytes.
    fn checkpoint(&self, plan: &Plan) -> Bytes {
        Bytes::new(self.tokens(plan) * 2.0 * f64::from(self.problem.model().hidden) / plan.sequence_shards())
    }

    /// What one layer keeps for its backward, for one micro-batch on one rank, after recomputation (§6.3, §6.4).
    pub fn kept_activations(&self, kind: usize, plan: &Plan) -> Bytes {
        match plan.recompute {
            Recompute::None | Recompute::FirstLayers(_) => self.all_activations(kind, plan, Modules::default()),
            Recompute::Selective(modules) => self.all_activations(kind, plan, modules),
            Recompute::PerOp => self.all_activations(kind, plan, Modules::default()) * self.device.stack.per_op_kept,
            Recompute::EveryOther => {
                self.all_activations(kind, plan, Modules::default()) * 0.5 + self.checkpoint(plan) * 0.5
            }
            Recompute::Full => self.checkpoint(plan),
        }
    }

    /// Activations of one layer, without the modules forgotten.
    ///
    /// ```text
    /// common   n·(4h/ts + 2·ε·h/ts + 2δ·h/ts)               residual inputs, normed inputs of two products, dropout masks
    /// + mixer + feed-forward part                          below; ε = 1 byte where products store 8-bit inputs, else 2
    /// ```
    ///
    /// Source: specification §6.3, reproducing [korthikanti22] s·b·h·(10 + 24/t + 5·a·s/(h·t)).
    pub(super) fn all_activations(&self, kind: usize, plan: &Plan, forgotten: Modules) -> Bytes {
        let layer = &self.problem.model().kinds[kind];
        let (tokens, hidden) = (self.tokens(plan), f64::from(self.problem.model().hidden));
        let blocks = f64::from(u8::from(layer.mixer != Mixer::None)) + f64::from(u8::from(layer.ffn != Ffn::None));
        let mask = if self.problem.model().dropout { 1.0 } else { 0.0 };
        let normed = if forgotten.layernorm { 0.0 } else { self.input_bytes() };
        let common = blocks * (2.0 + normed + mask) * hidden / plan.sequence_shards();
        let mixer = match &layer.mixer {
            Mixer::Attention(attention) => self.attention_activations(attention, plan, forgotten),
            Mixer::Mla(mla) => self.mla_activations(mla, plan, forgotten),
            Mixer::Mamba(m) => 2.0 * (m.in_width() + 2 * m.inner()) as f64 / f64::from(plan.layout.tp),
            Mixer::DeltaNet(d) => 2.0 * (d.in_width() + 2 * d.values()) as f64 / f64::from(plan.layout.tp),
            Mixer::None => 0.0,
        };
        let ffn = match &layer.ffn {
            Ffn::Dense(_) if forgotten.mlp => Bytes::ZERO,
            Ffn::Dense(mlp) => Bytes::new(
                tokens * self.mlp_activations(mlp.gates() as f64, f64::from(mlp.intermediate), plan, forgotten),
            ),
            Ffn::Moe(_) if forgotten.moe => Bytes::ZERO,
            Ffn::Moe(moe) => self.moe_activations(moe, plan, forgotten),
            Ffn::None => Bytes::ZERO,
        };
        (Bytes::new(tokens * (common + mixer)) + ffn) * self.device.stack.activation_memory
    }

    /// Bytes of a stored input of a product.
    fn input_bytes(&self) -> f64 {
        if self.device.format == crate::gpu::Format::Bf16 { 2.0 } else { 1.0 }
    }

    /// Per token: `2·d(a+2g)/t + 2·a·d/t + 4a/t`, un-fused scores `a/t·s·(2 + 3δ)` beside (§6.3).
    fn attention_activations(&self, attention: &Attention, plan: &Plan, forgotten: Modules) -> f64 {
        let tp = f64::from(plan.layout.tp);
        let heads = f64::from(attention.heads) / tp;
        let mut bytes =
            2.0 * attention.qkv_width() as f64 / tp + 2.0 * heads * f64::from(attention.head_dim) + 4.0 * heads;
        if self.keeps_scores() && !forgotten.core_attn {
            let masks = if self.problem.model().dropout { 3.0 } else { 0.0 };
            bytes += heads * f64::from(self.problem.workload().seq_len) * (2.0 + masks);
        }
        bytes
    }

    /// Per token: `(2+ε)(q_r+kv_r) + 2d_r + 2(a/t)(2·d_qk + d_v) + 2·a·d_v/t + 4a/t` (§6.3); forgetting the up-projections
    /// leaves the compressions and the context.
    fn mla_activations(&self, mla: &Mla, plan: &Plan, forgotten: Modules) -> f64 {
        let heads = f64::from(mla.heads) / f64::from(plan.layout.tp);
        let (qk, v) = (f64::from(mla.qk_dim()), f64::from(mla.v_dim));
        let ranks = (2.0 + self.input_bytes()) * f64::from(mla.q_rank + mla.kv_rank) + 2.0 * f64::from(mla.rope_dim);
        let up = if forgotten.mla_up_proj { 0.0 } else { 2.0 * heads * (2.0 * qk + v) };
        ranks + up + 2.0 * heads * v + 4.0 * heads
    }

    /// Per token of a dense MLP: `2·G·f/t + ε·f/t`; forgetting the activation function leaves the first term.
    fn mlp_activations(&self, gates: f64, intermediate: f64, plan: &Plan, forgotten: Modules) -> f64 {
        let width = intermediate / f64::from(plan.layout.tp);
        let activated = if forgotten.act { 0.0 } else { self.input_bytes() * width };
        2.0 * gates * width + activated
    }

    /// Of a mixture of experts, T received token copies:
    ///
    /// ```text
    /// T·(ε·h + 2·G·f_e/t_e + ε·f_e/t_e + 2h) + n·shared MLP + 8·n·E/t          specification §6.3
    /// ```
    fn moe_activations(&self, moe: &Moe, plan: &Plan, forgotten: Modules) -> Bytes {
        let (tokens, hidden) = (self.tokens(plan), f64::from(self.problem.model().hidden));
        let received = self.owned_tokens(plan) * f64::from(moe.top_k);
        let (width, gates) = (f64::from(moe.intermediate) / f64::from(plan.layout.etp), moe.expert().gates() as f64);
        let activated = if forgotten.act { 0.0 } else { self.input_bytes() * width };
        let routed = received * (self.input_bytes() * hidden + 2.0 * gates * width + activated + 2.0 * hidden);
        let shared = moe
            .shared()
            .map_or(0.0, |mlp| self.mlp_activations(mlp.gates() as f64, f64::from(mlp.intermediate), plan, forgotten));
        let router = 8.0 * f64::from(moe.experts) / f64::from(plan.layout.tp);
        Bytes::new(routed + tokens * (shared + router))
    }

    /// Working set beside what is kept.
    ///
    /// ```text
    /// last rank     n·V/t·(6 fused | 12) + 4·n·h/ts          others    6·n·f/t, with experts 4·n·h
    /// under full recomputation, one layer's activations beside
    /// ```
    ///
    /// Source: specification §6.5.
    pub(super) fn working_set(&self, is_last: bool, plan: &Plan) -> Bytes {
        let model = self.problem.model();
        let (tokens, hidden, tp) = (self.tokens(plan), f64::from(model.hidden), f64::from(plan.layout.tp));
        let own = if is_last {
            let usual = if self.device.stack.fused_cross_entropy { LOGITS.0 } else { LOGITS.1 };
            let logits = self.device.stack.logit_bytes.unwrap_or(usual);
            let depth = 1.0 + f64::from(model.mtp_depth);
            let vocab = f64::from(model.padded_vocab(plan.layout.tp)) / tp;
            tokens * (vocab * logits * depth + 4.0 * hidden / plan.sequence_shards())
        } else if model.is_moe() {
            tokens * 4.0 * hidden
        } else {
            tokens * 6.0 * self.ffn_widths().map(f64::from).fold(0.0, f64::max) / tp
        };
        let recomputed = if matches!(plan.recompute, Recompute::Full | Recompute::FirstLayers(_)) {
            self.largest_layer(plan)
        } else {
            Bytes::ZERO
        };
        Bytes::new(own) + recomputed
    }

    fn largest_layer(&self, plan: &Plan) -> Bytes {
        (0..self.problem.model().kinds.len())
            .map(|kind| self.all_activations(kind, plan, Modules::default()))
            .fold(Bytes::ZERO, Bytes::max)
    }

    /// Under ZeRO 3: the layer at work and the next, and the embedding, un-sharded (§6.1); without resharding, all layers.
    pub(super) fn gathered_weights(&self, plan: &Plan) -> Bytes {
        if plan.zero != ZeroStage::Three {
            return Bytes::ZERO;
        }
        let model = self.problem.model();
        let tp = f64::from(plan.layout.tp);
        let weight = self.problem.workload().recipe.weight;
        let layer = |kind: usize| RankParameters::of_layer(self.layer_parameters(kind), &plan.layout).total();
        let largest = (0..model.kinds.len()).map(layer).fold(0.0, f64::max);
        let weights =
            |counts: &PerKind| counts.iter().enumerate().map(|(kind, count)| count * layer(kind)).sum::<f64>();
        let own = if plan.split.is_spelled_out() {
            self.layers_of_ranks(plan).iter().map(weights).fold(0.0, f64::max)
        } else {
            let all = self.kind_counts().iter().enumerate();
            all.map(|(kind, &count)| f64::from(count) * layer(kind)).sum::<f64>() / f64::from(plan.layout.pp)
        };
        let layers = if plan.reshard_after_forward { 2.0 * largest } else { own };
        // A pipeline reduces its gradients after the last micro-batch only: until then they are whole.
        let summed = if plan.layout.pp > 1 && !plan.reshard_after_forward { own } else { 0.0 };
        let table = f64::from(model.padded_vocab(plan.layout.tp)) * f64::from(model.hidden) / tp;
        Bytes::new(weight * (layers + table) + self.device.stack.reduce_bytes * summed)
    }

    /// Transformer Engine keeps one bf16 weight-gradient buffer for each distinct weight shape of a layer (§6.5) [D];
    /// none was seen for latent attention.
    pub(super) fn caches(&self, plan: &Plan) -> Bytes {
        if !self.device.stack.wgrad_cache {
            return Bytes::ZERO;
        }
        let model = self.problem.model();
        let tp = f64::from(plan.layout.tp);
        let weights = |layer: &crate::model::Layer| match (&layer.mixer, &layer.ffn) {
            (Mixer::Attention(a), Ffn::Dense(mlp)) => (a.weights(model.hidden) + mlp.weights(model.hidden)) as f64,
            (Mixer::Attention(a), Ffn::Moe(_) | Ffn::None) => a.weights(model.hidden) as f64,
            (Mixer::None, Ffn::Dense(mlp)) => mlp.weights(model.hidden) as f64,
            (Mixer::Mla(_) | Mixer::Mamba(_) | Mixer::DeltaNet(_) | Mixer::None, _) => 0.0,
        };
        let largest = model.kinds.iter().map(weights).fold(0.0, f64::max);
        Bytes::new(2.0 * largest / tp)
    }
}
