//! Size, goal, restrictions and control of a search.

use std::ops::ControlFlow;

use crate::space::Restrictions;
use meshwright_engine::cost::incremental::Price;

/// Size and restrictions of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Number of plans to return, each with a different layout.
    pub top: usize,
    /// Values that plans must or must not have.
    pub restrictions: Restrictions,
}

/// Callback of a search: takes its progress (done, all), and says whether the search goes on.
pub type Control<'a> = dyn Fn(u64, u64) -> ControlFlow<()> + Sync + 'a;

/// Ranking criterion of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Goal {
    /// The plans of least step time, each with a different layout.
    #[default]
    Fastest,
    /// The plans with the least value of another objective, each with a different layout.
    Best(Objective),
    /// The Pareto front of step time, memory and GPUs, or plans that cover it.
    Pareto {
        /// Share by which a plan that is left out may be better than one of the answer in any of the three; 0 = the whole front.
        tolerance: f64,
    },
}

impl Goal {
    /// Tolerance of a Pareto front; 0 for other goals.
    pub(super) const fn tolerance(self) -> f64 {
        if let Self::Pareto { tolerance } = self { tolerance } else { 0.0 }
    }
}

/// Quantity that a search minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Time of one step.
    #[default]
    StepTime,
    /// Memory of the fullest rank.
    Memory,
    /// Step time × GPUs in use; ranks plans differently from step time only when GPUs may stay idle.
    GpuTime,
}

impl Objective {
    /// Value of the objective. It grows with both time and memory, so lower bounds of them give a lower bound of it.
    pub(super) fn value(self, price: Price, gpus: u32) -> f64 {
        match self {
            Self::StepTime => price.time.get(),
            Self::Memory => price.memory.get(),
            Self::GpuTime => price.time.get() * f64::from(gpus),
        }
    }
}
