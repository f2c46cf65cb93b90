//! Imbalanced routing: the busiest rank of an expert group takes longer and holds more; without expert groups, no rank does.

use crate::random::spec;
use meshwright::cost::Costs;
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::workload::Workload;

/// Step time in seconds and peak memory in GiB under an imbalance.
fn price(imbalance: f64, plan: &str) -> (f64, f64) {
    let balanced = spec("qwen3-30b-a3b", "dgx-h100-64", "nemo-25", 256, 4096).problem();
    let workload = Workload { imbalance, ..balanced.workload().clone() };
    let (model, cluster, stack) = (balanced.model().clone(), balanced.cluster().clone(), balanced.stack().clone());
    let problem = Problem::new(model, cluster, workload, stack, balanced.hbm_profile()).unwrap();
    let evaluation = Costs::new(&problem).evaluate_simulated(&parse_plan(plan, &problem).unwrap());
    (evaluation.step.total().get(), evaluation.footprint.peak().as_gib())
}

#[test]
fn the_busiest_rank_takes_longer_and_holds_more() {
    let plan = "ep=8 dp=64 zero=1 mbs=4 dispatcher=alltoall"; // kernels take longer than their launches
    let (balanced, real) = (price(1.0, plan), price(1.6, plan));
    // Experts and their exchange are most of a step and of its activations, but not all.
    assert!(real.0 > 1.1 * balanced.0 && real.0 < 1.6 * balanced.0, "{balanced:?} {real:?}");
    assert!(real.1 > 1.02 * balanced.1 && real.1 < 1.6 * balanced.1, "{balanced:?} {real:?}");
}

#[test]
fn a_rank_with_all_experts_has_all_their_tokens() {
    let plan = "ep=1 dp=64 zero=3";
    assert_eq!(price(1.0, plan), price(1.6, plan));
}

/// The overlap of expert exchange with another micro-batch saves more with more of them: the first forwards and the last backwards of a
/// stage run alone.
#[test]
fn more_micro_batches_hide_more_of_the_exchange() {
    let saved = |plan: &str, batch: u32| {
        let time = |hidden: &str| {
            let spec =
                spec("qwen3-30b-a3b", "dgx-h100-64", "nemo-26", batch, 4096).set(format!("stack.overlap.ep={hidden}"));
            let problem = spec.set("stack.cuda_graphs=true").set("stack.graphed_experts=true").problem();
            Costs::new(&problem).evaluate_simulated(&parse_plan(plan, &problem).unwrap()).step.total().get()
        };
        1.0 - time("1") / time("0")
    };
    for (plan, replicas) in [
        ("ep=16 dp=64 mbs=1 recompute=none dispatcher=alltoall", 64),
        ("ep=16 pp=2 dp=32 mbs=1 recompute=none schedule=interleaved vpp=4 dispatcher=alltoall", 32),
    ] {
        let saved = [1, 2, 8, 64].map(|m| saved(plan, m * replicas));
        assert!(saved[0].abs() < 0.005, "no micro-batch to run beside: {saved:?}");
        let grows = saved.is_sorted_by(|less, more| *less <= more + 1e-12);
        assert!(grows && saved[3] > 0.05, "{plan}: {saved:?}");
    }
}
