//! `explain --why-not`: another plan, completed where it leaves settings open, against the explained one.

use anyhow::{Result, anyhow};

use super::effort::EffortLimits;
use super::output;
use crate::report::compare::{self, Remark};
use crate::report::{Sheet, explain};
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_frameworks as frameworks;
use meshwright_planner::search::{Goal, SearchOptions, nearest_feasible, search_with};
use meshwright_planner::space::{Restrictions, check, parse_plan};

/// Comparison of another plan with the explained one. Of a plan that cannot run, the reasons and the nearest feasible plan.
pub fn why_not(costs: &Costs, winner: &Evaluation, other: &str, effort: &EffortLimits) -> Result<Vec<Sheet>> {
    let plan = parse_plan(other, costs.problem).map_err(|why| anyhow!("--why-not: {why}"))?;
    if let Some(best) = completed(costs, other, effort) {
        return Ok(vec![compare::against_winner(costs.problem, winner, &best, other, &filled(&best, other))]);
    }
    let rejections = check(costs, &plan);
    if rejections.is_empty() {
        return Ok(vec![compare::against_winner(
            costs.problem,
            winner,
            &costs.evaluate_simulated(&plan),
            other,
            &refused(costs, &plan),
        )]);
    }
    let mut sheets = vec![explain::reasons(&rejections)];
    if let Some(near) = nearest_launchable(costs, &plan, effort) {
        output::talk(&format!("--why-not: {other} does not run; the nearest feasible plan is compared"));
        sheets.push(compare::against_winner(costs.problem, winner, &near, &near.plan.to_string(), &Remark::None));
    }
    Ok(sheets)
}

/// Nearest feasible plan to a plan that does not run, among those that the stack's framework can launch.
pub fn nearest_launchable(costs: &Costs, plan: &Plan, effort: &EffortLimits) -> Option<Evaluation> {
    let launchable = |restrictions: &mut Restrictions| frameworks::keep_launchable(restrictions, costs.problem);
    nearest_feasible(costs, plan, &launchable, &|_, _| effort.control())
}

/// Settings of a plan's text.
fn settings(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c == ',').filter(|item| !item.is_empty())
}

/// Key of a setting, by its name in `--fix`.
fn key(setting: &str) -> &str {
    match setting.split_once('=').map_or(setting, |(key, _)| key) {
        "micro-batch" => "mbs",
        key => key,
    }
}

/// Fastest plan with the settings of a text that the stack's framework can express and that fits; none if there is none.
fn completed(costs: &Costs, text: &str, effort: &EffortLimits) -> Option<Evaluation> {
    let mut restrictions = Restrictions::default();
    for setting in settings(text) {
        let (_, value) = setting.split_once('=')?;
        restrictions.fix(&format!("{}={value}", key(setting))).ok()?;
    }
    frameworks::keep_launchable(&mut restrictions, costs.problem);
    restrictions.proven_only(costs.problem);
    let options = SearchOptions { top: 1, restrictions };
    let ranking = search_with(costs, &options, Goal::Fastest, &|_, _| effort.control());
    ranking.evaluations.into_iter().next()
}

/// The remark on a legal plan that the stack's release or its framework cannot run.
fn refused(costs: &Costs, plan: &Plan) -> Remark {
    frameworks::refusal(costs.problem, plan).map_or(Remark::None, Remark::Refused)
}

/// Settings of a plan that a text leaves open.
fn filled(best: &Evaluation, text: &str) -> Remark {
    let plan = best.plan.to_string();
    let open = |setting: &&str| !settings(text).any(|named| key(named) == key(setting));
    let filled: Vec<String> = settings(&plan).filter(open).map(ToOwned::to_owned).collect();
    if filled.is_empty() { Remark::None } else { Remark::Filled(filled) }
}
