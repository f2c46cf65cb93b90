//! Values with notes.

/// Assumption where a model leaves parts of its source out; none where it leaves out none.
pub(super) fn without(left_out: &[&str]) -> Option<String> {
    (!left_out.is_empty()).then(|| format!("the model without {}", left_out.join(" and ")))
}

/// Value with sentences on how it came about: defaults that were assumed, figures that a calibration replaced.
#[derive(Debug)]
pub struct Noted<T> {
    /// The value.
    pub value: T,
    /// One sentence for each note.
    pub notes: Vec<String>,
}
