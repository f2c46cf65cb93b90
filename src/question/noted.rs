//! Values with notes.

/// Assumption where a configuration describes more than its language model.
pub(super) const TEXT_PART: &str = "the language model alone, without the encoders of its configuration";

/// Value with sentences on how it came about: defaults that were assumed, figures that a calibration replaced.
#[derive(Debug)]
pub struct Noted<T> {
    /// The value.
    pub value: T,
    /// One sentence for each note.
    pub notes: Vec<String>,
}
