//! Filters of runs: `purpose=pretrain`, `trust=high`.

use super::sample::{self, PredictedRun};
use crate::runs::Row;
use meshwright_planner::catalog::nearest;

/// Columns that filters may use.
const KEYS: [&str; 12] = [
    "set",
    "gpu",
    "framework",
    "dtype",
    "purpose",
    "outcome",
    "trust",
    "arith_status",
    "model_name",
    "source",
    "year",
    "gpus_total",
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
        let Some(key) = KEYS.into_iter().find(|known| *known == key.trim()) else {
            let near = nearest(key.trim(), KEYS).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!(
                "no column `{}` to filter by{near}\n\nhint: there are: {}",
                key.trim(),
                KEYS.join(", ")
            ));
        };
        Ok(Self { key, values: values.split(',').map(|value| value.trim().to_owned()).collect() })
    }

    /// Whether a run passes. A blank `purpose` counts as `pretrain`, a blank `outcome` as `ok`.
    pub fn admits(&self, sample: &PredictedRun) -> bool {
        let cell = cell(sample, self.key);
        self.values.contains(&cell)
    }
}

fn cell(sample: &PredictedRun, key: &str) -> String {
    let row: &Row = sample.row;
    let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    match key {
        "set" => sample.set().to_owned(),
        "gpu" => text(&row.gpu),
        "framework" => text(&row.framework),
        "dtype" => text(&row.dtype),
        "purpose" => sample::purpose(row).to_owned(),
        "outcome" => sample::outcome(row).to_owned(),
        "trust" => text(&row.trust),
        "arith_status" => text(&row.arith_status),
        "model_name" => text(&row.model_name),
        "source" => text(&row.source),
        "year" => number(row.year),
        _ => number(row.gpus_total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
