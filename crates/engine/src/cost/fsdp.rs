//! Step time under ZeRO 3 (FSDP, HSDP): weights are gathered layer by layer.

use super::data::{self, RankParameters};
use super::head::Ends;
use super::stage::{ShapeCost, Work};
use super::step::StepTime;
use super::{Costs, groups, overlap::overlap};
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

/// What a step has beside its layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// The two ends of the model.
    pub ends: Ends,
    /// Exposed stage-to-stage sends.
    pub sends: Seconds,
    /// Share by which stragglers lengthen it.
    pub slow_down: f64,
    /// Exposed time of offloaded activations.
    pub activations: Seconds,
    /// The first layers of each chunk, computed again in the backward of a micro-batch.
    pub again: Seconds,
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
    fn layers(&self) -> Seconds {
        self.work.forward() + self.work.backward() + self.exposed
    }
}

impl Costs<'_> {
    /// Step time.
    ///
    /// ```text
    /// T_layer = overlap(F, ag, σ) + overlap(B, ag + rs, σ)          sums where nothing prefetches
    /// pp = 1   T = m·(Σ T_layer + ends) + m·ag + last rs + embedding's ag and rs
    /// pp > 1   T = (m + (p−1)/v)·ΣT_layer/p + ½·m·T_head + the same edges
    ///          stages spelled out: M = the most of a rank, its layers and ½·T_head on the last;  m·M + (Σ − M)/v
    /// HSDP     + outer/L + max(0, outer − ½·ΣT_layer),  outer = ar(P/t/p·g/K) over the groups
    /// ```
    ///
    /// Source: specification §5.4 with version 1.1.
    pub(super) fn fsdp_step(&self, plan: &Plan, shape: &ShapeCost, heaviest: &RankParameters) -> StepTime {
        let works: Vec<Work> = (0..shape.layers.len()).map(|kind| self.fsdp_layer(kind, plan, shape)).collect();
        let sharded = self.sharded(plan, heaviest);
        let around = Around {
            ends: shape.ends,
            sends: self.exposed_stage_sends(plan),
            slow_down: self.slow_down(plan.layout.world_size()),
            activations: self.exposed_activations(plan, shape),
            again: self.first_layers_again(plan, shape),
        };
        self.sharded_step(plan, &works, &sharded, &around)
    }

    /// Everything of a step that depends on how weights are sharded, and on nothing else of the plan.
    pub(super) fn sharded(&self, plan: &Plan, heaviest: &RankParameters) -> Sharded {
        Sharded {
            kinds: (0..self.problem.model().kinds.len()).map(|kind| self.sharding(kind, plan)).collect(),
            table: self.table_sharding(plan),
            outer: self.between_shard_groups(plan, heaviest),
            update: self.fsdp_update(plan, heaviest),
            host: self.host_update(plan, heaviest),
        }
    }

    /// A step that no sharding goes below: its layers, with nothing to gather and nothing to update.
    pub(super) fn least_sharded_step(&self, plan: &Plan, works: &[Work], around: &Around) -> Seconds {
        let free = Sharded { kinds: vec![Sharding::default(); works.len()], ..Sharded::default() };
        self.sharded_step(plan, works, &free, around).total()
    }

    /// Layers, their sharding and what is around them as one step.
    pub(super) fn sharded_step(&self, plan: &Plan, works: &[Work], sharded: &Sharded, around: &Around) -> StepTime {
        let Around { mut ends, sends, slow_down, activations, again: first_layers } = *around;
        let model = self.problem.model();
        let (micro_batches, pp) = (self.micro_batches(plan), f64::from(plan.layout.pp));
        let sigma = self.device.gpu.contention.value;
        let mut work = Work::default();
        let mut sharding_exposed = Seconds::ZERO;
        let mut edge = Sharding::default();
        let exposed = |kind: usize| {
            let (layer, sharding) = (&works[kind], sharded.kinds[kind]);
            let again = if plan.reshard_after_forward { sharding.gather } else { Seconds::ZERO };
            let backward_comm = again + sharding.scatter;
            let (forward, backward) = (layer.forward(), layer.backward());
            if self.device.stack.overlap.fsdp_prefetch {
                overlap(forward, sharding.gather, sigma) - forward + overlap(backward, backward_comm, sigma) - backward
            } else {
                sharding.gather + backward_comm
            }
        };
        for (kind, &count) in self.kind_counts().iter().enumerate() {
            if count == 0 {
                continue;
            }
            work.add(&works[kind], f64::from(count));
            sharding_exposed += exposed(kind) * f64::from(count);
            edge = sharded.kinds[kind];
        }
        work.recompute += first_layers;
        let layers_time = work.forward() + work.backward() + sharding_exposed;
        let outer = sharded.outer / f64::from(model.layers()) + (sharded.outer - layers_time * 0.5).or_zero();
        if self.is_lora() {
            ends.head.backward = ends.head.backward / 2.0;
            ends.head_comm.backward = ends.head_comm.backward / 2.0;
        }
        let head = ends.head.sum() + ends.head_comm.sum();
        let once = sharded.table.gather + sharded.table.scatter + edge.scatter;
        let mut step;
        if plan.layout.pp > 1 && plan.split.is_spelled_out() {
            let v = f64::from(plan.schedule.virtual_stages());
            let most = self.most_of_a_rank(plan, works, exposed, head * 0.5, first_layers / pp);
            step = StepTime::busy(&most.work, Seconds::ZERO, micro_batches);
            step.compute += most.head * micro_batches;
            step.dp_comm = most.exposed * micro_batches + edge.gather + once;
            step.pipeline_bubble = (layers_time - most.layers()).or_zero() / v;
            step.pp_comm = sends;
        } else if plan.layout.pp > 1 {
            let v = f64::from(plan.schedule.virtual_stages());
            step = StepTime::busy(&work, Seconds::ZERO, micro_batches / pp);
            step.compute += head * (0.5 * micro_batches);
            step.dp_comm = sharding_exposed * (micro_batches / pp) + edge.gather + once;
            step.pipeline_bubble = layers_time / pp * ((pp - 1.0) / v);
            step.pp_comm = sends;
        } else {
            step = StepTime::busy(&work, Seconds::ZERO, micro_batches);
            step.compute += (ends.head.sum() + ends.embedding.sum()) * micro_batches;
            step.tp_comm += (ends.head_comm.sum() + ends.embedding_comm.sum()) * micro_batches;
            step.dp_comm = (sharding_exposed + edge.gather) * micro_batches + once;
        }
        if let Some(maxima) = self.maxima(plan) {
            step.amax_comm += maxima.sum() * (micro_batches * f64::from(plan.schedule.virtual_stages()));
        }
        step.stragglers = step.total() * slow_down;
        step.dp_comm += outer;
        step.optimizer = sharded.update;
        step.offload = sharded.host + activations;
        step
    }

    /// The rank whose layers, with what `exposed` says of each kind, and whose head set the pace: the one for which
    /// m·(L + head) − L/v is largest.
    fn most_of_a_rank(
        &self,
        plan: &Plan,
        works: &[Work],
        exposed: impl Fn(usize) -> Seconds,
        head: Seconds,
        again: Seconds,
    ) -> OfRank {
        let pp = plan.layout.pp;
        let (m, v) = (self.micro_batches(plan), f64::from(plan.schedule.virtual_stages()));
        let last = plan.schedule.rank_of(pp * plan.schedule.virtual_stages() - 1, pp) as usize;
        let of_rank = |(rank, counts): (usize, super::PerKind)| {
            let head = if rank == last { head } else { Seconds::ZERO };
            let mut most = OfRank { work: Work::default(), exposed: Seconds::ZERO, head };
            for (kind, times) in counts.into_iter().enumerate().filter(|(_, times)| *times > 0.0) {
                most.work.add(&works[kind], times);
                most.exposed += exposed(kind) * times;
            }
            most.work.recompute += again;
            most
        };
        let pace = |of: &OfRank| of.layers() * (m - 1.0 / v) + of.head * m;
        let ranks = self.layers_of_ranks(plan).into_iter().enumerate().map(of_rank);
        ranks.reduce(|a, b| if pace(&b) > pace(&a) { b } else { a }).unwrap_or_default()
    }

    /// One layer, its expert exchange in line, never faster than the host launches it.
    pub(super) fn fsdp_layer(&self, kind: usize, plan: &Plan, shape: &ShapeCost) -> Work {
        let cost = &shape.layers[kind];
        let mut work = Work {
            ep: cost.ep,
            ep_beside: Seconds::ZERO,
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
