//! Corners of the search where hardly a plan fits: how many pipelines it explores there.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::spec;
use meshwright::cost::Costs;
use meshwright::search::{Goal, Ranking, SearchOptions, SearchProof, search_with};
use meshwright::space::Restrictions;

fn options(fixed: &[&str], forbidden: &[&str]) -> SearchOptions {
    let mut restrictions = Restrictions::default();
    for item in fixed {
        restrictions.fix(item).unwrap();
    }
    for item in forbidden {
        restrictions.forbid(item).unwrap();
    }
    SearchOptions { top: 1, restrictions }
}

/// A search, and how often it asked whether to go on: before each pipeline that it explores, and after each batch of shapes.
fn counted(costs: &Costs, options: &SearchOptions, goal: Goal) -> (Ranking, u64) {
    let asked = AtomicU64::new(0);
    let ranking = search_with(costs, options, goal, &|_, _| {
        asked.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    (ranking, asked.into_inner())
}

#[test]
fn states_that_never_fit_are_rejected_before_a_pipeline_is_explored() {
    let problem = spec("deepseek-v3", "dgx-h100-64", "nemo-25", 128, 4096).problem();
    let options = options(&["mbs=1", "pp=8"], &["offload-optimizer=0.25,0.5,0.75,1"]);
    let (ranking, asked) = counted(&Costs::new(&problem), &options, Goal::Fastest);
    assert!(ranking.evaluations.is_empty() && ranking.certificate.proof == SearchProof::Optimal);
    assert_eq!(asked, 0, "pipelines explored");
}

#[test]
fn a_space_without_recomputations_is_empty() {
    let problem = spec("llama3-8b", "dgx-h100-8", "nemo-25", 128, 8192).problem();
    let (ranking, _) =
        counted(&Costs::new(&problem), &options(&["recompute=full"], &["recompute=full"]), Goal::Fastest);
    assert!(ranking.evaluations.is_empty() && ranking.certificate.proof == SearchProof::Optimal);
}
