//! Step time under ZeRO 3 (FSDP, HSDP): weights are gathered layer by layer.

use smallvec::SmallVec;

use super::counts::LayerChoice;
use super::data::{self, RankParameters};
use super::head::Ends;
use super::layer::LayerCost;
use super::stage::Work;
use super::step::StepTime;
use super::{Costs, PerKind, groups, overlap::overlap};
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
    /// Whether both take no longer than another's.
    fn within(&self, other: &Self) -> bool {
        self.gather <= other.gather && self.scatter <= other.scatter
    }
}

/// Parts of a step beside its layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// The two ends of the model.
    pub ends: Ends,
    /// Exposed stage-to-stage sends.
    pub sends: Seconds,
    /// Share by which stragglers lengthen it.
    pub slow_down: f64,
}

/// Layers of one rank under ZeRO 3.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatheredRank<'r> {
    /// Layers of each choice.
    pub layers: &'r [f64],
    /// How many such ranks.
    pub count: f64,
    /// Whether the head stands here.
    pub is_last: bool,
}

/// What sharded weights cost a step, as if nothing hid it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharded {
    /// Of one layer of each kind.
    pub kinds: Vec<Sharding>,
    /// Of the embedding.
    pub table: Sharding,
    /// All-reduce between shard groups.
    pub outer: Seconds,
    /// The update on the device.
    pub update: Seconds,
    /// The update on the host.
    pub host: Seconds,
}

impl Sharded {
    /// Whether nothing of it takes longer than another's.
    pub fn within(&self, other: &Self) -> bool {
        let Self { kinds, table, outer, update, host } = self;
        kinds.iter().zip(&other.kinds).all(|(a, b)| a.within(b))
            && table.within(&other.table)
            && *outer <= other.outer
            && *update <= other.update
            && *host <= other.host
    }
}

/// What one pipeline rank does with a micro-batch.
#[derive(Clone, Copy, Debug, Default)]
struct OfRank {
    /// Its layers.
    work: Work,
    /// What their weights' traffic adds.
    exposed: Seconds,
    /// The head's part.
    head: Seconds,
}

impl OfRank {
    /// Adds layers of each choice.
    fn add(&mut self, layers: &[f64], works: &[Work], exposed: &[Seconds]) {
        for ((&count, work), &exposed) in layers.iter().zip(works).zip(exposed).filter(|((count, _), _)| **count > 0.0)
        {
            self.work.add(work, count);
            self.exposed += exposed * count;
        }
    }

    fn layers(&self) -> Seconds {
        self.work.forward() + self.work.backward() + self.exposed
    }
}

impl Costs<'_> {
    /// Everything of a step that depends on how weights are sharded, and on nothing else of the plan.
    pub(super) fn sharded(&self, plan: &Plan, heaviest: &RankParameters, update: (Seconds, Seconds)) -> Sharded {
        Sharded {
            kinds: (0..self.problem.model().kinds.len()).map(|kind| self.sharding(kind, plan)).collect(),
            table: self.table_sharding(plan),
            outer: self.between_shard_groups(plan, heaviest),
            update: update.0,
            host: update.1,
        }
    }

    /// A step that no sharding goes below: its layers, with nothing to gather and nothing to update.
    pub(super) fn least_sharded_step<'r>(
        &self,
        plan: &Plan,
        layers: (&[LayerChoice], &[Work]),
        ranks: impl Iterator<Item = GatheredRank<'r>> + Clone,
        around: &Around,
    ) -> Seconds {
        let kinds = self.problem.model().kinds.len();
        let free = Sharded { kinds: vec![Sharding::default(); kinds], ..Sharded::default() };
        self.sharded_step(plan, layers, ranks, &free, around).total()
    }

    /// Step time; `works` are those of one layer of each choice.
    ///
    /// ```text
    /// T_layer = overlap(F, ag, σ) + overlap(B, ag + rs, σ)          sums where nothing prefetches
    /// pp = 1   T = m·(Σ T_layer + ends) + m·ag + last rs + embedding's ag and rs
    /// pp > 1   M = the most of a rank, its layers and ½·T_head on the last;  T = m·M + (Σ − M)/v + the same edges
    ///          splits unknown: (m + (p−1)/v)·ΣT_layer/p + ½·m·T_head + the same edges
    /// HSDP     + outer/L + max(0, outer − ½·ΣT_layer),  outer = ar(P/t/p·g/K) over the groups
    /// ```
    ///
    /// Source: specification §5.4 with version 1.1.
    pub(super) fn sharded_step<'r>(
        &self,
        plan: &Plan,
        (choices, works): (&[LayerChoice], &[Work]),
        ranks: impl Iterator<Item = GatheredRank<'r>> + Clone,
        sharded: &Sharded,
        around: &Around,
    ) -> StepTime {
        let Around { mut ends, sends, slow_down } = *around;
        let model = self.problem.model();
        let (m, pp, v) =
            (self.micro_batches(plan), f64::from(plan.layout.pp), f64::from(plan.schedule.virtual_stages()));
        if self.is_lora() {
            ends.head.backward = ends.head.backward / 2.0;
            ends.head_comm.backward = ends.head_comm.backward / 2.0;
        }
        let head = ends.head.sum() + ends.head_comm.sum();
        let exposed: SmallVec<[Seconds; 4]> = choices
            .iter()
            .zip(works)
            .map(|(choice, work)| self.exposed_gathers(plan, work, &sharded.kinds[choice.kind]))
            .collect();
        let of_rank = |rank: &GatheredRank| {
            let head = if rank.is_last { head * 0.5 } else { Seconds::ZERO };
            let mut sum = OfRank { head, ..OfRank::default() };
            sum.add(rank.layers, works, &exposed);
            sum
        };
        let mut layers = PerKind::from_elem(0.0, choices.len());
        for rank in ranks.clone() {
            layers.iter_mut().zip(rank.layers).for_each(|(sum, count)| *sum += count * rank.count);
        }
        let mut all = OfRank::default();
        all.add(&layers, works, &exposed);
        let last_kind = model.order.iter().copied().max().unwrap_or_default();
        let edge = sharded.kinds[last_kind];
        let outer = sharded.outer / f64::from(model.layers()) + (sharded.outer - all.layers() * 0.5).or_zero();
        let once = sharded.table.gather + sharded.table.scatter + edge.scatter;
        let mut step;
        if plan.layout.pp == 1 {
            step = StepTime::busy(&all.work, Seconds::ZERO, m);
            step.compute += (ends.head.sum() + ends.embedding.sum()) * m;
            step.tp_comm += (ends.head_comm.sum() + ends.embedding_comm.sum()) * m;
            step.dp_comm = (all.exposed + edge.gather) * m + once;
        } else if self.splits_unknown {
            step = StepTime::busy(&all.work, Seconds::ZERO, m / pp);
            step.compute += head * (0.5 * m);
            step.dp_comm = all.exposed * (m / pp) + edge.gather + once;
            step.pipeline_bubble = all.layers() / pp * ((pp - 1.0) / v);
            step.pp_comm = sends;
        } else {
            let pace = |of: &OfRank| of.layers() * (m - 1.0 / v) + of.head * m;
            let ranks = ranks.map(|rank| of_rank(&rank));
            let most = ranks.reduce(|a, b| if pace(&b) > pace(&a) { b } else { a }).unwrap_or_default();
            step = StepTime::busy(&most.work, Seconds::ZERO, m);
            step.compute += most.head * m;
            step.dp_comm = most.exposed * m + edge.gather + once;
            step.pipeline_bubble = (all.layers() - most.layers()).or_zero() / v;
            step.pp_comm = sends;
        }
        if let Some(maxima) = self.maxima(plan) {
            step.amax_comm += maxima.sum() * (m * v);
        }
        step.with_edges(slow_down, outer, (sharded.update, sharded.host))
    }

    /// Time that gathering and scattering the weights of one layer adds to its passes.
    fn exposed_gathers(&self, plan: &Plan, layer: &Work, sharding: &Sharding) -> Seconds {
        let sigma = self.device.gpu.contention.value;
        let again = if plan.reshard_after_forward { sharding.gather } else { Seconds::ZERO };
        let backward_comm = again + sharding.scatter;
        let (forward, backward) = (layer.forward(), layer.backward());
        if self.device.stack.overlap.fsdp_prefetch {
            overlap(forward, sharding.gather, sigma) - forward + overlap(backward, backward_comm, sigma) - backward
        } else {
            sharding.gather + backward_comm
        }
    }

    /// One layer, its expert exchange in line, never faster than the host launches it.
    pub(super) fn fsdp_layer(&self, kind: usize, cost: &LayerCost, plan: &Plan) -> Work {
        let mut work = Work {
            ep: cost.ep,
            ep_beside: Seconds::ZERO,
            ep_exposed: Seconds::ZERO,
            host: super::layer::Pair::default(),
            ..self.layer_work(kind, cost, plan)
        };
        work.host = self.host_wait(kind, cost, &work, plan);
        work
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
        let RankParameters { dense, experts } = RankParameters::of_layer(self.layer_parameters(kind), layout);
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
        let table = f64::from(model.padded_vocab(plan.layout.tp)) * f64::from(model.hidden) / f64::from(plan.layout.tp);
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

    pub(super) fn fsdp_update(&self, plan: &Plan, heaviest: &RankParameters) -> Seconds {
        let share = if self.is_lora() { data::LORA_SHARE } else { 1.0 };
        let shard = heaviest.dense / f64::from(plan.dense_shards())
            + heaviest.experts / f64::from(plan.layout.expert_replicas());
        let on_device = 1.0 - plan.offload.optimizer;
        self.device.stream_fused(Bytes::new(shard * share * on_device * update::BYTES), update::KERNELS)
            + self.device.stack.quirks.step_overhead
    }
}
