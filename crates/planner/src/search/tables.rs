//! Tables shared by all shapes of a search: layer costs, classes of ranks, and lists of shardings, each computed once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use itertools::Itertools as _;
use rayon::prelude::*;

use crate::space::{Rejection, Restrictions, Space};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{Feeding, Layers, Mixing, Parameters, Sharding, Stages, least_states};
use meshwright_engine::plan::{CpKind, Layout, Plan, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::schedule::paths::{Path, paths_through};
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Dispatcher;
use meshwright_engine::units::{Bytes, Seconds};

/// Cache of costs for several searches of one problem. The costs do not depend on a search's restrictions; menus do and are
/// stored by them.
#[derive(Debug, Default)]
pub(super) struct CostCache {
    mixings: RwLock<BTreeMap<MixingKey, Arc<Mixing>>>,
    feedings: RwLock<BTreeMap<FeedingKey, Arc<Feeding>>>,
    stages: RwLock<BTreeMap<StagesKey, Arc<Stages>>>,
    chains: RwLock<BTreeMap<ChainsKey, Arc<[Path]>>>,
    menus: Mutex<Vec<(Restrictions, Arc<Menus>)>>,
}

impl CostCache {
    fn mixing(&self, costs: &Costs, plan: &Plan) -> Arc<Mixing> {
        let Layout { tp, cp, .. } = plan.layout;
        let key = (tp, plan.sequence_parallel, cp, plan.cp_kind, plan.micro_batch);
        if let Some(known) = self.mixings.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let mixing = Arc::new(Mixing::new(costs, plan));
        Arc::clone(self.mixings.write().expect("no writer panics").entry(key).or_insert(mixing))
    }

    fn feeding(&self, costs: &Costs, key: FeedingKey, plan: &Plan) -> Arc<Feeding> {
        if let Some(known) = self.feedings.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let feeding = Arc::new(Feeding::new(costs, plan));
        Arc::clone(self.feedings.write().expect("no writer panics").entry(key).or_insert(feeding))
    }

    fn stages(&self, key: StagesKey, make: impl FnOnce() -> Stages) -> Arc<Stages> {
        if let Some(known) = self.stages.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let stages = Arc::new(make());
        Arc::clone(self.stages.write().expect("no writer panics").entry(key).or_insert(stages))
    }

    fn chains(&self, key: ChainsKey) -> Arc<[Path]> {
        if let Some(known) = self.chains.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let (schedule, pp, micro_batches, rank) = key;
        let chains = paths_through(schedule, pp, micro_batches, rank).into();
        Arc::clone(self.chains.write().expect("no writer panics").entry(key).or_insert(chains))
    }

    /// Menus under the restrictions that concern sharding.
    fn menus(&self, restrictions: &Restrictions) -> Arc<Menus> {
        let of_shardings = restrictions.only(&SHARDING_KEYS);
        let mut menus = self.menus.lock().expect("nobody panics with it");
        let place = menus.iter().position(|(known, _)| *known == of_shardings);
        let asked = place.map_or_else(|| (of_shardings, Arc::default()), |place| menus.remove(place));
        let found = Arc::clone(&asked.1);
        // The set that was used least recently is evicted first.
        menus.push(asked);
        if menus.len() > MOST_MENUS {
            menus.remove(0);
        }
        found
    }
}

/// All shapes of the space, with the costs of their token-mixing and feed-forward parts.
pub(super) struct Shapes {
    mixes: Vec<(Plan, Arc<Mixing>)>,
    feedings: Vec<Arc<Feeding>>,
    /// Index of the mix, index of the feed-forward part, ep, etp and dispatcher of each shape.
    all: Vec<(u32, u32, u32, u32, Dispatcher)>,
}

/// Key of a token-mixing part: tp, sequence parallelism, cp, its kind, and micro-batch.
type MixingKey = (u32, bool, u32, CpKind, u32);
/// Key of a feed-forward part: tp, sequence parallelism, bits of the token count, ep, etp and dispatcher.
type FeedingKey = (u32, bool, u64, u32, u32, Dispatcher);

impl Shapes {
    pub fn new(costs: &Costs, space: &Space, parts: &CostCache) -> Self {
        let seq_len = costs.problem.workload().seq_len;
        let mixes = space.mixes();
        let mut keys: BTreeMap<FeedingKey, u32> = BTreeMap::new();
        let mut plans: Vec<(FeedingKey, Plan)> = Vec::new();
        let mut shapes = Vec::new();
        for (index, mix) in mixes.iter().enumerate() {
            for plan in space.grids(mix) {
                let Layout { tp, ep, etp, .. } = plan.layout;
                let key = (tp, plan.sequence_parallel, plan.tokens(seq_len).to_bits(), ep, etp, plan.dispatcher);
                let feeding = *keys.entry(key).or_insert_with(|| {
                    plans.push((key, plan));
                    plans.len() as u32 - 1
                });
                shapes.push((index as u32, feeding, ep, etp, plan.dispatcher));
            }
        }
        let feedings = plans.par_iter().map(|(key, plan)| parts.feeding(costs, *key, plan)).collect();
        let mixes = mixes.into_par_iter().map(|mix| (mix, parts.mixing(costs, &mix))).collect();
        Self { mixes, feedings, all: shapes }
    }

    pub const fn len(&self) -> usize {
        self.all.len()
    }

    pub fn at(&self, index: usize) -> (Plan, &Mixing, &Feeding) {
        let (mix, feeding, ep, etp, dispatcher) = self.all[index];
        let (plan, mixing) = &self.mixes[mix as usize];
        let layout = Layout { ep, etp, ..plan.layout };
        (Plan { layout, dispatcher, ..*plan }, mixing, &self.feedings[feeding as usize])
    }
}

/// Restriction keys that a menu depends on, besides the framework.
const SHARDING_KEYS: [&str; 5] = ["zero", "shard", "reshard", "offload-optimizer", "order"];
/// Largest number of menu sets kept at once; on many GPUs, one takes some tens of MiB.
const MOST_MENUS: usize = 16;

/// Menu of the non-dominated shardings of one layout and schedule.
#[derive(Debug)]
pub(super) struct Menu {
    /// Shardings with whole weights on each replica: ZeRO 0 to 2.
    pub replicated: Vec<Sharding>,
    /// Shardings that gather weights layer by layer: ZeRO 3.
    pub sharded: Vec<Sharding>,
    /// Number of shardings left out as dominated.
    pub dominated: u64,
    /// Number of shardings that the requested framework cannot express, with the first reason.
    pub inexpressible: (u64, Option<Rejection>),
    /// Fewest bytes of model states and gathered weights of each class of ranks.
    pub least: Vec<Bytes>,
    /// Lower bound of the time at both ends of a step under ZeRO 0 to 2.
    pub edges: Seconds,
}

/// Layout, schedule, split, and the layers of its last virtual stage, by which a cost-balanced one is known.
type MenuKey = (Layout, Schedule, LayerSplit, u32);
/// Key of menus by content: layout, copies of the weights on a rank, and whether one rank has both ends of the model.
type ContentKey = (Layout, u32, bool);

/// Menus of one layout, each with the parameters of the ranks that it is for.
type MenusByParameters = Vec<(Parameters, Arc<Menu>)>;

/// Menus of one set of restrictions: by plan, and by the parameters of its ranks, for many plans share a menu.
#[derive(Debug, Default)]
struct Menus {
    by_plan: RwLock<BTreeMap<MenuKey, Arc<Menu>>>,
    by_content: RwLock<BTreeMap<ContentKey, MenusByParameters>>,
}
/// pp, schedule, split, layers of the last virtual stage of a cost-balanced one, first layers recomputed.
type StagesKey = (u32, Schedule, LayerSplit, u32, u32);
/// Key of critical paths: schedule, pp, micro-batches, rank.
type ChainsKey = (Schedule, u32, u32, u32);

/// Pipelines of one pipeline-parallel size.
pub(super) struct Pipes {
    pub pipelines: Vec<Pipe>,
}

/// One schedule and split, with the recomputations below it.
pub(super) struct Pipe {
    pub plan: Plan,
    pub recomputes: Vec<Recomputes>,
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

/// However many first layers are recomputed, a layer is priced the same.
const fn alike(recompute: Recompute) -> Recompute {
    match recompute {
        Recompute::FirstLayers(_) => Recompute::FirstLayers(1),
        Recompute::None | Recompute::Selective(_) | Recompute::PerOp | Recompute::EveryOther | Recompute::Full => {
            recompute
        }
    }
}

/// Ways in which a pipeline may store its weights.
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
    pipes: Vec<OnceLock<Pipes>>,
    parts: &'t CostCache,
    menus: Arc<Menus>,
    shardings: RwLock<BTreeMap<(u32, u32, u32), u64>>,
}

impl<'t> Tables<'t> {
    pub fn new(costs: &'t Costs<'t>, space: &'t Space<'t>, parts: &'t CostCache) -> Self {
        let most = costs.problem.model().layers() as usize + 3;
        let whole_model = space.recomputes(1, Schedule::OneFOneB).into_iter().map(alike);
        Self {
            costs,
            space,
            recomputes: [Recompute::None].into_iter().chain(whole_model).unique().collect(),
            engines: [1, 2].map(|pp| {
                let stages = space.zero_stages(pp);
                let gathered = stages.contains(&ZeroStage::Three);
                Engines { gathered, replicated: stages.len() > usize::from(gathered) }
            }),
            pipes: (0..most).map(|_| OnceLock::new()).collect(),
            parts,
            menus: parts.menus(space.restrictions()),
            shardings: RwLock::default(),
        }
    }

    /// Schedules, splits and recomputations for the pipeline-parallel size of `plan`; its other settings are not read.
    pub fn pipes(&self, plan: &Plan) -> &Pipes {
        let pp = plan.layout.pp;
        self.pipes[pp as usize].get_or_init(|| {
            let pipe = |(schedule, split)| {
                let plan = Plan { schedule, split, recompute: Recompute::None, ..*plan };
                let recomputes: Vec<Recomputes> = self
                    .space
                    .recomputes(pp, schedule)
                    .into_iter()
                    .map(|recompute| {
                        let known = self.recomputes.iter().position(|known| *known == alike(recompute));
                        let mut shares = self.space.offloaded_activations(pp, recompute);
                        shares.sort_by(f64::total_cmp);
                        Recomputes { recompute, at: known.expect("no chunk is longer than the whole model"), shares }
                    })
                    .collect();
                let shares = recomputes.iter().flat_map(|choice| &choice.shares);
                let most_offloaded = shares.copied().fold(0.0, f64::max);
                let below = recomputes.iter().map(|choice| choice.shares.len() as u64).sum();
                let most = |choice: &Recomputes| if let Recompute::FirstLayers(n) = choice.recompute { n } else { 0 };
                let row = recomputes.iter().map(most).max().unwrap_or_default() as usize + 1;
                let chunk = self.costs.problem.model().layers().div_ceil(pp * schedule.virtual_stages()) as usize;
                let rows = if split == LayerSplit::CostBalanced { chunk + 2 } else { 1 };
                let stages = (0..rows * row).map(|_| OnceLock::new()).collect();
                Pipe { plan, recomputes, below, most_offloaded, stages, row }
            };
            Pipes { pipelines: self.space.pipelines(pp).into_iter().map(pipe).collect() }
        })
    }

    /// Recomputations with different costs per layer over all pipelines, none first.
    pub fn recomputes(&self) -> &[Recompute] {
        &self.recomputes
    }

    /// Ways in which weights may be stored on `pp` ranks.
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

    /// Menu of a plan's layout and schedule.
    pub fn menu(&self, plan: &Plan, stages: &Stages) -> Arc<Menu> {
        let key = (plan.layout, plan.schedule, plan.split, stages.last_chunk());
        if let Some(known) = self.menus.by_plan.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let parameters = Parameters::new(self.costs, plan, stages);
        let menu = self.menu_of(plan, parameters);
        Arc::clone(self.menus.by_plan.write().expect("no writer panics").entry(key).or_insert(menu))
    }

    /// Menu of a layout and the parameters of its ranks: of a schedule it depends only on how many copies of the weights a
    /// rank has, and on whether one rank has both ends of the model.
    fn menu_of(&self, plan: &Plan, parameters: Parameters) -> Arc<Menu> {
        let key = (plan.layout, plan.schedule.weight_copies(), plan.schedule.joins_ends(plan.layout.pp));
        let same = |menus: &[(Parameters, Arc<Menu>)]| {
            menus.iter().find(|(known, _)| *known == parameters).map(|(_, menu)| Arc::clone(menu))
        };
        let known = self.menus.by_content.read().expect("no writer panics").get(&key).and_then(|menus| same(menus));
        if let Some(known) = known {
            return known;
        }
        let menu = Arc::new(self.make_menu(plan, &parameters));
        let mut shared = self.menus.by_content.write().expect("no writer panics");
        let menus = shared.entry(key).or_default();
        if let Some(known) = same(menus) {
            return known;
        }
        menus.push((parameters, Arc::clone(&menu)));
        menu
    }

    /// Builds the menu. A shard group that another of its ZeRO stage and rank order dominates is left out with all its
    /// shares of offloaded optimizer states: a sharding that dominates on the device dominates with any offloaded share.
    fn make_menu(&self, plan: &Plan, parameters: &Parameters) -> Menu {
        let mut kept: Vec<(Sharding, Plan, Vec<f64>)> = Vec::new();
        let (mut dominated, mut inexpressible) = (0, (0, None));
        for (choice, hosts) in self.space.shardings_by_host(&plan.layout) {
            let plan = choice.on(plan);
            let all = hosts.len() as u64;
            if let Some(why) = self.space.inexpressible_sharding(&plan) {
                inexpressible = (inexpressible.0 + all, inexpressible.1.or(Some(why)));
                continue;
            }
            let sharding = Sharding::new(self.costs, &plan, parameters);
            if kept.iter().any(|(known, _, shares)| shares.len() == hosts.len() && known.dominates(&sharding)) {
                dominated += all;
                continue;
            }
            kept.retain(|(known, _, shares)| {
                let goes = shares.len() == hosts.len() && sharding.dominates(known);
                dominated += if goes { all } else { 0 };
                !goes
            });
            kept.push((sharding, plan, hosts));
        }
        // Thousands of menus are kept, so each vector gets its exact capacity.
        let room = |zero_3: bool| -> usize {
            let of = kept.iter().filter(|(sharding, ..)| (sharding.zero() == ZeroStage::Three) == zero_3);
            of.map(|(_, _, hosts)| hosts.len()).sum()
        };
        let (mut sharded, mut replicated) = (Vec::with_capacity(room(true)), Vec::with_capacity(room(false)));
        for (sharding, plan, hosts) in &kept {
            let list = if sharding.zero() == ZeroStage::Three { &mut sharded } else { &mut replicated };
            list.extend(hosts.iter().map(|&share| sharding.with_host(self.costs, plan, parameters, share)));
        }
        let edges = replicated.iter().map(|sharding| sharding.least_time(self.costs, plan)).reduce(Seconds::min);
        let least = least_states(replicated.iter().chain(&sharded));
        Menu { edges: edges.unwrap_or_default(), replicated, sharded, dominated, inexpressible, least }
    }

    /// Critical-path bound of a simulated pipeline: the longest path through the rank with the most work, and zero if there
    /// is none.
    pub fn least_flow(&self, plan: &Plan, stages: &[StageTime]) -> Seconds {
        let (schedule, pp) = (plan.schedule, plan.layout.pp);
        let Some(micro_batches) = self.costs.whole_micro_batches(plan) else { return Seconds::ZERO };
        let mut work = vec![Seconds::ZERO; pp as usize];
        for (chunk, time) in stages.iter().enumerate() {
            work[schedule.rank_of(chunk as u32, pp) as usize] += time.forward + time.backward;
        }
        let busiest =
            (0..pp).reduce(|a, b| if work[b as usize] >= work[a as usize] { b } else { a }).unwrap_or_default();
        let chains = self.parts.chains((schedule, pp, micro_batches, busiest));
        chains.iter().map(|chain| chain.length(stages)).fold(Seconds::ZERO, Seconds::max)
    }

    /// Classes of the ranks of a pipeline. A cost-balanced split is known by its last virtual stage, which is no longer than an
    /// even one.
    pub fn stages<'p>(&self, plan: &Plan, pipe: &'p Pipe, layers: &Layers) -> &'p Stages {
        let first = if let Recompute::FirstLayers(n) = plan.recompute { n } else { 0 };
        let is_weighed = plan.split == LayerSplit::CostBalanced;
        let last = if is_weighed { layers.of_last_chunk(self.costs, plan) } else { 0 };
        pipe.stages[last as usize * pipe.row + first as usize].get_or_init(|| {
            self.parts.stages((plan.layout.pp, plan.schedule, plan.split, last, first), || {
                Stages::new(self.costs, plan, &layers.of_chunks(self.costs, plan))
            })
        })
    }
}
