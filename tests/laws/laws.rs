//! Laws of the price: what must hold for every plan of every problem.

use std::cell::Cell;

use crate::random::{Spec, for_wide_plans, plans, seeded, spec, specs};
use meshwright::cost::incremental::{
    least_host_update_of_layers, least_memory_of_layers, least_parameters, most_optimizer_on_host,
};
use meshwright::cost::{Costs, Evaluation};
use meshwright::frameworks::FRAMEWORKS;
use meshwright::gpu::Format;
use meshwright::limits::{Limits, PlanRule};
use meshwright::model::Model;
use meshwright::plan::{Layout, Offload, Plan, ZeroStage};
use meshwright::problem::Problem;
use meshwright::schedule::Schedule;
use meshwright::search::{SearchOptions, search};
use meshwright::space::{Restrictions, Space, least_memory, least_states, plain_plan};
use meshwright::units::Bytes;
use proptest::prelude::*;

/// Room for rounding: sums of some hundred terms in another order.
const ROUNDING: f64 = 1e-9;

fn at_most(a: f64, b: f64) -> bool {
    a <= b * (1.0 + ROUNDING)
}

/// Runs `law` on plans of every problem.
fn for_plans(each: usize, seed: u64, law: impl Fn(&Spec, &Costs, &Plan, &Evaluation)) {
    for (index, spec) in specs().iter().enumerate() {
        let problem = spec.problem();
        let costs = Costs::new(&problem);
        for plan in plans(&problem, each, seed + index as u64) {
            law(spec, &costs, &plan, &costs.evaluate(&plan));
        }
    }
}

#[test]
fn terms_are_times_and_sum_to_the_total() {
    for_plans(400, 1, |spec, _, plan, evaluation| {
        let terms = evaluation.step.terms();
        for (name, time) in terms {
            assert!(time.get().is_finite() && time.get() >= 0.0, "{spec:?} {plan}: {name} = {time}");
        }
        let sum: f64 = terms.iter().map(|(_, time)| time.get()).sum();
        assert!((evaluation.step.total().get() / sum - 1.0).abs() < ROUNDING, "{spec:?} {plan}");
    });
}

#[test]
fn tenants_are_sizes_and_sum_to_the_device() {
    for_plans(200, 2, |spec, costs, plan, evaluation| {
        for footprint in costs.footprints(plan) {
            let tenants = footprint.tenants();
            for (name, bytes) in tenants {
                assert!(bytes.get().is_finite() && bytes.get() >= 0.0, "{spec:?} {plan}: {name} = {bytes}");
            }
            let sum: f64 = tenants.iter().map(|(_, bytes)| bytes.get()).sum();
            assert!((footprint.peak().get() / sum - 1.0).abs() < ROUNDING, "{spec:?} {plan}");
            assert!(footprint.peak() <= evaluation.footprint.peak(), "{spec:?} {plan}: not the fullest");
            assert!(footprint.allocated() <= footprint.reserved() && footprint.reserved() <= footprint.peak());
        }
    });
}

/// Without a group of two there is nobody to talk to. Expert traffic stays where experts are split by etp, the exchange of
/// gradients where experts have copies on tensor ranks, or where a pipeline's two ends tie one embedding.
#[test]
fn a_degree_of_one_adds_no_communication() {
    for_plans(400, 3, |spec, costs, plan, evaluation| {
        let (model, step, layout) = (costs.problem.model(), &evaluation.step, &plan.layout);
        let zero = |what: &str, time: f64| assert!(time == 0.0, "{spec:?} {plan}: {what} = {time}");
        if layout.tp == 1 {
            zero("tp_comm", step.tp_comm.get());
        }
        if layout.cp == 1 {
            zero("cp_comm", step.cp_comm.get());
        }
        if layout.ep == 1 && layout.etp == 1 {
            zero("ep_comm", step.ep_comm.get());
        }
        if layout.tp * layout.cp * layout.dp == 1 {
            zero("amax_comm", step.amax_comm.get());
        }
        if layout.pp == 1 {
            zero("pp_comm", step.pp_comm.get());
            zero("pipeline_bubble", step.pipeline_bubble.get());
        }
        let copies = model.is_moe() && layout.expert_replicas() > 1;
        if layout.dense_replicas() == 1 && !copies && !(model.tied_embeddings && layout.pp > 1) {
            zero("dp_comm", step.dp_comm.get());
        }
        assert_eq!(layout.world_size(), costs.problem.cluster().gpus);
    });
}

/// The problem with all its links faster by a factor: network, scale-up domain, and every measured curve.
fn faster_links(problem: &Problem, network: f64, inside: f64) -> Problem {
    let mut cluster = problem.cluster().clone();
    for level in &mut cluster.levels {
        level.bandwidth.value = level.bandwidth.value * network;
    }
    cluster.gpu.nic.value = cluster.gpu.nic.value * network;
    for scale_up in [&mut cluster.scale_up, &mut cluster.gpu.scale_up] {
        scale_up.bandwidth = scale_up.bandwidth * inside;
        scale_up.pair_bandwidth = scale_up.pair_bandwidth * inside;
    }
    for curves in cluster.gpu.collectives.values_mut() {
        for curve in curves {
            curve.bandwidth = curve.bandwidth * inside;
        }
    }
    with(problem, cluster)
}

fn with(problem: &Problem, cluster: meshwright::cluster::Cluster) -> Problem {
    let (model, stack) = (problem.model().clone(), problem.stack().clone());
    Problem::new(model, cluster, problem.workload().clone(), stack, problem.hbm_profile()).unwrap()
}

fn higher_peak(problem: &Problem, times: f64) -> Problem {
    let mut cluster = problem.cluster().clone();
    for peak in cluster.gpu.peak.values_mut() {
        peak.value = peak.value * times;
    }
    with(problem, cluster)
}

fn more_hbm(problem: &Problem, times: f64) -> Problem {
    let mut cluster = problem.cluster().clone();
    cluster.gpu.hbm.value = cluster.gpu.hbm.value * times;
    with(problem, cluster)
}

/// Schedules that fill their bubble with weight gradients, `(p−1)·(F + B − k·W)` and the like: a shorter W leaves more to wait.
fn fills_with_weight_gradients(plan: &Plan) -> bool {
    use Schedule::{DualPipe, DualPipeV, GPipe, Interleaved, LoopedBfs, Naive, OneFOneB, ZbH1, ZbH2, ZbV};
    match plan.schedule {
        ZbH1 | ZbH2 | ZbV | DualPipe | DualPipeV => plan.layout.pp > 1,
        Naive | GPipe | OneFOneB | Interleaved { .. } | LoopedBfs { .. } => false,
    }
}

/// Whether a step is no slower than another.
///
/// Where the host bounds F and B (they stay) and the GEMMs of W get shorter, a bubble filled with W grows, and with it
/// what stragglers add: the documented form of the zero-bubble schedules says so, by some 1e-5 of the step. For them it
/// is enough that all other terms are no longer.
fn is_no_slower(is: &Evaluation, was: &Evaluation) -> bool {
    let unfilled = |of: &Evaluation| (of.step.total() - of.step.pipeline_bubble - of.step.stragglers).get();
    let is_filled = fills_with_weight_gradients(&was.plan) && was.plan.zero != ZeroStage::Three;
    at_most(is.step.total().get(), was.step.total().get()) || (is_filled && at_most(unfilled(is), unfilled(was)))
}

fn never_slower(spec: &Spec, before: &Problem, after: &Problem, plans: &[Plan], what: &str) {
    let (slow, fast) = (Costs::new(before), Costs::new(after));
    for plan in plans {
        let (was, is) = (slow.evaluate(plan), fast.evaluate(plan));
        assert!(is_no_slower(&is, &was), "{spec:?} {plan}: {what} takes {:?} instead of {:?}", is.step, was.step);
        assert_eq!(is.footprint, was.footprint);
    }
}

/// By wide plans: no host has room for a larger share than the bound says, and some share is far beyond the room.
#[test]
fn the_fullest_host_holds_no_less_than_the_mean() {
    let offloading = Cell::new(0);
    for_wide_plans(4000, 3, |costs, plan| {
        let Some(of_host) = costs.problem.cluster().host_memory else { return };
        let optimizer = plan.offload.optimizer;
        let [mean, _] = least_parameters(costs, plan);
        let most = most_optimizer_on_host(costs, plan, &mean);
        if optimizer <= 0.0 || most.is_infinite() {
            return;
        }
        offloading.set(offloading.get() + 1);
        let least = of_host * (optimizer / most);
        let held = costs.fullest_host(&Plan { offload: Offload { optimizer, activations: 0.0 }, ..plan.clone() });
        assert!(held >= least, "{}: {plan}: {held} under {least}", costs.problem.model().name);
        assert!(held <= least * f64::from(2 * plan.layout.world_size()), "{plan}: {held}, at least {least}");
    });
    assert!(offloading.get() > 300, "{} plans", offloading.get());
}

/// Number of obstacles that rules of all frameworks have for the first of two plans; they have the same for the second.
fn same_obstacles(problem: &Problem, plans: [&Plan; 2], rules: fn(&Limits) -> &'static [PlanRule]) -> usize {
    let mut found = 0;
    for framework in FRAMEWORKS {
        for rule in rules(framework.limits) {
            let [obstacle, of_like] =
                plans.map(|plan| rule(problem, plan).map(|obstacle| (obstacle.what, obstacle.why)));
            found += usize::from(obstacle.is_some());
            assert_eq!(obstacle, of_like, "{}: {}", framework.name(), plans[0]);
        }
    }
    found
}

/// The search asks these rules once for all shardings, offloads and rank orders of a plan.
#[test]
fn rules_on_a_shape_read_no_sharding_offload_or_order() {
    let refused = Cell::new(0);
    for_wide_plans(2000, 5, |costs, plan| {
        let problem = costs.problem;
        let Plan { zero, shard_group, reshard_after_forward, offload, order, .. } = plain_plan(problem);
        let like = Plan { zero, shard_group, reshard_after_forward, offload, order, ..plan.clone() };
        refused.set(refused.get() + same_obstacles(problem, [plan, &like], |limits| limits.shape));
    });
    assert!(refused.get() > 300, "{} refusals", refused.get());
}

/// The search asks these rules once per ZeRO stage, without and with a pipeline.
#[test]
fn rules_on_the_optimizer_on_the_host_read_no_more_than_they_say() {
    let refused = Cell::new(0);
    for_wide_plans(2000, 4, |costs, plan| {
        let problem = costs.problem;
        let plain = plain_plan(problem);
        let layout = Layout { pp: plan.layout.pp.min(2), ..plain.layout };
        let offload = Offload { activations: 0.0, ..plan.offload };
        let like = Plan { layout, zero: plan.zero, offload, ..plain };
        refused.set(refused.get() + same_obstacles(problem, [plan, &like], |limits| limits.optimizer_on_host));
    });
    assert!(refused.get() > 300, "{} refusals", refused.get());
}

proptest! {
    #![proptest_config(seeded(200))]

    #[test]
    fn a_better_machine_is_never_slower(pick in 0..specs().len(), seed: u64, network in 1.0_f64..4.0, inside in 1.0_f64..4.0) {
        let spec = &specs()[pick];
        let problem = spec.problem();
        let plans = plans(&problem, 40, seed);
        never_slower(spec, &problem, &faster_links(&problem, network, 1.0), &plans, "a faster network");
        never_slower(spec, &problem, &faster_links(&problem, 1.0, inside), &plans, "a faster scale-up domain");
        never_slower(spec, &problem, &higher_peak(&problem, network), &plans, "a higher peak");
        never_slower(spec, &problem, &more_hbm(&problem, network), &plans, "more HBM");
    }

    #[test]
    fn every_plan_needs_the_weights_and_gradients(pick in 0..specs().len(), seed: u64) {
        let spec = &specs()[pick];
        let problem = spec.problem();
        let (costs, least) = (Costs::new(&problem), least_memory(&problem));
        for plan in plans(&problem, 60, seed) {
            let needed = costs.fullest(&plan).peak();
            prop_assert!(needed >= least, "{:?} {}: {} under {}", spec, plan, needed, least);
            let parameters = least_parameters(&costs, &plan);
            let of_layers = least_memory_of_layers(&costs, &plan, &parameters);
            prop_assert!(needed >= of_layers, "{:?} {}: {} under {}", spec, plan, needed, of_layers);
            let (update, least) = (costs.evaluate(&plan).step, least_host_update_of_layers(&costs, &plan, &parameters));
            let update = update.optimizer + update.offload;
            prop_assert!(update >= least, "{:?} {}: {} under {}", spec, plan, update, least);
            let mut restrictions = Restrictions::default();
            restrictions.fix(&format!("offload-optimizer={}", plan.offload.optimizer)).unwrap();
            let of_states = least_states(&problem, Space::new(&costs, &restrictions).most_optimizer_on_host());
            prop_assert!(needed >= of_states, "{:?} {}: {} under {}", spec, plan, needed, of_states);
        }
    }

    #[test]
    fn a_longer_sequence_never_needs_less_memory(pick in 0..specs().len(), seed: u64, times in 2_u32..5) {
        let spec = &specs()[pick];
        let longer = Spec { seq_len: spec.seq_len * times, ..spec.clone() };
        let mut problem = spec.problem();
        if problem.model().learned_positions > 0 {
            // a table of positions only bounds the sequence: take it away on both sides
            let model = Model { learned_positions: 0, ..problem.model().clone() };
            let (cluster, stack) = (problem.cluster().clone(), problem.stack().clone());
            problem = Problem::new(model, cluster, problem.workload().clone(), stack, problem.hbm_profile()).unwrap();
        }
        let mut workload = problem.workload().clone();
        workload.seq_len = longer.seq_len;
        let (model, cluster, stack) = (problem.model().clone(), problem.cluster().clone(), problem.stack().clone());
        let long = Problem::new(model, cluster, workload, stack, problem.hbm_profile()).unwrap();
        let (short_costs, long_costs) = (Costs::new(&problem), Costs::new(&long));
        for plan in plans(&problem, 60, seed) {
            for (short, long) in short_costs.footprints(&plan).iter().zip(long_costs.footprints(&plan)) {
                prop_assert!(at_most(short.peak().get(), long.peak().get()), "{:?} {}", spec, plan);
            }
        }
    }

    /// ZeRO 1 never needs more than 0, and 2 (without a pipeline) never more than 1, rank by rank. ZeRO 3 shards the weights
    /// too, but gathers the layers at work and the embedding: it never needs more than the stage below it and that
    /// working set, which fragments like all tensors. A model of few large layers on few ranks can so need more. Where peaks are
    /// by moment under ZeRO 3, what lies beside the states is of another kind and is not compared.
    #[test]
    fn a_higher_zero_stage_never_needs_more(pick in 0..specs().len(), seed: u64) {
        let spec = &specs()[pick];
        let problem = spec.problem();
        let costs = Costs::new(&problem);
        for plan in plans(&problem, 60, seed) {
            let at = |zero| costs.footprints(&Plan { zero, ..plan.clone() });
            let (none, one) = (at(ZeroStage::Zero), at(ZeroStage::One));
            for (none, one) in none.iter().zip(&one) {
                prop_assert!(at_most(one.peak().get(), none.peak().get()), "{:?} {}", spec, plan);
            }
            let two = if plan.layout.pp == 1 { at(ZeroStage::Two) } else { one.clone() };
            for ((one, two), three) in one.iter().zip(&two).zip(at(ZeroStage::Three)) {
                prop_assert!(at_most(two.peak().get(), one.peak().get()), "{:?} {}", spec, plan);
                prop_assert!(three.weights + three.optimizer <= two.weights + two.optimizer);
                prop_assert!(three.gradients <= two.gradients);
                if problem.stack().memory.by_moment {
                    continue;
                }
                let gathered: Bytes = three.transient - two.transient;
                let room = two.peak() + gathered * 1.06;
                prop_assert!(gathered.get() >= 0.0 && at_most(three.peak().get(), room.get()), "{:?} {}", spec, plan);
                prop_assert!(three.weights <= two.weights);
            }
        }
    }
}

/// Small enough for a search in a moment.
fn small() -> Vec<Spec> {
    vec![
        spec("llama3-8b", "dgx-h100-8", "nemo-25", 32, 8192),
        spec("llama3-70b", "dgx-h100-64", "nemo-25", 64, 4096),
        spec("qwen3-30b-a3b", "dgx-h100-64", "nemo-25", 64, 4096).gpus(32),
        spec("llama3-8b", "a100-40-64", "torchtitan-2024", 32, 4096).gpus(16),
    ]
}

fn best(problem: &Problem) -> Option<f64> {
    let options = SearchOptions { top: 1, restrictions: Restrictions::default() };
    search(problem, &options, &|_, _| ()).evaluations.first().map(|best| best.step.total().get())
}

#[test]
fn a_better_machine_never_makes_the_best_plan_worse() {
    for spec in small() {
        let problem = spec.problem();
        let was = best(&problem).unwrap_or(f64::INFINITY);
        for (what, better) in [
            ("network", faster_links(&problem, 2.0, 1.0)),
            ("scale-up domain", faster_links(&problem, 1.0, 1.5)),
            ("peak", higher_peak(&problem, 1.3)),
            ("HBM", more_hbm(&problem, 1.5)),
        ] {
            let is = best(&better).unwrap_or(f64::INFINITY);
            assert!(at_most(is, was), "{spec:?}: with a better {what} the best plan takes {is} instead of {was}");
        }
    }
}

/// A faster NIC through `--set` makes no plan slower.
#[test]
fn set_a_faster_nic() {
    let slow = spec("llama3-70b", "h100-512", "nemo-25", 512, 8192).set("cluster.nic=200 Gb/s");
    let fast = spec("llama3-70b", "h100-512", "nemo-25", 512, 8192).set("cluster.nic=400 Gb/s");
    let (slow_problem, fast_problem) = (slow.problem(), fast.problem());
    let plans = plans(&slow_problem, 300, 7);
    never_slower(&slow, &slow_problem, &fast_problem, &plans, "cluster.nic");
}

/// 64 ranks in 8 nodes agree on maxima: two latencies of a tree for each of 6 chunks and 32 micro-batches.
#[test]
fn each_chunk_waits_twice_a_micro_batch_for_maxima() {
    let step = |reduction: &str, format| {
        let reduction = format!("stack.amax_reduction={reduction}");
        let mut spec = spec("gpt3-175b", "h100-512", "nemo-24", 512, 2048).set(reduction);
        spec.format = format;
        let problem = spec.problem();
        let plan = "tp=4 sp=on pp=8 schedule=interleaved vpp=6 zero=1 mbs=1";
        let plan = meshwright::space::parse_plan(plan, &problem).unwrap();
        Costs::new(&problem).evaluate(&plan).step.amax_comm.get()
    };
    let all = step("all", Format::Fp8);
    let tree = 0.5 * (10.0 + 24.0 * 3.0 + 4.0 * 8.0) * 1e-6;
    let least = 2.0 * tree * 6.0 * 32.0;
    assert!(all >= least && all < least * 1.2, "{all} s, latencies alone {least} s");
    let tp = step("tp", Format::Fp8);
    assert!(tp > 0.0 && tp < all / 2.0, "{tp} s over tp, {all} s over all");
    assert!(step("none", Format::Fp8) == 0.0 && step("all", Format::Bf16) == 0.0, "nobody waits");
}
