//! Checks of a launch file against a cluster: legality, memory, traffic over slow links, faster settings.

mod better;
mod devices;
mod links;
pub mod measured;
pub mod rules;

use crate::import::finding::{Finding, Severity};
use crate::import::imported::{Imported, Unknown};
use crate::table::framework_of;
use meshwright_engine::cost::{Costs, Evaluation, Footprint};
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::Family;
use meshwright_planner::confidence::Confidence;
use meshwright_planner::space::{self, Rejection};

pub use better::{Change, Suggestion};
pub use devices::settle_formats;
pub use links::Crossing;

/// Findings on the plan of a file.
#[derive(Clone, Debug)]
pub struct LintReport {
    /// Everything found, errors first.
    pub findings: Vec<Finding>,
    /// Predicted step time and memory; none where the plan breaks a rule other than that of memory.
    pub evaluation: Option<Evaluation>,
    /// Memory of every pipeline rank, where it can be sized.
    pub footprints: Vec<Footprint>,
    /// Groups that leave the scale-up domain.
    pub crossings: Vec<Crossing>,
    /// Single changes that make the plan faster or make it fit, the best first.
    pub changes: Vec<Suggestion>,
    /// Fastest plan of the same framework, where it is faster than the imported one.
    pub best: Option<Evaluation>,
}

/// Depth of the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Legality and memory: milliseconds.
    Checks,
    /// Also single changes and the search for a faster plan.
    Everything,
}

/// Findings on an imported launch, on the problem that it describes.
pub fn lint(problem: &Problem, imported: &Imported, plan: &Plan, depth: Depth) -> LintReport {
    let costs = Costs::new(problem);
    let mut findings = imported.findings.clone();
    // A fork has flags that look like none of Megatron's; where every unknown one is nearly a known one, they are slips.
    let slips = imported.unknown.iter().all(Unknown::is_slip);
    findings.extend(
        imported
            .unknown
            .iter()
            .map(|known| Finding { level: if slips { Severity::Error } else { Severity::Warning }, ..unknown(known) }),
    );
    for finding in findings.iter_mut().filter(|finding| finding.rule == "connections" && wants_one_queue(problem)) {
        finding.level = Severity::Error;
    }
    findings.extend(devices::framework(problem, imported));
    findings.extend(devices::half_format(problem, imported));
    findings.extend(devices::attention(problem, imported));
    findings.extend(devices::engine(problem, imported));
    findings.extend(devices::exchange(problem, imported, plan));
    let rejections = space::check(&costs, plan);
    let guessed = findings.iter().any(|finding| GUESSED.contains(&finding.rule));
    findings.extend(rejections.iter().map(|rejection| refused(rejection, imported, guessed)));
    if !findings.iter().any(|finding| finding.rule == "few-micro-batches") {
        findings.extend(of_torch(problem, imported, plan));
    }
    // Megatron-DeepSpeed has a flag for ZB-H1, which nobody plans with.
    let flagged = imported.family == Family::MegatronDeepspeed && plan.schedule == Schedule::ZbH1;
    if !imported.family.runs(plan.schedule) && plan.layout.pp > 1 && !flagged {
        let title = framework_of(imported).map_or("the framework", |framework| framework.limits.title);
        let message = format!("{title} does not run the schedule {}: choose another schedule, or pp=1", plan.schedule);
        findings.push(Finding::error("framework-schedule", message).at_maybe(imported.places.get("vpp")));
    }
    let priced = rejections.iter().all(Rejection::is_of_memory);
    let evaluation = priced.then(|| costs.evaluate_simulated(plan));
    let footprints = if priced || space::can_be_sized(plan, problem) { costs.footprints(plan) } else { Vec::new() };
    let mut report =
        LintReport { findings, evaluation, footprints, crossings: Vec::new(), changes: Vec::new(), best: None };
    if let Some(evaluation) = &report.evaluation {
        report.findings.push(predicted(problem, evaluation));
        memory(problem, &mut report.findings, evaluation);
        report.crossings = links::crossings(problem, plan, evaluation);
        report.findings.extend(report.crossings.iter().map(|crossing| crossing.finding(imported)));
        if depth == Depth::Everything {
            report.changes = better::changes(problem, imported, plan, evaluation);
            report.findings.extend(report.changes.iter().map(|change| change.finding(imported, evaluation)));
            report.best = better::best(problem, imported, evaluation);
            report.findings.extend(report.best.as_ref().map(|best| better::finding(problem, best, evaluation)));
        }
    }
    sort(&mut report.findings);
    report
}

/// Sorts findings by severity, and within one those that name a line before those that do not; otherwise they keep their order.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| (finding.level, finding.place.is_none()));
}

/// Whether Megatron-LM refuses to start on these GPUs with more than one hardware queue: NVIDIA's before Blackwell.
///
/// Source: [megatron-lm] `megatron/training/arguments.py`, `get_device_arch_version() < 10`.
fn wants_one_queue(problem: &Problem) -> bool {
    let gpu = &problem.cluster().gpu;
    // Blackwell is the first with GEMMs in NVFP4.
    gpu.vendor == "NVIDIA" && gpu.peak_of(Format::Nvfp4).is_none()
}

fn unknown(unknown: &Unknown) -> Finding {
    let values = unknown.values.join(" ");
    let finding = Finding::warning(
        "unknown-flag",
        format!(
            "`{}{}{values}` is in no release that is known",
            unknown.name,
            if values.is_empty() { "" } else { " " }
        ),
    );
    let near = unknown
        .nearest
        .as_ref()
        .map_or_else(|| "a fork's own, or a slip".to_owned(), |near| format!("did you mean `{near}`?"));
    finding.at(&unknown.place).expected(near)
}

/// Findings after which the plan is not wholly the file's: what was not read counts as one or as not set, and what is not modelled may
/// take less memory.
const GUESSED: [&str; 13] = [
    "adapters",
    "assumed-vocabulary",
    "missing-value",
    "not-modelled",
    "not-read",
    "not-training",
    "other-module",
    "unread-file",
    "unread-setting",
    "unresolved-condition",
    "unresolved-value",
    "unresolved-variable",
    "wrong-value",
];

/// A pipeline that other frameworks run and the 1F1B of `torch.distributed.pipelining` refuses.
fn of_torch(problem: &Problem, imported: &Imported, plan: &Plan) -> Option<Finding> {
    let obstacle =
        crate::rules::enough_micro_batches(problem, plan).filter(|_| imported.family == Family::Torchtitan)?;
    let place = ["batch", "mbs", "pp"].iter().find_map(|key| imported.places.get(*key));
    let expected = "more micro-batches, fewer stages, or GPipe, which runs the same passes";
    Some(Finding::error("few-micro-batches", obstacle.to_string()).at_maybe(place).expected(expected))
}

fn refused(rejection: &Rejection, imported: &Imported, guessed: bool) -> Finding {
    if let Rejection::InterleavedBatch { micro_batches, pp } = *rejection
        && imported.family == Family::Torchtitan
        && crate::rules::torch_interleaves(micro_batches, pp)
    {
        let message =
            format!("{rejection}: torch.distributed.pipelining walks rounds of other sizes, which are not priced");
        let place = imported.places.get("batch");
        return Finding::warning("not-modelled", message)
            .at_maybe(place)
            .expected("a batch of whole groups, to price it");
    }
    let place = rules::keys(rejection).iter().find_map(|key| imported.places.get(*key));
    let source = rules::named(rejection.rule()).map_or("", |rule| rule.source);
    let finding = Finding::error(rejection.rule(), rejection.to_string()).at_maybe(place);
    if guessed && rejection.is_of_memory() {
        let expected = "what was not read counts as 1 or as not set, and what is not modelled may take less: see the other findings first";
        return Finding::warning(rejection.rule(), rejection.to_string()).expected(expected);
    }
    match (rejection, source) {
        (rejection, _) if rejection.is_of_memory() => {
            finding.expected("more recomputation, sharding or GPUs: see the changes that make it fit")
        }
        (Rejection::Domains { .. }, _) => finding.expected("groups that divide a domain, or that number of GPUs"),
        (_, "") => finding,
        (_, source) => finding.expected(format!("as {source} has it")),
    }
}

/// The step time with the interval that nine runs of ten are in, for forms that show findings alone.
fn predicted(problem: &Problem, evaluation: &Evaluation) -> Finding {
    let sure = Confidence::new(problem, evaluation);
    let message = format!(
        "a step is predicted to take {} ({} to {} in nine runs of ten), with a chance of {:.0} % to run out of memory",
        evaluation.step.total(),
        sure.step.low,
        sure.step.high,
        sure.oom_probability * 100.0
    );
    Finding::note("predicted", message)
}

/// Probability of running out of memory from which the finding is a warning instead of a note.
const OOM_WARNING: f64 = 0.05;

fn memory(problem: &Problem, findings: &mut Vec<Finding>, evaluation: &Evaluation) {
    let fullest = &evaluation.footprint;
    let chance = Confidence::new(problem, evaluation).oom_probability;
    if !problem.fits(fullest.peak()) {
        return;
    }
    let message = format!(
        "rank {} of the pipeline peaks at {:.1} of {:.1} GiB; the chance that it runs out of memory is {:.0} %",
        fullest.rank,
        fullest.peak().as_gib(),
        problem.cluster().gpu.hbm.value.as_gib(),
        chance * 100.0
    );
    findings.push(if chance < OOM_WARNING {
        Finding::note("fits", message)
    } else {
        let advice = "time it before the long run: the chance is that of published runs of its class";
        Finding::warning("near-ceiling", message).expected(advice)
    });
}

impl LintReport {
    /// Whether there is an error.
    pub fn failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Severity::Error)
    }
}
