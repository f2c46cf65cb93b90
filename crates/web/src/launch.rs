//! Launch files of a plan.

use std::error::Error;

use serde_json::{Value, json};

use meshwright::question::EmitQuestion;

/// Files of a plan for a framework, as `emit` writes them, with warnings and assumptions.
///
/// # Errors
///
/// The question is invalid, the plan does not run, or the framework cannot express it.
pub fn files(question: &EmitQuestion) -> Result<Value, Box<dyn Error>> {
    let answer = question.answer()?;
    let files = answer.value.map_err(|reasons| reasons.join("\n"))?;
    let files: Vec<Value> = files.iter().map(|file| json!({ "name": file.name, "text": file.text })).collect();
    Ok(json!({ "files": files, "notes": answer.notes }))
}
