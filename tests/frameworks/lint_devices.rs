//! `lint` against devices and engines: number formats and exchanges that a GPU has, and stages and schedules that an engine runs.
#![cfg(feature = "cli")]

use std::path::Path;

use serde_json::Value;

use super::lint::{GOOD, file, findings, json, out, run, script};

/// Levels and remedies of a rule's findings in a script on a cluster.
fn findings_of(path: &Path, cluster: &str, rule: &str) -> Vec<(String, String)> {
    findings_with(path, cluster, rule, &[])
}

/// Levels and remedies of a rule's findings, asked with more arguments.
fn findings_with(path: &Path, cluster: &str, rule: &str, more: &[&str]) -> Vec<(String, String)> {
    let output = run(&[&["lint", path.to_str().unwrap(), cluster, "--quick", "--format", "json"], more].concat());
    let answer: Value = serde_json::from_str(&out(&output)).unwrap();
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    findings(&answer, rule).into_iter().map(|finding| (text(finding, "level"), text(finding, "expected"))).collect()
}

#[test]
fn formats_are_those_of_the_gpus() {
    let narrow =
        |name: &str, flags: &str| script(name, &format!("{GOOD} --global-batch-size 512 --vocab-size 128256 {flags}"));
    let mx = narrow("mx.sh", "--fp8-format e4m3 --fp8-recipe mxfp8");
    let four = narrow("four.sh", "--fp4-format e2m1 --fp4-recipe nvfp4");
    let blocks = narrow("blocks.sh", "--fp8-format e4m3 --fp8-recipe blockwise");
    let scaled = narrow("scaled.sh", "--fp8-format hybrid --fp8-recipe delayed");
    for (path, cluster, level, remedy) in [
        (&mx, "dgx-h100-1k", "error", "--fp8-recipe blockwise"),
        (&four, "dgx-h100-1k", "error", "--fp8-recipe blockwise"),
        (&four, "mi355x-512", "error", "--precision mxfp8"),
        (&mx, "mi300x-512", "error", "--fp8-recipe tensorwise"),
        (&blocks, "mi355x-512", "error", "--precision mxfp8"),
        (&scaled, "dgx-a100-1k", "error", "--precision bf16"),
        (&blocks, "hgx-b200-512", "warning", "--fp8-recipe mxfp8"),
    ] {
        let found = findings_of(path, cluster, "number-format");
        assert_eq!(found.len(), 1, "{path:?} on {cluster}");
        assert!(found[0].0 == level && found[0].1.contains(remedy), "{path:?} on {cluster}: {found:?}");
        assert!(findings_of(path, cluster, "no-problem").is_empty(), "{path:?} on {cluster}");
    }
    for (path, cluster) in
        [(&mx, "hgx-b200-512"), (&blocks, "dgx-h100-1k"), (&scaled, "mi300x-512"), (&mx, "mi355x-512")]
    {
        assert!(findings_of(path, cluster, "number-format").is_empty(), "{path:?} on {cluster}");
    }
    let volta = findings_of(&script("volta.sh", GOOD), "checks/clusters/jean-zay-v100.toml", "number-format");
    assert!(volta.len() == 1 && volta[0].0 == "warning" && volta[0].1.contains("--precision fp16"), "{volta:?}");
}

/// Volta runs neither FlashAttention nor cuDNN's fused attention nor Transformer Engine; Ampere lacks FlashAttention 3.
#[test]
fn attention_kernels_are_those_of_the_gpus() {
    let volta = "checks/clusters/jean-zay-v100.toml";
    let with = |name: &str, flags: &str| script(name, &format!("{GOOD} --global-batch-size 512 {flags}"));
    let fused = with("fused.sh", "--attention-backend fused");
    let flash = with("flash.sh", "--use-flash-attn");
    let third = with("third.sh", "--attention-backend flash --flash-attention-version 3");
    let engine = with("engine.sh", "--transformer-impl transformer_engine");
    let plain = with("plain.sh", "--transformer-impl local --attention-backend unfused");
    let axolotl = |name: &str, line: &str| {
        file(
            name,
            &format!(
                "base_model: x\nmicro_batch_size: 1\nsequence_len: 2048\nfp16: true\noptimizer: adamw_torch_fused\n{line}\n"
            ),
        )
    };
    let named = axolotl("named-axolotl.yaml", "attn_implementation: flash_attention_2");
    let switch = axolotl("switch-axolotl.yaml", "flash_attention: true");
    let sdpa = axolotl("sdpa-axolotl.yaml", "attn_implementation: sdpa");
    for (path, cluster, rule, remedy) in [
        (&fused, volta, "attention-kernel", "--attention-backend unfused"),
        (&flash, volta, "attention-kernel", "--attention-backend unfused"),
        (&third, "dgx-a100-1k", "attention-kernel", "--attention-backend unfused"),
        (&engine, volta, "transformer-engine", "--transformer-impl local"),
        (&named, volta, "attention-kernel", "attn_implementation: sdpa"),
        (&switch, volta, "attention-kernel", "flash_attention: false"),
    ] {
        let found = findings_with(path, cluster, rule, &["--model", "llama3-8b"]);
        assert_eq!(found.len(), 1, "{path:?} on {cluster}");
        assert!(found[0].0 == "error" && found[0].1.contains(remedy), "{path:?} on {cluster}: {found:?}");
    }
    for (path, cluster) in [
        (&fused, "dgx-a100-1k"),
        (&third, "dgx-h100-1k"),
        (&flash, "mi300x-512"),
        (&engine, "dgx-a100-1k"),
        (&plain, volta),
        (&sdpa, volta),
        (&named, "dgx-a100-1k"),
    ] {
        for rule in ["attention-kernel", "transformer-engine"] {
            let found = findings_with(path, cluster, rule, &["--model", "llama3-8b"]);
            assert!(found.is_empty(), "{path:?} on {cluster}: {found:?}");
        }
    }
}

/// A rack that a cluster splits is still of its device: files name the backend that the price is of, HybridEP on any part of a rack.
#[test]
fn parts_of_racks_exchange_as_racks_do() {
    use meshwright::frameworks::fused_exchange_backend;
    for (cluster, gpus, parts, expected) in [
        ("gb200-nvl72-1152", 72, &[72, 36, 8, 4][..], "hybridep"),
        ("gb300-nvl72-1152", 72, &[72, 8], "hybridep"),
        ("dgx-h100-64", 64, &[8, 4], "deepep"),
    ] {
        for part in parts {
            let question = serde_json::json!({
                "model": "qwen3-30b-a3b", "cluster": cluster,
                "options": {"gpus": gpus, "set": [format!("cluster.scale_up_gpus={part}")]},
            });
            let question: meshwright::question::Question = serde_json::from_value(question).unwrap();
            let problem = question.problem(None).unwrap().value;
            assert_eq!(problem.cluster().scale_up.gpus, *part, "{cluster}");
            assert_eq!(fused_exchange_backend(&problem), Some(expected), "{cluster} in domains of {part}");
            assert_eq!(problem.cluster().gpu.fuses_by_hybrid_ep(), expected == "hybridep", "{cluster}");
        }
    }
}

#[test]
fn exchanges_with_experts_are_those_of_the_gpus() {
    let flex = |name: &str, backend: &str| {
        let more = "--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1024 --moe-token-dispatcher-type flex \
                    --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --num-layers 16 --hidden-size 2048 \
                    --global-batch-size 512";
        script(name, &format!("{more} {backend}"))
    };
    let deep = flex("deep.sh", "--moe-flex-dispatcher-backend deepep");
    let unnamed = flex("unnamed.sh", "");
    let hybrid = flex("hybrid.sh", "--moe-flex-dispatcher-backend hybridep");
    let nccl = flex("nccl.sh", "--moe-flex-dispatcher-backend ncclep");
    for (path, cluster, level, remedy) in [
        (&deep, "mi300x-512", "error", "alltoall"),
        (&unnamed, "mi300x-512", "error", "alltoall"),
        (&hybrid, "mi355x-512", "error", "alltoall"),
        (&deep, "gb200-nvl72-1152", "warning", "hybridep"),
        (&nccl, "dgx-a100-1k", "error", "deepep"),
    ] {
        let found = findings_of(path, cluster, "dispatcher");
        assert_eq!(found.len(), 1, "{path:?} on {cluster}");
        assert!(found[0].0 == level && found[0].1.contains(remedy), "{path:?} on {cluster}: {found:?}");
    }
    for (path, cluster) in [
        (&deep, "dgx-h100-1k"),
        (&deep, "dgx-a100-1k"),
        (&hybrid, "gb300-nvl72-1152"),
        (&hybrid, "dgx-h100-1k"),
        (&nccl, "dgx-h100-1k"),
    ] {
        assert!(findings_of(path, cluster, "dispatcher").is_empty(), "{path:?} on {cluster}");
    }
}

#[test]
fn stage_0_of_deepspeed_is_what_its_engine_does() {
    let written = |name: &str, more: &str| {
        let text = format!(
            "{{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {{\"stage\": 0}}, {more}}}"
        );
        file(name, &text)
    };
    let linted = |path: &Path| {
        let output =
            run(&["lint", path.to_str().unwrap(), "dgx-h100-8", "--model", "llama3-8b", "--quick", "--format", "json"]);
        let answer: Value = serde_json::from_str(&out(&output)).unwrap();
        let found = findings(&answer, "stage-0").into_iter().cloned().collect::<Vec<_>>();
        (answer["command"].to_string(), found)
    };
    let config = |name: &str, more: &str| linted(&written(name, more));
    let (plan, found) = config("ds-bf16.json", "\"bf16\": {\"enabled\": true}");
    assert!(plan.contains("zero=0") && found.is_empty(), "{plan} {found:?}");
    for (name, more) in [
        ("ds-wide.json", "\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"fp32\"}"),
        ("ds-pipe.json", "\"bf16\": {\"enabled\": true}, \"pipeline\": {\"stages\": 2}"),
    ] {
        let (plan, found) = config(name, more);
        assert!(plan.contains("zero=1"), "{plan}");
        assert_eq!((found.len(), found[0]["level"].as_str()), (1, Some("warning")), "{found:?}");
        assert!(found[0]["expected"].as_str().unwrap().contains("stage"), "{found:?}");
    }
    let pipeline = written("ds-one.json", "\"bf16\": {\"enabled\": true}, \"pipeline\": {\"stages\": 2}");
    let launch = format!("torchrun --nproc-per-node 2 train.py --deepspeed --deepspeed_config {}", pipeline.display());
    let (plan, found) = linted(&file("ds-one.sh", &launch));
    assert!(plan.contains("zero=0") && found.is_empty(), "one replica has nothing to shard over: {plan} {found:?}");
}

/// A torchtitan configuration of Llama 3 8B in a pipeline of four, by schedule and sequences of a replica.
fn pipelined(name: &str, schedule: &str, local: u32) -> (Value, i32) {
    let text = format!(
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = {local}\nseq_len = 8192\n[parallelism]\n\
         pipeline_parallel_degree = 4\ndata_parallel_shard_degree = 8\npipeline_parallel_schedule = \"{schedule}\"\n\
         [activation_checkpoint]\nmode = \"full\"\n"
    );
    let path = file(name, &text);
    json(&path, &["--quick", "--gpus", "32", "--global-batch", &(local * 8).to_string()])
}

#[test]
fn pipelines_of_torch_take_the_micro_batches_that_it_takes() {
    let (few, code) = pipelined("few.toml", "1F1B", 3);
    assert_eq!((code, findings(&few, "few-micro-batches").len()), (1, 1), "{few}");
    let (gpipe, code) = pipelined("gpipe.toml", "GPipe", 3);
    assert_eq!((code, findings(&gpipe, "few-micro-batches").len()), (0, 0), "{gpipe}");
    // Two rounds of five: not Megatron's, and not priced, but torch runs it.
    let (uneven, code) = pipelined("uneven.toml", "Interleaved1F1B", 10);
    assert_eq!((code, findings(&uneven, "interleaved-batch").len()), (0, 0), "{uneven}");
    assert!(findings(&uneven, "not-modelled")[0]["message"].as_str().unwrap().contains("rounds"), "{uneven}");
    let (refused, code) = pipelined("refused.toml", "Interleaved1F1B", 11);
    assert_eq!((code, findings(&refused, "interleaved-batch").len()), (1, 1), "{refused}");
}

/// A script is priced by the stack that plans have on the vendor's devices, and PyTorch's launchers start on no TPU.
#[test]
fn the_device_decides_the_stack_and_who_launches() {
    let path = script("vendor.sh", GOOD);
    let stack = |cluster: &str| {
        let output = run(&["lint", path.to_str().unwrap(), cluster, "--quick", "--gpus", "128"]);
        out(&output).lines().next().unwrap_or_default().to_owned()
    };
    assert!(stack("mi300x-512").ends_with("Megatron-LM on ROCm 2025"), "{}", stack("mi300x-512"));
    assert!(stack("h100-512").ends_with("NeMo 25.x"), "{}", stack("h100-512"));
    assert_eq!(findings_of(&path, "tpu-v5p-1024", "device").len(), 1);
    assert!(findings_of(&path, "mi300x-512", "device").is_empty());
}
