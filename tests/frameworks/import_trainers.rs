//! Launches of Hugging Face's `Trainer` below Accelerate, DeepSpeed and ms-swift: what the named files say, and what the arguments fill.

use meshwright::import::{self, Context, FileKind, Imported, Severity};
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::workload::Recipe;

const JSON: &str = r#"{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto"},
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}"#;
const FSDP: &str = r#"{"distributed_type": "FSDP", "num_processes": 2, "mixed_precision": "bf16",
    "fsdp_config": {"fsdp_version": 2, "fsdp_activation_checkpointing": true}}"#;
const TRAINER: &str = "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 2 --max_seq_length 4096";

fn script(text: &str) -> Imported {
    let files = |name: &str| match name {
        "zero3.json" => Some(JSON.to_owned()),
        "fsdp.json" => Some(FSDP.to_owned()),
        _ => None,
    };
    let context = Context { files: &files, ..Context::alone("run.sh") };
    import::read(text, FileKind::Script, &context).unwrap_or_else(|error| panic!("{error}"))
}

fn has_setting(imported: &Imported, key: &str) -> bool {
    imported.settings.items().iter().any(|item| item.starts_with(key))
}

/// The Trainer's arguments fill a JSON's `auto`.
#[test]
fn arguments_fill_what_is_auto() {
    for launch in [
        format!("torchrun --nproc_per_node 8 train.py {TRAINER} --bf16 True --deepspeed zero3.json"),
        format!(
            "accelerate launch --num_processes 8 --mixed_precision bf16 --use_deepspeed \
             --deepspeed_config_file zero3.json train.py {TRAINER}"
        ),
    ] {
        let imported = script(&launch);
        let plan = &imported.plan;
        assert_eq!((plan.micro_batch, imported.accumulation), (4, 2), "{launch}");
        assert_eq!(imported.work.global_batch, Some(64), "{launch}");
        assert_eq!((plan.zero, plan.offload.optimizer), (ZeroStage::Three, 1.0), "{launch}");
        assert!(imported.findings.iter().all(|finding| finding.level == Severity::Note), "{:?}", imported.findings);
    }
}

/// A stage that nobody read is an error.
#[test]
fn a_json_that_is_not_there_is_an_error() {
    let launch = "accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file other.json train.py";
    let imported = script(&format!("{launch} {TRAINER}"));
    let unread = imported.findings.iter().find(|finding| finding.rule == "unread-file").expect("a finding");
    assert_eq!(unread.level, Severity::Error);
}

/// Accelerate's own keys of DeepSpeed are what it writes into the JSON.
#[test]
fn keys_of_accelerate_are_those_of_its_json() {
    let keys = "--use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --mixed_precision bf16";
    let [own, named] = [keys, "--use_deepspeed --deepspeed_config_file zero3.json --mixed_precision bf16"]
        .map(|options| script(&format!("accelerate launch --num_processes 8 {options} train.py {TRAINER}")));
    assert_eq!((own.plan, own.work.recipe), (named.plan, named.work.recipe));
}

/// ms-swift trains with the engine that Accelerate's file sets up.
#[test]
fn swift_takes_the_engine_of_its_launcher() {
    let swift = "swift/cli/sft.py --model Qwen/Qwen2.5-7B --tuner_type full --per_device_train_batch_size 1";
    let imported = script(&format!("accelerate launch --config_file fsdp.json {swift}"));
    assert_eq!((imported.world, imported.plan.zero), (Some(2), ZeroStage::Three));
    assert_eq!(imported.plan.recompute, Recompute::Full);
    // Without an engine the weights are updated in 16 bits.
    let alone = script(&format!("CUDA_VISIBLE_DEVICES=0 python {swift} --torch_dtype bfloat16"));
    assert_eq!(alone.work.recipe, Recipe { weight: 2.0, gradient: 2.0, master: 0.0, state: 4.0 });
}

#[test]
fn words_of_the_trainer_are_read() {
    let launch = |more: &str| script(&format!("torchrun --nproc_per_node 8 train.py {TRAINER} --bf16 True {more}"));
    assert!(launch("--fsdp \"full_shard auto_wrap\"").plan.offload.optimizer.abs() < 1e-9);
    assert!((launch("--fsdp \"full_shard auto_wrap offload\"").plan.offload.optimizer - 1.0).abs() < 1e-9);
    let warned = |imported: &Imported| imported.findings.iter().any(|finding| finding.message.contains("adafactor"));
    assert!(warned(&launch("--optim adafactor")) && !warned(&launch("--optim adamw_torch")));
    // 32 chunks of tokens, of logits in fp32.
    let liger = launch("--use_liger_kernel True");
    assert!(has_setting(&liger, "stack.logit_bytes=0.12"), "{:?}", liger.settings);
    assert!(!has_setting(&launch("--use_liger_kernel False"), "stack.logit_bytes"));
}

/// axolotl's plugin is on unless it is switched off.
#[test]
fn cut_cross_entropy_is_on_with_its_plugin() {
    let yaml = |more: &str| {
        let text = format!(
            "base_model: NousResearch/Meta-Llama-3.1-8B\nmicro_batch_size: 1\nsequence_len: 8192\nbf16: true\n\
             plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n{more}"
        );
        let kind = FileKind::named("axolotl").expect("a kind");
        import::read(&text, kind, &Context::alone("run.yaml")).unwrap_or_else(|error| panic!("{error}"))
    };
    assert!(has_setting(&yaml(""), "stack.logit_bytes"));
    assert!(!has_setting(&yaml("cut_cross_entropy: false\n"), "stack.logit_bytes"));
    let tiled = yaml("tiled_mlp: true\n");
    assert!(tiled.findings.iter().any(|finding| finding.rule == "not-modelled"), "{:?}", tiled.findings);
}
