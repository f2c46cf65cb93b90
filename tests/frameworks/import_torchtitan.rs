//! torchtitan's TOML, its overrides and its registries, as plans.

use super::import_formats::{launched, read, refused};
use meshwright::frameworks;
use meshwright::import::{self, Context, FileKind, Severity};
use meshwright::model::Model;
use meshwright::plan::{Recompute, ZeroStage};
use meshwright::schedule::Schedule;
use meshwright::stack::Dispatcher;
use meshwright::workload::Recipe;

pub const TITAN: &str = r#"
[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
[optimizer]
lr = 1.5e-4
"#;

#[test]
fn torchtitan_is_read_with_its_overrides() {
    let script = "NGPU=8\ntorchrun --nnodes 16 --nproc_per_node=${NGPU} -m torchtitan.train --job.config_file titan.toml \
                  --training.local_batch_size 4 --parallelism.context_parallel_degree=2";
    let imported = launched(script, "titan.toml", TITAN);
    let plan = imported.plan;
    assert_eq!(imported.model.as_ref().and_then(import::known::name_of), Some("llama3-70b"));
    assert_eq!((plan.layout.tp, plan.layout.cp, plan.layout.dp), (8, 2, 8));
    assert_eq!((plan.zero, plan.shard_group), (ZeroStage::Three, Some(8)), "4 shards of 2 context ranks, twice");
    assert_eq!((plan.micro_batch, plan.recompute), (4, Recompute::PerOp));
    assert_eq!((imported.stack, imported.work.format.to_string().as_str()), ("torchtitan-2025-10", "fp8"));
    assert_eq!(imported.without_effect, ["optimizer.lr"]);
    let typo = read(
        "[parallelism]\ntensor_parallel_degre = 2\n[trainin]\nseq_len = 1\n",
        FileKind::Of(&frameworks::TORCHTITAN),
    );
    let near: Vec<Option<&str>> = typo.unknown.iter().map(|unknown| unknown.nearest.as_deref()).collect();
    assert_eq!(near, [Some("tensor_parallel_degree"), Some("training")]);
    assert_eq!(refused("[model]\nname = \n", FileKind::Of(&frameworks::TORCHTITAN)).line, 2);
    assert!(refused("# nothing\n", FileKind::Of(&frameworks::TORCHTITAN)).to_string().contains("the file is empty"));
}

/// Settings of a stack of torchtitan whose FP8 is scaled by rows.
pub const BY_ROWS: [&str; 2] = ["stack.cast_passes=2", "stack.tp_gather=bf16"];

#[test]
fn torchtitan_scales_by_rows_where_it_says_so() {
    let with = |recipe: &str| {
        let text = format!("{TITAN}[float8]\nrecipe_name = \"{recipe}\"\n");
        read(&text, FileKind::Of(&frameworks::TORCHTITAN)).settings
    };
    assert_eq!(with("rowwise").items(), BY_ROWS);
    assert_eq!(with("rowwise_with_gw_hp").items(), BY_ROWS);
    assert!(with("tensorwise").items().is_empty());
}

#[test]
fn torchtitan_keeps_what_its_dtypes_say() {
    let with = |keys: &str| {
        let model = "[model]\nname = \"llama3\"\nflavor = \"3B\"\n";
        read(
            &format!("{model}[training]\nlocal_batch_size = 1\nseq_len = 8192\n{keys}"),
            FileKind::Of(&frameworks::TORCHTITAN),
        )
    };
    let usual = with("");
    assert_eq!((usual.work.recipe.total(), usual.settings.items()), (18.0, &["stack.attention=cudnn".to_owned()][..]));
    assert_eq!(usual.model.as_ref().map(Model::layers), Some(28), "a flavor that the catalogue does not have");
    let narrow = with(
        "dtype = \"bfloat16\"\nmixed_precision_reduce = \"bfloat16\"\n[optimizer]\nearly_step_in_backward = true\n",
    );
    let Recipe { weight, gradient, master, state } = narrow.work.recipe;
    assert_eq!((weight, gradient, master, state), (2.0, 2.0, 0.0, 4.0));
    assert_eq!(narrow.settings.items(), ["stack.attention=cudnn", "stack.reduce_bytes=2"]);
    assert!(narrow.findings.iter().any(|finding| finding.message.contains("freed")), "{:?}", narrow.findings);
    assert!(narrow.without_effect.is_empty(), "{:?}", narrow.without_effect);
}

/// Compiled parts name the stack, and the language of the file the release. Of the mixtures of release 0.2 Qwen3's alone has no exchange of
/// tokens on its list of what checkpointing keeps.
#[test]
fn torchtitan_compiles_what_it_says() {
    let with = |compile: &str| {
        let text = format!("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[compile]\nenable = true\n{compile}\n");
        let imported = read(&text, FileKind::Of(&frameworks::TORCHTITAN));
        (imported.stack, imported.settings.items().join(" "))
    };
    assert_eq!(with(""), ("torchtitan-2025-10", String::new()));
    assert_eq!(with("components = [\"model\", \"loss\"]"), ("torchtitan-2025-10", String::new()));
    let eager_loss = "stack.fused_cross_entropy=false stack.logit_bytes=12 stack.memory.split_logit_bytes=12";
    assert_eq!(with("components = [\"model\"]"), ("torchtitan-2025-10", eager_loss.into()));
    assert_eq!(with("components = [\"loss\"]"), ("torchtitan-eager", "stack.attention=cudnn".into()));
    let of = |model: &str, flavor: &str| {
        let text = format!("[model]\nname = \"{model}\"\nflavor = \"{flavor}\"\n[compile]\nenable = true\n");
        read(&text, FileKind::Of(&frameworks::TORCHTITAN)).settings.items().join(" ")
    };
    assert_eq!(of("deepseek_v3", "671B"), "stack.memory.keeps_exchanged_tokens=true");
    assert_eq!(of("qwen3", "30B-A3B"), "");
}

#[test]
fn torchtitan_pipelines_have_their_names() {
    let of = |schedule: &str| {
        let text = format!(
            "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\npipeline_parallel_degree = 4\n{schedule}\n"
        );
        read(&text, FileKind::Of(&frameworks::TORCHTITAN)).plan.schedule
    };
    assert_eq!(of("pipeline_parallel_schedule = \"Interleaved1F1B\""), Schedule::Interleaved { virtual_stages: 2 });
    assert_eq!(of("pipeline_parallel_schedule = \"ZBVZeroBubble\""), Schedule::ZbV);
    let chunks = "pipeline_parallel_schedule = \"Interleaved1F1B\"\npipeline_parallel_layers_per_stage = 3";
    assert_eq!(of(chunks), Schedule::Interleaved { virtual_stages: 3 }, "34 layers with the ends, 12 stages");
    let registry = import::read(
        "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b --parallelism.tensor_parallel_degree 4",
        FileKind::Script,
        &Context::alone("run.sh"),
    )
    .unwrap();
    assert_eq!(registry.model.as_ref().and_then(import::known::name_of), Some("llama3-8b"));
    assert_eq!((registry.plan.layout.tp, registry.plan.layout.dp), (4, 2));
    assert_eq!((registry.work.seq_len, registry.plan.recompute), (Some(8192), Recompute::PerOp));
    assert!(registry.findings.iter().any(|finding| finding.rule == "assumed"));
    let other = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_mine";
    let other = import::read(other, FileKind::Script, &Context::alone("run.sh")).unwrap();
    assert!(other.findings.iter().any(|finding| finding.rule == "not-read"));
}

#[test]
fn torchtitan_counts_the_micro_batches_that_pass_at_once() {
    let of = |local: u32, more: &str| {
        let text = format!(
            "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = \
            {local}\n{more}\n[parallelism]\npipeline_parallel_degree = 4\n\
             data_parallel_shard_degree = 2\npipeline_parallel_schedule = "
        );
        move |schedule: &str| {
            let imported = read(&format!("{text}\"{schedule}\""), FileKind::Of(&frameworks::TORCHTITAN));
            let found = imported.findings.iter().filter(|finding| finding.level != Severity::Note);
            found.map(|finding| finding.rule).filter(|rule| *rule != "unresolved-world").collect::<Vec<_>>()
        }
    };
    assert_eq!(of(3, "")("1F1B"), ["few-micro-batches"]);
    assert_eq!(of(3, "")("GPipe"), [""; 0], "which torch runs with any number");
    assert_eq!(of(4, "")("1F1B"), [""; 0]);
    assert_eq!(of(2, "global_batch_size = 16")("1F1B"), ["few-micro-batches", "not-modelled"]);
    assert_eq!(of(4, "global_batch_size = 16")("1F1B"), ["not-modelled"], "it drains after every 4");
    assert_eq!(of(4, "global_batch_size = 8")("1F1B"), [""; 0]);
}

const REGISTRY: &str = "
from torchtitan.models.llama3 import model_registry

def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry('8B'),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192),
        activation_checkpoint=SelectiveAC.Config(),
    )

def mine() -> Trainer.Config:
    config = llama3_8b()
    config.parallelism = ParallelismConfig(tensor_parallel_degree=4, data_parallel_replicate_degree=2)
    config.activation_checkpoint = None
    config.compile = CompileConfig(enable=True, components=['model', 'loss'])
    return config
";

#[test]
fn torchtitan_registries_are_followed() {
    let beside = |name: &str| (name == "torchtitan/models/llama3/config_registry.py").then(|| REGISTRY.to_owned());
    let context = Context { files: &beside, ..Context::alone("run.sh") };
    let launch = |config: &str| {
        let script = format!("torchrun --nproc_per_node 16 -m torchtitan.train --module llama3 --config {config}");
        import::read(&script, FileKind::Script, &context).unwrap()
    };
    let mine = launch("mine");
    assert_eq!(mine.model.as_ref().and_then(import::known::name_of), Some("llama3-8b"));
    assert_eq!(mine.plan.to_string(), "tp=4 cp=1 pp=1 dp=4 sp=on zero=3 shard=2 mbs=2 recompute=none");
    assert_eq!((mine.work.seq_len, mine.stack), (Some(8192), "torchtitan-2026"));
    assert!(mine.settings.items().is_empty(), "release 0.3 takes the loss by chunks: {:?}", mine.settings);
    let plain = launch("llama3_8b");
    assert_eq!(plain.plan.to_string(), "tp=1 cp=1 pp=1 dp=16 zero=3 mbs=2 recompute=per-op");
    assert_eq!(plain.stack, "torchtitan-eager");
}

/// The exchange of experts is torchtitan's own all-to-all unless another is named in the call of the chosen function.
#[test]
fn torchtitan_exchanges_as_its_registry_is_called() {
    let text = |chosen: &str| {
        let function = |name: &str, call: &str| {
            format!(
                "def {name}() -> Trainer.Config:\n    return Trainer.Config(\n        model_spec=model_registry({call}),\n        \
                 training=TrainingConfig(local_batch_size=4, seq_len=4096),\n        \
                 parallelism=ParallelismConfig(expert_parallel_degree=8),\n    )\n\n"
            )
        };
        let all = function("plain", "\"16B\"") + &function("fused", "\"16B\", moe_comm_backend=\"hybridep\"");
        let beside =
            move |name: &str| (name == "torchtitan/models/deepseek_v3/config_registry.py").then(|| all.clone());
        let context = Context { files: &beside, ..Context::alone("run.sh") };
        let launch = "torchrun --nproc_per_node 64 -m torchtitan.train --module deepseek_v3 --config";
        import::read(&format!("{launch} {chosen}"), FileKind::Script, &context).unwrap().plan.dispatcher
    };
    assert_eq!([text("plain"), text("fused")], [Dispatcher::AllToAll, Dispatcher::DeepEp]);
}
