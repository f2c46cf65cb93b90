//! From layers to stages: what each pipeline rank does for one micro-batch.

use std::borrow::Cow;

use super::head::Ends;
use super::layer::{LayerCost, Pair};
use super::split;
use super::{Costs, PerKind};
use crate::plan::{Plan, Recompute};
use crate::schedule::closed::RankTime;
use crate::split::LayerSplit;
use crate::units::Seconds;

/// Work on one micro-batch, by what it is spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Kernels of the model.
    pub compute: Pair,
    /// Computed again (backward).
    pub recompute: Seconds,
    /// Tensor-parallel collectives.
    pub tp: Pair,
    /// Context-parallel exchange.
    pub cp: Pair,
    /// Expert exchange that nothing hides.
    pub ep: Pair,
    /// Waiting for the maxima of FP8 tensors.
    pub amax: Pair,
    /// Waiting for the host.
    pub host: Pair,
    /// Expert exchange that the stack runs beside compute (forward and backward), not in the sums below.
    pub ep_beside: Seconds,
    /// Weight gradients, a part of `compute`.
    pub wgrad: Seconds,
}

impl Work {
    /// Forward.
    pub fn forward(&self) -> Seconds {
        let Self { compute, recompute: _, tp, cp, ep, amax, host, ep_beside: _, wgrad: _ } = self;
        compute.forward + tp.forward + cp.forward + ep.forward + amax.forward + host.forward
    }

    /// Backward.
    pub fn backward(&self) -> Seconds {
        let Self { compute, recompute, tp, cp, ep, amax, host, ep_beside: _, wgrad: _ } = self;
        compute.backward + *recompute + tp.backward + cp.backward + ep.backward + amax.backward + host.backward
    }

    /// As the schedules see it.
    pub fn rank_time(&self) -> RankTime {
        RankTime { forward: self.forward(), backward: self.backward(), wgrad: self.wgrad }
    }

    /// As a bidirectional schedule sees it where nothing hides its expert traffic: half of it in each pass.
    pub fn alone(&self) -> RankTime {
        let half = self.ep_beside / 2.0;
        RankTime { forward: self.forward() + half, backward: self.backward() + half, wgrad: self.wgrad }
    }

    /// The forward of this and the backward of another.
    #[must_use]
    pub fn beside(&self, other: &Self) -> Self {
        let pair = |forward: Pair, backward: Pair| Pair { forward: forward.forward, backward: backward.backward };
        let Self { compute, recompute, tp, cp, ep, amax, host, ep_beside, wgrad } = *other;
        Self {
            compute: pair(self.compute, compute),
            recompute,
            tp: pair(self.tp, tp),
            cp: pair(self.cp, cp),
            ep: pair(self.ep, ep),
            amax: pair(self.amax, amax),
            host: pair(self.host, host),
            ep_beside: (self.ep_beside + ep_beside) / 2.0,
            wgrad,
        }
    }

    /// Adds `times` of `other`.
    pub fn add(&mut self, other: &Self, times: f64) {
        let pair = |to: &mut Pair, from: Pair| {
            to.forward += from.forward * times;
            to.backward += from.backward * times;
        };
        let Self { compute, recompute, tp, cp, ep, amax, host, ep_beside, wgrad } = *other;
        pair(&mut self.compute, compute);
        self.recompute += recompute * times;
        pair(&mut self.tp, tp);
        pair(&mut self.cp, cp);
        pair(&mut self.ep, ep);
        pair(&mut self.amax, amax);
        pair(&mut self.host, host);
        self.ep_beside += ep_beside * times;
        self.wgrad += wgrad * times;
    }
}

/// What plans of one shape share.
#[derive(Clone, Debug)]
pub struct ShapeCost {
    /// Price of each kind of layer.
    pub layers: Vec<LayerCost>,
    /// The two ends of the model.
    pub ends: Ends,
}

impl ShapeCost {
    /// Prices each kind of layer and the two ends.
    pub fn new(costs: &Costs, plan: &Plan) -> Self {
        Self {
            layers: (0..costs.problem.model().kinds.len()).map(|kind| costs.layer(kind, plan)).collect(),
            ends: costs.ends(plan),
        }
    }
}

/// Share of a layer's host synchronisation that falls on forward. Source: specification §2.9, version 1.1.
const SYNC_FORWARD: f64 = 1.0 / 3.0;
/// A tensor-parallel floor over several domains, against one. Source: run mapping §3 (nanotron).
const FLOOR_ACROSS: f64 = 1.5;

impl Costs<'_> {
    /// One layer of kind `kind` as the pipeline sees it: the host floor, what waits for it, and where expert traffic runs.
    ///
    /// ```text
    /// F = max(F_gpu, n_f·t_host) + sync/3          B = max(B_gpu, n_b·t_host [+ n_f·t_host under full recomputation]) + 2·sync/3
    /// ```
    ///
    /// Source: specification §2.9, version 1.1.
    pub(super) fn layer_work(&self, kind: usize, cost: &LayerCost, plan: &Plan) -> Work {
        let stack = self.device.stack;
        let beside = stack.overlap.ep > 0.0;
        let mut work = Work {
            compute: Pair { forward: cost.forward, backward: cost.dgrad + cost.wgrad },
            recompute: cost.recompute,
            tp: cost.tp,
            cp: cost.cp,
            ep: Pair::default(),
            amax: Pair::default(),
            host: Pair::default(),
            ep_beside: if beside { cost.ep.sum() } else { Seconds::ZERO },
            wgrad: cost.wgrad,
        };
        work.host = self.host_wait(kind, cost, &work, plan);
        if plan.layout.pp > 1 && plan.layout.tp > 1 && stack.quirks.tp_floor > Seconds::ZERO {
            let across = if plan.layout.tp > self.fabric.domain() { FLOOR_ACROSS } else { 1.0 };
            let waits = |floor: Seconds, busy: Seconds| (floor - busy).or_zero();
            let floor = stack.quirks.tp_floor * (4.0 * f64::from(plan.layout.tp).log2() * across);
            work.tp.forward += waits(floor, work.forward());
            work.tp.backward += waits(floor, work.backward());
        }
        if !beside {
            work.ep = cost.ep;
        }
        work
    }

    /// What a layer waits for the host: launches beyond its other work, and synchronisation (§2.9, version 1.1).
    pub(super) fn host_wait(&self, kind: usize, cost: &LayerCost, work: &Work, plan: &Plan) -> Pair {
        let stack = self.device.stack;
        let is_moe = self.problem.model().kinds[kind].moe().is_some();
        let counts_read = is_moe && !stack.cuda_graphs && !self.problem.workload().drops_tokens;
        let sync =
            stack.quirks.sync_per_layer + if counts_read { stack.quirks.moe_sync_per_layer } else { Seconds::ZERO };
        let again = if plan.recompute == Recompute::Full { cost.host.forward } else { Seconds::ZERO };
        let (experts, launched) =
            if self.experts_wait() && is_moe { (cost.experts, cost.expert_host) } else { Default::default() };
        let waits = |host: Seconds, busy: Seconds, experts: Seconds, launched: Seconds| {
            (host - (busy - experts)).or_zero() + (launched - experts).or_zero()
        };
        Pair {
            forward: waits(cost.host.forward, work.forward(), experts.forward, launched.forward) + sync * SYNC_FORWARD,
            backward: waits(cost.host.backward + again, work.backward(), experts.backward, launched.backward)
                + sync * (1.0 - SYNC_FORWARD),
        }
    }

    /// Head cost in layers of the last kind, which a cost-balanced split weighs (with multi-token prediction, its layer and
    /// its head too).
    pub(super) fn head_in_layers(&self, layer: &Work, ends: &Ends) -> f64 {
        let one = layer.forward() + layer.backward();
        let head = ends.head.sum() + ends.head_comm.sum();
        if self.problem.model().mtp_depth > 0 { (head * 2.0 + one) / one } else { head / one }
    }

    /// Work of each kind of layer.
    pub(super) fn works(&self, plan: &Plan, shape: &ShapeCost) -> Vec<Work> {
        shape.layers.iter().enumerate().map(|(kind, cost)| self.layer_work(kind, cost, plan)).collect()
    }

    /// Layers of each chunk of this plan.
    pub fn layers_of_chunks(&self, plan: &Plan, shape: &ShapeCost) -> Vec<u32> {
        let model = self.problem.model();
        let works = self.works(plan, shape);
        let head = self.head_in_layers(&works[model.last_kind()], &shape.ends);
        self.split_layers(plan, head)
    }

    /// Layers of each chunk of this plan where the head counts as `head` layers.
    pub(super) fn split_layers(&self, plan: &Plan, head: f64) -> Vec<u32> {
        let (layers, pp) = (self.problem.model().layers(), plan.layout.pp);
        split::layers_of_chunks(plan.split, layers, pp, pp * plan.schedule.virtual_stages(), head)
    }

    /// Layers of each chunk as its rank holds them: those that the split names, else an even share. Which chunk has a layer
    /// less where none is named differs between frameworks.
    pub(super) fn held_layers(&self, plan: &Plan) -> Vec<u32> {
        let split = if plan.split.is_spelled_out() { plan.split } else { LayerSplit::Even };
        self.split_layers(&Plan { split, ..*plan }, 0.0)
    }

    /// Layers of each kind on each pipeline rank.
    pub(super) fn layers_of_ranks(&self, plan: &Plan) -> Vec<PerKind> {
        self.first_layers_of_ranks(plan, u32::MAX)
    }

    /// The same of the first `most` layers of each chunk.
    pub(super) fn first_layers_of_ranks(&self, plan: &Plan, most: u32) -> Vec<PerKind> {
        let pp = plan.layout.pp;
        if self.parameters.len() == 1 && !plan.split.is_spelled_out() {
            let ranks = split::even_on_ranks(self.problem.model().layers(), plan.schedule, pp, most);
            return ranks.into_iter().map(|layers| PerKind::from_elem(f64::from(layers), 1)).collect();
        }
        self.layers_at(&self.held_layers(plan), most, pp, plan.schedule.ranks(pp))
    }

    /// Layers of each kind at each of `places`, counting the first `most` of each chunk; `layers` = of each chunk, `place` =
    /// where each chunk is.
    fn layers_at(&self, layers: &[u32], most: u32, places: u32, place: impl Iterator<Item = u32>) -> Vec<PerKind> {
        let kinds = self.problem.model().kinds.len();
        let mut held = vec![0; places as usize * kinds];
        let mut from = 0;
        for (&count, place) in layers.iter().zip(place) {
            let here = &mut held[place as usize * kinds..][..kinds];
            if let [sum] = here {
                *sum += count.min(most);
            } else {
                for (sum, times) in here.iter_mut().zip(self.kinds_between(from, from + count.min(most))) {
                    *sum += times;
                }
            }
            from += count;
        }
        held.chunks(kinds).map(|counts| counts.iter().map(|&count| f64::from(count)).collect()).collect()
    }

    /// The chunk that holds the multi-token-prediction layers.
    pub(super) fn mtp_chunk(plan: &Plan) -> u32 {
        plan.split.mtp_stage((plan.layout.pp * plan.schedule.virtual_stages()) as usize) as u32
    }

    /// Work of each chunk, in model order: its layers, and the ends of the model where they are.
    pub fn chunk_works(&self, plan: &Plan, shape: &ShapeCost) -> Vec<Work> {
        let chunks = plan.layout.pp * plan.schedule.virtual_stages();
        let works = self.works(plan, shape);
        let layers = self.priced_layers(plan, shape, &works);
        self.works_at(
            plan,
            shape,
            &works,
            chunks,
            |most| Cow::Owned(self.layers_at(&layers, most, chunks, 0..chunks)),
            |chunk| chunk,
        )
    }

    /// Work of each pipeline rank: that of its chunks.
    pub fn rank_works(&self, plan: &Plan, shape: &ShapeCost) -> Vec<Work> {
        self.works_of_ranks(plan, shape, &self.layers_of_ranks(plan))
    }

    /// The same of ranks that hold these layers of each kind.
    pub(super) fn works_of_ranks(&self, plan: &Plan, shape: &ShapeCost, held: &[PerKind]) -> Vec<Work> {
        let pp = plan.layout.pp;
        let place = |chunk| plan.schedule.rank_of(chunk, pp);
        let works = self.works(plan, shape);
        let priced_as_held = plan.split != LayerSplit::CostBalanced;
        let counts = |most| {
            if priced_as_held && most == u32::MAX {
                return Cow::Borrowed(held);
            }
            Cow::Owned(self.layers_at(&self.priced_layers(plan, shape, &works), most, pp, plan.schedule.ranks(pp)))
        };
        self.works_at(plan, shape, &works, pp, counts, place)
    }

    /// Layers of each chunk as its work is priced.
    fn priced_layers(&self, plan: &Plan, shape: &ShapeCost, works: &[Work]) -> Vec<u32> {
        let head = self.head_in_layers(&works[self.problem.model().last_kind()], &shape.ends);
        self.split_layers(plan, head)
    }

    /// Work at each of `places`; `counts` = layers there of each kind, of the first so many of each chunk; `place` = where a
    /// chunk is.
    fn works_at<'c>(
        &self,
        plan: &Plan,
        shape: &ShapeCost,
        works: &[Work],
        places: u32,
        counts: impl Fn(u32) -> Cow<'c, [PerKind]>,
        place: impl Fn(u32) -> u32,
    ) -> Vec<Work> {
        let model = self.problem.model();
        let mut all = vec![Work::default(); places as usize];
        for (work, counts) in all.iter_mut().zip(&*counts(u32::MAX)) {
            for (one, &times) in works.iter().zip(counts) {
                if times > 0.0 {
                    work.add(one, times);
                }
            }
        }
        if let Recompute::FirstLayers(most) = plan.recompute {
            for (work, counts) in all.iter_mut().zip(&*counts(most)) {
                let again = shape.layers.iter().zip(counts).map(|(cost, &times)| self.forgotten(cost) * times);
                work.recompute += again.sum();
            }
        }
        let mut at = |chunk: u32, work: &Work, times: f64| all[place(chunk) as usize].add(work, times);
        let depth = f64::from(model.mtp_depth);
        at(0, &embedding(&shape.ends), 1.0);
        at(plan.layout.pp * plan.schedule.virtual_stages() - 1, &loss(&shape.ends), 1.0 + depth);
        if model.mtp_depth > 0 {
            at(Self::mtp_chunk(plan), &works[model.last_kind()], depth);
        }
        if let Some(amax) = self.maxima(plan) {
            let maxima = Work { amax, ..Work::default() };
            let chunks_each = f64::from(plan.layout.pp * plan.schedule.virtual_stages() / places);
            for work in &mut all {
                work.add(&maxima, chunks_each);
            }
        }
        all
    }

    /// What `FirstLayers` computes again for a micro-batch, in all chunks together; nothing under any other recomputation.
    pub(super) fn first_layers_again(&self, plan: &Plan, shape: &ShapeCost) -> Seconds {
        let Recompute::FirstLayers(most) = plan.recompute else { return Seconds::ZERO };
        let model = self.problem.model();
        let works = self.works(plan, shape);
        let head = self.head_in_layers(&works[model.last_kind()], &shape.ends);
        let mut from = 0;
        let mut again = Seconds::ZERO;
        for count in self.split_layers(plan, head) {
            let first = &model.order[from as usize..(from + count.min(most)) as usize];
            again += first.iter().map(|&kind| self.forgotten(&shape.layers[kind])).sum();
            from += count;
        }
        again
    }
}

pub(super) fn embedding(ends: &Ends) -> Work {
    Work { compute: ends.embedding, tp: ends.embedding_comm, ..Work::default() }
}

pub(super) fn loss(ends: &Ends) -> Work {
    Work { compute: ends.head, tp: ends.head_comm, ..Work::default() }
}
