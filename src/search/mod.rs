//! The best plans of a problem.

use crate::cost::{Costs, Evaluation};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::space::{self, Restrictions};

/// What to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many plans to keep.
    pub top: usize,
    /// What the user allows.
    pub restrictions: Restrictions,
}

/// Plans rejected by one rule.
#[derive(Clone, Debug)]
pub struct RuleCount {
    /// The rule.
    pub rule: &'static str,
    /// How many.
    pub count: u64,
    /// One of them, with its numbers.
    pub example: String,
}

/// The plan that came nearest to running.
#[derive(Clone, Debug)]
pub struct NearMiss {
    /// The plan.
    pub plan: Plan,
    /// Why it does not run.
    pub reason: String,
}

/// The best plans, fastest first, and what became of the rest.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// Fastest first.
    pub evaluations: Vec<Evaluation>,
    /// Plans looked at.
    pub considered: u64,
    /// Plans priced.
    pub priced: u64,
    /// Rejections by rule.
    pub rejections: Vec<RuleCount>,
    /// The nearest miss.
    pub nearest: Option<NearMiss>,
}

/// Ranks the plans of a problem.
pub fn search(problem: &Problem, options: &Options, progress: &(dyn Fn(u64, u64) + Sync)) -> Ranking {
    let costs = Costs::new(problem);
    let mut ranking =
        Ranking { evaluations: Vec::new(), considered: 0, priced: 0, rejections: Vec::new(), nearest: None };
    for tp in [1, 2, 4, 8] {
        ranking.considered += 1;
        progress(ranking.considered, 4);
        let Ok(plan) = space::text::parse_plan(&format!("tp={tp}"), problem) else { continue };
        if let Some(first) = space::check(&costs, &plan).first() {
            match ranking.rejections.iter_mut().find(|row| row.rule == first.rule()) {
                Some(row) => row.count += 1,
                None => ranking.rejections.push(RuleCount { rule: first.rule(), count: 1, example: first.to_string() }),
            }
            ranking.nearest = Some(NearMiss { plan, reason: first.to_string() });
            continue;
        }
        ranking.priced += 1;
        ranking.evaluations.push(costs.evaluate(&plan));
    }
    ranking.evaluations.sort_by(|a, b| a.step.total().get().total_cmp(&b.step.total().get()));
    ranking.evaluations.truncate(options.top);
    ranking
}
