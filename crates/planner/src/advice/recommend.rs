//! Ranked plans in their plainest forms, the recommended one among them, and the model's own first choice.

use std::sync::Arc;

use super::chance::chances_of_being_best;
use super::decline::{Declined, decline};
use super::domain::inside_domain;
use super::ladder::{GivenUp, Prudence};
use super::measured::StepGivenRuns;
use super::preference::{Preference, choose};
use super::prudent::{Prudent, search_prudently};
use super::published::{PublishedPlan, published};
use crate::confidence::Confidence;
use crate::search::{Control, LimitedSearches, Ranking, Replays, SearchLimits, SearchOptions, TIE, TieLimits, plainer};
use crate::space::{Restrictions, Space};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// Plans that are searched for a plainer one than the fastest few.
pub(super) const RIVALS: TieLimits = TieLimits { most: 12, within: TIE };

/// Plans that are conditioned on measured runs before the best of them are named: runs may bring forward what the model ranks low.
pub const CONDITIONED: usize = 2 * RIVALS.most;

/// Relative difference between prices of one plan whose sums are grouped in another way, at the most.
const ROUNDING: f64 = 1e-9;

/// Ranked plans with a recommendation.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The best plan of each layout in its plainest form, fastest first, with the certificate of their search.
    pub ranking: Ranking,
    /// Index of the recommended plan in the ranking.
    pub recommended: usize,
    /// Probability that each plan is the fastest of those shown.
    pub chances: Vec<f64>,
    /// Step time of each plan given the user's measured runs; empty where there are none.
    pub given_runs: Vec<StepGivenRuns>,
    /// The fastest plan by the model, if it is not the recommended one.
    pub fastest: Option<Declined>,
    /// The nearest published layout of the model on the GPU.
    pub published: Option<PublishedPlan>,
    /// Limit that had to be given up.
    pub given_up: Option<GivenUp>,
    /// First plan of the search before it was made plainer: the proved optimum within the limits.
    pub optimum: Option<Evaluation>,
    /// Problem that was searched: under the memory ceiling of the accepted risk, unless that was given up.
    pub searched: Problem,
    /// Restrictions of that search.
    pub restrictions: Restrictions,
}

impl Advice {
    /// The recommended plan; none where no plan runs.
    pub fn plan(&self) -> Option<&Evaluation> {
        self.ranking.evaluations.get(self.recommended)
    }

    /// The recommended plan with the limit that had to be given up for it.
    pub fn best(&self) -> Option<(Option<GivenUp>, &Evaluation)> {
        Some((self.given_up, self.plan()?))
    }
}

/// Finds the plan to launch, and its rivals. The answer does not depend on the number of threads.
pub fn advise(problem: &Problem, options: &SearchOptions, prudence: Prudence, control: &Control) -> Advice {
    advised(
        EarlierAnswers { plans: &[], replays: &Arc::default() },
        problem,
        options,
        prudence,
        FirstChoice::Sought,
        control,
    )
}

/// Plans and schedules that earlier answers to similar problems leave to a search.
#[derive(Clone, Copy, Debug)]
pub struct EarlierAnswers<'e> {
    /// Candidate incumbents.
    pub plans: &'e [Plan],
    /// Schedules that are ready to be simulated.
    pub replays: &'e Arc<Replays>,
}

/// Finds the plan to launch, and its rivals, from candidate incumbents such as the answers to a similar problem, and with the
/// schedules that such answers made ready, for answers while a control moves: without the model's own first choice beyond the
/// limits of prudence, which is a second search. The plans are those of [`advise`]; only the counts of the certificate depend on
/// the candidates.
pub fn recommend_from(
    earlier: EarlierAnswers,
    problem: &Problem,
    options: &SearchOptions,
    prudence: Prudence,
    control: &Control,
) -> Advice {
    advised(earlier, problem, options, prudence, FirstChoice::LeftOut, control)
}

/// Whether the cost model's own first choice is found too, in addition to the plan to launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstChoice {
    Sought,
    LeftOut,
}

fn advised(
    earlier: EarlierAnswers,
    problem: &Problem,
    options: &SearchOptions,
    prudence: Prudence,
    first_choice: FirstChoice,
    control: &Control,
) -> Advice {
    let EarlierAnswers { plans, replays } = earlier;
    let costs = Costs::new(problem).replaying(replays);
    let searches = LimitedSearches::new(&costs).replaying(replays).starting_from(plans);
    let found = search_prudently(&searches, problem, options, RIVALS, prudence, control);
    if found.ranking.evaluations.is_empty() {
        return Advice {
            ranking: found.ranking,
            recommended: 0,
            chances: Vec::new(),
            given_runs: Vec::new(),
            fastest: None,
            published: None,
            given_up: None,
            optimum: None,
            searched: found.problem,
            restrictions: found.options.restrictions,
        };
    }
    recommend(&searches, options, prudence, first_choice, found, control)
}

/// Ranked plans in their plainest forms, the recommended one among them, and the model's own first choice.
fn recommend(
    searches: &LimitedSearches,
    options: &SearchOptions,
    prudence: Prudence,
    first_choice: FirstChoice,
    found: Prudent,
    control: &Control,
) -> Advice {
    let costs = searches.costs();
    let problem = costs.problem;
    let Prudent { problem: searched, options: SearchOptions { restrictions, .. }, mut ranking, given_up } = found;
    let first = ranking.evaluations[0].clone();
    let risk = |evaluation: &Evaluation| Confidence::new(problem, evaluation).oom_probability;
    let keeps_risk = given_up.is_none() || searched.hbm_budget() < problem.hbm_budget();
    let accepted = if keeps_risk { prudence.risk } else { 1.0 };
    let space = Space::new(costs, &restrictions);
    for evaluation in &mut ranking.evaluations {
        if let Some(plain) = plainer(costs, &space, evaluation).filter(|plain| risk(plain) <= accepted) {
            *evaluation = plain;
        }
    }
    let published = published(costs);
    let most = first.step.total() * if given_up == Some(GivenUp::Risk) { f64::INFINITY } else { 1.0 + TIE };
    if let Some(run) = published.as_ref().filter(|run| run.shows_that_it_fits(problem))
        && run.evaluation.step.total() <= most
        && space.allows(&run.evaluation.plan)
    {
        place(&mut ranking.evaluations, &run.evaluation);
    }
    let near = SearchLimits { hbm_budget: searched.hbm_budget(), ceiling: most, ties: TieLimits::NONE };
    ranking.evaluations.extend(inside_domain(searches, &restrictions, &ranking.evaluations, near, control));
    sort_by_numbers(&mut ranking.evaluations, |evaluation| [evaluation.step.total().get()]);
    let preference = |plan: &Evaluation| Preference::new(problem, plan, given_up.is_some(), published.as_ref());
    let ranked: Vec<(Preference, Seconds)> =
        ranking.evaluations.iter().map(|plan| (preference(plan), plan.step.total())).collect();
    let chosen = choose(&ranked, most, given_up.is_some());
    let plan = ranking.evaluations[chosen].clone();
    ranking.evaluations.truncate(options.top);
    if chosen >= options.top {
        *ranking.evaluations.last_mut().expect("`top` is at least one") = plan.clone();
    }
    let recommended = chosen.min(options.top - 1);
    let alone = SearchOptions { top: 1, restrictions: options.restrictions.clone() };
    let fastest = match given_up {
        _ if first_choice == FirstChoice::LeftOut => None,
        Some(GivenUp::Proof) => Some(first.clone()),
        None | Some(GivenUp::Risk) => {
            let ceiling = first.step.total() * (1.0 + ROUNDING);
            let limits = SearchLimits { hbm_budget: problem.hbm_budget(), ceiling, ties: TieLimits::NONE };
            searches.fastest(&alone, limits, control).evaluations.first().cloned()
        }
    };
    Advice {
        chances: chances_of_being_best(&ranking.evaluations),
        given_runs: Vec::new(),
        fastest: fastest.and_then(|fastest| decline(problem, published.as_ref(), &fastest, &plan, prudence)),
        published,
        ranking,
        recommended,
        given_up,
        optimum: Some(first),
        searched,
        restrictions,
    }
}

/// Places a plan that is known to run among ranked plans, instead of a slower one of its layout.
fn place(ranked: &mut Vec<Evaluation>, known: &Evaluation) {
    let time = |plan: &Evaluation| plan.step.total().get();
    match ranked.iter_mut().find(|plan| plan.plan.layout == known.plan.layout) {
        Some(same) if time(same) > time(known) => *same = known.clone(),
        Some(_) => {}
        None => ranked.push(known.clone()),
    }
}
