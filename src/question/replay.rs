//! Question of an offline replay of tune: how many trials each rule would have needed on measured choices.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::error::QuestionError;
use super::part::part;
use super::runs::{RunConstants, rows};
use crate::report::json;
use meshwright_lab::tuning::replay::choices;
use meshwright_lab::tuning::score::{ReplayedChoice, RuleSummary, score, summaries, table_without};
use meshwright_lab::tuning::{Predictions, timed_plans};
use meshwright_planner::discrepancy::built_in;
use meshwright_planner::search::Control;

/// Measured runs, and what tune knows before a choice among them. A choice is a model on a number of GPUs with at least eight
/// timed layouts; those that failed are candidates too.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayQuestion {
    /// Measured runs as CSV (docs/runs.md).
    pub runs: String,
    /// Share of the step time that does not matter.
    pub tolerance: f64,
    /// Whether each run is predicted with the constants fitted without its configuration.
    #[serde(default)]
    pub cross_validated: bool,
    /// Whether the parameters of the discrepancy model are fitted to the given runs of other models, instead of those built in.
    #[serde(default)]
    pub held_out: bool,
    /// Fit and overrides.
    #[serde(default)]
    pub constants: RunConstants,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    fit: &'a str,
    cross_validated: bool,
    held_out: bool,
    tolerance: f64,
    rules: &'a [RuleSummary],
    choices: &'a [ReplayedChoice],
}

impl ReplayQuestion {
    /// Scores of the choices of part `index` of `of` parts of the models, one JSON text a line; `control` receives the number
    /// of choices that are done, and may end the work early.
    ///
    /// # Errors
    ///
    /// The text is no CSV of runs, the tolerance is no share, or the constants are invalid.
    pub fn part(&self, index: usize, of: usize, control: &Control) -> Result<String, QuestionError> {
        if !(self.tolerance > 0.0 && self.tolerance < 1.0) {
            let why = format!("tolerance {}: must be a share above 0 and below 1, such as 0.05", self.tolerance);
            return Err(QuestionError::refused(why));
        }
        let sets = self.constants.overrides()?;
        let predictions = if self.cross_validated { Predictions::CrossValidated } else { Predictions::Default };
        let plans = timed_plans(&rows(&self.runs)?, &sets, predictions);
        let all = choices(&plans);
        let models: Vec<&str> = all.iter().map(|choice| choice.model).collect::<BTreeSet<_>>().into_iter().collect();
        let models = &models[part(models.len(), index, of)?];
        let count = all.iter().filter(|choice| models.contains(&choice.model)).count() as u64;
        let fit = sets.fit().map_or("none", |fit| fit.name.as_str());
        let (mut lines, mut done) = (String::new(), 0);
        for &model in models {
            let fitted = self.held_out.then(|| table_without(model, &plans, fit));
            let table = fitted.as_ref().unwrap_or_else(|| built_in());
            for choice in all.iter().filter(|choice| choice.model == model) {
                lines.push_str(&serde_json::to_string(&score(choice, table, self.tolerance))?);
                lines.push('\n');
                done += 1;
                if control(done, count).is_break() {
                    return Err(QuestionError::refused("the replay was stopped"));
                }
            }
        }
        Ok(lines)
    }

    /// JSON document of the scores of all choices, of the lines of all parts in their order.
    ///
    /// # Errors
    ///
    /// A line is no score, or the constants are invalid.
    pub fn document(&self, lines: &str) -> Result<String, QuestionError> {
        let choices = lines.lines().map(serde_json::from_str).collect::<Result<Vec<ReplayedChoice>, _>>()?;
        let sets = self.constants.overrides()?;
        let Self { cross_validated, held_out, tolerance, .. } = *self;
        Ok(json::text(&Document {
            schema: json::SCHEMA,
            fit: sets.fit().map_or("none", |fit| fit.name.as_str()),
            cross_validated,
            held_out,
            tolerance,
            rules: &summaries(&choices),
            choices: &choices,
        })?)
    }
}
