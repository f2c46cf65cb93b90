//! Neighbours of a plan: the nearest feasible plan, a simpler plan of equal speed, and the sensitivity of the optimum.

use std::slice;

use super::driver::search_with;
use super::options::{Control, Goal, SearchOptions};
use super::whatif::WhatIfs;
use crate::space::{Restrictions, Space, check, divisors};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::{Layout, Offload, Plan, RankOrder};
use meshwright_engine::problem::Problem;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::units::Seconds;

/// Relative difference of step time below which two plans tie: the run-to-run noise of one layout.
///
/// Source: repeated layouts among the published runs, run mapping §2 (3.3 % in one source, 4.1 % in another).
pub const TIE: f64 = 0.033;

/// Settings of a plan, by the keys of `--fix`.
fn values(plan: &Plan) -> Vec<(&'static str, String)> {
    let Layout { tp, cp, pp, dp, ep, etp } = plan.layout;
    let on_off = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
    let mut values = vec![
        ("tp", tp.to_string()),
        ("cp", cp.to_string()),
        ("pp", pp.to_string()),
        ("dp", dp.to_string()),
        ("ep", ep.to_string()),
        ("etp", etp.to_string()),
        ("mbs", plan.micro_batch.to_string()),
        ("zero", u8::from(plan.zero).to_string()),
        ("shard", plan.dense_shards().to_string()),
        ("recompute", plan.recompute.to_string()),
        ("offload-optimizer", plan.offload.optimizer.to_string()),
        ("offload-activations", plan.offload.activations.to_string()),
        ("order", plan.order.to_string()),
        ("reshard", on_off(plan.reshard_after_forward)),
    ];
    if tp > 1 {
        values.push(("sp", on_off(plan.sequence_parallel)));
    }
    if cp > 1 {
        values.push(("cp-kind", plan.cp_kind.to_string()));
    }
    if ep > 1 {
        values.push(("dispatcher", plan.dispatcher.to_string()));
    }
    if pp > 1 {
        values.push(("schedule", plan.schedule.name().to_owned()));
        values.push(("split", plan.split.to_string()));
    }
    values.push(("vpp", plan.schedule.virtual_stages().to_string()));
    values
}

/// Settings that free memory, the cheapest to change first.
const MEMORY: [&str; 7] =
    ["recompute", "zero", "shard", "reshard", "offload-optimizer", "offload-activations", "order"];
/// Settings of the pipeline at its degree.
const PIPELINE: [&str; 4] = ["mbs", "schedule", "vpp", "split"];
/// Degrees whose change moves weights between ranks, and exchanges beside them.
const LAYOUT: [&str; 4] = ["pp", "dp", "sp", "dispatcher"];
/// Settings of context parallelism.
const CONTEXT: [&str; 2] = ["cp", "cp-kind"];
/// Settings of the expert grid.
const EXPERTS: [&str; 2] = ["ep", "etp"];

/// Fastest feasible plan that changes as few settings of an infeasible plan as possible. Settings are freed in stages:
/// recomputation; then ZeRO stage, shard group and resharding; then offload and rank order; then the expert grid alone; then
/// micro-batch, schedule, chunks and split in its place; then pp, dp, sequence parallelism and dispatcher; with those context
/// parallelism, or the expert grid, or tensor parallelism; last everything. Degrees that a stage frees are first held between half and
/// twice their value. Of each stage, plans without mechanisms that no published run has shown come first. `restrict` adds restrictions
/// that hold whatever is free.
pub fn nearest_feasible(
    costs: &Costs,
    plan: &Plan,
    restrict: &dyn Fn(&mut Restrictions),
    control: &Control,
) -> Option<Evaluation> {
    let steps: [&[&[&str]]; 10] = [
        &[&MEMORY[..1]],
        &[&MEMORY[..4]],
        &[&MEMORY],
        &[&EXPERTS],
        &[&MEMORY, &PIPELINE],
        &[&MEMORY, &PIPELINE, &LAYOUT],
        &[&MEMORY, &PIPELINE, &LAYOUT, &CONTEXT],
        &[&MEMORY, &PIPELINE, &LAYOUT, &EXPERTS],
        &[&MEMORY, &PIPELINE, &LAYOUT, &["tp"]],
        &[],
    ];
    let near = |free: &[&[&str]], are_held: bool, is_proven: bool| {
        let mut restrictions = Restrictions::default();
        restrict(&mut restrictions);
        if is_proven {
            restrictions.proven_only(costs.problem); // before settings are fixed, which would count as asked for
        }
        for (key, value) in values(plan) {
            let is_free = free.is_empty() || free.iter().any(|keys| keys.contains(&key));
            let kept = match (is_free, degree(plan, key)) {
                (false, _) => value,
                (true, Some(degree)) if are_held => format!("{}..{}", degree.div_ceil(2), degree.saturating_mul(2)),
                (true, _) => continue,
            };
            restrictions.fix(&format!("{key}={kept}")).ok()?;
        }
        best(costs, restrictions, control)
    };
    steps.into_iter().find_map(|free| {
        let frees_degree = DEGREES.iter().any(|key| free.iter().any(|keys| keys.contains(key)));
        let held = [(true, true), (true, false)].into_iter().filter(|_| frees_degree);
        held.chain([(false, true), (false, false)]).find_map(|(are_held, is_proven)| near(free, are_held, is_proven))
    })
}

/// Degrees that a user chooses; that of data parallelism follows from them.
const DEGREES: [&str; 5] = ["tp", "cp", "pp", "ep", "etp"];

/// Value of a degree of [`DEGREES`]; none for other settings.
fn degree(plan: &Plan, key: &str) -> Option<u32> {
    let Layout { tp, cp, pp, ep, etp, .. } = plan.layout;
    DEGREES.into_iter().zip([tp, cp, pp, ep, etp]).find_map(|(name, value)| (name == key).then_some(value))
}

/// Fastest plan under restrictions.
fn best(costs: &Costs, restrictions: Restrictions, control: &Control) -> Option<Evaluation> {
    let ranking = search_with(costs, &SearchOptions { top: 1, restrictions }, Goal::Fastest, control);
    ranking.evaluations.into_iter().next()
}

/// Simpler plan of a space within run-to-run noise ([`TIE`]) of the winner, if there is one. It drops offload, shard groups, the
/// data-outermost rank order and an uneven split (unless every stage is spelled out), each where that stays within [`TIE`].
pub fn plainer(costs: &Costs, space: &Space, winner: &Evaluation) -> Option<Evaluation> {
    let priced =
        |plan: Plan| (space.allows(&plan) && check(costs, &plan).is_empty()).then(|| costs.evaluate_simulated(&plan));
    plainer_by(winner, |evaluation| (&evaluation.plan, evaluation.step.total()), priced)
}

/// [`plainer`] of anything that has a plan and a step time; `priced` is it with another plan, if that runs.
pub fn plainer_by<T: Clone>(
    winner: &T,
    of: impl Fn(&T) -> (&Plan, Seconds),
    priced: impl Fn(Plan) -> Option<T>,
) -> Option<T> {
    let most = of(winner).1 * (1.0 + TIE);
    let mut plain: Option<T> = None;
    let simpler: [fn(Plan) -> Plan; 5] = [
        |plan| Plan { offload: Offload { activations: 0.0, ..plan.offload }, ..plan },
        |plan| Plan { offload: Offload { optimizer: 0.0, ..plan.offload }, ..plan },
        |plan| Plan { shard_group: None, ..plan },
        |plan| if let LayerSplit::Stages(_) = plan.split { plan } else { Plan { split: LayerSplit::Even, ..plan } },
        |plan| Plan { order: RankOrder::default(), ..plan },
    ];
    for simplify in simpler {
        let known = of(plain.as_ref().unwrap_or(winner)).0;
        let plan = simplify(known.clone());
        if plan != *known
            && let Some(found) = priced(plan)
            && of(&found).1 <= most
        {
            plain = Some(found);
        }
    }
    plain
}

/// Optimum after one setting or hardware figure is changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedOptimum {
    /// The change: `tp 8 → 4`, `network +10 %`.
    pub what: String,
    /// Best plan after the change; `None` if no plan runs.
    pub best: Option<Evaluation>,
    /// Its step time relative to the winner's, minus 1.
    pub slower: Option<f64>,
}

/// Change of a hardware figure of the cluster.
type Tweak = fn(&mut Cluster);

/// Changes of the hardware figures, each by its name.
const FIGURES: [(&str, Tweak); 5] = [
    ("network +10 %", |cluster| {
        cluster.gpu.nic.value = cluster.gpu.nic.value * MORE;
        for level in &mut cluster.levels {
            level.bandwidth.value = level.bandwidth.value * MORE;
        }
    }),
    ("scale-up links +10 %", |cluster| {
        for scale_up in [&mut cluster.scale_up, &mut cluster.gpu.scale_up] {
            scale_up.bandwidth = scale_up.bandwidth * MORE;
            scale_up.pair_bandwidth = scale_up.pair_bandwidth * MORE;
        }
        for curve in cluster.gpu.collectives.values_mut().flatten() {
            curve.bandwidth = curve.bandwidth * MORE;
        }
    }),
    ("HBM +10 %", |cluster| cluster.gpu.hbm.value = cluster.gpu.hbm.value * MORE),
    ("HBM bandwidth +10 %", |cluster| cluster.gpu.hbm_bandwidth.value = cluster.gpu.hbm_bandwidth.value * MORE),
    ("peak +10 %", |cluster| {
        for peak in cluster.gpu.peak.values_mut() {
            peak.value = peak.value * MORE;
        }
    }),
];

/// Degree of a plan that may change.
struct FreeDegree {
    /// Key of `--fix`.
    key: &'static str,
    /// Value in the plan.
    value: u32,
    /// Candidate values, ascending.
    candidates: Vec<u32>,
}

/// Degrees that the restrictions leave free.
fn free_degrees(problem: &Problem, restrictions: &Restrictions, plan: &Plan) -> Vec<FreeDegree> {
    let gpus = problem.cluster().gpus;
    let of_gpus = || if restrictions.allows_idle() { (1..=gpus.min(MOST_STEPS)).collect() } else { divisors(gpus) };
    let Layout { tp, cp, pp, ep, .. } = plan.layout;
    let model = problem.model();
    let all = [
        ("tp", tp, of_gpus()),
        ("cp", cp, of_gpus()),
        ("pp", pp, of_gpus()),
        ("vpp", plan.schedule.virtual_stages(), (1..=model.layers() + 2).collect()),
        ("ep", ep, divisors(model.experts().max(1))),
        ("mbs", plan.micro_batch, divisors(problem.workload().global_batch)),
    ];
    let degree = |(key, value, candidates)| FreeDegree { key, value, candidates };
    all.into_iter().filter(|(key, ..)| !restrictions.fixes(key)).map(degree).collect()
}

/// Restrictions that also hold the winner's degrees but `changed` and the replicas; none where they exclude it.
fn near(restrictions: &Restrictions, winner: &Plan, changed: &str) -> Option<Restrictions> {
    let Layout { tp, cp, pp, ep, .. } = winner.layout;
    let held = [("tp", tp), ("cp", cp), ("ep", ep), ("mbs", winner.micro_batch), ("pp", pp)];
    let mut near = restrictions.clone();
    for (key, value) in held.iter().filter(|(key, _)| *key != changed) {
        near.fix(&format!("{key}={value}")).ok()?;
    }
    Some(near)
}

/// Largest degree tried when GPUs may stay idle; no useful layout has a larger one.
const MOST_STEPS: u32 = 1024;

/// Factor applied to each hardware figure.
const MORE: f64 = 1.1;

/// Optimum after each one-step change of the winner's degrees, and after 10 % more of each hardware figure. It shows which
/// figure binds, and whether the optimum is a peak or a plateau.
///
/// A degree moves to the next value for which some plan runs; all other settings are free. When `control` breaks, the changes
/// that are left are not tried.
pub fn sensitivity(
    problem: &Problem,
    restrictions: &Restrictions,
    winner: &Evaluation,
    control: &Control,
) -> Vec<ChangedOptimum> {
    let costs = Costs::new(problem);
    let what_ifs = WhatIfs::new(&costs).controlled_by(control).starting_from(slice::from_ref(&winner.plan));
    let mut changes = Vec::new();
    let changed_optimum = |what: String, best: Option<Evaluation>| {
        let slower = best.as_ref().map(|best| best.step.total() / winner.step.total() - 1.0);
        ChangedOptimum { what, best, slower }
    };
    for FreeDegree { key, value, candidates } in free_degrees(problem, restrictions, &winner.plan) {
        let best_with = |to: u32| {
            if control(0, 1).is_break() {
                return None;
            }
            let mut restrictions = restrictions.clone();
            restrictions.fix(&format!("{key}={to}")).ok()?;
            // The plan with the winner's other degrees is the incumbent of the search over all.
            if let Some(near) = near(&restrictions, &winner.plan, key) {
                what_ifs.ask(&SearchOptions { top: 1, restrictions: near }, Goal::Fastest);
            }
            let ranking = what_ifs.ask(&SearchOptions { top: 1, restrictions }, Goal::Fastest);
            ranking.evaluations.into_iter().next().filter(|_| control(0, 1).is_continue()).map(|best| (to, best))
        };
        let below = candidates.iter().rev().filter(|&&to| to < value).find_map(|&to| best_with(to));
        let above = candidates.iter().filter(|&&to| to > value).find_map(|&to| best_with(to));
        for (to, best) in below.into_iter().chain(above) {
            changes.push(changed_optimum(format!("{key} {value} → {to}"), Some(best)));
        }
    }
    for (what, change) in FIGURES {
        if control(0, 1).is_break() {
            break;
        }
        if let Ok(changed) = problem.changed(|cluster, _, _| change(cluster)) {
            let costs = Costs::new(&changed);
            let what_ifs = WhatIfs::new(&costs).controlled_by(control).starting_from(slice::from_ref(&winner.plan));
            let ranking = what_ifs.ask(&SearchOptions { top: 1, restrictions: restrictions.clone() }, Goal::Fastest);
            if control(0, 1).is_break() {
                break; // the search may have ended before its optimum
            }
            changes.push(changed_optimum(what.to_owned(), ranking.evaluations.into_iter().next()));
        }
    }
    changes
}
