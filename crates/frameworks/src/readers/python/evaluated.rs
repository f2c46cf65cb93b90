//! A configuration written in Python, run by an interpreter that records what it sets.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::import::context::Interpreter;
use crate::readers::document::{Entries, Node, NodeValue, TableEntry};

/// Program that runs a configuration with stand-ins for the modules that are not there.
const RECORDER: &str = concat!(
    include_str!("recorder/values.py"),
    include_str!("recorder/modules.py"),
    include_str!("recorder/answer.py")
);

/// Longest run of a configuration, seconds of a processor.
const SECONDS: u32 = 4;

/// Lines that were not read, each with the path of its module.
pub(super) type Lines = Vec<(String, u32)>;

/// Answer of the recorder.
#[derive(Deserialize)]
struct Answer {
    value: Option<Value>,
    #[serde(default)]
    unread: Lines,
    error: Option<String>,
    line: Option<u32>,
}

/// Value of a configuration, and the lines whose effect only the framework knows, each with its module: nothing for the
/// file itself.
///
/// # Errors
/// The line at which running it failed, and the error.
pub(super) fn evaluated(
    file: &str,
    text: &str,
    function: Option<&str>,
    python: Interpreter,
) -> Result<(Node, Lines), (u32, String)> {
    let request = json!({ "file": file, "text": text, "function": function, "seconds": SECONDS }).to_string();
    let answer = python(RECORDER, &request).map_err(|why| (1, why))?;
    let answer: Answer =
        serde_json::from_str(&answer).map_err(|_| (1, "Python gave no answer that can be read".to_owned()))?;
    if let Some(error) = answer.error {
        return Err((answer.line.unwrap_or(1), format!("run by Python: {error}")));
    }
    let value = answer.value.as_ref().and_then(node).ok_or_else(|| (1, "Python gave no configuration".to_owned()))?;
    Ok((value, answer.unread))
}

/// A value of the answer: its kind, its content, its line.
fn node(value: &Value) -> Option<Node> {
    let [kind, content, line] = value.as_array()?.as_slice() else { return None };
    let line = line.as_u64()? as u32;
    let value = match (kind.as_str()?, content) {
        ("text", Value::String(text)) => NodeValue::Scalar { text: text.clone(), quoted: true },
        ("name", Value::String(text)) => NodeValue::Scalar { text: text.clone(), quoted: false },
        ("list", Value::Array(items)) => NodeValue::List(items.iter().map(node).collect::<Option<_>>()?),
        ("map", Value::Array(entries)) => NodeValue::Map(entries.iter().map(entry).collect::<Option<Entries>>()?),
        _ => return None,
    };
    Some(Node { value, line })
}

fn entry(value: &Value) -> Option<TableEntry> {
    let [key, line, inner] = value.as_array()?.as_slice() else { return None };
    Some(TableEntry::new(key.as_str()?, line.as_u64()? as u32, node(inner)?))
}
