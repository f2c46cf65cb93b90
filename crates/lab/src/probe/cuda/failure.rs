//! Errors of the driver and its libraries.

use crate::probe::source::ProbeError;

pub fn failed(call: &str, error: impl std::fmt::Debug) -> ProbeError {
    ProbeError::Failed { call: call.to_owned(), why: format!("{error:?}") }
}

pub fn missing(what: impl Into<String>, remedy: &str) -> ProbeError {
    ProbeError::Missing { what: what.into(), remedy: remedy.to_owned() }
}
