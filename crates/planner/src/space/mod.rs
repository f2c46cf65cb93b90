//! Space of plans: its dimensions, its size, and the legality of a plan.

pub mod dimensions;
mod floor;
pub mod legal;
pub mod rejection;
pub mod restrict;
mod sharding;
pub mod unproven;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::limits::{Limits, Obstacle};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::host::HostExcess;
use meshwright_engine::plan::{CpKind, Layout, Plan, Recompute};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::Dispatcher;

pub use floor::{least_memory, least_states, too_few_gpus};
pub use meshwright_engine::plan::text::{parse_plan, plain_plan};
pub use rejection::Rejection;
pub use restrict::Restrictions;
pub use sharding::{ShardingChoice, orders};
pub use unproven::{
    FEWEST_TOKENS, LARGEST_BESIDE_GRACE, LARGEST_EXPERT_GROUP, LARGEST_EXPERT_GROUP_IN_RACK, LARGEST_OVER_PCIE,
    MOST_CHUNKS, Unproven,
};

/// Every reason why a plan is illegal or too large; empty for a feasible plan.
pub fn check(costs: &Costs, plan: &Plan) -> Vec<Rejection> {
    let mut found = Vec::new();
    let gpus = costs.problem.cluster().gpus;
    let world = world_size(plan);
    if world != u64::from(gpus) {
        found.push(Rejection::WorldSize { world, gpus });
    }
    check_all_but_world(costs, plan, &mut found);
    found
}

/// Every reason why a plan is illegal or too large, if GPUs may stay idle.
pub fn check_with_idle(costs: &Costs, plan: &Plan) -> Vec<Rejection> {
    let mut found = Vec::new();
    let gpus = costs.problem.cluster().gpus;
    let world = world_size(plan);
    if world > u64::from(gpus) {
        found.push(Rejection::WorldSize { world, gpus });
    }
    check_all_but_world(costs, plan, &mut found);
    found
}

fn check_all_but_world(costs: &Costs, plan: &Plan, found: &mut Vec<Rejection>) {
    illegal(costs, plan, found);
    if found.is_empty() || can_be_sized(plan, costs.problem) {
        found.extend(too_large(costs, plan));
        found.extend(too_large_for_hosts(costs, plan));
    }
}

fn world_size(plan: &Plan) -> u64 {
    let Layout { tp, cp, pp, dp, .. } = plan.layout;
    u64::from(tp) * u64::from(cp) * u64::from(pp) * u64::from(dp)
}

/// Whether the memory of a plan can be computed: at most `layers + 2` virtual stages, and at least one replica.
pub fn can_be_sized(plan: &Plan, problem: &Problem) -> bool {
    plan.pipeline().chunks() <= problem.model().layers() + 2 && plan.layout.dp > 0
}

/// Adds every reason why a plan is illegal, apart from its number of GPUs and its memory.
pub fn illegal(costs: &Costs, plan: &Plan, found: &mut Vec<Rejection>) {
    legal::tensor_and_context(costs.problem, plan, found);
    found.extend(legal::index_scores(costs.problem, plan.micro_batch));
    legal::ffn_widths(costs, plan, found);
    legal::experts(costs.problem, plan, found);
    legal::pipeline(costs.problem, plan, found);
    legal::batch(costs.problem, plan, found);
    legal::sharding(costs.problem, plan, found);
}

/// Rejection of a plan whose fullest rank exceeds the memory budget.
pub fn too_large(costs: &Costs, plan: &Plan) -> Option<Rejection> {
    let fullest = costs.fullest(plan);
    let (needed, available) = (fullest.peak(), costs.problem.hbm_budget());
    (needed > available).then_some(Rejection::OutOfMemory { needed, available, rank: fullest.rank })
}

/// Rejection of a plan whose offloaded data exceed the memory of a host.
pub(crate) fn too_large_for_hosts(costs: &Costs, plan: &Plan) -> Option<Rejection> {
    costs.over_host(plan).map(|HostExcess { needed, available }| Rejection::HostMemory { needed, available })
}

/// Query block size of a fused attention kernel; a shorter chunk leaves the block half empty. Source: specification §2.3.
const QUERY_BLOCK: u32 = 128;
/// Largest micro-batch searched: this many sequences, or `MOST_TOKENS` tokens if that allows more sequences.
const MOST_SEQUENCES: u32 = 16;
const MOST_TOKENS: u32 = 131_072;

/// Divisors of `n`, ascending.
pub fn divisors(n: u32) -> Vec<u32> {
    let mut small: Vec<u32> = (1..=n.isqrt()).filter(|d| n.is_multiple_of(*d)).collect();
    let large: Vec<u32> = small.iter().rev().filter(|&&d| n / d != d).map(|d| n / d).collect();
    small.extend(large);
    small
}

/// Plan whose tp, cp and its kind, sp, expert grid, dispatcher and micro-batch are fixed: plans of one shape share layer
/// costs.
pub type PlanShape = Plan;

/// Expert grid of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExpertGrid {
    /// Expert-parallel degree.
    pub ep: u32,
    /// Tensor-parallel degree of an expert.
    pub etp: u32,
    /// Token dispatcher.
    pub dispatcher: Dispatcher,
}

/// Plan shape: tp, sp, cp and micro-batch of `mix`, combined with an expert grid.
pub(crate) fn on_grid(mix: &Plan, grid: ExpertGrid) -> PlanShape {
    let ExpertGrid { ep, etp, dispatcher } = grid;
    Plan { layout: Layout { ep, etp, ..mix.layout }, dispatcher, ..mix.clone() }
}

/// Space of the plans of one problem under restrictions.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    costs: &'a Costs<'a>,
    restrictions: &'a Restrictions,
    /// Shares of activations on the host where the framework has no such offload, and where it has.
    activation_shares: [OnceLock<Arc<[f64]>>; 2],
    /// Shares of optimizer states on the host.
    optimizer_shares: [OnceLock<Arc<[f64]>>; 2],
    /// Shares of optimizer states that the requested framework can express, by ZeRO stage, without and with a pipeline.
    expressible_shares: [[OnceLock<Arc<[f64]>>; 2]; 4],
    /// Recomputations, by the layers of the longest chunk.
    recomputes: Vec<OnceLock<Arc<[Recompute]>>>,
}

impl<'a> Space<'a> {
    /// Creates the space of a problem under restrictions.
    pub fn new(costs: &'a Costs<'a>, restrictions: &'a Restrictions) -> Self {
        let [activation_shares, optimizer_shares] = [const { [const { OnceLock::new() }; 2] }; 2];
        let expressible_shares = [const { [const { OnceLock::new() }; 2] }; 4];
        let recomputes = vec![OnceLock::new(); costs.problem.model().layers() as usize + 1];
        Self { costs, restrictions, activation_shares, optimizer_shares, expressible_shares, recomputes }
    }

    /// Costs of the problem.
    pub(crate) const fn costs(&self) -> &'a Costs<'a> {
        self.costs
    }

    /// Values that plans of the space must or must not have.
    pub const fn restrictions(&self) -> &Restrictions {
        self.restrictions
    }

    /// Whether plans may leave GPUs idle.
    pub const fn allows_idle(&self) -> bool {
        self.restrictions.allows_idle()
    }

    /// Number of plans: a product over independent dimensions, a sum over dependent ones.
    pub fn size(&self) -> u64 {
        let mut of_layout: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
        let mut of_pp: BTreeMap<u32, u64> = BTreeMap::new();
        let mut below = |mix: &Plan| {
            let below_layout = |layout: Layout| {
                let (pp, key) = (layout.pp, (layout.pp, layout.dp, layout.dense_replicas()));
                let pipelines = *of_pp.entry(pp).or_insert_with(|| self.count_above_sharding(pp));
                pipelines * *of_layout.entry(key).or_insert_with(|| self.count_shardings(&layout))
            };
            self.grids(mix.layout.tp).len() as u64 * self.layouts(mix).into_iter().map(below_layout).sum::<u64>()
        };
        // Grids and layouts read no more of a mix.
        let mut of_mix: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
        let key = |mix: &Plan| (mix.layout.tp, mix.layout.cp, if self.allows_idle() { mix.micro_batch } else { 0 });
        self.mixes().iter().map(|mix| *of_mix.entry(key(mix)).or_insert_with(|| below(mix))).sum()
    }

    /// Number of combinations of schedule, split, recomputation and offloaded activations on `pp` ranks.
    fn count_above_sharding(&self, pp: u32) -> u64 {
        let shares = |recompute: &Recompute| self.offloaded_activations(pp, *recompute).len() as u64;
        let below = |schedule: Schedule| {
            let splits = self.splits_of(pp, schedule).count() as u64;
            splits * self.recomputes(pp, schedule).iter().map(shares).sum::<u64>()
        };
        self.schedules(pp).into_iter().map(below).sum()
    }

    /// Combinations of tp, sp, cp with its exchange, and micro-batch, in a fixed order.
    pub fn mixes(&self) -> Vec<Plan> {
        let problem = self.costs.problem;
        let gpus = problem.cluster().gpus;
        let plain = plain_plan(problem);
        let mut mixes = Vec::new();
        let divides_widths = |tp: &u32| {
            let mut found = Vec::new();
            let layout = Layout { tp: *tp, ..plain.layout };
            legal::ffn_widths(self.costs, &Plan { layout, ..plain.clone() }, &mut found);
            found.is_empty()
        };
        for tp in self.degrees("tp", gpus, gpus).into_iter().filter(divides_widths) {
            for cp in self.degrees("cp", gpus / tp, self.most_cp()) {
                for (cp_kind, sequence_parallel) in itertools::iproduct!(self.cp_kinds(cp), self.sequence_parallel(tp))
                {
                    let layout = Layout { tp, cp, ..plain.layout };
                    let shape = Plan { layout, sequence_parallel, cp_kind, ..plain.clone() };
                    let mut found = Vec::new();
                    legal::tensor_and_context(problem, &shape, &mut found);
                    if found.is_empty() {
                        mixes.extend(
                            self.micro_batches().into_iter().map(|micro_batch| Plan { micro_batch, ..shape.clone() }),
                        );
                    }
                }
            }
        }
        mixes
    }

    /// Expert grids of a tensor-parallel degree.
    pub(crate) fn grids(&self, tp: u32) -> Vec<ExpertGrid> {
        let problem = self.costs.problem;
        let gpus = u64::from(problem.cluster().gpus);
        let (expert_sizes, expert_tps) = match problem.model().experts() {
            0 => (vec![1], vec![1]),
            experts => (divisors(experts), divisors(tp)),
        };
        let (alone, spread) = (self.dispatchers(1), self.dispatchers(2));
        let mut grids = Vec::new();
        for (ep, etp) in itertools::iproduct!(expert_sizes, expert_tps) {
            if self.restrictions.allows_experts(ep, etp) && u64::from(ep) * u64::from(etp) <= gpus {
                let dispatchers = if ep == 1 { &alone } else { &spread };
                grids.extend(dispatchers.iter().map(|&dispatcher| ExpertGrid { ep, etp, dispatcher }));
            }
        }
        grids
    }

    /// All shapes of the space, in a fixed order.
    pub fn shapes(&self) -> Vec<PlanShape> {
        let of_mix = |mix: Plan| self.grids(mix.layout.tp).into_iter().map(move |grid| on_grid(&mix, grid));
        self.mixes().into_iter().flat_map(of_mix).collect()
    }

    /// Largest context-parallel degree that leaves a block of queries in each of a rank's two chunks.
    fn most_cp(&self) -> u32 {
        (self.costs.problem.workload().seq_len / (2 * QUERY_BLOCK)).max(1)
    }

    /// Values of a degree: divisors of the remaining GPUs, or any number up to them if GPUs may stay idle.
    fn degrees(&self, key: &str, left: u32, most: u32) -> Vec<u32> {
        let all: Vec<u32> = if self.restrictions.allows_idle() {
            (1..=left.min(most).min(self.most_useful(key))).collect()
        } else {
            divisors(left)
        };
        all.into_iter().filter(|&d| d <= most && self.restrictions.allows_number(key, d)).collect()
    }

    /// Upper bound of a degree in legal plans: the hidden size for tp, the sequence length for cp.
    fn most_useful(&self, key: &str) -> u32 {
        match key {
            "tp" => self.costs.problem.model().hidden,
            _ => self.costs.problem.workload().seq_len,
        }
    }

    fn sequence_parallel(&self, tp: u32) -> Vec<bool> {
        let all = if tp > 1 { vec![true, false] } else { vec![false] };
        all.into_iter().filter(|on| self.restrictions.allows_word("sp", if *on { "on" } else { "off" })).collect()
    }

    /// Exchange algorithms of context parallelism; one stands for all when cp = 1.
    fn cp_kinds(&self, cp: u32) -> Vec<CpKind> {
        if cp == 1 {
            return vec![CpKind::Ring];
        }
        let all = [CpKind::Ring, CpKind::AllGather, CpKind::AllToAll, CpKind::Hierarchical];
        all.into_iter().filter(|kind| self.restrictions.allows_word("cp-kind", &kind.to_string())).collect()
    }

    /// Micro-batch sizes: divisors of the batch up to 16 sequences or 131,072 tokens, or those that are fixed.
    fn micro_batches(&self) -> Vec<u32> {
        let workload = self.costs.problem.workload();
        let most = MOST_SEQUENCES.max(MOST_TOKENS / workload.seq_len);
        let fixed = self.restrictions.fixes("mbs");
        divisors(workload.global_batch)
            .into_iter()
            .filter(|&b| (fixed || b <= most) && self.restrictions.allows_number("mbs", b))
            .filter(|&b| legal::index_scores(self.costs.problem, b).is_none())
            .collect()
    }

    /// Layouts of a shape: pp and dp that use all GPUs; if GPUs may stay idle, any pp with replicas that divide the batch.
    pub fn layouts(&self, shape: &PlanShape) -> Vec<Layout> {
        let problem = self.costs.problem;
        let left = problem.cluster().gpus / (shape.layout.tp * shape.layout.cp);
        let most = (problem.model().layers() + 2).min(left);
        let allowed = |key: &'static str| move |d: &u32| self.restrictions.allows_number(key, *d);
        let layout = |pp: u32, dp: u32| Layout { pp, dp, ..shape.layout };
        if self.restrictions.allows_idle() {
            let batches = problem.workload().global_batch / shape.micro_batch.max(1);
            let replicas: Vec<u32> = divisors(batches).into_iter().filter(allowed("dp")).collect();
            let sizes = (1..=most).filter(allowed("pp"));
            return sizes
                .flat_map(|pp| replicas.iter().filter(move |&&dp| dp <= left / pp).map(move |&dp| layout(pp, dp)))
                .collect();
        }
        divisors(left)
            .into_iter()
            .filter(|pp| *pp <= most && allowed("pp")(pp) && allowed("dp")(&(left / pp)))
            .map(|pp| layout(pp, left / pp))
            .collect()
    }

    /// Rejection of a plan that the requested framework cannot express.
    pub fn inexpressible(&self, plan: &Plan) -> Option<Rejection> {
        if let Some(spans) = legal::spans_pipeline(plan) {
            return Some(spans);
        }
        let limits = self.restrictions.limits()?;
        limits.plan_obstacle(self.costs.problem, plan).map(|obstacle| refused(limits, obstacle))
    }

    /// Rejection of degrees, micro-batch and recomputation that the requested framework cannot express in any plan.
    pub(crate) fn inexpressible_shape(&self, plan: &Plan) -> Option<Rejection> {
        let limits = self.restrictions.limits()?;
        limits.shape_obstacle(self.costs.problem, plan).map(|obstacle| refused(limits, obstacle))
    }

    /// Rejection of a share of optimizer states on the host that the requested framework cannot express in any plan with this ZeRO
    /// stage, with or without a pipeline.
    pub(crate) fn inexpressible_on_host(&self, plan: &Plan) -> Option<Rejection> {
        let limits = self.restrictions.limits()?;
        limits.obstacle_on_host(self.costs.problem, plan).map(|obstacle| refused(limits, obstacle))
    }

    /// Rejection of degrees, sharding and rank order that the requested framework cannot express in any plan.
    pub(crate) fn inexpressible_sharding(&self, plan: &Plan) -> Option<Rejection> {
        if let Some(spans) = legal::spans_pipeline(plan) {
            return Some(spans);
        }
        let limits = self.restrictions.limits()?;
        limits.sharding_obstacle(self.costs.problem, plan).map(|obstacle| refused(limits, obstacle))
    }

    /// Whether a plan lies in the space. Settings without effect (the exchange when cp = 1, the split of a single stage)
    /// are not checked.
    pub fn allows(&self, plan: &Plan) -> bool {
        let pp = plan.layout.pp;
        let splits =
            || self.splits(pp).contains(&plan.split) || self.light_ends(pp, plan.schedule).contains(&plan.split);
        (pp == 1 || splits()) && self.allows_in_any_split(plan)
    }

    /// Whether a plan lies in the space but for its split.
    pub(crate) fn allows_in_any_split(&self, plan: &Plan) -> bool {
        let Layout { tp, cp, pp, dp, ep, etp } = plan.layout;
        let numbers = [("tp", tp), ("cp", cp), ("pp", pp), ("dp", dp), ("mbs", plan.micro_batch)];
        self.restrictions.allows_experts(ep, etp)
            && numbers.into_iter().all(|(key, value)| self.restrictions.allows_number(key, value))
            && (tp == 1 || self.sequence_parallel(tp).contains(&plan.sequence_parallel))
            && self.micro_batches().contains(&plan.micro_batch)
            && (cp == 1 || self.cp_kinds(cp).contains(&plan.cp_kind))
            && (ep == 1 || self.dispatchers(ep).contains(&plan.dispatcher))
            && self.schedules(pp).contains(&plan.schedule)
            && self.recomputes(pp, plan.schedule).contains(&plan.recompute)
            && self.offloaded_activations(pp, plan.recompute).contains(&plan.offload.activations)
            && self.shardings(&plan.layout).contains(&ShardingChoice::of(plan))
            && self.inexpressible(plan).is_none()
    }
}

fn refused(limits: &Limits, obstacle: Obstacle) -> Rejection {
    let Obstacle { what, why, instead: _ } = obstacle;
    Rejection::Inexpressible { framework: limits.title, what, why: why.into_owned() }
}
