//! How sure a prediction is: intervals from what the model got wrong on published runs, by class of run.
//!
//! Split-conformal: the residuals ln(measured/predicted) of runs that the constants were fitted without, their quantiles
//! with the correction for a finite sample. The quantiles are data (`clusters/intervals/`), written by
//! `meshwright intervals`.

pub mod table;

use std::sync::OnceLock;

use crate::catalog::files::INTERVALS;
use meshwright_engine::cost::{Evaluation, Footprint};
use meshwright_engine::gpu::Figure;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_engine::units::{Bytes, Seconds};

pub use table::{Apart, Class, LEVELS, Quantiles, Table};

/// The table that every answer uses.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| toml::from_str(INTERVALS[0].1).expect("tests read the built-in intervals"))
}

/// Share of the memory above which a run is near its limit: allocators start to defragment there.
const NEAR_LIMIT: f64 = 0.9;

/// The class of a plan: which published errors speak for it.
pub fn class(problem: &Problem, footprint: &Footprint, table: &Table) -> Class {
    let gpu = &problem.cluster().gpu;
    Class {
        experts: problem.model().is_moe(),
        known_stack: table.stacks.contains(&problem.stack().name),
        known_gpu: table.gpus.contains(&gpu.name) || is_measured(problem),
        near_limit: footprint.device() > gpu.hbm.value * NEAR_LIMIT,
    }
}

/// Whether the kernels of a layer were timed on this device: then it is known as well as those that published runs speak of.
fn is_measured(problem: &Problem) -> bool {
    let gpu = &problem.cluster().gpu;
    let format = problem.workload().format;
    [Figure::Gemm(format), Figure::Sustained(format), Figure::Hbm]
        .into_iter()
        .all(|figure| gpu.basis_of(figure) == Basis::Measured)
}

/// What a price is worth: nine runs of ten are inside the intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    /// The fastest and the slowest of the interval of the step time, 5 % outside on each side.
    pub step: (Seconds, Seconds),
    /// The same of the peak memory, as the device shows it.
    pub peak: (Bytes, Bytes),
    /// Probability that the plan runs out of memory.
    pub oom_probability: f64,
    /// Class of run.
    pub class: Class,
    /// Published runs that the interval of the step time rests on.
    pub runs: u32,
}

impl Confidence {
    /// Of a plan's price.
    pub fn new(problem: &Problem, evaluation: &Evaluation) -> Self {
        Self::from(problem, &evaluation.footprint, evaluation.step.total(), table())
    }

    /// Of a step time and a footprint under a table.
    pub fn from(problem: &Problem, footprint: &Footprint, step: Seconds, table: &Table) -> Self {
        let class = class(problem, footprint, table);
        let (time, memory) = (table.time(class), table.memory(class));
        let peak = footprint.device();
        let (fast, slow) = time.interval();
        let (small, large) = memory.interval();
        let room = problem.cluster().gpu.hbm.value / peak;
        Self {
            step: (step * fast, step * slow),
            peak: (peak * small, peak * large),
            oom_probability: memory.share_above(room),
            class,
            runs: time.runs,
        }
    }
}

/// Share of the memory that a predicted peak may reach so that the probability of running out stays under `risk`.
pub fn ceiling(problem: &Problem, risk: f64) -> f64 {
    let table = table();
    let class = Class { near_limit: true, ..class(problem, &Footprint::default(), table) };
    1.0 / table.memory(class).level(1.0 - risk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_whole() {
        table().check().unwrap();
    }
}
