//! Published layouts that answers are compared with: written from the published runs.

use std::collections::BTreeMap;
use std::fs::File;

use expect_test::expect_file;
use meshwright::catalog::layouts::{PublishedLayout, PublishedLayouts};
use meshwright::catalog::{self, Overrides};
use meshwright::model::Model;
use meshwright::runs;
use meshwright::workload::Adaptation;

/// Largest relative difference of parameters between a run's model and the catalogue's: vocabularies are padded differently.
const SAME_MODEL: f64 = 0.005;

const HEAD: &str = "# The fastest published layout of each catalogue model, GPU, number of GPUs, sequence length and \
number format, as\n\
    # answers are compared with. Written from tests/published/runs.csv: UPDATE_EXPECT=1 cargo test --test evidence layouts\n\n";

/// Catalogue model of the same shape.
fn known<'a>(models: &'a [Model], model: &Model) -> Option<&'a Model> {
    let same = |known: &&Model| {
        let (a, b) = (known.parameters().total as f64, model.parameters().total as f64);
        let alike = known.layers() == model.layers() && known.hidden == model.hidden;
        alike && known.indexer() == model.indexer() && (a / b - 1.0).abs() < SAME_MODEL
    };
    models.iter().find(same)
}

/// Settings of a plan but for the replicas, which follow from the number of GPUs.
fn settings(plan: &str) -> String {
    let kept = plan.split(' ').filter(|item| !item.starts_with("dp=") && !item.starts_with("shard="));
    kept.collect::<Vec<_>>().join(" ")
}

#[test]
fn layouts_are_those_of_the_published_runs() {
    let path = format!("{}/tests/published/runs.csv", env!("CARGO_MANIFEST_DIR"));
    let sets = Overrides::default();
    let models: Vec<Model> =
        catalog::model_names().into_iter().map(|name| catalog::model(name, &sets).unwrap()).collect();
    let mut best: BTreeMap<String, (f64, PublishedLayout)> = BTreeMap::new();
    for row in runs::read(File::open(path).unwrap()).unwrap() {
        let (Some(run), Some(rate)) = (row.id.clone(), row.tokens_per_s_per_gpu_canon) else { continue };
        let Ok((problem, plan)) = runs::problem_of(&row) else { continue };
        let Some(model) = known(&models, problem.model()) else { continue };
        let (cluster, workload) = (problem.cluster(), problem.workload());
        if workload.adaptation != Adaptation::Full || row.outcome.as_deref() != Some("ok") {
            continue;
        }
        let layout = PublishedLayout {
            run,
            framework: row.framework.clone().unwrap_or_default(),
            family: problem.stack().family,
            model: model.name.clone(),
            gpu: cluster.gpu.name.clone(),
            gpus: cluster.gpus,
            seq_len: workload.seq_len,
            precision: workload.precision(),
            state_bytes: workload.recipe.total(),
            micro_batches: plan.micro_batches(workload.global_batch),
            global_batch: workload.global_batch,
            step_s: row.step_time_canon_s,
            plan: settings(&plan.to_string()),
        };
        let PublishedLayout { model, gpu, gpus, seq_len, precision, .. } = &layout;
        let key = format!("{model} {gpu} {gpus:8} {seq_len:8} {precision}");
        if best.get(&key).is_none_or(|(known, _)| *known < rate) {
            best.insert(key, (rate, layout));
        }
    }
    assert!(best.len() > 100, "{} layouts", best.len());
    let layout = best.into_values().map(|(_, layout)| layout).collect();
    let text = toml::to_string(&PublishedLayouts { source: "published-runs".into(), layout }).unwrap();
    expect_file!["../../clusters/layouts/published.toml"].assert_eq(&format!("{HEAD}{text}"));
}
