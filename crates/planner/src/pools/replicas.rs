//! Replicas on pools: each data-parallel replica runs in one pool and takes micro-batches by the speed of its GPUs.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::candidates::{greatest_common_divisor, has_domains, of_views, with_divisors};
use super::expressible::expresses;
use super::mixture::{Distribution, Mixture, Pooled, Share};
use crate::search::{Control, SearchOptions};
use crate::space::{Restrictions, check};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::{Costs, StepTime};
use meshwright_engine::plan::{Plan, RankOrder, ZeroStage};
use meshwright_engine::units::Seconds;

/// Cost of one pool's share: step time by term, and footprint of its fullest rank.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    step: StepTime,
    footprint: meshwright_engine::cost::Footprint,
}

/// Number of plans with the least estimate whose shares are optimised.
const MOST_SHARED: usize = 12;

/// Mixtures of replicas on pools: equal shares for each candidate, optimised shares for the most promising, and the number
/// of evaluations. Plans that exceed their pool's entry of `ceilings` are excluded.
pub fn best(
    pooled: &Pooled,
    options: &SearchOptions,
    ceilings: &[Seconds],
    control: &Control,
) -> (Vec<Mixture>, usize) {
    let plans = candidates(pooled, &options.restrictions, ceilings, control);
    let mut found: Vec<Mixture> = plans.par_iter().filter_map(|plan| with_equal_shares(pooled, plan)).collect();
    let mut priced = plans.len();
    let mut promising: Vec<(f64, &Plan)> =
        plans.par_iter().filter_map(|plan| Some((Shares::new(pooled, plan).estimate()?, plan))).collect();
    sort_by_numbers(&mut promising, |(time, ..)| [*time]);
    promising.truncate(if control(0, 1).is_break() { 0 } else { MOST_SHARED });
    let shared: Vec<(Option<Mixture>, usize)> =
        promising.par_iter().map(|(_, plan)| Shares::new(pooled, plan).best_of_batch()).collect();
    priced += shared.iter().map(|(_, priced)| priced).sum::<usize>();
    let unequal = shared.into_iter().filter_map(|(best, _)| best).filter(|best| !found.contains(best));
    let unequal: Vec<Mixture> = unequal.collect();
    found.extend(unequal);
    (found, priced)
}

/// Plans whose replicas fit the pools: tp·cp·pp divides the GPUs of each, and expert and shard groups stay inside one.
fn candidates(pooled: &Pooled, restrictions: &Restrictions, ceilings: &[Seconds], control: &Control) -> Vec<Plan> {
    let all = pooled.cluster().gpus();
    let common = greatest_common_divisor(pooled.sizes());
    let Some(whole) = with_divisors(restrictions, "dp", all, |dp| common.is_multiple_of(all / dp)) else {
        return Vec::new();
    };
    let asked = pooled.joined()[0].workload().global_batch;
    let batch = near_batch(asked, all / common);
    let ceilings = if batch == asked { ceilings } else { &[] };
    // A replica lies in one pool if its pipeline is innermost; a single stage has no other order.
    let mut inside = whole.clone();
    let outermost = inside.forbid(&format!("order={}", RankOrder::PipelineOutermost)).is_ok();
    let flat = with_divisors(&whole, "pp", all, |pp| pp == 1);
    let orders: Vec<Restrictions> = outermost.then_some(inside).into_iter().chain(flat).collect();
    let mut plans = of_views(pooled, &orders, batch, ceilings, control);
    plans.retain(|plan| {
        stays_inside(pooled, plan) && has_domains(pooled, plan) && expresses(pooled, restrictions, plan)
    });
    plans
}

/// Whether only data-parallel groups cross pools.
fn stays_inside(pooled: &Pooled, plan: &Plan) -> bool {
    let layout = plan.layout;
    pooled.sizes().all(|gpus| {
        let replica = layout.tp * layout.cp * layout.pp;
        let ranks = gpus / layout.pp;
        gpus.is_multiple_of(replica)
            && ranks.is_multiple_of(layout.ep * layout.etp)
            && plan.shard_group.is_none_or(|group| (ranks / layout.tp).is_multiple_of(group))
    })
}

/// Batch that the replicas of all pools share equally: the problem's own if possible, else the nearest, used only to find
/// layouts.
fn near_batch(batch: u32, unit: u32) -> u32 {
    if batch.is_multiple_of(unit) {
        return batch;
    }
    let times = f64::from(batch) / f64::from(unit);
    let power = libm::exp2(libm::log2(times.max(1.0)).round());
    (f64::from(unit) * power) as u32
}

/// Largest number of share-outs of one plan to evaluate.
const MOST_PRICED: usize = 400;

/// Whether the replicas of a plan fit the pools and use all their GPUs.
fn fits_pools(pooled: &Pooled, plan: &Plan) -> bool {
    let inside = plan.layout.pp == 1 || plan.order == RankOrder::DataOutermost;
    plan.layout.world_size() == pooled.cluster().gpus() && inside && stays_inside(pooled, plan)
}

/// A plan with the micro-batches of given shares; `None` if it does not run or fit.
pub(super) fn of_plan(pooled: &Pooled, plan: &Plan, shares: &[Share]) -> Option<Mixture> {
    let micro_batches: Vec<u32> = shares.iter().map(|share| share.micro_batches).collect();
    if fits_pools(pooled, plan) { Shares::new(pooled, plan).price(&micro_batches) } else { None }
}

/// Equal and optimised shares of one plan whose replicas fit the pools.
pub fn ways(pooled: &Pooled, plan: &Plan) -> Vec<Mixture> {
    if !fits_pools(pooled, plan) {
        return Vec::new();
    }
    let mut found: Vec<Mixture> = with_equal_shares(pooled, plan).into_iter().collect();
    let mut shares = Shares::new(pooled, plan);
    if shares.estimate().is_some() {
        found.extend(shares.best_of_batch().0.filter(|best| !found.contains(best)));
    }
    found
}

/// Equal shares of a plan, if the batch divides.
fn with_equal_shares(pooled: &Pooled, plan: &Plan) -> Option<Mixture> {
    let each = plan.micro_batches(pooled.joined()[0].workload().global_batch);
    let whole = each.fract() == 0.0 && each >= 1.0;
    if whole { Shares::new(pooled, plan).price(&vec![each as u32; pooled.joined().len()]) } else { None }
}

/// Costs of one plan's pools, cached by micro-batches per replica.
pub struct Shares<'a> {
    pooled: &'a Pooled,
    plan: &'a Plan,
    replicas: Vec<u32>,
    parts: BTreeMap<(usize, u32), Option<Part>>,
}

impl<'a> Shares<'a> {
    /// Starts with an empty cache for a plan whose replicas fit the pools.
    pub fn new(pooled: &'a Pooled, plan: &'a Plan) -> Self {
        let size = plan.layout.tp * plan.layout.cp * plan.layout.pp;
        let replicas = pooled.sizes().map(|gpus| gpus / size).collect();
        Self { pooled, plan, replicas, parts: BTreeMap::new() }
    }

    /// Cost of one pool with `micro_batches` on each replica; `None` if that does not run or fit.
    fn part(&mut self, pool: usize, micro_batches: u32) -> Option<Part> {
        let (pooled, plan) = (self.pooled, self.plan);
        *self.parts.entry((pool, micro_batches)).or_insert_with(|| {
            let batch = micro_batches.checked_mul(plan.layout.dp)?.checked_mul(plan.micro_batch)?;
            let problem = pooled.joined()[pool].with_global_batch(batch);
            let costs = Costs::new(&problem);
            if !check(&costs, plan).is_empty() {
                return None;
            }
            let evaluation = costs.evaluate_simulated(plan);
            Some(Part { step: evaluation.step, footprint: evaluation.footprint })
        })
    }

    /// Cost of the given micro-batches on the replicas of each pool:
    ///
    /// ```text
    /// T = max over pools of (T_k − exchange, update and host) + the longest exchange, update and host of any
    /// ```
    ///
    /// for the gradients of all are awaited. `None` where a pool does not run or fit.
    pub fn price(&mut self, micro_batches: &[u32]) -> Option<Mixture> {
        let parts: Vec<Part> =
            micro_batches.iter().enumerate().map(|(pool, &n)| self.part(pool, n)).collect::<Option<_>>()?;
        let flow = |part: &Part| flow(&part.step);
        let slowest = (0..parts.len()).reduce(|a, b| if flow(&parts[b]) > flow(&parts[a]) { b } else { a })?;
        let most =
            |of: fn(&StepTime) -> Seconds| parts.iter().map(|part| of(&part.step)).fold(Seconds::ZERO, Seconds::max);
        let step = StepTime {
            dp_comm: most(|step| step.dp_comm),
            optimizer: most(|step| step.optimizer),
            offload: most(|step| step.offload),
            ..parts[slowest].step
        };
        let shares = self.replicas.iter().zip(micro_batches);
        let shares = shares.map(|(&replicas, &micro_batches)| Share { replicas, micro_batches }).collect();
        Some(Mixture {
            plan: self.plan.clone(),
            distribution: Distribution::Replicas { shares },
            step,
            footprints: parts.iter().map(|part| part.footprint).collect(),
            slowest,
        })
    }

    /// Fastest distribution of `micro_batches` over all replicas: Σ replicas·n = micro_batches with whole n ≥ 1.
    ///
    /// The busiest rank of a replica works at least c seconds per micro-batch, so the largest n·c is a lower bound of the
    /// step time. Distributions are evaluated in ascending order of that bound, below a ceiling that grows to the best time
    /// found.
    pub fn best(&mut self, micro_batches: u32) -> Option<Mixture> {
        let pools = self.replicas.len();
        let mean = (micro_batches / self.plan.layout.dp).max(1);
        let each: Vec<f64> = (0..pools).map(|pool| self.least_of_one(pool, mean)).collect::<Option<_>>()?;
        let rate: f64 = self.replicas.iter().zip(&each).map(|(&n, each)| f64::from(n) / each).sum();
        let mut ceiling = f64::from(micro_batches) / rate * 1.02;
        let mut best: Option<Mixture> = None;
        let mut seen = 0;
        loop {
            let mut share_outs = self.under(micro_batches, &each, ceiling);
            share_outs.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
            for (bound, share_out) in share_outs {
                let known = best.as_ref().map_or(f64::INFINITY, |best| best.step.total().get());
                if bound >= known || seen >= MOST_PRICED {
                    return best;
                }
                seen += 1;
                if let Some(mixture) = self.price(&share_out)
                    && mixture.step.total().get() < known
                {
                    best = Some(mixture);
                }
            }
            let known = best.as_ref().map(|best| best.step.total().get());
            match known {
                Some(known) if known <= ceiling => return best,
                Some(known) => ceiling = known,
                None if ceiling > 64.0 * f64::from(micro_batches) / rate => return None,
                None => ceiling *= 1.5,
            }
        }
    }

    /// Optimal shares of the problem's batch, with the number of parts evaluated.
    fn best_of_batch(&mut self) -> (Option<Mixture>, usize) {
        let batch = self.pooled.joined()[0].workload().global_batch;
        let best =
            if batch.is_multiple_of(self.plan.micro_batch) { self.best(batch / self.plan.micro_batch) } else { None };
        (best, self.parts.len())
    }

    /// Estimated step time with optimal shares, if unequal shares can run: all replicas equally busy, plus the longest
    /// remaining terms of any pool.
    fn estimate(&mut self) -> Option<f64> {
        let (plan, batch) = (self.plan, self.pooled.joined()[0].workload().global_batch);
        if plan.zero > ZeroStage::One || plan.schedule.is_bidirectional() {
            return None;
        }
        let mean = (plan.micro_batches(batch) as u32).max(1);
        let (mut rate, mut rest) = (0.0, 0.0_f64);
        for pool in 0..self.replicas.len() {
            let each = self.least_of_one(pool, mean)?;
            let (n, part) = self.near(pool, mean)?;
            rate += f64::from(self.replicas[pool]) / each;
            rest = rest.max(part.step.total().get() - each * f64::from(n));
        }
        Some(f64::from(batch) / f64::from(plan.micro_batch) / rate + rest)
    }

    /// Cost of a pool with about `micro_batches`, rounded up to a whole group of pp if interleaving requires it.
    fn near(&mut self, pool: usize, micro_batches: u32) -> Option<(u32, Part)> {
        let pp = self.plan.layout.pp;
        [micro_batches, micro_batches.next_multiple_of(pp), pp].into_iter().find_map(|n| Some((n, self.part(pool, n)?)))
    }

    /// Least work of the busiest rank of a pool's replica per micro-batch, in seconds.
    fn least_of_one(&mut self, pool: usize, near: u32) -> Option<f64> {
        let (n, part) = self.near(pool, near)?;
        let StepTime { compute, recompute, tp_comm, cp_comm, ep_comm, amax_comm, host, .. } = part.step;
        Some((compute + recompute + tp_comm + cp_comm + ep_comm + amax_comm + host).get() / f64::from(n) * (1.0 - 1e-9))
    }

    /// Distributions whose bound is within a ceiling, with their bounds.
    fn under(&self, all: u32, each: &[f64], ceiling: f64) -> Vec<(f64, Vec<u32>)> {
        let most: Vec<u64> = each.iter().map(|each| (ceiling / each) as u64).collect();
        let mut found = vec![(0.0_f64, Vec::new(), u64::from(all))];
        for pool in 0..each.len() {
            let replicas = u64::from(self.replicas[pool]);
            let later_most: u64 = (pool + 1..each.len()).map(|p| u64::from(self.replicas[p]) * most[p]).sum();
            let later_least: u64 = (pool + 1..each.len()).map(|p| u64::from(self.replicas[p])).sum();
            let mut next = Vec::new();
            for (bound, taken, left) in found {
                let low = left.saturating_sub(later_most).div_ceil(replicas).max(1);
                let high = (left.saturating_sub(later_least) / replicas).min(most[pool]);
                for n in low..=high {
                    let mut taken: Vec<u32> = taken.clone();
                    taken.push(n as u32);
                    next.push((bound.max(n as f64 * each[pool]), taken, left - n * replicas));
                }
            }
            found = next;
        }
        found.into_iter().filter(|(_, _, left)| *left == 0).map(|(bound, taken, _)| (bound, taken)).collect()
    }
}

/// Step time before the replicas synchronise.
fn flow(step: &StepTime) -> Seconds {
    step.total() - step.dp_comm - step.optimizer - step.offload
}
