//! Cache of the simulated times of long pipelines, for plans that differ in their sharding only.

use std::sync::{Arc, Mutex};

use crate::schedule::replay::{StageTime, makespan};
use crate::schedule::replays::{Replays, SimulatorKey};
use crate::units::Seconds;

/// Fewest passes of a schedule whose times are cached: shorter ones are simulated in less than a millisecond.
const LONG: u64 = 1 << 16;

/// Largest number of cached times.
const MOST_CACHED: usize = 32;

/// Simulated flow of micro-batches through a pipeline.
#[derive(Debug)]
struct KnownFlow {
    key: SimulatorKey,
    stages: Vec<StageTime>,
    /// Time of all micro-batches; `None` where the schedule does not run.
    time: Option<Seconds>,
}

/// Simulator of flows, with a cache of those of long pipelines.
#[derive(Clone, Debug, Default)]
pub(super) struct Flows {
    /// Cached flows of long pipelines, the latest last.
    cached: Arc<Mutex<Vec<KnownFlow>>>,
    /// Prepared simulators; without them each flow is simulated from the lists of its schedule's operations.
    replays: Option<Arc<Replays>>,
}

impl Flows {
    /// Flows that prepared simulators time.
    pub fn with_replays(replays: &Arc<Replays>) -> Self {
        Self { replays: Some(Arc::clone(replays)), ..Self::default() }
    }

    /// Time of all micro-batches of a schedule through virtual stages of these times, with sends that take no time.
    pub fn time(&self, key: SimulatorKey, stages: &[StageTime]) -> Option<Seconds> {
        let SimulatorKey { pipeline, micro_batches } = key;
        let simulate = || makespan(pipeline, micro_batches, stages, Seconds::ZERO);
        if pipeline.passes(micro_batches) < LONG {
            return match &self.replays {
                Some(replays) => Some(replays.simulator(key)?.makespan(stages)),
                None => simulate(),
            };
        }
        let same = |known: &&KnownFlow| known.key == key && known.stages == stages;
        if let Some(known) = self.cached.lock().expect("nobody panics with it").iter().find(same) {
            return known.time;
        }
        let time = simulate();
        let mut known = self.cached.lock().expect("nobody panics with it");
        known.push(KnownFlow { key, stages: stages.to_vec(), time });
        if known.len() > MOST_CACHED {
            known.remove(0);
        }
        time
    }
}
