//! Stages on pools: consecutive stages of the pipeline share a pool, with layers according to its GPUs' speed and memory.

use rayon::prelude::*;

use super::candidates::{greatest_common_divisor, has_domains, of_views, with_divisors};
use super::expressible::expresses;
use super::mixture::{Distribution, Mixture, Pooled};
use crate::refine::ranking::MOST_STAGES;
use crate::refine::{self, Freedom, Proof, Refined};
use crate::search::{Control, SearchOptions};
use crate::space::{Restrictions, illegal};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::collective::Fabric;
use meshwright_engine::cost::heterogeneous::SendTime;
use meshwright_engine::cost::{Costs, Footprint, HeterogeneousStager, StagePayload, Stager};
use meshwright_engine::plan::{Offload, Plan, RankOrder, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::Seconds;

/// Number of layouts with the least bounds whose stages are optimised.
const MOST_REFINED: usize = 32;
/// Number of layouts refined at once, whatever the number of threads; small, so that early results prune later layouts.
const AT_ONCE: usize = 4;
/// Largest number of pool orders along the pipeline to try exhaustively.
const MOST_ORDERS: usize = 6;

/// Mixtures of stages on pools with optimised layers, and the number of refinements.
///
/// All layouts are refined coarsely, layers only, in the order of their bounds until a bound exceeds the cutoff; the best
/// of each layout are then refined fully.
pub fn best(pooled: &Pooled, options: &SearchOptions, control: &Control) -> (Vec<Mixture>, usize) {
    let plans = candidates(pooled, &options.restrictions, control);
    let orders = orders(pooled.joined().len());
    let mut asked: Vec<(Seconds, Plan)> =
        plans.into_par_iter().map(|plan| (least_step_time(pooled, &plan), plan)).collect();
    sort_by_numbers(&mut asked, |(time, ..)| [time.get()]);
    asked.truncate(MOST_REFINED / orders.len().max(1));
    let free = options.restrictions.limits().is_none() && !options.restrictions.mentions("recompute");
    let freedom = Freedom { recompute: free, ..Freedom::default() };
    let exact = refine::Options { freedom, ..refine::Options::default() };
    let rough = refine::Options {
        freedom: Freedom { recompute: false, ..freedom },
        tolerance: ROUGH,
        most_evaluations: ROUGH_REPLAYS,
        enumerate: false,
        rough: true,
        ..exact.clone()
    };
    let refine = |plans: &[(Seconds, Plan)], options: &refine::Options| -> Vec<Mixture> {
        let pairs: Vec<(&Plan, &Vec<usize>)> =
            itertools::iproduct!(plans.iter().map(|(_, plan)| plan), &orders).collect();
        let best_of =
            |(plan, order): &(&Plan, &Vec<usize>)| of_plan(pooled, plan, &of_rank(pooled, plan, order), options);
        pairs.par_iter().filter_map(best_of).collect()
    };
    let mut found: Vec<Mixture> = Vec::new();
    let mut refined = 0;
    for some in asked.chunks(AT_ONCE) {
        let worst = found.get(options.top.saturating_sub(1)).map(|mixture| mixture.step.total());
        if worst.is_some_and(|worst| some[0].0 >= worst) || control(0, 1).is_break() {
            break;
        }
        refined += some.len() * orders.len();
        found.extend(refine(some, &rough));
        best_of_each_layout(&mut found);
    }
    if found.is_empty() && free && control(0, 1).is_continue() {
        // If nothing fits with uniform recomputation, it may fit once each stage chooses its own.
        found = refine(&asked[..asked.len().min(AT_ONCE)], &exact);
        best_of_each_layout(&mut found);
        return (found, refined);
    }
    found.truncate(options.top);
    let refined_further = |(at, mixture): (usize, &Mixture)| match &mixture.distribution {
        Distribution::Stages { of_rank, refined } if at < TO_THE_END && control(0, 1).is_continue() => {
            of_plan(pooled, &refined.staged.plan, of_rank, &exact)
        }
        Distribution::Stages { .. } | Distribution::Replicas { .. } => None,
    };
    let found: Vec<Mixture> =
        found.par_iter().enumerate().map(|pair| refined_further(pair).unwrap_or_else(|| pair.1.clone())).collect();
    (found, refined)
}

/// Keeps the fastest of each layout and sorts by time.
fn best_of_each_layout(found: &mut Vec<Mixture>) {
    sort_by_numbers(found, |mixture| [mixture.step.total().get()]);
    let mut layouts = Vec::new();
    found.retain(|mixture| {
        let new = !layouts.contains(&mixture.plan.layout);
        layouts.push(mixture.plan.layout);
        new
    });
}

/// Number of plans refined fully, recomputation included, as the default for a single cluster.
const TO_THE_END: usize = 3;
/// Coarse refinement: gap that suffices for ranking, and number of splits to simulate.
const ROUGH: f64 = 5e-3;
const ROUGH_REPLAYS: usize = 24;

/// Plans whose stages fill whole pools: tp·cp·dp divides the GPUs of each.
fn candidates(pooled: &Pooled, restrictions: &Restrictions, control: &Control) -> Vec<Plan> {
    let all = pooled.cluster().gpus();
    let common = greatest_common_divisor(pooled.sizes());
    let batch = pooled.joined()[0].workload().global_batch;
    let Some(mut inside) = with_divisors(restrictions, "pp", all, |pp| common.is_multiple_of(all / pp)) else {
        return Vec::new();
    };
    let mut forbid = |rule: &str| inside.forbid(rule).map(|()| inside.clone());
    let order = format!("order={}", RankOrder::DataOutermost);
    let several = forbid(&order).and_then(|_| forbid("schedule=dualpipe-v,dualpipe"));
    let Ok(several) = several else { return Vec::new() };
    // Single-stage ranks are searched separately, since the best plans of a view may all be interleaved.
    let single = forbid("schedule=interleaved,looped-bfs,zb-v").ok();
    let asked: Vec<Restrictions> = single.into_iter().chain([several]).collect();
    let mut plans = of_views(pooled, &asked, batch, &[], control);
    plans.retain(|plan| {
        let (pp, stages) = (plan.layout.pp, plan.pipeline().chunks());
        !plan.schedule.is_bidirectional()
            && pp > 1
            && stages <= MOST_STAGES
            && plan.zero < ZeroStage::Three
            && plan.order == RankOrder::PipelineOutermost
            && has_domains(pooled, plan)
            && expresses(pooled, restrictions, plan)
    });
    plans
}

/// Orders of the pools along the pipeline.
fn orders(pools: usize) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..pools {
        orders = orders
            .into_iter()
            .flat_map(|order| {
                (0..pools)
                    .filter(|pool| !order.contains(pool))
                    .map(|pool| [&order[..], &[pool]].concat())
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    orders.truncate(MOST_ORDERS);
    orders
}

/// Pool of each pipeline rank.
fn of_rank(pooled: &Pooled, plan: &Plan, order: &[usize]) -> Vec<usize> {
    let sizes: Vec<u32> = pooled.sizes().collect();
    let stage = plan.layout.tp * plan.layout.cp * plan.layout.dp;
    order.iter().flat_map(|&pool| std::iter::repeat_n(pool, (sizes[pool] / stage) as usize)).collect()
}

/// Mixtures of one plan in every order of the pools, with the layers that its split spells out or else optimised ones.
pub fn ways(pooled: &Pooled, plan: &Plan) -> Vec<Mixture> {
    let stage = plan.layout.tp * plan.layout.cp * plan.layout.dp;
    let apart = plan.layout.pp > 1 && plan.zero < ZeroStage::Three && plan.order == RankOrder::PipelineOutermost;
    let whole = plan.layout.world_size() == pooled.cluster().gpus();
    if !apart || !whole || !pooled.sizes().all(|gpus| gpus.is_multiple_of(stage)) {
        return Vec::new();
    }
    let freedom = Freedom { recompute: false, ..Freedom::default() };
    let options = refine::Options { freedom, ..refine::Options::default() };
    let mixture_of = |order: &Vec<usize>| of_plan(pooled, plan, &of_rank(pooled, plan, order), &options);
    orders(pooled.joined().len()).iter().filter_map(mixture_of).collect()
}

/// Lower bound of the step time of any stages on pools: every rank is busy, and shares the layers at its GPUs' fastest
/// speed.
///
/// ```text
/// m / Σ_k pp_k/W_k          W_k: one micro-batch through the whole model on pool k
/// ```
fn least_step_time(pooled: &Pooled, plan: &Plan) -> Seconds {
    let stage = f64::from(plan.layout.tp * plan.layout.cp * plan.layout.dp);
    let pools = pooled.joined().iter().zip(pooled.sizes());
    let rate: f64 = pools.map(|(problem, gpus)| f64::from(gpus) / stage / whole(problem, plan).get()).sum();
    Seconds::new(plan.micro_batches(pooled.joined()[0].workload().global_batch) / rate)
}

/// Least time of one micro-batch through the whole model.
pub fn whole(problem: &Problem, plan: &Plan) -> Seconds {
    let costs = Costs::new(problem);
    let stager = Stager::new(&costs, plan);
    let model = problem.model();
    let layers = meshwright_engine::stages::kinds_in_order(model).into_iter();
    let each: Vec<Seconds> = (0..model.kinds.len())
        .map(|kind| {
            let time = stager.layer(kind, meshwright_engine::plan::Recompute::None, 0.0).time;
            time.forward + time.backward
        })
        .collect();
    let ends = [stager.embedding(), stager.loss()].into_iter().map(|time| time.forward + time.backward);
    layers.map(|kind| each[kind]).chain(ends).sum()
}

/// Optimises the layers of one plan's stages on pools; `None` if none fit or the plan is illegal.
pub fn of_plan(pooled: &Pooled, plan: &Plan, of_rank: &[usize], options: &refine::Options) -> Option<Mixture> {
    let costs: Vec<Costs> = pooled.joined().iter().map(Costs::new).collect();
    let mut found = Vec::new();
    illegal(&costs[0], plan, &mut found);
    if !found.is_empty() || !has_domains(pooled, plan) {
        return None;
    }
    let stagers: Vec<Stager> = costs.iter().map(|costs| Stager::new(costs, plan)).collect();
    let heterogeneous = HeterogeneousStager::new(&stagers, of_rank, |a, b| send_across(pooled, plan, a, b));
    if plan.split.is_spelled_out() {
        return as_it_is(&stagers, of_rank, &heterogeneous, plan).map(|refined| mixture(refined, of_rank, costs.len()));
    }
    let mut offloads = vec![plan.offload];
    if options.freedom.recompute && plan.offload != Offload::NONE {
        offloads.push(Offload::NONE);
    }
    let refined = offloads
        .into_iter()
        .filter_map(|offload| {
            refine::pools::refine_over(&stagers, of_rank, &heterogeneous, plan.recompute, offload, options).ok()
        })
        .min_by(|a, b| a.step().get().total_cmp(&b.step().get()))?;
    Some(mixture(refined, of_rank, pooled.joined().len()))
}

/// Evaluates the stages that a plan spells out; `None` if they do not run or fit.
fn as_it_is(
    stagers: &[Stager],
    of_rank: &[usize],
    heterogeneous: &HeterogeneousStager,
    plan: &Plan,
) -> Option<Refined> {
    let costs = stagers[0].costs();
    refine::pools::runs(&stagers[0]).ok()?;
    let counts = costs.layers_of_chunks(plan, &costs.shape(plan));
    let staged = StagedPlan::uniform(costs.problem.model(), plan, &counts);
    let price = heterogeneous.evaluate(&staged)?;
    let over_hosts = || refine::pools::over_hosts(stagers, of_rank, heterogeneous, &staged).is_some();
    if refine::pools::over(stagers, of_rank, &price).is_some() || over_hosts() {
        return None;
    }
    let step = price.evaluation.step.total();
    Some(Refined {
        staged,
        price,
        before: Some(step),
        bound: Seconds::ZERO,
        proof: Proof::WithinGap { gap: 1.0 },
        evaluated: 1,
    })
}

fn mixture(refined: Refined, of_rank: &[usize], pools: usize) -> Mixture {
    let (plan, price) = (&refined.staged.plan, &refined.price);
    let fullest = |pool: usize| -> Footprint {
        let here = (0..of_rank.len()).filter(|&rank| of_rank[rank] == pool).map(|rank| price.footprints[rank]);
        here.reduce(|a, b| if b.peak() > a.peak() { b } else { a }).unwrap_or_default()
    };
    let both = |stage: usize| price.stages[stage].forward + price.stages[stage].backward;
    let busiest = (0..price.stages.len()).reduce(|a, b| if both(b) > both(a) { b } else { a }).unwrap_or_default();
    Mixture {
        plan: spelled_out(&refined.staged),
        step: price.evaluation.step,
        footprints: (0..pools).map(fullest).collect(),
        slowest: of_rank[plan.pipeline().rank_of(busiest as u32) as usize],
        distribution: Distribution::Stages { of_rank: of_rank.to_vec(), refined: Box::new(refined) },
    }
}

/// Plan with the layers of its stages spelled out, and with their recomputation if all stages share it.
fn spelled_out(staged: &StagedPlan) -> Plan {
    let layers: Vec<u32> = staged.stages.iter().map(|stage| stage.layers).collect();
    let mtp = staged.stages.iter().map(|stage| stage.mtp).sum();
    let at = staged.stages.iter().position(|stage| stage.mtp > 0).unwrap_or(layers.len() - 1);
    let first = staged.stages.iter().find_map(|stage| stage.mixes.first());
    let recompute = first.filter(|_| staged.recomputes_uniformly()).map_or(staged.plan.recompute, |mix| mix.recompute);
    Plan { split: LayerSplit::stages(&layers, mtp, at), recompute, ..staged.plan }
}

/// Send from a stage in one pool to the next in another, the slower of both directions, while all ranks of the stage send at once.
pub fn send_across(pooled: &Pooled, plan: &Plan, a: usize, b: usize) -> SendTime {
    let senders = plan.layout.tp * plan.layout.cp * plan.layout.dp;
    let one = |from: usize, to: usize| {
        let problem = &pooled.joined()[from];
        let cluster = pooled.cluster().towards(from, to, senders);
        let fabric = Fabric::new(&cluster, problem.stack());
        let StagePayload { sent, gather } = Costs::new(problem).stage_payload(plan);
        let distance = pooled.cluster().pools[from].cluster.gpus;
        let occupied = sent / fabric.network_bandwidth(distance);
        SendTime { latency: fabric.send(sent, distance) + gather, occupied }
    };
    let (there, back) = (one(a, b), one(b, a));
    SendTime { latency: there.latency.max(back.latency), occupied: there.occupied.max(back.occupied) }
}
