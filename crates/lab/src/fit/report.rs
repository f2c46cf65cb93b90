//! Files of fitted constants with their provenance.

use std::fmt::Write;

use toml::Value;

use super::steps::{Fitted, StepFit};
use crate::validate::sources::{SourceFits, Without};
use meshwright_planner::catalog::fits::{Constant, Fit};
use meshwright_planner::catalog::visible;

/// Resulting fit: the constants of `before`, then those of `fitted`. Where both set one value, the later
/// overrides the earlier, which remains as the starting point of the next fit.
pub fn fit(before: Option<&Fit>, name: &str, date: &str, fitted: &[Fitted], rows: &str) -> Fit {
    let new: Vec<Constant> = fitted.iter().flat_map(|fitted| constants(fitted, rows)).collect();
    let stated = before.map_or_else(Vec::new, |fit| fit.constants.clone());
    let constants = stated.into_iter().chain(new).collect();
    Fit { name: name.to_owned(), date: date.to_owned(), source: super::SOURCE.to_owned(), constants }
}

fn constants(fitted: &Fitted, rows: &str) -> Vec<Constant> {
    let folds: Vec<Vec<(String, Value)>> = fitted.folds.iter().map(|x| fitted.placed.values(*x)).collect();
    let before = fitted.placed.before();
    fitted
        .placed
        .values(fitted.value)
        .into_iter()
        .enumerate()
        .map(|(at, (key, value))| Constant {
            key,
            value,
            source: super::SOURCE.to_owned(),
            from: format!("meshwright fit --runs {rows}: {}", fitted.placed.free.why),
            rows: u32::try_from(fitted.runs).ok(),
            spread: Some(super::free::rounded(fitted.spread())),
            folds: folds.iter().map(|values| values[at].1.clone()).collect(),
            was: Some(before[at].clone()),
            date: None,
        })
        .collect()
}

/// Constants without each source; `basis` is the digest of the inputs of the fit.
pub fn without_sources(name: &str, basis: String, fitted: &StepFit) -> SourceFits {
    let values = |values: &[f64]| {
        fitted.constants.iter().zip(values).flat_map(|(one, value)| one.placed.values(*value)).collect()
    };
    let without =
        fitted.sources.iter().map(|one| Without { source: one.source.clone(), values: values(&one.values) }).collect();
    SourceFits { fit: name.to_owned(), basis, without }
}

/// Fit, or its constants by source, as TOML with a comment at the top.
///
/// # Errors
///
/// A value has no TOML form.
pub fn toml(fit: &impl serde::Serialize, comment: &str) -> Result<String, toml::ser::Error> {
    let mut out = String::new();
    for line in comment.lines() {
        let _ = writeln!(out, "{}", format!("# {}", visible(line)).trim_end());
    }
    Ok(out + &toml::to_string(fit)?)
}
