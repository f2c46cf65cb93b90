//! Step time under ZeRO 3 (FSDP, HSDP): weights are gathered layer by layer.

use smallvec::SmallVec;

use super::costs::Costs;
use super::counts::LayerChoice;
use super::data::{self, RankParameters};
use super::groups;
use super::head::Ends;
use super::layer::{LayerCost, PassTimes};
use super::optimizer::Update;
use super::overlap::overlap;
use super::runs::PerKind;
use super::step::StepTime;
use super::work::Work;
use crate::collective::Group;
use crate::gpu::{Collective, Format};
use crate::plan::Plan;
use crate::units::{Bytes, Seconds};

/// Bytes that FSDP's update moves per parameter, and its kernels. Source: specification §2.7 and §5.4.
mod update {
    pub const BYTES: f64 = 40.0;
    pub const KERNELS: f64 = 60.0;
}

/// Gathering and scattering one layer's weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharding {
    gather: Seconds,
    scatter: Seconds,
}

impl Sharding {
    /// Whether neither takes longer than that of `other`.
    fn within(&self, other: &Self) -> bool {
        self.gather <= other.gather && self.scatter <= other.scatter
    }

    /// Minimum, part by part.
    fn lesser(&self, other: &Self) -> Self {
        Self { gather: self.gather.min(other.gather), scatter: self.scatter.min(other.scatter) }
    }
}

/// Parts of a step other than its layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// The two ends of the model.
    pub ends: Ends,
    /// Exposed stage-to-stage sends.
    pub sends: Seconds,
    /// Share by which stragglers lengthen it.
    pub slow_down: f64,
}

/// Layers of one rank, or of identical ones, under ZeRO 3.
#[derive(Clone, Debug)]
pub(super) struct GatheredRank {
    /// Layers of each choice.
    layers: PerKind,
    /// Their work on a micro-batch.
    work: Work,
    /// Forward and backward time of that work.
    busy: Seconds,
    /// Whether it holds the head.
    is_last: bool,
}

impl GatheredRank {
    fn new(layers: PerKind, works: &[Work], is_last: bool) -> Self {
        let mut work = Work::default();
        works.iter().zip(&layers).filter(|(_, count)| **count > 0.0).for_each(|(one, count)| work.add(one, *count));
        Self { busy: work.forward() + work.backward(), layers, work, is_last }
    }
}

/// Passes of one layer, during which weights are gathered.
#[derive(Clone, Copy, Debug)]
struct GatheredPasses {
    kind: usize,
    forward: Seconds,
    backward: Seconds,
    /// Copies to and from the host during the passes.
    link: PassTimes,
}

/// Layers of a pipeline under ZeRO 3, before their weights are gathered.
#[derive(Clone, Debug)]
pub(super) struct GatheredLayers {
    /// Passes of one layer of each choice.
    passes: SmallVec<[GatheredPasses; 4]>,
    /// All ranks together.
    all: GatheredRank,
    /// Each rank, or each class of identical ones.
    ranks: SmallVec<[GatheredRank; 4]>,
}

impl GatheredLayers {
    /// Layers of these ranks: each rank is its layers of each choice, the number of ranks that equal it, and whether it holds the
    /// head; `works` = of one layer of each choice.
    pub fn new<'r>(
        choices: &[LayerChoice],
        works: &[Work],
        ranks: impl Iterator<Item = (&'r PerKind, f64, bool)>,
    ) -> Self {
        let mut all = PerKind::from_elem(0.0, choices.len());
        let of_rank = |(layers, times, is_last): (&PerKind, f64, bool)| {
            all.iter_mut().zip(layers).for_each(|(sum, count)| *sum += count * times);
            GatheredRank::new(layers.clone(), works, is_last)
        };
        let ranks = ranks.map(of_rank).collect();
        let passes = choices.iter().zip(works).map(|(choice, work)| GatheredPasses {
            kind: choice.kind,
            forward: work.forward(),
            backward: work.backward(),
            link: work.link,
        });
        Self { passes: passes.collect(), all: GatheredRank::new(all, works, false), ranks }
    }
}

/// Time of sharded weights in a step, before overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharded {
    /// Gather and scatter of one layer of each kind.
    pub kinds: Vec<Sharding>,
    /// Gather and scatter of the embedding.
    pub table: Sharding,
    /// All-reduce between shard groups.
    pub outer: Seconds,
    /// The update.
    pub update: Update,
}

impl Sharded {
    /// Whether no part takes longer than that of `other`.
    pub fn within(&self, other: &Self) -> bool {
        let Self { kinds, table, outer, update } = self;
        kinds.iter().zip(&other.kinds).all(|(a, b)| a.within(b))
            && table.within(&other.table)
            && *outer <= other.outer
            && update.within(other.update)
    }

    /// Minimum, part by part.
    pub fn lesser(&self, other: &Self) -> Self {
        let Self { kinds, table, outer, update } = self;
        Self {
            kinds: kinds.iter().zip(&other.kinds).map(|(a, b)| a.lesser(b)).collect(),
            table: table.lesser(&other.table),
            outer: outer.min(other.outer),
            update: update.lesser(other.update),
        }
    }
}

impl Costs<'_> {
    /// Everything of a step that depends on how weights are sharded, and on nothing else of the plan.
    pub(super) fn sharded(&self, plan: &Plan, heaviest: &RankParameters, update: Update) -> Sharded {
        Sharded {
            kinds: (0..self.problem.model().kinds.len()).map(|kind| self.sharding(kind, plan)).collect(),
            table: self.table_sharding(plan),
            outer: self.between_shard_groups(plan, heaviest),
            update,
        }
    }

    /// A step that no sharding goes below: its layers, with nothing to gather and nothing to update.
    pub(super) fn least_sharded_step(&self, plan: &Plan, layers: &GatheredLayers, around: &Around) -> Seconds {
        let kinds = self.problem.model().kinds.len();
        let free = Sharded { kinds: vec![Sharding::default(); kinds], ..Sharded::default() };
        self.sharded_step(plan, layers, &free, around).total()
    }

    /// Exposed part of the all-reduce between shard groups. Gradients of layers that a compiled loop runs are whole when the loop
    /// ends, so nothing is left to hide it. Source: specification §5.4 with version 1.1, §6.11.
    fn exposed_between_groups(&self, outer: Seconds, layers: Seconds) -> Seconds {
        if self.is_scanned() {
            return outer;
        }
        outer / f64::from(self.problem.model().layers()) + (outer - layers * 0.5).or_zero()
    }

    /// Step time.
    ///
    /// ```text
    /// T_layer = overlap(F, ag, σ) + overlap(B, ag + rs, σ)          sums where nothing prefetches
    /// pp = 1   T = m·(Σ T_layer + ends) + m·ag + last rs + embedding's ag and rs
    /// pp > 1   M = the most of a rank, its layers and ½·T_head on the last;  T = m·M + (Σ − M)/v + the same edges
    ///          splits unknown: (m + (p−1)/v)·ΣT_layer/p + ½·m·T_head + the same edges
    /// HSDP     + outer/L + max(0, outer − ½·ΣT_layer),  outer = ar(P/t/p·g/K) over the groups; a compiled loop: + outer
    /// ```
    ///
    /// Source: specification §5.4 with version 1.1.
    pub(super) fn sharded_step(
        &self,
        plan: &Plan,
        layers: &GatheredLayers,
        sharded: &Sharded,
        around: &Around,
    ) -> StepTime {
        let Around { ends, sends, slow_down } = *around;
        let (m, pp, v) =
            (self.micro_batches(plan), f64::from(plan.layout.pp), f64::from(plan.schedule.virtual_stages()));
        let head = ends.head.sum() + ends.head_comm.sum();
        let of_layer: SmallVec<[Seconds; 4]> =
            layers.passes.iter().map(|layer| self.exposed_gathers(plan, layer, &sharded.kinds[layer.kind])).collect();
        let exposed_on = |rank: &GatheredRank| -> Seconds {
            let held = rank.layers.iter().zip(&of_layer).filter(|(count, _)| **count > 0.0);
            held.map(|(count, exposed)| *exposed * *count).sum()
        };
        let (all, exposed) = (&layers.all, exposed_on(&layers.all));
        let layers_time = all.busy + exposed;
        let edge = sharded.kinds[self.highest_kind];
        let outer = self.exposed_between_groups(sharded.outer, layers_time);
        let once = sharded.table.gather + sharded.table.scatter + edge.scatter;
        let mut step;
        if plan.layout.pp == 1 {
            step = StepTime::busy(&all.work, Seconds::ZERO, m);
            step.compute += (ends.head.sum() + ends.embedding.sum()) * m;
            step.tp_comm += (ends.head_comm.sum() + ends.embedding_comm.sum()) * m;
            step.dp_comm = (exposed + edge.gather) * m + once;
        } else if self.splits_unknown {
            step = StepTime::busy(&all.work, Seconds::ZERO, m / pp);
            step.compute += head * (0.5 * m);
            step.dp_comm = exposed * (m / pp) + edge.gather + once;
            step.pipeline_bubble = layers_time / pp * ((pp - 1.0) / v);
            step.pp_comm = sends;
        } else {
            let head_on = |rank: &GatheredRank| if rank.is_last { head * 0.5 } else { Seconds::ZERO };
            let pace =
                |rank: &GatheredRank, exposed: Seconds| (rank.busy + exposed) * (m - 1.0 / v) + head_on(rank) * m;
            let mut most = (Seconds::ZERO, all, Seconds::ZERO);
            for rank in &layers.ranks {
                let exposed = exposed_on(rank);
                let own = pace(rank, exposed);
                if own > most.0 {
                    most = (own, rank, exposed);
                }
            }
            let (_, most, exposed) = most;
            step = StepTime::busy(&most.work, Seconds::ZERO, m);
            step.compute += head_on(most) * m;
            step.dp_comm = exposed * m + edge.gather + once;
            step.pipeline_bubble = (layers_time - most.busy - exposed).or_zero() / v;
            step.pp_comm = sends;
        }
        if let Some(maxima) = self.maxima(plan) {
            step.amax_comm += maxima.sum() * (m * v);
        }
        step.with_edges(slow_down, outer, sharded.update)
    }

    /// Time that gathering and scattering the weights of one layer adds to its passes. Across nodes, copies to the host take
    /// turns with them on the link of the GPU.
    fn exposed_gathers(&self, plan: &Plan, layer: &GatheredPasses, sharding: &Sharding) -> Seconds {
        let &GatheredPasses { forward, backward, link, .. } = layer;
        let group = groups::dp(plan, plan.dense_shards());
        let leaves = self.fabric.inside_domain(group) < group.ranks;
        let sigma = self.device.gpu.contention.value;
        let again = if plan.reshard_after_forward { sharding.gather } else { Seconds::ZERO };
        let backward_comm = again + sharding.scatter;
        if self.device.stack.overlap.fsdp_prefetch {
            let pass = |busy: Seconds, moved: Seconds, copied: Seconds| {
                let least = if leaves && moved > Seconds::ZERO { moved + copied } else { Seconds::ZERO };
                overlap(busy, moved, sigma).max(least) - busy
            };
            pass(forward, sharding.gather, link.forward) + pass(backward, backward_comm, link.backward)
        } else {
            sharding.gather + backward_comm
        }
    }

    /// One layer, its expert exchange in line, never faster than the host launches it.
    pub(super) fn fsdp_layer(&self, kind: usize, cost: &LayerCost, plan: &Plan) -> Work {
        let hooked = self.hooked(kind, cost, plan);
        let cost = hooked.as_ref().unwrap_or(cost);
        let mut work = Work {
            ep: cost.ep,
            ep_beside: Seconds::ZERO,
            ep_exposed: Seconds::ZERO,
            host: PassTimes::default(),
            ..self.layer_work(kind, cost, plan)
        };
        work.host = self.host_wait(kind, cost, &work, plan);
        self.wait_for_layer(kind, &mut work, plan);
        self.wait_for_fsdp(&mut work, plan);
        work
    }

    /// Adds the wait of a layer for the hooks that gather and free its weights and scatter its gradients, shared over the passes by their
    /// launches. Factors of layers with experts and of sharded tensors were measured with the hooks.
    ///
    /// ```text
    /// F ≥ u·n_f/(n_f + n_b)     B ≥ u·(n_b + n_again)/(n_f + n_b)          u = `stack.launches.fsdp_layer`
    /// ```
    ///
    /// n_again: [`Self::recomputed_launches`]. Evidence: docs/cost-model.md, "Host time of FSDP".
    fn wait_for_fsdp(&self, work: &mut Work, plan: &Plan) {
        let launches = &self.device.stack.launches;
        let counted = launches.forward + launches.backward;
        if launches.fsdp_layer > Seconds::ZERO && counted > 0.0 {
            let again = Self::recomputed_launches(plan.recompute, launches.forward);
            let each = launches.fsdp_layer * (self.device.replayed() / counted);
            work.host.forward += (each * launches.forward - work.forward()).or_zero();
            work.host.backward += (each * (launches.backward + again) - work.backward()).or_zero();
        }
    }

    /// Bytes of a gathered weight element: one where the stack gathers in 8 bits.
    fn gathered_bytes(&self) -> f64 {
        let stack = self.device.stack;
        if stack.fp8_all_gather && self.device.format != Format::Bf16 { 1.0 } else { stack.gather_bytes }
    }

    /// Gather and scatter of one layer of a kind: dense weights over the shard group, experts over their replicas.
    fn sharding(&self, kind: usize, plan: &Plan) -> Sharding {
        let stack = self.device.stack;
        let layout = &plan.layout;
        let RankParameters { dense, experts, tables: _ } =
            RankParameters::of_layer(self.layer_parameters(kind), layout);
        let group = groups::dp(plan, plan.dense_shards());
        let copies = groups::experts(plan);
        let both = |op, bytes: f64| {
            let one = |parameters: f64, group| self.fabric.time(op, Bytes::new(parameters * bytes), group, 1.0);
            (one(dense, group) + one(experts, copies)) / stack.fsdp_efficiency
        };
        Sharding {
            gather: both(Collective::AllGather, self.gathered_bytes()),
            scatter: if self.is_lora() { Seconds::ZERO } else { both(Collective::ReduceScatter, stack.reduce_bytes) },
        }
    }

    /// Gather and scatter of the embedding.
    fn table_sharding(&self, plan: &Plan) -> Sharding {
        let model = self.problem.model();
        let table = model.padded_vocab(plan.layout.tp) * f64::from(model.hidden) / f64::from(plan.layout.tp);
        let group = groups::dp(plan, plan.dense_shards());
        let time = |op, bytes: f64| self.fabric.time(op, Bytes::new(table * bytes), group, 1.0);
        Sharding {
            gather: time(Collective::AllGather, self.gathered_bytes()),
            scatter: if self.is_lora() {
                Seconds::ZERO
            } else {
                time(Collective::ReduceScatter, self.device.stack.reduce_bytes)
            },
        }
    }

    /// All-reduce of gradients between shard groups (HSDP).
    fn between_shard_groups(&self, plan: &Plan, heaviest: &RankParameters) -> Seconds {
        let (all, shards) = (plan.layout.dense_replicas(), plan.dense_shards());
        if shards >= all || self.is_lora() {
            return Seconds::ZERO;
        }
        let inner = groups::dp(plan, shards);
        let group = Group { ranks: all / shards, stride: inner.stride * shards };
        let mine = heaviest.total() / f64::from(shards);
        self.fabric.time(Collective::AllReduce, Bytes::new(mine * self.device.stack.reduce_bytes), group, 1.0)
    }

    /// Time of FSDP's update on the device, of the parameters of the heaviest rank.
    pub(super) fn fsdp_update(&self, plan: &Plan, heaviest: &RankParameters) -> Seconds {
        let share = if self.is_lora() { data::LORA_SHARE } else { 1.0 };
        let shard = heaviest.dense / f64::from(plan.dense_shards())
            + heaviest.experts / f64::from(plan.layout.expert_replicas());
        let on_device = 1.0 - plan.offload.optimizer;
        self.device.stream_fused(Bytes::new(shard * share * on_device * update::BYTES), update::KERNELS)
            + self.newton_schulz(plan, heaviest)
            + self.device.stack.quirks.step_overhead
    }
}
