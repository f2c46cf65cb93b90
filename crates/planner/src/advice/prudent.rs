//! Search for the fastest plans that keep the limits of prudence, as far as any plan does.

use super::ladder::{GivenUp, Prudence, Rung, rungs};
use crate::confidence::ceiling;
use crate::search::{Control, LimitedSearches, Ranking, SearchLimits, SearchOptions, SearchProof, TieLimits};
use crate::space::{Space, too_few_gpus};
use meshwright_engine::cost::Costs;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// Search under the limits of prudence, with its result.
pub(super) struct Prudent {
    pub problem: Problem,
    pub options: SearchOptions,
    pub ranking: Ranking,
    pub given_up: Option<GivenUp>,
}

/// Searches the fastest plans that keep the limits of prudence; where none does, gives up the risk first, then the proof by
/// published runs: of mechanisms that free memory first, under the risk if it can be kept.
pub(super) fn search_prudently(
    searches: &LimitedSearches,
    problem: &Problem,
    options: &SearchOptions,
    ties: TieLimits,
    prudence: Prudence,
    control: &Control,
) -> Prudent {
    if let Some(rejection) = too_few_gpus(problem) {
        let size = Space::new(&Costs::new(problem), &options.restrictions).size();
        let ranking = Ranking::all_rejected(size, &rejection);
        return Prudent { problem: problem.clone(), options: options.clone(), ranking, given_up: None };
    }
    let limited = problem.clone().under_ceiling(ceiling(problem, prudence.risk));
    let mut rungs = rungs(std::slice::from_ref(problem), &options.restrictions, prudence);
    let last = rungs.pop().expect("there is a last resort");
    let within = |rung: &Rung| if rung.keeps_risk { &limited } else { problem };
    let options_of = |rung: Rung| SearchOptions { restrictions: rung.restrictions, ..options.clone() };
    let limits_of = |problem: &Problem| SearchLimits {
        hbm_budget: problem.hbm_budget(),
        ceiling: Seconds::new(f64::INFINITY),
        ties,
    };
    for rung in rungs {
        let (problem, given_up) = (within(&rung), rung.given_up);
        let (options, limits) = (options_of(rung), limits_of(problem));
        if !searches.may_fit(&options, limits.hbm_budget) {
            continue;
        }
        let ranking = searches.fastest(&options, limits, control);
        let was_stopped = given_up.is_none() && ranking.certificate.proof != SearchProof::Optimal;
        if !ranking.evaluations.is_empty() || was_stopped {
            return Prudent { problem: problem.clone(), options, ranking, given_up };
        }
    }
    let (problem, given_up) = (within(&last), last.given_up);
    let options = options_of(last);
    let ranking = searches.or_nearest(searches.fastest(&options, limits_of(problem), control), &options, control);
    Prudent { problem: problem.clone(), options, ranking, given_up }
}

/// The fastest plans that keep the limits of prudence, as far as any plan does, and the limit that had to be given up.
pub fn prudent(
    problem: &Problem,
    options: &SearchOptions,
    prudence: Prudence,
    control: &Control,
) -> (Ranking, Option<GivenUp>) {
    let costs = Costs::new(problem);
    let found = search_prudently(&LimitedSearches::new(&costs), problem, options, TieLimits::NONE, prudence, control);
    (found.ranking, found.given_up)
}
