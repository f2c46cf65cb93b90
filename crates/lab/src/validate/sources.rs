//! Validation by source: every source's runs are predicted with constants fitted without any run of that source.

use std::collections::BTreeMap;
use std::sync::Arc;

use itertools::Itertools;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::sample::set;
use crate::runs::{Prediction, Row, predict_all_with};
use meshwright_planner::catalog::Overrides;
use meshwright_planner::catalog::fits::{Constant, Fit};
use meshwright_planner::fnv::Fnv;

/// Constants of one fit, fitted again without each source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFits {
    /// Name of the fit.
    pub fit: String,
    /// Digest of the runs, the free constants and the stated ones ([`basis`]).
    pub basis: String,
    /// Constants by source.
    pub without: Vec<Without>,
}

/// Constants fitted without the runs of one source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Without {
    /// Name of the source: the set of its runs.
    pub source: String,
    /// Value of each fitted constant by key.
    pub values: BTreeMap<String, Value>,
}

/// Digest of the inputs of a fit: the text of the runs, the text of the free constants, and the stated constants.
pub fn basis(runs: &str, free: &str, fit: &Fit) -> String {
    let stated = fit.stated();
    let stated = stated.constants.iter().map(|of| format!("{}={}\n", of.key, of.value)).join("");
    Fnv::default().bytes(format!("{runs}\n{free}\n{stated}").as_bytes()).hex()
}

/// Predicts every row with the constants fitted without its source; `None` where its source is not among them.
pub fn predict(rows: &[Row], sets: &Overrides, fits: &SourceFits) -> Vec<Option<Prediction>> {
    let mut found: Vec<Option<Prediction>> = vec![None; rows.len()];
    for without in &fits.without {
        let mut fit = sets.fit().cloned().unwrap_or_else(Fit::empty);
        fit.constants.retain(|constant| !without.values.contains_key(&constant.key));
        let values = without.values.iter();
        fit.constants.extend(values.map(|(key, value)| Constant::plain(key.clone(), value.clone())));
        let sets = sets.clone().with_fit(Some(Arc::new(fit)));
        let places: Vec<usize> = (0..rows.len()).filter(|&at| set(&rows[at]) == without.source).collect();
        let own: Vec<Row> = places.iter().map(|&at| rows[at].clone()).collect();
        places.into_iter().zip(predict_all_with(&own, &sets)).for_each(|(at, of)| found[at] = Some(of));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_predicted_with_its_own_constants() {
        let row = |id: &str| Row {
            id: Some(id.into()),
            framework: Some("llm-foundry".into()),
            gpu: Some("A100-80GB".into()),
            year: Some(2023.0),
            gated_mlp: Some(0.0),
            layers: Some(24.0),
            hidden: Some(2048.0),
            ffn: Some(8192.0),
            heads: Some(16.0),
            vocab: Some(50_368.0),
            seq_len: Some(2048.0),
            gpus_total: Some(8.0),
            tp: Some(1.0),
            pp: Some(1.0),
            global_batch: Some(64.0),
            ..Row::default()
        };
        let rows = [row("a-1"), row("b-1"), row("c-1")];
        let without = |source: &str, traffic: f64| Without {
            source: source.into(),
            values: BTreeMap::from([("stack.foundry-2023.traffic".to_owned(), Value::Float(traffic))]),
        };
        let fits =
            SourceFits { fit: "t".into(), basis: String::new(), without: vec![without("a", 1.5), without("b", 2.5)] };
        let found = predict(&rows, &Overrides::default(), &fits);
        let seconds = |at: usize| found[at].as_ref().and_then(|of: &Prediction| of.step_time_s).unwrap();
        assert!(seconds(0) < seconds(1) && found[2].is_none());
    }
}
