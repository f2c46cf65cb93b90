//! `meshwright plan`: ranks the layouts that can be launched and recommends one.

mod answer;
mod hints;
pub(super) mod html;
mod none;

use anyhow::Result;

use super::effort::EffortLimits;
use super::files::{check_free, write};
use super::launch_files;
use super::plan_args::Args;
use super::progress::Progress;
use super::{Outcome, output, placed, pooled};
use crate::files::Existing;
use crate::question::{self, Chosen, FileOptions, PlanAnswer, PlanQuestion, Posed, Subject, counts};
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Offload;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::{self as frameworks, Framework};
use none::no_plan;

/// Reports on stderr if the recommended plan offloads tensors to hosts of unknown memory.
fn talk_of_hosts(problem: &Problem, best: Option<&Evaluation>) {
    let unknown = problem.cluster().host_memory.is_none();
    let leaves = best.filter(|winner| unknown && winner.plan.offload != Offload::NONE);
    if let Some(winner) = leaves {
        let left = Costs::new(problem).fullest_host(&winner.plan);
        output::talk(&format!(
            "the plan offloads {left} to a host, and the memory of the hosts is unknown: --set \
             cluster.host_memory=\"2 TB\""
        ));
    }
}

/// Answer of the question, with progress on stderr, within its limits of time and memory.
fn solve(
    question: &PlanQuestion,
    posed: Posed,
    framework: Option<&'static Framework>,
    effort: &EffortLimits,
) -> Result<PlanAnswer> {
    let progress = Progress::new();
    let control = |done, all| {
        progress.at(done, all);
        effort.control()
    };
    let answer = question.solve(posed, framework, &control);
    progress.finish();
    Ok(output::noted(answer?))
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let existing = Existing::from_force(args.force);
    check_free(&args.html, existing)?;
    let written = args.emit.as_deref().map(question::framework).transpose()?;
    let release = written.map_or(Ok(None), |framework| question::release(framework, args.release.as_deref()))?;
    let script = written.zip(args.out.as_deref()).map(|(framework, folder)| folder.join(framework.script()));
    check_free(&script, existing)?;
    let question = args.question();
    let framework = args.plans.framework.as_deref().map_or(written, frameworks::named);
    let (unlimited, risk) = args.problem.split_risk()?;
    let posed = match output::noted(unlimited.subject(framework)?) {
        Subject::Pools(pooled) => return pooled::run(args, &pooled, framework, risk),
        Subject::Cluster(posed) => posed.accepting(risk),
    };
    if !launch_files::model_runs(framework, posed.of_recipe()) {
        return Ok(Outcome::NoPlan);
    }
    let effort = EffortLimits::new(args.plans.time_limit, args.plans.memory_limit);
    let answer = solve(&question, posed, framework, &effort)?;
    effort.talk();
    if answer.is_empty() {
        if args.html.is_some() {
            output::talk("--html: no plan runs, so that there is nothing to report");
        }
        return no_plan(&question, &answer, args.format);
    }
    let PlanAnswer { problem, risk, options, found, refined, placed, .. } = &answer;
    output::print(&answer::text(args, &question, &answer)?)?;
    if let Some(file) = &args.html {
        write(file, &html::text(&args.problem, &answer), existing)?;
    }
    talk_of_hosts(problem, found.best());
    if !found.proved {
        output::talk("least energy found, not proved optimal: too many layouts are nearly as fast");
    }
    for hint in hints::hints(&question, &effort, problem, options, *risk, found) {
        output::talk(&format!("hint: {hint}"));
    }
    output::talk(&counts(&found.ranking));
    match (written, &args.out, Chosen::best(found.best(), refined)) {
        (Some(framework), Some(folder), Some(chosen)) => {
            let (plan, hosts) = placed::files(&args.plans.place, problem, placed, &chosen).unzip();
            let options = FileOptions { release, ..FileOptions::default() };
            let chosen = Chosen { plan: plan.as_ref().unwrap_or(chosen.plan), ..chosen };
            let files = chosen.files(framework, problem, &args.problem.recipe_name(problem), options);
            let Some(mut files) = launch_files::files_or_talk(files) else { return Ok(Outcome::NoPlan) };
            files.extend(hosts);
            launch_files::written(folder, &files, existing)?;
            Ok(Outcome::Answered)
        }
        _ => Ok(Outcome::Answered),
    }
}
