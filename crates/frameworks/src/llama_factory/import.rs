//! LLaMA-Factory's YAML, and its command line with the same names: batch, sequence, format, and the engine that it names.
//!
//! Source: [llama-factory] `hparams/`, `model/adapter.py`, `model/model_utils/checkpointing.py`, release 0.9.5: names and defaults.

use crate::hugging_face::import::{self as hugging_face, OnHost, Shipped, Trainer, is_on};
use crate::import::adapters::{AdapterTraining, not_priced, other_adapters};
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::{Adapters, Imported, Unknown};
use crate::readers::document::{self, Document, Form};
use meshwright_engine::plan::{Layout, Recompute, ZeroStage};
use meshwright_engine::stack::Family;
use meshwright_engine::suggest::{is_slip, nearest};
use meshwright_engine::workload::Recipe;

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "llama-factory";

/// Files of its folder `examples/deepspeed`.
const SHIPPED: &[Shipped] = &[
    Shipped::new("ds_z0_config.json", 0, OnHost::Nothing),
    Shipped::new("ds_z2_config.json", 2, OnHost::Nothing),
    Shipped::new("ds_z2_offload_config.json", 2, OnHost::Optimizer),
    Shipped::new("ds_z3_config.json", 3, OnHost::Nothing),
    Shipped::new("ds_z3_offload_config.json", 3, OnHost::OptimizerAndWeights),
];

/// Keys that decide the step; a misspelling of one is a finding.
const DECISIVE: &str = "per_device_train_batch_size gradient_accumulation_steps cutoff_len deepspeed finetuning_type bf16 fp16 \
    disable_gradient_checkpointing quantization_bit";

/// Reads a file of this kind.
///
/// # Errors
/// A file that does not parse, or names a JSON of DeepSpeed's that is not there.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let document = document::parse(text, Form::Yaml, context)?;
    let shards = ["deepspeed", "fsdp"].iter().any(|key| document.place(key).is_some());
    let mut imported = imported_from(&document, &Launched::default(), None, context)?;
    if !shards {
        let message = "nothing is sharded in this file; FSDP may be in the file of `accelerate launch --config_file`";
        imported.findings.push(Finding::note("assumed", message).expected("lint the script that launches it"));
    }
    Ok(imported)
}

/// Plan, workload and settings of a configuration over the engine that its launcher sets up, if any: FSDP of Accelerate's file.
///
/// # Errors
/// A JSON of DeepSpeed's that is not there.
pub(crate) fn imported_from(
    document: &Document,
    launched: &Launched,
    engine: Option<Imported>,
    context: &Context,
) -> Result<Imported, ImportError> {
    let trainer = Trainer {
        micro_batch: document.size("per_device_train_batch_size").unwrap_or(MICRO_BATCH),
        steps: document.size("gradient_accumulation_steps").unwrap_or(1),
        half: hugging_face::half(document),
    };
    let mut imported = if let Some(name) = document.word("deepspeed") {
        let mut json = hugging_face::json_of(&name, document.place("deepspeed").as_ref(), SHIPPED, context)?;
        trainer.over_deepspeed(&mut json, launched)
    } else {
        let mut imported = engine.unwrap_or_else(|| replicated(document, launched));
        imported.findings.retain(|finding| finding.rule != "needs-code"); // this file says it
        trainer.fill(&mut imported, document);
        imported
    };
    imported.kind = KIND;
    if is_on(document, "pure_bf16") {
        imported.work.recipe = Recipe::HALF;
    }
    imported.work.seq_len = Some(document.size("cutoff_len").unwrap_or(LENGTH));
    hugging_face::optimizer(document, "optim", &mut imported);
    hugging_face::model(document, "model_name_or_path", &mut imported);
    hugging_face::attention(document, "flash_attn", &mut imported);
    if is_on(document, "enable_liger_kernel") {
        hugging_face::chunked_loss(document, "enable_liger_kernel", &mut imported);
    }
    let _ = document.word("gradient_checkpointing"); // the model's own is set by the key below
    if !is_on(document, "disable_gradient_checkpointing") {
        imported.plan.recompute = Recompute::Full;
    }
    adapting(document, &mut imported);
    unpriced(document);
    for (name, place) in document.unread() {
        let near = nearest(&name, DECISIVE.split_whitespace()).filter(|near| is_slip(&name, near) && *near != name);
        if let Some(near) = near {
            imported.unknown.push(Unknown { name, values: Vec::new(), place, nearest: Some(near) });
        }
    }
    let paths =
        [("mbs", "per_device_train_batch_size"), ("seq", "cutoff_len"), ("zero", "deepspeed"), ("zero", "fsdp")];
    for (key, path) in paths {
        imported.places.extend(document.place(path).map(|place| (key.to_owned(), place)));
    }
    imported.without_effect.extend(document.unread().into_iter().map(|(path, _)| path));
    imported.findings.extend(document.findings.take());
    Ok(imported)
}

/// Sequences of a micro-batch where the file sets none: Transformers' default.
const MICRO_BATCH: u32 = 8;
/// Tokens of a sequence where the file sets none.
const LENGTH: u32 = 2048;

/// Copies, or the FSDP that the Trainer's own keys set up.
fn replicated(document: &Document, launched: &Launched) -> Imported {
    let mut imported = Imported::new(KIND, Family::Fsdp, "fsdp-eager-2023");
    (imported.world, imported.gpus_per_node) = (launched.world, launched.gpus_per_node);
    imported.plan.layout = Layout::data_parallel(launched.world.unwrap_or(1));
    imported.plan.sequence_parallel = false;
    for word in document.words("fsdp").iter().flat_map(|word| word.split(' ')) {
        if word == "true" {
            imported.plan.zero = ZeroStage::Three;
        }
        if word == "offload" {
            imported.plan.offload.optimizer = 1.0;
        }
        let _ = hugging_face::strategy(word, launched.gpus_per_node, &mut imported.plan);
    }
    if let Some(reshards) = document.switch("fsdp_config.reshard_after_forward") {
        imported.plan.reshard_after_forward = reshards;
    }
    if imported.world.is_some() {
        hugging_face::without_whole_group(&mut imported.plan);
    }
    imported
}

/// Rank of adapters where the file sets none: `lora_rank` of `hparams/finetuning_args.py`.
const RANK: u32 = 8;

/// Low-rank adapters, which are the default, and options of them that are not priced.
fn adapting(document: &Document, imported: &mut Imported) {
    let (setting, key) = match document.word("finetuning_type").as_deref() {
        Some("lora") => ("`finetuning_type: lora`", "finetuning_type"),
        None => ("a file without `finetuning_type: full`", "model_name_or_path"),
        Some(_) => return,
    };
    let place = document.place(key).unwrap_or_else(|| document.start());
    let words = |key: &str| {
        document
            .words(key)
            .iter()
            .flat_map(|text| text.split(','))
            .map(|text| text.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let targets =
        Some(words("lora_target")).filter(|targets| !targets.is_empty()).unwrap_or_else(|| vec!["all".into()]);
    let warn =
        |key: &str, what: &str| document.note(not_priced(&format!("`{key}`"), what, document.place(key).as_ref()));
    if is_on(document, "use_dora") {
        warn("use_dora", "the norms of DoRA are not priced");
    }
    if !words("additional_target").is_empty() {
        warn("additional_target", "modules that are trained whole are priced as frozen");
    }
    let rank = Some(hugging_face::rank(document, "lora_rank").unwrap_or(RANK));
    AdapterTraining { setting: setting.to_owned(), place, adapters: Adapters { rank, targets } }.apply(imported);
}

/// Findings of trainings other than that of the whole model on one loss.
fn unpriced(document: &Document) {
    let place = |key: &str| document.place(key).unwrap_or_else(|| document.start());
    let warn = |key: &str, message: String| {
        document.note(Finding::warning("not-modelled", message).at_maybe(document.place(key).as_ref()));
    };
    match document.word("finetuning_type").as_deref() {
        Some("freeze") => warn(
            "finetuning_type",
            "`finetuning_type: freeze` trains some layers alone: it is priced as if all were trained".into(),
        ),
        Some("full" | "lora") | None => {}
        Some(kind) => document.note(other_adapters(&format!("`finetuning_type: {kind}`"), &place("finetuning_type"))),
    }
    if let Some(bits) = document.word("quantization_bit") {
        warn("quantization_bit", format!("weights quantised to {bits} bits are priced as weights of 16"));
    }
    if let Some(stage) = document.word("stage").filter(|stage| !matches!(stage.as_str(), "sft" | "pt" | "rm")) {
        warn(
            "stage",
            format!("`stage: {stage}` also runs passes that do not train: the training pass alone is priced"),
        );
    }
    for key in ["use_galore", "use_apollo", "use_badam", "use_unsloth", "fp8"] {
        if is_on(document, key) {
            warn(key, format!("`{key}` is priced as if it were off"));
        }
    }
    let (packed, neat) = (is_on(document, "packing"), is_on(document, "neat_packing"));
    if neat {
        document.note(Finding::of_documents("neat_packing").at_maybe(document.place("neat_packing").as_ref()));
    }
    if !packed && !neat && document.word("stage").as_deref() != Some("pt") {
        let message = "sequences that are not packed are priced as if each were `cutoff_len` long";
        document.note(Finding::note("assumed", message).at_maybe(document.place("cutoff_len").as_ref()));
    }
}
