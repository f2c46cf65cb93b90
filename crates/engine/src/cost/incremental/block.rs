//! Layers and ends of the model, priced once for all pipelines, shardings and recomputations.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::cost::costs::Costs;
use crate::cost::counts::{Choices, LayerChoice};
use crate::cost::head::Ends;
use crate::cost::layer::{LayerCost, PassTimes};
use crate::cost::memory::LayerBytes;
use crate::cost::moments::EndBytes;
use crate::cost::shape::ShapeCost;
use crate::cost::stage;
use crate::cost::work::Work;
use crate::gpu::Copies;
use crate::plan::{Layout, Offload, Plan, Recompute};
use crate::units::{Bytes, Seconds};

/// Cost of the token-mixing part of every kind of layer, and of the two ends of the model. Depends on tp, sp, cp and its kind,
/// and the micro-batch.
#[derive(Clone, Debug)]
pub struct Mixing {
    layers: Vec<LayerCost>,
    ends: Ends,
    /// Lower bound of the time of one micro-batch in one layer of each kind.
    busy_of_kinds: Vec<Seconds>,
    /// Lower bound of the time of one micro-batch in all layers.
    busy: Seconds,
    /// Time of one micro-batch in the head.
    head: Seconds,
}

/// Cost of the feed-forward part of every kind of layer. Depends on tp, sp, the tokens of a micro-batch on one rank, ep, etp and
/// the dispatcher.
#[derive(Clone, Debug)]
pub struct FeedForward {
    layers: Vec<LayerCost>,
    /// Lower bound of the time of one micro-batch in one layer of each kind.
    busy_of_kinds: Vec<Seconds>,
    /// Lower bound of the time of one micro-batch in all layers.
    busy: Seconds,
}

/// Token-mixing and feed-forward parts of the layers.
#[derive(Clone, Copy, Debug)]
pub struct LayerParts<'p> {
    /// The token-mixing part.
    pub mixing: &'p Mixing,
    /// The feed-forward part.
    pub feed_forward: &'p FeedForward,
}

/// Layers joined of their token-mixing and feed-forward parts, without recomputation.
#[derive(Clone, Debug)]
pub struct Block {
    plain: Arc<ShapeCost>,
}

impl Mixing {
    /// Costs under the settings of a plan.
    pub fn new(costs: &Costs, plan: &Plan) -> Self {
        let layers = each_kind(costs, |kind| costs.mixing(kind, plan));
        let ends = costs.ends(plan);
        let head = ends.head.sum() + ends.head_comm.sum();
        let busy_of_kinds = busy_of_kinds(costs, &layers);
        Self { busy: of_all_layers(costs, &busy_of_kinds), busy_of_kinds, head, layers, ends }
    }
}

impl FeedForward {
    /// Costs under the settings of a plan.
    pub fn new(costs: &Costs, plan: &Plan) -> Self {
        let layers = each_kind(costs, |kind| costs.feed_forward(kind, plan));
        let busy_of_kinds = busy_of_kinds(costs, &layers);
        Self { busy: of_all_layers(costs, &busy_of_kinds), busy_of_kinds, layers }
    }
}

fn each_kind(costs: &Costs, price: impl Fn(usize) -> LayerCost) -> Vec<LayerCost> {
    (0..costs.problem.model().kinds.len()).map(price).collect()
}

/// Lower bound on the time of one micro-batch in a part of one layer of each kind, without the host floor and without expert
/// traffic that may run beside compute.
fn busy_of_kinds(costs: &Costs, layers: &[LayerCost]) -> Vec<Seconds> {
    let beside = costs.device.stack.overlap.ep > 0.0;
    let wgrad = if costs.is_lora() { 0.0 } else { 1.0 };
    let of_layer = |cost: &LayerCost| {
        let exchange = if beside { Seconds::ZERO } else { cost.ep.sum() };
        let kernels = cost.forward + cost.dgrad + cost.wgrad * wgrad;
        kernels + cost.tp.sum() + cost.cp.sum() + exchange
    };
    layers.iter().map(of_layer).collect()
}

/// Time of all layers, by that of one of each kind.
fn of_all_layers(costs: &Costs, of_kinds: &[Seconds]) -> Seconds {
    costs.kind_counts().iter().zip(of_kinds).map(|(&count, &time)| time * f64::from(count)).sum()
}

/// Lower bound on the step time of plans with these layers that use a number of GPUs in the range `gpus`, over all pipelines,
/// replicas, shardings and recomputations:
///
/// ```text
/// T ≥ (1 + J)·B·t·c/(N·b)·(Σ_layers (F + B) + head)          specification §8.1, layer bound
/// ```
///
/// Every micro-batch visits every layer and the head once, and the N/(t·c) device groups share the work at best evenly. N is the
/// most GPUs of the range, and the stragglers' share J is that of the fewest. Host floors and traffic that may run beside
/// compute are left out. If plans `may_gather` their weights in a pipeline, half the head counts, as in their price
/// (specification §5.4).
pub fn layer_bound(
    costs: &Costs,
    plan: &Plan,
    parts: LayerParts,
    gpus: &RangeInclusive<u32>,
    may_gather: bool,
) -> Seconds {
    let LayerParts { mixing, feed_forward } = parts;
    let groups = f64::from(*gpus.end()) / f64::from(plan.layout.tp * plan.layout.cp);
    let micro_batches = f64::from(costs.problem.workload().global_batch) / f64::from(plan.micro_batch);
    let slow_down = 1.0 + costs.slow_down(*gpus.start());
    let head = if may_gather { mixing.head * 0.5 } else { mixing.head };
    (mixing.busy + head + feed_forward.busy) * (micro_batches / groups * slow_down * ROUNDING)
}

/// Lower bound on the step time of plans with these layers and the pp and dp of `plan`, by the rank with the most layers: over all
/// schedules that keep at most `copies` copies of the weights, all splits, shardings and recomputations.
///
/// ```text
/// T ≥ (1 + J)·m·max over kinds k of  ⌈c·n_k/p⌉/c·t_k      n_k layers take t_k or longer, F + B; c copies
/// ```
///
/// A rank with c stages works on 1/c of the micro-batches in each, and stages hold whole layers, so that some rank has at least
/// the mean of the n_k layers, rounded up. Host floors and traffic that may run beside compute are left out.
pub fn fullest_rank_bound(costs: &Costs, plan: &Plan, parts: LayerParts, copies: u32) -> Seconds {
    let LayerParts { mixing, feed_forward } = parts;
    let times = || mixing.busy_of_kinds.iter().zip(&feed_forward.busy_of_kinds).map(|(mixing, ffn)| *mixing + *ffn);
    let of_kind = |least: Seconds| {
        let as_long = costs.kind_counts().iter().zip(times()).filter(|(_, time)| *time >= least);
        let layers: u32 = as_long.map(|(count, _)| count).sum();
        least * (f64::from((copies * layers).div_ceil(plan.layout.pp)) / f64::from(copies))
    };
    let longest = times().map(of_kind).fold(Seconds::ZERO, Seconds::max);
    longest * (costs.micro_batches(plan) * (1.0 + costs.slow_down(plan.layout.world_size())) * ROUNDING)
}

/// Factor on lower bounds that allows for rounding: sums in another order differ in the last digits. A simulated step adds up
/// each pass of each chunk, and 10⁵ additions lose 10⁵·2⁻⁵³ ≈ 10⁻¹¹ of it.
pub const ROUNDING: f64 = 1.0 - 1e-10;

impl Block {
    /// Block of two parts; of `plan` only the settings that they depend on are read.
    pub fn new(costs: &Costs, plan: &Plan, LayerParts { mixing, feed_forward }: LayerParts) -> Self {
        let plan = Plan { recompute: Recompute::None, ..plan.clone() };
        let layers = (0..mixing.layers.len())
            .map(|kind| costs.joined(kind, &plan, &mixing.layers[kind], &feed_forward.layers[kind]))
            .collect();
        Self { plain: Arc::new(ShapeCost::new(costs, &plan, layers, mixing.ends)) }
    }

    /// Block of a single plan.
    pub fn of(costs: &Costs, plan: &Plan) -> Self {
        Self::new(
            costs,
            plan,
            LayerParts { mixing: &Mixing::new(costs, plan), feed_forward: &FeedForward::new(costs, plan) },
        )
    }

    /// Cost of the head in a pipeline, in layers of the last kind, under a plan's recomputation; it determines a cost-balanced split.
    pub fn head_in_pipeline(&self, costs: &Costs, plan: &Plan) -> f64 {
        let plan = &Plan { layout: Layout { pp: 2, ..plan.layout }, offload: Offload::NONE, ..plan.clone() };
        let choice = costs.choices(plan)[costs.problem.model().last_kind()];
        costs.head_in_layers(&costs.work_of(plan, &self.plain.layers[choice.kind], &choice), &self.plain.ends)
    }

    /// The layers under a plan's recomputation. Its pipeline is not read.
    pub fn layers(&self, costs: &Costs, plan: &Plan) -> Layers {
        let plan = &Plan { offload: Offload::NONE, ..plan.clone() };
        let choices = costs.choices(plan);
        let works_on = |pp| {
            let plan = Plan { layout: Layout { pp, ..plan.layout }, ..plan.clone() };
            Works::new(costs, &plan, &self.plain, &choices)
        };
        Layers {
            in_pipeline: works_on(2),
            without_pipeline: costs.has_tensor_parallel_floor(plan).then(|| works_on(1)),
            bytes: costs.layer_bytes(plan, &choices),
            working_set: costs.working_set(plan),
            loss: costs.loss_bytes_of(plan, false),
            loss_alone: costs.loss_bytes_of(plan, true),
            checkpoint: costs.checkpoint(plan),
            ends: EndPasses::new(&self.plain.ends),
            shape: Arc::clone(&self.plain),
            choices,
        }
    }
}

/// A block under one recomputation.
#[derive(Clone, Debug)]
pub struct Layers {
    /// Price of each kind of layer, and of the two ends.
    pub shape: Arc<ShapeCost>,
    /// Choices of a layer under its recomputation.
    pub(super) choices: Choices,
    in_pipeline: Works,
    /// Works without a pipeline, where they differ.
    without_pipeline: Option<Works>,
    /// Passes of the two ends.
    pub(super) ends: EndPasses,
    /// Bytes of one layer of each choice.
    pub(super) bytes: LayerBytes,
    /// Input of one layer.
    checkpoint: Bytes,
    /// Working set of a rank.
    working_set: EndBytes,
    /// Bytes of the loss on one of several GPUs, where peaks are by moment.
    pub(super) loss: Bytes,
    /// Bytes of the loss on a single GPU, whose head is not gathered.
    pub(super) loss_alone: Bytes,
}

/// Time of the passes of the two ends of the model, for one micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndPasses {
    /// Passes of the embedding.
    pub embedding: PassTimes,
    /// Forward and backward of the loss together.
    pub loss: Seconds,
    /// Forward of the loss and the gradients of its inputs.
    pub loss_on_the_way: Seconds,
}

impl EndPasses {
    fn new(ends: &Ends) -> Self {
        let (embedding, loss) = (stage::embedding(ends), stage::loss(ends));
        let both = loss.forward() + loss.backward();
        Self { embedding: embedding.passes(), loss: both, loss_on_the_way: both - loss.wgrad }
    }
}

/// One layer of each choice as the pipeline sees it.
#[derive(Clone, Debug)]
pub(super) struct Works {
    /// Under ZeRO 0 to 2.
    pub layers: Vec<Work>,
    /// Under ZeRO 3, priced on first use.
    gathered: OnceCell<Vec<Work>>,
    /// Cost of the head in layers of the last kind.
    pub head: f64,
    /// Passes under ZeRO 0 to 2, all their work together.
    pub passes: Vec<PassTimes>,
    /// Forward and gradients of the inputs under ZeRO 0 to 2: what the next layer and the one before wait for where
    /// weight gradients are passes of their own.
    pub on_the_way: Vec<Seconds>,
}

impl Works {
    fn new(costs: &Costs, plan: &Plan, shape: &ShapeCost, choices: &[LayerChoice]) -> Self {
        let work = |choice: &LayerChoice| costs.work_of(plan, &shape.layers[choice.kind], choice);
        let layers: Vec<Work> = choices.iter().map(work).collect();
        let head = costs.head_in_layers(&layers[costs.problem.model().last_kind()], &shape.ends);
        let passes = layers.iter().map(Work::passes).collect();
        let on_the_way = layers.iter().map(|work| work.forward() + work.backward() - work.wgrad).collect();
        Self { layers, gathered: OnceCell::new(), head, passes, on_the_way }
    }

    /// Replaces each pass by the shorter of both; the work is then that of the passes, not divided into its parts.
    fn shorten_passes(&mut self, other: &Self) {
        for (own, its) in self.on_the_way.iter_mut().zip(&other.on_the_way) {
            *own = own.min(*its);
        }
        let passes = self.passes.iter_mut().zip(&other.passes);
        for ((own, its), (work, its_work)) in passes.zip(self.layers.iter_mut().zip(&other.layers)) {
            *own = PassTimes { forward: own.forward.min(its.forward), backward: own.backward.min(its.backward) };
            *work = Work {
                compute: *own,
                ep_beside: work.ep_beside.min(its_work.ep_beside),
                ep_exposed: work.ep_exposed.min(its_work.ep_exposed),
                wgrad: work.wgrad.min(its_work.wgrad),
                ..Work::default()
            };
        }
    }
}

impl Layers {
    pub(super) fn works(&self, pp: u32) -> &Works {
        let alone = self.without_pipeline.as_ref().filter(|_| pp == 1);
        alone.unwrap_or(&self.in_pipeline)
    }

    /// Lower bound of the passes of one layer of each choice under ZeRO 0 to 2, with a plan's share of activations on the host: a pass
    /// takes no less than the copy beside it ([`Costs::add_transfer`]).
    pub(super) fn least_passes(&self, costs: &Costs, plan: &Plan) -> Cow<'_, [PassTimes]> {
        let (passes, on_host) = (&self.works(plan.layout.pp).passes, plan.offload.activations);
        if on_host <= 0.0 {
            return Cow::Borrowed(passes);
        }
        let Copies { out, back } = costs.copies(plan);
        let with_copies = |(passes, kept): (&PassTimes, &Bytes)| {
            let moved = *kept * on_host;
            PassTimes { forward: passes.forward.max(moved / out), backward: passes.backward.max(moved / back) }
        };
        passes.iter().zip(&self.bytes.kept).map(with_copies).collect()
    }

    /// One layer of each choice under ZeRO 3 and the recomputation of these layers, which a plan has.
    pub(super) fn gathered(&self, costs: &Costs, plan: &Plan) -> &[Work] {
        self.works(plan.layout.pp).gathered.get_or_init(|| {
            let plan = plan.offloading(Offload::NONE);
            let work = |choice: &LayerChoice| costs.gathered_work_of(&plan, &self.shape.layers[choice.kind], choice);
            self.choices.iter().map(work).collect()
        })
    }

    /// Layers with a lower bound of the bytes that any recomputation keeps: half of a layer's input. Recomputation keeps at least
    /// the input of one of a layer's two blocks, or half of both.
    #[must_use]
    pub fn floor(&self) -> Self {
        let least = self.checkpoint * 0.5;
        let kept = self.bytes.kept.iter().map(|_| least).collect();
        let recomputed = self.bytes.recomputed.iter().map(|_| Bytes::ZERO).collect();
        let backward = self.bytes.backward.iter().map(|_| Bytes::ZERO).collect();
        Self { bytes: LayerBytes { kept, recomputed, backward }, ..self.clone() }
    }

    /// Term-by-term minimum of two with the same choices, in time of the passes and in memory. Its work is not divided into its
    /// parts.
    #[must_use]
    pub fn lesser(mut self, other: &Self) -> Self {
        let least = |own: &mut [Bytes], other: &[Bytes]| {
            own.iter_mut().zip(other).for_each(|(own, other)| *own = own.min(*other));
        };
        least(&mut self.bytes.kept, &other.bytes.kept);
        least(&mut self.bytes.recomputed, &other.bytes.recomputed);
        least(&mut self.bytes.backward, &other.bytes.backward);
        if let Some((own, other)) = self.without_pipeline.as_mut().zip(other.without_pipeline.as_ref()) {
            own.shorten_passes(other);
        }
        self.in_pipeline.shorten_passes(&other.in_pipeline);
        self.working_set = self.working_set.min(other.working_set);
        self.loss = self.loss.min(other.loss);
        self.loss_alone = self.loss_alone.min(other.loss_alone);
        self
    }

    /// Time of a micro-batch in one layer of each choice, in a pipeline.
    pub fn time(&self) -> Seconds {
        self.in_pipeline.passes.iter().map(|passes| passes.sum()).sum()
    }

    /// Working set of a plan's rank without that of recomputed layers, as [`Costs::end_bytes`] has it. Of the plan only the number of
    /// GPUs is read.
    pub(super) fn end_bytes(&self, is_by_moment: bool, plan: &Plan) -> EndBytes {
        match (is_by_moment, plan.layout.world_size() == 1) {
            (false, _) => self.working_set,
            (true, true) => EndBytes::of_loss(self.loss_alone),
            (true, false) => EndBytes::of_loss(self.loss),
        }
    }

    /// Layers of each chunk of a plan's pipeline.
    pub fn of_chunks(&self, costs: &Costs, plan: &Plan) -> Vec<u32> {
        costs.split_layers(plan, self.works(plan.layout.pp).head)
    }
}
