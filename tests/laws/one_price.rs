//! One price for a plan: however its stages are said, and whichever command prices them, time and memory are the same.

use std::sync::Arc;

use crate::random::{for_wide_plans, spec};
use meshwright::cost::{Costs, Evaluation, Footprint, Stager};
use meshwright::plan::{Modules, Plan, Recompute};
use meshwright::refine::{self, refine};
use meshwright::search::{Replays, SearchOptions, search};
use meshwright::space::{Restrictions, check, parse_plan, too_large};
use meshwright::split::LayerSplit;
use meshwright::stages::StagedPlan;

/// Relative difference that regrouped sums may have.
const ROUNDING: f64 = 1e-12;

/// Plans looked at in all; `MESHWRIGHT_PLANS` says otherwise.
fn plans_wanted() -> usize {
    std::env::var("MESHWRIGHT_PLANS").ok().and_then(|n| n.parse().ok()).unwrap_or(2800)
}

/// The layers of each virtual stage of a plan.
fn counts_of(costs: &Costs, plan: &Plan) -> Vec<u32> {
    costs.layers_of_chunks(plan, &costs.shape(plan))
}

/// The plan with its stages spelled out.
fn spelled_out(costs: &Costs, plan: &Plan) -> Plan {
    let counts = counts_of(costs, plan);
    let mtp_stage = plan.split.mtp_stage(counts.len());
    Plan { split: LayerSplit::stages(&counts, costs.problem.model().mtp_depth, mtp_stage), ..*plan }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= ROUNDING * b.abs()
}

/// Text of a step time and its footprints without their plan, bit for bit.
fn bits(evaluation: &Evaluation, footprints: &[Footprint]) -> String {
    format!("{:?} {:?} {footprints:?}", evaluation.step, evaluation.footprint)
}

#[test]
fn a_split_costs_what_the_stages_cost_that_it_stands_for() {
    let checked = for_wide_plans(plans_wanted(), 700, |costs, plan| {
        let listed = spelled_out(costs, plan);
        for price in [Costs::evaluate, Costs::evaluate_simulated] {
            let (one, two) = (price(costs, plan), price(costs, &listed));
            assert_eq!(
                bits(&one, &costs.footprints(plan)),
                bits(&two, &costs.footprints(&listed)),
                "{plan} and {listed}"
            );
        }
        if plan.recompute == Recompute::Selective(Modules::default()) {
            return; // no text says it
        }
        let read = parse_plan(&listed.to_string(), costs.problem).unwrap();
        let (one, two) = (costs.evaluate_simulated(&read), costs.evaluate_simulated(&listed));
        assert_eq!(bits(&one, &[]), bits(&two, &[]), "{listed} as it is read");
    });
    assert!(checked >= plans_wanted());
}

/// A schedule that is ready to be simulated takes, to the last bit, as long as one that is simulated from its lists.
#[test]
fn a_plan_costs_the_same_with_schedules_that_are_ready() {
    let ready = Arc::new(Replays::default());
    let checked = for_wide_plans(plans_wanted() / 4, 709, |costs, plan| {
        let (from_lists, from_simulator) =
            (costs.evaluate_simulated(plan), costs.clone().replaying(&ready).evaluate_simulated(plan));
        assert_eq!(bits(&from_lists, &[]), bits(&from_simulator, &[]), "{plan}");
    });
    assert!(checked >= plans_wanted() / 4 && ready.bytes() > 0);
}

/// The price of refined stages is the price of the plan, and of the split that frameworks are given.
#[test]
fn stages_cost_what_their_plan_costs() {
    let checked = for_wide_plans(plans_wanted(), 800, |costs, plan| {
        let staged = StagedPlan::uniform(costs.problem.model(), plan, &counts_of(costs, plan));
        let (one, two) = (costs.evaluate_simulated(plan), Stager::new(costs, plan).evaluate(&staged));
        let (time, by_stages) = (one.step.total().get(), two.evaluation.step.total().get());
        assert!(close(by_stages, time), "{plan}: {time} s, {by_stages} s by stages");
        let terms = one.step.terms().into_iter().zip(two.evaluation.step.terms());
        for ((name, own), (_, by_stages)) in terms {
            let (own, by_stages) = (own.get(), by_stages.get());
            assert!((own - by_stages).abs() <= ROUNDING * time, "{plan}: {name} {own} s, {by_stages} s by stages");
        }
        for (own, by_stages) in costs.footprints(plan).iter().zip(&two.footprints) {
            for ((name, own), (_, by_stages)) in own.tenants().into_iter().zip(by_stages.tenants()) {
                assert!(close(by_stages.get(), own.get()), "{plan}: {name} {own:?}, {by_stages:?} by stages");
            }
        }
        let written: LayerSplit = staged.megatron_layout().parse().unwrap();
        let again = costs.evaluate_simulated(&Plan { split: written.clone(), ..*plan });
        assert_eq!(bits(&again, &[]), bits(&one, &[]), "{plan} and {written}");
    });
    assert!(checked >= plans_wanted());
}

/// The row of a search, its explanation and the start of its refinement agree on time, memory, and whether the plan fits.
#[test]
fn commands_agree_on_the_plans_that_a_search_proposes() {
    let questions: [(_, &[&str]); 4] = [
        (spec("llama3-70b", "h100-512", "nemo-25", 512, 8192), &["pp=8", "split=cost-balanced"]),
        (spec("qwen3-235b-a22b", "h100-512", "nemo-25", 1024, 4096), &["pp=8", "schedule=1f1b"]),
        (spec("deepseek-v3", "h800-2048", "deepseek-v3", 15360, 4096), &["split=cost-balanced"]),
        (spec("nemotron-h-56b", "gb200-nvl72-1152", "nemo-25", 1152, 8192), &["pp=4"]),
    ];
    for (spec, fixed) in questions {
        let problem = spec.problem();
        let costs = Costs::new(&problem);
        let mut restrictions = Restrictions::default();
        for item in fixed {
            restrictions.fix(item).unwrap();
        }
        let ranking = search(&problem, &SearchOptions { top: 5, restrictions }, &|_, _| {});
        assert!(!ranking.evaluations.is_empty(), "{spec:?}");
        for best in &ranking.evaluations {
            let listed = spelled_out(&costs, &best.plan);
            let explained = costs.evaluate_simulated(&listed);
            assert_eq!(bits(best, &[]), bits(&explained, &[]), "{}", best.plan);
            assert!(too_large(&costs, &best.plan).is_none() && check(&costs, &listed).is_empty(), "{}", best.plan);
            let options = refine::Options { rough: true, enumerate: false, most_evaluations: 10, ..Default::default() };
            let before = refine(&costs, &best.plan, &options).ok().and_then(|refined| refined.before);
            let before = before.unwrap_or_else(|| panic!("{}: it fits as it is", best.plan)).get();
            assert!(close(before, best.step.total().get()), "{}: {before} s before refinement", best.plan);
        }
    }
}
