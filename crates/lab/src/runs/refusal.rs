//! Reasons why a row has no prediction.

/// Reason why a row has no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The row has too little information, or names something that the model does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The row contradicts itself.
    #[error("{0}")]
    Invalid(String),
}

impl Refusal {
    pub(super) fn unsupported<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Unsupported(why.into()))
    }
    pub(super) fn invalid<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Invalid(why.into()))
    }
}
