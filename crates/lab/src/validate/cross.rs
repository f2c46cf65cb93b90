//! Cross-validation: every run is predicted with constants fitted without its configuration and without the other plans of
//! its choice (`docs/decisions/0006-folds-by-choice.md`).

use std::sync::Arc;

use super::sample::fold_of;
use crate::runs::{Prediction, Row, predict_all_with};
use meshwright_planner::catalog::Overrides;
use meshwright_planner::catalog::fits::FOLDS;

/// Fold of each row; rows of one choice or one configuration share a fold.
pub fn folds(rows: &[Row]) -> Vec<usize> {
    rows.iter().map(|row| fold_of(row, FOLDS as u32) as usize).collect()
}

/// Predicts every row with the fit obtained without the row's fold. Constants without folds were not fitted to runs.
pub fn predict(rows: &[Row], sets: &Overrides) -> Vec<Prediction> {
    let folds = folds(rows);
    let mut found: Vec<(usize, Prediction)> = Vec::with_capacity(rows.len());
    for fold in 0..FOLDS {
        let without = sets.fit().map(|fit| Arc::new(fit.without_fold(fold)));
        let sets = sets.clone().with_fit(without);
        let places: Vec<usize> = (0..rows.len()).filter(|&at| folds[at] == fold).collect();
        let members: Vec<Row> = places.iter().map(|&at| rows[at].clone()).collect();
        found.extend(places.into_iter().zip(predict_all_with(&members, &sets)));
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, prediction)| prediction).collect()
}
