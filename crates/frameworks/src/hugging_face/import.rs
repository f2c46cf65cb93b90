//! Arguments of Hugging Face's `Trainer` next to a configuration of DeepSpeed or of FSDP: batch, format, optimizer, model.
//!
//! Source: [transformers] `training_args.py`, `integrations/deepspeed.py`, release 5.23.

use super::FUSED_UPDATE;
use crate::deepspeed::import as deepspeed;
use crate::emit::launcher::UNSET;
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::{Finding, Place};
use crate::import::imported::{Imported, NamedKernel};
use crate::import::known;
use crate::readers::document::{self, Document, Form};
use crate::readers::shell::text::names as unresolved;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::plan::{Plan, ZeroStage};
use meshwright_engine::stack::MemoryUse;
use meshwright_engine::workload::{Half, Optimizer, Recipe};

/// Records a kernel of `FlashAttention` that a key names.
pub(crate) fn attention(document: &Document, key: &str, imported: &mut Imported) {
    let kernel = match document.word(key).as_deref() {
        Some("flash_attention_2" | "flash_attn" | "fa2" | "true" | "True") => AttentionKernel::Fa2,
        Some("flash_attention_3" | "fa3") => AttentionKernel::Fa3,
        Some(_) | None => return,
    };
    // axolotl's older switch has no value for another kernel.
    let instead = if key == "flash_attention" { "false" } else { "sdpa" };
    imported.attention = Some(NamedKernel::of(document, key, kernel, instead));
}

/// Batch and format of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trainer {
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Micro-batches that a replica accumulates.
    pub steps: u32,
    /// The 16-bit format; none for fp32.
    pub half: Option<Half>,
}

/// States that a JSON puts on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnHost {
    Nothing,
    Optimizer,
    Weights,
    OptimizerAndWeights,
}

/// A JSON of DeepSpeed's that a framework ships.
pub(crate) struct Shipped {
    /// Name of its file.
    pub name: &'static str,
    /// Its ZeRO stage.
    pub stage: u8,
    /// Its `overlap_comm`, the same in all files of a framework.
    pub overlaps: bool,
    /// States that it puts on the host.
    pub on_host: OnHost,
}

impl Shipped {
    /// A JSON that overlaps nothing.
    pub const fn new(name: &'static str, stage: u8, on_host: OnHost) -> Self {
        Self { name, stage, overlaps: false, on_host }
    }
}

impl Trainer {
    /// The import of a JSON of DeepSpeed's whose `auto` the Trainer fills; a number that differs is a contradiction, which the
    /// Trainer refuses.
    pub fn over_deepspeed(self, json: &mut Document, launched: &Launched) -> Imported {
        let numbers =
            [("train_micro_batch_size_per_gpu", self.micro_batch), ("gradient_accumulation_steps", self.steps)];
        for (key, number) in numbers {
            let value = json.peek(key).map(str::to_owned);
            match value.as_deref() {
                None | Some("auto") => json.put(key, &number.to_string(), 1),
                Some(value) if value.parse() == Ok(number) => {}
                Some(value) => {
                    let message = format!("`{key}` is {value} in DeepSpeed's JSON and {number} beside it");
                    let place = json.place(key);
                    json.note(
                        Finding::error("contradiction", message)
                            .at_maybe(place.as_ref())
                            .expected("`auto` in the JSON"),
                    );
                }
            }
        }
        if json.peek("train_batch_size") == Some("auto") {
            json.put("train_batch_size", "null", 1);
        }
        for (key, half) in [("bf16", Half::Bf16), ("fp16", Half::Fp16)] {
            let path = format!("{key}.enabled");
            let value = json.peek(&path).map(str::to_owned);
            if value.as_deref().is_none_or(|value| value == "auto") {
                json.put(&path, if self.half == Some(half) { "true" } else { "false" }, 1);
            }
        }
        let mut imported = deepspeed::imported_from(json, launched);
        imported.plan.micro_batch = self.micro_batch;
        imported.accumulation = self.steps;
        imported
    }

    /// Adds the batch and the format to a plan whose degrees are known.
    pub fn fill(self, imported: &mut Imported, document: &Document) {
        imported.plan.micro_batch = self.micro_batch;
        imported.accumulation = self.steps;
        if imported.world.is_some() {
            let each = self.micro_batch.saturating_mul(self.steps);
            imported.work.global_batch = Some(each.saturating_mul(imported.plan.layout.dp));
        }
        imported.work.half = self.half.unwrap_or_default();
        if self.half.is_none() {
            imported.work.recipe = Recipe { weight: 4.0, gradient: 4.0, master: 0.0, state: 8.0 };
            let message = "neither bf16 nor fp16 is on: trained in fp32, GEMMs priced as bf16";
            document.note(Finding::warning("not-modelled", message));
        }
    }
}

/// DeepSpeed's JSON that a file names: written beside it, or one that its framework ships.
///
/// # Errors
/// A file that is not there and is none of those, or does not parse.
pub(crate) fn json_of(
    name: &str,
    place: Option<&Place>,
    shipped: &[Shipped],
    context: &Context,
) -> Result<Document, ImportError> {
    if let Some(text) = (context.files)(name) {
        return document::parse(&text, Form::Json, &Context { files: context.files, ..Context::alone(name) });
    }
    let base = name.rsplit('/').next().unwrap_or(name);
    let Some(known) = shipped.iter().find(|known| known.name == base) else {
        return Err(ImportError {
            file: place.map_or_else(|| context.file.to_owned(), |place| place.file.clone()),
            line: place.map_or(1, |place| place.line),
            why: format!("`{name}`, DeepSpeed's JSON, was not found"),
            expected: "the file beside this one".into(),
        });
    };
    let mut json = Document::empty(1, name);
    json.put("zero_optimization.stage", &known.stage.to_string(), 1);
    json.put("zero_optimization.overlap_comm", if known.overlaps { "true" } else { "false" }, 1);
    let parts: &[&str] = match known.on_host {
        OnHost::Nothing => &[],
        OnHost::Optimizer => &["offload_optimizer"],
        OnHost::Weights => &["offload_param"],
        OnHost::OptimizerAndWeights => &["offload_optimizer", "offload_param"],
    };
    for part in parts {
        json.put(&format!("zero_optimization.{part}.device"), "cpu", 1);
    }
    let message = format!("`{name}` was not found, and is read as the file of that name that comes with the framework");
    json.note(Finding::note("assumed", message).at_maybe(place).expected("the file beside this one"));
    Ok(json)
}

/// The model of a name of the hub, with a finding that names the catalogue's entry.
pub(crate) fn model(document: &Document, key: &str, imported: &mut Imported) {
    let Some(name) = document.word(key).filter(|name| name != UNSET && unresolved(name).is_empty()) else { return };
    let Some(model) = known::of_hub(&name) else {
        imported.names_other_model = true;
        return;
    };
    let place = document.place(key);
    let message = format!("`{name}` is read as {}", model.name);
    document.note(Finding::note("assumed", message).at_maybe(place.as_ref()).expected("another: --model"));
    imported.model = Some(model);
}

/// Head and loss by chunks of tokens, as a setting asks for: Liger's and Apple's kernels never hold all logits.
///
/// Source: [liger-kernel]; Apple's keeps less than a chunk.
pub(crate) fn chunked_loss(document: &Document, setting: &str, imported: &mut Imported) {
    if let Some(model) = &imported.model {
        let bytes = MemoryUse::chunked_logit_bytes(f64::from(model.hidden), f64::from(model.vocab));
        imported.settings.put_word("fused_cross_entropy", "true");
        imported.settings.put_word("memory.keeps_outputs", "false");
        imported.settings.put_word("logit_bytes", &bytes.to_string());
    } else {
        let message = format!("`{setting}`: the loss of an unknown model is priced with all its logits");
        document.note(Finding::warning("not-modelled", message).at_maybe(document.place(setting).as_ref()));
    }
}

/// Rank of adapters; none where the file leaves it out, or to be set, as by a variable.
pub(crate) fn rank(document: &Document, key: &str) -> Option<u32> {
    let is_left = document.word(key).is_some_and(|word| word == UNSET || !unresolved(&word).is_empty());
    if is_left { None } else { document.size(key) }
}

/// States of an optimizer by its name in `Trainer`, and whether a fused kernel updates them.
///
/// Source: [transformers] `training_args.py`, `OptimizerNames`.
pub(crate) fn optimizer(document: &Document, key: &str, imported: &mut Imported) {
    let Some(name) = document.word(key) else { return };
    if name.ends_with("_fused") {
        imported.settings.put_item(FUSED_UPDATE);
    }
    let place = document.place(key);
    let bits: Option<f64> = if name.contains("8bit") {
        Some(2.0)
    } else if name.contains("4bit") {
        Some(1.0)
    } else {
        name.starts_with("adamw").then_some(8.0)
    };
    if name.contains("muon") {
        imported.work.optimizer = Optimizer::Muon;
        imported.work.recipe.state = 4.0;
    } else if let Some(state) = bits.filter(|_| name.contains("adam")) {
        imported.work.recipe.state = state.min(imported.work.recipe.state);
    } else {
        let message = format!("`{name}` is priced as AdamW");
        document.note(Finding::warning("not-modelled", message).at_maybe(place.as_ref()));
    }
}

/// Whether a word switches something on: any word but an empty one and those for off.
pub(crate) fn is_on(document: &Document, path: &str) -> bool {
    document.word(path).is_some_and(|word| !matches!(word.to_ascii_lowercase().as_str(), "false" | "no" | "off" | "0"))
}

/// The 16-bit format that `bf16` and `fp16` say.
pub(crate) fn half(document: &Document) -> Option<Half> {
    // All four are asked for, so that all four are read.
    let [bf16, bfloat16, fp16, float16] = ["bf16", "bfloat16", "fp16", "float16"].map(|name| is_on(document, name));
    if bf16 || bfloat16 { Some(Half::Bf16) } else { (fp16 || float16).then_some(Half::Fp16) }
}

/// A shard group that holds all replicas is none.
pub(crate) fn without_whole_group(plan: &mut Plan) {
    if plan.shard_group.is_some_and(|group| group >= plan.layout.dense_replicas()) {
        plan.shard_group = None;
    }
}

/// Sharding of FSDP 1 by its word, as `fsdp` and `fsdp_sharding_strategy` have it; `node` is the number of GPUs of one.
pub(crate) fn strategy(word: &str, node: Option<u32>, plan: &mut Plan) -> bool {
    match word.to_ascii_uppercase().as_str() {
        "FULL_SHARD" | "1" => plan.zero = ZeroStage::Three,
        "SHARD_GRAD_OP" | "2" => (plan.zero, plan.reshard_after_forward) = (ZeroStage::Three, false),
        "NO_SHARD" | "3" => plan.zero = ZeroStage::Zero,
        "HYBRID_SHARD" | "4" => (plan.zero, plan.shard_group) = (ZeroStage::Three, node),
        "HYBRID_SHARD_ZERO2" | "5" => {
            (plan.zero, plan.shard_group, plan.reshard_after_forward) = (ZeroStage::Three, node, false);
        }
        _ => return false,
    }
    true
}
