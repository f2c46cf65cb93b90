//! A measured step that is slower than predicted: where the time must be, how likely each place is, what to measure next.
//!
//! Each cause is a change of the problem (a network at half its rate, a host four times slower, …) with several grades; each
//! grade predicts a step time for every measurement. Which cause is likely follows from how well its grades predict them all.

use serde::Serialize;

use crate::cost::{Costs, StepTime};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::units::Seconds;

/// One measurement.
#[derive(Clone, Debug)]
pub struct Point {
    /// What was run.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// Its step time.
    pub measured: Seconds,
    /// Whether only its ratio to the other measurements is known (an efficiency).
    pub relative: bool,
}

/// One cause, with what it explains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Short name.
    pub cause: &'static str,
    /// What it means.
    pub means: String,
    /// Its likelihood among the causes, if one of them alone is at work.
    pub likelihood: f64,
    /// The grade that fits best, in words.
    pub grade: String,
    /// Seconds that it takes of each measured step, with that grade.
    pub lost_s: Vec<f64>,
    /// Step time that it predicts for each measurement.
    pub explains_s: Vec<f64>,
    /// What to measure next.
    pub next: &'static str,
}

/// What measurements say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Predicted step time of each measurement.
    pub predicted_s: Vec<f64>,
    /// Measured step time of each.
    pub measured_s: Vec<f64>,
    /// Causes, the likeliest first.
    pub causes: Vec<Diagnosis>,
    /// Whether the measurements are within the model's own error.
    pub within_error: bool,
}

/// Error of a predicted step time, common to measurements of one model and software (specification, additions §10.9).
const COMMON: f64 = 0.12;
/// Spread of repeated measurements of one layout (README: 3–4 %).
const REPEATED: f64 = 0.04;
/// Where only ratios are known, the common error is as good as free.
const FREE: f64 = 10.0;
/// Share of a device's memory from which the allocator may thrash.
const FULL: f64 = 0.85;

/// A cause and its grades: what a grade predicts for a point, if it applies there.
struct Cause {
    name: &'static str,
    means: &'static str,
    next: &'static str,
    grades: &'static [f64],
    unit: &'static str,
    step: fn(&Point, &Context, f64) -> Option<Seconds>,
}

/// What all causes look at.
struct Context {
    step: StepTime,
    /// GPUs of the largest measurement.
    most_gpus: u32,
    /// GPUs of the smallest.
    least_gpus: u32,
    /// Share of the memory that the fullest rank takes.
    full: f64,
}

const CAUSES: &[Cause] = &[
    Cause {
        name: "none",
        means: "no fault: the prediction itself is off",
        next: "another model or batch on the same nodes: if it is off as much, fit the device (`meshwright fit`)",
        grades: &[1.0],
        unit: "as predicted",
        step: |_, context, _| Some(context.step.total()),
    },
    Cause {
        name: "exposed-dp",
        means: "gradients and parameters between replicas are not hidden behind compute",
        next: "a profile of one step: NCCL reduce-scatter and all-gather outside of the backward; overlap flags, CUDA_DEVICE_MAX_CONNECTIONS, bucket sizes",
        grades: &[1.0],
        unit: "not hidden at all",
        step: |point, context, _| {
            let problem = with_stack(point, |stack| stack.overlap.dp = false)?;
            Some(worse(&problem, point, context))
        },
    },
    Cause {
        name: "slow-network",
        means: "the network between nodes runs below its rate",
        next: "all_reduce_perf of nccl-tests over all nodes, then over pairs; NCCL_DEBUG=INFO for GPUDirect RDMA and the number of NICs; port counters for errors",
        grades: &[0.75, 0.5, 0.25, 0.125, 0.0625],
        unit: "of its rate",
        step: slower_network,
    },
    Cause {
        name: "congestion",
        means: "the network keeps its rate between few nodes and loses it between many: routes collide, links above the leaf are shared",
        next: "all_reduce_perf at 2, 4, 8, … nodes: where the bus bandwidth falls; routing (adaptive, ECMP), placement under one leaf, other jobs",
        grades: &[0.75, 0.5, 0.25, 0.125, 0.0625],
        unit: "of its rate in the largest run",
        step: |point, context, share| {
            if context.least_gpus == context.most_gpus {
                return None;
            }
            if point.problem.cluster().gpus < context.most_gpus {
                return Some(context.step.total());
            }
            slower_network(point, context, share)
        },
    },
    Cause {
        name: "cross-node-tp",
        means: "ranks are not numbered node by node, so that tensor- and expert-parallel groups talk over the network",
        next: "print rank, host and local rank of every process; the launcher's distribution (srun --distribution=block), CUDA_VISIBLE_DEVICES",
        grades: &[1.0],
        unit: "every group across nodes",
        step: |point, context, _| {
            let layout = point.plan.layout;
            if layout.tp.max(layout.ep) < 2 || point.problem.cluster().gpus <= point.problem.cluster().scale_up.gpus {
                return None;
            }
            Some(worse(&super::links::with_domain(&point.problem, 1)?, point, context))
        },
    },
    Cause {
        name: "straggler",
        means: "one slow GPU or node, which all others wait for",
        next: "compute time per rank without communication (a matmul loop on every GPU); clocks, temperatures, ECC and PCIe replays per node; leave out half of the nodes, then the other half",
        grades: &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2],
        unit: "slower than the others",
        step: |point, context, slower| {
            // A slow node is in the largest run; a smaller one need not have it.
            let here = point.problem.cluster().gpus == context.most_gpus;
            let busy = context.step.compute + context.step.recompute;
            Some(context.step.total() + busy * if here { slower } else { 0.0 })
        },
    },
    Cause {
        name: "slow-clocks",
        means: "all GPUs below their clocks: a power limit, heat, or other work on them",
        next: "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE while it runs; a large matmul alone against the device's curve",
        grades: &[0.1, 0.2, 0.4, 0.8, 1.6],
        unit: "slower than their curve",
        step: |_, context, slower| {
            Some(context.step.total() + (context.step.compute + context.step.recompute) * slower)
        },
    },
    Cause {
        name: "launch-bound",
        means: "the host launches kernels too slowly",
        next: "a profile: gaps between kernels on the device; CPU clocks and pinning, a debugger or profiler left on, torch.cuda.synchronize in the loop; CUDA graphs",
        grades: &[2.0, 4.0, 8.0, 16.0],
        unit: "times the host time of a launch",
        step: |point, context, times| {
            let problem = with_stack(point, |stack| {
                stack.launches.x86 = stack.launches.x86 * times;
                stack.launches.grace = stack.launches.grace * times;
            })?;
            Some(worse(&problem, point, context))
        },
    },
    Cause {
        name: "bubble",
        means: "stages wait for each other longer than the schedule asks: uneven stages, blocking sends, fewer micro-batches",
        next: "forward and backward time per stage; the number of micro-batches that the log prints; sends that wait in a profile",
        grades: &[1.5, 2.0, 4.0, 8.0],
        unit: "times the bubble",
        step: |point, context, times| {
            let bubble = context.step.pipeline_bubble;
            (point.plan.layout.pp > 1 && bubble > Seconds::ZERO).then(|| context.step.total() + bubble * (times - 1.0))
        },
    },
    Cause {
        name: "expert-imbalance",
        means: "some experts get more tokens than others",
        next: "tokens per expert from the router's log; the load-balancing loss; a run with forced balance (--moe-router-force-load-balancing)",
        grades: &[1.25, 1.5, 2.0, 3.0, 5.0],
        unit: "load of the busiest rank over the mean",
        step: |point, context, imbalance| {
            if point.plan.layout.ep < 2 {
                return None;
            }
            let mut workload = point.problem.workload().clone();
            workload.imbalance = workload.imbalance.max(imbalance);
            let (model, cluster, stack) =
                (point.problem.model().clone(), point.problem.cluster().clone(), point.problem.stack().clone());
            let problem = Problem::new(model, cluster, workload, stack, point.problem.hbm_profile()).ok()?;
            Some(worse(&problem, point, context))
        },
    },
    Cause {
        name: "memory-thrash",
        means: "the allocator runs at the ceiling: it frees, retries and synchronises",
        next: "num_alloc_retries of torch.cuda.memory_stats; expandable_segments; the same run with full recomputation",
        grades: &[0.1, 0.3, 1.0, 3.0],
        unit: "of the step on top",
        step: |_, context, share| (context.full >= FULL).then(|| context.step.total() * (1.0 + share)),
    },
    Cause {
        name: "input-stall",
        means: "every step waits for something beside training: data, logging, checkpoints",
        next: "the time from the end of a step to the first kernel of the next; synthetic data; checkpoints and evaluation off",
        grades: &[0.1, 0.3, 1.0, 3.0, 10.0],
        unit: "seconds a step",
        step: |_, context, seconds| Some(context.step.total() + Seconds::new(seconds)),
    },
];

fn with_stack(point: &Point, change: impl Fn(&mut crate::stack::Stack)) -> Option<Problem> {
    let problem = &point.problem;
    let mut stack = problem.stack().clone();
    change(&mut stack);
    Problem::new(
        problem.model().clone(),
        problem.cluster().clone(),
        problem.workload().clone(),
        stack,
        problem.hbm_profile(),
    )
    .ok()
}

/// The step on a network that reaches a share of its rate.
fn slower_network(point: &Point, context: &Context, share: f64) -> Option<Seconds> {
    let mut cluster = point.problem.cluster().clone();
    for level in &mut cluster.levels {
        level.efficiency *= share;
    }
    Some(worse(&super::links::changed(&point.problem, cluster)?, point, context))
}

/// The step on a changed problem, never faster than on the true one.
fn worse(problem: &Problem, point: &Point, context: &Context) -> Seconds {
    Costs::new(problem).evaluate_played(&point.plan).step.total().max(context.step.total())
}

/// What the measurements say; each must be of a legal plan.
pub fn diagnose(points: &[Point]) -> Verdict {
    let most_gpus = points.iter().map(|point| point.problem.cluster().gpus).max().unwrap_or(1);
    let least_gpus = points.iter().map(|point| point.problem.cluster().gpus).min().unwrap_or(1);
    let contexts: Vec<Context> = points
        .iter()
        .map(|point| {
            let evaluation = Costs::new(&point.problem).evaluate_played(&point.plan);
            let full = evaluation.footprint.device() / point.problem.cluster().gpu.hbm.value;
            Context { step: evaluation.step, most_gpus, least_gpus, full }
        })
        .collect();
    let relative = points.iter().any(|point| point.relative);
    let mut found: Vec<(f64, Diagnosis)> =
        CAUSES.iter().filter_map(|cause| explain(cause, points, &contexts, relative)).collect();
    let all = log_sum(found.iter().map(|(weight, _)| *weight));
    for (weight, diagnosis) in &mut found {
        diagnosis.likelihood = (*weight - all).exp();
    }
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let predicted: Vec<f64> = contexts.iter().map(|context| context.step.total().get()).collect();
    let off = |(point, predicted): (&Point, &f64)| (point.measured.get() / predicted).ln();
    let offs: Vec<f64> = points.iter().zip(&predicted).map(off).collect();
    let most = offs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let spread = most - offs.iter().copied().fold(f64::INFINITY, f64::min);
    Verdict {
        within_error: (relative || most <= COMMON) && spread <= 2.0 * REPEATED * std::f64::consts::SQRT_2,
        predicted_s: predicted,
        measured_s: points.iter().map(|point| point.measured.get()).collect(),
        causes: found.into_iter().map(|(_, diagnosis)| diagnosis).collect(),
    }
}

/// ln Σ exp(x), without leaving the range of numbers.
fn log_sum(items: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = items.clone().fold(f64::NEG_INFINITY, f64::max);
    most + items.map(|x| (x - most).exp()).sum::<f64>().ln()
}

/// A cause's log weight, its grades being equally likely beforehand, and the grade that fits best.
fn explain(cause: &Cause, points: &[Point], contexts: &[Context], relative: bool) -> Option<(f64, Diagnosis)> {
    let Cause { name, means, next, grades, unit, step } = cause;
    let mut best: Option<(f64, f64, Vec<f64>)> = None;
    let mut weights = Vec::new();
    let between = between(grades);
    for &grade in &between {
        let times: Option<Vec<f64>> =
            points.iter().zip(contexts).map(|(point, context)| step(point, context, grade).map(Seconds::get)).collect();
        let times = times?;
        let residuals: Vec<f64> =
            points.iter().zip(&times).map(|(point, time)| (point.measured.get() / time).ln()).collect();
        let weight = log_density(&residuals, if relative { FREE } else { COMMON }, REPEATED);
        weights.push(weight);
        if best.as_ref().is_none_or(|(known, ..)| weight > *known) {
            best = Some((weight, grade, times));
        }
    }
    let (_, grade, times) = best?;
    let changes = times.iter().zip(contexts).any(|(time, context)| *time > context.step.total().get() * (1.0 + 1e-6));
    if !changes && *name != "none" {
        return None;
    }
    let lost = times.iter().zip(contexts).map(|(time, context)| time - context.step.total().get()).collect();
    let grade = if grades.len() == 1 { (*unit).to_owned() } else { format!("{} {unit}", rounded(grade)) };
    let diagnosis = Diagnosis {
        cause: name,
        means: (*means).to_owned(),
        likelihood: 0.0,
        grade,
        lost_s: lost,
        explains_s: times,
        next,
    };
    Some((log_sum(weights.iter().copied()) - (between.len() as f64).ln(), diagnosis))
}

/// Grades, and steps in equal ratios between them: a factor of two between grades is far over the error of a measurement.
fn between(grades: &[f64]) -> Vec<f64> {
    const STEPS: u32 = 6;
    let last = grades.last().copied();
    let pairs = grades.windows(2).flat_map(|pair| {
        (0..STEPS).map(move |step| pair[0] * (pair[1] / pair[0]).powf(f64::from(step) / f64::from(STEPS)))
    });
    pairs.chain(last).collect()
}

/// Two digits.
fn rounded(x: f64) -> f64 {
    let digits = 10_f64.powf(1.0 - x.abs().log10().floor());
    (x * digits).round() / digits
}

/// Log density of residuals that share a normal error `common` and have one of their own, `own`.
///
/// ```text
/// covariance = common²·11ᵀ + own²·I
/// quadratic  = Σr²/own² − common²/own²·(Σr)²/(own² + n·common²)      determinant = own^(2(n−1))·(own² + n·common²)
/// ```
fn log_density(residuals: &[f64], common: f64, own: f64) -> f64 {
    let n = residuals.len() as f64;
    let (sum, squares): (f64, f64) = residuals.iter().fold((0.0, 0.0), |(sum, squares), r| (sum + r, squares + r * r));
    let whole = own * own + n * common * common;
    let quadratic = squares / (own * own) - common * common / (own * own) * sum * sum / whole;
    let log_determinant = 2.0 * (n - 1.0) * own.ln() + whole.ln();
    -0.5 * (quadratic + log_determinant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_density_of_one_residual_is_normal() {
        let spread = COMMON.hypot(REPEATED);
        let expected = |r: f64| -0.5 * (r / spread).powi(2) - spread.ln();
        for r in [0.0, 0.1, -0.3] {
            assert!((log_density(&[r], COMMON, REPEATED) - expected(r)).abs() < 1e-9, "{r}");
        }
    }

    #[test]
    fn grades_lie_as_close_as_measurements() {
        let grades = between(&[0.1, 0.4, 0.2]);
        assert_eq!((grades.len(), grades[0], grades[6], grades[12]), (13, 0.1, 0.4, 0.2));
        assert!((grades[3] - 0.2).abs() < 1e-12, "the middle of 0.1 and 0.4 by ratio");
        assert_eq!(between(&[1.0]), [1.0]);
        assert!((rounded(0.123_4) - 0.12).abs() < 1e-12 && (rounded(13.7) - 14.0).abs() < 1e-12);
    }

    #[test]
    fn a_common_error_is_cheaper_than_two_of_their_own() {
        let log = |residuals: &[f64], common| log_density(residuals, common, REPEATED);
        assert!(log(&[0.1, 0.1], COMMON) > log(&[0.1, -0.1], COMMON));
        assert!(log(&[0.5, 0.5], FREE) > log(&[0.0, 0.0], FREE) - 0.1);
        assert!((log_sum([-1000.0, -1000.0].into_iter()) - (-1000.0 + 2.0_f64.ln())).abs() < 1e-9);
    }
}
