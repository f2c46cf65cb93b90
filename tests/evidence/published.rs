//! Published runs, predicted with the specification's constants (`--fit none`) as the reference predicts them.

use std::fs::File;

use meshwright::catalog::Overrides;
use meshwright::problem::Problem;
use meshwright::runs::{self, Prediction, PredictionStatus};
use meshwright::validate::sample::set;
use serde::Deserialize;

/// Relative difference that counts as agreement.
const TOLERANCE: f64 = 0.01;
/// Share of rows that must agree.
const SHARE: f64 = 0.97;

#[derive(Deserialize)]
struct Reference {
    id: String,
    step_time_s: Option<f64>,
    peak_mem_gib: Option<f64>,
    #[allow(dead_code)]
    unsupported_because: Option<String>,
}

fn open(name: &str) -> File {
    File::open(format!("{}/tests/published/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Predictions from the columns that the reference reads; it takes torchtitan to compile, weights to be in 16 bits,
/// Megatron-LM to overlap its collectives and JAX to recompute nothing where a row says nothing, and Paxml of DGX
/// Cloud, whose shard groups its rows did not state, to shard over all.
fn predictions() -> Vec<Prediction> {
    let compiled =
        |notes: Option<String>| notes.filter(|notes| notes.contains("eager")).or_else(|| Some("compiled".into()));
    let paxml = |row: &runs::Row| set(row) == "dgxc" && row.framework.as_deref() == Some("Paxml (JAX)");
    let is_megatron_lm = |row: &runs::Row| row.framework.as_deref() == Some("Megatron-LM") && row.year == Some(2024.0);
    let rows = runs::read(open("runs.csv")).unwrap().into_iter().map(|row| runs::Row {
        fsdp: row.fsdp.clone().filter(|_| !paxml(&row)),
        overlap: row.overlap.clone().or_else(|| is_megatron_lm(&row).then(|| "tp-comm".into())),
        notes: if set(&row) == "torchtitan" { compiled(row.notes) } else { row.notes },
        attention_kernel: None,
        dispatcher: None,
        cuda_graph: None,
        ep_overlap: None,
        fp8_params: Some("false".into()),
        fused_kernels: None,
        mtp_layers: None,
        recompute_modules: row.recompute.is_none().then(|| "minimal_with_context".into()),
        ..row
    });
    runs::predict_all_with(&rows.collect::<Vec<_>>(), &Overrides::specification())
}

fn reference() -> Vec<Reference> {
    csv::Reader::from_reader(open("reference_predictions.csv")).deserialize().map(Result::unwrap).collect()
}

/// Whether some boundaries of a row's pipeline leave a scale-up domain and others do not: the reference prices all as the first.
fn crosses_unevenly(row: &runs::Row) -> bool {
    let Ok((problem, plan)) = runs::problem_of(row) else { return false };
    let (distance, domain) = (plan.layout.tp * plan.layout.cp * plan.layout.dp, problem.cluster().scale_up.gpus);
    plan.layout.pp > 1 && distance < domain && plan.layout.pp * distance > domain
}

/// Whether a row's nodes hold fewer GPUs than the device's scale-up domain may: the reference prices whole domains.
fn has_small_nodes(row: &runs::Row) -> bool {
    let of = |problem: &Problem| problem.cluster().scale_up.gpus < problem.cluster().gpu.scale_up.gpus;
    runs::problem_of(row).is_ok_and(|(problem, _)| of(&problem))
}

/// Whether a row is of Megatron-LM before core without a pipeline: the reference hides its gradients behind backward.
fn exchanges_after_backward(row: &runs::Row) -> bool {
    row.framework.as_deref() == Some("Megatron-LM") && row.year <= Some(2021.0) && row.pp == Some(1.0)
}

/// Whether a row is of torchtitan from release 0.2 on, whose attention is cuDNN's: the reference has FlashAttention 2.
fn asks_cudnn_first(row: &runs::Row) -> bool {
    row.framework.as_deref().is_some_and(|framework| framework.contains("torchtitan")) && row.year >= Some(2026.0)
}

/// Whether a row is of torchtitan with context parallelism, which attends shard by shard: the reference attends to all
/// keys at once.
fn attends_by_shard(row: &runs::Row) -> bool {
    row.framework.as_deref().is_some_and(|framework| framework.contains("torchtitan")) && row.cp > Some(1.0)
}

/// Whether a row's GPU has curves from tables that the reference did not have: AMD's MI300 and MI350 series.
fn has_later_curves(row: &runs::Row) -> bool {
    row.gpu.as_deref().is_some_and(|gpu| gpu.starts_with("MI3"))
}

/// Whether a row's sequences are packed documents, or its update is Muon's, neither of which the reference knows.
fn packs_or_orthogonalises(row: &runs::Row) -> bool {
    let of = |cell: &Option<String>, words: &[&str]| {
        cell.as_deref().is_some_and(|text| words.iter().any(|word| text.contains(word)))
    };
    of(&row.purpose, &["sft", "lora"]) && of(&row.framework, &["NeMo", "Bridge"])
        || of(&row.optimizer_states, &["muon"])
}

/// Whether a row's experts exchange tokens by HybridEP once its dispatcher is assumed: the reference prices neither the vectors of weights
/// nor the routing map.
fn exchanges_in_racks(row: &runs::Row) -> bool {
    let of = |problem: &Problem| problem.cluster().gpu.scale_up.gpus > 8;
    runs::problem_of(row).is_ok_and(|(problem, plan)| plan.layout.ep > 1 && of(&problem))
}

/// Share of the reference's figures that ours agree with; the worst differences are printed.
fn agreement(figure: &str, of_reference: fn(&Reference) -> Option<f64>, ours: fn(&Prediction) -> Option<f64>) -> f64 {
    let predictions = predictions();
    let rows = runs::read(open("runs.csv")).unwrap();
    let apart = |row: &&runs::Row| {
        crosses_unevenly(row)
            || has_small_nodes(row)
            || exchanges_after_backward(row)
            || asks_cudnn_first(row)
            || attends_by_shard(row)
            || has_later_curves(row)
            || packs_or_orthogonalises(row)
            || exchanges_in_racks(row)
    };
    let apart: Vec<&String> = rows.iter().filter(apart).filter_map(|row| row.id.as_ref()).collect();
    let mut differences: Vec<(f64, String)> = Vec::new();
    for reference in reference() {
        let Some(expected) = of_reference(&reference) else { continue };
        if figure == "step time" && apart.contains(&&reference.id) {
            continue;
        }
        let prediction = predictions.iter().find(|prediction| prediction.id == reference.id).unwrap();
        let difference = ours(prediction).map_or(f64::INFINITY, |value| value / expected - 1.0);
        let line =
            format!("{:18} reference {expected:10.4} ours {:?} {}", reference.id, ours(prediction), prediction.reason);
        differences.push((difference, line));
    }
    let agreeing = differences.iter().filter(|(difference, _)| difference.abs() <= TOLERANCE).count();
    let share = agreeing as f64 / differences.len() as f64;
    differences.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    println!("{figure}: {agreeing} of {} within 1 % ({:.1} %); the worst:", differences.len(), share * 100.0);
    for (difference, line) in differences.iter().filter(|(difference, _)| difference.abs() > TOLERANCE).take(60) {
        println!("{:+8.2} % {line}", difference * 100.0);
    }
    share
}

#[test]
fn step_times_agree_with_the_reference() {
    let share = agreement("step time", |reference| reference.step_time_s, |ours| ours.step_time_s);
    assert!(share >= SHARE, "{share}");
}

#[test]
fn memory_agrees_with_the_reference() {
    let share = agreement("memory", |reference| reference.peak_mem_gib, |ours| ours.peak_mem_gib);
    assert!(share >= SHARE, "{share}");
}

#[test]
fn as_many_rows_are_supported_as_by_the_reference() {
    let predictions = predictions();
    let supported = predictions.iter().filter(|prediction| prediction.status == PredictionStatus::Ok).count();
    let mut refused: Vec<&str> =
        predictions.iter().filter(|p| p.status != PredictionStatus::Ok).map(|p| p.reason.as_str()).collect();
    refused.sort_unstable();
    println!("{supported} of {}; refused: {refused:#?}", predictions.len());
    assert!(supported >= 690, "{supported}");
}

/// Names and sources are labels: without them, and without anything measured, the figures are the same.
#[test]
fn no_rule_looks_at_a_name_or_a_measurement() {
    let rows = runs::read(open("runs.csv")).unwrap();
    let bare: Vec<runs::Row> = rows
        .iter()
        .map(|row| runs::Row {
            id: None,
            source: None,
            step_time_s: None,
            tokens_per_s_per_gpu: None,
            tflops_per_gpu: None,
            mfu: None,
            hfu: None,
            peak_mem_gib: None,
            step_time_canon_s: None,
            tokens_per_s_per_gpu_canon: None,
            ..row.clone()
        })
        .collect();
    for (with, without) in runs::predict_all(&rows).into_iter().zip(runs::predict_all(&bare)) {
        assert_eq!(Prediction { id: String::new(), ..with }, without);
    }
}
