//! `meshwright plan`: ranks every legal layout and explains why the first wins.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::Result;

use super::economy;
use super::files::Existing;
use super::format::OutputFormat;
use super::problem::ProblemArgs;
use super::progress::Progress;
use super::refined;
use super::{Outcome, launch_files, output, pooled};
use crate::cli::plan_args::{Args, restrictions};
use crate::report::{compare, csv, json, plans, table, why};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Offload;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::percent;
use meshwright_frameworks as frameworks;
use meshwright_planner::catalog::Overrides;
use meshwright_planner::refine::ranking::RefinedEntry;
use meshwright_planner::search::{Goal, Ranking, SearchOptions, SearchProof, search_for, sensitivity};
use meshwright_planner::space::{check, parse_plan};

/// Reports on stderr if the fastest plan offloads tensors to hosts of unknown memory.
fn talk_of_hosts(problem: &Problem, ranking: &Ranking) {
    let unknown = problem.cluster().host_memory.is_none();
    let leaves = ranking.evaluations.first().filter(|winner| unknown && winner.plan.offload != Offload::NONE);
    if let Some(winner) = leaves {
        let left = Costs::new(problem).fullest_host(&winner.plan);
        output::talk(&format!(
            "the first plan offloads {left} to a host, and the memory of the hosts is unknown: --set \
             cluster.host_memory=\"2 TB\""
        ));
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let written = args.emit.as_deref().map(launch_files::framework).transpose()?;
    let stack_of = args.framework.as_deref().map_or(written, frameworks::named);
    let ProblemArgs { model, cluster, options } = &args.problem;
    if let Some(pooled) = options.pooled_for(model, cluster, stack_of)? {
        return pooled::run(args, &pooled, stack_of);
    }
    let problem = args.problem.problem_for(stack_of)?;
    let restrictions = restrictions(args, stack_of, &problem)?;
    if !launch_files::model_runs(stack_of, &problem) {
        return Ok(Outcome::NoPlan);
    }
    let economy = args.economy.economy(&problem, &Overrides::parse(&args.problem.options.set)?)?;
    let progress = Progress::new();
    let options = SearchOptions { top: args.top as usize, restrictions };
    let start = Instant::now();
    let control = |done, all| {
        progress.at(done, all);
        let over = args.time_limit.is_some_and(|limit| start.elapsed().as_secs_f64() > limit);
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let goal = if args.pareto { Goal::Pareto } else { args.economy.objective.goal() };
    let (ranking, proved) = if args.economy.objective == economy::ObjectiveFlag::Energy {
        economy::rank(args.economy.objective, economy.as_ref(), &problem, &options, &|done, all| {
            progress.at(done, all);
        })
    } else {
        (search_for(&problem, &options, goal, &control), true)
    };
    progress.finish();
    let ranking = launch_files::expressible(stack_of, &problem, ranking);
    let refined = args.refine.entries(&problem, &ranking, &options.restrictions);
    if ranking.evaluations.is_empty() && refined.iter().all(|entry| entry.outcome.is_err()) {
        return no_plan(&problem, &ranking, args, &refined);
    }
    let changes = match ranking.evaluations.first() {
        Some(winner) if args.sensitivity => sensitivity(&problem, &options.restrictions, winner),
        Some(_) | None => Vec::new(),
    };
    let placed = args.place.entries(&problem, &ranking);
    let text = match args.format {
        OutputFormat::Json => {
            let bills = economy.as_ref().map_or_else(|| Ok(Vec::new()), |economy| economy.bills(&problem, &ranking))?;
            let document = json::ranking_refined(&problem, &ranking, bills, &refined)?;
            let document = json::with_arguments(&document, &args.problem.resolved(&problem, stack_of))?;
            let document = args.place.json(&problem, &placed, document)?;
            if changes.is_empty() {
                document
            } else {
                let told: Vec<json::Sensitivity> = changes.iter().map(json::Sensitivity::new).collect();
                json::with(&document, "sensitivity", &told)?
            }
        }
        OutputFormat::Csv => {
            let rows = ranking.evaluations.iter().map(|evaluation| json::Priced::new(&problem, evaluation));
            csv::render_objects(&rows.map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?)?
        }
        OutputFormat::Table | OutputFormat::Markdown => {
            let mut sheets = vec![plans::ranked(&problem, &ranking)];
            if let Some(winner) = ranking.evaluations.first().filter(|_| args.sensitivity) {
                sheets.push(compare::sensitivity(winner, &changes));
            }
            let sheet = output::sheets(&sheets, args.format)?;
            let why = why::paragraph(&problem, &ranking);
            let why = if args.format == OutputFormat::Table { table::wrapped(&why) } else { why };
            let bills = match &economy {
                Some(economy) => {
                    let (bills, interruptions) = economy.sheet(&problem, &ranking);
                    let interruptions =
                        if args.format == OutputFormat::Table { table::wrapped(&interruptions) } else { interruptions };
                    format!("\n{}\n{interruptions}\n", output::sheets(&[bills], args.format)?)
                }
                None => String::new(),
            };
            let refined = refined::text(&problem, &ranking, &refined, args.format)?;
            let placed = args.place.text(&problem, &placed, args.format)?;
            format!("{sheet}\n{why}\n{refined}{placed}{bills}")
        }
    };
    output::print(&text)?;
    talk_of_hosts(&problem, &ranking);
    if !proved {
        output::talk("least energy found, not proved optimal: too many layouts are nearly as fast");
    }
    output::talk(&counts(&ranking));
    match (written, &args.out, launch_files::Chosen::fastest(&ranking, &refined)) {
        (Some(framework), Some(folder), Some(chosen)) => {
            let (plan, hosts) = args.place.files(&problem, &placed, &chosen).unzip();
            let chosen = launch_files::Chosen { plan: plan.as_ref().unwrap_or(chosen.plan), ..chosen };
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

fn counts(ranking: &Ranking) -> String {
    let certificate = &ranking.certificate;
    let cut: u64 = certificate.cut.iter().map(|cut| cut.count).sum();
    let proof = match (certificate.proof, ranking.evaluations.first()) {
        (SearchProof::Optimal, _) => "proved optimal in the model".to_owned(),
        (SearchProof::Stopped { .. }, Some(best)) => {
            format!("stopped early: the best plan may be up to {} faster", percent(certificate.gap(best.step.total())))
        }
        (SearchProof::Stopped { .. }, None) => "stopped before a plan was found".to_owned(),
    };
    format!(
        "{} plans: {} evaluated ({} schedules simulated), {} rejected, {} dominated, {cut} cut by lower bounds; \
        {proof}",
        certificate.size, certificate.priced, certificate.played, certificate.rejected, certificate.dominated
    )
}

/// Reports the rules that reject all plans, and the nearest plan.
fn no_plan(problem: &Problem, ranking: &Ranking, args: &Args, refined: &[RefinedEntry]) -> Result<Outcome> {
    let format = args.format;
    if format == OutputFormat::Json {
        output::print(&json::ranking_refined(problem, ranking, Vec::new(), refined)?)?;
    }
    output::talk(&format!("no feasible plan: {}\n{}", problem.heading(), counts(ranking)));
    if ranking.rejections.is_empty() {
        output::talk("no combination of degrees satisfies --fix, --forbid and --for on this number of GPUs");
        let reasons = nearest_to_fixed(problem, &args.fix);
        if !reasons.is_empty() {
            output::talk(&format!("--fix {}: {}", args.fix.join(" --fix "), reasons.join("; ")));
        }
    } else {
        output::talk(output::sheets(&[plans::rejected(ranking)], OutputFormat::Table)?.trim_end());
    }
    if let Some(miss) = &ranking.nearest {
        output::talk(&format!("nearest miss: {}: {}", miss.plan, miss.reason));
    }
    refined::talk_of_misses(refined);
    output::talk(
        "hint: more --gpus, another --global-batch, a smaller --optimizer recipe, or fewer --fix and --forbid",
    );
    Ok(Outcome::NoPlan)
}

/// Reasons why the simplest plan with the fixed values does not run; empty if the values are ranges or lists.
fn nearest_to_fixed(problem: &Problem, fix: &[String]) -> Vec<String> {
    match parse_plan(&fix.join(" "), problem) {
        Ok(plan) => check(&Costs::new(problem), &plan).iter().map(ToString::to_string).collect(),
        Err(_) => Vec::new(),
    }
}
