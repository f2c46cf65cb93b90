//! Larger machines are never slower: collectives, fixed plans and the best plan, on every cluster of the catalogue.

use crate::random::{self, Spec, plans, spec};
use meshwright::catalog;
use meshwright::cluster::Cluster;
use meshwright::collective::{Dispatch, Fabric, Group};
use meshwright::cost::Costs;
use meshwright::gpu::{Collective, Topology};
use meshwright::plan::{CpKind, Plan};
use meshwright::problem::Problem;
use meshwright::search::{SearchOptions, search};
use meshwright::space::Restrictions;
use meshwright::split::LayerSplit;
use meshwright::stack::Dispatcher;
use meshwright::units::Bytes;

/// Room for rounding: sums of some hundred terms in another order.
const ROUNDING: f64 = 1e-9;

/// Change of a cluster that makes it larger or faster.
type Change = fn(&mut Cluster);

/// Changes, each with its name.
const CHANGES: [(&str, Change); 5] = [
    ("a scale-up domain twice as large", |cluster| {
        let domain = cluster.scale_up.gpus * 2;
        let joined = cluster.levels.first().map_or(cluster.scale_up.gpus, |level| level.gpus);
        let divides = cluster.levels.iter().all(|level| level.gpus % domain == 0);
        if cluster.scale_up.topology == Topology::Switch && joined >= domain && divides {
            cluster.scale_up.gpus = domain;
        }
    }),
    ("more bandwidth in the domain", |cluster| {
        cluster.scale_up.bandwidth = cluster.scale_up.bandwidth * 1.5;
        cluster.scale_up.pair_bandwidth = cluster.scale_up.pair_bandwidth * 1.5;
        for curve in cluster.gpu.collectives.values_mut().flatten() {
            curve.bandwidth = curve.bandwidth * 1.5;
        }
    }),
    ("more bandwidth of the network", |cluster| {
        cluster.gpu.nic.value = cluster.gpu.nic.value * 1.5;
        for level in &mut cluster.levels {
            level.bandwidth.value = level.bandwidth.value * 1.5;
        }
    }),
    ("more HBM bandwidth", |cluster| cluster.gpu.hbm_bandwidth.value = cluster.gpu.hbm_bandwidth.value * 1.5),
    ("more memory", |cluster| cluster.gpu.hbm.value = cluster.gpu.hbm.value * 1.5),
];

fn changed(cluster: &Cluster, change: Change) -> Cluster {
    let mut larger = cluster.clone();
    change(&mut larger);
    larger
}

#[test]
fn collectives_are_never_slower_on_a_larger_machine() {
    let none = catalog::Overrides::specification();
    let stack = catalog::stack("nemo-25", &none).unwrap();
    let mut checked = 0;
    for name in catalog::cluster_names() {
        let cluster = catalog::cluster(name, &none).unwrap();
        for (what, change) in CHANGES {
            let larger = changed(&cluster, change);
            let (before, after) = (Fabric::new(&cluster, &stack), Fabric::new(&larger, &stack));
            for (ranks, stride) in itertools::iproduct!([2, 4, 8, 16, 32, 64, 128], [1, 2, 4, 8, 16, 64]) {
                if ranks * stride > cluster.gpus {
                    continue;
                }
                let group = Group { ranks, stride };
                for bytes in [1e5, 1e7, 1e9] {
                    let payload = Bytes::new(bytes);
                    let times = |fabric: &Fabric| {
                        let dispatch = |dispatcher| Dispatch {
                            tokens: bytes / 8192.0,
                            token_bytes: Bytes::new(8192.0),
                            top_k: 8.0,
                            most_domains: f64::INFINITY,
                            dispatcher,
                        };
                        let mut all: Vec<f64> = [
                            Collective::AllReduce,
                            Collective::AllGather,
                            Collective::ReduceScatter,
                            Collective::AllToAll,
                        ]
                        .map(|op| fabric.time(op, payload, group, 1.0).get())
                        .to_vec();
                        all.push(fabric.dispatch(&dispatch(Dispatcher::AllToAll), group).get());
                        all.push(fabric.dispatch(&dispatch(Dispatcher::DeepEp), group).get());
                        all.push(fabric.pipeline_send(payload, stride, ranks, false).get());
                        all.push(fabric.pipeline_send(payload, stride, ranks, true).get());
                        all
                    };
                    for (at, (slow, fast)) in times(&before).into_iter().zip(times(&after)).enumerate() {
                        let message = format!("{name}, {what}: collective {at} of {group:?}, {bytes} bytes");
                        assert!(fast <= slow * (1.0 + ROUNDING), "{message}: {slow} -> {fast}");
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 10_000);
}

/// A question for each cluster of the catalogue: a model that it can train, on the stack of its device.
fn questions() -> impl Iterator<Item = (Spec, &'static str)> {
    catalog::cluster_names().into_iter().map(|cluster| {
        let stack = if cluster.starts_with("tpu") { "jax-2025" } else { "nemo-25" };
        let model = if cluster.contains("nvl72") || cluster.contains("800") { "qwen3-30b-a3b" } else { "llama3-8b" };
        (spec(model, cluster, stack, 24_576, 4096), cluster)
    })
}

/// The plan without what follows the machine: a split by the prices of layers, context groups of the size of the domain.
fn fixed(plan: Plan) -> Plan {
    let split = if plan.split == LayerSplit::CostBalanced { LayerSplit::Even } else { plan.split };
    let cp_kind = if plan.cp_kind == CpKind::Hierarchical { CpKind::Ring } else { plan.cp_kind };
    Plan { split, cp_kind, ..plan }
}

fn problem_of(spec: &Spec, change: Change) -> Option<Problem> {
    spec.problem().changed(|cluster, _, _| change(cluster)).ok()
}

#[test]
fn plans_are_never_slower_on_a_larger_machine() {
    let mut checked = 0;
    for (at, (spec, name)) in questions().enumerate() {
        let problem = spec.problem();
        let costs = Costs::new(&problem);
        let mut numbers = random::SplitMix::new(at as u64);
        let plans = plans(&problem, 100, 0x5eed + at as u64);
        let plans: Vec<_> = plans
            .iter()
            .map(|plan| random::wide_plan(&costs, plan, &mut numbers).unwrap_or(plan.clone()))
            .map(fixed)
            .collect();
        for (what, change) in CHANGES {
            let Some(larger) = problem_of(&spec, change) else { continue };
            let better = Costs::new(&larger);
            for plan in &plans {
                let (slow, fast) = (costs.evaluate(plan).step.total(), better.evaluate(plan).step.total());
                assert!(fast <= slow * (1.0 + ROUNDING), "{name}, {what}: {plan}: {slow} -> {fast}");
                checked += 1;
            }
        }
    }
    assert!(checked > 8_000);
}

#[test]
fn the_best_plan_is_never_slower_on_a_larger_machine() {
    let mut compared = 0;
    for name in ["dgx-h100-64", "gb200-nvl72-1152", "dgx-a100-1k"] {
        let spec = spec("llama3-8b", name, "nemo-25", 128, 4096).gpus(64);
        let best = |problem: &Problem| {
            let mut restrictions = Restrictions::default();
            restrictions.fix("recompute=none").unwrap();
            let found = search(problem, &SearchOptions { top: 1, restrictions }, &|_, _| {});
            found.evaluations[0].step.total()
        };
        let slow = best(&spec.problem());
        for (what, change) in CHANGES {
            let Some(larger) = problem_of(&spec, change) else { continue };
            let fast = best(&larger);
            assert!(fast <= slow * (1.0 + ROUNDING), "{name}, {what}: {slow} -> {fast}");
            compared += 1;
        }
    }
    assert!(compared > CHANGES.len(), "{compared}");
}
