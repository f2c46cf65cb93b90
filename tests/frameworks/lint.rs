//! `lint` as its user meets it: what is illegal, what does not fit, what crosses which link, what would be faster, and where
//! a measured step loses its time.
#![cfg(feature = "cli")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lint-{name}"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Llama 3 70B on 128 GPUs, with some flags in place of others.
pub fn script(name: &str, more: &str) -> PathBuf {
    let flags = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention \
                 --num-query-groups 8 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear \
                 --position-embedding-type rope --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 \
                 --bf16 --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
                 --cross-entropy-loss-fusion --micro-batch-size 1 --seq-length 8192 --max-position-embeddings 8192";
    let text = format!(
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nnodes 16 --nproc_per_node 8 pretrain_gpt.py --lr 3e-4 \
        --train-iters 100 --tokenizer-type NullTokenizer \\\n{flags} \\\n{more}\n"
    );
    file(name, &text)
}

pub fn json(path: &Path, more: &[&str]) -> (Value, i32) {
    let output = run(&[&["lint", path.to_str().unwrap(), "dgx-h100-1k", "--format", "json"], more].concat());
    let text = out(&output);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {talk}")),
        output.status.code().unwrap(),
    )
}

pub fn findings<'a>(answer: &'a Value, rule: &str) -> Vec<&'a Value> {
    answer["findings"].as_array().unwrap().iter().filter(|finding| finding["rule"] == rule).collect()
}

pub const GOOD: &str = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5 \
                    --global-batch-size 512 --tp-comm-overlap";

/// A model that is named answers for the sizes that a script lacks, and for nothing else.
#[test]
fn a_named_model_leaves_other_errors() {
    let flags = "--bf16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64";
    let path = file("named.sh", &format!("torchrun --nproc_per_node 8 pretrain_gpt.py {flags}\n"));
    let missing = |more: &[&str]| {
        let (answer, _) = json(&path, &[&["--quick"], more].concat());
        findings(&answer, "missing-flag").iter().map(|finding| finding["message"].to_string()).collect::<Vec<_>>()
    };
    let (alone, named) = (missing(&[]), missing(&["--model", "llama2-7b"]));
    assert!(alone.iter().any(|message| message.contains("--num-layers")), "{alone:?}");
    let other: Vec<_> = alone.into_iter().filter(|message| !message.contains("--num-layers")).collect();
    assert!(other.len() >= 3 && other == named, "{other:?} {named:?}");
}

#[test]
fn a_legal_launch_is_priced_rank_by_rank() {
    let (answer, code) = json(&script("good.sh", GOOD), &["--quick"]);
    assert_eq!((code, &answer["schema"], &answer["ok"]), (0, &Value::from(1), &Value::from(true)), "{answer}");
    assert_eq!(answer["ranks"].as_array().unwrap().len(), 4);
    assert!(answer["prediction"]["step_time_s"].as_f64().unwrap() > 0.0);
    assert!((0.0..=1.0).contains(&answer["chance_of_oom"].as_f64().unwrap()));
    assert!(answer["command"].as_str().unwrap().starts_with("meshwright explain llama3-70b dgx-h100-1k --gpus 128"));
}

#[test]
fn what_is_illegal_ends_with_1_and_names_its_line() {
    for (more, rule) in [
        ("--tensor-model-parallel-size 3 --global-batch-size 512", "heads"),
        ("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --global-batch-size 510", "batch"),
        (
            "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5 \
            --global-batch-size 8",
            "interleaved-batch",
        ),
        ("--tensor-model-parallel-size 8 --expert-model-parallel-size 4 --global-batch-size 512", "dense-model"),
        ("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 5 --global-batch-size 512", "world-size"),
    ] {
        let (answer, code) = json(&script(&format!("{rule}.sh"), more), &["--quick"]);
        assert_eq!(code, 1, "{more}: {answer}");
        let found = findings(&answer, rule);
        assert!(!found.is_empty(), "{more}: {answer}");
        assert_eq!(found[0]["level"], "error");
        assert_eq!(found[0]["line"], 4, "{more}: {found:?}");
    }
}

#[test]
fn what_does_not_fit_gets_what_would_make_it_fit() {
    let more = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 512";
    let (answer, code) = json(&script("full.sh", more), &[]);
    assert_eq!(code, 1);
    assert_eq!(findings(&answer, "out-of-memory").len(), 1, "{answer}");
    let changes = answer["changes"].as_array().unwrap();
    assert!(changes.iter().all(|change| change["makes_it_fit"] == true));
    assert!(answer["best"]["step_time_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_group_that_leaves_its_domain_has_its_price() {
    let more = "--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1024 --moe-token-dispatcher-type alltoall \
                --expert-model-parallel-size 64 --expert-tensor-parallel-size 1 --num-layers 16 --hidden-size 2048 \
                --global-batch-size 512";
    let (answer, _) = json(&script("wide.sh", more), &["--quick"]);
    let crossing = &answer["crossings"][0];
    assert_eq!((&crossing["group"], &crossing["ranks"], &crossing["domain"]), (&"ep".into(), &64.into(), &8.into()));
    assert!(crossing["costs"].as_f64().unwrap() > 0.2, "{crossing}");
    let message = findings(&answer, "leaves-domain")[0]["message"].as_str().unwrap();
    assert!(message.contains("EP 64 leaves the 8-GPU domain"), "{message}");
    let tensor = "--tensor-model-parallel-size 16 --pipeline-model-parallel-size 2 --global-batch-size 512";
    let (wide, _) = json(&script("tp16.sh", tensor), &["--quick"]);
    assert_eq!(wide["crossings"][0]["group"], "tp");
    // The curve of 16 GPUs in one domain is extrapolated, and slower than two domains of eight: the finding says so.
    assert_eq!(wide["crossings"][0]["costs"], 0.0);
    let message = findings(&wide, "leaves-domain")[0]["message"].as_str().unwrap();
    assert!(message.contains("no slower in the model") && message.contains("time it"), "{message}");
    let (inside, _) = json(&script("narrow.sh", GOOD), &["--quick"]);
    assert!(inside["crossings"].as_array().unwrap().is_empty());
}

#[test]
fn what_is_faster_is_really_faster() {
    let more = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --global-batch-size 512 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
    let (answer, code) = json(&script("slow.sh", more), &[]);
    assert_eq!(code, 0, "{answer}");
    let now = answer["prediction"]["step_time_s"].as_f64().unwrap();
    assert!(answer["best"]["step_time_s"].as_f64().unwrap() < now);
    let changes = answer["changes"].as_array().unwrap();
    assert!(!changes.is_empty());
    let saves: Vec<f64> = changes.iter().map(|change| change["saves"].as_f64().unwrap()).collect();
    assert!(saves.iter().all(|share| *share >= 0.01) && saves.is_sorted_by(|a, b| a >= b), "{saves:?}");
    for change in changes {
        assert!(change["step_time_s"].as_f64().unwrap() < now);
    }
}

#[test]
fn what_is_advised_its_framework_can_run() {
    let yaml = "parallelism:\n  dp: 64\n  tp: 2\n  pp: 1\n  tp_mode: REDUCE_SCATTER\nmodel:\n  model_config:\n    \
    hidden_size: 4096\n    \
                intermediate_size: 14336\n    num_attention_heads: 32\n    num_key_value_heads: 8\n    num_hidden_layers: 32\n    \
                vocab_size: 128256\ntokens:\n  micro_batch_size: 1\n  batch_accumulation_per_replica: 2\n  sequence_length: 4096\n\
                optimizer:\n  zero_stage: 0\n  accumulate_grad_in_fp32: true\n";
    let toml = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n[parallelism]\n\
                data_parallel_shard_degree = 64\n[activation_checkpoint]\nmode = \"full\"\n";
    for (framework, name, text, gpus) in
        [("nanotron", "advice.yaml", yaml, "128"), ("torchtitan", "advice.toml", toml, "64")]
    {
        let (answer, _) = json(&file(name, text), &[]);
        let advised =
            answer["changes"].as_array().unwrap().iter().filter_map(|change| change["change"]["plan"].as_str());
        let plans: Vec<&str> = advised.chain(answer["best"]["plan"].as_str()).collect();
        assert!(!plans.is_empty(), "{answer}");
        let asked = &answer["problem"];
        for plan in plans {
            let emitted = run(&[
                "emit",
                framework,
                "llama3-8b",
                "dgx-h100-1k",
                "--gpus",
                gpus,
                "--plan",
                plan,
                "--global-batch",
                &asked["global_batch"].to_string(),
            ]);
            let message = String::from_utf8_lossy(&emitted.stderr).into_owned();
            assert_eq!(emitted.status.code(), Some(0), "{framework} {plan}: {message}");
        }
    }
}

#[test]
fn sarif_is_what_code_review_reads() {
    let path = script("sarif.sh", "--tensor-model-parallel-size 3 --global-batch-size 512 --no-such-flag 1");
    let output = run(&["lint", path.to_str().unwrap(), "dgx-h100-1k", "--quick", "--format", "sarif"]);
    assert_eq!(output.status.code(), Some(1));
    let sarif: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    let run = &sarif["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    for result in run["results"].as_array().unwrap() {
        let index = result["ruleIndex"].as_u64().unwrap_or_else(|| panic!("{result}")) as usize;
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
        assert!(result["locations"][0]["physicalLocation"]["region"]["startLine"].as_u64().unwrap() >= 1);
    }
    assert!(run["results"].as_array().unwrap().iter().any(|result| result["ruleId"] == "unknown-flag"));
}

fn causes(answer: &Value) -> Vec<(String, f64)> {
    let cause = |cause: &Value| (cause["cause"].as_str().unwrap().to_owned(), cause["likelihood"].as_f64().unwrap());
    answer["diagnosis"]["causes"].as_array().unwrap().iter().map(cause).collect()
}

#[test]
fn a_measured_step_is_explained() {
    let path = script("measured.sh", GOOD);
    let (answer, _) = json(&path, &["--quick"]);
    let predicted = answer["prediction"]["step_time_s"].as_f64().unwrap();
    let (near, _) = json(&path, &["--quick", "--measured", &format!("{:.3} s", predicted * 1.05)]);
    assert_eq!(near["diagnosis"]["within_error"], true);
    let (slow, _) = json(&path, &["--quick", "--measured", &format!("{:.3} s", predicted * 1.8)]);
    assert_eq!(slow["diagnosis"]["within_error"], false);
    let found = causes(&slow);
    assert!((found.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(found.is_sorted_by(|a, b| a.1 >= b.1) && found[0].0 != "none", "{found:?}");
    assert!(!found.iter().any(|(cause, _)| cause == "expert-imbalance"), "a dense model has no experts");
}

#[test]
fn good_on_16_and_bad_on_128_is_not_the_clocks() {
    // Data parallelism with a small model: what grows with the number of nodes is the network, or one slow node.
    let flags = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \
                 --num-query-groups 8 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear \
                 --position-embedding-type rope --untie-embeddings-and-output-weights --attention-dropout 0 \
                 --hidden-dropout 0 --bf16 \
                 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 \
                 --global-batch-size 256 --seq-length 4096 --max-position-embeddings 4096 \
                 --tensor-model-parallel-size 2 --sequence-parallel";
    let text = format!(
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nnodes 16 --nproc_per_node 8 pretrain_gpt.py --lr 3e-4 \
        --train-iters 100 --tokenizer-type NullTokenizer {flags}\n"
    );
    let path = file("scaling.sh", &text);
    let (answer, _) = json(&path, &["--quick", "--measured", "85%,gpus=16", "--measured", "40%"]);
    let found = causes(&answer);
    let share = |name: &str| found.iter().find(|(cause, _)| cause == name).map_or(0.0, |(_, share)| *share);
    assert!(share("slow-clocks") < 0.05 && share("none") < 0.05, "{found:?}");
    assert!(share("congestion") + share("slow-network") + share("straggler") + share("exposed-dp") > 0.5, "{found:?}");
    assert!(answer["diagnosis"]["causes"][0]["next"].as_str().unwrap().len() > 20);
}

#[test]
fn bad_measurements_are_named() {
    let path = script("bad.sh", GOOD);
    for (measured, words) in [
        ("fast", "number"),
        ("0 s", "not a step time"),
        ("-3 s", ""),
        ("85%", "two"),
        ("120%mfu", "share"),
        ("9 s,gpus=x", "whole number"),
        ("9 s,nodes=2", "not one of"),
        ("9 s,gpus=12", "does not run there"),
    ] {
        let output = run(&["lint", path.to_str().unwrap(), "dgx-h100-1k", "--quick", "--measured", measured]);
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{measured}: {talk}");
        assert!(talk.contains(words), "{measured}: {talk}");
    }
}

#[test]
fn files_that_are_not_there_or_not_text_are_named() {
    for args in [["lint", "/nowhere/x.sh", "dgx-h100-1k"], ["lint", env!("CARGO_BIN_EXE_meshwright"), "dgx-h100-1k"]] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("error: "));
    }
    let path = file("kind.sh", "torchrun x.py");
    let output = run(&["import", path.to_str().unwrap(), "--kind", "megatorn"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `megatron`?"));
}

#[test]
fn an_imported_model_is_a_file_that_explain_reads() {
    let path = script("model.sh", &GOOD.replace("--tp-comm-overlap", "--qk-layernorm"));
    let model = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lint-model.toml");
    let _ = std::fs::remove_file(&model);
    let args = ["import", path.to_str().unwrap(), "--model-out", model.to_str().unwrap(), "--cluster", "dgx-h100-1k"];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(out(&output).contains(&format!("meshwright explain {}", model.display())));
    let shown: Value =
        serde_json::from_str(&out(&run(&["models", model.to_str().unwrap(), "--format", "json"]))).unwrap();
    let imported: Value =
        serde_json::from_str(&out(&run(&["import", path.to_str().unwrap(), "--format", "json"]))).unwrap();
    assert_eq!(shown["parameters"]["total"], imported["parameters"]);
    assert_eq!(run(&args).status.code(), Some(2), "nothing is overwritten without --force");
}

/// A degree that was not read counts as 1 and may be what makes the plan fit: running out of memory is then no error of the file.
#[test]
fn a_plan_that_was_not_wholly_read_does_not_run_out_of_memory() {
    let degrees = "--pipeline-model-parallel-size 1 --global-batch-size 512";
    for (name, more, level) in [
        ("whole.sh", "--tensor-model-parallel-size 1", "error"),
        ("open.sh", "--tensor-model-parallel-size $MP", "warning"),
    ] {
        let (answer, _) = json(&script(name, &format!("{degrees} {more}")), &["--quick", "--set", "cluster.gpus=128"]);
        let found = findings(&answer, "out-of-memory");
        assert_eq!((found.len(), &found[0]["level"]), (1, &Value::from(level)), "{name}: {answer}");
    }
    let text = std::fs::read_to_string(script("train.sh", GOOD))
        .unwrap()
        .replace("pretrain_gpt.py", "tools/generate_samples.py");
    let (answer, _) = json(&file("generate.sh", &text), &["--quick"]);
    assert_eq!(findings(&answer, "not-training")[0]["level"], "warning", "{answer}");
    let trains = json(&script("train.sh", GOOD), &["--quick"]).0;
    assert!(findings(&trains, "not-training").is_empty());
}

/// A split that does not hold the model's layers points to its flag; one that does is legal.
#[test]
fn a_split_is_checked_against_the_model() {
    let with = |flags: &str| format!("{GOOD} {flags}").replace("--num-virtual-stages-per-pipeline-rank 5", "");
    let ends = "--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 18";
    let (answer, code) = json(&script("ends.sh", &with(ends)), &["--quick"]);
    assert_eq!((code, answer["ok"].as_bool()), (0, Some(true)), "{answer}");
    assert!(answer["plan"].as_str().is_none_or(|plan| plan.contains("split=first-18+last-18")), "{answer}");
    for (flags, named) in [
        ("--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 19", "do not divide"),
        ("--pipeline-model-parallel-layout 'Et*20|(t*20|)*2t*21L'", "places 81 layers"),
    ] {
        let (answer, code) = json(&script("split.sh", &with(flags)), &["--quick"]);
        let found = findings(&answer, "split");
        assert!(code == 1 && found.len() == 1, "{answer}");
        let message = found[0]["message"].as_str().unwrap();
        assert!(message.contains(named) && found[0]["line"] == 4, "{found:?}");
    }
}

fn levels(answer: &Value, rule: &str) -> Vec<String> {
    findings(answer, rule).iter().map(|finding| finding["level"].as_str().unwrap().to_owned()).collect()
}

/// Mistakes that stop the launch are errors; what a fork may take, and what is priced without having been read, are warnings.
#[test]
fn mistakes_that_stop_the_launch_are_errors() {
    let (slip, code) = json(&script("slip.sh", &format!("{GOOD} --overlap-grad-redcue")), &["--quick"]);
    assert_eq!((code, levels(&slip, "unknown-flag")), (1, vec!["error".to_owned()]));
    let fork = format!("{GOOD} --overlap-grad-redcue --quantum-flux-capacitor");
    let (fork, code) = json(&script("fork.sh", &fork), &["--quick"]);
    assert_eq!((code, levels(&fork, "unknown-flag")), (0, vec!["warning".to_owned(); 2]));
    for (more, message) in [
        ("--recompute-granularity full --recompute-method uniform", "without --recompute-num-layers"),
        ("--recompute-granularity selective --recompute-num-layers 1", "--recompute-num-layers with"),
    ] {
        let (answer, code) = json(&script("recompute.sh", &format!("{GOOD} {more}")), &["--quick"]);
        let found = findings(&answer, "contradiction");
        assert!(
            code == 1 && found.iter().any(|finding| finding["message"].as_str().unwrap().contains(message)),
            "{answer}"
        );
    }
    let text = std::fs::read_to_string(script("whole.sh", GOOD)).unwrap();
    let (queues, code) =
        json(&file("queues.sh", &text.replace("export CUDA_DEVICE_MAX_CONNECTIONS=1", "")), &["--quick"]);
    assert_eq!((code, levels(&queues, "connections")), (1, vec!["error".to_owned()]), "H100");
    for flag in ["--lr 3e-4", "--tokenizer-type NullTokenizer"] {
        let (answer, code) = json(&file("needed.sh", &text.replace(flag, "")), &["--quick"]);
        assert_eq!((code, levels(&answer, "missing-flag")), (1, vec!["error".to_owned()]), "{flag}");
    }
}

#[test]
fn adapters_do_not_run_out_of_memory_for_sure() {
    let swift = "NPROC_PER_NODE=8 megatron sft --model meta-llama/Meta-Llama-3-70B --micro_batch_size 4 --max_length \
    8192 --lr 1e-4";
    let (whole, _) = json(&file("swift-full.sh", swift), &["--quick", "--gpus", "8"]);
    assert_eq!(levels(&whole, "out-of-memory"), ["error"]);
    let (adapted, _) = json(&file("swift-lora.sh", &format!("{swift} --tuner_type lora")), &["--quick", "--gpus", "8"]);
    assert_eq!(levels(&adapted, "out-of-memory"), ["warning"]);
    let path = file(
        "swift-sft.sh",
        "NPROC_PER_NODE=8 swift sft --model meta-llama/Meta-Llama-3-8B --max_length 2048 --per_device_train_batch_size 2",
    );
    let read: Value =
        serde_json::from_slice(&run(&["import", path.to_str().unwrap(), "--format", "json"]).stdout).unwrap();
    assert_eq!((read["kind"].as_str(), read["plan"]["micro_batch"].as_u64()), (Some("ms-swift"), Some(2)));
    assert_eq!(findings(&read, "adapters").len(), 1, "ms-swift trains adapters unless it is told otherwise");
}
