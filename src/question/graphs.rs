//! CUDA graphs of a question: stated, or those of the stack's recipes where the answer gains by them.

use std::ops::ControlFlow;

use super::error::QuestionError;
use super::noted::Noted;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::graphs::{BestPlan, fastest_launchable, gain, have_room, without_graphs};
use meshwright_frameworks::{Framework, MEGATRON, MEGATRON_BRIDGE};
use meshwright_planner::advice::{Prudence, USUAL_RISK};
use meshwright_planner::catalog::{Overrides, defaults};

/// Note on layers that are replayed from CUDA graphs.
pub(super) const REPLAYED: &str = "stack.cuda_graphs=true (as its recipes of mixtures on such GPUs)";

/// Note on an answer without the CUDA graphs of its stack's recipes.
const ANSWER_WITHOUT: &str =
    "stack.cuda_graphs=false (the fastest plan is without the graphs of its recipes: their pools take memory)";

/// Note on a plan without the CUDA graphs of its stack's recipes.
const PLAN_WITHOUT: &str =
    "stack.cuda_graphs=false (the plan excludes the graphs of its recipes, or leaves their pools no room)";

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
        match plain {
            Some(plain) if !have_room(&problem, plan, risk) => noted(plain, PLAN_WITHOUT),
            Some(_) => noted(problem, REPLAYED),
            None => Noted { value: problem, notes: Vec::new() },
        }
    }

    /// The problem of the fastest plan that can be launched, with a note where the graphs are open.
    pub fn of_fastest(self) -> Noted<Problem> {
        let Self { problem, plain, risk } = self;
        if plain.is_none() {
            return Noted { value: problem, notes: Vec::new() };
        }
        let problem = fastest(problem, risk);
        let note = if problem.stack().cuda_graphs { REPLAYED } else { ANSWER_WITHOUT };
        noted(problem, note)
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
            noted((plain, without), ANSWER_WITHOUT)
        })
    }
}

/// The problem of the fastest plan that can be launched, with the CUDA graphs of its stack's recipes or without.
fn fastest(problem: Problem, risk: f64) -> Problem {
    let prudence = Prudence { risk, ..Prudence::default() };
    fastest_launchable(problem, true, prudence, &|_, _| ControlFlow::Continue(())).0
}

/// [`fastest`] under the usual risk, for a pool by itself.
pub(super) fn of_fastest(problem: Problem) -> Problem {
    fastest(problem, USUAL_RISK)
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
    (have_room(&graphed, plan, risk) != has_graphs).then(|| format!("stack.cuda_graphs={has_graphs}"))
}
