//! A plan as one line of text.

use std::fmt;

use crate::plan::{CpKind, Layout, Offload, Plan, RankOrder, Recompute, ZeroStage};
use crate::problem::Problem;
use crate::schedule::Schedule;
use crate::stack::{Dispatcher, LayerSplit};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Layout { tp, cp, pp, dp, ep, .. } = self.layout;
        write!(f, "tp={tp} cp={cp} pp={pp} dp={dp} ep={ep} schedule={} zero={}", self.schedule.name(), u8::from(self.zero))
    }
}

impl fmt::Display for CpKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for RankOrder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

/// Reads a plan.
///
/// # Errors
/// Names the item that is not one.
pub fn parse_plan(text: &str, problem: &Problem) -> Result<Plan, String> {
    let mut layout = Layout::data_parallel(1);
    for item in text.split_whitespace() {
        let (key, value) = item.split_once('=').ok_or_else(|| format!("`{item}` is not key=value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("`{value}` is not a number"));
        match key {
            "tp" => layout.tp = number()?,
            "cp" => layout.cp = number()?,
            "pp" => layout.pp = number()?,
            _ => return Err(format!("there is no degree `{key}`")),
        }
    }
    let used = layout.tp * layout.cp * layout.pp;
    if used == 0 || problem.cluster().gpus % used != 0 {
        return Err(format!("tp·cp·pp = {used} does not divide {} GPUs", problem.cluster().gpus));
    }
    layout.dp = problem.cluster().gpus / used;
    Ok(Plan {
        layout,
        sequence_parallel: layout.tp > 1,
        cp_kind: CpKind::Ring,
        schedule: Schedule::OneFOneB,
        split: LayerSplit::Even,
        zero: ZeroStage::One,
        shard_group: None,
        reshard_after_forward: false,
        micro_batch: 1,
        recompute: Recompute::None,
        offload: Offload::NONE,
        dispatcher: problem.stack().dispatcher,
        order: RankOrder::PipelineOutermost,
    })
}
