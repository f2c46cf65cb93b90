//! Equal parts of a list.

use std::ops::Range;

use super::error::QuestionError;

/// Indices of part `index`, from 1, of `of` equal parts of a list.
///
/// # Errors
///
/// There is no such part.
pub(super) fn part(all: usize, index: usize, of: usize) -> Result<Range<usize>, QuestionError> {
    if index == 0 || index > of {
        return Err(QuestionError::refused(format!("part {index} of {of}: there is none")));
    }
    Ok(all * (index - 1) / of..all * index / of)
}
