//! The files of docs/examples plan and sweep, and what they leave out has its documented default.
#![cfg(feature = "cli")]

use std::process::{Command, Output};

use meshwright::catalog::{self, Overrides, SET_SOURCE};
use meshwright::gpu::{Format, PeakKind};
use meshwright::sources::{Basis, OWN_SOURCE};
use serde_json::Value;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
}

fn example(name: &str) -> String {
    format!("docs/examples/{name}.toml")
}

/// Best plan on these files, as JSON.
fn planned(args: &[&str]) -> Value {
    let output = run(&[&["plan"], args, &["--format", "json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_smallest_files_plan() {
    let answer = planned(&[&example("model-smallest"), &example("cluster-smallest")]);
    let best = &answer["plans"][0];
    let gpus = ["tp", "cp", "pp", "dp"].iter().map(|key| best[key].as_u64().unwrap()).product::<u64>();
    assert_eq!(gpus, 256, "{best}");
}

#[test]
fn the_annotated_files_plan_together() {
    let (model, cluster, stack) = (example("model"), example("cluster"), example("stack"));
    let (market, tokens) = (example("prices"), "100 B");
    let answer = planned(&[
        &model, &cluster, "--stack", &stack, "--market", &market, "--terms", "ours", "--tokens", tokens, "--fix",
        "pp=1",
    ]);
    assert!(!answer["plans"].as_array().unwrap().is_empty(), "{answer}");
}

#[test]
fn the_sweep_runs() {
    let out = format!("{}/examples-sweep", env!("CARGO_TARGET_TMPDIR"));
    if std::path::Path::new(&out).exists() {
        std::fs::remove_dir_all(&out).unwrap(); // of an earlier run
    }
    let output = run(&["sweep", &example("sweep"), "--out", &out]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("ours"));
}

/// A device file takes from its relative, under the default fit, the values that it leaves out; its own values replace
/// those, and its `basis` is `datasheet`.
#[test]
fn a_device_is_its_relative_but_for_its_own_values() {
    let relative = catalog::gpu("h100-sxm").unwrap();
    let own = catalog::gpu(&example("gpu")).unwrap();
    assert_eq!((own.name.as_str(), own.basis), ("H100 in our servers", Basis::Datasheet));
    assert!((own.hbm.value.get() - 94e9).abs() < 1.0);
    assert_eq!((own.hbm.source.as_str(), own.hbm_bandwidth.source.as_str()), (OWN_SOURCE, "data sheet"));
    assert_eq!(own.hbm_efficiency, relative.hbm_efficiency);
    assert_eq!(own.peak[&PeakKind::Fp8], relative.peak[&PeakKind::Fp8]);
    assert_eq!(own.collectives, relative.collectives);
    let (curve, before) = (&own.gemm[&Format::Bf16], &relative.gemm[&Format::Bf16]);
    assert!((curve.sustained - 0.782).abs() < 1e-12 && (curve.efficiency - before.efficiency).abs() < 1e-12);
}

/// A plain value of a file has the file for its source, and a setting over it the setting.
#[test]
fn a_setting_over_a_plain_value_names_itself() {
    let sets = Overrides::parse(["gpu.hbm=100 GB", "gpu.hbm_efficiency=0.5"]).unwrap();
    let own = catalog::gpu_with(&example("gpu"), &sets).unwrap();
    assert_eq!((own.hbm.value.get(), own.hbm.source.as_str()), (100e9, SET_SOURCE));
    assert_eq!((own.hbm_efficiency.value, own.hbm_efficiency.source.as_str()), (0.5, SET_SOURCE));
}

#[test]
fn a_level_without_efficiency_is_infiniband() {
    let cluster = catalog::cluster(&example("cluster-smallest"), &Overrides::default()).unwrap();
    let level = &cluster.levels[0];
    assert!((level.efficiency - 0.85).abs() < 1e-12 && (level.hop_latency - 0.5).abs() < 1e-12);
    assert_eq!((level.bandwidth.source.as_str(), cluster.source.as_str()), (OWN_SOURCE, OWN_SOURCE));
}

#[test]
fn a_relative_must_be_of_the_catalogue() {
    let file = format!("{}/unknown-relative.toml", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, "like = \"h100-sxn\"\nname = \"x\"\n").unwrap();
    let error = catalog::gpu(&file).unwrap_err().to_string();
    assert!(error.contains("h100-sxn") && error.contains("did you mean `h100-sxm`?"), "{error}");
    std::fs::write(&file, "like = 3\n").unwrap();
    let error = catalog::gpu(&file).unwrap_err().to_string();
    assert!(error.contains("`like` is the name of a GPU"), "{error}");
}

/// torchtitan of 2026 is itself a relative, of torchtitan of 2025.
#[test]
fn a_relative_may_have_a_relative() {
    let file = format!("{}/relative-of-a-relative.toml", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, "like = \"torchtitan-2026\"\nname = \"mine\"\nlogit_bytes = 5.0\n").unwrap();
    let sets = Overrides::default();
    let (mine, theirs) = (catalog::stack(&file, &sets).unwrap(), catalog::stack("torchtitan-2026", &sets).unwrap());
    assert_eq!((mine.logit_bytes, theirs.logit_bytes), (Some(5.0), Some(4.0)));
    assert_eq!((mine.launches, mine.traffic), (theirs.launches, theirs.traffic));
}

/// Values without a source are for users' files: none of the catalogue has one.
#[test]
fn every_value_of_the_catalogue_names_its_source() {
    fn text(entry: &impl serde::Serialize) -> String {
        serde_json::to_string(entry).unwrap()
    }
    let sets = Overrides::default();
    let gpus = catalog::gpu_names().into_iter().map(|name| (name, text(&catalog::gpu(name).unwrap())));
    let stacks = catalog::stack_names().into_iter().map(|name| (name, text(&catalog::stack(name, &sets).unwrap())));
    let models = catalog::model_names().into_iter().map(|name| (name, text(&catalog::model(name, &sets).unwrap())));
    let clusters =
        catalog::cluster_names().into_iter().map(|name| (name, text(&catalog::cluster(name, &sets).unwrap())));
    let markets = catalog::files::PRICES.iter().map(|(name, _)| (*name, text(&catalog::market(name, &sets).unwrap())));
    let entries: Vec<(&str, String)> = gpus.chain(stacks).chain(models).chain(clusters).chain(markets).collect();
    assert!(entries.len() > 100, "{}", entries.len());
    for (name, text) in entries {
        assert!(!text.contains(OWN_SOURCE), "{name}: a value without a source");
    }
}
