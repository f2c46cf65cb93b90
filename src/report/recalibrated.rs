//! Table of a search done again after a measurement.

use serde::Serialize;

use super::Sheet;
use meshwright_engine::units::{Seconds, percent};

/// Term of a plan's step, before and after the measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedTerm {
    /// Name of the term, such as `compute`.
    pub name: String,
    /// Time with the catalogue's figures.
    pub before_s: Seconds,
    /// Time with the calibrated figures.
    pub after_s: Seconds,
}

/// Plan to launch by the catalogue's figures of a device and by the calibrated ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recalibrated {
    /// Plan to launch before.
    pub before: String,
    /// Its step time with the catalogue's figures.
    pub before_s: Seconds,
    /// Its step time with the calibrated figures.
    pub recalibrated_s: Seconds,
    /// Terms of its step that are not zero in both.
    pub terms: Vec<ChangedTerm>,
    /// Plan to launch after.
    pub after: String,
    /// Its step time with the calibrated figures.
    pub after_s: Seconds,
}

impl Recalibrated {
    /// Whether the measurement changes the plan to launch.
    pub fn is_changed(&self) -> bool {
        self.before != self.after
    }
}

/// Terms of the plan to launch before and after, and the plan to launch after.
pub fn sheet(outcome: &Recalibrated) -> Sheet {
    let Recalibrated { before, before_s, recalibrated_s, terms, after, after_s } = outcome;
    let title = if outcome.is_changed() {
        format!("The search again with these figures: another plan, {after}, {after_s} a step")
    } else {
        "The search again with these figures: the same plan".into()
    };
    let mut sheet = Sheet::new(title, &["what", "catalogue", "measured", "change"]);
    let change = |before: f64, after: f64| if before > 0.0 { percent(after / before - 1.0) } else { "new".into() };
    for ChangedTerm { name, before_s, after_s } in terms {
        sheet.push([name.clone(), before_s.to_string(), after_s.to_string(), change(before_s.get(), after_s.get())]);
    }
    sheet.push([
        format!("step of {before}"),
        before_s.to_string(),
        recalibrated_s.to_string(),
        change(before_s.get(), recalibrated_s.get()),
    ]);
    sheet
}
