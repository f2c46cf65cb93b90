//! What shapes share: parts of layers, classes of ranks, and menus of shardings; each is made once.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, RwLock};

use rayon::prelude::*;

use crate::cost::Costs;
use crate::cost::staged::{Feeding, Mixing, Parameters, Sharding, Stages, least_states};
use crate::plan::{Layout, Plan, Recompute, ZeroStage};
use crate::schedule::Schedule;
use crate::space::Space;
use crate::stack::Dispatcher;
use crate::units::Bytes;

/// All shapes, their parts priced once.
pub(super) struct Shapes {
    mixes: Vec<(Plan, Mixing)>,
    feedings: Vec<Feeding>,
    /// Mix, feeding, and what the shape adds to the mix.
    shapes: Vec<(u32, u32, u32, u32, Dispatcher)>,
}

/// What a feed-forward part depends on; tokens as the bits of their number.
type FeedingKey = (u32, bool, u64, u32, u32, Dispatcher);

impl Shapes {
    pub fn new(costs: &Costs, space: &Space) -> Self {
        let seq_len = costs.problem.workload().seq_len;
        let mixes = space.mixes();
        let mut keys: BTreeMap<FeedingKey, u32> = BTreeMap::new();
        let mut plans: Vec<Plan> = Vec::new();
        let mut shapes = Vec::new();
        for (index, mix) in mixes.iter().enumerate() {
            for plan in space.grids(mix) {
                let Layout { tp, ep, etp, .. } = plan.layout;
                let key = (tp, plan.sequence_parallel, plan.tokens(seq_len).to_bits(), ep, etp, plan.dispatcher);
                let feeding = *keys.entry(key).or_insert_with(|| {
                    plans.push(plan);
                    plans.len() as u32 - 1
                });
                shapes.push((index as u32, feeding, ep, etp, plan.dispatcher));
            }
        }
        let feedings = plans.par_iter().map(|plan| Feeding::new(costs, plan)).collect();
        let mixes = mixes.into_par_iter().map(|mix| (mix, Mixing::new(costs, &mix))).collect();
        Self { mixes, feedings, shapes }
    }

    pub const fn len(&self) -> usize {
        self.shapes.len()
    }

    pub fn at(&self, index: usize) -> (Plan, &Mixing, &Feeding) {
        let (mix, feeding, ep, etp, dispatcher) = self.shapes[index];
        let (plan, mixing) = &self.mixes[mix as usize];
        let layout = Layout { ep, etp, ..plan.layout };
        (Plan { layout, dispatcher, ..*plan }, mixing, &self.feedings[feeding as usize])
    }
}

/// The shardings of one layout and schedule, without those that others dominate.
pub(super) struct Menu {
    /// ZeRO 0 to 2.
    pub replicated: Vec<Sharding>,
    /// ZeRO 3.
    pub sharded: Vec<Sharding>,
    /// Left out as dominated.
    pub dominated: u64,
    /// Fewest bytes of states.
    pub least: Bytes,
}

type MenuKey = (Layout, Schedule);

/// A pipeline size with its schedules.
pub(super) struct Pipes {
    pub pipelines: Vec<Pipe>,
}

/// One schedule and split, and what is below it.
pub(super) struct Pipe {
    pub plan: Plan,
    pub stages: Stages,
    pub recomputes: Vec<(Recompute, Vec<f64>)>,
    /// Plans below it for each sharding.
    pub below: u64,
}

/// Tables filled as they are asked for.
pub(super) struct Tables<'t> {
    costs: &'t Costs<'t>,
    space: &'t Space<'t>,
    pipes: Vec<OnceLock<Pipes>>,
    menus: RwLock<BTreeMap<MenuKey, Arc<Menu>>>,
    shardings: RwLock<BTreeMap<(u32, u32, u32), u64>>,
}

impl<'t> Tables<'t> {
    pub fn new(costs: &'t Costs<'t>, space: &'t Space<'t>) -> Self {
        let most = costs.problem.model().layers() as usize + 3;
        Self {
            costs,
            space,
            pipes: (0..most).map(|_| OnceLock::new()).collect(),
            menus: RwLock::default(),
            shardings: RwLock::default(),
        }
    }

    /// Schedules, splits and recomputations on a layout's pp ranks; of `plan` only pp is read.
    pub fn pipes(&self, plan: &Plan) -> &Pipes {
        let pp = plan.layout.pp;
        self.pipes[pp as usize].get_or_init(|| {
            let pipe = |(schedule, split)| {
                let plan = Plan { schedule, split, recompute: Recompute::None, ..*plan };
                let recomputes: Vec<(Recompute, Vec<f64>)> = self
                    .space
                    .recomputes(pp, schedule)
                    .into_iter()
                    .map(|recompute| (recompute, self.space.offloaded_activations(pp, recompute)))
                    .collect();
                let below = recomputes.iter().map(|(_, shares)| shares.len() as u64).sum();
                Pipe { plan, stages: Stages::new(self.costs, &plan), recomputes, below }
            };
            Pipes { pipelines: self.space.pipelines(pp).into_iter().map(pipe).collect() }
        })
    }

    /// How many shardings a layout has.
    pub fn shardings(&self, layout: &Layout) -> u64 {
        let key = (layout.pp, layout.dp, layout.dense_replicas());
        if let Some(&known) = self.shardings.read().expect("no writer panics").get(&key) {
            return known;
        }
        let count = self.space.shardings(layout).len() as u64;
        self.shardings.write().expect("no writer panics").insert(key, count);
        count
    }

    /// The shardings of a plan's layout and schedule.
    pub fn menu(&self, plan: &Plan, stages: &Stages) -> Arc<Menu> {
        let key = (plan.layout, plan.schedule);
        if let Some(known) = self.menus.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let menu = Arc::new(self.make_menu(plan, stages));
        Arc::clone(self.menus.write().expect("no writer panics").entry(key).or_insert(menu))
    }

    fn make_menu(&self, plan: &Plan, stages: &Stages) -> Menu {
        let parameters = Parameters::new(self.costs, plan, stages);
        let mut kept: Vec<Sharding> = Vec::new();
        let mut dominated = 0;
        for choice in self.space.shardings(&plan.layout) {
            let sharding = Sharding::new(self.costs, &choice.on(plan), &parameters);
            if kept.iter().any(|known| known.dominates(&sharding)) {
                dominated += 1;
                continue;
            }
            let before = kept.len();
            kept.retain(|known| !sharding.dominates(known));
            dominated += (before - kept.len()) as u64;
            kept.push(sharding);
        }
        let least = least_states(&kept);
        let (sharded, replicated) = kept.into_iter().partition(|sharding| sharding.zero() == ZeroStage::Three);
        Menu { replicated, sharded, dominated, least }
    }
}
