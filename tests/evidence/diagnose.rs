//! Runs that lose time in one known place, each measured with the spread of repeated runs: `lint --measured` names the place first
//! or second, and is not sure where the measurements are not.

use crate::random::{Spec, spec};
use meshwright::cluster::Cluster;
use meshwright::cost::Costs;
use meshwright::lint::measured::{MeasuredDiagnosis, Point, diagnose};
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::stack::Stack;
use meshwright::units::Seconds;

/// Errors of measurements, as shares: what repeated runs of one layout differ by.
const SPREAD: [f64; 3] = [0.02, -0.03, 0.015];

/// A run of the truth, as the file's model and plan see it.
struct Run {
    asked: Problem,
    plan: &'static str,
    truth: Problem,
    ran: &'static str,
}

impl Run {
    /// A run that is what it says.
    fn healthy(spec: &Spec, plan: &'static str) -> Self {
        Self { asked: spec.problem(), plan, truth: spec.problem(), ran: plan }
    }

    fn on(mut self, change: impl Fn(&mut Cluster)) -> Self {
        let mut cluster = self.truth.cluster().clone();
        change(&mut cluster);
        self.truth = made(&self.truth, cluster, self.truth.stack().clone());
        self
    }

    fn with(mut self, change: impl Fn(&mut Stack)) -> Self {
        let mut stack = self.truth.stack().clone();
        change(&mut stack);
        self.truth = made(&self.truth, self.truth.cluster().clone(), stack);
        self
    }
}

fn made(problem: &Problem, cluster: Cluster, stack: Stack) -> Problem {
    let (model, workload) = (problem.model().clone(), problem.workload().clone());
    Problem::new(model, cluster, workload, stack, problem.hbm_profile()).unwrap()
}

fn time(problem: &Problem, plan: &str) -> f64 {
    let plan = parse_plan(plan, problem).unwrap();
    Costs::new(problem).evaluate_simulated(&plan).step.total().get()
}

fn verdict(runs: Vec<Run>) -> MeasuredDiagnosis {
    let point = |(run, off): (Run, f64)| {
        let measured = Seconds::new(time(&run.truth, run.ran) * (1.0 + off));
        let plan = parse_plan(run.plan, &run.asked).unwrap();
        Point { problem: run.asked, plan, measured, relative: false }
    };
    let points: Vec<Point> = runs.into_iter().zip(SPREAD).map(point).collect();
    diagnose(&points)
}

fn summary(verdict: &MeasuredDiagnosis) -> String {
    let line = |cause: &meshwright::lint::measured::Diagnosis| {
        format!(
            "{} {:.3} ({}, with {:?}) explains {:.2?}",
            cause.cause, cause.likelihood, cause.grade, cause.with, cause.explains_s
        )
    };
    let causes: Vec<String> = verdict.causes.iter().take(6).map(line).collect();
    format!("predicted {:.2?} measured {:.2?}\n  {}", verdict.predicted_s, verdict.measured_s, causes.join("\n  "))
}

/// The place of a cause in the ranking.
fn place(verdict: &MeasuredDiagnosis, cause: &str) -> usize {
    verdict.causes.iter().position(|found| found.cause == cause).unwrap_or(usize::MAX)
}

fn demand(verdict: &MeasuredDiagnosis, cause: &str, best: usize) {
    let sum: f64 = verdict.causes.iter().map(|cause| cause.likelihood).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}\n{}", summary(verdict));
    assert!(place(verdict, cause) < best, "{cause} is not among the first {best}: {}", summary(verdict));
}

fn small(gpus: u32) -> Spec {
    spec("llama3-8b", "dgx-h100-1k", "nemo-25", gpus, 8192).gpus(gpus)
}

fn slower_network(cluster: &mut Cluster) {
    for level in &mut cluster.levels {
        level.bandwidth.value = level.bandwidth.value * 0.25;
    }
}

#[test]
fn a_network_at_a_quarter_of_its_rate() {
    let plan = "tp=1 pp=1 zero=3";
    let runs = || [16, 128].map(|gpus| Run::healthy(&small(gpus), plan).on(slower_network));
    let found = verdict(runs().into());
    demand(&found, "slow-network", 2);
    // And at one size alone.
    let [_, large] = runs();
    demand(&verdict(vec![large]), "slow-network", 2);
}

#[test]
fn a_network_that_is_slow_between_many_nodes_only() {
    let plan = "tp=1 pp=1 zero=3";
    let found = verdict(vec![Run::healthy(&small(16), plan), Run::healthy(&small(128), plan).on(slower_network)]);
    demand(&found, "congestion", 2);
    assert!(place(&found, "congestion") < place(&found, "slow-network"), "{}", summary(&found));
}

/// A device all of whose compute is slower by a factor.
fn slower_device(cluster: &mut Cluster) {
    for peak in cluster.gpu.peak.values_mut() {
        peak.value = peak.value * (1.0 / 1.3);
    }
    cluster.gpu.hbm_bandwidth.value = cluster.gpu.hbm_bandwidth.value * (1.0 / 1.3);
}

#[test]
fn a_straggler_in_the_large_run() {
    // Little is exchanged, so that the network cannot be it.
    let plan = "tp=2 pp=1 zero=1 mbs=1";
    let spec = |gpus: u32| Spec { global_batch: gpus * 4, ..small(gpus) };
    let found = verdict(vec![Run::healthy(&spec(16), plan), Run::healthy(&spec(128), plan).on(slower_device)]);
    demand(&found, "straggler", 1);
}

#[test]
fn clocks_that_are_low_everywhere() {
    // What the network costs does not grow with the batch; what the clocks cost does, and on few GPUs as on many.
    let plan = "tp=1 pp=1 zero=1 mbs=1";
    let spec = |gpus: u32, batch: u32| Spec { global_batch: batch, ..small(gpus) };
    let runs = [(16, 64), (128, 512), (128, 4096)];
    let found = verdict(runs.map(|(gpus, batch)| Run::healthy(&spec(gpus, batch), plan).on(slower_device)).into());
    demand(&found, "slow-clocks", 2);
    assert!(place(&found, "slow-clocks") < place(&found, "straggler"), "{}", summary(&found));
}

#[test]
fn a_host_that_launches_three_times_slower() {
    let spec = spec("llama3-8b", "dgx-h100-64", "megatron-lm-2024", 64, 1024);
    let slow = |stack: &mut Stack| {
        stack.launches.x86 = stack.launches.x86 * 3.0;
        stack.launches.grace = stack.launches.grace * 3.0;
    };
    let found = verdict(
        ["tp=8 pp=1 zero=1 mbs=1", "tp=8 pp=1 zero=1 mbs=8"].map(|plan| Run::healthy(&spec, plan).with(slow)).into(),
    );
    demand(&found, "launch-bound", 2);
}

#[test]
fn interleaving_that_is_not_on() {
    let (asked, ran) = ("tp=4 pp=8 vpp=4 zero=1", "tp=4 pp=8 zero=1");
    let run = |batch: u32| {
        let spec = spec("llama3-70b", "dgx-h100-64", "nemo-25", batch, 8192);
        Run { ran, ..Run::healthy(&spec, asked) }
    };
    let found = verdict(vec![run(16), run(64), run(256)]);
    demand(&found, "bubble", 2);
}

#[test]
fn gradients_that_are_not_hidden() {
    // A short sequence, so that they take a share of the step that the model's own error does not hide.
    let plan = "tp=1 pp=1 zero=1 mbs=1";
    let short = |gpus: u32, batch: u32| Spec { global_batch: batch, seq_len: 2048, ..small(gpus) };
    let exposed = |stack: &mut Stack| stack.overlap.dp = false;
    let found = verdict(
        [(16, 16), (128, 128)].map(|(gpus, batch)| Run::healthy(&short(gpus, batch), plan).with(exposed)).into(),
    );
    demand(&found, "exposed-dp", 2);
    let found = verdict([128, 1024].map(|batch| Run::healthy(&short(128, batch), plan).with(exposed)).into());
    demand(&found, "exposed-dp", 2);
}

#[test]
fn a_healthy_run_is_called_one() {
    let plan = "tp=2 pp=1 zero=1";
    let found = verdict([16, 128].map(|gpus| Run::healthy(&small(gpus), plan)).into());
    assert!(found.within_error, "{}", summary(&found));
    demand(&found, "none", 1);
}

/// The classic: 85 % on 16 GPUs, 40 % on 128. What grows with the size of a run is the network's, and one slow node among more; a
/// lone node at half its clock at most does not take half of the step by itself.
#[test]
fn good_on_16_and_bad_on_128() {
    for (name, plan) in
        [("data parallel", "tp=2 pp=1 zero=1"), ("sharded", "tp=1 pp=1 zero=3"), ("pipeline", "tp=2 pp=2 zero=1")]
    {
        let point = |gpus: u32, efficiency: f64| {
            let problem = small(gpus).problem();
            let plan = parse_plan(plan, &problem).unwrap();
            // Efficiencies at one batch per GPU: times are as their inverses.
            Point { measured: Seconds::new(1.0 / efficiency), problem, plan, relative: true }
        };
        let found = diagnose(&[point(16, 0.85), point(128, 0.4)]);
        let share =
            |cause: &str| found.causes.iter().find(|found| found.cause == cause).map_or(0.0, |found| found.likelihood);
        let likeliest = format!("{name}: {}", summary(&found));
        assert!(found.causes.iter().all(|cause| cause.likelihood < 0.8), "nothing is that sure: {likeliest}");
        assert!(
            share("none") + share("slow-clocks") + share("input-stall") < 0.1,
            "these do not grow with the run: {likeliest}"
        );
        assert!(share("straggler") < 0.5, "{likeliest}");
        assert!(share("congestion") + share("slow-network") + share("exposed-dp") > share("straggler"), "{likeliest}");
    }
}

/// Causes that one time cannot tell apart are named together.
#[test]
fn one_time_leaves_much_open() {
    let problem = small(128).problem();
    let plan = parse_plan("tp=2 pp=1 zero=1", &problem).unwrap();
    let measured = Seconds::new(time(&problem, "tp=2 pp=1 zero=1") * 1.6);
    let found = diagnose(&[Point { problem, plan, measured, relative: false }]);
    assert!(found.causes.iter().filter(|cause| cause.likelihood > 0.05).count() >= 3, "{}", summary(&found));
    assert!(found.causes.iter().all(|cause| cause.likelihood < 0.6), "{}", summary(&found));
    let next = found.next_run.as_ref().expect("another batch tells some of them apart");
    assert!(next.says.len() == 2 && (next.says[0].1 / next.says[1].1).ln().abs() > 0.08, "{next:?}");
}
