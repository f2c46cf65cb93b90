//! Sentence on CUDA graphs, where steps wait for the host.

use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_engine::units::whole_percent;
use meshwright_frameworks as frameworks;
use meshwright_planner::space::check;

/// Share of the step that waits for the host, and gain of throughput, from which on a sentence is worth it.
const WORTH_SAYING: f64 = 0.03;

/// Sentence on what CUDA graphs would give, where a plan of Megatron waits for the host, may have them, fits with their
/// pools, and gains.
pub(super) fn sentence(problem: &Problem, plan: &Evaluation) -> Option<String> {
    let waits = plan.step.host / plan.step.total();
    if waits < WORTH_SAYING || problem.stack().family != Family::Megatron || problem.stack().cuda_graphs {
        return None;
    }
    let graphed = problem.changed(|_, _, stack| stack.cuda_graphs = true).ok()?;
    let refuses = frameworks::of_stack(&graphed).and_then(|known| known.limits.plan_obstacle(&graphed, &plan.plan));
    let costs = Costs::new(&graphed);
    let step = costs.evaluate_simulated(&plan.plan).step.total();
    let gains = plan.step.total() / step - 1.0 > WORTH_SAYING && check(&costs, &plan.plan).is_empty();
    (gains && refuses.is_none()).then(|| {
        format!(
            "{} of the step waits for the host: with CUDA graphs (--set stack.cuda_graphs=true) this plan takes {step}.",
            whole_percent(waits)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;
    use meshwright_planner::space::parse_plan;

    fn on_64(model: &str, plan: &str) -> Option<String> {
        let problem = example::problem(model, 64, 64);
        let plan = parse_plan(plan, &problem).unwrap();
        sentence(&problem, &Costs::new(&problem).evaluate_simulated(&plan))
    }

    #[test]
    fn graphs_are_named_where_steps_wait_for_the_host() {
        let found = on_64("qwen3-30b-a3b", "tp=8 ep=8 zero=1 mbs=1").expect("1,024 tokens a rank");
        assert!(found.contains("waits for the host") && found.contains("--set stack.cuda_graphs=true"), "{found}");
        assert_eq!(on_64("llama3-8b", "tp=2 zero=1 mbs=1"), None);
    }

    #[test]
    fn graphs_are_not_named_beside_what_excludes_them() {
        assert_eq!(on_64("qwen3-30b-a3b", "tp=8 ep=8 zero=1 mbs=1 recompute=first-2"), None);
        assert_eq!(on_64("qwen3-30b-a3b", "tp=8 ep=8 zero=3 mbs=1"), None);
    }
}
