//! `plan --refine`: the stages of the best plans beside the ranking.

use anyhow::Result;

use super::{OutputFormat, output};
use crate::cost::Costs;
use crate::problem::Problem;
use crate::refine::ranking::{Entry, refine_ranking};
use crate::refine::{Freedom, Options};
use crate::report::{refined, table};
use crate::search::Ranking;
use crate::space::Restrictions;

/// Arguments of refinement.
#[derive(Debug, clap::Args)]
pub struct RefineArgs {
    /// Choose layers and recomputation of each stage for the K fastest plans, and for the one that came nearest to fitting
    /// [default: 3, without those whose ranks own several stages: they take longer].
    #[arg(long, value_name = "K")]
    refine: Option<u32>,
    /// Leave all stages alike.
    #[arg(long, conflicts_with = "refine")]
    no_refine: bool,
}

/// Plans that are refined where no number is given.
const BY_DEFAULT: u32 = 3;

impl RefineArgs {
    /// Stages of the best plans; none where they were not asked for. Recomputation that was fixed or forbidden stays.
    pub fn entries(&self, problem: &Problem, ranking: &Ranking, restrictions: &Restrictions) -> Vec<Entry> {
        let most = self.refine.unwrap_or(BY_DEFAULT);
        if self.no_refine || most == 0 {
            return Vec::new();
        }
        let freedom = Freedom { recompute: !restrictions.mentions("recompute"), ..Freedom::default() };
        let options = Options { freedom, ..Options::default() };
        refine_ranking(&Costs::new(problem), ranking, restrictions, (most as usize, self.refine.is_some()), &options)
    }
}

/// The table of refined plans and what it means; empty where none has stages that fit.
pub fn text(problem: &Problem, ranking: &Ranking, entries: &[Entry], format: OutputFormat) -> Result<String> {
    if entries.iter().all(|entry| entry.outcome.is_err()) {
        return Ok(String::new());
    }
    let sheet = output::sheets(&[refined::sheet(problem, entries)], format)?;
    let fastest = ranking.evaluations.first().map(|evaluation| evaluation.step.total());
    let words = refined::sentence(entries, fastest);
    let words = if format == OutputFormat::Table { table::wrapped(&words) } else { words };
    Ok(if words.is_empty() { format!("\n{sheet}") } else { format!("\n{sheet}\n{words}\n") })
}

/// Says of plans that nearly fit why other stages do not help.
pub fn talk_of_misses(entries: &[Entry]) {
    for entry in entries {
        if let Err(why) = &entry.outcome {
            output::talk(&format!("nor with other stages: {}: {why}", entry.plan));
        }
    }
}
