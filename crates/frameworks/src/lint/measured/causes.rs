//! Causes of a slow run: prior probability, range of grades, and the step time that each grade predicts.

use super::point::{Point, RunProperties};
use crate::lint::links;
use meshwright_engine::cluster::Level;
use meshwright_engine::cost::Costs;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Stack;
use meshwright_engine::units::Seconds;
use meshwright_engine::workload::Workload;

/// Cause of slow runs, with the range of its grades.
pub(super) struct Cause {
    /// Name in the answer.
    pub name: &'static str,
    /// Its effect, in a sentence.
    pub means: &'static str,
    /// Measurements that would confirm it.
    pub next: &'static str,
    /// Chance that it is at work, before anything is measured.
    pub prior: fn(&RunProperties) -> f64,
    /// Its grades.
    pub grades: GradeRange,
    /// Reason why no grade is worse.
    pub bound: &'static str,
    /// Words behind a grade.
    pub unit: &'static str,
    /// Relative error of its predicted loss.
    pub error: f64,
    /// Step time of a measured point under a grade; none where the cause does not apply to it.
    pub step: fn(&Point, &RunProperties, f64) -> Option<Seconds>,
}

/// Grades of a cause; between the ends all are equally likely on a logarithmic scale. One grade where both are equal.
#[derive(Clone, Copy)]
pub(super) struct GradeRange {
    pub mildest: f64,
    pub worst: f64,
}

/// Share of jobs on four nodes whose communication was slow for a time. Source: [greyhound].
const SLOW_NETWORKS: f64 = 0.4;
/// Share of nodes whose GPUs or host are slow. Source: [greyhound], below 2 % of jobs on one node.
const SLOW_NODES: f64 = 0.02;
/// Share of runs with one given mistake of the set-up (assumption: nobody has published how often it is made).
const MISTAKES: f64 = 0.1;

/// Error of what a change of links, hosts or tokens loses: a network at half its rate may cost a quarter more or less than is
/// predicted (assumption; losses themselves are not among what was published). Time of compute, of bubbles and of waiting is what
/// its grade says.
const LOSS: f64 = 0.25;

/// Chance of a mistake of the set-up.
const fn mistake(_: &RunProperties) -> f64 {
    MISTAKES
}

/// Chance of a network that is slow everywhere, or of one that is slow where many nodes talk: half each, but the two cannot be told
/// apart in runs of one size.
fn network(context: &RunProperties) -> f64 {
    if context.least_gpus == context.most_gpus { SLOW_NETWORKS } else { SLOW_NETWORKS / 2.0 }
}

/// Chance of a slow node among all of the largest run, `1 − (1 − p)^nodes`. However many there are, a mistake's chance
/// remains that there is none, for the nodes may have been screened.
fn one_of_the_nodes(context: &RunProperties) -> f64 {
    (1.0 - (1.0 - SLOW_NODES).powf(context.most_nodes)).min(1.0 - MISTAKES)
}

/// Source: [nvml], `nvmlClocksEventReasonHwSlowdown`.
const HALF_CLOCK: &str = "hardware slowdown leaves half of the clock (NVML)";

/// All causes.
pub(super) const CAUSES: &[Cause] = &[
    Cause {
        name: "exposed-dp",
        means: "gradients and parameters between replicas are not hidden behind compute",
        next: "a profile of one step: NCCL reduce-scatter and all-gather outside of the backward; overlap flags, \
        CUDA_DEVICE_MAX_CONNECTIONS, bucket sizes",
        prior: mistake,
        grades: GradeRange { mildest: 0.25, worst: 1.0 },
        bound: "nothing of it is hidden",
        unit: "of what should be hidden is not",
        error: LOSS,
        step: |point, context, share| {
            let problem = point.problem.changed(|_, _, stack| stack.overlap.dp = false).ok()?;
            let base = context.step.total();
            Some(base + (worse(&problem, point, context) - base) * share)
        },
    },
    Cause {
        name: "slow-network",
        means: "the network between nodes runs below its rate",
        next: "all_reduce_perf of nccl-tests over all nodes, then over pairs; NCCL_DEBUG=INFO for GPUDirect RDMA and \
        the number of NICs; port counters for errors",
        prior: network,
        grades: GradeRange { mildest: 7.0 / 8.0, worst: 1.0 / 32.0 },
        bound: "from one port of eight lost to sockets on one 100 Gb/s port instead of eight of 400 Gb/s (assumption)",
        unit: "of its rate",
        error: LOSS,
        step: slower_network,
    },
    Cause {
        name: "congestion",
        means: "the network keeps its rate between few nodes and loses it between many: routes collide, links above \
        the leaf are shared",
        next: "all_reduce_perf at 2, 4, 8, … nodes: where the bus bandwidth falls; routing (adaptive, ECMP), \
        placement under one leaf, other jobs",
        prior: network,
        grades: GradeRange { mildest: 7.0 / 8.0, worst: 1.0 / 16.0 },
        bound: "the flows of two nodes of eight ports collide on one link (assumption)",
        unit: "of its rate in the largest run",
        error: LOSS,
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
        next: "print rank, host and local rank of every process; the launcher's distribution (srun \
        --distribution=block), CUDA_VISIBLE_DEVICES",
        prior: mistake,
        grades: GradeRange { mildest: 1.0, worst: 1.0 },
        bound: "no two ranks of a group share a node",
        unit: "every group across nodes",
        error: LOSS,
        step: |point, context, _| {
            let layout = point.plan.layout;
            if layout.tp.max(layout.ep) < 2 || point.problem.cluster().gpus <= point.problem.cluster().scale_up.gpus {
                return None;
            }
            Some(worse(&links::with_domain(&point.problem, 1)?, point, context))
        },
    },
    Cause {
        name: "straggler",
        means: "one slow GPU or node, which all others wait for",
        next: "compute time per rank without communication (a matmul loop on every GPU); clocks, temperatures, ECC \
        and PCIe replays per node; leave out half of the nodes, then the other half",
        prior: one_of_the_nodes,
        grades: GradeRange { mildest: 0.05, worst: 1.0 },
        bound: HALF_CLOCK,
        unit: "slower than the others",
        error: 0.0,
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
        prior: mistake,
        grades: GradeRange { mildest: 0.05, worst: 1.0 },
        bound: HALF_CLOCK,
        unit: "slower than their curve",
        error: 0.0,
        step: |_, context, slower| {
            Some(context.step.total() + (context.step.compute + context.step.recompute) * slower)
        },
    },
    Cause {
        name: "launch-bound",
        means: "the host launches kernels too slowly",
        next: "a profile: gaps between kernels on the device; CPU clocks and pinning, a debugger or profiler left on, \
        torch.cuda.synchronize in the loop; CUDA graphs",
        prior: mistake,
        grades: GradeRange { mildest: 1.5, worst: 16.0 },
        bound: "a host under a profiler, or shared with other work (assumption)",
        unit: "times the host time of a launch",
        error: LOSS,
        step: |point, context, times| {
            let slower = |stack: &mut Stack| {
                stack.launches.x86 = stack.launches.x86 * times;
                stack.launches.grace = stack.launches.grace * times;
            };
            let problem = point.problem.changed(|_, _, stack| slower(stack)).ok()?;
            Some(worse(&problem, point, context))
        },
    },
    Cause {
        name: "bubble",
        means: "stages wait for each other longer than the schedule asks: uneven stages, interleaving that is off, blocking sends",
        next: "forward and backward time per stage; the number of micro-batches that the log prints; sends that wait in a profile",
        prior: mistake,
        grades: GradeRange { mildest: 1.25, worst: 8.0 },
        bound: "eight chunks a stage that are not interleaved after all (assumption)",
        unit: "times the bubble",
        error: 0.0,
        step: |point, context, times| {
            let bubble = context.step.pipeline_bubble;
            (point.plan.layout.pp > 1 && bubble > Seconds::ZERO).then(|| context.step.total() + bubble * (times - 1.0))
        },
    },
    Cause {
        name: "expert-imbalance",
        means: "some experts get more tokens than others",
        next: "tokens per expert from the router's log; the load-balancing loss; a run with forced balance \
        (--moe-router-force-load-balancing)",
        prior: mistake,
        grades: GradeRange { mildest: 1.25, worst: 4.0 },
        bound: "a router without a balancing loss (assumption)",
        unit: "load of the busiest rank over the mean",
        error: LOSS,
        step: |point, context, imbalance| {
            if point.plan.layout.ep < 2 {
                return None;
            }
            let uneven = |workload: &mut Workload| workload.imbalance = workload.imbalance.max(imbalance);
            let problem = point.problem.changed(|_, workload, _| uneven(workload)).ok()?;
            Some(worse(&problem, point, context))
        },
    },
    Cause {
        name: "memory-thrash",
        means: "the allocator runs at the ceiling: it frees, retries and synchronises",
        next: "num_alloc_retries of torch.cuda.memory_stats; expandable_segments; the same run with full recomputation",
        prior: mistake,
        grades: GradeRange { mildest: 0.1, worst: 2.0 },
        bound: "three steps' time (assumption)",
        unit: "of the step on top",
        error: LOSS,
        step: |_, context, share| (context.full >= FULL).then(|| context.step.total() * (1.0 + share)),
    },
    Cause {
        name: "input-stall",
        means: "every step waits for something beside training: data, logging, checkpoints",
        next: "the time from the end of a step to the first kernel of the next; synthetic data; checkpoints and evaluation off",
        prior: mistake,
        grades: GradeRange { mildest: 0.1, worst: 10.0 },
        bound: "ten seconds (assumption)",
        unit: "seconds a step",
        error: 0.0,
        step: |_, context, seconds| Some(context.step.total() + Seconds::new(seconds)),
    },
];

/// Share of a device's memory from which the allocator may thrash.
const FULL: f64 = 0.85;

/// The step on a network that reaches a share of its rate.
fn slower_network(point: &Point, context: &RunProperties, share: f64) -> Option<Seconds> {
    let slower = |level: &mut Level| level.efficiency *= share;
    let problem = point.problem.changed(|cluster, _, _| cluster.levels.iter_mut().for_each(slower)).ok()?;
    Some(worse(&problem, point, context))
}

/// The step on a changed problem, never faster than on the true one.
fn worse(problem: &Problem, point: &Point, context: &RunProperties) -> Seconds {
    Costs::new(problem).evaluate_simulated(&point.plan).step.total().max(context.step.total())
}
