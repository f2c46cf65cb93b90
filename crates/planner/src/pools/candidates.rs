//! Candidate layouts that use all pools: the best plans when the whole cluster is taken to have one pool's GPUs.

use super::mixture::Pooled;
use crate::search::{Control, SearchOptions, WhatIfs};
use crate::space::{Restrictions, divisors};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::groups::TooFewDomains;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;

/// Number of layouts taken from each pool's view.
const FROM_EACH: usize = 12;

/// Whether the groups of a plan find room in the scale-up domains of every pool, which are its own.
pub(crate) fn has_domains(pooled: &Pooled, plan: &Plan) -> bool {
    pooled.joined().iter().all(|problem| TooFewDomains::of(plan, problem.cluster()).is_none())
}

/// Greatest common divisor of all numbers.
pub(crate) fn greatest_common_divisor(numbers: impl Iterator<Item = u32>) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    numbers.fold(0, gcd)
}

/// Restrictions that allow only those divisors of `gpus` for which `allowed` is true as values of `key`. `None` if no value
/// is left.
pub(crate) fn with_divisors(
    restrictions: &Restrictions,
    key: &str,
    gpus: u32,
    allowed: impl Fn(u32) -> bool,
) -> Option<Restrictions> {
    let mut restrictions = restrictions.clone();
    let (fine, others): (Vec<u32>, Vec<u32>) = divisors(gpus).into_iter().partition(|d| allowed(*d));
    if fine.is_empty() {
        return None;
    }
    for other in others {
        restrictions.forbid(&format!("{key}={other}")).ok()?;
    }
    Some(restrictions)
}

/// Best plans in each pool's view under each set of restrictions, without duplicates and without plans that exceed the
/// view's entry of `ceilings`.
///
/// The searches share incumbents: one's answers are the others' cutoffs, which does not change the plans found. `control` may
/// end them early.
pub(crate) fn of_views(
    pooled: &Pooled,
    restrictions: &[Restrictions],
    batch: u32,
    ceilings: &[Seconds],
    control: &Control,
) -> Vec<Plan> {
    let views: Vec<Problem> = pooled.joined().iter().map(|problem| problem.with_global_batch(batch)).collect();
    let costs: Vec<Costs> = views.iter().map(Costs::new).collect();
    let mut asked: Vec<WhatIfs> = costs.iter().map(|costs| WhatIfs::new(costs).controlled_by(control)).collect();
    let mut plans: Vec<Plan> = Vec::new();
    for restrictions in restrictions {
        let options = SearchOptions { top: FROM_EACH, restrictions: restrictions.clone() };
        for at in 0..asked.len() {
            let ceiling = ceilings.get(at).copied().unwrap_or(Seconds::new(f64::INFINITY));
            let found = asked[at].fastest_within(&options, ceiling).evaluations;
            let found: Vec<Plan> = found.into_iter().map(|evaluation| evaluation.plan).collect();
            asked = asked.into_iter().map(|view| view.starting_from(&found)).collect();
            for plan in found {
                if !plans.contains(&plan) {
                    plans.push(plan);
                }
            }
        }
    }
    plans
}
