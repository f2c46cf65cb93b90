//! Layouts that could use all pools: the best of each pool's view of the whole cluster.

use crate::plan::Plan;
use crate::problem::Problem;
use crate::search::{Options, search};
use crate::space::{Restrictions, divisors};

use super::Pooled;

/// Layouts taken from each view.
const FROM_EACH: usize = 12;

/// The greatest number that divides all of these.
pub fn common(numbers: impl Iterator<Item = u32>) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    numbers.fold(0, gcd)
}

/// Restrictions under which `key` has only values that `allowed` says; the others of the divisors of `gpus` are forbidden.
/// `None` where none is allowed.
pub fn only(restrictions: &Restrictions, key: &str, gpus: u32, allowed: impl Fn(u32) -> bool) -> Option<Restrictions> {
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

/// The best plans of each pool's view under restrictions, without repeats.
pub fn of_views(pooled: &Pooled, restrictions: &Restrictions, batch: u32) -> Vec<Plan> {
    let options = Options { top: FROM_EACH, restrictions: restrictions.clone() };
    let mut plans: Vec<Plan> = Vec::new();
    for problem in pooled.joined() {
        let view: Problem = problem.with_global_batch(batch);
        for evaluation in search(&view, &options, &|_, _| ()).evaluations {
            if !plans.contains(&evaluation.plan) {
                plans.push(evaluation.plan);
            }
        }
    }
    plans
}
