//! On random plans over every choice: the incremental evaluation equals the direct one, and its lower bounds hold.

use std::cell::Cell;

use crate::random::{SplitMix, for_wide_plans, specs};
use meshwright::cost::incremental::{
    AroundFlow, Block, FeedForward, FirstRank, LayerParts, Layers, LeastExchange, Loaded, Mixing, Parameters, Pipeline,
    RankMemory, Sharding, Stages, fullest_rank_bound, layer_bound, least_flow_of_passes, least_states,
    least_time_of_flow,
};
use meshwright::cost::{Costs, Stager};
use meshwright::plan::{Offload, Plan, Recompute, ZeroStage};
use meshwright::split::LayerSplit;
use meshwright::stages::StagedPlan;
use meshwright::units::Seconds;

/// Relative difference that regrouped sums may have.
const ROUNDING: f64 = 1e-12;

/// Plans looked at: `MESHWRIGHT_PLANS=1000000` for the full count, which takes minutes (results in `benches/runs`).
fn plans_wanted() -> usize {
    std::env::var("MESHWRIGHT_PLANS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= ROUNDING * b.abs()
}

fn stages_of(costs: &Costs, plan: &Plan, layers: &Layers) -> Stages {
    Stages::new(costs, plan, &layers.of_chunks(costs, plan))
}

fn least_dense_exchange(costs: &Costs, plan: &Plan, parameters: &Parameters) -> Seconds {
    Parameters::least_dense_exchange(costs, plan, parameters.dense_exchange(costs, plan))
}

#[test]
fn staged_and_flat_prices_agree() {
    let checked = for_wide_plans(plans_wanted(), 100, |costs, plan| {
        let flat = costs.evaluate(plan);
        let block = Block::of(costs, plan);
        let layers = block.layers(costs, plan);
        let stages = stages_of(costs, plan, &layers);
        let loaded = Loaded::new(costs, Pipeline::new(costs, plan, &layers, &stages), &stages);
        let sharding = Sharding::new(costs, plan, &Parameters::new(costs, plan, &stages));
        let staged = loaded.price(costs, &sharding);
        let (time, memory) = (flat.step.total().get(), flat.footprint.peak().get());
        assert!(close(staged.time.get(), time), "{plan}: {} staged, {time} flat", staged.time.get());
        assert!(close(staged.memory.get(), memory), "{plan}: {} staged, {memory} flat", staged.memory.get());
    });
    assert!(checked >= plans_wanted());
}

/// No share of the optimizer on the host, and no shard group, is faster or leaner than the lower bound of all of them.
#[test]
fn floors_of_shardings_are_floors() {
    let shares = [0.0, 0.25, 0.5, 0.75, 1.0];
    let checked = for_wide_plans(plans_wanted(), 300, |costs, plan| {
        let layers = Block::of(costs, plan).layers(costs, plan);
        let stages = stages_of(costs, plan, &layers);
        let loaded = Loaded::new(costs, Pipeline::new(costs, plan, &layers, &stages), &stages);
        let parameters = Parameters::new(costs, plan, &stages);
        let offload = Offload { optimizer: 0.0, ..plan.offload };
        let groups = [plan.shard_group, None].map(|shard_group| Plan { shard_group, offload, ..plan.clone() });
        let floors = groups.map(|plan| {
            let floor = Sharding::new(costs, &plan, &parameters).floor(costs, &plan, &parameters, &shares);
            let least = loaded.price(costs, &floor);
            for share in shares {
                let own = loaded.price(costs, &floor.with_host(costs, &plan, &parameters, share));
                assert!(least.time <= own.time && least.memory <= own.memory, "{plan}: {share} {least:?} {own:?}");
            }
            floor
        });
        let lesser = loaded.price(costs, &floors[0].lesser(&floors[1]));
        for floor in &floors {
            let own = loaded.price(costs, floor);
            assert!(lesser.time <= own.time && lesser.memory <= own.memory, "{plan}: {lesser:?} {own:?}");
        }
    });
    assert!(checked >= plans_wanted());
}

/// Stages that are spelled out cost what those very stages cost one by one; identical ones what the even split costs.
#[test]
fn spelled_out_stages_are_priced_one_by_one() {
    let (mut spelled_out, mut identical) = (0, 0);
    for spec in specs() {
        let problem = spec.problem();
        let costs = Costs::new(&problem);
        let mut numbers = SplitMix::new(77);
        for plan in crate::random::plans(&problem, 60, 78) {
            let pp = plan.layout.pp;
            if pp == 1 {
                continue;
            }
            let chunks = plan.pipeline().chunks();
            let even = meshwright::split::layers::even(problem.model().layers(), chunks);
            if even.iter().all(|count| *count == even[0]) {
                let listed = LayerSplit::stages(&even, problem.model().mtp_depth, even.len() - 1);
                let (one, two) = (costs.evaluate(&plan), costs.evaluate(&Plan { split: listed, ..plan }));
                let (one, two) = (one.step.total().get(), two.step.total().get());
                assert!(close(one, two), "{plan}: {one} even, {two} spelled out");
                identical += 1;
            }
            let plan = Plan { split: crate::random::listed_split(&costs, &plan, &mut numbers), ..plan };
            let stager = Stager::new(&costs, &plan);
            let counts = costs.layers_of_chunks(&plan, &costs.shape(&plan));
            let one = costs.evaluate_simulated(&plan);
            let two = stager.evaluate(&StagedPlan::uniform(problem.model(), &plan, &counts));
            let (a, b) = (one.step.total().get(), two.evaluation.step.total().get());
            assert!(close(b, a), "{plan}: {a} simulated, {b} by stages");
            let (a, b) = (one.footprint.peak().get(), two.evaluation.footprint.peak().get());
            assert!(close(b, a), "{plan}: {a} bytes, {b} by stages");
            spelled_out += 1;
        }
    }
    assert!(spelled_out > 100 && identical > 20, "{spelled_out} and {identical} plans");
}

/// The update and the exchange, each bounded alone, take no longer than the ends of a step under ZeRO 0 to 2.
#[test]
fn bounds_of_ends_are_bounds() {
    let checked = for_wide_plans(plans_wanted(), 300, |costs, plan| {
        if plan.zero == ZeroStage::Three {
            return;
        }
        let layers = Block::of(costs, plan).layers(costs, plan);
        let parameters = Parameters::new(costs, plan, &stages_of(costs, plan, &layers));
        let exchange = least_dense_exchange(costs, plan, &parameters) + parameters.least_ends(costs, plan);
        let ends = exchange + parameters.least_update(costs, plan, &[plan.offload.optimizer]);
        let own = Sharding::new(costs, plan, &parameters).least_time(costs, plan);
        assert!(ends <= own * (1.0 + ROUNDING), "{plan}: {ends:?} bounds {own:?}");
        assert!(ends >= own * (1.0 - 1e-9), "{plan}: {ends:?} bounds {own:?} loosely");
    });
    assert!(checked >= plans_wanted(), "{checked} plans");
}

/// Bounds that count what windows are too short to hide of an exchange, with the windows of the plan itself and with
/// the longest of a flow that takes no longer, never exceed the simulated time.
#[test]
fn bounds_with_an_exchange_never_exceed_the_simulated_time() {
    let unhidden = Cell::new(0);
    let checked = for_wide_plans(plans_wanted(), 100, |costs, plan| {
        if plan.zero == ZeroStage::Three {
            return;
        }
        let block = Block::of(costs, plan);
        let layers = block.layers(costs, plan);
        let stages = stages_of(costs, plan, &layers);
        let parameters = Parameters::new(costs, plan, &stages);
        let dense = parameters.dense_exchange(costs, plan);
        let exchange = LeastExchange::new(plan.zero, plan.order, parameters.exchange(costs, plan, dense));
        let ends = Sharding::new(costs, plan, &parameters).least_time(costs, plan);
        let time = costs.evaluate_simulated(plan).step.total();
        let at_most = |bound: Seconds, what: &str| {
            let bound = bound + ends;
            assert!(bound <= time * (1.0 + ROUNDING), "{plan}: {what} {bound:?} over {time:?} simulated");
        };
        let bare = Pipeline::new(costs, plan, &layers, &stages);
        let own = bare.clone().exchanging(costs, exchange);
        at_most(own.least_time(Seconds::ZERO), "bound of any windows");
        at_most(own.least_time_within(&own), "bound of its own windows");
        let is_unhidden = own.least_time(Seconds::ZERO) > bare.least_time(Seconds::ZERO);
        unhidden.set(unhidden.get() + u32::from(is_unhidden));
        let around = AroundFlow::new(costs, plan).exchanging(exchange);
        at_most(least_time_of_flow(costs, plan, &layers, &stages, &around), "bound before the flow is priced");
        let kept = Plan { offload: Offload { activations: 0.0, ..plan.offload }, ..plan.clone() };
        at_most(own.with_layers(costs, &kept, &layers, &stages).least_time_within(&own), "bound without offload");
        let light = Plan { recompute: Recompute::None, offload: Offload::NONE, ..plan.clone() };
        let its_layers = block.layers(costs, &light);
        let its_stages = stages_of(costs, &light, &its_layers);
        if its_stages.last_chunk() == stages.last_chunk() {
            let light = Pipeline::new(costs, &light, &its_layers, &its_stages).exchanging(costs, exchange);
            at_most(light.least_time(Seconds::ZERO), "bound without recomputation");
        }
    });
    assert!(
        checked >= plans_wanted() && unhidden.get() > 0,
        "{checked} plans, {unhidden:?} with an exchange that is not hidden"
    );
}

/// Layer bound ≤ flow bound ≤ bound with a sharding ≤ the simulated schedule; states ≤ memory.
#[test]
fn bounds_never_exceed_the_simulated_time() {
    let checked = for_wide_plans(plans_wanted(), 200, |costs, plan| {
        let (mixing, feed_forward) = (Mixing::new(costs, plan), FeedForward::new(costs, plan));
        let parts = LayerParts { mixing: &mixing, feed_forward: &feed_forward };
        let block = Block::new(costs, plan, parts);
        let layers = block.layers(costs, plan);
        let stages = stages_of(costs, plan, &layers);
        let loaded = Loaded::new(costs, Pipeline::new(costs, plan, &layers, &stages), &stages);
        let sharding = Sharding::new(costs, plan, &Parameters::new(costs, plan, &stages));
        let bound = loaded.bound(costs, &sharding, Seconds::ZERO);
        let simulated = costs.evaluate_simulated(plan);
        let time = simulated.step.total();
        let (gpus, may_gather) = (costs.problem.cluster().gpus, plan.layout.pp > 1 && plan.zero == ZeroStage::Three);
        let least = layer_bound(costs, plan, parts, &(gpus..=gpus), may_gather);
        let at_most = |bound: f64, what: &str| {
            assert!(bound <= time.get() * (1.0 + ROUNDING), "{plan}: {what} {bound} over {} simulated", time.get());
        };
        at_most(least.get(), "layer bound");
        let on_one = layer_bound(costs, plan, parts, &(1..=1), may_gather);
        at_most((on_one / f64::from(plan.layout.world_size())).get(), "layer bound of one GPU, shared by all");
        let copies = plan.schedule.weight_copies();
        at_most(fullest_rank_bound(costs, plan, parts, copies).get(), "bound of the fullest rank");
        at_most(bound.get(), "bound");
        if plan.zero == ZeroStage::Three {
            at_most(loaded.pipeline.least_gathered_time(costs).get(), "flow bound of gathered weights");
        } else {
            let flow = loaded.pipeline.least_time(Seconds::ZERO) + sharding.least_time(costs, plan);
            at_most(flow.get(), "flow bound and edges");
            let around = AroundFlow::new(costs, plan);
            let before = least_time_of_flow(costs, plan, &layers, &stages, &around).get();
            let flow_alone = loaded.pipeline.least_time(Seconds::ZERO).get();
            assert!(
                before <= flow_alone * (1.0 + ROUNDING),
                "{plan}: {before} before the flow is priced, {flow_alone} after"
            );
            assert!(flow.get() <= bound.get() * (1.0 + ROUNDING), "{plan}: flow bound over the bound");
            let (least, shares) = (Parameters::least_of_layout(costs, plan), [plan.offload.optimizer]);
            let exchange = least_dense_exchange(costs, plan, &least) + least.least_ends(costs, plan);
            let ends = exchange + least.least_update(costs, plan, &shares);
            let own = sharding.least_time(costs, plan).get();
            assert!(
                ends.get() <= own * (1.0 + ROUNDING),
                "{plan}: {} at the ends of any pipeline, {own} of its own",
                ends.get()
            );
            let light = Plan { recompute: Recompute::None, offload: Offload::NONE, ..plan.clone() };
            let bare = block.layers(costs, &light);
            let its_stages = stages_of(costs, &light, &bare);
            if its_stages.last_chunk() == stages.last_chunk() {
                let light = Pipeline::new(costs, &light, &bare, &its_stages);
                let least = light.least_time(least_flow_of_passes(costs, plan, &layers, &stages));
                at_most(
                    (least + sharding.least_time(costs, plan)).get(),
                    "bound from the pipeline without recomputation",
                );
            }
        }
        if loaded.pipeline.is_simulated() && plan.zero != ZeroStage::Three {
            // A replay adds one pass after another, and each addition rounds: what goes in is compared, and what comes
            // of one replay.
            let shape = costs.shape(plan);
            let stages = costs.stage_times(plan, &shape);
            for (one, two) in stages.iter().zip(costs.stage_times(plan, &layers.shape)) {
                let same = |a: Seconds, b: Seconds| close(a.get(), b.get());
                assert!(
                    same(one.forward, two.forward) && same(one.backward, two.backward),
                    "{plan}: {one:?} and {two:?}"
                );
                assert!(same(one.wgrad, two.wgrad) && same(one.paired, two.paired), "{plan}: {one:?} and {two:?}");
            }
            let again = loaded.simulated_time(costs, &sharding, costs.simulated_flow(plan, &stages));
            assert!(close(again.get(), time.get()), "{plan}: {} and {}", again.get(), time.get());
        }
        let memory = simulated.footprint.peak().get() * (1.0 + ROUNDING);
        assert!(loaded.memory(&sharding).bytes.get() <= memory, "{plan}");
        let states = least_states(costs, plan, std::iter::once(&sharding));
        let lean = RankMemory::new(costs, plan, &layers, &stages).lower_bound(&states).bytes.get();
        let without = RankMemory::without_activations(costs, plan, &layers, &stages).lower_bound(&states).bytes.get();
        assert!(lean <= memory && without <= memory, "{plan}: {lean} and {without} over {memory}");
        if !matches!(plan.recompute, Recompute::FirstLayers(_)) {
            let others = [Recompute::None, Recompute::Full].map(|recompute| Plan { recompute, ..plan.clone() });
            let group = others.iter().fold(layers.clone(), |least, other| least.lesser(&block.layers(costs, other)));
            let of_group = RankMemory::new(costs, &others[0], &group, &stages).lower_bound(&states).bytes.get();
            assert!(of_group <= memory, "{plan}: {of_group} of a group over {memory}");
            let [own, least] = [&layers, &group].map(|layers| least_flow_of_passes(costs, plan, layers, &stages));
            assert!(least <= own, "{plan}: flow {least:?} of a group over {own:?}");
        }
        let unsharded = Parameters::new(costs, plan, &stages).least_states(costs, plan);
        assert!(
            unsharded.iter().zip(&states).all(|(least, own)| least.within(own)),
            "{plan}: {unsharded:?} {states:?}"
        );
    });
    assert!(checked >= plans_wanted());
}

/// The first rank of a pipeline alone needs no more than the plan, and what its stages know of one number of
/// micro-batches they do not take for another.
#[test]
fn first_ranks_need_no_more_than_their_plans() {
    let tried = std::cell::Cell::new(0);
    for_wide_plans(plans_wanted(), 200, |costs, plan| {
        if costs.is_by_moment(plan) || plan.zero == ZeroStage::Three || plan.schedule.is_bidirectional() {
            return;
        }
        let layers = Block::of(costs, plan).layers(costs, plan);
        let stages = stages_of(costs, plan, &layers);
        let first = FirstRank::new(costs, plan, &stages, stages.states_of_first(costs, plan));
        let (least, memory) =
            (first.memory_bound(costs, plan, &layers, &stages), costs.evaluate(plan).footprint.peak());
        assert!(least.get() <= memory.get() * (1.0 + ROUNDING), "{plan}: {least} of its first rank over {memory}");
        let sharding = Sharding::new(costs, plan, &Parameters::new(costs, plan, &stages));
        let states = least_states(costs, plan, std::iter::once(&sharding));
        let mut more = plan.clone();
        more.layout.dp = 1;
        let needed = |stages: &Stages| RankMemory::new(costs, &more, &layers, stages).lower_bound(&states);
        assert_eq!(needed(&stages), needed(&stages_of(costs, plan, &layers)), "{plan}");
        tried.set(tried.get() + 1);
    });
    assert!(tried.get() > plans_wanted() / 4, "{} plans", tried.get());
}
