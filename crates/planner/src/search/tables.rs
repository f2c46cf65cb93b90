//! Tables shared by all shapes of a search: layer costs, classes of ranks, and lists of shardings, each computed once.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, RwLock};

use itertools::Itertools as _;
use rayon::prelude::*;

use super::cache::{CostCache, FeedForwardKey, StagesKey};
use super::menus::{Menu, Menus, PlanMenu, ReplicatedEnds};
use crate::space::{ExpertGrid, Rejection, Space, legal, on_grid};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{FeedForward, LayerParts, Mixing, Stages};
use meshwright_engine::plan::{Layout, Plan, Recompute, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::schedule::replays::{PathsKey, SimulatorKey};
use meshwright_engine::schedule::simulator::Simulator;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::units::Seconds;

/// All shapes of the space, with the costs of their token-mixing and feed-forward parts.
pub(super) struct Shapes {
    mixes: Vec<(Plan, Arc<Mixing>)>,
    feed_forwards: Vec<Arc<FeedForward>>,
    all: Vec<ShapeEntry>,
}

/// Entry of one shape.
struct ShapeEntry {
    /// Index of its mix.
    mix: u32,
    /// Index of its feed-forward part.
    feed_forward: u32,
    grid: ExpertGrid,
}

/// Shape of the space, with the costs of the two parts of its layers.
pub(super) struct SearchShape<'s> {
    /// The plan, but for its pipeline, recomputation, offload and sharding.
    pub plan: Plan,
    pub parts: LayerParts<'s>,
}

impl Shapes {
    pub fn new(costs: &Costs, space: &Space, parts: &CostCache) -> Self {
        let seq_len = costs.problem.workload().seq_len;
        let mixes = space.mixes();
        let mut keys: BTreeMap<FeedForwardKey, u32> = BTreeMap::new();
        let mut plans: Vec<(FeedForwardKey, Plan)> = Vec::new();
        let mut grids: BTreeMap<u32, Vec<ExpertGrid>> = BTreeMap::new();
        let mut shapes = Vec::new();
        for (index, mix) in mixes.iter().enumerate() {
            let tp = mix.layout.tp;
            for &grid in &*grids.entry(tp).or_insert_with(|| space.grids(tp)) {
                let token_bits = mix.tokens(seq_len).to_bits();
                let key = FeedForwardKey { tp, sequence_parallel: mix.sequence_parallel, token_bits, grid };
                let feed_forward = *keys.entry(key).or_insert_with(|| {
                    plans.push((key, on_grid(mix, grid)));
                    plans.len() as u32 - 1
                });
                shapes.push(ShapeEntry { mix: index as u32, feed_forward, grid });
            }
        }
        let feed_forwards = plans.par_iter().map(|(key, plan)| parts.feed_forward(costs, *key, plan)).collect();
        let mixes = mixes.into_par_iter().map(|mix| (mix.clone(), parts.mixing(costs, &mix))).collect();
        Self { mixes, feed_forwards, all: shapes }
    }

    pub const fn len(&self) -> usize {
        self.all.len()
    }

    pub fn at(&self, index: usize) -> SearchShape<'_> {
        let ShapeEntry { mix, feed_forward, grid } = self.all[index];
        let (plan, mixing) = &self.mixes[mix as usize];
        let parts = LayerParts { mixing, feed_forward: &self.feed_forwards[feed_forward as usize] };
        SearchShape { plan: on_grid(plan, grid), parts }
    }
}

/// Schedules and splits of one pipeline-parallel size.
pub(super) struct PipelineTable {
    pub entries: Vec<PipelineEntry>,
    /// Largest number of copies of the weights that one of them keeps.
    pub copies: u32,
    /// Number of plans below them for each sharding.
    pub below: u64,
    /// Legal ones, by the bits of the number of micro-batches.
    legal: RwLock<Vec<(u64, Arc<LegalPipelines>)>>,
}

/// Legal pipelines of one pipeline-parallel size and number of micro-batches.
#[derive(Default)]
pub(super) struct LegalPipelines {
    /// Indices of the pipelines in the table.
    pub indices: Vec<u32>,
    /// First rejection by each rule, and the number of plans below all that it rejects, for each sharding.
    pub rejected: Vec<(Rejection, u64)>,
}

impl PipelineTable {
    /// Pipelines that are legal with the degrees and the micro-batch of a plan, of which rules of pipelines read pp and
    /// the number of micro-batches alone.
    pub fn legal(&self, problem: &Problem, plan: &Plan) -> Arc<LegalPipelines> {
        let key = plan.micro_batches(problem.workload().global_batch).to_bits();
        if let Some((_, known)) = self.legal.read().expect("no writer panics").iter().find(|known| known.0 == key) {
            return Arc::clone(known);
        }
        let mut legal = LegalPipelines::default();
        for (index, entry) in (0..).zip(&self.entries) {
            let (schedule, split) = (entry.plan.schedule, entry.plan.split.clone());
            match legal::first_of_pipeline(problem, &Plan { schedule, split, ..plan.clone() }) {
                None => legal.indices.push(index),
                Some(why) => match legal.rejected.iter_mut().find(|(known, _)| known.rule() == why.rule()) {
                    Some((_, below)) => *below += entry.below,
                    None => legal.rejected.push((why, entry.below)),
                },
            }
        }
        let legal = Arc::new(legal);
        self.legal.write().expect("no writer panics").push((key, Arc::clone(&legal)));
        legal
    }
}

/// One schedule and split, with the recomputations below it.
pub(super) struct PipelineEntry {
    pub plan: Plan,
    pub recomputes: Arc<[Recomputes]>,
    /// Number of plans below it for each sharding.
    pub below: u64,
    /// Largest share of activations offloaded to the host.
    pub most_offloaded: f64,
    /// Classes of ranks: a row for each number of layers of the last virtual stage of a cost-balanced split, and in it a cell
    /// for each number of first layers that are recomputed.
    stages: Vec<OnceLock<Arc<Stages>>>,
    /// Cells of a row.
    row: usize,
}

/// One recomputation of a pipeline, with its shares of offloaded activations.
pub(super) struct Recomputes {
    pub recompute: Recompute,
    /// Index into [`Tables::recomputes`].
    pub at: usize,
    /// Shares of activations offloaded to the host, ascending.
    pub shares: Vec<f64>,
}

/// Recomputation whose layers cost as much as those of the given one: the number of first layers that are recomputed does not
/// matter.
const fn with_same_layers(recompute: Recompute) -> Recompute {
    match recompute {
        Recompute::FirstLayers(_) => Recompute::FirstLayers(1),
        Recompute::None | Recompute::Selective(_) | Recompute::PerOp | Recompute::EveryOther | Recompute::Full => {
            recompute
        }
    }
}

/// Storage of weights that a search considers for a pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engines {
    /// Weights gathered layer by layer: ZeRO 3.
    pub gathered: bool,
    /// Weights whole on each replica: ZeRO 0 to 2.
    pub replicated: bool,
}

/// Tables of one search, filled on first use.
pub(super) struct Tables<'t> {
    costs: &'t Costs<'t>,
    space: &'t Space<'t>,
    engines: [Engines; 2],
    recomputes: Vec<Recompute>,
    pipelines: Vec<OnceLock<PipelineTable>>,
    parts: &'t CostCache,
    menus: Arc<Menus>,
    shardings: RwLock<BTreeMap<(u32, u32, u32), u64>>,
}

impl<'t> Tables<'t> {
    pub fn new(costs: &'t Costs<'t>, space: &'t Space<'t>, parts: &'t CostCache) -> Self {
        let most = costs.problem.model().layers() as usize + 3;
        let whole_model = space.recomputes(1, Schedule::OneFOneB);
        Self {
            costs,
            space,
            recomputes: [Recompute::None].iter().chain(&*whole_model).copied().map(with_same_layers).unique().collect(),
            engines: [1, 2].map(|pp| {
                let stages = space.zero_stages(pp);
                let gathered = stages.contains(&ZeroStage::Three);
                Engines { gathered, replicated: stages.len() > usize::from(gathered) }
            }),
            pipelines: (0..most).map(|_| OnceLock::new()).collect(),
            parts,
            menus: parts.menus(space.restrictions()),
            shardings: RwLock::default(),
        }
    }

    /// Schedules, splits and recomputations for the pipeline-parallel size of `plan`; its other settings are not read.
    pub fn pipelines(&self, plan: &Plan) -> &PipelineTable {
        let pp = plan.layout.pp;
        self.pipelines[pp as usize].get_or_init(|| {
            let of_schedule = |schedule: Schedule| {
                let recomputes = self.recomputes_of(pp, schedule);
                let shares = recomputes.iter().flat_map(|choice| &choice.shares);
                let most_offloaded = shares.copied().fold(0.0, f64::max);
                let below = recomputes.iter().map(|choice| choice.shares.len() as u64).sum();
                let most = |choice: &Recomputes| if let Recompute::FirstLayers(n) = choice.recompute { n } else { 0 };
                let row = recomputes.iter().map(most).max().unwrap_or_default() as usize + 1;
                let chunk = self.costs.problem.model().layers().div_ceil(pp * schedule.virtual_stages()) as usize;
                self.space.splits_of(pp, schedule).map(move |split| {
                    let rows = if split == LayerSplit::CostBalanced { chunk + 2 } else { 1 };
                    let stages = (0..rows * row).map(|_| OnceLock::new()).collect();
                    let plan = Plan { schedule, split, recompute: Recompute::None, ..plan.clone() };
                    PipelineEntry { plan, recomputes: Arc::clone(&recomputes), below, most_offloaded, stages, row }
                })
            };
            let has_plans = |entry: &PipelineEntry| entry.below > 0; // restrictions may leave no recomputation
            let all = self.space.schedules(pp).into_iter().flat_map(of_schedule);
            let entries: Vec<PipelineEntry> = all.filter(has_plans).collect();
            let copies = entries.iter().map(|entry| entry.plan.schedule.weight_copies()).max().unwrap_or(1);
            let below = entries.iter().map(|entry| entry.below).sum();
            PipelineTable { below, copies, entries, legal: RwLock::default() }
        })
    }

    /// Recomputations of a schedule on `pp` ranks.
    fn recomputes_of(&self, pp: u32, schedule: Schedule) -> Arc<[Recomputes]> {
        let with_shares = |&recompute: &Recompute| {
            let known = self.recomputes.iter().position(|known| *known == with_same_layers(recompute));
            let mut shares = self.space.offloaded_activations(pp, recompute).to_vec();
            shares.sort_by(f64::total_cmp);
            Recomputes { recompute, at: known.expect("no chunk is longer than the whole model"), shares }
        };
        self.space.recomputes(pp, schedule).iter().map(with_shares).collect()
    }

    /// Recomputations with different costs per layer over all pipelines, none first.
    pub fn recomputes(&self) -> &[Recompute] {
        &self.recomputes
    }

    /// Storage of weights that the search considers on `pp` ranks.
    pub const fn engines(&self, pp: u32) -> Engines {
        self.engines[(pp > 1) as usize]
    }

    /// Number of shardings of a layout.
    pub fn shardings(&self, layout: &Layout) -> u64 {
        let key = (layout.pp, layout.dp, layout.dense_replicas());
        if let Some(&known) = self.shardings.read().expect("no writer panics").get(&key) {
            return known;
        }
        let count = self.space.count_shardings(layout);
        self.shardings.write().expect("no writer panics").insert(key, count);
        count
    }

    /// Entry of a plan's layout and schedule, whose menu is computed on first use.
    pub fn plan_menu(&self, plan: &Plan, stages: &Stages) -> Arc<PlanMenu> {
        self.menus.plan_menu(self.space, plan, stages)
    }

    /// Menu of a plan's layout and schedule.
    pub fn menu(&self, plan: &Plan, menu: &PlanMenu) -> Arc<Menu> {
        self.menus.menu(self.space, plan, menu)
    }

    /// Lower bounds of the time at both ends of a step under ZeRO 0 to 2, over all shardings of a plan's layout.
    pub fn least_ends(&self, plan: &Plan, menu: &PlanMenu) -> ReplicatedEnds {
        self.menus.least_ends(self.space, plan, menu)
    }

    /// Lower bounds of the time at both ends of a step under ZeRO 0 to 2, over all pipelines and shardings of a plan's layout.
    pub fn least_ends_of_layout(&self, plan: &Plan) -> ReplicatedEnds {
        self.menus.least_ends_of_layout(self.space, plan)
    }

    /// Critical-path bound of a simulated pipeline: the longest path through the rank with the most work, and zero if there
    /// is none.
    pub fn least_flow(&self, plan: &Plan, stages: &[StageTime]) -> Seconds {
        let (pipeline, pp) = (plan.pipeline(), plan.layout.pp);
        let Some(micro_batches) = self.costs.whole_micro_batches(plan) else { return Seconds::ZERO };
        let mut work = vec![Seconds::ZERO; pp as usize];
        for (chunk, time) in stages.iter().enumerate() {
            work[pipeline.rank_of(chunk as u32) as usize] += time.forward + time.backward;
        }
        let busiest =
            (0..pp).reduce(|a, b| if work[b as usize] >= work[a as usize] { b } else { a }).unwrap_or_default();
        let paths = self.parts.replays.paths(PathsKey { pipeline, micro_batches, rank: busiest });
        paths.iter().map(|path| path.length(stages)).fold(Seconds::ZERO, Seconds::max)
    }

    /// Key of a pipeline's simulator; `None` if there is nothing to simulate.
    pub fn simulator_key(&self, plan: &Plan) -> Option<SimulatorKey> {
        let micro_batches = self.costs.whole_micro_batches(plan).filter(|_| plan.layout.pp > 1)?;
        Some(SimulatorKey { pipeline: plan.pipeline(), micro_batches })
    }

    /// Simulator of a schedule; `None` if it does not run.
    pub fn simulator(&self, key: SimulatorKey) -> Option<Arc<Simulator>> {
        self.parts.replays.simulator(key)
    }

    /// Classes of the ranks of a plan's layout and schedule with the split of `entry` under a recomputation, whose head costs as
    /// much as `head` layers. A cost-balanced split is known by its last virtual stage, which is no longer than an even one.
    pub fn stages<'p>(&self, plan: &Plan, entry: &'p PipelineEntry, recompute: Recompute, head: f64) -> &'p Stages {
        let first_recomputed = if let Recompute::FirstLayers(n) = recompute { n } else { 0 };
        let is_cost_balanced = entry.plan.split == LayerSplit::CostBalanced;
        let last_chunk = if is_cost_balanced { Stages::last_chunk_of(self.costs, plan, head) } else { 0 };
        entry.stages[last_chunk as usize * entry.row + first_recomputed as usize].get_or_init(|| {
            let (pp, schedule, split) = (plan.layout.pp, plan.schedule, entry.plan.split.clone());
            let own = || Plan { split: split.clone(), recompute, ..plan.clone() };
            let make = || Stages::with_head_cost(self.costs, &own(), head);
            self.parts.stages(StagesKey { pp, schedule, split: split.clone(), last_chunk, first_recomputed }, make)
        })
    }
}
