//! Time of the flow of micro-batches through a pipeline: in closed form, bounded from below, or simulated.

use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{Loaded, Sharding};
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::schedule::replays::SimulatorKey;
use meshwright_engine::units::Seconds;

/// Flow of a pipeline before its simulation.
#[derive(Default)]
pub(super) struct KnownFlow {
    /// Lower bound of its time.
    pub flow: Seconds,
    /// Key of its simulator, and the times of its virtual stages; none if it is not simulated.
    pub stages: Option<(SimulatorKey, Vec<StageTime>)>,
}

/// Time of all micro-batches through a pipeline.
pub(super) enum Flow {
    /// The closed form is the final time.
    Closed,
    /// Not simulated yet; a lower bound stands in for it.
    Bounded(Seconds),
    /// Simulated time; `None` if the schedule has no simulation.
    Simulated(Option<Seconds>),
}

impl Flow {
    /// Step time with a sharding, or its lower bound while the pipeline is not simulated.
    pub fn time(&self, costs: &Costs, loaded: &Loaded, sharding: &Sharding) -> Seconds {
        match self {
            Self::Closed => loaded.simulated_time(costs, sharding, None),
            Self::Bounded(flow) => loaded.bound(costs, sharding, *flow),
            Self::Simulated(flow) => loaded.simulated_time(costs, sharding, *flow),
        }
    }
}
