//! ms-swift's command lines and configurations, for Megatron core and for Hugging Face's `Trainer`.

use meshwright::frameworks::MS_SWIFT;
use meshwright::import::{self, Context, FileKind, Imported, Severity};
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::stack::{Dispatcher, Family};
use meshwright::workload::Half;

fn script(text: &str) -> Imported {
    let imported = import::read(text, FileKind::Script, &Context::alone("sft.sh")).unwrap_or_else(|e| panic!("{e}"));
    assert!(imported.findings.iter().all(|finding| finding.level != Severity::Error), "{:?}", imported.findings);
    imported
}

fn file(name: &str, text: &str) -> Imported {
    let kind = import::kind_of(name, text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kind, FileKind::Of(&MS_SWIFT));
    import::read(text, kind, &Context::alone(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// Defaults of `swift/trainers/arguments.py` and `swift/arguments/sft_args.py`.
#[test]
fn its_trainer_has_defaults_of_its_own() {
    let plain = script("NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-8B --tuner_type full --max_length 4096");
    assert_eq!((plain.kind, plain.family, plain.world), ("ms-swift", Family::Fsdp, Some(4)));
    assert_eq!((plain.plan.zero, plain.plan.micro_batch, plain.plan.recompute), (ZeroStage::Zero, 1, Recompute::Full));
    assert_eq!(plain.work.global_batch, Some(16), "4 micro-batches of 4 replicas: 16 sequences at the least");
    assert_eq!((plain.work.seq_len, plain.work.half), (Some(4096), Half::Bf16));
    let wide = script(
        "NPROC_PER_NODE=8 NNODES=4 swift pt --model Qwen/Qwen3-8B --per_device_train_batch_size 2 --deepspeed zero3 \
         --gradient_checkpointing false --torch_dtype float16",
    );
    assert_eq!(wide.settings.items(), [""; 0], "its `zero3` has `overlap_comm: false`");
    assert_eq!(
        (wide.family, wide.plan.zero, wide.plan.recompute),
        (Family::Deepspeed, ZeroStage::Three, Recompute::None)
    );
    assert_eq!((wide.work.global_batch, wide.work.half), (Some(64), Half::Fp16), "one micro-batch is over 16 already");
    assert!(
        wide.findings.iter().any(|finding| finding.rule == "adapters"),
        "it trains adapters unless it is told otherwise"
    );
    let sharded =
        script("NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --fsdp fsdp2 --gradient_checkpointing false");
    assert_eq!(
        (sharded.plan.zero, sharded.plan.recompute),
        (ZeroStage::Three, Recompute::Full),
        "as its preset has it"
    );
}

#[test]
fn its_trainer_splits_sequences_and_tensors() {
    let split = script(
        "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --sequence_parallel_size 2 --deepspeed zero2 \
         --per_device_train_batch_size 1 --gradient_accumulation_steps 4",
    );
    assert_eq!((split.plan.layout.cp, split.plan.layout.dp, split.work.global_batch), (2, 4, Some(16)));
    let tensors =
        script("NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --deepspeed zero1 --deepspeed_autotp_size 4");
    assert_eq!((tensors.plan.layout.tp, tensors.plan.layout.dp, tensors.plan.zero), (4, 2, ZeroStage::One));
    let copies = script("NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --sequence_parallel_size 8");
    assert_eq!((copies.plan.layout.cp, copies.plan.layout.dp), (8, 1));
}

/// Defaults of `swift/megatron/arguments/megatron_args.py`.
#[test]
fn its_megatron_has_defaults_of_its_own() {
    let of = |flags: &str| {
        script(&format!("NPROC_PER_NODE=8 NNODES=2 megatron sft --model Qwen/Qwen3-30B-A3B --max_length 4096 {flags}"))
    };
    let usual = of("--tensor_model_parallel_size 2 --expert_model_parallel_size 4");
    assert_eq!((usual.kind, usual.world, usual.work.global_batch), ("ms-swift", Some(16), Some(16)));
    assert_eq!((usual.plan.layout.tp, usual.plan.layout.ep, usual.plan.layout.etp), (2, 4, 1));
    assert!(!usual.plan.sequence_parallel && usual.plan.zero == ZeroStage::One);
    let other = of(
        "--fp16 true --recompute_granularity none --use_distributed_optimizer false --pipeline_model_parallel_size 2 \
                    --virtual_pipeline_model_parallel_size 4",
    );
    assert_eq!(
        (other.work.half, other.plan.recompute, other.plan.zero),
        (Half::Fp16, Recompute::None, ZeroStage::Zero)
    );
    assert_eq!(other.plan.schedule.virtual_stages(), 4);
    assert_eq!(of("--use_megatron_fsdp true").plan.zero, ZeroStage::Three, "`optim_grads_params` is its default");
    assert_eq!(of("--torch_dtype float16").work.half, Half::Fp16);
}

/// Variables before a command are that command's, whatever stands before a later one.
#[test]
fn variables_before_a_launch_are_its_own() {
    let text = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --max_length 4096 --tensor_model_parallel_size 2 \\\n  \
                --micro_batch_size 2 --global_batch_size 8\nNPROC_PER_NODE=1 megatron export --to_hf true\n";
    assert_eq!(script(text).world, Some(8));
}

#[test]
fn its_configurations_are_read() {
    let megatron = file(
        "sft.yaml",
        "ENV:\n  NPROC_PER_NODE: 4\nmodel: Qwen/Qwen3-30B-A3B\ntuner_type: full\ndataset:\n  - a\n  - b\nmicro_batch_size: 2\n\
         max_length: 2048\nexpert_model_parallel_size: 4\nrecompute_granularity: full\nrecompute_method: uniform\n\
         recompute_num_layers: 1\n",
    );
    assert_eq!((megatron.family, megatron.world, megatron.plan.layout.ep), (Family::Megatron, Some(4), 4));
    assert_eq!((megatron.plan.micro_batch, megatron.plan.recompute), (2, Recompute::Full));
    let json = r#"{"model": "Qwen/Qwen3-8B", "tuner_type": "full", "deepspeed": "zero2", "max_length": 2048,
                   "gradient_accumulation_steps": 8, "per_device_train_batch_size": 2}"#;
    let trainer = file("sft.json", json);
    assert_eq!((trainer.family, trainer.plan.zero, trainer.plan.micro_batch), (Family::Deepspeed, ZeroStage::Two, 2));
    assert_eq!(trainer.batch_on(8), 128);
}

#[test]
fn preferences_and_rewards_are_refused_by_name() {
    for command in ["swift rlhf --rlhf_type dpo", "megatron rlhf --rlhf_type grpo"] {
        let text = format!("NPROC_PER_NODE=8 {command} --model Qwen/Qwen3-8B");
        let why = import::read(&text, FileKind::Script, &Context::alone("r.sh")).unwrap_err().why;
        assert!(why.contains("preferences or rewards"), "{why}");
    }
    let yaml = "rlhf_type: dpo\nmodel: Qwen/Qwen3-8B\ntuner_type: full\n";
    assert!(import::kind_of("dpo.yaml", yaml).unwrap_err().why.contains("preferences or rewards"));
    let missing = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --deepspeed conf/mine.json";
    let why = import::read(missing, FileKind::Script, &Context::alone("r.sh")).unwrap_err().why;
    assert!(why.contains("`conf/mine.json`, DeepSpeed's JSON, was not found"), "{why}");
}

/// The stack that is assumed exchanges tokens by DeepEP; a file that names its dispatcher decides, though it names no sizes.
#[test]
fn the_dispatcher_of_a_file_without_sizes_is_its_own() {
    let read = |more: &str| {
        let text = format!(
            "megatron sft --model org/own --tuner_type full --tensor_model_parallel_size 2 --expert_tensor_parallel_size 2 \
             --micro_batch_size 1 --global_batch_size 8 --max_length 4096 {more}"
        );
        script(&text).plan.dispatcher
    };
    assert_eq!(read("--moe_token_dispatcher_type alltoall"), Dispatcher::AllToAll);
    assert_eq!(read("--moe_token_dispatcher_type flex --moe_enable_deepep true"), Dispatcher::DeepEp);
}
