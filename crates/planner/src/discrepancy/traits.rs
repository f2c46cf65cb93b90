//! Traits of a plan on which its prediction error depends.

use meshwright_engine::cost::{Evaluation, Term};
use meshwright_engine::plan::{Recompute, ZeroStage};
use meshwright_engine::problem::Problem;

/// Number of traits that enter linearly.
const LINEAR: usize = 13;

/// Names of the traits that enter linearly: logarithms of degrees to base 2, whether a setting is on, and shares of the step time.
pub const TRAITS: [&str; LINEAR] = [
    "constant",
    "tensor parallel",
    "pipeline parallel",
    "data parallel",
    "micro-batch",
    "zero",
    "recompute",
    "context and expert parallel",
    "share of tensor-parallel communication",
    "share of pipeline bubble",
    "share of data-parallel communication",
    "share of other communication",
    "short micro-batches",
];

/// Time in seconds below which a micro-batch counts as short: what the host adds to each, ln(1 + seconds/time of a
/// micro-batch) being its logarithm.
const SHORT: f64 = 0.1;

/// Number of coordinates of the smooth deviation.
const COORDINATES: usize = 6;

/// Traits of an evaluated plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traits {
    /// Values of [`TRAITS`].
    pub linear: [f64; LINEAR],
    /// Coordinates of the smooth deviation: log₂ of tp, pp and micro-batch, ZeRO stage, recomputation, log₂ of cp·ep.
    pub coordinates: [f64; COORDINATES],
    /// log₂ of the number of GPUs.
    pub log2_gpus: f64,
    /// Number of micro-batches of a step.
    pub micro_batches: f64,
    /// Number of pipeline stages.
    pub stages: u32,
}

impl Traits {
    /// Traits of a plan of a problem. Degrees are scaled so that usual values are of order one.
    pub fn new(problem: &Problem, evaluation: &Evaluation) -> Self {
        let plan = &evaluation.plan;
        let layout = plan.layout;
        let log = |degree: u32| libm::log2(f64::from(degree.max(1)));
        let total = evaluation.step.total().get();
        let share = |terms: &[Term]| {
            let sum: f64 = evaluation
                .step
                .terms()
                .iter()
                .filter(|(term, _)| terms.contains(term))
                .map(|(_, time)| time.get())
                .sum();
            if total > 0.0 { sum / total } else { 0.0 }
        };
        let micro_batches = plan.micro_batches(problem.workload().global_batch);
        let recompute = match plan.recompute {
            Recompute::None => 0.0,
            Recompute::Selective(_) | Recompute::PerOp | Recompute::EveryOther | Recompute::FirstLayers(_) => 1.0,
            Recompute::Full => 2.0,
        };
        let others = log(layout.cp) + log(layout.ep);
        let stage = f64::from(u8::from(plan.zero));
        Self {
            linear: [
                1.0,
                log(layout.tp) / 3.0,
                log(layout.pp) / 3.0,
                log(layout.dp) / 5.0,
                log(plan.micro_batch) / 3.0,
                f64::from(u8::from(plan.zero >= ZeroStage::One)),
                recompute / 2.0,
                others / 3.0,
                share(&[Term::TpComm]),
                share(&[Term::PipelineBubble]),
                share(&[Term::DpComm]),
                share(&[Term::CpComm, Term::EpComm, Term::PpComm]),
                libm::log1p(SHORT * micro_batches / total),
            ],
            coordinates: [log(layout.tp), log(layout.pp), log(plan.micro_batch), stage, recompute, others],
            log2_gpus: log(problem.cluster().gpus),
            micro_batches,
            stages: layout.pp,
        }
    }
}
