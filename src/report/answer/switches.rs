//! Sentences on settings of Megatron that a plan could have: CUDA graphs, the overlap of expert exchange, GEMMs in 16 bits.

use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::gpu::Format;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::{Family, Overlap, Stack};
use meshwright_engine::units::{Seconds, whole_percent};
use meshwright_engine::workload::{Workload, recipe};
use meshwright_frameworks as frameworks;
use meshwright_frameworks::megatron::overlap::can_overlap_experts;
use meshwright_planner::confidence::Confidence;
use meshwright_planner::limits::Limits;
use meshwright_planner::space::check;

/// Share of the step that a setting would shorten, and gain of throughput, from which on a sentence is worth it.
const WORTH_SAYING: f64 = 0.03;

/// Bounds of a change that a sentence may name.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Limits of the framework that the plans are for; those of the stack's own where none is named.
    pub limits: Option<&'static Limits>,
    /// Largest accepted probability of running out of memory.
    pub risk: f64,
}

/// Sentence on what CUDA graphs would give, where a plan of Megatron waits for the host, may have them, fits with their
/// pools, and gains.
pub(super) fn graphs(problem: &Problem, plan: &Evaluation, bounds: Bounds) -> Option<String> {
    let waits = plan.step.host / plan.step.total();
    if waits < WORTH_SAYING || problem.stack().cuda_graphs {
        return None;
    }
    let step = faster_with(problem, plan, bounds, |_, stack| stack.cuda_graphs = true)?;
    Some(format!(
        "{} of the step waits for the host: with CUDA graphs (--set stack.cuda_graphs=true) this plan takes {step}.",
        whole_percent(waits)
    ))
}

/// Sentence on what running expert exchange beside another micro-batch would give, where a plan of Megatron waits for the
/// exchange, can do that, and gains.
pub(super) fn expert_overlap(problem: &Problem, plan: &Evaluation, bounds: Bounds) -> Option<String> {
    let waits = plan.step.ep_comm / plan.step.total();
    let stack = problem.stack();
    if waits < WORTH_SAYING || stack.overlap.ep > 0.0 || !can_overlap_experts(problem, &plan.plan) {
        return None;
    }
    let hidden = Overlap::share_beside_micro_batches(stack.graphed_experts);
    let step = faster_with(problem, plan, bounds, |_, stack| stack.overlap.ep = hidden)?;
    Some(format!(
        "{} of the step is exposed expert exchange: run beside other micro-batches (--set stack.overlap.ep={hidden}, the share that \
         runs hide), this plan takes {step}.",
        whole_percent(waits)
    ))
}

/// Sentence on GEMMs in bf16, where a mixture in a narrower format waits for the host, whose casts are launches of their own, and gains.
pub(super) fn sixteen_bits(problem: &Problem, plan: &Evaluation, bounds: Bounds) -> Option<String> {
    let waits = plan.step.host / plan.step.total();
    let format = problem.workload().format;
    if waits < WORTH_SAYING || format == Format::Bf16 || !problem.model().is_moe() {
        return None;
    }
    let step = faster_with(problem, plan, bounds, |workload, stack| {
        let usual = |format| recipe(stack.usual_recipe(format));
        let had_usual = usual(format) == Some(workload.recipe);
        workload.format = Format::Bf16;
        workload.recipe = usual(Format::Bf16).filter(|_| had_usual).unwrap_or(workload.recipe);
    })?;
    Some(format!(
        "{} of the step waits for the host, which launches more kernels an expert in {format}: in bf16 (--precision bf16) this plan \
         takes {step}.",
        whole_percent(waits)
    ))
}

/// Step time of a plan of Megatron with another setting, where its framework runs it, it fits within the accepted risk, and it gains
/// enough.
fn faster_with(
    problem: &Problem,
    plan: &Evaluation,
    bounds: Bounds,
    set: impl FnOnce(&mut Workload, &mut Stack),
) -> Option<Seconds> {
    if problem.stack().family != Family::Megatron {
        return None;
    }
    let changed = problem.changed(|_, workload, stack| set(workload, stack)).ok()?;
    let limits = bounds.limits.or_else(|| frameworks::of_stack(&changed).map(|known| known.limits));
    let is_refused = limits.is_some_and(|limits| {
        !limits.problem_obstacles(&changed).is_empty() || limits.plan_obstacle(&changed, &plan.plan).is_some()
    });
    if is_refused {
        return None;
    }
    let costs = Costs::new(&changed);
    let then = costs.evaluate_simulated(&plan.plan);
    let step = then.step.total();
    let gains = plan.step.total() / step - 1.0 > WORTH_SAYING && check(&costs, &plan.plan).is_empty();
    (gains && Confidence::new(&changed, &then).oom_probability <= bounds.risk).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;
    use meshwright_planner::space::parse_plan;

    type Sentence = fn(&Problem, &Evaluation, Bounds) -> Option<String>;

    fn on_64(sentence: Sentence, model: &str, plan: &str) -> Option<String> {
        let problem = example::problem(model, 64, 1024);
        let plan = parse_plan(plan, &problem).unwrap();
        sentence(&problem, &Costs::new(&problem).evaluate_simulated(&plan), Bounds { limits: None, risk: 0.05 })
    }

    #[test]
    fn graphs_are_named_where_steps_wait_for_the_host() {
        let found = on_64(graphs, "qwen3-30b-a3b", "tp=8 ep=8 zero=1 mbs=1").expect("1,024 tokens a rank");
        assert!(found.contains("waits for the host") && found.contains("--set stack.cuda_graphs=true"), "{found}");
        assert_eq!(on_64(graphs, "llama3-8b", "tp=2 zero=1 mbs=1"), None);
    }

    #[test]
    fn bf16_is_named_where_launches_in_fp8_show() {
        let (bf16, plan) = (example::problem("qwen3-30b-a3b", 64, 64), "tp=4 ep=8 zero=1 mbs=1");
        let fp8 = bf16.changed(|_, workload, _| workload.format = Format::Fp8).unwrap();
        let priced = |problem: &Problem| {
            let evaluation = Costs::new(problem).evaluate_simulated(&parse_plan(plan, problem).unwrap());
            let found = sixteen_bits(problem, &evaluation, Bounds { limits: None, risk: 0.05 });
            (evaluation.step.total(), found)
        };
        let ((slow, found), (fast, none)) = (priced(&fp8), priced(&bf16));
        assert!(fast < slow * 0.95 && none.is_none(), "{slow} {fast}");
        let found = found.expect("16 experts a rank are launched one by one");
        assert!(
            found.contains("more kernels an expert in fp8") && found.contains(&format!("takes {fast}.")),
            "{found}"
        );
    }

    #[test]
    fn graphs_are_not_named_beside_what_excludes_them() {
        assert_eq!(on_64(graphs, "qwen3-30b-a3b", "tp=8 ep=8 zero=1 mbs=1 recompute=first-2"), None);
        assert_eq!(on_64(graphs, "qwen3-30b-a3b", "tp=8 ep=8 zero=3 mbs=1"), None);
    }

    #[test]
    fn the_overlap_of_experts_is_named_where_the_exchange_shows() {
        let found =
            on_64(expert_overlap, "qwen3-30b-a3b", "ep=32 zero=1 mbs=1 dispatcher=alltoall recompute=layernorm+act");
        let found = found.expect("seconds of exchange");
        assert!(found.contains("--set stack.overlap.ep=0.3655"), "{found}");
        let again = "ep=32 zero=1 mbs=1 dispatcher=alltoall recompute=full";
        assert_eq!(on_64(expert_overlap, "qwen3-30b-a3b", again), None, "whole layers that run again cannot");
    }
}
