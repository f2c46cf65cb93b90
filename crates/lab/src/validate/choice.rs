//! Ranking quality: rank correlation, and regret of the first choice, among measured plans.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{number, text};
use super::metrics::{PredictedPair, Regret, regret, spearman};
use super::pairs::time_pair;
use super::sample::{PredictedRun, config_group, purpose};

/// Fewest plans that form a choice.
pub const FEWEST: usize = 3;

/// Group of runs that differ only in their layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Name from set, model, GPU, GPU count, format, batch and sequence.
    pub name: String,
    /// Set of the runs.
    pub set: String,
    /// Number of layouts, with repeats counted once.
    pub plans: usize,
    /// Rank correlation of predicted and measured step times.
    pub spearman: Option<f64>,
    /// Regret of choosing by prediction.
    pub regret: Regret,
}

/// Ranking quality over several groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChoiceScore {
    /// Name of the set, or `all`.
    pub class: String,
    /// Number of groups with three layouts or more.
    pub groups: usize,
    /// Number of layouts in them.
    pub plans: usize,
    /// Mean rank correlation.
    pub mean_spearman: Option<f64>,
    /// Mean regret of the plan that is predicted fastest.
    pub mean_regret: f64,
    /// Largest regret of the plan that is predicted fastest.
    pub worst_regret: f64,
    /// Mean regret of the best of the three plans predicted fastest.
    pub mean_best_of_three: f64,
    /// Mean regret of the best of three over groups of more than three, where it is not 0 by construction.
    pub mean_best_of_three_of_more: Option<f64>,
}

/// Ranking quality by set, and by group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choices {
    /// All groups first, then by set; empty without groups.
    pub classes: Vec<ChoiceScore>,
    /// Groups, sorted by descending regret.
    pub groups: Vec<Group>,
}

/// Times of each layout, with its repeats.
type Plans = BTreeMap<String, Vec<PredictedPair>>;

/// Groups runs that share set, model, purpose, GPUs, format, batch and sequence, and scores each group.
///
/// Repeats of one layout count as one plan, with their mean time.
pub fn choices(ran: &[PredictedRun]) -> Choices {
    let mut groups: BTreeMap<(String, String), Plans> = BTreeMap::new();
    for sample in ran {
        if let Some(pair) = time_pair(sample) {
            let plans = groups.entry((sample.set().to_owned(), name(sample))).or_default();
            plans.entry(layout(sample)).or_default().push(pair);
        }
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .filter(|(_, plans)| plans.len() >= FEWEST)
        .filter_map(|((set, name), plans)| {
            let plans: Vec<PredictedPair> = plans.values().map(|repeats| mean(repeats)).collect();
            let (predicted, measured): (Vec<f64>, Vec<f64>) =
                plans.iter().map(|plan| (plan.predicted, plan.measured)).unzip();
            Some(Group {
                name,
                set,
                plans: plans.len(),
                spearman: spearman(&predicted, &measured),
                regret: regret(&plans)?,
            })
        })
        .collect();
    groups.sort_by(|a, b| b.regret.first.total_cmp(&a.regret.first).then_with(|| a.name.cmp(&b.name)));
    let mut sets: Vec<&str> = groups.iter().map(|group| group.set.as_str()).collect();
    sets.sort_unstable();
    sets.dedup();
    let groups_of = |set: &str| groups.iter().filter(|group| group.set == set).collect::<Vec<_>>();
    let classes = summary("all", &groups.iter().collect::<Vec<_>>())
        .into_iter()
        .chain(sets.iter().filter_map(|set| summary(set, &groups_of(set))))
        .collect();
    Choices { classes, groups }
}

/// Mean times of the repeats of one layout, which together weigh as one.
fn mean(repeats: &[PredictedPair]) -> PredictedPair {
    let mean_of = |time: fn(&PredictedPair) -> f64| repeats.iter().map(time).sum::<f64>() / repeats.len() as f64;
    PredictedPair { predicted: mean_of(|run| run.predicted), measured: mean_of(|run| run.measured), weight: 1.0 }
}

/// Key of a group: the properties that its runs share.
pub fn name(sample: &PredictedRun) -> String {
    let row = sample.row;
    let figure = |cell: Option<f64>| number(cell, "?");
    format!(
        "{} {} on {} x {} {} batch {} sequence {} ({})",
        text(row.model_name.as_ref()),
        purpose(row),
        figure(row.gpus_total),
        text(row.gpu.as_ref()),
        text(row.dtype.as_ref()),
        figure(row.global_batch),
        figure(row.seq_len),
        sample.set()
    )
}

/// Key of a plan in its group: the properties that differ.
pub fn layout(sample: &PredictedRun) -> String {
    let row = sample.row;
    let (sp, zero) = (number(row.sp, ""), number(row.zero_stage, ""));
    let recompute = text(row.recompute.as_ref());
    format!("{}|sp{sp}|zero{zero}|{recompute}", config_group(row))
}

fn summary(class: &str, groups: &[&Group]) -> Option<ChoiceScore> {
    if groups.is_empty() {
        return None;
    }
    let average = |values: Vec<f64>| {
        let n = values.len() as f64;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / n)
    };
    let of_three = |group: &&Group| group.regret.best_of_three;
    Some(ChoiceScore {
        class: class.to_owned(),
        groups: groups.len(),
        plans: groups.iter().map(|group| group.plans).sum(),
        mean_spearman: average(groups.iter().filter_map(|group| group.spearman).collect()),
        mean_regret: average(groups.iter().map(|group| group.regret.first).collect())?,
        worst_regret: groups.iter().map(|group| group.regret.first).fold(0.0, f64::max),
        mean_best_of_three: average(groups.iter().map(of_three).collect())?,
        mean_best_of_three_of_more: average(groups.iter().filter(|group| group.plans > 3).map(of_three).collect()),
    })
}
