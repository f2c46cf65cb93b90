//! `meshwright plan` on pools of unlike GPUs.

use anyhow::{Result, bail};

use super::economy::Objective;
use super::plan::{Args, restrictions};
use super::{Outcome, OutputFormat, output};
use crate::express::Target;
use crate::pools::Pooled;
use crate::report::{pools, table};
use crate::search::Options;

/// Answers.
pub fn run(args: &Args, pooled: &Pooled, target: Option<Target>) -> Result<Outcome> {
    refuse(args)?;
    let options = Options { top: args.top as usize, restrictions: restrictions(args, target, &pooled.joined()[0])? };
    let answer = pooled.answer(&options);
    let text = match args.format {
        OutputFormat::Json => pools::json(pooled, &answer)?,
        OutputFormat::Csv => output::sheets(&[pools::mixtures(pooled, &answer)], args.format)?,
        OutputFormat::Table | OutputFormat::Markdown => {
            let sheets = [pools::mixtures(pooled, &answer), pools::alone(pooled, &answer)];
            let words = pools::paragraph(pooled, &answer);
            let words = if args.format == OutputFormat::Table { table::wrapped(&words) } else { words };
            format!("{}\n{words}\n", output::sheets(&sheets, args.format)?)
        }
    };
    if answer.mixtures.is_empty() && args.format != OutputFormat::Json {
        output::talk("no feasible plan uses all pools");
        output::talk(&text);
        return Ok(Outcome::NoPlan);
    }
    output::print(&text)?;
    output::talk(&format!("{} ways to share the work out priced", answer.priced));
    Ok(if answer.mixtures.is_empty() { Outcome::NoPlan } else { Outcome::Answered })
}

/// What is not answered of pools, in one line each.
fn refuse(args: &Args) -> Result<()> {
    let asked = [
        ("--emit", args.emit.is_some(), "no framework's files say which pool a rank lives in; order the hosts by pool"),
        ("--pareto", args.pareto, "plans over pools are ranked by step time"),
        ("--objective", args.economy.objective != Objective::StepTime, "plans over pools are ranked by step time"),
        ("--tokens", args.economy.tokens.is_some(), "bills are of one kind of GPU; give each [[pool]] its `price`"),
        ("--sensitivity", args.sensitivity, "it changes one machine, and there are several"),
        ("--allow-idle", args.allow_idle, "all GPUs of all pools are used; make a pool smaller instead"),
        ("--time-limit", args.time_limit.is_some(), "the search over pools is not cut short"),
    ];
    for (flag, there, why) in asked {
        if there {
            bail!("{flag} does not go with pools of unlike GPUs: {why}");
        }
    }
    Ok(())
}
