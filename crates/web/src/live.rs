//! Answers while a control moves: the plans of `plan`, from the winners of earlier questions.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use meshwright::advice::{Advice, EarlierAnswers, Prudence, recommend_from};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::question::{
    EconomyOptions, Found, Minimised, Noted, PlaceOptions, PlanAnswer, PlanOptions, PlanQuestion, QuestionError,
    RefineOptions, Subject,
};
use meshwright::search::{Replays, SearchOptions};
use meshwright::space::parse_plan;
use serde_json::Value;

/// Most answers that are kept.
const MOST_KEPT: usize = 16;

thread_local! {
    /// Answers to the last questions, newest first. Prices, tokens and terms make other bills of the same plans.
    static KEPT: RefCell<VecDeque<(String, Advice)>> = const { RefCell::new(VecDeque::new()) };
    /// Schedules that earlier searches made ready.
    static REPLAYS: RefCell<Arc<Replays>> = RefCell::default();
}

/// Kept answer to a question with or without CUDA graphs, or the one that `search` finds.
fn cached(question: &PlanQuestion, has_graphs: bool, search: impl FnOnce() -> Advice) -> Advice {
    let plans = PlanOptions { economy: EconomyOptions::default(), ..question.plans.clone() };
    let key = format!("{:?} {plans:?} {has_graphs}", question.problem);
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

/// Most memory of schedules that are kept for the next question.
const MOST_REPLAY_BYTES: usize = 60 << 20;

/// Schedules that earlier searches made ready; none where they have become too many.
fn replays() -> Arc<Replays> {
    REPLAYS.with_borrow_mut(|replays| {
        if replays.bytes() > MOST_REPLAY_BYTES {
            *replays = Arc::default();
        }
        Arc::clone(replays)
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

/// Answer while a control moves.
pub struct LiveAnswer {
    /// Document of the plans.
    pub document: Value,
    /// Notes on the question.
    pub notes: Vec<String>,
    /// Where no plan runs, a rejected plan of each rule, in words.
    pub examples: Vec<String>,
}

/// Plans of a question. Stages are not refined, hosts keep their order, and the model's own first
/// choice beyond the limits of prudence is left out; the counts of the certificate depend on the earlier questions.
///
/// # Errors
///
/// As [`PlanQuestion::answer`].
pub fn answer(question: &PlanQuestion, winners: &[String]) -> Result<LiveAnswer, QuestionError> {
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
    let searched_here = by_time && plans.framework.is_none();
    let Noted { value: subject, mut notes } = unlimited.subject(None)?;
    let (Subject::Cluster(posed), true) = (subject, searched_here) else {
        let Noted { value: document, notes } = bare.document(&|_, _| ControlFlow::Continue(()))?;
        return Ok(LiveAnswer { document: document.into_value(), notes, examples: Vec::new() });
    };
    let prudence = Prudence { risk, exotic: plans.exotic };
    let advised = |problem: &Problem, is_captured: bool| {
        let restrictions = plans.restrictions_on(None, problem, is_captured)?;
        let options = SearchOptions { top: plans.top as usize, restrictions };
        let advice = cached(&bare, problem.stack().cuda_graphs, || {
            let (seeds, replays) = (candidates(winners, problem), replays());
            let earlier = EarlierAnswers { plans: &seeds, replays: &replays };
            recommend_from(earlier, problem, &options, prudence, &|_, _| ControlFlow::Continue(()))
        });
        Ok((options, advice))
    };
    let answered = posed.accepting(risk).answered(advised, |(_, advice)| advice.best())?;
    let (problem, (options, advice)) = answered.value;
    notes.extend(answered.notes.into_iter().chain(plans.default_launcher(&problem).1));
    let economy = plans.economy.economy(&problem, &bare.problem.options.overrides()?)?;
    let found = Found { ranking: advice.ranking.clone(), advice: Some(advice), proved: true };
    let (refined, placed) = (Vec::new(), Vec::new());
    let answer = PlanAnswer { problem, framework: None, risk, options, found, refined, changed: None, economy, placed };
    let mut examples = Vec::new();
    if answer.found.ranking.evaluations.is_empty() {
        examples.extend(answer.found.ranking.rejections.iter().map(|rule| [rule.rule, &rule.example].join(": ")));
    }
    let document = answer.document(&bare)?.into_value();
    Ok(LiveAnswer { document, notes, examples })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents of several questions in turn, each with the winners of those before, but for the counts of the certificate.
    fn session(questions: &[PlanQuestion]) -> Vec<Value> {
        let mut winners: Vec<String> = Vec::new();
        let mut documents = Vec::new();
        for question in questions {
            let mut document = answer(question, &winners).unwrap().document;
            let plans = document["plans"].as_array().unwrap().iter();
            winners.extend(plans.map(|plan| plan["plan"].as_str().unwrap().to_owned()));
            for counts in ["evaluated", "rejected", "certificate"] {
                document.as_object_mut().unwrap().remove(counts);
            }
            documents.push(document);
        }
        documents
    }

    #[test]
    fn a_session_answers_as_fresh_engines_do() {
        let mut seed = 11_u64;
        let mut one_of = |values: &[u32]| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            values[(seed >> 33) as usize % values.len()]
        };
        for model in ["llama3-8b", "mixtral-8x7b"] {
            let (mut gpus, mut batch, mut hbm, mut nic) = (16, 64, 80, 400);
            let mut questions: Vec<PlanQuestion> = Vec::new();
            for _ in 0..6 {
                match one_of(&[0, 1, 2, 3]) {
                    0 => gpus = one_of(&[8, 16, 32, 64]),
                    1 => batch = one_of(&[32, 64, 128, 256]),
                    2 => hbm = one_of(&[24, 40, 80, 141]),
                    _ => nic = one_of(&[100, 400, 1600]),
                }
                let sets = [format!("gpu.hbm={hbm} GB"), format!("cluster.nic={nic} Gb/s")];
                let options = serde_json::json!({ "gpus": gpus, "global_batch": batch, "set": sets });
                let problem = serde_json::json!({ "model": model, "cluster": "dgx-h100-64", "options": options });
                questions.push(serde_json::from_value(serde_json::json!({ "problem": problem, "plans": {} })).unwrap());
            }
            let kept = session(&questions);
            for (at, kept) in kept.iter().enumerate() {
                let alone = questions[at..=at].to_vec();
                let fresh = std::thread::spawn(move || session(&alone)).join().unwrap();
                assert_eq!(*kept, fresh[0], "{:?}", questions[at]);
            }
        }
    }
}
