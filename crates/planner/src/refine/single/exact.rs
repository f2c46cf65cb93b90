//! Exact minima over cuts, one stage a rank, for other solvers to be compared with.

use super::table::StageTable;
use crate::refine::options::Freedom;
use crate::refine::paths::dependency_paths;
use crate::refine::program::StageProgram;
use meshwright_engine::cost::Stager;
use meshwright_engine::schedule::paths::Path;
use meshwright_engine::units::Seconds;

/// Minimum of each measure over all splits and recomputations that fit; each measure has its own best split.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactMinima {
    /// Time of the slowest stage, forward and backward of one micro-batch.
    pub slowest: Seconds,
    /// Length of each dependency path of the schedule.
    pub paths: Vec<(Path, Seconds)>,
}

/// Minimum of each measure for the plan of a stager, whose layers may recompute anything. `None` where nothing fits.
///
/// # Errors
/// A rank holds several stages, which no program over cuts describes.
pub fn minima(stager: &Stager, freedom: Freedom) -> Result<Option<ExactMinima>, &'static str> {
    let plan = stager.plan();
    if plan.schedule.virtual_stages() > 1 || plan.schedule.is_bidirectional() || !stager.is_simulated() {
        return Err("only schedules with one stage a rank are programs over cuts");
    }
    let program = StageProgram::new(stager, plan.recompute, freedom);
    let paths = dependency_paths(&program);
    let table = StageTable::new(&program, f64::INFINITY);
    let Some(slowest) = table.bottleneck() else { return Ok(None) };
    let shortest = |path: Path| Some((table.shortest(&path)?, path));
    let paths = paths.into_iter().filter_map(shortest).map(|(length, path)| (path, Seconds::new(length))).collect();
    Ok(Some(ExactMinima { slowest: Seconds::new(slowest), paths }))
}
