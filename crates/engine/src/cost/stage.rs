//! Work of each pipeline rank and virtual stage on one micro-batch.

use std::borrow::Cow;
use std::ops::Range;

use super::costs::Costs;
use super::counts::{Counted, LayerChoice, by_layers, class_of, each_rank};
use super::exchange::LAYER_COLLECTIVES;
use super::head::Ends;
use super::layer::{LayerCost, PassTimes};
use super::shape::{CountedPlan, ShapeCost};
use super::work::Work;
use crate::plan::{Plan, Recompute};
use crate::schedule::replay::StageTime;
use crate::units::Seconds;

/// Share of a layer's host synchronisation that falls on forward. Source: specification §2.9, version 1.1.
const SYNC_FORWARD: f64 = 1.0 / 3.0;
/// Share of the expert exchange of a pass that precedes the experts' kernels: one of two, dispatch and combine, of like volume.
const BEFORE_EXPERTS: f64 = 0.5;
/// A tensor-parallel floor over several domains, against one. Source: run mapping §3 (nanotron).
const FLOOR_ACROSS: f64 = 1.5;

impl Costs<'_> {
    /// Work of one layer of kind `kind` in a pipeline, with the wait for the host and the exposed expert traffic.
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
            compute: PassTimes { forward: cost.forward, backward: cost.dgrad + cost.wgrad },
            recompute: cost.recompute,
            tp: cost.tp,
            cp: cost.cp,
            ep: PassTimes::default(),
            amax: PassTimes::default(),
            host: PassTimes::default(),
            ep_beside: if beside { cost.ep.sum() } else { Seconds::ZERO },
            ep_exposed: Seconds::ZERO,
            wgrad: cost.wgrad,
            link: PassTimes::default(),
        };
        work.host = self.host_wait(kind, cost, &work, plan);
        let floor = self.tensor_parallel_floor(plan);
        work.tp.forward += (floor - work.forward()).or_zero();
        work.tp.backward += (floor - work.backward()).or_zero();
        if beside {
            work.ep_exposed = self.exposed_beside(&work);
        } else {
            work.ep = cost.ep;
        }
        self.wait_for_layer(kind, &mut work, plan);
        work
    }

    /// Least time of a layer and pass with tensor parallelism where stages lie on several domains, a quirk of one framework.
    ///
    /// ```text
    /// 4·τ·log2 t·[1.5 where the group spans several domains]
    /// ```
    ///
    /// Source: run mapping §3 (nanotron).
    fn tensor_parallel_floor(&self, plan: &Plan) -> Seconds {
        let (tp, domain) = (plan.layout.tp, self.fabric.domain());
        if plan.layout.pp == 1 || !self.has_tensor_parallel_floor(plan) {
            return Seconds::ZERO;
        }
        let across = if tp > domain { FLOOR_ACROSS } else { 1.0 };
        self.device.stack.quirks.tp_floor * (LAYER_COLLECTIVES * libm::log2(f64::from(tp)) * across)
    }

    /// Whether passes with a plan's tensor parallelism have such a floor in a pipeline.
    pub(super) fn has_tensor_parallel_floor(&self, plan: &Plan) -> bool {
        let spans_domains = self.problem.cluster().gpus > self.fabric.domain();
        plan.layout.tp > 1 && spans_domains && self.device.stack.quirks.tp_floor > Seconds::ZERO
    }

    /// Work of one layer under a choice; `base` is its cost without recomputation.
    ///
    /// Its activations may go to the host and come back beside its kernels ([`Costs::add_transfer`]).
    pub(super) fn work_of(&self, plan: &Plan, base: &LayerCost, choice: &LayerChoice) -> Work {
        let (plan, cost) = self.recomputing(plan, base, choice);
        let mut work = self.layer_work(choice.kind, &cost, &plan);
        self.add_transfer(&mut work, &cost, &plan, choice);
        work
    }

    /// Work of a layer under ZeRO 3: expert exchange in line, no waiting for tensor-parallel floors.
    pub(super) fn gathered_work_of(&self, plan: &Plan, base: &LayerCost, choice: &LayerChoice) -> Work {
        let (plan, cost) = self.recomputing(plan, base, choice);
        let mut work = self.fsdp_layer(choice.kind, &cost, &plan);
        self.add_transfer(&mut work, &cost, &plan, choice);
        work
    }

    /// The plan and the price of a layer under the recomputation of a choice.
    fn recomputing<'p>(&self, plan: &'p Plan, base: &LayerCost, choice: &LayerChoice) -> (Cow<'p, Plan>, LayerCost) {
        let plan = plan.recomputing(choice.recompute);
        let layer = &self.problem.model().kinds[choice.kind];
        let recompute = self.recomputed(layer, &plan, base);
        (plan, LayerCost { recompute, ..*base })
    }

    /// Factor on the host time of a layer's launches: 1 where the stack's setting applies to the layer, more where the
    /// stack uses CUDA graphs but none replays this layer.
    fn launched_again(&self, recompute: Recompute) -> f64 {
        if self.replays(recompute) { 1.0 } else { 1.0 / self.device.replayed() }
    }

    /// Wait of a layer for the host: launches beyond its other work, and synchronisation (§2.9, version 1.1).
    ///
    /// ```text
    /// max(0, n·t_host − (T − T_experts)) + max(0, H − T_experts − T_sent) + sync
    /// ```
    ///
    /// H: [`LayerCost::expert_host`]. T_sent: the exchange before the experts, which runs while the host launches them, unless the stack
    /// hides it behind other work (`overlap.ep`); the one behind them follows their last launch.
    pub(super) fn host_wait(&self, kind: usize, cost: &LayerCost, work: &Work, plan: &Plan) -> PassTimes {
        let stack = self.device.stack;
        let is_moe = self.problem.model().kinds[kind].moe().is_some();
        let counts_read = is_moe && !self.replays(plan.recompute) && !self.problem.workload().drops_tokens;
        let host = cost.host.scaled(self.launched_again(plan.recompute));
        let sync =
            stack.quirks.sync_per_layer + if counts_read { stack.quirks.moe_sync_per_layer } else { Seconds::ZERO };
        let again = if plan.recompute == Recompute::Full { host.forward } else { Seconds::ZERO };
        let (experts, launched) =
            if self.experts_wait() && is_moe { (cost.experts, cost.expert_host) } else { Default::default() };
        let sent = if stack.overlap.ep > 0.0 { PassTimes::default() } else { cost.ep.scaled(BEFORE_EXPERTS) };
        let waits = |host: Seconds, busy: Seconds, experts: Seconds, sent: Seconds, launched: Seconds| {
            (host - (busy - experts)).or_zero() + (launched - experts - sent).or_zero()
        };
        PassTimes {
            forward: waits(host.forward, work.forward(), experts.forward, sent.forward, launched.forward)
                + sync * SYNC_FORWARD,
            backward: waits(host.backward + again, work.backward(), experts.backward, sent.backward, launched.backward)
                + sync * (1.0 - SYNC_FORWARD),
        }
    }

    /// Time of the head relative to a layer of the last kind, by which a cost-balanced split counts the head as layers.
    /// Multi-token prediction adds one layer and one more head.
    pub(super) fn head_in_layers(&self, layer: &Work, ends: &Ends) -> f64 {
        let one = layer.forward() + layer.backward();
        let head = ends.head.sum() + ends.head_comm.sum();
        if self.problem.model().mtp_depth > 0 { (head * 2.0 + one) / one } else { head / one }
    }

    /// Work of each virtual stage, in model order: its layers, and the ends of the model where they are.
    pub(crate) fn chunk_works(&self, plan: &Plan, shape: &ShapeCost) -> Vec<Work> {
        let counts = self.stage_counts(plan, Some(shape), Counted::Chunks);
        let counted = CountedPlan { plan, shape, counts: &counts };
        self.works_of_chunks(counted, &self.works(plan, shape, &counts.choices))
    }

    /// Work of each pipeline rank: that of its virtual stages.
    pub fn rank_works(&self, plan: &Plan, shape: &ShapeCost) -> Vec<Work> {
        let counts = self.stage_counts(plan, Some(shape), Counted::Ranks);
        let works = self.works(plan, shape, &counts.choices);
        let counted = CountedPlan { plan, shape, counts: &counts };
        self.works_of_ranks(counted, &works, &each_rank(plan.layout.pp))
    }

    /// Work of each virtual stage; `works` = of one layer of each choice.
    pub(super) fn works_of_chunks(&self, counted: CountedPlan, works: &[Work]) -> Vec<Work> {
        let places = counted.counts.chunks.each().map(|layers| &layers[..]);
        self.works_at(counted, works, places, 1.0, |chunk| chunk as usize)
    }

    /// Time of each virtual stage of a schedule of one direction: that of [`Self::works_of_chunks`], computed once for
    /// neighbours with the same layers.
    pub(super) fn times_of_chunks(&self, counted: CountedPlan, works: &[Work]) -> Vec<StageTime> {
        let CountedPlan { plan, shape, counts } = counted;
        let maxima = self.maxima(plan).map(|amax| Work { amax, ..Work::default() });
        let time = |mut work: Work| {
            if let Some(maxima) = &maxima {
                work.add(maxima, 1.0);
            }
            StageTime::from(&work)
        };
        let mut times = Vec::with_capacity(counts.chunks.places() as usize);
        for (chunks, layers) in counts.chunks.iter() {
            times.resize(chunks.end as usize, time(work_of_layers(works, layers)));
        }
        let last = counts.chunks.places() - 1;
        for chunk in [0, counts.mtp_chunk, last] {
            let mut work = work_of_layers(works, counts.chunks.at(chunk));
            if chunk == 0 {
                work.add(&embedding(&shape.ends), 1.0);
            }
            if chunk == last {
                work.add(&loss(&shape.ends), 1.0 + f64::from(counts.mtp));
            }
            if let Some(choice) = counts.mtp_choice.filter(|_| chunk == counts.mtp_chunk) {
                work.add(&works[choice], f64::from(counts.mtp));
            }
            times[chunk as usize] = time(work);
        }
        times
    }

    /// Work of a rank of each class; `works` = of one layer of each choice.
    pub(super) fn works_of_ranks(&self, counted: CountedPlan, works: &[Work], classes: &[Range<u32>]) -> Vec<Work> {
        let CountedPlan { plan, counts, .. } = counted;
        let chunks_each = f64::from(plan.schedule.virtual_stages());
        let place = |chunk| class_of(classes, plan.pipeline().rank_of(chunk));
        self.works_at(counted, works, counts.of_classes(classes), chunks_each, place)
    }

    /// Work at each of `places`, which are given by their layers of each choice and hold `chunks_each` virtual stages
    /// each; `place` = index of the place of a virtual stage.
    fn works_at<'c>(
        &self,
        counted: CountedPlan,
        works: &[Work],
        places: impl Iterator<Item = &'c [f64]>,
        chunks_each: f64,
        place: impl Fn(u32) -> usize,
    ) -> Vec<Work> {
        let CountedPlan { plan, shape, counts } = counted;
        let mut all: Vec<Work> = by_layers(places, |layers| work_of_layers(works, layers));
        let chunks = plan.pipeline().chunks();
        let mut add_at = |chunk: u32, work: &Work, times: f64| all[place(chunk)].add(work, times);
        add_at(0, &embedding(&shape.ends), 1.0);
        add_at(chunks - 1, &loss(&shape.ends), 1.0 + f64::from(counts.mtp));
        if let Some(choice) = counts.mtp_choice {
            add_at(counts.mtp_chunk, &works[choice], f64::from(counts.mtp));
        }
        if let Some(amax) = self.maxima(plan) {
            let maxima = Work { amax, ..Work::default() };
            for work in &mut all {
                work.add(&maxima, chunks_each);
            }
        }
        all
    }
}

/// Work of `layers` layers of each choice; `works` = of one.
fn work_of_layers(works: &[Work], layers: &[f64]) -> Work {
    let mut work = Work::default();
    works.iter().zip(layers).filter(|(_, times)| **times > 0.0).for_each(|(one, times)| work.add(one, *times));
    work
}

/// Work of the input embedding.
pub(super) fn embedding(ends: &Ends) -> Work {
    Work { compute: ends.embedding, tp: ends.embedding_comm, ..Work::default() }
}

/// Work of the output head and the loss.
pub(super) fn loss(ends: &Ends) -> Work {
    Work { compute: ends.head, tp: ends.head_comm, ..Work::default() }
}
