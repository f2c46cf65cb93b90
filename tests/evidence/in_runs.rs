//! Published runs on devices of a kind that was calibrated: the clocks of one GPU by itself are not those of a run.

use std::collections::BTreeMap;
use std::fs::File;

use crate::silicon::{H100, H200, calibration, samples};
use meshwright::cost::Costs;
use meshwright::plan::Plan;
use meshwright::probe::{Calibration, Samples, verify};
use meshwright::problem::Problem;
use meshwright::runs;

/// Relative errors of a run: by the catalogue, by the calibration of one GPU alone, and by the calibration at a run's clocks.
struct Errors {
    catalogue: f64,
    alone: f64,
    in_run: f64,
}

/// Calibrations of two devices, whose samples are read once, fitted once for each device, host and stack: samples of
/// one GPU tell nothing of a cluster's network.
struct Calibrations {
    /// Samples by name of the GPU.
    samples: [(&'static str, Samples); 2],
    /// Problems that were calibrated for, the first of each kind, with their calibrations.
    known: Vec<(Problem, Calibration)>,
}

impl Calibrations {
    fn new() -> Self {
        Self { samples: [("H100 SXM5 80GB", samples(H100)), ("H200 SXM 141GB", samples(H200))], known: Vec::new() }
    }

    /// Calibration of the GPU of a problem; none where neither device is of its kind.
    fn of(&mut self, problem: &Problem) -> Option<&Calibration> {
        let cluster = problem.cluster();
        let (_, samples) = self.samples.iter().find(|(name, _)| *name == cluster.gpu.name)?;
        let serves = |(other, _): &(Problem, Calibration)| {
            let of_other = other.cluster();
            (&of_other.gpu, of_other.host, other.stack()) == (&cluster.gpu, cluster.host, problem.stack())
        };
        let at = self.known.iter().position(serves).unwrap_or_else(|| {
            self.known.push((problem.clone(), calibration(problem, samples)));
            self.known.len() - 1
        });
        Some(&self.known[at].1)
    }
}

/// Median, and mean absolute value, of errors.
fn summary(errors: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut sorted: Vec<f64> = errors.collect();
    sorted.sort_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted.iter().map(|error| error.abs()).sum::<f64>() / sorted.len() as f64)
}

/// Without the share of clocks that a run keeps (`clocks::RUN_OVER_LAYER`), a calibration of one GPU predicts runs 9 % too
/// fast, on every stack and number of GPUs. With it, that calibration is as good as constants fitted to these runs.
#[test]
fn calibrated_devices_predict_published_runs_without_a_bias() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/published/runs.csv");
    let mut found: BTreeMap<String, Vec<Errors>> = BTreeMap::new();
    let mut calibrations = Calibrations::new();
    for row in runs::read(File::open(path).unwrap()).unwrap() {
        let (Ok((problem, plan)), Some(measured)) = (runs::problem_of(&row), row.step_time_canon_s) else { continue };
        let Some(made) = calibrations.of(&problem) else { continue };
        let [alone, in_run] = [verify::calibrated, verify::measured].map(|with| with(&problem, made).unwrap());
        let error =
            |of: &Problem, plan: &Plan| Costs::new(of).evaluate_simulated(plan).step.total().get() / measured - 1.0;
        let [catalogue, alone, in_run] = [&problem, &alone, &in_run].map(|of| error(of, &plan));
        let size = if problem.cluster().gpus <= 64 { "64 GPUs and fewer" } else { "more than 64 GPUs" };
        for group in [format!("{}", problem.workload().format), size.to_owned(), problem.stack().name.clone()] {
            found.entry(group).or_default().push(Errors { catalogue, alone, in_run });
        }
    }
    for (group, errors) in &found {
        let of = |pick: fn(&Errors) -> f64| summary(errors.iter().map(pick));
        let [catalogue, alone, in_run] = [of(|e| e.catalogue), of(|e| e.alone), of(|e| e.in_run)];
        println!(
            "{group}: {} runs, catalogue {catalogue:.3?}, one GPU {alone:.3?}, in a run {in_run:.3?}",
            errors.len()
        );
        if errors.len() >= 20 {
            assert!(alone.0 < -0.05, "{group}: the clocks of one GPU are those of a run");
            assert!(
                in_run.0.abs() < 0.04 && in_run.1 < catalogue.1 + 0.02,
                "{group}: {in_run:?} against {catalogue:?}"
            );
        }
    }
    // The devices' layers were timed in bf16 alone.
    for (format, most) in [("bf16", 0.01), ("fp8", 0.03)] {
        let (middle, _) = summary(found[format].iter().map(|errors| errors.in_run));
        assert!(middle.abs() < most, "{format}: {middle}");
    }
    let all: usize = ["bf16", "fp8"].map(|format| found[format].len()).iter().sum();
    assert_eq!(all, 355);
}
