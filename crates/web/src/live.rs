//! Answers while a control moves: the plans of `plan`, from the winners of earlier questions.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use meshwright::advice::{Advice, Prudence, recommend_from};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::question::{
    EconomyOptions, Found, Minimised, Noted, PlaceOptions, PlanAnswer, PlanOptions, PlanQuestion, QuestionError,
    RefineOptions, Subject,
};
use meshwright::search::SearchOptions;
use meshwright::space::parse_plan;

/// Most answers that are kept.
const MOST_KEPT: usize = 16;

thread_local! {
    /// Answers to the last questions, newest first. Prices, tokens and terms make other bills of the same plans.
    static KEPT: RefCell<VecDeque<(String, Advice)>> = const { RefCell::new(VecDeque::new()) };
}

/// Kept answer to a question, or the one that `search` finds.
fn kept(question: &PlanQuestion, search: impl FnOnce() -> Advice) -> Advice {
    let plans = PlanOptions { economy: EconomyOptions::default(), ..question.plans.clone() };
    let key = format!("{:?} {plans:?}", question.problem);
    let known = KEPT.with_borrow(|kept| kept.iter().find(|(of, _)| *of == key).map(|(_, advice)| advice.clone()));
    known.unwrap_or_else(|| {
        let advice = search();
        KEPT.with_borrow_mut(|kept| {
            kept.truncate(MOST_KEPT - 1);
            kept.push_front((key, advice.clone()));
        });
        advice
    })
}

/// Earlier winners as candidates for a problem: with as many replicas as its GPUs allow. Those that do not fit it are left
/// out by the search.
fn candidates(winners: &[String], problem: &Problem) -> Vec<Plan> {
    let without_replicas = |text: &String| {
        let settings: Vec<&str> = text.split_whitespace().filter(|setting| !setting.starts_with("dp=")).collect();
        parse_plan(&settings.join(" "), problem).ok()
    };
    winners.iter().filter_map(without_replicas).collect()
}

/// Document of the plans of a question, with its notes. Stages are not refined, hosts keep their order, and the model's own first
/// choice beyond the limits of prudence is left out; the counts of the certificate depend on the earlier questions.
///
/// # Errors
///
/// As [`PlanQuestion::answer`].
pub fn answer(question: &PlanQuestion, winners: &[String]) -> Result<(String, Vec<String>), QuestionError> {
    let plans = &question.plans;
    let bare = PlanQuestion {
        plans: PlanOptions {
            refine: RefineOptions { no_refine: true, refine: None },
            place: PlaceOptions { no_place: true, place: None },
            sensitivity: false,
            ..plans.clone()
        },
        ..question.clone()
    };
    let by_time = !plans.pareto && matches!(plans.economy.objective, Minimised::StepTime | Minimised::TimeToTrain);
    let (unlimited, risk) = bare.problem.split_risk()?;
    let (Subject::Cluster(problem), notes, true) =
        split(unlimited.subject(None)?, by_time && plans.framework.is_none())
    else {
        let Noted { value, notes } = bare.answer(&|_, _| ControlFlow::Continue(()))?;
        return Ok((value, notes));
    };
    let problem = *problem;
    let (launcher, note) = plans.default_launcher(&problem);
    let restrictions = plans.restrictions(launcher, &problem)?;
    let economy = plans.economy.economy(&problem, &bare.problem.options.overrides()?)?;
    let options = SearchOptions { top: plans.top as usize, restrictions };
    let prudence = Prudence { risk, exotic: plans.exotic };
    let advice = kept(&bare, || {
        let seeds = candidates(winners, &problem);
        recommend_from(&seeds, &problem, &options, prudence, &|_, _| ControlFlow::Continue(()))
    });
    let found = Found { ranking: advice.ranking.clone(), advice: Some(advice), proved: true };
    let (refined, placed) = (Vec::new(), Vec::new());
    let answer = PlanAnswer { problem, framework: None, risk, options, found, refined, changed: None, economy, placed };
    Ok((answer.document(&bare)?, notes.into_iter().chain(note).collect()))
}

fn split(noted: Noted<Subject>, searched_here: bool) -> (Subject, Vec<String>, bool) {
    (noted.value, noted.notes, searched_here)
}
