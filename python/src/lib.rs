//! Native half of the Python package: questions in, documents out, both as JSON text.

mod background;

use meshwright::question::PlanQuestion;
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

/// Question that Python wrote as JSON.
fn asked<Question: DeserializeOwned>(text: &str) -> PyResult<Question> {
    serde_json::from_str(text).map_err(|why| refused(&why))
}

/// Exception with the text of an error.
fn refused(why: &impl ToString) -> PyErr {
    QuestionError::new_err(why.to_string())
}

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    use super::{Document, PlanQuestion, asked, background, refused};

    #[pymodule_export]
    use super::QuestionError;

    /// Ranks layouts: the document of `plan --format json`. Raises what `progress` raises.
    #[pyfunction]
    #[pyo3(signature = (question, progress=None))]
    fn plan(py: Python, question: &str, progress: Option<&Bound<PyAny>>) -> PyResult<Document> {
        let question: PlanQuestion = asked(question)?;
        let answer = background::run(py, progress, question.plans.time_limit, |control| question.answer(control))?;
        let answer = answer.map_err(|why| refused(&why))?;
        Ok((answer.value, answer.notes))
    }

    /// Runs the command line with the arguments of a process, its name first, and returns the exit code.
    #[pyfunction]
    fn command(py: Python, arguments: Vec<String>) -> u8 {
        py.detach(|| meshwright::cli::run(arguments))
    }
}
