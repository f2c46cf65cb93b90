//! Filters of runs: `purpose=pretrain`, `trust=high`.

use super::cells::{number, text};
use super::sample::{self, PredictedRun};
use meshwright_engine::suggest::nearest_hint;

/// Text of a run in one column.
type Cell = fn(&PredictedRun) -> String;

/// Columns that filters may use. A blank `purpose` counts as `pretrain`, a blank `outcome` as `ok`.
const COLUMNS: [(&str, Cell); 12] = [
    ("set", |run| run.set().to_owned()),
    ("gpu", |run| text(run.row.gpu.as_ref())),
    ("framework", |run| text(run.row.framework.as_ref())),
    ("dtype", |run| text(run.row.dtype.as_ref())),
    ("purpose", |run| sample::purpose(run.row).to_owned()),
    ("outcome", |run| sample::outcome(run.row).to_owned()),
    ("trust", |run| text(run.row.trust.as_ref())),
    ("arith_status", |run| text(run.row.arith_status.as_ref())),
    ("model_name", |run| text(run.row.model_name.as_ref())),
    ("source", |run| text(run.row.source.as_ref())),
    ("year", |run| number(run.row.year, "")),
    ("gpus_total", |run| number(run.row.gpus_total, "")),
];

/// Condition on one column, with its allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    key: &'static str,
    values: Vec<String>,
}

impl Filter {
    /// Parses `column=value` or `column=value,value`.
    ///
    /// # Errors
    ///
    /// The text is not of this form, or filters may not use the column; with the nearest name.
    pub fn parse(item: &str) -> Result<Self, String> {
        let Some((key, values)) = item.split_once('=') else {
            return Err("write `column=value`, such as `purpose=pretrain`".into());
        };
        let names = COLUMNS.map(|(name, _)| name);
        let Some(key) = names.into_iter().find(|known| *known == key.trim()) else {
            let near = nearest_hint(key.trim(), names);
            return Err(format!(
                "no column `{}` to filter by{near}\n\nhint: there are: {}",
                key.trim(),
                names.join(", ")
            ));
        };
        Ok(Self { key, values: values.split(',').map(|value| value.trim().to_owned()).collect() })
    }

    /// Whether a run has one of the values.
    pub fn admits(&self, sample: &PredictedRun) -> bool {
        let cell = COLUMNS.iter().find(|(name, _)| *name == self.key).map(|(_, cell)| cell(sample));
        cell.is_some_and(|cell| self.values.contains(&cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::Row;

    #[test]
    fn unknown_columns_suggest_their_neighbour() {
        assert!(Filter::parse("purpos=pretrain").unwrap_err().contains("did you mean `purpose`?"));
        assert!(Filter::parse("pretrain").unwrap_err().contains("column=value"));
    }

    #[test]
    fn blank_cells_have_their_default() {
        let row = Row::default();
        let prediction = crate::runs::predict(&row);
        let sample = PredictedRun { row: &row, prediction: &prediction, weight: 1.0 };
        assert!(Filter::parse("purpose=sft,pretrain").unwrap().admits(&sample));
        assert!(!Filter::parse("outcome=oom").unwrap().admits(&sample));
    }
}
