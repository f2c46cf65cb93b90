//! Errors in a model.

use crate::range::OutOfRange;

/// Error in a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The layer string names a letter that has no `[layer.x]`.
    #[error("`layers` names `{letter}`, and there is no [layer.{letter}]")]
    UnknownLetter {
        /// Letter without a definition.
        letter: char,
    },
    /// The layer string does not parse.
    #[error(
        "`layers = \"{text}\"` cannot be read: {why}\n\nhint: letters of [layer.x], `*n` repeats, `( )` group: \"(l*5 g)*10 l*2\""
    )]
    Layers {
        /// Layer string as written.
        text: String,
        /// Reason, as text.
        why: String,
    },
    /// A size is outside the range of its kind.
    #[error(transparent)]
    Range(#[from] OutOfRange),
    /// A size contradicts another.
    #[error("{0}")]
    Size(String),
}
