//! Native half of the Python package: questions in, documents out, both as JSON text.

mod background;
mod sweep;
mod tune;

use meshwright::question::{Noted, QuestionError as Refusal};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

create_exception!(
    meshwright,
    QuestionError,
    PyValueError,
    "Reason why a question has no answer, in the words of the command line."
);

/// Document of an answer, and the notes on what was assumed.
type Document = (String, Vec<String>);

/// Files, each a name and a text, and the notes on what was assumed.
type Files = (Vec<(String, String)>, Vec<String>);

/// Question that Python wrote as JSON.
fn asked<Question: DeserializeOwned>(text: &str) -> PyResult<Question> {
    serde_json::from_str(text).map_err(|why| refused(&why))
}

/// Exception with the text of an error.
fn refused(why: &impl ToString) -> PyErr {
    QuestionError::new_err(why.to_string())
}

/// Document of an answer with notes, or the exception.
fn document(answer: Result<Noted<String>, Refusal>) -> PyResult<Document> {
    answer.map(|Noted { value, notes }| (value, notes)).map_err(|why| refused(&why))
}

/// Document of an answer that takes no search, with the interpreter's lock released.
fn prompt<Question: DeserializeOwned + Send + Sync>(
    py: Python,
    question: &str,
    answer: impl FnOnce(&Question) -> Result<String, Refusal> + Send,
) -> PyResult<String> {
    let question = asked(question)?;
    py.detach(|| answer(&question)).map_err(|why| refused(&why))
}

#[pymodule]
mod _native {
    use std::path::PathBuf;

    use meshwright::question::{
        BudgetQuestion, EmitQuestion, ExplainQuestion, ImportQuestion, LintQuestion, PlanQuestion, PredictQuestion,
        ReplayQuestion, ValidateQuestion,
    };
    use meshwright::tune::NamedText;
    use pyo3::prelude::*;

    use super::{Document, Files, asked, background, document, prompt, refused, sweep, tune};

    #[pymodule_export]
    use super::QuestionError;

    /// Document of `plan --format json`. Raises what `progress` raises.
    #[pyfunction]
    #[pyo3(signature = (question, progress=None))]
    fn plan(py: Python, question: &str, progress: Option<&Bound<PyAny>>) -> PyResult<Document> {
        let question: PlanQuestion = asked(question)?;
        let limit = question.plans.time_limit;
        document(background::run(py, progress, limit, |control| question.answer(control))?)
    }

    /// Document of `explain --format json`.
    #[pyfunction]
    #[pyo3(signature = (question, progress=None))]
    fn explain(py: Python, question: &str, progress: Option<&Bound<PyAny>>) -> PyResult<Document> {
        let question: ExplainQuestion = asked(question)?;
        document(background::run(py, progress, None, |control| question.answer(control))?)
    }

    /// Document of `budget --format json`.
    #[pyfunction]
    fn budget(py: Python, question: &str) -> PyResult<String> {
        prompt(py, question, BudgetQuestion::answer)
    }

    /// Files of `emit`, each a name and a text, with notes.
    #[pyfunction]
    fn emit(py: Python, question: &str) -> PyResult<Files> {
        let question: EmitQuestion = asked(question)?;
        let answer = background::run(py, None, None, |_| question.answer())?.map_err(|why| refused(&why))?;
        let files = answer.value.map_err(|reasons| refused(&reasons.join("\n")))?;
        Ok((files.into_iter().map(|file| (file.name, file.text)).collect(), answer.notes))
    }

    /// List of predictions, as `predict` prints them line by line.
    #[pyfunction]
    fn predict(py: Python, question: &str) -> PyResult<String> {
        prompt(py, question, PredictQuestion::answer)
    }

    /// Document of `validate --format json`.
    #[pyfunction]
    fn validate(py: Python, question: &str) -> PyResult<String> {
        prompt(py, question, ValidateQuestion::answer)
    }

    /// Predictions of a part of the rows of `validate`, one JSON text a line.
    #[pyfunction]
    fn validate_part(py: Python, question: &str, index: usize, of: usize) -> PyResult<String> {
        prompt(py, question, |question: &ValidateQuestion| question.part(index, of))
    }

    /// Document of `validate --format json`, of the lines of all parts.
    #[pyfunction]
    fn validate_document(py: Python, question: &str, lines: &str) -> PyResult<String> {
        prompt(py, question, |question: &ValidateQuestion| question.document(lines))
    }

    /// Scores of a part of the choices of a replay, one JSON text a line; progress counts choices.
    #[pyfunction]
    #[pyo3(signature = (question, index, of, progress=None))]
    fn replay_part(
        py: Python,
        question: &str,
        index: usize,
        of: usize,
        progress: Option<&Bound<PyAny>>,
    ) -> PyResult<String> {
        let question: ReplayQuestion = asked(question)?;
        background::run(py, progress, None, |control| question.part(index, of, control))?.map_err(|why| refused(&why))
    }

    /// Document of a replay, of the lines of all parts.
    #[pyfunction]
    fn replay_document(py: Python, question: &str, lines: &str) -> PyResult<String> {
        prompt(py, question, |question: &ReplayQuestion| question.document(lines))
    }

    /// Starts a study of tune in a folder, and gives its status. Raises what `progress` raises.
    #[pyfunction]
    #[pyo3(signature = (question, dir, force, progress=None))]
    fn tune_start(
        py: Python,
        question: &str,
        dir: PathBuf,
        force: bool,
        progress: Option<&Bound<PyAny>>,
    ) -> PyResult<Document> {
        let question = asked(question)?;
        background::run(py, progress, None, move |control| tune::start(&question, &dir, force, control))?
            .map_err(|why| refused(&why))
    }

    /// Document of `tune status --format json`.
    #[pyfunction]
    fn tune_status(py: Python, dir: PathBuf) -> PyResult<Document> {
        py.detach(move || tune::status(&dir)).map_err(|why| refused(&why))
    }

    /// Writes the launch files of the next trials, and lists them.
    #[pyfunction]
    fn tune_next(py: Python, dir: PathBuf, question: &str) -> PyResult<Document> {
        let question = asked(question)?;
        py.detach(move || tune::next(&dir, &question)).map_err(|why| refused(&why))
    }

    /// Enters outcomes of trials: logs, and rows with their origin.
    #[pyfunction]
    fn tune_add(
        py: Python,
        dir: PathBuf,
        logs: Vec<PathBuf>,
        measured: Option<(String, String)>,
        trial: Option<u32>,
        force: bool,
    ) -> PyResult<Document> {
        let measured = measured.map(|(origin, text)| NamedText { origin, text });
        py.detach(move || tune::add(&dir, &logs, measured.as_ref(), trial, force)).map_err(|why| refused(&why))
    }

    /// Writes the launch files of the best trial at full scale.
    #[pyfunction]
    fn tune_apply(py: Python, dir: PathBuf, out: Option<PathBuf>, force: bool) -> PyResult<Document> {
        py.detach(move || tune::apply(&dir, out.as_deref(), force)).map_err(|why| refused(&why))
    }

    /// Version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Document of `import --format json`.
    #[pyfunction]
    fn import_(py: Python, question: &str) -> PyResult<String> {
        prompt(py, question, ImportQuestion::answer)
    }

    /// Document of `lint --format json`.
    #[pyfunction]
    fn lint(py: Python, question: &str) -> PyResult<String> {
        let question: LintQuestion = asked(question)?;
        background::run(py, None, None, |_| question.answer())?.map_err(|why| refused(&why))
    }

    /// Name, digest, and numbers of options and of machines of a sweep.
    #[pyfunction]
    fn sweep_head(text: &str, origin: &str) -> PyResult<(String, String, u64, u64)> {
        sweep::head(text, origin).map_err(|why| refused(&why))
    }

    /// Results of a shard of a sweep, one line an option in their order; progress counts options.
    #[pyfunction]
    #[pyo3(signature = (text, origin, index, of, progress=None))]
    fn sweep_shard(
        py: Python,
        text: &str,
        origin: &str,
        index: u64,
        of: u64,
        progress: Option<&Bound<PyAny>>,
    ) -> PyResult<String> {
        background::run(py, progress, None, |control| sweep::shard(text, origin, index, of, control))?
            .map_err(|why| refused(&why))
    }

    /// Document of `sweep --format json` without its records, and its records as lines, of results in the order of their options.
    #[pyfunction]
    fn sweep_answer(py: Python, text: &str, origin: &str, lines: &str) -> PyResult<sweep::Divided> {
        py.detach(|| sweep::answer(text, origin, lines)).map_err(|why| refused(&why))
    }

    /// Joins results of shards into one file, and gives what `sweep_answer` gives of it.
    #[pyfunction]
    fn sweep_merge(py: Python, text: &str, origin: &str, files: Vec<PathBuf>, to: PathBuf) -> PyResult<sweep::Divided> {
        py.detach(move || sweep::merge(text, origin, &files, &to)).map_err(|why| refused(&why))
    }

    /// Runs the command line with the arguments of a process, its name first, and returns the exit code.
    #[pyfunction]
    fn command(py: Python, arguments: Vec<String>) -> u8 {
        py.detach(|| meshwright::cli::run(arguments))
    }
}
