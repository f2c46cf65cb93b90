//! Questions of `predict` and `validate`: published runs as rows of a CSV text.

use serde::{Deserialize, Serialize};

use super::error::QuestionError;
use super::options::FitChoice;
use super::part::part;
use crate::report::json;
use meshwright_lab::runs::{self, Prediction, Row};
use meshwright_lab::validate::filter::Filter;
use meshwright_lab::validate::sample::samples;
use meshwright_lab::validate::{Report, cross, score};
use meshwright_planner::catalog::{EntryKind, Overrides};

/// Constants to predict runs with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct RunConstants {
    /// Fit to predict with.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub fit: FitChoice,
    /// Override one value for every row: gpu.…, stack.…
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY=VALUE"))]
    pub set: Vec<String>,
}

impl RunConstants {
    /// Overrides of the catalogue.
    ///
    /// # Errors
    ///
    /// The fit does not exist, a `set` is no `key=value`, or one is about the model or the cluster, which the rows give.
    pub fn overrides(&self) -> Result<Overrides, QuestionError> {
        let sets = self.fit.over(Overrides::parse(&self.set)?)?;
        match [EntryKind::Model, EntryKind::Cluster].into_iter().find_map(|kind| sets.of_kind(kind).next()) {
            Some(setting) => Err(QuestionError::refused(format!(
                "--set {}: the rows give model and cluster; only gpu.… and stack.… can be set",
                setting.item
            ))),
            None => Ok(sets),
        }
    }
}

/// Question of `predict`: rows, and the constants to predict them with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictQuestion {
    /// Rows as CSV (docs/runs.md).
    pub runs: String,
    /// Fit and overrides.
    #[serde(default)]
    pub constants: RunConstants,
}

/// Rows of a CSV text.
pub(super) fn rows(text: &str) -> Result<Vec<Row>, QuestionError> {
    Ok(runs::read(text.as_bytes())?)
}

impl PredictQuestion {
    /// Predictions of the rows, in their order.
    ///
    /// # Errors
    ///
    /// The text is no CSV of runs, or the constants are invalid.
    pub fn predictions(&self) -> Result<Vec<Prediction>, QuestionError> {
        let sets = self.constants.overrides()?;
        Ok(runs::predict_all_with(&rows(&self.runs)?, &sets))
    }

    /// JSON list of the predictions.
    ///
    /// # Errors
    ///
    /// As for `predictions`.
    pub fn answer(&self) -> Result<String, QuestionError> {
        Ok(serde_json::to_string(&self.predictions()?)?)
    }
}

/// Question of `validate`: measured runs, and which of them to score.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidateQuestion {
    /// Measured runs as CSV (docs/runs.md).
    pub runs: String,
    /// Further runs of the same sources, which are not scored but may contradict scored ones.
    #[serde(default)]
    pub witnesses: Option<String>,
    /// Property that scored runs must have, such as `gpu=H100`.
    #[serde(default)]
    pub only: Vec<String>,
    /// Whether each run is predicted with the constants fitted without its configuration.
    #[serde(default)]
    pub cross_validated: bool,
    /// Fit and overrides.
    #[serde(default)]
    pub constants: RunConstants,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    fit: &'a str,
    cross_validated: bool,
    only: &'a [String],
    #[serde(flatten)]
    report: &'a Report,
}

/// JSON document of the scores of predictions.
///
/// # Errors
///
/// A value has no JSON form.
pub fn validation(fit: &str, cross_validated: bool, only: &[String], report: &Report) -> serde_json::Result<String> {
    json::text(&Document { schema: json::SCHEMA, fit, cross_validated, only, report })
}

impl ValidateQuestion {
    /// Predictions of part `index` of `of` parts of the rows, one JSON text a line.
    ///
    /// # Errors
    ///
    /// The text is no CSV of runs, or the constants are invalid.
    pub fn part(&self, index: usize, of: usize) -> Result<String, QuestionError> {
        let rows = rows(&self.runs)?;
        let found = self.predictions(&rows[part(rows.len(), index, of)?])?;
        let lines: Result<Vec<String>, _> = found.iter().map(serde_json::to_string).collect();
        Ok(lines?.into_iter().map(|line| line + "\n").collect())
    }

    /// JSON document of the answer, of the lines of all parts in their order.
    ///
    /// # Errors
    ///
    /// A line is no prediction, there are not as many as rows, or as for [`Self::answer`].
    pub fn document(&self, lines: &str) -> Result<String, QuestionError> {
        let rows = rows(&self.runs)?;
        let predictions = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Prediction>, _>>()?;
        if predictions.len() != rows.len() {
            let (found, all) = (predictions.len(), rows.len());
            return Err(QuestionError::refused(format!("{found} predictions of {all} rows")));
        }
        self.scored(&rows, &predictions)
    }

    /// JSON document of the answer, the same as `validate --format json` prints.
    ///
    /// # Errors
    ///
    /// A text is no CSV of runs, an `only` is no `column=value`, or the constants are invalid.
    pub fn answer(&self) -> Result<String, QuestionError> {
        let rows = rows(&self.runs)?;
        self.scored(&rows, &self.predictions(&rows)?)
    }

    fn predictions(&self, rows: &[Row]) -> Result<Vec<Prediction>, QuestionError> {
        let sets = self.constants.overrides()?;
        Ok(if self.cross_validated { cross::predict(rows, &sets) } else { runs::predict_all_with(rows, &sets) })
    }

    fn scored(&self, rows: &[Row], predictions: &[Prediction]) -> Result<String, QuestionError> {
        let filters = filters(&self.only)?;
        let sets = self.constants.overrides()?;
        let witnesses = self.witnesses.as_deref().map_or_else(|| Ok(Vec::new()), self::rows)?;
        let report = score(&samples(rows, predictions), &filters, &witnesses);
        let fit = sets.fit().map_or("none", |fit| fit.name.as_str());
        Ok(validation(fit, self.cross_validated, &self.only, &report)?)
    }
}

/// Filters of runs, each `column=value` or `column=value,value`.
///
/// # Errors
/// One of another form, or of a column that filters may not use.
pub fn filters(only: &[String]) -> Result<Vec<Filter>, QuestionError> {
    let refused = |item: &String, why: String| QuestionError::refused(format!("--only {item}: {why}"));
    only.iter().map(|item| Filter::parse(item).map_err(|why| refused(item, why))).collect()
}
