//! The space of plans: which there are, and which are legal.

pub mod legal;
pub mod rejection;
pub mod restrict;
pub mod text;

use crate::cost::Costs;
use crate::gpu::AttentionKernel;
use crate::plan::{CpKind, Layout, Modules, Plan, RankOrder, Recompute, ZeroStage};
use crate::problem::Problem;
use crate::schedule::Schedule;
use crate::stack::Framework;

pub use rejection::Rejection;
pub use restrict::Restrictions;
pub use text::{parse_plan, plain_plan};

/// Every reason why a plan is illegal or too large; empty when it runs.
pub fn check(costs: &Costs, plan: &Plan) -> Vec<Rejection> {
    let mut found = Vec::new();
    let gpus = costs.problem.cluster().gpus;
    let Layout { tp, cp, pp, dp, .. } = plan.layout;
    let world = u64::from(tp) * u64::from(cp) * u64::from(pp) * u64::from(dp);
    if world != u64::from(gpus) {
        found.push(Rejection::WorldSize { world, gpus });
    }
    illegal(costs, plan, &mut found);
    if found.is_empty() || can_be_sized(plan, costs.problem) {
        found.extend(too_large(costs, plan));
    }
    found
}

/// Whether memory has a meaning: a chunk for each rank, a whole expert grid.
pub fn can_be_sized(plan: &Plan, problem: &Problem) -> bool {
    plan.layout.pp * plan.schedule.virtual_stages() <= problem.model().layers() + 2 && plan.layout.dp > 0
}

/// Every reason but the number of GPUs and memory.
pub fn illegal(costs: &Costs, plan: &Plan, found: &mut Vec<Rejection>) {
    legal::tensor_and_context(costs.problem, plan, found);
    legal::ffn_widths(costs, plan, found);
    legal::experts(costs.problem, plan, found);
    legal::pipeline(costs.problem, plan, found);
    legal::batch(costs.problem, plan, found);
    legal::sharding(plan, found);
}

/// Whether the fullest rank is over the ceiling.
pub fn too_large(costs: &Costs, plan: &Plan) -> Option<Rejection> {
    let fullest = costs.fullest(plan);
    let (needed, available) = (fullest.device(), costs.problem.hbm_budget());
    (needed > available).then_some(Rejection::OutOfMemory { needed, available, rank: fullest.rank })
}

/// Queries of one block of a fused attention kernel: fewer per chunk leave it half empty. Source: specification §2.3.
const QUERY_BLOCK: u32 = 128;
/// Largest micro-batch looked at, in sequences.
const MOST_SEQUENCES: u32 = 16;

/// Divisors of `n`, ascending.
pub fn divisors(n: u32) -> Vec<u32> {
    let root = u32::try_from(u64::from(n).isqrt()).unwrap_or(u32::MAX);
    let mut small: Vec<u32> = (1..=root).filter(|d| n.is_multiple_of(*d)).collect();
    let large: Vec<u32> = small.iter().rev().map(|d| n / d).filter(|d| d * d != n).collect();
    small.extend(large);
    small.dedup();
    small
}

/// Plans that share the price of their layers: all but pipeline, replicas and sharding is fixed.
pub type Shape = Plan;

/// The values of each dimension for one problem.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    costs: &'a Costs<'a>,
    restrictions: &'a Restrictions,
}

impl<'a> Space<'a> {
    /// The space of a problem under restrictions.
    pub const fn new(costs: &'a Costs<'a>, restrictions: &'a Restrictions) -> Self {
        Self { costs, restrictions }
    }

    /// The shapes, in a fixed order: tp, cp with its kind, expert grid, dispatcher, micro-batch, recomputation.
    pub fn shapes(&self) -> Vec<Shape> {
        let problem = self.costs.problem;
        let gpus = problem.cluster().gpus;
        let plain = plain_plan(problem);
        let mut shapes = Vec::new();
        for tp in self.divisors("tp", gpus) {
            for cp in self.divisors("cp", gpus / tp).into_iter().filter(|&cp| cp <= self.most_cp()) {
                for (cp_kind, sequence_parallel) in itertools::iproduct!(cp_kinds(cp), self.sequence_parallel(tp, cp)) {
                    let layout = Layout { tp, cp, ..plain.layout };
                    let shape = Plan { layout, sequence_parallel, cp_kind, ..plain };
                    let mut found = Vec::new();
                    legal::tensor_and_context(problem, &shape, &mut found);
                    legal::ffn_widths(self.costs, &shape, &mut found);
                    if found.is_empty() {
                        self.with_experts(&shape, &mut shapes);
                    }
                }
            }
        }
        shapes
    }

    /// Context-parallel ranks that still have a block of queries in each of their two chunks of the sequence.
    fn most_cp(&self) -> u32 {
        (self.costs.problem.workload().seq_len / (2 * QUERY_BLOCK)).max(1)
    }

    /// Sequence parallelism is never worse than tensor parallelism without it where tokens divide (§8.2): without it only
    /// where they do not, or where it was asked for.
    fn sequence_parallel(&self, tp: u32, cp: u32) -> Vec<bool> {
        let divides = (self.costs.problem.workload().seq_len / cp).is_multiple_of(tp);
        match (tp > 1, divides && !self.restrictions.fixes("sp")) {
            (false, _) => vec![false],
            (true, true) => vec![true],
            (true, false) => vec![true, false],
        }
    }

    fn divisors(&self, key: &str, of: u32) -> Vec<u32> {
        divisors(of).into_iter().filter(|&d| self.restrictions.allows_number(key, d)).collect()
    }

    fn with_experts(&self, shape: &Shape, shapes: &mut Vec<Shape>) {
        let problem = self.costs.problem;
        let Layout { tp, .. } = shape.layout;
        let gpus = problem.cluster().gpus;
        let (expert_sizes, expert_tps) = match problem.model().experts() {
            0 => (vec![1], vec![1]),
            experts => (divisors(experts).into_iter().filter(|ep| gpus.is_multiple_of(*ep)).collect(), divisors(tp)),
        };
        for (ep, etp) in itertools::iproduct!(expert_sizes, expert_tps) {
            if !self.restrictions.allows_number("ep", ep) || !self.restrictions.allows_number("etp", etp) {
                continue;
            }
            let layout = Layout { ep, etp, ..shape.layout };
            for micro_batch in self.micro_batches() {
                for recompute in self.recomputes() {
                    let plan = Plan { layout, micro_batch, recompute, ..*shape };
                    if self.restrictions.allows_shape(&plan) && self.restrictions.expresses_shape(problem, &plan) {
                        shapes.push(plan);
                    }
                }
            }
        }
    }

    /// Micro-batch sizes: divisors of the batch up to 16 sequences, or those that were asked for.
    fn micro_batches(&self) -> Vec<u32> {
        let batch = self.costs.problem.workload().global_batch;
        let fixed = self.restrictions.fixes("mbs");
        self.divisors("mbs", batch).into_iter().filter(|&b| fixed || b <= MOST_SEQUENCES).collect()
    }

    /// Recomputations worth a look: none, what is cheap for the bytes, whole modules, all.
    fn recomputes(&self) -> Vec<Recompute> {
        let problem = self.costs.problem;
        let none = Modules::default();
        let cheap = Modules { layernorm: true, act: true, ..none };
        let mut list = vec![none, Modules { act: true, ..none }, cheap];
        if problem.model().has_mla() {
            list.extend([Modules { mla_up_proj: true, ..none }, Modules { mla_up_proj: true, ..cheap }]);
        }
        if problem.model().is_moe() {
            list.push(Modules { moe: true, ..cheap });
        } else {
            list.push(Modules { mlp: true, ..none });
        }
        if problem.stack().attention == AttentionKernel::Unfused {
            list.extend([Modules { core_attn: true, ..none }, Modules { core_attn: true, ..cheap }]);
        }
        let mut recomputes: Vec<Recompute> = list
            .into_iter()
            .map(|modules| if modules == none { Recompute::None } else { Recompute::Selective(modules) })
            .collect();
        recomputes.push(Recompute::Full);
        for fixed in self.restrictions.fixed_recompute() {
            if !recomputes.contains(&fixed) {
                recomputes.push(fixed);
            }
        }
        recomputes
    }

    /// Pipelines and replicas of a shape: pp and dp that use all GPUs.
    pub fn layouts(&self, shape: &Shape) -> Vec<Layout> {
        let problem = self.costs.problem;
        let gpus = problem.cluster().gpus / (shape.layout.tp * shape.layout.cp);
        let most = problem.model().layers() + 2;
        self.divisors("pp", gpus)
            .into_iter()
            .filter(|pp| *pp <= most && self.restrictions.allows_number("dp", gpus / pp))
            .map(|pp| Layout { pp, dp: gpus / pp, ..shape.layout })
            .collect()
    }

    /// Plans of a shape.
    pub fn size(&self, shape: &Shape) -> u64 {
        self.layouts(shape)
            .iter()
            .map(|layout| {
                let (pp, dp) = (layout.pp, layout.dp);
                (self.schedules(pp).len() * self.zero_stages(pp).len() * orders(pp, dp).len()) as u64
            })
            .sum()
    }

    /// Whether the restrictions allow a plan.
    pub fn allows(&self, plan: &Plan) -> bool {
        self.restrictions.allows(plan) && self.restrictions.expresses(self.costs.problem, plan)
    }

    /// Schedules on `pp` ranks: those that the framework runs, or that were asked for by name.
    pub fn schedules(&self, pp: u32) -> Vec<Schedule> {
        if pp == 1 {
            return vec![Schedule::OneFOneB];
        }
        let most = (self.costs.problem.model().layers() + 2) / pp;
        let chunked = |make: fn(u32) -> Schedule| (2..=most).map(make).collect::<Vec<_>>();
        let interleaved = chunked(|virtual_stages| Schedule::Interleaved { virtual_stages });
        let looped = chunked(|virtual_stages| Schedule::LoopedBfs { virtual_stages });
        let mut all = vec![Schedule::OneFOneB];
        all.extend(interleaved);
        all.extend([
            Schedule::GPipe,
            Schedule::ZbH1,
            Schedule::ZbH2,
            Schedule::ZbV,
            Schedule::DualPipe,
            Schedule::DualPipeV,
        ]);
        all.extend(looped);
        let framework = self.restrictions.framework(self.costs.problem.stack().framework);
        all.retain(|schedule| runs(framework, *schedule) || self.restrictions.names_schedule(*schedule));
        all
    }

    /// ZeRO stages on `pp` ranks: 2 and 3 without a pipeline, 3 with one where FSDP does that.
    pub fn zero_stages(&self, pp: u32) -> Vec<ZeroStage> {
        let framework = self.restrictions.framework(self.costs.problem.stack().framework);
        let mut stages = vec![ZeroStage::One, ZeroStage::Zero];
        if pp == 1 {
            stages.push(ZeroStage::Two);
        }
        if pp == 1 || matches!(framework, Framework::Torchtitan | Framework::Fsdp) {
            stages.push(ZeroStage::Three);
        }
        stages
    }
}

/// Whether a framework runs a schedule.
///
/// Source: [megatron-lm] (1F1B and interleaved; no zero-bubble or `DualPipe` in core), [torchtitan]
/// `pipeline_parallel_schedule`, [deepspeed] pipeline engine (1F1B), nanotron `pp_engine` (1f1b, afab).
pub const fn runs(framework: Framework, schedule: Schedule) -> bool {
    match framework {
        Framework::Internal => true,
        Framework::Megatron | Framework::MegatronDeepspeed | Framework::Internevo => {
            matches!(schedule, Schedule::OneFOneB | Schedule::Interleaved { .. })
        }
        Framework::Torchtitan | Framework::Jax => {
            !matches!(schedule, Schedule::DualPipe | Schedule::Naive | Schedule::ZbH2)
        }
        Framework::Deepspeed => matches!(schedule, Schedule::OneFOneB),
        Framework::Nanotron => matches!(schedule, Schedule::OneFOneB | Schedule::GPipe),
        Framework::Fsdp => matches!(schedule, Schedule::OneFOneB | Schedule::GPipe | Schedule::Interleaved { .. }),
    }
}

/// Exchanges of context parallelism; one stands for all where there is none.
fn cp_kinds(cp: u32) -> Vec<CpKind> {
    if cp == 1 {
        vec![CpKind::Ring]
    } else {
        vec![CpKind::Ring, CpKind::AllGather, CpKind::AllToAll, CpKind::Hierarchical]
    }
}

/// Rank orders that differ.
pub fn orders(pp: u32, dp: u32) -> Vec<RankOrder> {
    if pp == 1 || dp == 1 {
        vec![RankOrder::PipelineOutermost]
    } else {
        vec![RankOrder::PipelineOutermost, RankOrder::DataOutermost]
    }
}
