//! Search of `plan`: for the step time with a recommendation, for other objectives a ranking alone.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::cli::economy::{self, Economy, ObjectiveFlag};
use crate::cli::output;
use crate::cli::plan_args::Args;
use crate::cli::progress::Progress;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{percent, thousands};
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_planner::advice::{Advice, Prudence, advise};
use meshwright_planner::confidence;
use meshwright_planner::search::{ChangedOptimum, Goal, Ranking, SearchOptions, SearchProof, search_for, sensitivity};

/// Result of the search that the arguments ask for.
pub struct Found {
    /// Recommendation, where step time is what counts.
    pub advice: Option<Advice>,
    /// Ranked plans: those of the recommendation, or those of another objective.
    pub ranking: Ranking,
    /// Whether the first plan is proved to be the best.
    pub proved: bool,
}

impl Found {
    /// The plan to launch: the recommended one, or the first by another objective.
    pub fn best(&self) -> Option<&Evaluation> {
        self.advice.as_ref().map_or_else(|| self.ranking.evaluations.first(), Advice::plan)
    }

    /// Problem that was searched, under the memory ceiling of the accepted risk.
    pub fn searched<'a>(&'a self, problem: &'a Problem) -> &'a Problem {
        self.advice.as_ref().map_or(problem, |advice| &advice.searched)
    }

    /// Optimum with what changes it; none where the answer has no single optimum.
    pub fn sensitivity(&self) -> Option<(&Evaluation, Vec<ChangedOptimum>)> {
        let advice = self.advice.as_ref()?;
        let optimum = advice.optimum.as_ref()?;
        Some((optimum, sensitivity(&advice.searched, &advice.restrictions, optimum)))
    }
}

/// Searches by the goal of the arguments, within their time limit.
pub fn find(args: &Args, problem: &Problem, options: &SearchOptions, risk: f64, economy: Option<&Economy>) -> Found {
    let progress = Progress::new();
    let start = Instant::now();
    let control = |done, all| {
        progress.at(done, all);
        let over = args.time_limit.is_some_and(|limit| start.elapsed().as_secs_f64() > limit);
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let prudence = Prudence { risk, exotic: args.exotic };
    let goal = if args.pareto { Goal::Pareto } else { args.economy.objective.goal() };
    let found = if goal == Goal::Fastest && args.economy.objective != ObjectiveFlag::Energy {
        let advice = advise(problem, options, prudence, &control);
        Found { ranking: advice.ranking.clone(), advice: Some(advice), proved: true }
    } else {
        let mut options = options.clone();
        if !args.exotic {
            options.restrictions.proven_only(problem);
        }
        let limited = problem.clone().under_ceiling(confidence::ceiling(problem, risk));
        let (ranking, proved) = if args.economy.objective == ObjectiveFlag::Energy {
            economy::rank(args.economy.objective, economy, &limited, &options, &|done, all| progress.at(done, all))
        } else {
            (search_for(&limited, &options, goal, &control), true)
        };
        Found { advice: None, ranking, proved }
    };
    progress.finish();
    found
}

/// Framework whose files the plans must suit where none is named: that of the stack. Reports on stderr if it cannot train the
/// model, which leaves the plans unrestricted by files.
pub fn default_launcher(args: &Args, problem: &Problem) -> Option<&'static Framework> {
    if args.framework.is_some() {
        return None;
    }
    let launcher = frameworks::of_stack(problem);
    let of_family = frameworks::FRAMEWORKS.into_iter().find(|framework| framework.family() == problem.stack().family);
    if let (None, Some(framework)) = (launcher, of_family) {
        let why: Vec<String> = framework.limits.problem_obstacles(problem).iter().map(ToString::to_string).collect();
        output::talk(&format!(
            "no files can be written for this model: {framework} cannot express it ({}); plans keep to its schedules",
            why.join("; ")
        ));
    }
    launcher
}

/// Counts of the space and of how its plans were excluded, with the state of the proof.
pub fn counts(ranking: &Ranking) -> String {
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
        "{} plans: {} evaluated ({} schedules simulated), {} rejected, {} dominated, {} cut by lower bounds; {proof}",
        thousands(certificate.size),
        thousands(certificate.evaluated),
        thousands(certificate.simulated),
        thousands(certificate.rejected),
        thousands(certificate.dominated),
        thousands(cut)
    )
}
