//! CUDA graphs of a question: stated, or those of the stack's recipes where the answer gains by them.

use std::ops::ControlFlow;

use super::error::QuestionError;
use super::noted::Noted;
use meshwright_engine::cost::Evaluation;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::graphs::{BestPlan, Ungraphed, fastest_launchable, gain, ungraphed, without_graphs};
use meshwright_frameworks::{Framework, MEGATRON, MEGATRON_BRIDGE};
use meshwright_planner::advice::{Prudence, USUAL_RISK};
use meshwright_planner::catalog::{Overrides, defaults};

/// Note on layers that are replayed from CUDA graphs.
pub(super) const REPLAYED: &str = "stack.cuda_graphs=true (as the stack's recipes for mixtures on such GPUs)";

/// Problem of a question on one kind of GPU, which may leave it open whether CUDA graphs replay layers: one plan has them where they
/// have room beside it, and a ranking where its best plan gains by them.
#[derive(Clone, Debug)]
pub struct Posed {
    /// The problem, with the graphs of its stack's recipes.
    problem: Problem,
    /// The problem without them, where they are open.
    plain: Option<Problem>,
    /// Accepted probability of running out of memory.
    risk: f64,
}

impl Posed {
    /// A problem, with the graphs of its stack's recipes where they are open; without a risk, the usual one is accepted.
    pub(super) fn new(problem: Problem, are_open: bool, risk: Option<f64>) -> Self {
        let plain = without_graphs(&problem).filter(|_| are_open);
        Self { problem, plain, risk: risk.unwrap_or(USUAL_RISK) }
    }

    /// The problem with the graphs of its stack's recipes.
    pub const fn of_recipe(&self) -> &Problem {
        &self.problem
    }

    /// The problem with the graphs of its stack's recipes, whatever its plans gain by them.
    pub(super) fn into_recipe(self) -> Problem {
        self.problem
    }

    /// Accepted probability of running out of memory.
    pub(super) const fn risk(&self) -> f64 {
        self.risk
    }

    /// The problem under another accepted probability of running out of memory.
    #[must_use]
    pub fn accepting(self, risk: f64) -> Self {
        Self { risk, ..self }
    }

    /// The problem of one plan, with a note where the graphs are open.
    pub fn of_plan(self, plan: &Plan) -> Noted<Problem> {
        let Self { problem, plain, risk } = self;
        let Some(plain) = plain else { return Noted { value: problem, notes: Vec::new() } };
        match ungraphed(&problem, plan, risk) {
            Some(why) => noted(plain, &without("the plan", &why)),
            None => noted(problem, REPLAYED),
        }
    }

    /// The problem of the fastest plan that can be launched, with a note where the graphs are open.
    pub fn of_fastest(self) -> Noted<Problem> {
        let Self { problem, plain, risk } = self;
        if plain.is_none() {
            return Noted { value: problem, notes: Vec::new() };
        }
        let (posed, best) = fastest(problem.clone(), risk);
        if posed.stack().cuda_graphs {
            return noted(posed, REPLAYED);
        }
        let note = answer_without(&problem, best.as_ref(), risk);
        noted(posed, &note)
    }

    /// The problem with its answer, and with a note where the graphs are open: then of the two answers the one whose best plan is
    /// better. `answer` is told whether it keeps to plans that graphs hold ([`meshwright_frameworks::graphs::keep_captured`]).
    ///
    /// # Errors
    ///
    /// Those of `answer`.
    pub fn answered<A>(
        self,
        answer: impl Fn(&Problem, bool) -> Result<A, QuestionError>,
        best: impl Fn(&A) -> Option<BestPlan<'_>>,
    ) -> Result<Noted<(Problem, A)>, QuestionError> {
        let Self { problem, plain, risk } = self;
        let Some(plain) = plain else {
            let answer = answer(&problem, false)?;
            return Ok(Noted { value: (problem, answer), notes: Vec::new() });
        };
        let (with, without) = (answer(&problem, true)?, answer(&plain, false)?);
        Ok(if gain(&problem, best(&with), best(&without), risk) {
            noted((problem, with), REPLAYED)
        } else {
            let note = answer_without(&problem, best(&without).map(|(_, best)| best), risk);
            noted((plain, without), &note)
        })
    }
}

/// The problem of the fastest plan that can be launched, with the CUDA graphs of its stack's recipes or without, and that plan.
fn fastest(problem: Problem, risk: f64) -> (Problem, Option<Evaluation>) {
    let prudence = Prudence { risk, ..Prudence::default() };
    let (problem, ranking) = fastest_launchable(problem, true, prudence, &|_, _| ControlFlow::Continue(()));
    (problem, ranking.evaluations.into_iter().next())
}

/// [`fastest`] under the usual risk, for a pool by itself.
pub(super) fn of_fastest(problem: Problem) -> Problem {
    fastest(problem, USUAL_RISK).0
}

/// Note on an answer without the CUDA graphs of its stack's recipes, by its best plan; `problem` has them.
fn answer_without(problem: &Problem, best: Option<&Evaluation>, risk: f64) -> String {
    let Some(best) = best else {
        return "stack.cuda_graphs=false (no plan runs with the graphs of the stack's recipes, nor without)".to_owned();
    };
    // A best plan that has room for the pools is not launched with them where the search with graphs ended early.
    without("the fastest plan", &ungraphed(problem, &best.plan, risk).unwrap_or(Ungraphed::NoRoom))
}

/// Note on a plan, as `subject` names it, without the CUDA graphs of its stack's recipes.
fn without(subject: &str, why: &Ungraphed) -> String {
    let why = match why {
        Ungraphed::Excluded(setting) => format!("{setting} excludes them"),
        Ungraphed::NoRoom => "their pools do not fit beside it at the accepted risk".to_owned(),
        Ungraphed::Illegal => "it is illegal with or without them".to_owned(),
    };
    format!("stack.cuda_graphs=false ({subject} is without the graphs of the stack's recipes: {why})")
}

fn noted<T>(value: T, note: &str) -> Noted<T> {
    Noted { value, notes: vec![format!("assumed: --set {note}")] }
}

/// Whether the files of a framework may write CUDA graphs: those that train on the stack of another write none.
pub(super) fn are_written(framework: Option<&'static Framework>) -> bool {
    framework.is_none_or(|framework| [&MEGATRON, &MEGATRON_BRIDGE].contains(&framework))
}

/// Whether a question with these overrides left it open whether CUDA graphs replay the layers of the problem that it led to.
pub(super) fn were_open(problem: &Problem, framework: Option<&'static Framework>, sets: &Overrides) -> bool {
    let (model, cluster, stack) = (problem.model(), problem.cluster(), problem.stack());
    are_written(framework) && defaults::replays(model, cluster, stack, problem.workload().adaptation, sets)
}

/// Setting under which a plan alone is priced as the answer on a problem has it, where CUDA graphs left open would be others.
pub(super) fn to_state(problem: &Problem, plan: &Plan, risk: f64) -> Option<String> {
    let graphed = problem.changed(|_, _, stack| stack.cuda_graphs = true).ok()?;
    let has_graphs = problem.stack().cuda_graphs;
    (ungraphed(&graphed, plan, risk).is_none() != has_graphs).then(|| format!("stack.cuda_graphs={has_graphs}"))
}
