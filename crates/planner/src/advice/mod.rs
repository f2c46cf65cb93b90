//! Recommendation: the plan to launch, which is not always the fastest by the model.
//!
//! ```text
//! search     the fastest plans of the proven space under the memory ceiling of the accepted risk
//! plainest   of those within run-to-run noise of the first, the one with the degrees of a published run of the model on the
//!            GPU, if any has them, else one whose tensor parallelism stays inside the scale-up domain, and of those the one
//!            with fewest settings that differ from a default; a published plan that ran on no more of these GPUs counts as
//!            one that fits, whatever the model's risk
//! fastest    the model's own first choice, whatever its risk and mechanisms, where it is another plan
//! ```
//!
//! An exact search finds the corners where the model is optimistic (the optimizer's curse): the more so, the more
//! mechanisms it may choose from. So what errors cannot tell apart is decided by plainness, and what no run has shown is left
//! out unless nothing else fits.

mod chance;
mod domain;
mod given;
mod measured;
mod plainness;
mod preference;
mod preferred_for;
mod published;

use std::sync::Arc;

use crate::confidence::{Confidence, ceiling};
use crate::search::{
    Control, LimitedSearches, Ranking, Replays, SearchLimits, SearchOptions, SearchProof, TIE, TieLimits, plainer,
};
use crate::space::{Restrictions, Space, Unproven, too_few_gpus};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

pub use chance::chances_of_being_best;
use domain::inside_domain;
pub use measured::{MeasuredRun, StepGivenRuns};
pub use plainness::unusual_settings;
pub use preference::{PreferredFor, Unlike};
use preference::{choose, in_percent};
pub use published::PublishedPlan;
use published::published;

/// Probability of running out of memory that a launch accepts where the user names none.
pub const USUAL_RISK: f64 = 0.05;

/// Plans that are searched for a plainer one than the fastest few.
const RIVALS: TieLimits = TieLimits { most: 12, within: TIE };

/// Plans that are conditioned on measured runs before the best of them are named: runs may bring forward what the model ranks low.
pub const CONDITIONED: usize = 2 * RIVALS.most;

/// Share of its step time by which the model's fastest plan must be faster to be named.
const LEAST_FASTER: f64 = 0.001;

/// Relative difference between prices of one plan whose sums are grouped in another way, at the most.
const ROUNDING: f64 = 1e-9;

/// Limits that a recommendation keeps if any plan does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prudence {
    /// Largest accepted probability of running out of memory.
    pub risk: f64,
    /// Whether mechanisms without a published run are considered.
    pub exotic: bool,
}

impl Default for Prudence {
    fn default() -> Self {
        Self { risk: USUAL_RISK, exotic: false }
    }
}

/// Limit that no plan keeps, and that was given up to find one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GivenUp {
    /// Every plan without unproven mechanisms that fits has a larger risk than accepted.
    Risk,
    /// Only plans with unproven mechanisms fit; the accepted risk is kept if any of them keeps it.
    Proof,
}

/// Reason why the fastest plan by the model is not recommended.
#[derive(Clone, Debug)]
pub enum Reason {
    /// Its probability of running out of memory is this large.
    Risk(f64),
    /// It uses mechanisms that no published run has shown.
    Unproven(Vec<&'static Unproven>),
    /// A plan with the degrees of a published run is within run-to-run noise.
    Published,
    /// A plainer plan is within run-to-run noise; with the settings that the faster one needs beside or instead of its own.
    Plainer(Unlike),
}

/// The fastest plan by the model, where another is recommended.
#[derive(Clone, Debug)]
pub struct Declined {
    /// The plan with its price.
    pub evaluation: Evaluation,
    /// Reasons, at least one.
    pub reasons: Vec<Reason>,
}

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

/// Search under the limits of prudence, with its result.
struct Prudent {
    problem: Problem,
    options: SearchOptions,
    ranking: Ranking,
    given_up: Option<GivenUp>,
}

/// Searches the fastest plans that keep the limits of prudence; where none does, gives up the risk first, then the proof by
/// published runs: of mechanisms that free memory first, under the risk if it can be kept.
fn search_prudently(
    searches: &LimitedSearches,
    problem: &Problem,
    options: &SearchOptions,
    ties: TieLimits,
    prudence: Prudence,
    control: &Control,
) -> Prudent {
    let mut proven = options.clone();
    if !prudence.exotic {
        proven.restrictions.proven_only(problem);
    }
    if let Some(rejection) = too_few_gpus(problem) {
        let size = Space::new(&Costs::new(problem), &options.restrictions).size();
        let ranking = Ranking::all_rejected(size, &rejection);
        return Prudent { problem: problem.clone(), options: options.clone(), ranking, given_up: None };
    }
    let limited = problem.clone().under_ceiling(ceiling(problem, prudence.risk));
    let limits = SearchLimits { hbm_budget: limited.hbm_budget(), ceiling: Seconds::new(f64::INFINITY), ties };
    if searches.may_fit(&proven, limits.hbm_budget) {
        let ranking = searches.fastest(&proven, limits, control);
        if !ranking.evaluations.is_empty() || ranking.certificate.proof != SearchProof::Optimal {
            return Prudent { problem: limited, options: proven, ranking, given_up: None };
        }
    }
    let at_any_risk = SearchLimits { hbm_budget: problem.hbm_budget(), ..limits };
    let is_asked = prudence.exotic || searches.may_fit(&proven, at_any_risk.hbm_budget);
    let risky = is_asked.then(|| searches.fastest(&proven, at_any_risk, control));
    if let Some(ranking) = risky.filter(|risky| prudence.exotic || !risky.evaluations.is_empty()) {
        let ranking = searches.or_nearest(ranking, &proven, control);
        return Prudent { problem: problem.clone(), options: proven, ranking, given_up: Some(GivenUp::Risk) };
    }
    let mut freeing = options.clone();
    freeing.restrictions.proven_but_for_memory(problem);
    for (problem, limits) in [(&limited, limits), (problem, at_any_risk)] {
        let ranking = searches.fastest(&freeing, limits, control);
        if !ranking.evaluations.is_empty() {
            let (problem, options) = (problem.clone(), freeing);
            return Prudent { problem, options, ranking, given_up: Some(GivenUp::Proof) };
        }
    }
    let ranking = searches.or_nearest(searches.fastest(options, at_any_risk, control), options, control);
    Prudent { problem: problem.clone(), options: options.clone(), ranking, given_up: Some(GivenUp::Proof) }
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
    let timed: Vec<(&Evaluation, Seconds)> = ranking.evaluations.iter().map(|plan| (plan, plan.step.total())).collect();
    let chosen = choose(problem, &timed, most, given_up.is_some(), published.as_ref());
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

/// The model's fastest plan with the reasons against it; none if the recommended one is as fast.
fn decline(
    problem: &Problem,
    published: Option<&PublishedPlan>,
    fastest: &Evaluation,
    recommended: &Evaluation,
    prudence: Prudence,
) -> Option<Declined> {
    if recommended.step.total() / fastest.step.total() < 1.0 + LEAST_FASTER {
        return None;
    }
    let mut reasons = Vec::new();
    let [risk, least] = [fastest, recommended].map(|plan| Confidence::new(problem, plan).oom_probability);
    if risk > prudence.risk && in_percent(risk) > in_percent(least) {
        reasons.push(Reason::Risk(risk));
    }
    let unproven = Unproven::in_plan(problem, &fastest.plan);
    if !prudence.exotic && !unproven.is_empty() && Unproven::in_plan(problem, &recommended.plan).is_empty() {
        reasons.push(Reason::Unproven(unproven));
    }
    if reasons.is_empty() {
        let shown = published.is_some_and(|published| published.has_degrees_of(&recommended.plan));
        let plainer = || Reason::Plainer(Unlike::between(problem, &fastest.plan, &recommended.plan));
        reasons.push(if shown { Reason::Published } else { plainer() });
    }
    Some(Declined { evaluation: fastest.clone(), reasons })
}
