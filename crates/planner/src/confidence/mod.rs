//! Confidence of predictions: intervals from the errors on published runs, of step times by class of run, of memory by family of
//! frameworks, since a framework and its allocator decide which tensors are resident.
//!
//! Split-conformal: the residuals ln(measured/predicted) of runs that the constants were fitted without, their quantiles
//! with the correction for a finite sample. The quantiles are data (`clusters/intervals/`), written by
//! `meshwright intervals`.

mod class;
mod interval;
mod network;
pub mod table;

use std::sync::OnceLock;

use crate::catalog::files::INTERVALS;
use crate::catalog::parse_toml;
use crate::pools::{Mixture, Pooled};
use meshwright_engine::cost::{Evaluation, Footprint};
use meshwright_engine::gpu::Figure;
use meshwright_engine::model::MixerKind;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_engine::units::{Bytes, BytesPerSec, Seconds};

pub use class::{RunClass, StackRuns};
pub use interval::Interval;
pub use table::{LEVELS, NetworkRate, OfClass, OfFamily, OrderGap, Quantiles, Stacks, Table, Weighted};

/// Interval table that every prediction uses.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| parse_toml(INTERVALS[0].1).expect("tests read the built-in intervals"))
}

/// Share of the memory above which a run counts as near its limit, where allocators start to fragment.
const NEAR_LIMIT: f64 = 0.9;

/// Class of a plan, which selects the published errors that apply.
pub fn class(problem: &Problem, footprint: &Footprint, table: &Table) -> RunClass {
    let gpu = &problem.cluster().gpu;
    let experts = problem.model().is_moe();
    RunClass {
        experts,
        stack: stack_runs(problem, table),
        known_gpu: table.gpus.contains(&gpu.name) || is_measured(problem),
        near_limit: footprint.peak() > gpu.hbm.value * NEAR_LIMIT,
    }
}

/// Published runs of a problem's stack.
fn stack_runs(problem: &Problem, table: &Table) -> StackRuns {
    let stack = problem.stack();
    match table.stacks.include(&stack.name, problem.model().is_moe()) && unknown_mixers(problem, table).is_empty() {
        false => StackRuns::None,
        true if stack.generic => StackRuns::Generic,
        true => StackRuns::Own,
    }
}

/// Mixers of a problem's model that no published run has. Kernels that were timed alone do not make one known: a run has what is
/// around them, too.
fn unknown_mixers(problem: &Problem, table: &Table) -> Vec<MixerKind> {
    problem.model().mixer_kinds().into_iter().filter(|mixer| !table.mixers.contains(mixer)).collect()
}

/// Whether the layer kernels were timed on this device, which makes it as well known as the GPUs of published runs.
fn is_measured(problem: &Problem) -> bool {
    let gpu = &problem.cluster().gpu;
    let format = problem.workload().format;
    [Figure::Gemm(format), Figure::Sustained(format), Figure::Hbm]
        .into_iter()
        .all(|figure| gpu.basis_of(figure) == Basis::Measured)
}

/// Prediction intervals of one plan; they cover nine runs of ten.
#[derive(Clone, Debug, PartialEq)]
pub struct Confidence {
    /// Interval of the step time.
    pub step: Interval<Seconds>,
    /// Interval of the peak memory, as the device reports it.
    pub peak: Interval<Bytes>,
    /// Probability that the plan runs out of memory.
    pub oom_probability: f64,
    /// Class of runs whose errors the intervals use.
    pub class: RunClass,
    /// Mixers of the model that no published run has.
    pub unknown_mixers: Vec<MixerKind>,
    /// Rate that is assumed of the network, of one GPU into it, where the step time depends on it.
    pub assumed_network: Option<BytesPerSec>,
    /// Whether attention stays within packed documents.
    pub packed: bool,
    /// Number of published runs behind the interval of the step time.
    pub runs: u32,
}

impl Confidence {
    /// Intervals of an evaluated plan, from the built-in table.
    pub fn new(problem: &Problem, evaluation: &Evaluation) -> Self {
        let factors = network::factors(problem, evaluation, &table().networks);
        Self::of(problem, &evaluation.footprint, evaluation.step.total(), table(), &factors)
    }

    /// Intervals of a step time and a footprint on a network that is known, from a given table.
    pub fn from(problem: &Problem, footprint: &Footprint, step: Seconds, table: &Table) -> Self {
        Self::of(problem, footprint, step, table, &[])
    }

    fn of(
        problem: &Problem,
        footprint: &Footprint,
        step: Seconds,
        table: &Table,
        factors: &[network::LikelyFactor],
    ) -> Self {
        let class = class(problem, footprint, table);
        let unknown_mixers = unknown_mixers(problem, table);
        let assumed = problem.cluster().levels.iter().find(|level| level.assumed && !factors.is_empty());
        let of_class = table.time(class);
        let time = network::product(of_class, factors).widened(of_class);
        let memory = table.memory(problem.stack().family, unknown_mixers.is_empty());
        let peak = footprint.peak();
        Self {
            step: time.interval().map(|factor| step * factor),
            peak: memory.interval().map(|factor| peak * factor),
            oom_probability: memory.share_above(problem.cluster().gpu.hbm.value / peak),
            class,
            unknown_mixers,
            assumed_network: assumed.map(|level| level.bandwidth.value),
            packed: problem.workload().attention_len() < problem.workload().seq_len,
            runs: time.runs,
        }
    }

    /// Class of runs in words.
    pub fn class_in_words(&self) -> String {
        let assumed = if self.assumed_network.is_some() { ", network assumed" } else { "" };
        self.class.in_words(&self.unknown_mixers) + assumed
    }

    /// Sentences on the reasons why the intervals are wider than those of a framework's runs: mixers without a run, a stack of no
    /// framework in particular, and an assumed network.
    pub fn doubts(&self) -> Option<String> {
        let mixers = class::joined(&self.unknown_mixers, "or");
        let without_runs = (!mixers.is_empty())
            .then(|| format!("No published run has {mixers}: intervals are those of a stack without runs."));
        let assumed = self.assumed_network.map(|rate| {
            format!(
                "The network is assumed, at {rate} a GPU: the interval of the step time holds the slower ones of \
                published runs too. State it with `--set cluster.nic=…`."
            )
        });
        let generic = (self.class.stack == StackRuns::Generic).then(|| {
            "Training scripts on this stack differ in what a step does: intervals are those of runs of such scripts, wider than a \
             framework's own."
                .to_owned()
        });
        let packed = self.packed.then(|| {
            "Packed documents were measured in fine-tuning with 4,096 and 16,384 tokens, without context parallelism.".to_owned()
        });
        let all: Vec<String> = without_runs.into_iter().chain(generic).chain(packed).chain(assumed).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }
}

/// Confidence in a mixture: the least certain of its pools' shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixtureConfidence {
    /// Interval that holds the interval of every share.
    pub step: Interval<Seconds>,
    /// Largest probability of running out of memory.
    pub oom_probability: f64,
}

impl MixtureConfidence {
    /// Hull of the intervals of every pool's share, from the built-in table.
    pub fn new(pooled: &Pooled, mixture: &Mixture) -> Self {
        let time = mixture.step.total();
        let mut widest = Self { step: Interval { low: time, high: time }, oom_probability: 0.0 };
        for (pool, problem) in pooled.joined().iter().enumerate() {
            let Confidence { step, oom_probability, .. } = Confidence::new(problem, &mixture.evaluation(pool));
            widest.step = widest.step.hull(step);
            widest.oom_probability = widest.oom_probability.max(oom_probability);
        }
        widest
    }
}

/// Quantiles of measured over predicted peak memory that apply to a problem's plans.
pub fn memory_errors(problem: &Problem) -> Quantiles {
    let table = table();
    table.memory(problem.stack().family, unknown_mixers(problem, table).is_empty())
}

/// Largest predicted share of the memory for which the probability of running out stays at most `risk`.
pub fn ceiling(problem: &Problem, risk: f64) -> f64 {
    1.0 / memory_errors(problem).level(1.0 - risk)
}
