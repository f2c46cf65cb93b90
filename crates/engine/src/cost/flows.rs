//! Simulated flows of long pipelines, kept for plans with the same pipeline and another sharding.

use std::sync::{Arc, Mutex};

use crate::schedule::replay::{StageTime, makespan};
use crate::schedule::replays::{Replays, SimulatorKey};
use crate::units::Seconds;

/// Fewest passes of a schedule whose flows are kept: shorter ones are simulated in less than a millisecond.
const LONG: u64 = 1 << 16;

/// Largest number of flows that are kept.
const MOST: usize = 32;

/// Flow that was simulated.
#[derive(Debug)]
struct KnownFlow {
    key: SimulatorKey,
    stages: Vec<StageTime>,
    /// Time of all micro-batches; `None` where the schedule does not run.
    time: Option<Seconds>,
}

/// Simulated flows of schedules, those of long pipelines kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Flows {
    /// Flows of long pipelines, the latest last.
    long: Arc<Mutex<Vec<KnownFlow>>>,
    /// Schedules that are ready to be simulated; where there are none, each is simulated from its lists.
    ready: Option<Arc<Replays>>,
}

impl Flows {
    /// Flows of schedules that are ready to be simulated.
    pub fn of(ready: &Arc<Replays>) -> Self {
        Self { ready: Some(Arc::clone(ready)), ..Self::default() }
    }

    /// Time of all micro-batches of a schedule through virtual stages of these times, with sends that take no time.
    pub fn time(&self, key: SimulatorKey, stages: &[StageTime]) -> Option<Seconds> {
        let (pipeline, micro_batches) = key;
        let simulate = || makespan(pipeline, micro_batches, stages, Seconds::ZERO);
        if pipeline.passes(micro_batches) < LONG {
            return match &self.ready {
                Some(ready) => Some(ready.simulator(key)?.makespan(stages)),
                None => simulate(),
            };
        }
        let same = |known: &&KnownFlow| known.key == key && known.stages == stages;
        if let Some(known) = self.long.lock().expect("nobody panics with it").iter().find(same) {
            return known.time;
        }
        let time = simulate();
        let mut known = self.long.lock().expect("nobody panics with it");
        known.push(KnownFlow { key, stages: stages.to_vec(), time });
        if known.len() > MOST {
            known.remove(0);
        }
        time
    }
}
