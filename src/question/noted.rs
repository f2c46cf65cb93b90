//! Values with notes.

/// Value with sentences on how it came about: defaults that were assumed, figures that a calibration replaced.
#[derive(Debug)]
pub struct Noted<T> {
    /// The value.
    pub value: T,
    /// One sentence for each note.
    pub notes: Vec<String>,
}
