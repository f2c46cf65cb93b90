//! Requests of a page and their replies.

use std::error::Error;
use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::Value;

use crate::live::LiveAnswer;
use crate::own_runs::{self, LogsQuestion, TimedQuestion};
use crate::{catalogue, launch, live, network, picture, roofline};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::question::{
    EmitQuestion, Explanation, LintQuestion, PlanQuestion, Question, Subject, ValidateQuestion,
};
use meshwright::space::parse_plan;

/// Request of a page, in JSON an object of one entry: `{"plan": {"question": …}}`. With the name inside, serde would keep a
/// second reader of every question, of what it had set aside.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PageRequest {
    /// Models, clusters, stacks and frameworks to choose from.
    Catalogue {},
    /// Document of `plan --format json`.
    Plan {
        /// Question as the command line reads it.
        question: PlanQuestion,
    },
    /// Plans of `plan` without refined stages and host orders, while a control moves. The document is an object, not text.
    Live {
        /// Question as the command line reads it.
        question: PlanQuestion,
        /// Plans that won earlier questions.
        winners: Vec<String>,
    },
    /// Drawing of one plan: terms, memory by rank, operations by rank, traffic by group, kernels.
    Picture {
        /// Model, cluster, workload.
        problem: Question,
        /// Plan, such as `tp=8 pp=16`.
        plan: String,
    },
    /// Document of `explain --format json` of one plan: its terms, and its memory by rank.
    Explain {
        /// Model, cluster, workload.
        problem: Question,
        /// Plan, such as `tp=8 pp=16`.
        plan: String,
    },
    /// Launch files of one plan.
    Emit {
        /// Question as `emit` reads it.
        question: EmitQuestion,
    },
    /// Document of `lint --format json` on a launch file whose text the question holds.
    Lint {
        /// Question as `lint` reads it.
        question: LintQuestion,
    },
    /// Rows of training logs, each with its prediction.
    Rows {
        /// Logs, and what they omit.
        question: LogsQuestion,
    },
    /// Document of `validate --format json`.
    Validate {
        /// Question as `validate` reads it.
        question: ValidateQuestion,
    },
    /// Plans in the light of those that were timed.
    Timed {
        /// Plans, and what was measured.
        question: TimedQuestion,
    },
}

type Reply = Result<Value, Box<dyn Error>>;

/// Reply to a request in JSON: `{"ok": …}` or `{"error": "…"}`.
pub fn reply(request: &[u8]) -> String {
    match serde_json::from_slice::<PageRequest>(request).map_err(Box::from).and_then(|request| request.answer()) {
        Ok(value) => object([("ok", value)]).to_string(),
        Err(error) => object([("error", error.to_string().into())]).to_string(),
    }
}

/// Object of these entries. `json!` copies every value that it is given.
fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Object(entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
}

impl PageRequest {
    fn answer(&self) -> Reply {
        match self {
            Self::Catalogue {} => catalogue::catalogue(),
            Self::Plan { question } => {
                let answer = question.answer(&|_, _| ControlFlow::Continue(()))?;
                Ok(noted(answer.value.into(), answer.notes, Vec::new()))
            }
            Self::Live { question, winners } => {
                let LiveAnswer { document, notes, examples } = live::answer(question, winners)?;
                Ok(noted(document, notes, examples))
            }
            Self::Picture { problem, plan } => {
                let (problem, plan) = subject(problem, plan)?;
                let explanation = Explanation::new(&problem, plan);
                let mut picture = picture::picture(&explanation)?;
                picture.insert("groups".into(), network::groups(&explanation.costs, &explanation.plan));
                picture.insert("kernels".into(), roofline::kernels(&problem, &explanation.plan)?);
                Ok(picture.into())
            }
            Self::Explain { problem, plan } => {
                let (problem, plan) = subject(problem, plan)?;
                Ok(picture::document(&Explanation::new(&problem, plan))?.into())
            }
            Self::Emit { question } => launch::files(question),
            Self::Lint { question } => Ok(question.answer()?.into()),
            Self::Rows { question } => own_runs::rows(question),
            Self::Validate { question } => Ok(question.answer()?.into()),
            Self::Timed { question } => own_runs::timed(question),
        }
    }
}

fn noted(document: Value, notes: Vec<String>, examples: Vec<String>) -> Value {
    object([("document", document), ("notes", notes.into()), ("examples", examples.into())])
}

/// Problem of one kind of GPU, and a plan on it.
fn subject(problem: &Question, plan: &str) -> Result<(Problem, Plan), Box<dyn Error>> {
    let Subject::Cluster(posed) = problem.subject(None)?.value else {
        return Err("pools of different GPUs are not drawn: name the cluster of one of them".into());
    };
    let plan = parse_plan(plan, posed.of_recipe()).map_err(|why| format!("--plan: {why}"))?;
    Ok((posed.of_plan(&plan).value, plan))
}
