//! Answer of `plan` where no plan runs.

use anyhow::Result;

use crate::cli::format::OutputFormat;
use crate::cli::{Outcome, output, refined};
use crate::question::{PlanAnswer, PlanQuestion, counts};
use crate::report::plans;
use meshwright_engine::cost::Costs;
use meshwright_engine::problem::Problem;
use meshwright_frameworks as frameworks;
use meshwright_planner::limits::Limits;
use meshwright_planner::search::{Ranking, SearchProof};
use meshwright_planner::space::{check, parse_plan};

/// Reports the rules that reject all plans, and the nearest plan.
pub fn no_plan(question: &PlanQuestion, answer: &PlanAnswer, format: OutputFormat) -> Result<Outcome> {
    let PlanAnswer { problem, found, refined, .. } = answer;
    let (ranking, fix) = (&found.ranking, &question.plans.fix);
    if format == OutputFormat::Json {
        output::print(&answer.document(question)?.text()?)?;
    }
    let stopped = matches!(ranking.certificate.proof, SearchProof::Stopped { .. });
    let none = if stopped { "no plan found in time" } else { "no feasible plan" };
    output::talk(&format!("{none}: {}\n{}", problem.heading(), counts(ranking)));
    if stopped {
        output::talk("hint: a longer --time-limit, or a larger --memory-limit");
        return Ok(Outcome::NoPlan);
    }
    if ranking.rejections.is_empty() {
        output::talk("no plan satisfies --fix, --forbid and --for on this number of GPUs");
    } else {
        output::talk(output::sheets(&[plans::rejected(ranking)], OutputFormat::Table)?.trim_end());
    }
    let limits = answer.options.restrictions.limits();
    let is_bare = question.plans.framework.is_none();
    let reasons = nearest_to_fixed(problem, fix, limits, is_bare, ranking.rejections.is_empty());
    if !reasons.is_empty() {
        output::talk(&format!("--fix {}: {}", fix.join(" --fix "), reasons.join("; ")));
    }
    if let Some(miss) = &ranking.nearest {
        output::talk(&format!("nearest miss: {}: {}", miss.plan, miss.reason));
    }
    refined::talk_of_misses(refined);
    output::talk(&hint(problem, ranking));
    Ok(Outcome::NoPlan)
}

/// Hint on what to change. Where the batch alone rejects plans, the nearest multiples of the odd factors of the GPUs, which no degree
/// of tensor, context or pipeline parallelism is likely to take.
fn hint(problem: &Problem, ranking: &Ranking) -> String {
    let batch = problem.workload().global_batch;
    let gpus = problem.cluster().gpus;
    let odd = gpus >> gpus.trailing_zeros();
    let is_awkward = ranking.rejections.iter().all(|rule| rule.rule == "batch") && !batch.is_multiple_of(odd);
    if !ranking.rejections.is_empty() && is_awkward {
        let (below, above) = (batch / odd * odd, batch.div_ceil(odd) * odd);
        let nearest = if below == 0 { above.to_string() } else { format!("{below} or {above}") };
        return format!("hint: --global-batch {nearest}, which divides among replicas of {gpus} GPUs");
    }
    "hint: more --gpus, a shorter --seq-len, another --global-batch, a smaller --optimizer recipe, or fewer --fix and \
     --forbid"
        .to_owned()
}

/// Reasons why the simplest plan with the fixed values does not run, or is not launched by the framework or, where that
/// bounds plans, by the stack's release; empty if nothing is fixed, or to ranges or lists. `is_empty` = no plan was considered.
fn nearest_to_fixed(
    problem: &Problem,
    fix: &[String],
    limits: Option<&Limits>,
    of_release: bool,
    is_empty: bool,
) -> Vec<String> {
    let Ok(plan) = parse_plan(&fix.join(" "), problem) else { return Vec::new() };
    if fix.is_empty() {
        return Vec::new();
    }
    // What the simplest completion needs is no reason where the fixed values themselves are illegal, or no plan has them.
    let mut rejections = check(&Costs::new(problem), &plan);
    if is_empty || rejections.iter().any(|why| !why.is_of_memory()) {
        rejections.retain(|why| !why.is_of_memory());
    }
    let rejections = rejections.into_iter().map(|why| why.to_string());
    let of_release = of_release.then(|| frameworks::release_refusal(problem, &plan)).flatten();
    let of_files = || frameworks::files_refusal(limits?, problem, &plan);
    rejections.chain(of_release.or_else(of_files)).collect()
}
