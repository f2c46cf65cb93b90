//! Studies of tune: each operation gives the document of its answer, with notes.

use std::path::{Path, PathBuf};

use meshwright::files::Existing;
use meshwright::question::Noted;
use meshwright::search::Control;
use meshwright::tune::{self, Evidence, Folder, NamedText, NextTrials, StudyQuestion, TuneError};
use serde::Serialize;

use crate::Document;

/// Text of an error of JSON.
fn unwritten(why: &serde_json::Error) -> TuneError {
    TuneError::Refused(why.to_string())
}

fn text(answer: Noted<impl Serialize>) -> Result<Document, TuneError> {
    Ok((serde_json::to_string(&answer.value).map_err(|why| unwritten(&why))?, answer.notes))
}

/// Answer with notes, or the notes as an error where there is none.
fn present<T>(answer: Noted<Option<T>>) -> Result<Noted<T>, TuneError> {
    let Noted { value, notes } = answer;
    match value {
        Some(value) => Ok(Noted { value, notes }),
        None => Err(TuneError::Refused(notes.join("\n"))),
    }
}

/// Starts a study in a folder, and gives its status.
pub fn start(question: &StudyQuestion, dir: &Path, force: bool, control: &Control) -> Result<Document, TuneError> {
    let started = present(question.start(dir, control)?)?;
    let (study, trials) = (&started.value.study, &started.value.trials);
    Folder::new(dir).lock()?.create(study, trials, Existing::from_force(force))?;
    let document = tune::document(&started.value.posterior).map_err(|why| unwritten(&why))?;
    Ok((document, started.notes))
}

/// Status of a study.
pub fn status(dir: &Path) -> Result<Document, TuneError> {
    let Noted { value, notes } = Folder::new(dir).posterior()?;
    Ok((tune::document(&value).map_err(|why| unwritten(&why))?, notes))
}

/// Launch files of the next trials.
pub fn next(dir: &Path, asked: &NextTrials) -> Result<Document, TuneError> {
    text(tune::next(&Folder::new(dir), asked)?)
}

/// Outcomes of logs, and of the rows of a CSV, entered into their trials.
pub fn add(
    dir: &Path,
    logs: &[PathBuf],
    measured: Option<&NamedText>,
    trial: Option<u32>,
    force: bool,
) -> Result<Document, TuneError> {
    let mut evidence: Vec<Evidence> = logs.iter().map(|path| Evidence::of_log(path)).collect::<Result<_, _>>()?;
    if let Some(rows) = measured {
        evidence.extend(Evidence::of_rows(&rows.origin, &rows.text)?);
    }
    text(tune::add(&Folder::new(dir), &evidence, trial, Existing::from_force(force))?)
}

/// Launch files of the best trial at full scale.
pub fn apply(dir: &Path, out: Option<&Path>, force: bool) -> Result<Document, TuneError> {
    text(present(tune::apply(&Folder::new(dir), out, Existing::from_force(force))?)?)
}
