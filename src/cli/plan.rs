//! `meshwright plan`: ranks the layouts that can be launched and recommends one.

mod answer;
mod found;
mod hints;
mod none;

use anyhow::Result;

use super::files::Existing;
use super::launch_files::{self, Chosen};
use super::plan_args::{Args, restrictions};
use super::problem::ProblemArgs;
use super::{Outcome, output, pooled};
use answer::PlanAnswer;
use found::{counts, default_launcher, find};
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Offload;
use meshwright_engine::problem::Problem;
use meshwright_frameworks as frameworks;
use meshwright_planner::catalog::Overrides;
use meshwright_planner::search::SearchOptions;
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

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let written = args.emit.as_deref().map(launch_files::framework).transpose()?;
    let framework = args.framework.as_deref().map_or(written, frameworks::named);
    let ProblemArgs { model, cluster, options } = &args.problem;
    if let Some(pooled) = options.pooled_for(model, cluster, framework)? {
        return pooled::run(args, &pooled, framework);
    }
    let (problem, risk) = args.problem.problem_and_risk(framework)?;
    if !launch_files::model_runs(framework, &problem) {
        return Ok(Outcome::NoPlan);
    }
    let launcher = framework.or_else(|| default_launcher(args, &problem));
    let restrictions = restrictions(args, launcher, &problem)?;
    let economy = args.economy.economy(&problem, &Overrides::parse(&args.problem.options.set)?)?;
    let options = SearchOptions { top: args.top as usize, restrictions };
    let found = find(args, &problem, &options, risk, economy.as_ref());
    let refined = args.refine.entries(found.searched(&problem), &found.ranking, &options.restrictions);
    if found.ranking.evaluations.is_empty() && refined.iter().all(|entry| entry.outcome.is_err()) {
        return no_plan(&problem, &found.ranking, args, &refined);
    }
    let changed = if args.sensitivity { found.sensitivity() } else { None };
    let placed = args.place.entries(&problem, &found.ranking);
    let (economy, found, refined, placed) = (economy.as_ref(), &found, &refined, &placed);
    let parts = PlanAnswer { args, problem: &problem, framework, risk, found, refined, changed, economy, placed };
    output::print(&parts.text()?)?;
    talk_of_hosts(&problem, found.best());
    if !found.proved {
        output::talk("least energy found, not proved optimal: too many layouts are nearly as fast");
    }
    for hint in hints::hints(args, &problem, &options, risk, found) {
        output::talk(&format!("hint: {hint}"));
    }
    output::talk(&counts(&found.ranking));
    match (written, &args.out, Chosen::best(found.best(), refined)) {
        (Some(framework), Some(folder), Some(chosen)) => {
            let (plan, hosts) = args.place.files(&problem, placed, &chosen).unzip();
            let chosen = Chosen { plan: plan.as_ref().unwrap_or(chosen.plan), ..chosen };
            let Some(mut files) =
                launch_files::files(framework, &problem, &chosen, &args.problem.recipe_name(&problem))
            else {
                return Ok(Outcome::NoPlan);
            };
            files.extend(hosts);
            launch_files::written(folder, &files, Existing::from_force(args.force))?;
            Ok(Outcome::Answered)
        }
        _ => Ok(Outcome::Answered),
    }
}
