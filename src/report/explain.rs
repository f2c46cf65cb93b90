//! One plan in detail: its step time as a waterfall of terms, its memory rank by rank.

use super::Sheet;
use super::answer::describe;
use super::basis::{self, TermBasis};
use meshwright_engine::cost::{Evaluation, Figures, Footprint, Tenant, Term};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{Seconds, percent, significant, thousands, whole_percent};
use meshwright_frameworks as frameworks;
use meshwright_planner::confidence::Confidence;
use meshwright_planner::space::Rejection;

/// Width in characters of the bar of a term that takes the whole step.
const BAR: f64 = 40.0;

/// The step time as a waterfall: each term that is not zero starts where the one before it ends.
pub fn waterfall(problem: &Problem, evaluation: &Evaluation) -> Sheet {
    let total = evaluation.step.total();
    let mut sheet = Sheet::new(format!("Step time {total}"), &["term", "time", "share", "basis", "from start to end"]);
    let mut start = Seconds::ZERO;
    let terms = basis::of_terms(problem, evaluation).into_iter().filter(|of| of.time.get() > 0.0);
    for TermBasis { term, time, basis: known } in terms {
        let (from, long) = (start / total * BAR, (time / total * BAR).max(1.0));
        let bar = format!("{}{}", ".".repeat(from as usize), "#".repeat(long.round() as usize));
        let known = known.map_or_else(|| "-".into(), |basis| basis.to_string());
        sheet.push([term.to_string(), time.to_string(), percent(time / total), known, bar]);
        start += time;
    }
    sheet.push([
        "total".into(),
        total.to_string(),
        percent(1.0),
        basis::of_step(problem, evaluation).to_string(),
        String::new(),
    ]);
    sheet
}

/// Memory of every pipeline rank, by tenant, in GiB.
pub fn memory(problem: &Problem, footprints: &[Footprint]) -> Sheet {
    let tenants = Tenant::ALL.iter().map(|tenant| tenant.key());
    let columns: Vec<&str> = ["rank"].into_iter().chain(tenants).chain(["peak", "headroom"]).collect();
    let title = format!(
        "Memory by pipeline rank, GiB ({:.1} of {:.1} may be filled)",
        problem.hbm_budget().as_gib(),
        problem.cluster().gpu.hbm.value.as_gib()
    );
    let mut sheet = Sheet::new(title, &columns);
    for footprint in footprints {
        let headroom = problem.headroom(footprint.peak()).as_gib();
        let tenants = footprint.tenants().into_iter().map(|(_, bytes)| format!("{:.2}", bytes.as_gib()));
        sheet.rows.push(
            [footprint.rank.to_string()]
                .into_iter()
                .chain(tenants)
                .chain([format!("{:.2}", footprint.peak().as_gib()), format!("{headroom:.2}")])
                .collect(),
        );
    }
    sheet
}

/// The function behind every term of a step and every tenant of memory, with its section of the specification.
pub fn origins() -> Sheet {
    let mut sheet = Sheet::new("Where each number is computed", &["number", "function", "file", "specification"]);
    let terms = Term::ALL.iter().map(|term| (term.to_string(), term.origin()));
    let tenants = Tenant::ALL.iter().map(|tenant| (format!("{tenant} (memory)"), tenant.origin()));
    for (number, origin) in terms.chain(tenants) {
        sheet.push([number, origin.function.into(), origin.file.into(), format!("§{}", origin.section)]);
    }
    sheet
}

/// Table of derived figures: time, throughput and memory, with their intervals.
pub fn figures(problem: &Problem, evaluation: &Evaluation) -> Sheet {
    let figures = Figures::new(problem, evaluation);
    let sure = Confidence::new(problem, evaluation);
    let mut sheet = Sheet::new(problem.heading(), &["figure", "value"]);
    let rows = [
        ("plan", evaluation.plan.to_string()),
        ("in words", describe(problem, &evaluation.plan)),
        ("micro-batches", evaluation.plan.micro_batches(problem.workload().global_batch).to_string()),
        ("step time", format!("{} ({} to {})", figures.step, sure.step.low, sure.step.high)),
        (
            "throughput",
            format!(
                "{} tokens/s and {} a GPU, {} MFU",
                thousands(figures.tokens_per_second.round() as u64),
                figures.rate,
                percent(figures.mfu)
            ),
        ),
        (
            "peak memory",
            format!(
                "{} of {} ({} to {}), {} risk of running out",
                figures.peak,
                problem.cluster().gpu.hbm.value,
                sure.peak.low,
                sure.peak.high,
                whole_percent(sure.oom_probability)
            ),
        ),
        ("headroom", format!("{} GiB below what may be filled", significant(figures.headroom_gib))),
        (
            "intervals",
            format!("nine of ten of {} published runs like it ({})", sure.runs, sure.class_in_words())
                + &sure.doubts().map_or_else(String::new, |sentence| format!(". {sentence}")),
        ),
    ];
    for (name, value) in rows {
        sheet.push([name.to_owned(), value]);
    }
    if let Some(why) = frameworks::refusal(problem, &evaluation.plan) {
        sheet.push(["launch".to_owned(), why]);
    }
    sheet
}

/// Table of the reasons why a plan does not run.
pub fn reasons(rejections: &[Rejection]) -> Sheet {
    let mut sheet = Sheet::new("This plan does not run", &["rule", "reason"]);
    for rejection in rejections {
        sheet.push([rejection.rule().to_owned(), rejection.to_string()]);
    }
    sheet
}
