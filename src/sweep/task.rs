//! Workloads of a sweep, and the names of their settings.

use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};
use serde::{Deserialize, Serialize};

use meshwright_engine::goodput::Mode;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::Model;
use meshwright_engine::stack::Stack;
use meshwright_engine::units::Tokens;
use meshwright_engine::workload::Workload;

/// Workload of a sweep, complete except for the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    /// Name in the results.
    pub name: String,
    /// Model to train.
    pub model: Model,
    /// Number of tokens to train.
    pub tokens: Tokens,
    /// Number of training runs.
    pub runs: f64,
    /// Batch, sequence and format of one step.
    pub workload: Workload,
    /// Software stack; the machine's default if `None`.
    pub stack: Option<Stack>,
    /// Name of the byte recipe; the stack's default if `None`.
    pub recipe: Option<String>,
}

/// Number format by name.
///
/// # Errors
///
/// Lists the valid names.
pub fn format(name: &str) -> Result<Format, String> {
    let from: StrDeserializer<NameError> = name.into_deserializer();
    Format::deserialize(from).map_err(|error| error.to_string())
}

/// Checkpoint mode by name.
///
/// # Errors
///
/// Lists the valid names.
pub fn mode(name: &str) -> Result<Mode, String> {
    let from: StrDeserializer<NameError> = name.into_deserializer();
    Mode::deserialize(from).map_err(|error| error.to_string())
}
