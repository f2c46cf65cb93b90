//! Diagnosis of a measured step that is slower than predicted: possible causes with their probabilities, and what to measure next.
//!
//! Each cause is a change of the problem (a network at half its rate, a host four times slower, …) with a chance to be at work,
//! before anything is measured, and a range of grades that is physically possible; each grade predicts a step time for every
//! measurement. None, one or two of them are at work, or something that is not among them.
//!
//! ```text
//! P(set | times) ∝ Π p(cause in set)·Π (1 − p(other))·mean over grades of density(times | predicted by the grades)
//! two causes lose what each loses alone; a set's probability is shared between its causes by what each loses
//! ```

mod causes;
mod likelihood;
mod point;

use causes::{CAUSES, Cause, GradeRange};
use likelihood::{COMMON, FREE, OWN, log_density, log_of_anything, log_sum};
use point::RunProperties;
use serde::Serialize;

use meshwright_engine::cost::Costs;
use meshwright_planner::space;

pub use point::Point;

/// One cause, with the loss that it explains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Short name.
    pub cause: &'static str,
    /// Meaning of the cause.
    pub means: &'static str,
    /// Chance that it was at work before anything was measured.
    pub prior: f64,
    /// Its share of the probability: all causes, `none` and `other` sum to one.
    pub likelihood: f64,
    /// The grade that fits best, in words.
    pub grade: String,
    /// Why no worse grade is possible.
    pub bound: &'static str,
    /// The cause that it is at work together with, where both explain more than it alone.
    pub with: Option<&'static str>,
    /// Seconds that it takes of each measured step, with that grade.
    pub lost_s: Vec<f64>,
    /// Step time that it predicts for each measurement.
    pub explains_s: Vec<f64>,
    /// The measurement to make next.
    pub next: &'static str,
}

/// A run to measure next, with its step time under the likeliest causes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextRun {
    /// Its sequences per step.
    pub global_batch: u32,
    /// Number of its GPUs.
    pub gpus: u32,
    /// Step time under each cause.
    pub says: Vec<(&'static str, f64)>,
}

/// Diagnosis of a set of measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredDiagnosis {
    /// Predicted step time of each measurement.
    pub predicted_s: Vec<f64>,
    /// Measured step time of each.
    pub measured_s: Vec<f64>,
    /// Causes, the likeliest first.
    pub causes: Vec<Diagnosis>,
    /// A run that tells the two likeliest apart, where another batch does.
    pub next_run: Option<NextRun>,
    /// Whether the measurements are within the model's own error.
    pub within_error: bool,
}

/// The runs as the model sees them.
struct Runs<'a> {
    points: &'a [Point],
    contexts: Vec<RunProperties>,
    measured: Vec<f64>,
    predicted: Vec<f64>,
    /// Error that all predictions share.
    common: f64,
}

/// A cause with the seconds that each of its grades loses at every measurement.
struct Candidate {
    cause: &'static Cause,
    prior: f64,
    grades: Vec<Grade>,
}

/// One grade of a cause.
struct Grade {
    /// How bad the cause is, in its own unit.
    value: f64,
    /// Seconds that it loses at each measurement.
    lost: Vec<f64>,
}

/// A cause at work in one of its grades.
#[derive(Clone, Copy)]
struct GradedCause {
    /// Position among the candidates.
    candidate: usize,
    /// Position among the candidate's grades.
    grade: usize,
}

/// One or two causes at work.
struct Hypothesis {
    /// Logarithm of its probability, up to a constant.
    weight: f64,
    /// Its causes, each with the grade that fits best.
    at_work: Vec<GradedCause>,
}

/// Chance that something else is at work. An assumption, as for every mistake of the set-up.
const OTHER: f64 = 0.1;
/// Grades that are tried between the mildest and the worst.
const GRADES: u32 = 16;
/// Ratio of two times that one measurement tells apart: twice its error.
const APART: f64 = 2.0 * OWN;

/// The diagnosis of measurements, each of a legal plan.
pub fn diagnose(points: &[Point]) -> MeasuredDiagnosis {
    let runs = runs(points);
    let candidates: Vec<Candidate> = CAUSES.iter().filter_map(|cause| candidate(cause, &runs)).collect();
    let hypotheses = hypotheses(&candidates, &runs);
    let off = |(measured, predicted): (&f64, &f64)| (measured / predicted).ln();
    let offs = || runs.measured.iter().zip(&runs.predicted).map(off);
    let most = offs().fold(f64::NEG_INFINITY, f64::max);
    let spread = most - offs().fold(f64::INFINITY, f64::min);
    let causes = shares(&candidates, &hypotheses, &runs);
    MeasuredDiagnosis {
        within_error: (runs.common >= FREE || most <= COMMON) && spread <= APART * std::f64::consts::SQRT_2,
        next_run: next_run(&candidates, &hypotheses, &runs),
        causes,
        predicted_s: runs.predicted,
        measured_s: runs.measured,
    }
}

fn runs(points: &[Point]) -> Runs<'_> {
    let gpus = || points.iter().map(|point| point.problem.cluster().gpus);
    let per_node = points.first().map_or(1, |point| point.problem.cluster().gpus_per_node);
    let (most_gpus, least_gpus) = (gpus().max().unwrap_or(1), gpus().min().unwrap_or(1));
    let most_nodes = f64::from(most_gpus.div_ceil(per_node.max(1)));
    let contexts: Vec<RunProperties> =
        points.iter().map(|point| context(point, most_gpus, least_gpus, most_nodes)).collect();
    Runs {
        points,
        measured: points.iter().map(|point| point.measured.get()).collect(),
        predicted: contexts.iter().map(|context| context.step.total().get()).collect(),
        contexts,
        common: if points.iter().any(|point| point.relative) { FREE } else { COMMON },
    }
}

fn context(point: &Point, most_gpus: u32, least_gpus: u32, most_nodes: f64) -> RunProperties {
    let evaluation = Costs::new(&point.problem).evaluate_simulated(&point.plan);
    let full = evaluation.footprint.peak() / point.problem.cluster().gpu.hbm.value;
    RunProperties { step: evaluation.step, most_gpus, least_gpus, most_nodes, full }
}

/// Seconds that each grade of a cause loses; none where it does not apply to these runs, or changes nothing.
fn candidate(cause: &'static Cause, runs: &Runs) -> Option<Candidate> {
    let graded = |value: f64| -> Option<Grade> {
        let each = runs.points.iter().zip(&runs.contexts);
        let lost =
            each.map(|(point, context)| Some(((cause.step)(point, context, value)? - context.step.total()).get()));
        Some(Grade { value, lost: lost.collect::<Option<_>>()? })
    };
    let grades: Vec<Grade> = grades(cause.grades).into_iter().map(graded).collect::<Option<_>>()?;
    let counts = |(lost, predicted): (&f64, &f64)| *lost > predicted * 1e-6;
    let changes = grades.iter().any(|grade| grade.lost.iter().zip(&runs.predicted).any(counts));
    let prior = runs.contexts.first().map(|context| (cause.prior)(context))?;
    changes.then_some(Candidate { cause, prior, grades })
}

/// Grades in equal ratios from the mildest to the worst.
fn grades(GradeRange { mildest, worst }: GradeRange) -> Vec<f64> {
    let last = if mildest.total_cmp(&worst).is_eq() { 0 } else { GRADES - 1 };
    let grade = |step: u32| mildest * (worst / mildest).powf(f64::from(step) / f64::from(last.max(1)));
    (0..=last).map(grade).collect()
}

/// Odds of a chance.
fn log_odds(chance: f64) -> f64 {
    (chance / (1.0 - chance)).ln()
}

/// One cause, or two, against none: all grades of a cause are equally likely beforehand.
fn hypotheses(candidates: &[Candidate], runs: &Runs) -> Vec<Hypothesis> {
    let mut found = Vec::new();
    for (first, one) in candidates.iter().enumerate() {
        let of_first = |grade| GradedCause { candidate: first, grade };
        let alone = (0..one.grades.len()).map(|grade| vec![of_first(grade)]);
        found.push(hypothesis(candidates, runs, alone.collect()));
        for (second, other) in candidates.iter().enumerate().skip(first + 1) {
            let both = itertools::iproduct!(0..one.grades.len(), 0..other.grades.len());
            let together =
                both.map(|(grade, beside)| vec![of_first(grade), GradedCause { candidate: second, grade: beside }]);
            found.push(hypothesis(candidates, runs, together.collect()));
        }
    }
    found
}

/// The causes of a hypothesis, in every combination of their grades.
fn hypothesis(candidates: &[Candidate], runs: &Runs, graded: Vec<Vec<GradedCause>>) -> Hypothesis {
    let logs: Vec<f64> = graded.iter().map(|at_work| log_of(candidates, runs, at_work)).collect();
    let best = logs.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(at, _)| at);
    let at_work = graded.into_iter().nth(best).unwrap_or_default();
    let odds: f64 = at_work.iter().map(|one| log_odds(candidates[one.candidate].prior)).sum();
    Hypothesis { weight: odds + log_sum(logs.iter().copied()) - (logs.len() as f64).ln(), at_work }
}

/// Log density of the measured times with these causes, in these grades, at work.
fn log_of(candidates: &[Candidate], runs: &Runs, at_work: &[GradedCause]) -> f64 {
    let (mut predicted, mut errors) = (runs.predicted.clone(), vec![0.0; runs.predicted.len()]);
    for one in at_work {
        let Candidate { cause, grades, .. } = &candidates[one.candidate];
        for ((lost, predicted), error) in grades[one.grade].lost.iter().zip(&mut predicted).zip(&mut errors) {
            *predicted += lost;
            *error += cause.error * lost;
        }
    }
    log_density(&runs.measured, &predicted, &errors, runs.common)
}

/// Each cause's share of the probability, the largest first.
fn shares(candidates: &[Candidate], hypotheses: &[Hypothesis], runs: &Runs) -> Vec<Diagnosis> {
    let nothing = vec![0.0; runs.predicted.len()];
    let none = log_of(candidates, runs, &[]);
    let other = log_odds(OTHER) + log_of_anything(&runs.measured, &runs.predicted, runs.common);
    let all = log_sum(hypotheses.iter().map(|hypothesis| hypothesis.weight).chain([none, other]));
    let mut found: Vec<Diagnosis> =
        (0..candidates.len()).map(|at| share(at, candidates, hypotheses, runs, all)).collect();
    let blank = Diagnosis {
        cause: "none",
        means: "no fault: the prediction itself is off",
        prior: candidates.iter().map(|candidate| 1.0 - candidate.prior).product::<f64>() * (1.0 - OTHER),
        likelihood: (none - all).exp(),
        grade: "as predicted".to_owned(),
        bound: "the model's error on published runs",
        with: None,
        lost_s: nothing,
        explains_s: runs.predicted.clone(),
        next: "another model or batch on the same nodes: if it is off as much, fit the device (`meshwright fit`)",
    };
    found.push(Diagnosis {
        cause: "other",
        means: "something that is none of these, or more than two of them at once",
        prior: OTHER,
        likelihood: (other - all).exp(),
        grade: "any".to_owned(),
        bound: "four times the step (assumption)",
        lost_s: runs.measured.iter().zip(&runs.predicted).map(|(measured, predicted)| measured - predicted).collect(),
        explains_s: runs.measured.clone(),
        next: "a profile of one step on the slowest rank and on another (nsys, torch.profiler), in a good run and in a bad one",
        ..blank.clone()
    });
    found.push(blank);
    found.sort_by(|a, b| b.likelihood.total_cmp(&a.likelihood));
    found
}

/// The share of one cause: its own probability, and of every pair a part in proportion to its loss.
fn share(at: usize, candidates: &[Candidate], hypotheses: &[Hypothesis], runs: &Runs, all: f64) -> Diagnosis {
    let Candidate { cause, prior, grades } = &candidates[at];
    let lost_by = |one: &GradedCause| &candidates[one.candidate].grades[one.grade].lost;
    let of_step = |one: &GradedCause| -> f64 {
        lost_by(one).iter().zip(&runs.predicted).map(|(lost, predicted)| lost / predicted).sum()
    };
    let (mut likelihood, mut best): (f64, Option<&Hypothesis>) = (0.0, None);
    for hypothesis in hypotheses {
        let Some(own) = hypothesis.at_work.iter().find(|one| one.candidate == at) else { continue };
        let both: f64 = hypothesis.at_work.iter().map(of_step).sum();
        likelihood += (hypothesis.weight - all).exp() * if both > 0.0 { of_step(own) / both } else { 1.0 };
        if best.is_none_or(|best| hypothesis.weight > best.weight) {
            best = Some(hypothesis);
        }
    }
    let at_work = best.map(|hypothesis| hypothesis.at_work.as_slice()).unwrap_or_default();
    let own = at_work.iter().find(|one| one.candidate == at).copied();
    let own = own.unwrap_or(GradedCause { candidate: at, grade: 0 });
    let explains = |(at_point, predicted): (usize, &f64)| {
        predicted + at_work.iter().map(|one| lost_by(one)[at_point]).sum::<f64>()
    };
    Diagnosis {
        cause: cause.name,
        means: cause.means,
        prior: *prior,
        likelihood,
        grade: if grades.len() == 1 {
            cause.unit.to_owned()
        } else {
            format!("{} {}", rounded(grades[own.grade].value), cause.unit)
        },
        bound: cause.bound,
        with: at_work.iter().find(|one| one.candidate != at).map(|other| candidates[other.candidate].cause.name),
        lost_s: lost_by(&own).clone(),
        explains_s: runs.predicted.iter().enumerate().map(explains).collect(),
        next: cause.next,
    }
}

/// The run that tells the two likeliest single causes apart best: the largest one with another batch.
fn next_run(candidates: &[Candidate], hypotheses: &[Hypothesis], runs: &Runs) -> Option<NextRun> {
    let mut single: Vec<&Hypothesis> = hypotheses.iter().filter(|hypothesis| hypothesis.at_work.len() == 1).collect();
    single.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let leading = single.get(..2)?;
    let point = runs.points.iter().max_by_key(|point| point.problem.cluster().gpus)?;
    let batch = point.problem.workload().global_batch;
    let batches = [batch.checked_mul(4), batch.checked_mul(2), batch.checked_div(2), batch.checked_div(4)];
    let tried = batches.into_iter().flatten().filter_map(|global_batch| {
        let problem = point.problem.changed(|_, workload, _| workload.global_batch = global_batch).ok()?;
        let costs = Costs::new(&problem);
        if space::check(&costs, &point.plan).iter().any(|why| !why.is_of_memory()) {
            return None;
        }
        let first = runs.contexts.first()?;
        let other = Point { problem, ..point.clone() };
        let context = context(&other, first.most_gpus, first.least_gpus, first.most_nodes);
        let says = leading.iter().flat_map(|hypothesis| &hypothesis.at_work).map(|one| {
            let Candidate { cause, grades, .. } = &candidates[one.candidate];
            Some((cause.name, (cause.step)(&other, &context, grades[one.grade].value)?.get()))
        });
        Some(NextRun { global_batch, gpus: first.most_gpus, says: says.collect::<Option<_>>()? })
    });
    let apart = |run: &NextRun| match run.says.as_slice() {
        [(_, one), (_, other)] => (one / other).ln().abs(),
        _ => 0.0,
    };
    tried.filter(|run| apart(run) >= APART).max_by(|a, b| apart(a).total_cmp(&apart(b)))
}

/// Two digits.
fn rounded(x: f64) -> f64 {
    let digits = 10_f64.powf(1.0 - x.abs().log10().floor());
    (x * digits).round() / digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_engine::cost::StepTime;

    #[test]
    fn grades_go_from_the_mildest_to_the_worst_in_equal_ratios() {
        let found = grades(GradeRange { mildest: 0.5, worst: 0.125 });
        assert_eq!(found.len(), GRADES as usize);
        assert!((found[0] - 0.5).abs() < 1e-12 && (found[15] - 0.125).abs() < 1e-12, "{found:?}");
        assert!((found[1] / found[0] - found[15] / found[14]).abs() < 1e-12, "{found:?}");
        assert_eq!(grades(GradeRange { mildest: 1.0, worst: 1.0 }), [1.0]);
        assert!((rounded(0.123_4) - 0.12).abs() < 1e-12 && (rounded(13.7) - 14.0).abs() < 1e-12);
    }

    #[test]
    fn chances_are_chances() {
        let step = StepTime::default();
        for (most_gpus, least_gpus, most_nodes) in [(8, 8, 1.0), (128, 16, 16.0), (98_304, 8, 12_288.0)] {
            let context = RunProperties { step, most_gpus, least_gpus, most_nodes, full: 0.5 };
            for cause in CAUSES {
                let prior = (cause.prior)(&context);
                assert!(prior > 0.0 && prior < 1.0, "{}: {prior} on {most_gpus}", cause.name);
            }
        }
    }
}
