//! Settings that a question of `lint` has in place of the file's.
#![cfg(feature = "cli")]

use std::process::Command;

use serde_json::Value;

use super::lint::{GOOD, file, findings, json, out, run, script};

/// The command that lint prints prices what lint priced.
#[test]
fn the_command_that_is_printed_prices_the_same() {
    let path = script("same.sh", GOOD);
    for replaced in [
        &[][..],
        &["--optimizer", "muon"],
        &["--global-batch", "1024", "--seq-len", "4096"],
        &["--gpus", "256"],
        &["--stack", "nemo-24", "--set", "cluster.nic=\"200 Gb/s\""],
        &["--model", "llama3-70b", "--set", "model.vocab=32000"],
    ] {
        let (answer, _) = json(&path, &[&["--quick"], replaced].concat());
        let command = answer["command"].as_str().unwrap();
        let shell = format!("{command} --hbm-profile tight --format json");
        let shell = shell.replacen("meshwright", env!("CARGO_BIN_EXE_meshwright"), 1);
        let explained = Command::new("bash").args(["-c", &shell]).output().unwrap();
        let explained: Value =
            serde_json::from_str(&out(&explained)).unwrap_or_else(|error| panic!("{error}: {command}"));
        for key in ["step_time_s", "peak_mem_gib"] {
            assert_eq!(explained["prediction"][key], answer["prediction"][key], "{key}: {command}");
        }
    }
}

/// `--optimizer` replaces the file's update as well as its bytes per parameter: Muon's takes longer.
#[test]
fn another_optimizer_has_its_own_update() {
    let path = script("optimizer.sh", GOOD);
    let update = |more: &[&str]| json(&path, more).0["prediction"]["terms"]["optimizer_s"].as_f64().unwrap();
    let (adam, muon) = (update(&["--quick"]), update(&["--quick", "--optimizer", "muon"]));
    assert!(muon > 2.0 * adam, "{muon} {adam}");
}

/// `--set model.…` changes the model that `--model` names, and is refused where the model is the file's.
#[test]
fn settings_of_the_model_change_the_named_model() {
    let path = script("set.sh", GOOD);
    let time = |more: &[&str]| json(&path, more).0["prediction"]["step_time_s"].as_f64().unwrap();
    let (named, wide) = (&["--quick", "--model", "llama3-8b"][..], &["--set", "model.vocab=262144"][..]);
    assert!(time(&[named, wide].concat()) > time(named));
    let refused = run(&[&["lint", path.to_str().unwrap(), "dgx-h100-1k"], wide].concat());
    assert_eq!(refused.status.code(), Some(2));
    let talk = String::from_utf8(refused.stderr).unwrap();
    assert!(talk.contains("--model names"), "{talk}");
}

/// A vocabulary that leaves the rows of logits at no multiple of 16 bytes is slow on Hopper where PyTorch does not pad it.
#[test]
fn a_vocabulary_that_is_not_padded_is_named() {
    let path = file(
        "zero3.json",
        r#"{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}"#,
    );
    let changes = |vocab: &str| {
        let question =
            ["--model", "llama3-8b", "--seq-len", "4096", "--global-batch", "256", "--gpus", "64", "--vocab", vocab];
        let answer = json(&path, &question).0;
        let all = answer["changes"].as_array().unwrap().clone();
        all.into_iter().filter(|change| change["change"]["software"] == "raw_vocabulary").collect::<Vec<_>>()
    };
    assert!(changes("128256").is_empty());
    let odd = changes("128257");
    assert_eq!(odd.len(), 1);
    assert!(odd[0]["saves"].as_f64().unwrap() > 0.04, "{odd:?}");
}

/// A file that packs documents does not say how long they are, which decides what attention costs.
#[test]
fn the_length_of_packed_documents_is_asked_for() {
    let text = "base_model: meta-llama/Llama-3.1-8B\ndatasets:\n  - path: a\n    type: alpaca\nbf16: auto\nflash_attention: true\n\
                deepspeed: deepspeed_configs/zero2.json\nsequence_len: 32768\nsample_packing: true\nmicro_batch_size: 1\n\
                gradient_accumulation_steps: 2\n";
    let path = file("packed.yaml", text);
    let lint = |more: &[&str]| json(&path, &[&["--quick", "--gpus", "64"], more].concat()).0;
    let (asked, told) = (lint(&[]), lint(&["--document-len", "500"]));
    assert_eq!((findings(&asked, "documents").len(), findings(&told, "documents").len()), (1, 0), "{asked}");
    let time = |answer: &Value| answer["prediction"]["step_time_s"].as_f64().unwrap();
    assert!(time(&told) < 0.9 * time(&asked), "{} {}", time(&told), time(&asked));
}
