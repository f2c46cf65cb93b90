//! Time of the micro-batches of a pipeline under evaluation, as far as it is known.

use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{Loaded, Sharding};
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::schedule::replays::SimulatorKey;
use meshwright_engine::units::Seconds;

/// Lower bound of the time of a pipeline's flow.
#[derive(Default)]
pub(super) struct KnownFlow {
    pub flow: Seconds,
    /// Key of its simulator, and the times of its virtual stages; none if it is not simulated.
    pub stages: Option<(SimulatorKey, Vec<StageTime>)>,
}

/// Knowledge of the time that all micro-batches take through a pipeline.
pub(super) enum Flow {
    /// The closed form is the final time.
    Closed,
    /// Not simulated yet; a lower bound stands in for it.
    Bounded(Seconds),
    /// Simulated time; `None` if the schedule has no simulation.
    Played(Option<Seconds>),
}

impl Flow {
    /// Step time with a sharding, or its lower bound while the pipeline is not simulated.
    pub fn time(&self, costs: &Costs, loaded: &Loaded, sharding: &Sharding) -> Seconds {
        match self {
            Self::Closed => loaded.played(costs, sharding, None),
            Self::Bounded(flow) => loaded.bound(costs, sharding, *flow),
            Self::Played(flow) => loaded.played(costs, sharding, *flow),
        }
    }
}
