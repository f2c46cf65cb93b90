//! `meshwright explain`: cost and memory of one plan in detail.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::effort::{EffortArgs, EffortLimits};
use super::files::{ForceArgs, check_free, write};
use super::format::OutputFormat;
use super::plan::html;
use super::progress::Progress;
use super::why_not::{nearest_launchable, why_not};
use super::{Outcome, output, pooled};
use crate::question::{ExplainQuestion, Explanation, Subject};
use crate::report::html::{HtmlReport, code, figures, paragraph, plan_sections, step_drawing};
use crate::report::{Sheet, answer, explain, placed, trace, transfers};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_planner::pools::Pooled;

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
    /// Write a report: where the time goes, the memory of every rank, the pipeline.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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
    check_free(args.trace.iter().chain(&args.svg).chain(&args.html), args.force.existing())?;
    let asked = &args.asked;
    let posed = match output::noted(asked.problem.subject(None)?) {
        Subject::Cluster(posed) => *posed,
        Subject::Pools(pooled) => return over_pools(args, &pooled),
    };
    let progress = Progress::new();
    let effort = args.effort.start();
    let found = asked.plan_on(posed, &|done, all| {
        progress.at(done, all);
        effort.control()
    });
    progress.finish();
    let (problem, plan) = output::noted(found?);
    let Some(plan) = plan else {
        effort.talk();
        output::talk("no plan runs: `meshwright plan` says why");
        return Ok(Outcome::NoPlan);
    };
    let explanation = asked.explanation(&problem, plan);
    let Explanation { costs, plan, rejections, evaluation, footprints, placed } = &explanation;
    let is_compared = args.format != OutputFormat::Json || args.html.is_some();
    let compared: Vec<Sheet> = match (&args.why_not, evaluation) {
        (Some(other), Some(winner)) if is_compared => why_not(costs, winner, other, &effort)?.into_iter().collect(),
        _ => Vec::new(),
    };
    let text = if args.format == OutputFormat::Json {
        explanation.document(asked)?
    } else {
        let mut sheets = compared.clone();
        if !rejections.is_empty() {
            let mut reasons = explain::reasons(rejections);
            if evaluation.is_none() {
                reasons.title = format!("{}: {plan} does not run", problem.heading());
            }
            sheets.push(reasons);
        }
        if let Some(evaluation) = evaluation {
            sheets.push(explain::figures(&problem, evaluation));
            sheets.push(explain::waterfall(&problem, evaluation));
        }
        if !footprints.is_empty() {
            sheets.push(explain::memory(&problem, footprints));
        }
        sheets.extend(evaluation.as_ref().filter(|_| asked.collectives).map(|_| transfers::sheet(costs, plan)));
        sheets.extend(args.origins.then(explain::origins));
        sheets.extend(placed::sheet(&problem, placed, 0.0));
        output::sheets(&sheets, args.format)?
    };
    output::print(&text)?;
    if let Some(why) = placed::nothing(placed) {
        output::talk(&format!("--place: {why}"));
    }
    write_pictures(args, costs, plan)?;
    if let Some(file) = &args.html {
        write(file, &report(&explanation, &compared), args.force.existing())?;
    }
    if !rejections.is_empty() {
        talk_of_nearest(costs, plan, &effort);
    }
    effort.talk();
    Ok(if rejections.is_empty() { Outcome::Answered } else { Outcome::NoPlan })
}

/// Report in HTML: the plan, the plans that it is compared with, and its details.
fn report(explanation: &Explanation, compared: &[Sheet]) -> String {
    let Explanation { costs, plan, rejections, evaluation, footprints, placed } = explanation;
    let problem = costs.problem;
    let mut report = HtmlReport::new(html::title(problem), vec![problem.heading()]);
    let words = paragraph(&answer::describe(problem, plan)).with("class", "lead");
    let large = evaluation.as_ref().map(|evaluation| figures(&html::large_figures(problem, evaluation)));
    let line = code(&format!("--plan \"{plan}\""));
    report.answer("The plan", [words].into_iter().chain(large).chain([line]));
    if !rejections.is_empty() {
        report.sheet(&explain::reasons(rejections));
    }
    for sheet in compared {
        report.sheet(sheet);
    }
    plan_sections(&mut report, costs, evaluation.as_ref(), footprints);
    if let Some(sheet) = placed::sheet(problem, placed, 0.0) {
        report.sheet(&sheet);
    }
    report.text()
}

/// Runs the command on pools, which it cannot draw or compare.
fn over_pools(args: &Args, pooled: &Pooled) -> Result<Outcome> {
    if args.why_not.is_some()
        || args.asked.place
        || args.asked.collectives
        || args.trace.is_some()
        || args.svg.is_some()
        || args.html.is_some()
    {
        bail!(
            "--why-not, --place, --collectives, --trace, --svg and --html do not apply to pools of heterogeneous GPUs: name \
            one pool's own cluster"
        );
    }
    pooled::explain(pooled, args.asked.plan.as_deref(), args.format)
}

/// Reports the nearest feasible plan that the stack's framework can launch, on stderr.
fn talk_of_nearest(costs: &Costs, plan: &Plan, effort: &EffortLimits) {
    if let Some(near) = nearest_launchable(costs, plan, effort) {
        output::talk(&format!("nearest feasible plan: {}, {} per step", near.plan, near.step.total()));
    }
}

/// Writes the trace and the drawing of the step that were asked for.
fn write_pictures(args: &Args, costs: &Costs, plan: &Plan) -> Result<()> {
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
        write(file, &step_drawing(costs.problem, &timeline), existing)?;
    }
    Ok(())
}
