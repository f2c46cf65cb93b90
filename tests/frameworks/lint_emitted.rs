//! `lint` of the files that `emit` wrote, as its user types it: the plan's model, layout, step time and memory come back.
#![cfg(feature = "cli")]

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::lint::{out, run};
use meshwright::frameworks::FRAMEWORKS;

/// A question by its command line, behind the framework.
struct Asked {
    model: &'static str,
    cluster: &'static str,
    gpus: &'static str,
    more: &'static [&'static str],
}

const fn asked(model: &'static str, more: &'static [&'static str]) -> Asked {
    Asked { model, cluster: "dgx-h100-1k", gpus: "64", more }
}

/// The document of `plan --for` and the folder of the emitted files of its recommended plan.
fn emitted(test: &str, framework: &str, question: &Asked) -> (Value, PathBuf) {
    let Asked { model, cluster, gpus, more } = question;
    let words = ["plan", model, cluster, "--gpus", gpus, "--for", framework, "--format", "json"];
    let planned = run(&[&words, *more].concat());
    let document: Value = serde_json::from_str(&out(&planned)).unwrap_or_else(|error| {
        panic!("{framework} {model} {more:?}: {error}: {}", String::from_utf8_lossy(&planned.stderr))
    });
    let name = format!("emitted-{test}-{framework}-{model}{}", more.concat().replace(['/', ' '], "-"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let from = folder.join("plan.json");
    std::fs::write(&from, out(&planned)).unwrap();
    let rank = document["recommended"]["rank"].to_string();
    let written =
        run(&["emit", framework, "--from", from.to_str().unwrap(), "--rank", &rank, "--out", folder.to_str().unwrap()]);
    assert!(written.status.success(), "{framework} {model}: {}", String::from_utf8_lossy(&written.stderr));
    std::fs::remove_file(from).unwrap();
    (document, folder)
}

fn lint(file: &Path, cluster: &str) -> Value {
    let linted = run(&["lint", file.to_str().unwrap(), cluster, "--quick", "--format", "json"]);
    serde_json::from_str(&out(&linted))
        .unwrap_or_else(|error| panic!("{}: {error}: {}", file.display(), String::from_utf8_lossy(&linted.stderr)))
}

/// The text of a plan without its split, whose layers have several names.
fn degrees(plan: &Value) -> Vec<&str> {
    plan["plan"].as_str().unwrap().split(' ').filter(|word| !word.starts_with("split=")).collect()
}

/// Every file of a plan of every framework, with nothing but the cluster beside it, is that plan: no finding to act on but
/// groups that leave a domain, as they do in the plan.
fn comes_back(test: &str, framework: &str, question: &Asked) {
    let (document, folder) = emitted(test, framework, question);
    let rank = document["recommended"]["rank"].as_u64().unwrap() as usize;
    let plan = &document["plans"][rank - 1];
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        let answer = lint(&file, question.cluster);
        let prediction = &answer["prediction"];
        let what = format!("{}: {answer}", file.display());
        for key in ["model", "gpus", "global_batch", "seq_len", "stack"] {
            assert_eq!(answer["problem"][key], document["problem"][key], "{key}: {what}");
        }
        assert_eq!(degrees(prediction), degrees(plan), "{what}");
        for key in ["step_time_s", "peak_mem_gib"] {
            let (read, planned) = (prediction[key].as_f64().unwrap(), plan[key].as_f64().unwrap());
            assert!((read / planned - 1.0).abs() < 1e-9, "{key}: {read} for {planned}: {what}");
        }
        let findings = answer["findings"].as_array().unwrap().iter();
        let urgent = findings.filter(|finding| finding["level"] != "note" && finding["rule"] != "leaves-domain");
        assert_eq!(urgent.collect::<Vec<_>>(), Vec::<&Value>::new(), "{what}");
    }
}

#[test]
fn every_format_comes_back_dense_and_with_experts() {
    for framework in FRAMEWORKS.iter().map(|framework| framework.name()) {
        let on_amd = framework == "primus";
        let (cluster, sparse) = match framework {
            "primus" => ("mi300x-512", "qwen3-30b-a3b"),
            "nanotron" => ("dgx-h100-1k", "llama2-13b"), // its experts multiply the ranks: not emitted
            "gpt-neox" => ("dgx-h100-1k", "llama2-70b"), // its experts have no gates: not emitted
            "torchtitan" | "olmo-core" => ("dgx-h100-1k", "qwen3-30b-a3b"),
            _ => ("dgx-h100-1k", "mixtral-8x7b"),
        };
        let gpus = if on_amd { "128" } else { "64" };
        for model in ["llama3-8b", sparse] {
            comes_back("formats", framework, &Asked { model, cluster, gpus, more: &[] });
        }
    }
}

/// No remark asks for what `emit` has decided or its header says: variables of the launcher, and what the training program sets.
#[test]
fn no_remark_contradicts_what_emit_wrote() {
    let fused = &["--fix", "dispatcher=hybridep"];
    let racks = Asked { cluster: "gb200-nvl72-1152", ..asked("qwen3-30b-a3b", fused) };
    for (framework, question) in [
        ("megatron", asked("llama3-8b", &[])),
        ("megatron", asked("mixtral-8x7b", &[])),
        ("megatron", Asked { ..racks }),
        ("megatron-bridge", racks),
        ("accelerate", asked("llama3-8b", &[])),
        ("accelerate", asked("mixtral-8x7b", &[])),
        ("deepspeed", asked("llama3-8b", &[])),
        ("torchtitan", asked("qwen3-30b-a3b", &[])),
        ("maxtext", asked("mixtral-8x7b", &[])),
        ("ms-swift", asked("llama3-70b", &[])),
    ] {
        let (_, folder) = emitted("remarks", framework, &question);
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let linted = run(&["lint", file.to_str().unwrap(), question.cluster]);
            let text = out(&linted).split_whitespace().collect::<Vec<_>>().join(" ");
            for contradiction in ["taken as not set", "are set by the training program"] {
                assert!(!text.contains(contradiction), "{}: {text}", file.display());
            }
        }
    }
}

/// HybridEP in racks, with the environment that says so.
#[test]
fn a_plan_in_racks_comes_back() {
    for framework in ["megatron", "megatron-bridge"] {
        let more = &["--precision", "mxfp8", "--fix", "ep=32", "--fix", "dispatcher=hybridep"];
        let question = Asked { model: "qwen3-30b-a3b", cluster: "gb200-nvl72-1152", gpus: "64", more };
        comes_back("racks", framework, &question);
        let (_, folder) = emitted("racks", framework, &question);
        let scripts =
            std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let set = "export NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=\"${NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN:-32}\"";
        assert!(scripts.into_iter().any(|text| text.contains(set)), "{framework}");
    }
}

/// Graphs of modules exclude activations on the host: a file that has these is not told to have those, as one without is.
#[test]
fn graphs_are_no_advice_where_the_plan_excludes_them() {
    let advised = |test: &str, plan: &str| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
        let question = ["emit", "megatron", "mixtral-8x22b", "gb200-nvl72-1152", "--gpus", "72", "--plan", plan];
        let question = [&question[..], &["--set", "stack.cuda_graphs=false"]].concat();
        let written = run(&[&question[..], &["--force", "--out", folder.to_str().unwrap()]].concat());
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let linted = run(&["lint", folder.join("megatron.sh").to_str().unwrap(), "gb200-nvl72-1152"]);
        out(&linted).contains("--cuda-graph-impl")
    };
    let plan = "tp=8 dp=9 ep=8 dispatcher=deepep zero=1 mbs=1";
    assert!(!advised("graphs-beside-offload", &format!("{plan} offload-activations=0.75")));
    assert!(advised("graphs-beside-recomputation", &format!("{plan} recompute=layernorm+moe")));
}

/// Other stacks than a framework's own, which a file names in its header alone.
#[test]
fn the_stack_of_a_plan_comes_back() {
    for (framework, stack) in [
        ("megatron", "megatron-lm-2024"),
        ("megatron", "meta-llama3"),
        ("megatron-bridge", "megatron-lm-2024"),
        ("torchtitan", "torchtitan-eager"),
        ("deepspeed", "gaudi-2024"),
        ("accelerate", "fsdp-compiled-2024"),
        ("axolotl", "deepspeed-2024"),
        ("llama-factory", "deepspeed-2024"),
        ("ms-swift", "deepspeed-2024"),
        ("ms-swift", "fsdp-eager-2023"),
    ] {
        let more: &[&str] = &["--stack", stack];
        comes_back(
            "stacks",
            framework,
            &Asked { model: "llama3-8b", cluster: "dgx-h100-1k", gpus: "64", more: more.to_vec().leak() },
        );
    }
}

/// Adapters, a number format, a batch and a length, unbalanced routing, latent attention, hybrids.
#[test]
fn the_workload_of_a_plan_comes_back() {
    for (framework, question) in [
        ("megatron-bridge", asked("llama3-8b", &["--lora"])),
        ("accelerate", asked("llama3-8b", &["--lora"])),
        ("axolotl", asked("llama3-8b", &["--lora"])),
        ("llama-factory", asked("llama3-8b", &["--lora"])),
        ("ms-swift", asked("llama3-8b", &["--lora", "--stack", "deepspeed-2024"])),
        ("megatron", asked("llama3-8b", &["--precision", "fp8"])),
        ("torchtitan", asked("llama3-8b", &["--global-batch", "256", "--seq-len", "16384"])),
        ("megatron", asked("qwen3-30b-a3b", &["--imbalance", "1.5"])),
        ("torchtitan", Asked { gpus: "256", ..asked("deepseek-v2", &[]) }),
        ("megatron", asked("nemotron-h-56b", &[])),
        ("megatron-bridge", asked("nemotron-h-56b", &[])),
        ("megatron-bridge", asked("nemotron-h-56b", &["--lora"])),
        ("megatron-bridge", asked("llama3-8b", &["--lora", "--lora-targets", "attention"])),
        ("megatron-bridge", asked("deepseek-v2", &["--lora", "--lora-targets", "attention"])),
        ("megatron-bridge", asked("nemotron-h-56b", &["--lora", "--lora-targets", "attention"])),
    ] {
        comes_back("workloads", framework, &question);
    }
}

fn changed(folder: &Path, name: &str, from: &str, to: &str) -> PathBuf {
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{name} lacks {from}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
    path
}

/// A header completes a file and overrides nothing that it says.
#[test]
fn a_header_overrides_nothing() {
    let question = asked("llama3-8b", &[]);
    let (_, folder) = emitted("changed", "torchtitan", &question);
    let other = changed(&folder, "torchtitan_plan.py", "TIED = 4096, 32", "TIED = 5120, 32");
    let answer = lint(&other, "dgx-h100-1k");
    assert_eq!(
        (&answer["problem"]["model"], &answer["ok"]),
        (&Value::from("imported"), &Value::from(true)),
        "{answer}"
    );
    // A model that is built in a way that is not read is not taken for the header's.
    let other = changed(&folder, "torchtitan_plan.py", "layers=[block(layer)", "layers=[other(layer)");
    assert_eq!(lint(&other, "dgx-h100-1k")["problem"], Value::Null);

    let (_, folder) = emitted("changed", "axolotl", &question);
    let set = changed(&folder, "axolotl.yaml", "base_model: TO_BE_SET", "base_model: Qwen/Qwen3-8B");
    assert_eq!(lint(&set, "dgx-h100-1k")["problem"]["model"], "Qwen3 8B");
    let unknown = changed(&folder, "axolotl.yaml", "base_model: Qwen/Qwen3-8B", "base_model: someone/else-9b");
    assert_eq!(lint(&unknown, "dgx-h100-1k")["problem"], Value::Null);

    let (_, folder) = emitted("changed", "megatron", &question);
    let wider = changed(&folder, "megatron.sh", "--nnodes 8", "--nnodes 16");
    assert_eq!(lint(&wider, "dgx-h100-1k")["problem"]["gpus"], 128);
}

/// Without a header and without a model, the refusal says what to type.
#[test]
fn without_a_header_the_model_is_asked_for() {
    let (_, folder) = emitted("alone", "deepspeed", &asked("llama3-8b", &[]));
    let alone = folder.join("alone");
    std::fs::create_dir_all(&alone).unwrap();
    let json = alone.join("ds_config.json");
    std::fs::copy(folder.join("ds_config.json"), &json).unwrap();
    let answer = lint(&json, "dgx-h100-1k");
    let findings = answer["findings"].as_array().unwrap();
    let missing = findings.iter().find(|finding| finding["rule"] == "no-model").unwrap();
    assert!(missing["expected"].as_str().unwrap().contains("--model NAME (`meshwright models`)"), "{missing}");
    let beside = lint(&folder.join("ds_config.json"), "dgx-h100-1k");
    let read = beside["findings"].as_array().unwrap().iter().filter_map(|finding| finding["message"].as_str());
    assert!(read.into_iter().any(|message| message.contains("deepspeed.sh` launches it")), "{beside}");
}

/// A model that the catalogue lacks is named by its file, which no header makes `lint` read.
#[test]
fn a_model_of_a_file_is_asked_for_by_its_name() {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/hf/qwen3-1.7b.json");
    let model = own.to_str().unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emitted-own-model");
    let written = run(&["emit", "axolotl", model, "dgx-h100-64", "--out", folder.to_str().unwrap(), "--force"]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let file = folder.join("axolotl.yaml");
    let answer = lint(&file, "dgx-h100-64");
    let notes = answer["findings"].as_array().unwrap().iter().filter_map(|finding| finding["expected"].as_str());
    assert!(
        answer["problem"].is_null() && notes.into_iter().any(|to_type| to_type == format!("--model {model}")),
        "{answer}"
    );
    let given = run(&["lint", file.to_str().unwrap(), "dgx-h100-64", "--quick", "--format", "json", "--model", model]);
    let given: Value = serde_json::from_str(&out(&given)).unwrap();
    assert_eq!((&given["ok"], &given["problem"]["gpus"]), (&Value::from(true), &Value::from(64)), "{given}");
}
