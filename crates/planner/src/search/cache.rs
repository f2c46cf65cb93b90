//! Cache of costs that several searches of one problem share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::menus::Menus;
use crate::space::Restrictions;
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{Feeding, Mixing, Stages};
use meshwright_engine::plan::{CpKind, Layout, Plan};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::schedule::ops::passes;
use meshwright_engine::schedule::paths::{Path, paths_through};
use meshwright_engine::schedule::simulator::Simulator;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Dispatcher;

/// Restriction keys that a menu depends on, besides the framework.
const SHARDING_KEYS: [&str; 5] = ["zero", "shard", "reshard", "offload-optimizer", "order"];
/// Largest number of menu sets kept at once; on many GPUs, one takes some tens of MiB.
const MOST_MENUS: usize = 16;

/// Most operations of the simulators that are kept, at 30 bytes each; further ones are made anew for each use.
const MOST_OPERATIONS: usize = 1 << 24;
/// Passes from which on a simulator is made alone: it asks for some tens of MiB while it is made.
const LARGE_SIMULATOR: u64 = 1 << 18;

/// Key of a token-mixing part: tp, sequence parallelism, cp, its kind, and micro-batch.
type MixingKey = (u32, bool, u32, CpKind, u32);
/// Key of a feed-forward part: tp, sequence parallelism, bits of the token count, ep, etp and dispatcher.
pub(super) type FeedingKey = (u32, bool, u64, u32, u32, Dispatcher);

/// pp, schedule, split, layers of the last virtual stage of a cost-balanced one, first layers recomputed.
pub(super) type StagesKey = (u32, Schedule, LayerSplit, u32, u32);
/// Key of critical paths: schedule, pp, micro-batches, rank.
pub(super) type ChainsKey = (Schedule, u32, u32, u32);

/// Key of simulators: schedule, pp, micro-batches.
pub(super) type SimulatorKey = (Schedule, u32, u32);

/// Cache of costs for several searches of one problem. The costs do not depend on a search's restrictions; menus do and are
/// stored by them.
#[derive(Debug, Default)]
pub(super) struct CostCache {
    mixings: RwLock<BTreeMap<MixingKey, Arc<Mixing>>>,
    feedings: RwLock<BTreeMap<FeedingKey, Arc<Feeding>>>,
    stages: RwLock<BTreeMap<StagesKey, Arc<Stages>>>,
    paths: RwLock<BTreeMap<ChainsKey, Arc<[Path]>>>,
    simulators: RwLock<BTreeMap<SimulatorKey, Option<Arc<Simulator>>>>,
    /// Operations of the simulators that are kept.
    operations: AtomicUsize,
    /// Held while a large simulator is made, so that one at a time asks for memory.
    large: Mutex<()>,
    menus: Mutex<Vec<(Restrictions, Arc<Menus>)>>,
}

impl CostCache {
    /// Token-mixing part of a plan.
    pub fn mixing(&self, costs: &Costs, plan: &Plan) -> Arc<Mixing> {
        let Layout { tp, cp, .. } = plan.layout;
        let key = (tp, plan.sequence_parallel, cp, plan.cp_kind, plan.micro_batch);
        if let Some(known) = self.mixings.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let mixing = Arc::new(Mixing::new(costs, plan));
        Arc::clone(self.mixings.write().expect("no writer panics").entry(key).or_insert(mixing))
    }

    /// Feed-forward part of a plan.
    pub fn feeding(&self, costs: &Costs, key: FeedingKey, plan: &Plan) -> Arc<Feeding> {
        if let Some(known) = self.feedings.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let feeding = Arc::new(Feeding::new(costs, plan));
        Arc::clone(self.feedings.write().expect("no writer panics").entry(key).or_insert(feeding))
    }

    /// Classes of the ranks of a pipeline, made on first use.
    pub fn stages(&self, key: StagesKey, make: impl FnOnce() -> Stages) -> Arc<Stages> {
        if let Some(known) = self.stages.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let stages = Arc::new(make());
        Arc::clone(self.stages.write().expect("no writer panics").entry(key).or_insert(stages))
    }

    /// Paths through one rank of a pipeline.
    pub fn paths(&self, key: ChainsKey) -> Arc<[Path]> {
        if let Some(known) = self.paths.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let (schedule, pp, micro_batches, rank) = key;
        let paths = paths_through(schedule, pp, micro_batches, rank).into();
        Arc::clone(self.paths.write().expect("no writer panics").entry(key).or_insert(paths))
    }

    /// Simulator of a schedule; `None` if it does not run.
    pub fn simulator(&self, key: SimulatorKey) -> Option<Arc<Simulator>> {
        if let Some(known) = self.simulators.read().expect("no writer panics").get(&key) {
            return known.clone();
        }
        let (schedule, pp, micro_batches) = key;
        let size = passes(schedule, pp, micro_batches);
        let alone = (size > LARGE_SIMULATOR).then(|| self.large.lock().expect("nobody panics with it"));
        let simulator = Simulator::new(schedule, pp, micro_batches).map(Arc::new);
        drop(alone);
        let operations = simulator.as_ref().map_or(0, |simulator| simulator.operations());
        if self.operations.fetch_add(operations, Ordering::Relaxed) + operations > MOST_OPERATIONS {
            self.operations.fetch_sub(operations, Ordering::Relaxed);
            return simulator;
        }
        self.simulators.write().expect("no writer panics").entry(key).or_insert(simulator).clone()
    }

    /// Menus under the restrictions that concern sharding.
    pub fn menus(&self, restrictions: &Restrictions) -> Arc<Menus> {
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
