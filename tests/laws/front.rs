//! The Pareto front of a search is that of a plain loop; with a tolerance, it covers every plan of the space.

use std::ops::ControlFlow;

use crate::brute_force::{adds_up, by_hand, options, problems_wanted, small, time};
use crate::random::SplitMix;
use meshwright::cost::Evaluation;
use meshwright::search::{Goal, Ranking, SearchProof, search_for};

/// Last digits in which the sums of two equal prices may differ.
const DIGITS: f64 = 1e-9;

fn memory(evaluation: &Evaluation) -> f64 {
    evaluation.footprint.peak().get()
}

/// Whether `known` is worse than `any` by no more than a tolerance in time, memory and GPUs.
fn covers(known: &Evaluation, any: &Evaluation, tolerance: f64) -> bool {
    let most = (1.0 + tolerance) * (1.0 + DIGITS);
    let worlds = [known, any].map(|evaluation| f64::from(evaluation.plan.layout.world_size()));
    time(known) <= time(any) * most && memory(known) <= memory(any) * most && worlds[0] <= worlds[1] * most
}

/// Whether `a` is no worse than `b` in time, memory and GPUs, and better in one.
fn beats(a: &Evaluation, b: &Evaluation) -> bool {
    // Values within the last digits but not bit-equal count as worse, so neither plan beats the other by rounding.
    let worse = |a: f64, b: f64| a.to_bits() != b.to_bits() && a > b * (1.0 - DIGITS);
    let better = |a: f64, b: f64| a < b * (1.0 - DIGITS);
    let worlds = (a.plan.layout.world_size(), b.plan.layout.world_size());
    !worse(time(a), time(b))
        && !worse(memory(a), memory(b))
        && worlds.0 <= worlds.1
        && (better(time(a), time(b)) || better(memory(a), memory(b)) || worlds.0 < worlds.1)
}

/// Calls `test` with random problems: their name, every plan that runs, the number of plans, and a search by tolerance.
fn on_problems(seed: u64, mut test: impl FnMut(&str, &[Evaluation], u64, &dyn Fn(f64) -> Ranking)) {
    let mut numbers = SplitMix::new(seed);
    for _ in 0..problems_wanted() / 5 {
        let (spec, restrictions) = small(&mut numbers);
        let problem = spec.problem();
        let (evaluations, size) = by_hand(&problem, &restrictions);
        let go_on = |_, _| ControlFlow::Continue(());
        let front = |tolerance| search_for(&problem, &options(&restrictions), Goal::Pareto { tolerance }, &go_on);
        test(&format!("{spec:?} {restrictions:?}"), &evaluations, size, &front);
    }
}

#[test]
fn the_whole_front_is_what_no_plan_beats() {
    on_problems(77, |what, evaluations, size, front| {
        let front = front(0.0);
        adds_up(what, &front, size);
        assert_eq!(front.certificate.proof, SearchProof::Optimal, "{what}");
        for on_front in &front.evaluations {
            assert!(!evaluations.iter().any(|other| beats(other, on_front)), "{what}: {} is beaten", on_front.plan);
        }
        for any in evaluations {
            let is_covered = front.evaluations.iter().any(|known| covers(known, any, 0.0));
            assert!(is_covered, "{what}: the front misses {}", any.plan);
        }
    });
}

#[test]
fn a_front_with_a_tolerance_covers_every_plan_within_it() {
    let (mut rows, mut whole, mut evaluated, mut all) = (0, 0, 0, 0);
    on_problems(1977, |what, evaluations, size, front| {
        let exact = front(0.0);
        whole += exact.evaluations.len();
        all += exact.evaluated;
        for tolerance in [0.01, 0.2] {
            let front = front(tolerance);
            adds_up(what, &front, size);
            for any in evaluations {
                let is_covered = front.evaluations.iter().any(|known| covers(known, any, tolerance));
                assert!(is_covered, "{what}: beyond {tolerance}, the front misses {}", any.plan);
            }
            if let ([first, ..], [fastest, ..]) = (&front.evaluations[..], &exact.evaluations[..]) {
                assert_eq!(front.certificate.proof, SearchProof::Covered { tolerance }, "{what}");
                assert!(
                    (time(first) / time(fastest) - 1.0).abs() < DIGITS,
                    "{what}: {} is not the fastest",
                    first.plan
                );
            }
            for (at, row) in front.evaluations.iter().enumerate() {
                let others = front.evaluations.iter().enumerate().filter(|(other, _)| *other != at);
                assert!(others.clone().all(|(_, other)| !beats(other, row)), "{what}: {} is beaten", row.plan);
            }
            if tolerance > 0.1 {
                rows += front.evaluations.len();
                evaluated += front.evaluated;
            }
        }
    });
    assert!(rows > 0 && rows * 2 < whole, "{rows} rows of {whole}");
    assert!(evaluated < all, "{evaluated} evaluations of {all}");
}
