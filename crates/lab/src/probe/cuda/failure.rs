//! Errors of the driver and its libraries.

use crate::probe::source::ProbeError;

/// Error of a call of the driver or a library.
pub fn failed(call: &str, error: impl std::fmt::Debug) -> ProbeError {
    ProbeError::Failed { call: call.to_owned(), why: format!("{error:?}") }
}

/// Error of something that is missing, with an instruction for the user.
pub fn missing(what: impl Into<String>, remedy: &str) -> ProbeError {
    ProbeError::Missing { what: what.into(), remedy: remedy.to_owned() }
}
