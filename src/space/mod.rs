//! The plans there are, and why some cannot run.

pub mod rejection;
pub mod text;

use crate::cost::Costs;
use crate::plan::Plan;
use crate::stack::Framework;
pub use rejection::Rejection;

/// What the user allows of the space.
#[derive(Clone, Debug, Default)]
pub struct Restrictions {
    items: Vec<String>,
}

impl Restrictions {
    /// Keeps one value or a range.
    ///
    /// # Errors
    /// When the item is no `key=value`.
    pub fn fix(&mut self, item: &str) -> Result<(), String> {
        if !item.contains('=') {
            return Err(format!("`{item}` is not key=value"));
        }
        self.items.push(item.to_owned());
        Ok(())
    }
    /// Leaves one value or a range out.
    ///
    /// # Errors
    /// When the item is no `key=value`.
    pub fn forbid(&mut self, item: &str) -> Result<(), String> {
        self.fix(item)
    }
    /// Keeps what the framework can run.
    pub fn for_framework(&mut self, framework: Framework) {
        self.items.push(format!("{framework:?}"));
    }
}

/// Every reason why a plan is illegal or too large; empty when it runs.
pub fn check(costs: &Costs, plan: &Plan) -> Vec<Rejection> {
    let problem = costs.problem;
    let mut reasons = Vec::new();
    if problem.workload().global_batch % (plan.layout.dp * plan.micro_batch) != 0 {
        reasons.push(Rejection::Batch { batch: problem.workload().global_batch, dp: plan.layout.dp });
    }
    let needed = costs.fullest(plan).device();
    if needed > problem.hbm_budget() {
        reasons.push(Rejection::OutOfMemory { needed, available: problem.hbm_budget() });
    }
    reasons
}
