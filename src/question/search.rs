//! Search of `plan`: for the step time with a recommendation, for other objectives a ranking alone.

use super::economy::{self, Economy, Minimised};
use super::plan::{FRONT_TOLERANCE, PlanOptions};
use meshwright_engine::cost::Evaluation;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{percent, thousands};
use meshwright_frameworks::graphs::BestPlan;
use meshwright_planner::advice::{Advice, CONDITIONED, MeasuredRun, Prudence, advise};
use meshwright_planner::confidence;
use meshwright_planner::search::{
    ChangedOptimum, Control, Goal, Ranking, SearchOptions, SearchProof, search_for, sensitivity,
};

/// Inputs of a search besides the problem and the space.
#[derive(Clone, Copy)]
pub struct SearchInputs<'i> {
    /// Accepted probability that a plan runs out of memory.
    pub risk: f64,
    /// Prices, where an objective needs them.
    pub economy: Option<&'i Economy>,
    /// Measured runs that step times are given.
    pub runs: &'i [MeasuredRun],
}

/// Result of the search that the arguments ask for.
pub struct Found {
    /// Recommendation, where step time is the objective.
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

    /// The plan to launch with the limit that had to be given up for it.
    pub(super) fn graded(&self) -> Option<BestPlan<'_>> {
        self.advice.as_ref().map_or_else(|| Some((None, self.best()?)), Advice::best)
    }

    /// Problem that was searched, under the memory ceiling of the accepted risk.
    pub fn searched<'a>(&'a self, problem: &'a Problem) -> &'a Problem {
        self.advice.as_ref().map_or(problem, |advice| &advice.searched)
    }

    /// Optimum with its sensitivities; none where the answer has no single optimum.
    pub fn sensitivity(&self, control: &Control) -> Option<(Evaluation, Vec<ChangedOptimum>)> {
        let advice = self.advice.as_ref()?;
        let optimum = advice.optimum.as_ref()?;
        Some((optimum.clone(), sensitivity(&advice.searched, &advice.restrictions, optimum, control)))
    }
}

impl PlanOptions {
    /// Whether plans are ranked by step time, with a recommendation.
    pub(super) fn ranks_by_step_time(&self) -> bool {
        !self.pareto && self.economy.objective.goal() == Goal::Fastest && self.economy.objective != Minimised::Energy
    }

    /// Searches by the objective, until done or until `control` ends it.
    pub fn find(&self, problem: &Problem, options: &SearchOptions, inputs: SearchInputs, control: &Control) -> Found {
        let SearchInputs { risk, economy, runs } = inputs;
        let prudence = Prudence { risk, exotic: self.exotic };
        let tolerance = self.pareto_tolerance.unwrap_or(FRONT_TOLERANCE);
        let goal = if self.pareto { Goal::Pareto { tolerance } } else { self.economy.objective.goal() };
        if self.ranks_by_step_time() {
            let considered = if runs.is_empty() { options.top } else { options.top.max(CONDITIONED) };
            let wider = SearchOptions { top: considered, ..options.clone() };
            let advice = advise(problem, &wider, prudence, control).given_runs(problem, runs, options.top);
            return Found { ranking: advice.ranking.clone(), advice: Some(advice), proved: true };
        }
        let mut options = options.clone();
        if !self.exotic {
            options.restrictions.proven_only(problem);
        }
        let limited = problem.clone().under_ceiling(confidence::ceiling(problem, risk));
        let (ranking, proved) = match economy {
            Some(economy) if self.economy.objective == Minimised::Energy => {
                economy::rank_by_energy(economy, &limited, &options, control)
            }
            _ => (search_for(&limited, &options, goal, control), true),
        };
        Found { advice: None, ranking, proved }
    }
}

/// Counts of the space and of how its plans were excluded, with the state of the proof.
pub fn counts(ranking: &Ranking) -> String {
    let certificate = &ranking.certificate;
    let cut: u64 = certificate.cut.iter().map(|cut| cut.count).sum();
    let proof = match (certificate.proof, ranking.evaluations.first()) {
        (SearchProof::Optimal, Some(_)) => "proved optimal in the model".to_owned(),
        (SearchProof::Covered { tolerance }, _) => format!("the front is complete within {}", percent(tolerance)),
        (SearchProof::Optimal, None) => "proved: none of them runs".to_owned(),
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
