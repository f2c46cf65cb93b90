//! What the exact programs over cuts say of one stage a rank, for other solvers to be compared with.

use super::program::Program;
use super::table::Table;
use super::{Freedom, coupled};
use meshwright_engine::cost::Stager;
use meshwright_engine::schedule::paths::Path;
use meshwright_engine::units::Seconds;

/// The least of each measure over all splits and mixes of recomputation that fit; each measure has its own best split.
#[derive(Clone, Debug, PartialEq)]
pub struct Least {
    /// Time of the slowest stage, forward and backward of one micro-batch.
    pub slowest: Seconds,
    /// Length of each chain of the schedule.
    pub chains: Vec<(Path, Seconds)>,
}

/// The least of each measure for the plan that a stager prices, whose layers recompute anything. `None` where nothing fits.
///
/// # Errors
/// Where a rank holds several stages: those are no program over cuts.
pub fn least(stager: &Stager, freedom: Freedom) -> Result<Option<Least>, &'static str> {
    let plan = stager.plan();
    if plan.schedule.virtual_stages() > 1 || plan.schedule.is_bidirectional() || !stager.plays() {
        return Err("only schedules with one stage a rank are programs over cuts");
    }
    let program = Program::new(stager, plan.recompute, freedom);
    let chains = coupled::chains(&program);
    let table = Table::new(&program, f64::INFINITY);
    let Some(slowest) = table.bottleneck() else { return Ok(None) };
    let of = |path: Path| Some((table.shortest(&path)?, path));
    let chains = chains.into_iter().filter_map(of).map(|(length, path)| (path, Seconds::new(length))).collect();
    Ok(Some(Least { slowest: Seconds::new(slowest), chains }))
}
