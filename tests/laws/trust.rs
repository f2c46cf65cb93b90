//! Laws of a trustworthy answer: a plan's text is the plan, restrictions and limits cost time and never give any, a search that
//! is stopped says how far off it can be.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use crate::random::{Spec, SplitMix, plans, seeded, spec, wide_plan};
use meshwright::advice::{EarlierAnswers, Prudence, advise, recommend_from};
use meshwright::catalog;
use meshwright::cost::Costs;
use meshwright::frameworks::FRAMEWORKS;
use meshwright::search::{Goal, Replays, SearchOptions, SearchProof, search, search_for};
use meshwright::space::{Restrictions, parse_plan};
use proptest::prelude::*;

/// Schedules that all searches from candidates share.
static READY: LazyLock<Arc<Replays>> = LazyLock::new(Arc::default);

/// Plans of each pair of a model and a stack.
const EACH: usize = 6;

/// Every model on some stack, and every stack with some model.
fn pairs() -> impl Iterator<Item = Spec> {
    let (models, stacks) = (catalog::model_names(), catalog::stack_names());
    (0..models.len().max(stacks.len())).map(move |at| {
        let (model, stack) = (models[at % models.len()], stacks[at % stacks.len()]);
        let chosen_keys = catalog::model(model, &catalog::Overrides::default()).unwrap().indexer().is_some();
        let stack = if chosen_keys { "nemo-26" } else { stack }; // the others have no kernels for them
        spec(model, "dgx-h100-64", stack, 256, 2048)
    })
}

#[test]
fn a_plans_text_is_the_plan_with_every_model_and_stack() {
    for (index, spec) in pairs().enumerate() {
        let problem = spec.problem();
        let (costs, mut numbers) = (Costs::new(&problem), SplitMix::new(300 + index as u64));
        for plain in plans(&problem, EACH, 500 + index as u64) {
            let near = FRAMEWORKS[numbers.below(FRAMEWORKS.len())].limits.nearest(&problem, &plain);
            let wide = wide_plan(&costs, &plain, &mut numbers);
            for plan in [Some(plain), near, wide].into_iter().flatten() {
                // nothing to share is written as nothing shared
                let group = plan.shard_group.filter(|group| *group != plan.layout.dense_replicas());
                let plan = meshwright::plan::Plan { shard_group: group, ..plan };
                let read =
                    parse_plan(&plan.to_string(), &problem).unwrap_or_else(|why| panic!("{spec:?} {plan}: {why}"));
                let (price, again) = (costs.evaluate(&plan), costs.evaluate(&read));
                assert_eq!(read.to_string(), plan.to_string(), "{spec:?}");
                assert_eq!((price.step, price.footprint), (again.step, again.footprint), "{spec:?} {plan}");
            }
        }
    }
}

/// Model, stack and number of GPUs of questions that a search answers in a moment.
const QUESTIONS: [(&str, &str, u32); 4] = [
    ("llama3-8b", "nemo-25", 8),
    ("llama3-8b", "torchtitan-2025", 16),
    ("qwen3-30b-a3b", "nemo-25", 16),
    ("llama3-70b", "nemo-25", 32),
];
/// Restrictions, each of which some plan of every question keeps.
const FIXED: [&str; 8] =
    ["tp=1..4", "pp=1", "zero=1", "mbs=1", "recompute=none,full", "cp=1", "vpp=1", "order=tp-cp-ep-dp-pp"];

fn question(pick: usize) -> Spec {
    let (model, stack, gpus) = QUESTIONS[pick];
    spec(model, "dgx-h100-64", stack, 64, 4096).gpus(gpus)
}

fn options(fixed: Option<&str>) -> SearchOptions {
    let mut restrictions = Restrictions::default();
    if let Some(item) = fixed {
        restrictions.fix(item).unwrap();
    }
    SearchOptions { top: 3, restrictions }
}

proptest! {
    #![proptest_config(seeded(12))]

    #[test]
    fn a_restriction_never_makes_the_best_plan_faster(pick in 0..QUESTIONS.len(), fixed in 0..FIXED.len()) {
        let problem = question(pick).problem();
        let best = |options: &SearchOptions| {
            let found = search(&problem, options, &|_, _| ()).evaluations;
            found.first().map_or(f64::INFINITY, |best| best.step.total().get())
        };
        let (free, bound) = (best(&options(None)), best(&options(Some(FIXED[fixed]))));
        prop_assert!(free <= bound * (1.0 + 1e-12), "{}: {} s with {}, {} s without", pick, bound, FIXED[fixed], free);
    }

    #[test]
    fn a_search_that_is_stopped_anywhere_bounds_what_it_missed(pick in 0..QUESTIONS.len(), after in 0_u32..4000) {
        let problem = question(pick).problem();
        let asked = AtomicU32::new(0);
        let control = |_, _| {
            if asked.fetch_add(1, Ordering::Relaxed) >= after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = search_for(&problem, &options(None), Goal::Fastest, &control);
        let best = search(&problem, &options(None), &|_, _| ()).evaluations[0].step.total();
        let certificate = &stopped.certificate;
        if let SearchProof::Stopped { bound } = certificate.proof {
            let first = stopped.evaluations.first().map(|first| first.step.total());
            prop_assert!(first.is_some_and(|first| first <= best) || bound <= best, "bound {}, best {}", bound, best);
        } else {
            prop_assert_eq!(stopped.evaluations[0].step.total(), best);
        }
        let counted: u64 = certificate.cut.iter().map(|cut| cut.count).sum::<u64>()
            + certificate.evaluated + certificate.rejected + certificate.dominated;
        prop_assert_eq!(counted, certificate.size);
    }

    #[test]
    fn more_accepted_risk_is_never_slower_and_chances_are_a_distribution(pick in 0..QUESTIONS.len(), risk in 0.01_f64..0.5) {
        let problem = question(pick).problem();
        let go_on = |_, _| ControlFlow::Continue(());
        let under = |risk| advise(&problem, &options(None), Prudence { risk, exotic: false }, &go_on);
        let (careful, bold) = (under(risk), under(risk * 2.0));
        let time = |advice: &meshwright::advice::Advice| advice.optimum.as_ref().map(|plan| plan.step.total().get());
        prop_assume!(careful.plan().is_some());
        if careful.given_up.is_none() {
            prop_assert!(time(&bold) <= time(&careful).map(|time| time * (1.0 + 1e-12)));
        }
        let sum: f64 = careful.chances.iter().sum();
        prop_assert!(careful.chances.iter().all(|chance| (0.0..=1.0).contains(chance)) && (sum - 1.0).abs() < 1e-6, "{}", sum);
    }

    #[test]
    fn candidates_and_schedules_of_another_question_change_no_plan(pick in 0..QUESTIONS.len(), other in 0..QUESTIONS.len()) {
        let (problem, prudence) = (question(pick).problem(), Prudence::default());
        let go_on = |_, _| ControlFlow::Continue(());
        // Winners at any risk, of which some are faster than what keeps the accepted one.
        let bold = Prudence { risk: 1.0, exotic: true };
        let seeds: Vec<_> = advise(&question(other).problem(), &options(None), bold, &go_on).ranking.evaluations;
        let seeds: Vec<_> = seeds.iter().filter_map(|plan| parse_plan(&plan.plan.to_string(), &problem).ok()).collect();
        let whole = advise(&problem, &options(None), prudence, &go_on);
        let quick = recommend_from(EarlierAnswers { plans: &seeds, replays: &READY }, &problem, &options(None), prudence, &go_on);
        let plans = |advice: &meshwright::advice::Advice| {
            advice.ranking.evaluations.iter().map(|plan| plan.plan.to_string()).collect::<Vec<_>>()
        };
        prop_assert_eq!(plans(&quick), plans(&whole));
        prop_assert_eq!((quick.recommended, quick.fastest.is_none()), (whole.recommended, true));
    }
}
