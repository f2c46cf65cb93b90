//! Schedules that are ready to be simulated, for prices and searches of any problem.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::PipelineShape;
use super::paths::{Path, paths_through};
use super::peaks::Peaks;
use super::simulator::Simulator;

/// Memory of one operation of a simulator in bytes: 8 of its own, three dependencies of 4, and a quarter for the
/// overhead of the allocator.
const OPERATION_BYTES: usize = 25;
/// Most memory of the simulators that are kept; further ones are made anew for each use.
const MOST_BYTES: usize = 480 << 20;
/// Passes from which on a simulator is made alone: it asks for some tens of MiB while it is made.
const LARGE_SIMULATOR: u64 = 1 << 18;

/// Key of the critical paths through one rank of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathsKey {
    /// Schedule and number of ranks.
    pub pipeline: PipelineShape,
    /// Number of micro-batches.
    pub micro_batches: u32,
    /// Pipeline rank.
    pub rank: u32,
}

/// Key of a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimulatorKey {
    /// Schedule and number of ranks.
    pub pipeline: PipelineShape,
    /// Number of micro-batches.
    pub micro_batches: u32,
}

/// Cache of the paths, simulators and peaks of schedules. They depend on the schedule, the stages and the micro-batches alone, so
/// that searches of several problems may share them.
#[derive(Debug, Default)]
pub struct Replays {
    paths: RwLock<BTreeMap<PathsKey, Arc<[Path]>>>,
    simulators: RwLock<BTreeMap<SimulatorKey, Option<Arc<Simulator>>>>,
    /// Micro-batches in flight at the peaks of ranks.
    pub(crate) peaks: Peaks,
    /// Operations of the simulators that are kept.
    operations: AtomicUsize,
    /// Held while a large simulator is made, so that one at a time asks for memory.
    large: Mutex<()>,
}

impl Replays {
    /// Memory of the simulators that are kept.
    pub fn bytes(&self) -> usize {
        self.operations.load(Ordering::Relaxed) * OPERATION_BYTES
    }

    /// Paths through one rank of a pipeline.
    pub fn paths(&self, key: PathsKey) -> Arc<[Path]> {
        if let Some(known) = self.paths.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let PathsKey { pipeline, micro_batches, rank } = key;
        let paths = paths_through(pipeline, micro_batches, rank).into();
        Arc::clone(self.paths.write().expect("no writer panics").entry(key).or_insert(paths))
    }

    /// Simulator of a schedule; `None` if it does not run.
    pub fn simulator(&self, key: SimulatorKey) -> Option<Arc<Simulator>> {
        if let Some(known) = self.simulators.read().expect("no writer panics").get(&key) {
            return known.clone();
        }
        let SimulatorKey { pipeline, micro_batches } = key;
        let size = pipeline.passes(micro_batches);
        let alone = (size > LARGE_SIMULATOR).then(|| self.large.lock().expect("nobody panics with it"));
        let simulator = Simulator::new(pipeline, micro_batches).map(Arc::new);
        drop(alone);
        let operations = simulator.as_ref().map_or(0, |simulator| simulator.operations());
        if self.operations.fetch_add(operations, Ordering::Relaxed) + operations > MOST_BYTES / OPERATION_BYTES {
            self.operations.fetch_sub(operations, Ordering::Relaxed);
            return simulator;
        }
        self.simulators.write().expect("no writer panics").entry(key).or_insert(simulator).clone()
    }
}
