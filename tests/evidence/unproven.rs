//! Mechanisms that the default space leaves out have no published run, and published runs reach the bounds that it keeps.

use std::collections::BTreeSet;
use std::fs::File;

use meshwright::gpu::Host;
use meshwright::plan::{Plan, ZeroStage};
use meshwright::problem::Problem;
use meshwright::runs;
use meshwright::schedule::Schedule;
use meshwright::space::{
    FEWEST_TOKENS, LARGEST_BESIDE_GRACE, LARGEST_EXPERT_GROUP, LARGEST_EXPERT_GROUP_IN_RACK, LARGEST_OVER_PCIE,
    MOST_CHUNKS, Unproven,
};
use meshwright::stack::Family;

/// Published runs that have a plan, with their names. Chunks of a pipeline that a row does not state are assumed by its reader
/// (docs/run-mapping.md), so they show nothing: the plan is without them.
fn published() -> Vec<(String, Problem, Plan)> {
    let path = format!("{}/tests/published/runs.csv", env!("CARGO_MANIFEST_DIR"));
    let rows = runs::read(File::open(path).unwrap()).unwrap();
    let found = rows.iter().filter_map(|row| {
        let (problem, mut plan) = runs::problem_of(row).ok()?;
        if row.vpp.is_none() {
            plan.schedule = Schedule::OneFOneB;
        }
        Some((row.id.clone().unwrap_or_default(), problem, plan))
    });
    let found: Vec<_> = found.collect();
    assert!(found.len() > 600, "{} rows have a plan", found.len());
    found
}

/// Where this fails, a published run has shown the mechanism: take it from the list, or move its bound.
#[test]
fn no_published_run_has_an_unproven_mechanism() {
    let mut shown = BTreeSet::new();
    for (run, problem, plan) in &published() {
        shown.extend(Unproven::in_plan(problem, plan).into_iter().map(|found| (found.what, run.clone())));
    }
    assert!(shown.is_empty(), "{shown:#?}");
}

/// A bound that no run reaches leaves out less than it says.
#[test]
fn published_runs_reach_the_bounds() {
    let runs = published();
    let split = runs.iter().filter(|(_, _, plan)| plan.layout.cp > 1);
    let fewest = split.map(|(_, problem, plan)| problem.workload().seq_len / plan.layout.cp).min();
    assert_eq!(fewest, Some(FEWEST_TOKENS));
    let pipelines = runs.iter().filter(|(_, _, plan)| plan.layout.pp > 1);
    assert_eq!(pipelines.map(|(_, _, plan)| plan.schedule.virtual_stages()).max(), Some(MOST_CHUNKS));
    assert_eq!(runs.iter().map(|(_, _, plan)| plan.layout.ep).max(), Some(LARGEST_EXPERT_GROUP));
    let in_racks = runs.iter().filter(|(_, problem, _)| problem.cluster().scale_up.gpus == 72);
    let ranks = |plan: &Plan| plan.layout.ep * plan.layout.etp;
    assert_eq!(in_racks.map(|(_, _, plan)| ranks(plan)).max(), Some(LARGEST_EXPERT_GROUP_IN_RACK));
    let largest = |host: Host| {
        let sharded = runs.iter().filter(|(_, problem, plan)| {
            problem.stack().family == Family::Megatron
                && problem.cluster().host == host
                && plan.zero == ZeroStage::Three
                && !problem.model().is_moe()
        });
        sharded.map(|(_, problem, _)| problem.model().parameters().total).max()
    };
    assert_eq!(largest(Host::X86), Some(LARGEST_OVER_PCIE));
    assert_eq!(largest(Host::Grace), Some(LARGEST_BESIDE_GRACE));
}
