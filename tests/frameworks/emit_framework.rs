//! Files of single frameworks: flags, limits and engines of their own.

use crate::details::emitted;
use std::process::Output;

use super::emit::{err, folder, out, run, way_out};

/// Files of a command that succeeded, else its refusal as one line.
fn files_or_refusal(output: &Output) -> String {
    if output.status.success() { out(output) } else { err(output).split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// Megatron FSDP has a flag of its own for gradients in fp32, and a reader takes it for what it is.
#[test]
fn megatron_fsdp_adds_gradients_in_fp32() {
    let emitted = |framework: &str, zero: u8| {
        let plan = format!("dp=8 zero={zero} mbs=1");
        let files = run(&["emit", framework, "llama3-8b", "dgx-h100-8", "--optimizer", "megatron", "--plan", &plan]);
        assert!(files.status.success(), "{plan}: {}", err(&files));
        out(&files)
    };
    let flag = "--megatron-fsdp-main-grads-dtype fp32";
    assert!(emitted("megatron", 3).contains(&format!("    {flag}\n")), "{}", emitted("megatron", 3));
    assert!(!emitted("megatron", 1).contains("megatron-fsdp-main-grads-dtype"));
    assert!(emitted("bridge", 2).contains("cfg.ddp.megatron_fsdp_main_grads_dtype = torch.float32\n"));
    let folder = folder("fsdp-grads");
    std::fs::create_dir_all(&folder).unwrap();
    let findings = |text: &str| {
        let path = folder.join("train.sh");
        std::fs::write(&path, text).unwrap();
        let read = out(&run(&["import", path.to_str().unwrap(), "--format", "json"]));
        assert!(read.contains("\"zero=3\"") || read.contains("zero=3 "), "{read}");
        read
    };
    let warning = "does not reach Megatron FSDP";
    assert!(!findings(&emitted("megatron", 3)).contains(warning));
    assert!(findings(&emitted("megatron", 3).replace(flag, "")).contains(warning));
}

#[test]
fn what_torchtitan_and_accelerate_check_at_the_start_is_refused() {
    let tied = |plan: &str| {
        let tied = ["--set", "model.tied_embeddings=true", "--plan", plan];
        run(&[&["emit", "torchtitan", "qwen3-8b", "dgx-h100-64"][..], &tied].concat())
    };
    assert!(err(&tied("tp=1 pp=2 zero=3")).contains("tied embeddings"), "{}", err(&tied("tp=1 pp=2 zero=3")));
    assert!(tied("tp=1 pp=1 zero=3").status.success(), "{}", err(&tied("tp=1 pp=1 zero=3")));
    let (why, near) = way_out("accelerate", "llama3-8b", "tp=1 cp=8 zero=3 shard=8 cp-kind=allgather");
    assert!(why.contains("`dp_shard_size` over 1") && !near.contains("shard="), "{why}");
    for (framework, model, plan) in [
        ("torchtitan", "qwen3-32b", "tp=16 pp=1 zero=3"),
        ("nanotron", "qwen2.5-72b", "tp=16 pp=2 zero=1 recompute=full"),
    ] {
        let (why, near) = way_out(framework, model, plan);
        assert!(why.contains("8 key-value heads") && near.contains("tp=8"), "{why}");
    }
    // 48 ranks and 8 experts: each expert's 4,096 rows are cut, and 48 does not divide them.
    let uneven =
        |plan: &str| run(&["emit", "torchtitan", "mixtral-8x7b", "dgx-h100-64", "--gpus", "48", "--plan", plan]);
    let refusal = err(&uneven("tp=1 pp=1 zero=3"));
    assert!(refusal.contains("8 experts") && refusal.contains("shard=16"), "{refusal}");
    assert!(uneven("tp=1 pp=1 zero=3 shard=16").status.success(), "{}", err(&uneven("tp=1 pp=1 zero=3 shard=16")));
    // The copies of a shard group count: nine ranks in groups of three, which do not divide 14,336 rows.
    let copies = ["--gpus", "36", "--plan", "tp=1 pp=4 dp=9 schedule=interleaved vpp=2 zero=3 shard=3 reshard=off"];
    let refusal = err(&run(&[&["emit", "torchtitan", "mixtral-8x7b", "dgx-h100-64"][..], &copies].concat()));
    assert!(refusal.contains("8 experts on more ranks"), "{refusal}");
    let one = ["emit", "accelerate", "llama3-8b", "dgx-h100-64", "--gpus", "1", "--plan", "zero=3"];
    let refused = run(&one);
    assert!(err(&refused).contains("nothing to shard over"), "{}", err(&refused));
}

/// TPUs have one framework; its axes lie inside a slice first, and a host of TPUs is no node of Slurm.
#[test]
fn maxtext_is_written_for_tpus_and_gpus() {
    let emitted = |cluster: &str, plan: &str| {
        let asked =
            ["emit", "maxtext", "llama3-70b", cluster, "--global-batch", "2048", "--plan", plan, "--steps", "5"];
        run(&asked)
    };
    let tpus = out(&emitted("tpu-v5p-1024", "tp=8 zero=3 recompute=full"));
    for wanted in [
        "hardware: tpu",
        "decoder_block: llama2",
        "ici_tensor_sequence_parallelism: 8",
        "ici_fsdp_parallelism: 128",
        "per_device_batch_size: 0.125",
        "gradient_accumulation_steps: 16",
        "remat_policy: full",
    ] {
        assert!(tpus.contains(wanted), "{wanted}: {tpus}");
    }
    assert!(!tpus.contains("srun") && !tpus.contains("JAX_COORDINATOR_IP"), "{tpus}");
    // MaxText takes the policy `none` as full recomputation.
    for (recompute, policy) in [
        ("none", "minimal_with_context"),
        ("per-op", "minimal"),
        ("core_attn+mlp", "save_dot_except_mlp"),
        ("per-op offload-activations=1", "minimal_offloaded"),
    ] {
        let kept = out(&emitted("tpu-v5p-1024", &format!("tp=8 zero=3 recompute={recompute}")));
        assert!(kept.contains(&format!("remat_policy: {policy}\n")), "{kept}");
    }
    let gpus = out(&emitted("h100-512", "tp=8 sp=off zero=3 recompute=full"));
    for wanted in [
        "hardware: gpu_multiprocess",
        "max_segments_per_seq: 32",
        "ici_tensor_parallelism: 8",
        "dcn_fsdp_parallelism: 64",
        "JAX_COORDINATOR_IP",
        "srun",
    ] {
        assert!(gpus.contains(wanted), "{wanted}: {gpus}");
    }
    for (plan, why) in [
        ("tp=8 pp=2", "no pipeline"),
        ("zero=1", "shards weights too"),
        ("cp=2 cp-kind=allgather zero=0", "context and expert axes"),
        ("recompute=core_attn zero=3", "outputs of all matmuls, of all but the MLP's, or none"),
    ] {
        let refused = err(&emitted("tpu-v5p-1024", plan));
        assert!(
            refused.contains("no MaxText files are written for this") && refused.contains(why),
            "{plan}: {refused}"
        );
    }
    for (model, why) in [("deepseek-v3", "latent attention"), ("gpt3-175b", "biases"), ("gemma3-27b", "norms a layer")]
    {
        let refused = err(&run(&["emit", "maxtext", model, "tpu-v5p-1024", "--plan", "zero=3"]));
        assert!(refused.contains(why), "{model}: {refused}");
    }
    let amd = err(&run(&["emit", "maxtext", "llama3-8b", "mi300x-512", "--plan", "zero=3"]));
    assert!(amd.contains("TPUs and for NVIDIA's GPUs"), "{amd}");
}

/// DeepSpeed multiplies micro-batch and accumulation by all ranks beside AutoTP, and refuses the batch of the replicas.
#[test]
fn autotp_has_no_batch_that_deepspeed_refuses() {
    let emitted = |plan: &str| {
        let folder = folder("autotp");
        let path = folder.to_str().unwrap().to_owned();
        let done = run(&[
            "emit",
            "deepspeed",
            "llama3-8b",
            "dgx-h100-8",
            "--global-batch",
            "64",
            "--plan",
            plan,
            "--out",
            &path,
        ]);
        assert!(done.status.success(), "{}", err(&done));
        let read = out(&run(&["import", &format!("{path}/deepspeed.sh"), "--format", "json"]));
        assert!(read.contains("\"global_batch\": 64"), "{read}");
        std::fs::read_to_string(folder.join("ds_config.json")).unwrap()
    };
    assert!(!emitted("tp=2 zero=2 sp=off").contains("\"train_batch_size\""));
    assert!(emitted("zero=2").contains("\"train_batch_size\": 64"));
}

/// ms-swift's engine is that of the stack: Megatron core, DeepSpeed or FSDP2.
#[test]
fn ms_swift_trains_by_the_engine_of_the_stack() {
    let of = |stack: &str, plan: &str, more: &[&str]| {
        let base = ["emit", "ms-swift", "llama3-8b", "dgx-h100-64", "--stack", stack, "--plan", plan];
        files_or_refusal(&run(&[&base[..], more].concat()))
    };
    let core = of("nemo-25", "tp=2 dp=32 zero=1", &[]);
    assert!(core.contains("megatron sft ") && !core.contains("swift sft "), "{core}");
    let zero = of("deepspeed-zero3-2022", "cp=4 cp-kind=a2a dp=16 zero=3 recompute=full", &[]);
    for part in ["swift sft ", "--sequence_parallel_size 4", "--deepspeed ds_config.json", "--tuner_type full"] {
        assert!(zero.contains(part), "{part} in {zero}");
    }
    assert!(!zero.contains("train_batch_size\": 128"), "the Trainer counts 64 replicas: {zero}");
    let lora = of("fsdp-eager-2023", "dp=64 zero=3 reshard=off recompute=full", &["--lora"]);
    for part in [
        "--fsdp fsdp_config.json",
        "\"reshard_after_forward\": false",
        "\"activation_checkpointing\": true",
        "LORA_RANK",
    ] {
        assert!(lora.contains(part), "{part} in {lora}");
    }
    for (stack, plan, why) in [
        ("fsdp-eager-2023", "dp=64 zero=0", "weights in 16 bits alone"),
        ("fsdp-eager-2023", "cp=4 cp-kind=a2a dp=16 zero=3", "no example of sequence parallelism over FSDP2"),
        ("deepspeed-zero3-2022", "cp=4 cp-kind=p2p dp=16 zero=3", "sequence parallelism is Ulysses"),
        ("deepspeed-zero3-2022", "tp=2 dp=32 zero=1", "counts every rank as a replica"),
        ("fsdp-eager-2023", "dp=64 zero=3 shard=8", "shards over all replicas"),
    ] {
        let refused = of(stack, plan, &[]);
        assert!(refused.contains(why), "{stack} {plan}: {refused}");
    }
}

/// An experiment undoes what Primus' presets set and the plan does not, and is of AMD's GPUs.
#[test]
fn primus_overrides_its_presets() {
    let of = |cluster: &str, more: &[&str]| {
        files_or_refusal(&run(&[&["emit", "primus", "llama3-8b", cluster, "--gpus", "16"], more].concat()))
    };
    let plain = of("mi300x-512", &["--plan", "tp=2 sp=off zero=0", "--optimizer", "megatron", "--precision", "fp16"]);
    for part in [
        "model: language_model.yaml",
        "tensor_model_parallel_size: 2",
        "fp16: true",
        "bf16: false",
        "sequence_parallel: false",
        "use_distributed_optimizer: false",
        "finetune: false",
        "add_position_embedding: true",
        "train_data_path: ${DATA}",
        "export NNODES=2 GPUS_PER_NODE=8",
        "primus-cli direct -- train pretrain --config primus.yaml",
        ": \"${DATA:?set DATA to",
    ] {
        assert!(plain.contains(part), "{part} in {plain}");
    }
    let timing = of("mi300x-512", &["--plan", "zero=1", "--steps", "20"]);
    assert!(timing.contains("mock_data: true") && !timing.contains("DATA"), "{timing}");
    assert!(timing.contains("train_iters: 20") && timing.contains("save: null"), "{timing}");
    for (cluster, more, why) in [
        ("dgx-h100-64", &["--plan", "zero=1"][..], "its launcher and its checks are ROCm's"),
        ("mi300x-512", &["--plan", "zero=1", "--set", "stack.attention=fa2"], "does not run on ROCm"),
        ("mi300x-512", &["--plan", "zero=1", "--optimizer", "muon"], "`muon` runs without overlap"),
    ] {
        let refused = of(cluster, more);
        assert!(refused.contains(why), "{refused}");
    }
    let mixture = ["emit", "primus", "mixtral-8x7b", "mi300x-512", "--gpus", "16"];
    let refused = files_or_refusal(&run(&[&mixture[..], &["--plan", "tp=2 ep=1 etp=2 dispatcher=deepep"]].concat()));
    assert!(refused.contains("Primus-Turbo's"), "{refused}");
}

/// A model read from `config.json`: MiMo-V2 has narrow values, which no framework with sizes of its own expresses; Hy3
/// is all flags.
#[test]
fn models_of_hugging_face_are_written_whole_or_refused_by_the_part() {
    let file = |name: &str| format!("{}/tests/hf/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let emitted = |framework: &str, name: &str| {
        run(&["emit", framework, &file(name), "h100-512", "--global-batch", "1024", "--plan", "tp=4 pp=4 ep=16 zero=1"])
    };
    for framework in ["megatron", "megatron-bridge", "torchtitan", "maxtext", "nanotron", "olmo-core", "ms-swift"] {
        let refused = err(&emitted(framework, "mimo-v2-flash"));
        assert!(refused.contains("values are narrower than their keys"), "{framework}: {refused}");
    }
    let hy3 = out(&emitted("megatron", "hy3"));
    for flag in [
        "--moe-layer-freq '([0]+[1]*79)'",
        "--moe-shared-expert-intermediate-size 1536",
        "--moe-router-score-function sigmoid",
        "--moe-router-enable-expert-bias",
        "--moe-router-topk-scaling-factor 2.826",
        "--qk-layernorm",
    ] {
        assert!(hy3.contains(flag), "{flag}: {hy3}");
    }
}

/// A gate for each head is for frameworks that load the class; Megatron's is for each element.
#[test]
fn gates_for_each_head_are_for_frameworks_that_load_their_class() {
    let loaded = emitted("accelerate", "laguna-class", "dp=512 zero=3 mbs=1");
    assert!(loaded.contains("laguna-class"), "{loaded}");
    let refused = emitted("megatron", "laguna-class", "dp=512 zero=1 mbs=1");
    assert!(refused.contains("a gate for each head: its gate is for each element"), "{refused}");
    for framework in ["torchtitan", "nanotron", "gpt-neox", "llm-foundry"] {
        let refused = emitted(framework, "laguna-class", "dp=512 zero=1 mbs=1");
        assert!(refused.contains("gates"), "{framework}: {refused}");
    }
}

/// The script that launches a program of Megatron-Bridge is read as the program that stands beside it.
#[test]
fn a_script_of_bridge_is_read_as_its_program() {
    let folder = folder("bridge-launch");
    let path = folder.to_str().unwrap();
    let made = run(&["emit", "megatron-bridge", "llama3-8b", "dgx-h100-64", "--out", path]);
    assert!(made.status.success(), "{}", err(&made));
    let linted = |file: &str| {
        let output = run(&["lint", folder.join(file).to_str().unwrap(), "dgx-h100-64", "--quick", "--format", "json"]);
        let answer: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        (answer["prediction"]["step_time_s"].as_f64(), answer["ok"].clone())
    };
    let (script, program) = (linted("megatron_bridge.sh"), linted("megatron_bridge.py"));
    assert!(script.0.is_some() && script == program, "{script:?}, {program:?}");
}
