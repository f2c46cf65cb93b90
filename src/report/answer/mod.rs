//! Answer of `plan` at a glance: the problem, the plan to launch, one line for each rival, and a few sentences.

mod columns;
mod sentences;
mod switches;

use super::Sheet;
use super::plans::largest_terms;
use columns::Setting;
use meshwright_engine::cost::{Evaluation, Figures};
use meshwright_engine::gpu::Format;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::{Seconds, significant, whole_percent};
use meshwright_planner::advice::{Advice, StepGivenRuns};
use meshwright_planner::confidence::Confidence;
use meshwright_planner::search::Ranking;

pub use columns::describe;
pub use sentences::{covered, intervals, reason, sentences};
pub(super) use sentences::{faster_plan, faster_row, given_up, says_of_row};

/// Most terms of a step named in a row.
pub const TERMS_SHOWN: usize = 2;

/// The recommended plan in words, with its figures: two paragraphs; none where no plan runs.
pub fn recommended(problem: &Problem, advice: &Advice) -> Option<[String; 2]> {
    let evaluation = advice.plan()?;
    let chance = advice.chances.get(advice.recommended).copied().unwrap_or(1.0);
    let best = match advice.ranking.evaluations.len() {
        1 => String::new(),
        plans => format!(" · fastest of these {plans} with {}", whole_percent(chance)),
    };
    let given = advice.given_runs.get(advice.recommended).map_or_else(String::new, |given| {
        let step = Scale::of(given.median);
        let [median, from, to] = [given.median, given.interval.low, given.interval.high].map(|time| step.show(time));
        format!("{median} {} a step given the measured runs ({from} to {to}); by the model alone ", step.unit)
    });
    Some([describe(problem, &evaluation.plan), format!("{given}{}{best}", figures(problem, evaluation))])
}

/// Step time with its interval, MFU, and memory with the risk of running out, of a plan.
pub fn figures(problem: &Problem, evaluation: &Evaluation) -> String {
    let (figures, sure) = (Figures::new(problem, evaluation), Confidence::new(problem, evaluation));
    let step = Scale::of(figures.step);
    format!(
        "{} {} a step ({} to {}) · {} MFU{} · {} of {} GiB, {} risk of OOM",
        step.show(figures.step),
        step.unit,
        step.show(sure.step.low),
        step.show(sure.step.high),
        whole_percent(figures.mfu),
        if problem.workload().format == Format::Bf16 { "" } else { " by the bf16 peak" },
        significant(figures.peak.as_gib()),
        significant(problem.cluster().gpu.hbm.value.as_gib()),
        whole_percent(sure.oom_probability),
    )
}

/// Plans in the order of an answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerRows<'a> {
    evaluations: &'a [Evaluation],
    /// Index of the plan to mark.
    recommended: Option<usize>,
    /// Probability that each plan is the fastest; empty where step time is not the objective.
    chances: &'a [f64],
    /// Step times given the user's measured runs; empty where there are none.
    given_runs: &'a [StepGivenRuns],
}

impl<'a> From<&'a Advice> for AnswerRows<'a> {
    fn from(advice: &'a Advice) -> Self {
        let Advice { ranking, chances, given_runs, .. } = advice;
        Self { evaluations: &ranking.evaluations, recommended: Some(advice.recommended), chances, given_runs }
    }
}

impl<'a> From<&'a Ranking> for AnswerRows<'a> {
    fn from(ranking: &'a Ranking) -> Self {
        Self { evaluations: &ranking.evaluations, recommended: None, chances: &[], given_runs: &[] }
    }
}

/// One line for each plan: settings in which the plans differ, then their figures. The recommended plan is marked.
pub fn table<'a>(problem: &Problem, rows: impl Into<AnswerRows<'a>>, most_terms: usize) -> Sheet {
    let AnswerRows { evaluations, recommended, chances, given_runs } = rows.into();
    let plans: Vec<&Evaluation> = evaluations.iter().collect();
    let degrees: Vec<Setting> = columns::DEGREES.into_iter().filter(|setting| setting.differs(&plans)).collect();
    let others: Vec<Setting> = columns::OTHERS.into_iter().filter(|setting| setting.differs(&plans)).collect();
    let step = plans.first().map_or(Scale::SECONDS, |first| Scale::of(first.step.total()));
    let step_column = format!("step {}", step.unit);
    let mut names: Vec<&str> = vec!["#"];
    names.extend(degrees.iter().map(|setting| setting.name));
    names.extend((!others.is_empty()).then_some("with"));
    names.extend((!given_runs.is_empty()).then_some("given runs"));
    names.extend([step_column.as_str(), "MFU", "GiB", "OOM"]);
    names.extend((!chances.is_empty()).then_some("P(best)"));
    names.extend((most_terms > 0).then_some("slowest part"));
    let mut sheet = Sheet::new("", &names);
    for (at, evaluation) in plans.iter().enumerate() {
        let (figures, sure) = (Figures::new(problem, evaluation), Confidence::new(problem, evaluation));
        let mark = if Some(at) == recommended && plans.len() > 1 { ">" } else { "" };
        let mut row = vec![format!("{mark}{}", at + 1)];
        row.extend(degrees.iter().map(|setting| (setting.value)(&evaluation.plan).unwrap_or_default()));
        if !others.is_empty() {
            let words = others.iter().filter_map(|setting| setting.in_words(problem, &evaluation.plan));
            row.push(words.map(columns::brief).collect::<Vec<_>>().join(", "));
        }
        row.extend(given_runs.get(at).map(|given| step.show(given.median)));
        row.extend([
            step.show(figures.step),
            format!("{:.1} %", figures.mfu * 100.0),
            significant(figures.peak.as_gib()),
            whole_percent(sure.oom_probability),
        ]);
        row.extend(chances.get(at).copied().map(whole_percent));
        row.extend((most_terms > 0).then(|| slowest(evaluation, most_terms)));
        sheet.rows.push(row);
    }
    sheet
}

/// Settings that all plans share and that are not a launcher's default, in words; empty if there are none.
pub fn shared<'a>(problem: &Problem, rows: impl Into<AnswerRows<'a>>) -> String {
    let plans: Vec<&Evaluation> = rows.into().evaluations.iter().collect();
    let shared = columns::all().filter(|setting| !setting.differs(&plans));
    shared.filter_map(|setting| setting.shared_words(problem, &plans)).collect::<Vec<_>>().join(", ")
}

/// Largest terms of a step with their shares, without those that round to nothing: `compute 87 %, tp comm 4 %`.
fn slowest(evaluation: &Evaluation, most: usize) -> String {
    let terms = largest_terms(&evaluation.step).into_iter().take(most);
    terms
        .filter(|(_, share)| *share >= 0.005)
        .map(|(term, share)| format!("{term} {:.0} %", share * 100.0))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Unit and digits that the times of one answer share.
struct Scale {
    unit: &'static str,
    factor: f64,
    digits: usize,
}

impl Scale {
    const SECONDS: Self = Self { unit: "s", factor: 1.0, digits: 2 };

    /// Milliseconds below one second, seconds above, in three digits.
    fn of(time: Seconds) -> Self {
        let (unit, factor) = if time.get() < 1.0 { ("ms", 1e3) } else { ("s", 1.0) };
        let digits = match time.get() * factor {
            value if value >= 100.0 => 0,
            value if value >= 10.0 => 1,
            _ => 2,
        };
        Self { unit, factor, digits }
    }

    fn show(&self, time: Seconds) -> String {
        format!("{:.*}", self.digits, time.get() * self.factor)
    }
}
