//! Megatron-Bridge's and NeMo's settings, and Megatron's own YAML of arguments: other spellings of the same flags.
//!
//! Source: [megatron-bridge] `training/config.py`, `training/mixed_precision.py`, release 0.6.2; NeMo 1's
//! `megatron_gpt_config.yaml`; [megatron-lm] `tests/functional_tests`, whose recipes hold `MODEL_ARGS`.

use super::hybrid;
use super::layout::other_chunks;
use super::nemo2;
use super::peft;
use super::precision::precision;
use super::primus;
use super::values::{JOINED, OrPlace, text_of};
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::Imported;
use crate::import::known;
use crate::megatron::flags::{Arity, flags};
use crate::megatron::import::arguments::Arguments;
use crate::megatron::import::imported_from as imported_from_arguments;
use crate::readers::document::{self, CALLED, Document, Form};
use crate::readers::python;
use crate::readers::shell::text::Text;

/// Sections whose keys are arguments.
const SECTIONS: &[&str] = &[
    "model",
    "ddp",
    "train",
    "optimizer",
    "optim",
    "comm_overlap",
    "dist",
    "dataset",
    "data",
    "trainer",
    "model.optim",
    "model.data",
    "mixed_precision",
    "checkpoint",
];

/// Keys with another name than their flag.
const RENAMED: &[(&str, &str)] = &[
    ("encoder_seq_length", "--seq-length"),
    ("layernorm_epsilon", "--norm-epsilon"),
    ("sequence_length", "--seq-length"),
    ("num_moe_experts", "--num-experts"),
    ("virtual_pipeline_model_parallel_size", "--num-virtual-stages-per-pipeline-rank"),
    ("activations_checkpoint_granularity", "--recompute-granularity"),
    ("activations_checkpoint_method", "--recompute-method"),
    ("activations_checkpoint_num_layers", "--recompute-num-layers"),
    ("ub_tp_comm_overlap", "--tp-comm-overlap"),
    ("overlap_grad_sync", "--overlap-grad-reduce"),
    ("overlap_param_sync", "--overlap-param-gather"),
    ("num_layers_in_first_pipeline_stage", "--decoder-first-pipeline-num-layers"),
    ("num_layers_in_last_pipeline_stage", "--decoder-last-pipeline-num-layers"),
    ("cpu_offloading_num_layers", "--cpu-offloading-num-layers"),
    ("account_for_embedding_in_pipeline_split", "--account-for-embedding-in-pipeline-split"),
    ("account_for_loss_in_pipeline_split", "--account-for-loss-in-pipeline-split"),
];

/// Keys whose `false` is the flag.
const INVERTED: &[(&str, &str)] = &[
    ("add_bias_linear", "--disable-bias-linear"),
    ("bias", "--disable-bias-linear"),
    ("share_embeddings_and_output_weights", "--untie-embeddings-and-output-weights"),
    ("gradient_accumulation_fusion", "--no-gradient-accumulation-fusion"),
    ("use_tp_pp_dp_mapping_off", "--use-tp-pp-dp-mapping"),
];

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "bridge";

/// Reads NeMo's, Bridge's, Megatron's or Primus' settings.
///
/// # Errors
/// A file that does not parse or holds no settings.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    if context.is_python() {
        return of_program(text, context, &Launched::default());
    }
    let mut document = document::parse(text, Form::Yaml, context)?;
    primus::complete(&mut document);
    if !has_settings(&document) {
        let why = "none of `model`, `MODEL_ARGS`, `language_model` and `modules` holds settings".to_owned();
        let expected = "NeMo's, Bridge's, Megatron's or Primus' YAML; another file: --kind".to_owned();
        return Err(ImportError { file: context.file.into(), line: 1, why, expected });
    }
    Ok(imported_from(&document, &mut Launched::default()))
}

/// Reads a program that builds NeMo's or Bridge's settings, as it is launched.
///
/// # Errors
/// A program that does not parse or gives no settings.
pub(crate) fn of_program(text: &str, context: &Context, launched: &Launched) -> Result<Imported, ImportError> {
    let wanted = context.configuration();
    let mut document = python::parse(text, wanted, context)?;
    let launched = &with_connections(text, launched);
    if nemo2::is_recipe(&document) {
        let model = nemo2::complete(&mut document);
        let mut imported = imported_from(&document, &mut Launched { model, ..launched.clone() });
        // The class of the model is named instead of the arguments that would describe it.
        imported.findings.retain(|finding| !finding.message.starts_with("no --num-layers"));
        return Ok(imported);
    }
    complete(&mut document);
    hybrid::complete(&mut document);
    complete_overlaps(&mut document);
    let of_hub = document.peek("model.0").map(str::to_owned);
    let named = of_hub.as_deref().or(wanted).filter(|_| !document.has("model.num_layers"));
    let model = named.and_then(if of_hub.is_some() { known::of_hub } else { known::of_recipe });
    if let (Some(name), Some(model)) = (named, &model) {
        let message = format!("`{name}` is read as the model {}", model.name);
        document.note(Finding::note("assumed", message).expected("another: --model"));
    }
    Ok(imported_from(&document, &mut Launched { model, ..launched.clone() }))
}

/// The launch with the `CUDA_DEVICE_MAX_CONNECTIONS` that a program sets: `os.environ.setdefault("…", "1")`, or by an index.
fn with_connections(text: &str, launched: &Launched) -> Launched {
    let set = text.lines().filter(|line| line.trim_start().starts_with("os.environ")).find_map(|line| {
        let value = line.split_once("CUDA_DEVICE_MAX_CONNECTIONS")?.1;
        value.split(['"', '\'']).map(str::trim).find(|word| word.parse::<u32>().is_ok()).map(str::to_owned)
    });
    Launched { connections: launched.connections.clone().or(set), ..launched.clone() }
}

/// Settings of the functions that Bridge's recipes begin with, by their names.
///
/// Source: [megatron-bridge] `src/megatron/bridge/recipes/common.py`, release 0.6.2.
const BASES: &[(&str, &[(&str, &str)])] = &[
    (
        "_pretrain_common",
        &[("train.global_batch_size", "32"), ("train.micro_batch_size", "2"), ("dataset.seq_length", "4096")],
    ),
    (
        "_sft_common",
        &[("train.global_batch_size", "128"), ("train.micro_batch_size", "1"), ("dataset.seq_length", "2048")],
    ),
    (
        "_peft_common",
        &[
            ("train.global_batch_size", "128"),
            ("train.micro_batch_size", "1"),
            ("dataset.seq_length", "2048"),
            ("peft.()", "LoRA"),
        ],
    ),
];

/// Settings of all of them.
const COMMON: &[(&str, &str)] = &[
    ("mixed_precision", "bf16_mixed"),
    ("ddp.use_distributed_optimizer", "true"),
    ("ddp.overlap_grad_reduce", "true"),
    ("ddp.overlap_param_gather", "true"),
    ("ddp.grad_reduce_in_fp32", "true"),
];

/// Sets the overlaps that a `CommOverlapConfig` turns on with more than one replica, where it does not say otherwise.
///
/// Source: [megatron-bridge] `training/comm_overlap.py` (`_get_optimizer_overlap_cfgs`), release 0.6.2.
fn complete_overlaps(document: &mut Document) {
    let sharded = ["ddp", "optimizer"].iter().any(|section| {
        document.peek(&format!("{section}.use_distributed_optimizer")).is_some_and(|value| value == "True")
    });
    if !sharded || !document.has(&format!("comm_overlap.{CALLED}")) {
        return;
    }
    let line = document.place("comm_overlap").map_or(1, |place| place.line);
    for key in ["overlap_grad_reduce", "overlap_param_gather"] {
        let own = document.peek(&format!("comm_overlap.{key}")).filter(|value| *value != "None").map(str::to_owned);
        document.put(&format!("ddp.{key}"), own.as_deref().unwrap_or("True"), line);
    }
}

/// Sets what a recipe's base sets and the recipe does not; the base is then read, and no finding of another module.
fn complete(document: &mut Document) {
    let Some(called) = document.peek(CALLED).map(str::to_owned) else { return };
    let Some((_, own)) = BASES.iter().find(|(name, _)| *name == called) else { return };
    document.findings.borrow_mut().retain(|finding| finding.rule != python::OTHER_MODULE);
    let in_model = document.has("model.seq_length");
    for (path, value) in own.iter().chain(COMMON) {
        let says = document.has(path) || path.starts_with("peft.") && document.peek("peft").is_some();
        if !(says || in_model && *path == "dataset.seq_length") {
            document.put(path, value, 1);
        }
    }
}

/// Plan, workload and settings of NeMo's, Bridge's and Megatron's own YAML.
pub(crate) fn imported_from(document: &Document, launched: &mut Launched) -> Imported {
    let adapting = peft::adapting(document);
    let mut list = arguments(document, launched);
    list.findings.append(&mut document.findings.borrow_mut());
    let effect = std::mem::take(&mut list.without_effect);
    let is_primus = document.has("modules");
    launched.stack = is_primus.then_some(primus::STACK);
    let mut imported = imported_from_arguments(list, launched);
    imported.kind = if is_primus { primus::KIND } else { KIND };
    imported.without_effect.extend(effect);
    imported.findings.extend(other_chunks(document, &sections(document), &imported));
    if let Some(adapting) = adapting {
        adapting.apply(&mut imported);
    }
    imported
}

/// The Megatron arguments that a document stands for, and its launch settings.
pub(crate) fn arguments(document: &Document, launched: &mut Launched) -> Arguments {
    // Megatron's own arguments pass its parser; the fields of configurations do not.
    let mut list = Arguments::empty(document.has("MODEL_ARGS"));
    for key in document.keys("MODEL_ARGS") {
        let path = format!("MODEL_ARGS.{key}");
        let words = document.words(&path).join(" ");
        add_flag(&mut list, document, &path, &key, &words);
    }
    for section in sections(document) {
        for key in document.keys(&section) {
            let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
            let is_numbered = key.starts_with(|c: char| c.is_ascii_digit());
            let is_value = document.peek(&path).is_some() || document.count(&path).is_some();
            if is_value && !is_numbered {
                setting(&mut list, document, &path, &key);
            }
        }
    }
    // NeMo's tokenizer, which decides the vocabulary.
    for (key, flag) in [("type", "--tokenizer-type"), ("model", "--tokenizer-model")] {
        let path = format!("model.tokenizer.{key}");
        let Some(word) = document.word(&path) else { continue };
        let place = document.place(&path).unwrap_or_default_place();
        list.add(flag, vec![Text::on(&word, place.line)], place);
    }
    launched.model = launched.model.take().or_else(|| primus::of_module(document));
    primus::note_base(document);
    launched.open |= document.has("modules")
        || !document.keys("system").is_empty()
        || document.has("tensor_model_parallel_size")
        || !document.keys("MODEL_ARGS").is_empty() && !document.has("MODEL_ARGS.--num-layers");
    precision(&mut list, document);
    let read =
        |path: &str| path.split('.').next_back().is_some_and(|key| key.starts_with(|c: char| c.is_ascii_digit()));
    let rest = document.unread().into_iter().map(|(path, _)| path).filter(|path| !read(path));
    list.without_effect.extend(rest);
    for path in ["trainer.num_nodes", "trainer.devices"] {
        let _ = document.word(path);
    }
    if let (Some(nodes), Some(each)) = (document.size("trainer.num_nodes"), document.size("trainer.devices")) {
        launched.world = launched.world.or_else(|| nodes.checked_mul(each));
        launched.gpus_per_node = launched.gpus_per_node.or(Some(each));
    }
    list.findings.append(&mut document.findings.borrow_mut());
    list
}

/// Whether anything in it is an argument.
pub(crate) fn has_settings(document: &Document) -> bool {
    !document.keys("MODEL_ARGS").is_empty()
        || sections(document).iter().any(|section| !document.keys(section).is_empty())
}

/// Whether an override's path is of a section of arguments.
pub(crate) fn is_setting(path: &str) -> bool {
    let of_trainer = ["optim", "data", "trainer"]; // sections that programs other than NeMo's have too
    let section = path.split('.').next().unwrap_or_default();
    path == "mixed_precision" || SECTIONS.contains(&section) && !of_trainer.contains(&section)
}

/// The sections that hold arguments: those of NeMo and Bridge, of Megatron's `--yaml-cfg`, which has some at its top too, of
/// FlagScale, whose degrees stand under `system`, and of Primus' modules for Megatron.
fn sections(document: &Document) -> Vec<String> {
    if nemo2::is_recipe(document) {
        return nemo2::sections().map(str::to_owned).collect();
    }
    let mut sections: Vec<String> = SECTIONS.iter().map(|section| (*section).to_owned()).collect();
    if document.has("tensor_model_parallel_size") || document.has("num_layers") {
        sections.push(String::new());
    }
    if document.has("language_model") {
        sections.extend(["language_model", "model_parallel", ""].map(str::to_owned));
    }
    if !document.keys("system").is_empty() {
        sections.extend(["system", "system.precision", "data.tokenizer"].map(str::to_owned));
    }
    let of_megatron = |module: &String| {
        let framework = document.word(&format!("modules.{module}.framework"));
        framework.is_none_or(|framework| framework.contains("megatron"))
    };
    let modules = document.keys("modules").into_iter().filter(of_megatron);
    sections.extend(modules.map(|module| format!("modules.{module}.overrides")));
    sections
}

fn setting(list: &mut Arguments, document: &Document, path: &str, key: &str) {
    let Some(word) = text_of(document, path, key) else { return };
    let place = document.place(path).unwrap_or_default_place();
    let joined = JOINED.contains(&key) && document.count(path).is_some();
    if let Some((_, flag)) = INVERTED.iter().find(|(name, _)| *name == key) {
        if document.switch(path) == Some(false) {
            list.add(flag, Vec::new(), place);
        }
        return;
    }
    let section = path.strip_suffix(key).unwrap_or_default();
    let beside = |other: &str| {
        let path = format!("{section}{other}");
        document.peek(&path).is_some_and(|word| word != "None") || document.count(&path).is_some()
    };
    match (key, word.to_ascii_lowercase().as_str()) {
        ("gated_linear_unit", "true") => return list.add("--swiglu", Vec::new(), place),
        ("activation", word) => {
            if word.contains("swiglu") || word.contains("geglu") {
                list.add("--swiglu", Vec::new(), place);
            }
            return;
        }
        ("num_query_groups", _) if !list.says("--group-query-attention", "") && !beside("group_query_attention") => {
            list.add("--group-query-attention", Vec::new(), place.clone());
        }
        // The layout says it, and is compared with it (`other_chunks`).
        ("virtual_pipeline_model_parallel_size", _) if beside("pipeline_model_parallel_layout") => return,
        // Bridge turns it off there, with a message ([megatron-bridge] `training/comm_overlap.py`).
        ("tp_comm_overlap", "true")
            if section == "comm_overlap."
                && (document.switch("model.sequence_parallel") != Some(true)
                    || document.size("model.tensor_model_parallel_size").unwrap_or(1) < 2) =>
        {
            return list.without_effect.push(path.to_owned());
        }
        // Those of the training count: a dataset has them for what it makes.
        ("global_batch_size" | "micro_batch_size", _)
            if section == "dataset." && document.has(&format!("train.{key}")) =>
        {
            return;
        }
        // NeMo's FSDP is off unless it says so; its strategy then means nothing.
        ("fsdp_sharding_strategy", _)
            if !beside("fsdp") || document.switch(&format!("{section}fsdp")) == Some(false) =>
        {
            return;
        }
        ("fp4", "e2m1") => return list.add("--fp4-format", vec![Text::on("e2m1", place.line)], place),
        ("grad_sync_dtype", "bf16") | ("grad_reduce_in_fp32", "false") => {
            if !list.says("--grad-reduce-in-bf16", "true") {
                list.add("--grad-reduce-in-bf16", Vec::new(), place);
            }
            return;
        }
        ("name", word) => {
            if word.contains("distributed") {
                list.add("--use-distributed-optimizer", Vec::new(), place);
            }
            return;
        }
        ("fp8" | "fp8_hybrid", "true" | "hybrid" | "e4m3") => {
            let format = if word == "e4m3" { "e4m3" } else { "hybrid" };
            return list.add("--fp8-format", vec![Text::on(format, place.line)], place);
        }
        ("bf16" | "fp16", "true") => return list.add(&format!("--{key}"), Vec::new(), place),
        ("normalization", "layernorm1p" | "low_precision_layernorm") => return,
        _ => {}
    }
    let renamed = RENAMED.iter().find(|(name, _)| *name == key).map(|(_, flag)| (*flag).to_owned());
    let flag = renamed.unwrap_or_else(|| format!("--{}", key.replace('_', "-")));
    if list.says(&flag, &word) {
        // One setting in two sections: `ddp` and `optimizer`, `model` and `dataset`
    } else if joined {
        list.add(&flag, vec![Text::on(&word, place.line)], place);
    } else if flags().contains_key(flag.as_str()) {
        add_flag(list, document, path, &flag, &word);
    } else {
        list.without_effect.push(path.to_owned());
    }
}

/// Adds `flag` with the words of its value: `true` is the flag alone, `false` none.
fn add_flag(list: &mut Arguments, document: &Document, path: &str, flag: &str, words: &str) {
    let place = document.place(path).unwrap_or_default_place();
    let arity = flags().get(flag).map(|flag| flag.arity);
    let inner = words.strip_prefix('[').and_then(|words| words.strip_suffix(']'));
    let words = inner.filter(|inner| !inner.contains(['[', ']'])).unwrap_or(words);
    match (arity, words.to_ascii_lowercase().as_str()) {
        (Some(Arity::Switch), "false" | "0") => {
            list.add(&format!("--no-{}", flag.trim_start_matches('-')), Vec::new(), place);
        }
        (Some(Arity::Exactly(0)), "true" | "" | "1") | (Some(Arity::Switch), _) => list.add(flag, Vec::new(), place),
        (Some(Arity::Exactly(0)), _) | (Some(_), "" | "null") => {}
        (Some(_), _) => {
            list.add(flag, words.split_whitespace().map(|word| Text::on(word, place.line)).collect(), place);
        }
        (None, _) => list.remember_unknown(flag.to_owned(), &[Text::on(words, place.line)], place),
    }
}
