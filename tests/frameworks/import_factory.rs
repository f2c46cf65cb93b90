//! LLaMA-Factory's files.

use meshwright::import::{self, Context, Imported, Severity};
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::stack::Family;
use meshwright::workload::Adaptation;

const HEAD: &str = "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: full\n\
                    template: qwen\ndataset: identity\nbf16: true\n";

/// Reads a file with these beside it.
fn read(name: &str, text: &str, beside: &[(&str, &str)]) -> Imported {
    let kind = import::kind_of(name, text).unwrap_or_else(|error| panic!("{error}"));
    let files = |name: &str| beside.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    import::read(text, kind, &Context { files: &files, ..Context::alone(name) }).unwrap_or_else(|e| panic!("{e}"))
}

fn rules(imported: &Imported) -> Vec<&str> {
    imported.findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn defaults_are_its_own() {
    let imported = read("x.yaml", HEAD, &[]);
    assert_eq!((imported.kind, imported.family, imported.plan.zero), ("llama-factory", Family::Fsdp, ZeroStage::Zero));
    assert_eq!((imported.plan.micro_batch, imported.work.seq_len), (8, Some(2048)));
    assert_eq!(imported.plan.recompute, Recompute::Full, "checkpoints unless it is told not to");
    let told =
        format!("{HEAD}disable_gradient_checkpointing: true\ncutoff_len: 4096\ngradient_accumulation_steps: 2\n");
    let imported = read("x.yaml", &told, &[]);
    assert_eq!(
        (imported.plan.recompute, imported.work.seq_len, imported.batch_on(4)),
        (Recompute::None, Some(4096), 64)
    );
    let adapters = read("x.yaml", &HEAD.replace("finetuning_type: full\n", ""), &[]);
    assert!(rules(&adapters).contains(&"adapters"), "its default is LoRA: {:?}", adapters.findings);
    assert_eq!((adapters.work.adaptation, adapters.adapters.unwrap().rank), (Adaptation::Lora, Some(8)));
    let oft = read("x.yaml", &HEAD.replace("finetuning_type: full", "finetuning_type: oft"), &[]);
    assert_eq!((oft.work.adaptation, oft.adapters.is_none()), (Adaptation::Full, true));
    let dora = read("x.yaml", &HEAD.replace("finetuning_type: full", "finetuning_type: lora\nuse_dora: true"), &[]);
    assert!(rules(&dora).contains(&"not-modelled"), "{:?}", dora.findings);
}

#[test]
fn engines_are_deepspeed_or_what_the_launcher_sets_up() {
    let json = "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}, \
                \"bf16\": {\"enabled\": \"auto\"}, \"train_batch_size\": \"auto\"}";
    let yaml = format!("{HEAD}deepspeed: ds.json\nper_device_train_batch_size: 2\n");
    let imported = read("x.yaml", &yaml, &[("ds.json", json)]);
    assert_eq!(
        (imported.family, imported.plan.zero, imported.plan.offload.optimizer),
        (Family::Deepspeed, ZeroStage::Three, 1.0)
    );
    let shipped = read("x.yaml", &format!("{HEAD}deepspeed: examples/deepspeed/ds_z2_config.json\n"), &[]);
    assert_eq!(shipped.plan.zero, ZeroStage::Two);
    let fsdp = "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\nmixed_precision: bf16\nfsdp_config:\n  \
                fsdp_version: 2\n  fsdp_reshard_after_forward: false\n";
    let beside = [("fsdp.yaml", fsdp), ("x.yaml", HEAD)];
    let launched = read("run.sh", "accelerate launch --config_file fsdp.yaml src/train.py x.yaml\n", &beside);
    assert_eq!((launched.kind, launched.world, launched.plan.zero), ("llama-factory", Some(16), ZeroStage::Three));
    assert!(!launched.plan.reshard_after_forward && launched.work.global_batch == Some(128));
    assert!(!rules(&launched).contains(&"needs-code"), "{:?}", launched.findings);
}

#[test]
fn commands_say_more() {
    let beside = [("x.yaml", HEAD)];
    for (command, world, micro) in [
        (
            "FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train x.yaml per_device_train_batch_size=4\n",
            Some(16),
            4,
        ),
        ("llamafactory-cli train x.yaml\n", None, 8),
        ("torchrun --nproc-per-node 4 --nnodes 1 src/train.py x.yaml\n", Some(4), 8),
        (
            "torchrun --nproc-per-node 4 -m llamafactory.launcher --model_name_or_path Qwen/Qwen2.5-7B --finetuning_type full \
             --per_device_train_batch_size 3 --bf16 True --cutoff_len 2048\n",
            Some(4),
            3,
        ),
    ] {
        let imported = read("run.sh", command, &beside);
        assert_eq!((imported.world, imported.plan.micro_batch), (world, micro), "{command}");
        assert_eq!(imported.model.as_ref().map(|model| model.name.as_str()), Some("Qwen2.5 7B"), "{command}");
    }
}

/// Routes to other engines and programs that do not train are refused by their name.
#[test]
fn other_routes_are_refused() {
    for (text, title) in [
        ("model: a\ntrain_dataset: b\ndist_config:\n  name: fsdp2\n", "version 1"),
        ("model_name_or_path: a\ndo_train: true\ntensor_model_parallel_size: 2\n", "Megatron core"),
        ("model_name_or_path: a\ndo_train: true\nuse_kt: true\n", "KTransformers"),
        ("model_name_or_path: a\ntemplate: qwen\ninfer_backend: vllm\n", "does not train"),
    ] {
        let refused = import::kind_of("x.yaml", text).unwrap_err().to_string();
        assert!(refused.contains("LLaMA-Factory") && refused.contains(title), "{refused}");
    }
    let slip = read("x.yaml", &format!("{HEAD}cutof_len: 4096\n"), &[]);
    assert_eq!(slip.unknown[0].nearest.as_deref(), Some("cutoff_len"));
    let errors = slip.findings.iter().filter(|finding| finding.level == Severity::Error).count();
    assert_eq!(errors, 0, "an error by lint, as an unknown key: {:?}", slip.findings);
}
