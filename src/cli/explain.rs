//! `meshwright explain`: cost and memory of one plan in detail.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::effort::{EffortArgs, EffortLimits};
use super::files::{ForceArgs, check_free, write};
use super::format::OutputFormat;
use super::progress::Progress;
use super::why_not::why_not;
use super::{Outcome, output, pooled};
use crate::question::{ExplainQuestion, Explanation, Subject};
use crate::report::{explain, placed, svg, trace};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_planner::pools::Pooled;
use meshwright_planner::search::nearest_feasible;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    asked: ExplainQuestion,
    /// Second plan to compare, term by term; settings that it leaves open are completed in the fastest way.
    #[arg(long, value_name = "PLAN")]
    why_not: Option<String>,
    /// Name the function in the source code behind each term of time and tenant of memory.
    #[arg(long = "where")]
    origins: bool,
    /// Write the step as a Chrome trace, for ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a drawing of the pipeline, its bubbles and the memory of each stage.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    effort: EffortArgs,
    #[command(flatten)]
    force: ForceArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    check_free(args.trace.iter().chain(&args.svg), args.force.existing())?;
    let asked = &args.asked;
    let problem = match output::noted(asked.problem.subject(None)?) {
        Subject::Cluster(problem) => *problem,
        Subject::Pools(pooled) => return over_pools(args, &pooled),
    };
    let progress = Progress::new();
    let effort = args.effort.start();
    let plan = asked.plan_on(&problem, &|done, all| {
        progress.at(done, all);
        effort.control()
    });
    progress.finish();
    let Some(plan) = plan? else {
        effort.talk();
        output::talk("no plan runs: `meshwright plan` says why");
        return Ok(Outcome::NoPlan);
    };
    let explanation = Explanation::new(&problem, plan, asked.place);
    let Explanation { costs, plan, rejections, evaluation, footprints, placed } = &explanation;
    let text = if args.format == OutputFormat::Json {
        explanation.document(asked)?
    } else {
        let mut sheets = Vec::new();
        if let (Some(other), Some(winner)) = (&args.why_not, evaluation) {
            sheets.extend(why_not(costs, winner, other, &effort)?);
        }
        if let Some(evaluation) = evaluation {
            sheets.push(explain::figures(&problem, evaluation));
            sheets.push(explain::waterfall(&problem, evaluation));
        }
        if !footprints.is_empty() {
            sheets.push(explain::memory(&problem, footprints));
        }
        if !rejections.is_empty() {
            sheets.push(explain::reasons(rejections));
        }
        sheets.extend(args.origins.then(explain::origins));
        sheets.extend(placed::sheet(&problem, placed, 0.0));
        output::sheets(&sheets, args.format)?
    };
    output::print(&text)?;
    if let Some(why) = placed::nothing(placed) {
        output::talk(&format!("--place: {why}"));
    }
    pictures(args, costs, plan)?;
    for rejection in rejections {
        output::talk(&format!("does not run: {rejection}"));
    }
    if !rejections.is_empty() {
        nearest(costs, plan, &effort);
    }
    effort.talk();
    Ok(if rejections.is_empty() { Outcome::Answered } else { Outcome::NoPlan })
}

/// Runs the command on pools, which it cannot draw or compare.
fn over_pools(args: &Args, pooled: &Pooled) -> Result<Outcome> {
    if args.why_not.is_some() || args.asked.place || args.trace.is_some() || args.svg.is_some() {
        bail!(
            "--why-not, --place, --trace and --svg do not apply to pools of heterogeneous GPUs: name one pool's \
            own cluster"
        );
    }
    pooled::explain(pooled, args.asked.plan.as_deref(), args.format)
}

/// Reports the nearest feasible plan on stderr.
fn nearest(costs: &Costs, plan: &Plan, effort: &EffortLimits) {
    if let Some(near) = nearest_feasible(costs, plan, &|_, _| effort.control()) {
        output::talk(&format!("nearest feasible plan: {}, {} per step", near.plan, near.step.total()));
    }
}

fn pictures(args: &Args, costs: &Costs, plan: &Plan) -> Result<()> {
    if args.trace.is_none() && args.svg.is_none() {
        return Ok(());
    }
    let Some(timeline) = costs.timeline(plan) else {
        bail!(
            "--trace and --svg: schedule {} cannot run {} micro-batches on {} ranks\n\n\
             hint: interleaving needs whole groups of pp micro-batches; dualpipe and dualpipe-v need at least 2·pp, \
             and dualpipe an even number of both",
            plan.schedule,
            plan.micro_batches(costs.problem.workload().global_batch),
            plan.layout.pp
        );
    };
    let existing = args.force.existing();
    if let Some(file) = &args.trace {
        write(file, &trace::chrome(&timeline)?, existing)?;
    }
    if let Some(file) = &args.svg {
        write(file, &svg::picture(costs.problem, &timeline), existing)?;
    }
    Ok(())
}
