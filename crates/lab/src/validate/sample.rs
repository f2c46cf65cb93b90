//! Samples: runs with their predictions, classes and repeats.

use std::collections::BTreeMap;

use super::cells::{number, text};
use crate::runs::{Prediction, Row};
use meshwright_planner::fnv::Fnv;

/// Fewest runs of a source that is judged on its own.
pub(crate) const FEWEST_RUNS: usize = 5;

/// Run with its prediction.
#[derive(Clone, Copy, Debug)]
pub struct PredictedRun<'a> {
    /// Row of the run.
    pub row: &'a Row,
    /// Prediction of the run.
    pub prediction: &'a Prediction,
    /// Weight: repeats of one measurement share a weight of 1.
    pub weight: f64,
}

/// Pairs runs with their predictions, and gives repeats a common weight of 1.
///
/// Two runs are repeats if they differ in nothing that a rule reads, except software notes: they share [`config_group`],
/// GPUs, batch, framework, year, format and options.
pub fn samples<'a>(rows: &'a [Row], predictions: &'a [Prediction]) -> Vec<PredictedRun<'a>> {
    let mut repeats: BTreeMap<String, f64> = BTreeMap::new();
    for row in rows {
        *repeats.entry(repeat_key(row)).or_default() += 1.0;
    }
    rows.iter()
        .zip(predictions)
        .map(|(row, prediction)| PredictedRun { row, prediction, weight: 1.0 / repeats[&repeat_key(row)] })
        .collect()
}

/// Key that repeated measurements have in common.
fn repeat_key(row: &Row) -> String {
    let texts = [&row.framework, &row.dtype_detail, &row.overlap, &row.schedule, &row.recompute, &row.fsdp, &row.notes];
    let numbers = [row.gpus_total, row.gpus_per_node, row.global_batch, row.year, row.sp, row.zero_stage];
    [config_group(row), text(row.outcome.as_ref())]
        .into_iter()
        .chain(texts.map(|cell| text(cell.as_ref())))
        .chain(numbers.map(|cell| number(cell, "")))
        .collect::<Vec<_>>()
        .join("\u{1f}")
}

/// Configuration of a run: its column `config_group`, or if that is blank, model, GPU, format, sequence, layout and
/// micro-batch in one line.
pub fn config_group(row: &Row) -> String {
    if let Some(group) = row.config_group.as_ref().filter(|group| !group.is_empty()) {
        return group.clone();
    }
    let figure = |cell: Option<f64>| number(cell, "-");
    format!(
        "{}|{}|{}|{}|s{}|tp{}pp{}vp{}cp{}ep{}|m{}|{}",
        text(row.model_name.as_ref()),
        text(row.gpu.as_ref()),
        text(row.dtype.as_ref()),
        purpose(row),
        figure(row.seq_len),
        figure(row.tp),
        figure(row.pp),
        figure(row.vpp),
        figure(row.cp),
        figure(row.ep),
        figure(row.micro_batch),
        text(row.fsdp.as_ref())
    )
}

/// Purpose of a run; `pretrain` if blank.
pub fn purpose(row: &Row) -> &str {
    row.purpose.as_deref().filter(|purpose| !purpose.is_empty()).unwrap_or("pretrain")
}

/// Outcome of a run; `ok` if blank.
pub fn outcome(row: &Row) -> &str {
    row.outcome.as_deref().filter(|outcome| !outcome.is_empty()).unwrap_or("ok")
}

/// Measured step time in seconds: the canonical figure, else the stated one, else from tokens per second and GPU.
pub fn measured(row: &Row) -> Option<f64> {
    let usable = |value: &f64| value.is_finite() && *value > 0.0;
    let from_rate = || {
        let rate = row.tokens_per_s_per_gpu_canon.or(row.tokens_per_s_per_gpu).filter(usable)?;
        Some(row.global_batch? * row.seq_len? / (rate * row.gpus_total?))
    };
    row.step_time_canon_s.filter(usable).or(row.step_time_s.filter(usable)).or_else(from_rate).filter(usable)
}

/// Set of a run: its name up to the number, so `dgxc-0230` belongs to `dgxc`.
pub fn set(row: &Row) -> &str {
    let id = row.id.as_deref().unwrap_or_default();
    let set = id.rsplit_once('-').filter(|(_, end)| end.bytes().all(|byte| byte.is_ascii_digit()));
    set.map_or(id, |(set, _)| set)
}

/// Family of a run: model, GPU, format, purpose and sequence, the first five parts of [`config_group`]. All plans of a
/// choice and all runs of a configuration belong to one family.
pub fn family(row: &Row) -> String {
    const SHARED: usize = 5;
    let group = config_group(row);
    let end = group.match_indices('|').nth(SHARED - 1).map_or(group.len(), |(at, _)| at);
    group[..end].to_owned()
}

/// Fold of a run, by its [`family`], so that all plans of a choice are predicted with the same constants.
pub(crate) fn fold_of(row: &Row, folds: u32) -> u32 {
    salted(&family(row), folds, SALT)
}

/// Salt of the hash, chosen among numbers below 1000 so that folds of the published runs are nearest to equal in size. Only
/// their sizes were considered.
const SALT: u32 = 75;

fn salted(family: &str, folds: u32, salt: u32) -> u32 {
    fold(&format!("{salt}|{family}"), folds)
}

/// Fold of a name, by its hash, so that it does not change when others are added or removed.
pub fn fold(group: &str, folds: u32) -> u32 {
    let hash = Fnv::default().bytes(group.as_bytes()).get();
    ((hash ^ (hash >> 32)) % u64::from(folds.max(1))) as u32
}

/// Class of runs by their number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleClass {
    /// Place among the classes, of the fewest GPUs first.
    pub place: usize,
    /// Name in tables.
    pub name: &'static str,
}

impl PredictedRun<'_> {
    /// Measured step time in seconds.
    pub fn measured(&self) -> Option<f64> {
        measured(self.row)
    }

    /// Set of the run.
    pub fn set(&self) -> &str {
        set(self.row)
    }

    /// Whether the model routes tokens to experts.
    pub fn is_moe(&self) -> bool {
        self.row.experts.is_some_and(|experts| experts > 1.0)
    }

    /// Whether the framework is Megatron-Core: Megatron-LM since 2023, NeMo, Megatron-Bridge and frameworks built on them.
    pub fn is_megatron_core(&self) -> bool {
        let framework = self.row.framework.as_deref().unwrap_or_default();
        let old = self.row.year.is_some_and(|year| year < 2023.0);
        let named = ["Megatron", "NeMo", "Primus"].iter().any(|name| framework.contains(name));
        named && !old && !["DeepSpeed", "Automodel", "PyTorch FSDP"].iter().any(|name| framework.contains(name))
    }

    /// Whether the framework is PyTorch's FSDP: llm-foundry, torchtitan, fms-fsdp, Automodel.
    pub fn is_fsdp(&self) -> bool {
        let framework = self.row.framework.as_deref().unwrap_or_default();
        ["FSDP", "torchtitan", "foundry", "Automodel"].iter().any(|name| framework.contains(name))
    }

    /// Class by number of GPUs.
    pub fn scale(&self) -> ScaleClass {
        const MOST: [(f64, &str); 4] =
            [(8.0, "1-8 GPUs"), (64.0, "9-64 GPUs"), (512.0, "65-512 GPUs"), (2048.0, "513-2048 GPUs")];
        let gpus = self.row.gpus_total.unwrap_or_default();
        let place = MOST.iter().position(|(most, _)| gpus <= *most).unwrap_or(MOST.len());
        ScaleClass { place, name: MOST.get(place).map_or("over 2048 GPUs", |(_, name)| name) }
    }

    /// Class of pipeline: none, one chunk a rank, or several.
    pub fn schedule(&self) -> &'static str {
        match (self.row.pp.unwrap_or(1.0) > 1.0, self.row.vpp.unwrap_or(1.0) > 1.0) {
            (false, _) => "no pipeline",
            (true, false) => "one chunk a rank",
            (true, true) => "interleaved",
        }
    }

    /// Class of context parallelism.
    pub fn context_parallel(&self) -> &'static str {
        if self.row.cp.unwrap_or(1.0) > 1.0 { "with" } else { "without" }
    }

    /// Kind of memory figure that the source states.
    pub fn memory_kind(&self) -> &'static str {
        let kind = self.row.mem_kind.as_deref().unwrap_or_default();
        if kind.contains("not stated") {
            "unstated"
        } else if kind.contains("smi") {
            "device"
        } else if kind.contains("reserved") {
            "reserved"
        } else if kind.contains("allocated") {
            "allocated"
        } else {
            "unstated"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_are_stable_and_about_even() {
        let mut sizes = [0; 5];
        for group in 0..1000 {
            sizes[fold(&format!("group {group}"), 5) as usize] += 1;
        }
        assert!(sizes.iter().all(|size| (150..250).contains(size)), "{sizes:?}");
        // By hand, from the hash of the text: a release that gives others reshuffles every published fold.
        assert_eq!(["a", "b", "group 7"].map(|group| fold(group, 5)), [4, 1, 0]);
    }

    /// The published runs, where this is their tree.
    fn published() -> Vec<Row> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/published/runs.csv");
        crate::runs::read(std::fs::File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn no_other_salt_makes_folds_more_even() {
        let families: Vec<String> = published().iter().map(family).collect();
        let uneven = |salt: u32| {
            let mut sizes = [0_usize; 5];
            for family in &families {
                sizes[salted(family, 5, salt) as usize] += 1;
            }
            sizes.iter().max().unwrap() - sizes.iter().min().unwrap()
        };
        assert!((0..1000).all(|salt| uneven(salt) >= uneven(SALT)), "{}", uneven(SALT));
    }

    #[test]
    fn a_fold_holds_whole_choices_and_whole_configurations() {
        let rows = published();
        let predictions = vec![crate::runs::predict(&Row::default()); rows.len()];
        let mut fold_of_name: BTreeMap<String, u32> = BTreeMap::new();
        for sample in samples(&rows, &predictions) {
            let fold = fold_of(sample.row, 5);
            for name in [crate::validate::choice::name(&sample), config_group(sample.row)] {
                assert_eq!(*fold_of_name.entry(name.clone()).or_insert(fold), fold, "{name}");
            }
        }
        let named = |name: &str| Row { config_group: Some(name.into()), ..Row::default() };
        assert_eq!(family(&named("a|b|c|d|e|tp1|m1|mp")), "a|b|c|d|e");
        assert_eq!(family(&named("my own")), "my own");
    }

    #[test]
    fn sets_are_names_without_numbers() {
        let named = |id: &str| Row { id: Some(id.into()), ..Row::default() };
        let prediction = crate::runs::predict(&Row::default());
        let set = |id: &str| PredictedRun { row: &named(id), prediction: &prediction, weight: 1.0 }.set().to_owned();
        assert_eq!((set("dgxc-0230"), set("my-run"), set("")), ("dgxc".into(), "my-run".into(), String::new()));
    }
}
