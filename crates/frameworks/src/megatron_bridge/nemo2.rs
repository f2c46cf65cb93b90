//! NeMo 2's recipes: `run.Partial(pretrain, model=…, trainer=…, data=…, optim=…)`, whose parts are made when the
//! launched program runs.
//!
//! Source: [nemo] `nemo/lightning/pytorch/strategies/megatron_strategy.py` (`MegatronStrategy`), `plugins/mixed_precision.py`
//! (`MegatronMixedPrecision`, `update_config_with_dtype_overrides`), `callbacks/{megatron_comm_overlap,moe_token_drop,deepep}.py`,
//! `nemo/collections/llm/gpt/data/{mock,pre_training,squad}.py`, main of 2025-09.

use crate::import::finding::Finding;
use crate::import::known;
use crate::readers::document::{CALLED, Document};
use meshwright_engine::model::Model;

/// Sections whose keys are arguments; the callbacks' are put into the model's and DDP's (`overlap`, `experts`).
const SECTIONS: &[&str] =
    &[STRATEGY, "trainer.strategy.ddp", MODEL, "data", "optim.config", "trainer.plugins", "trainer.plugins.0"];

const STRATEGY: &str = "trainer.strategy";
const MODEL: &str = "model.config";
const DDP: &str = "trainer.strategy.ddp";

/// Degrees that the strategy gives to the model's configuration, with its defaults.
const DEGREES: &[(&str, &str)] = &[
    ("tensor_model_parallel_size", "1"),
    ("pipeline_model_parallel_size", "1"),
    ("virtual_pipeline_model_parallel_size", "None"),
    ("context_parallel_size", "1"),
    ("expert_model_parallel_size", "1"),
    ("expert_tensor_parallel_size", "None"),
    ("sequence_parallel", "False"),
];

/// Modules of data with these defaults, and the defaults.
const DATA: &[&str] =
    &["MockDataModule", "PreTrainingDataModule", "SquadDataModule", "DollyDataModule", "FineTuningDataModule"];
const SIZES: &[(&str, &str)] = &[("seq_length", "2048"), ("micro_batch_size", "4"), ("global_batch_size", "8")];

/// Callbacks that train another thing than the whole model, or train it in another way.
const OTHER_TRAINING: &[&str] = &["LayerFreezer", "DistillationCallback", "ModelTransform"];

/// Keys of a model's sizes: beside one of them, a configuration is not the one of its class.
const SIZED: &[&str] = &[
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_channels",
    "num_moe_experts",
    "moe_ffn_hidden_size",
    "moe_router_topk",
    "moe_layer_freq",
    "moe_shared_expert_intermediate_size",
    "vocab_size",
    "hybrid_override_pattern",
    "share_embeddings_and_output_weights",
    "multi_latent_attention",
    "window_size",
];

/// Model configurations of NeMo whose names are not the models'.
const NAMES: &[(&str, &str)] = &[
    ("GPTConfig175B", "gpt3-175b"),
    ("Llama4Experts16Config", "llama4-scout"),
    ("Llama4Experts128Config", "llama4-maverick"),
];

/// Whether a configuration is a recipe of NeMo 2.
pub(super) fn is_recipe(document: &Document) -> bool {
    document.peek(CALLED).is_some_and(|called| last(called) == "Partial")
}

/// Sections of a recipe.
pub(super) fn sections() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().copied()
}

/// Sets what the classes of a recipe's parts set when the program runs, and names what decides and is not read; the recipe's model.
pub(super) fn complete(document: &mut Document) -> Option<Model> {
    for path in [CALLED, "0"] {
        let _ = document.word(path);
    }
    strategy(document);
    devices(document);
    data(document);
    plugin(document);
    callbacks(document);
    model(document)
}

/// The last name of a path: `nl.MegatronStrategy`.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// Class of a part: that of `run.Config(Class, …)`, or of `Class(…)`.
fn class(document: &Document, path: &str) -> Option<String> {
    let called = document.word(&format!("{path}.{CALLED}"))?;
    let made = matches!(last(&called), "Config" | "Partial");
    let name = if made { document.word(&format!("{path}.0"))? } else { called };
    Some(last(&name).to_owned())
}

/// Names a part that decides and is not read.
fn refuse(document: &Document, path: &str, is: &str, expected: &str) {
    let message = format!("`{path}` {is}, and decides the step");
    document.note(Finding::error("unread-setting", message).at_maybe(document.place(path).as_ref()).expected(expected));
}

/// Whether a key has a value that is not None.
fn says(document: &Document, path: &str) -> bool {
    document.peek(path).is_some_and(|word| word != "None") || document.count(path).is_some()
}

/// Puts a value in, on the line of a path.
fn put(document: &mut Document, path: &str, value: &str, of: &str) {
    let line = document.place(of).map_or(1, |place| place.line);
    document.put(path, value, line);
}

/// `MegatronStrategy`: its degrees are the model's, and its FSDP is DDP's.
fn strategy(document: &mut Document) {
    match class(document, STRATEGY).as_deref() {
        Some("MegatronStrategy") => {}
        Some(other) => {
            let is = format!("is `{other}`, which is not read");
            return refuse(document, STRATEGY, &is, "nl.MegatronStrategy");
        }
        None => return refuse(document, STRATEGY, "is not read", "run.Config(nl.MegatronStrategy, …)"),
    }
    for (key, default) in DEGREES {
        let (own, of_model) = (format!("{STRATEGY}.{key}"), format!("{MODEL}.{key}"));
        if document.has(&of_model) {
            let value = document.peek(&own).unwrap_or(default).to_owned();
            put(document, &of_model, &value, STRATEGY);
        }
    }
    match document.peek(DDP) {
        None | Some("megatron" | "None") => {}
        Some(_) => refuse(document, DDP, "is not Megatron's", "run.Config(DistributedDataParallelConfig, …)"),
    }
    let fsdp = format!("{STRATEGY}.fsdp");
    let is_sharded = match document.word(&fsdp).as_deref() {
        Some("megatron") => true,
        Some(_) => return refuse(document, &fsdp, "is not Megatron's FSDP", "\"megatron\" or None"),
        None => ["use_megatron_fsdp", "use_custom_fsdp"]
            .iter()
            .any(|key| document.peek(&format!("{DDP}.{key}")) == Some("True")),
    };
    if is_sharded {
        put(document, &format!("{DDP}.use_megatron_fsdp"), "True", STRATEGY);
    } else if document.has(&format!("{DDP}.data_parallel_sharding_strategy")) {
        put(document, &format!("{DDP}.data_parallel_sharding_strategy"), "None", STRATEGY);
    }
}

/// The number of GPUs, and that each batch is a step.
fn devices(document: &Document) {
    for path in ["trainer.num_nodes", "trainer.devices"] {
        if document.peek(path).and_then(|word| word.parse::<u32>().ok()).is_none() {
            refuse(document, path, "is not read", "a number in the recipe, or the recipe's own default");
        }
    }
    let path = "trainer.accumulate_grad_batches";
    if document.word(path).is_some_and(|word| word != "1") {
        refuse(document, path, "is not 1", "1: global_batch_size over micro_batch_size accumulates");
    }
}

/// Batches and the sequence, with the defaults of known modules of data.
fn data(document: &mut Document) {
    let class = class(document, "data");
    let is_known = class.as_deref().is_some_and(|class| DATA.contains(&class));
    for (key, default) in SIZES {
        let path = format!("data.{key}");
        if document.has(&path) && says(document, &path) {
            continue;
        }
        if is_known {
            put(document, &path, default, "data");
        } else {
            let of = class.as_deref().map_or_else(String::new, |class| format!(" of `{class}`"));
            refuse(document, &path, format!("{of} is not read").trim_start(), "a number in the recipe");
        }
    }
    // The samples decide: the model's is the longest that it takes.
    if let Some(length) = document.peek("data.seq_length").map(str::to_owned)
        && document.has(&format!("{MODEL}.seq_length"))
    {
        put(document, &format!("{MODEL}.seq_length"), &length, "data.seq_length");
    }
}

/// `MegatronMixedPrecision`, which overrides DDP's and the optimizer's formats.
fn plugin(document: &mut Document) {
    let is_plugin = |path: &&str| class(document, path).as_deref() == Some("MegatronMixedPrecision");
    let Some(path) = ["trainer.plugins", "trainer.plugins.0"].into_iter().find(is_plugin) else {
        if document.peek("trainer.precision").is_none_or(|word| word == "None") {
            refuse(document, "trainer.plugins", "holds no precision that is read", "bf16_mixed(), fp16_mixed(), …");
        }
        return;
    };
    if document.peek(&format!("{path}.precision")).is_none() {
        refuse(document, &format!("{path}.precision"), "is not read", "\"bf16-mixed\", \"16-mixed\"");
    }
    if let Some(value) = document.peek(&format!("{path}.fp8_params")).map(str::to_owned)
        && !path.ends_with('0')
    {
        put(document, &format!("{path}.fp8_param_gather"), &value, path);
    }
    let is_half = document.peek(&format!("{path}.precision")).is_some_and(|word| word.starts_with("bf16"));
    let reduced = document.peek(&format!("{path}.grad_reduce_in_fp32")).unwrap_or("True").to_owned();
    put(document, &format!("{DDP}.grad_reduce_in_fp32"), &reduced, path);
    for (key, value) in [("bf16", is_half), ("fp16", !is_half)] {
        let own = format!("optim.config.{key}");
        if document.has(&own) {
            put(document, &own, if value { "True" } else { "False" }, path);
        }
    }
    // DDP shards the optimizer's states where the optimizer says so.
    let sharded = document.peek("optim.config.use_distributed_optimizer").unwrap_or("False").to_owned();
    put(document, &format!("{DDP}.use_distributed_optimizer"), &sharded, "optim");
}

/// Callbacks with settings that affect the step.
fn callbacks(document: &mut Document) {
    for at in 0..document.count("trainer.callbacks").unwrap_or(0) {
        let path = format!("trainer.callbacks.{at}");
        match class(document, &path).as_deref() {
            Some("MegatronCommOverlapCallback") => overlap(document, &path),
            Some("MegatronTokenDropCallback") => {
                for (key, default) in
                    [("moe_expert_capacity_factor", "1.0"), ("moe_pad_expert_input_to_capacity", "True")]
                {
                    let value = document.word(&format!("{path}.{key}")).unwrap_or_else(|| default.to_owned());
                    put(document, &format!("{MODEL}.{key}"), &value, &path);
                }
            }
            Some("DeepEPCallback") => {
                let own = [
                    ("moe_token_dispatcher_type", "flex"),
                    ("moe_enable_deepep", "True"),
                    ("moe_shared_expert_overlap", "False"),
                ];
                for (key, value) in own {
                    put(document, &format!("{MODEL}.{key}"), value, &path);
                }
            }
            Some(other) if OTHER_TRAINING.contains(&other) => {
                refuse(document, &path, &format!("is `{other}`, which is not read"), "a recipe without it");
            }
            Some(_) | None => {}
        }
    }
}

/// Overlaps that `MegatronCommOverlapCallback` turns on: those of data parallelism with a distributed optimizer, and those that its
/// arguments name.
fn overlap(document: &mut Document, path: &str) {
    let degree = |key: &str| document.peek(&format!("{STRATEGY}.{key}")).unwrap_or_default().to_owned();
    let is_split = degree("tensor_model_parallel_size").parse::<u32>().is_ok_and(|tp| tp > 1);
    let can = is_split && degree("sequence_parallel") == "True";
    let told = |document: &Document, key: &str| document.word(&format!("{path}.{key}"));
    let of_tensors = can && told(document, "tp_comm_overlap").as_deref() == Some("True");
    put(document, &format!("{MODEL}.tp_comm_overlap"), if of_tensors { "True" } else { "False" }, path);
    for key in ["defer_embedding_wgrad_compute", "wgrad_deferral_limit"] {
        if let Some(value) = told(document, key) {
            put(document, &format!("{MODEL}.{key}"), &value, path);
        }
    }
    if document.peek(&format!("{DDP}.use_distributed_optimizer")) != Some("True") {
        return;
    }
    for key in ["overlap_grad_reduce", "overlap_param_gather"] {
        let value = told(document, key).unwrap_or_else(|| "True".to_owned());
        put(document, &format!("{DDP}.{key}"), &value, path);
    }
}

/// Names a model that only the user can give.
fn unnamed(document: &Document, is: &str) {
    let finding = Finding::error(MISSING, format!("`{MODEL}` {is}")).at_maybe(document.place(MODEL).as_ref());
    document.note(finding.expected("--model NAME, or --model config.json"));
}

/// Values that the user can give.
const MISSING: &str = "missing-flag";

/// Settings that affect the step, of the classes of models' configurations, by what their names begin with.
///
/// Source: [nemo] `nemo/collections/llm/gpt/model/{base,ssm,deepseek,gpt_oss,llama,mixtral,qwen3}.py`, main of 2025-09.
const CLASSES: &[(&str, &[(&str, &str)])] = &[
    ("", &[("cross_entropy_loss_fusion", "True")]),
    ("DeepSeek", &[("moe_token_dispatcher_type", "alltoall"), ("moe_shared_expert_overlap", "True")]),
    ("Llama4", &[("moe_token_dispatcher_type", "alltoall"), ("moe_shared_expert_overlap", "True")]),
    ("GPTOSS", &[("moe_token_dispatcher_type", "alltoall")]),
    ("Mixtral", &[("moe_token_dispatcher_type", "alltoall")]),
    ("Qwen3", &[("moe_token_dispatcher_type", "alltoall")]),
];

/// The catalogue's model that the class of the model's configuration names, whole: `Llama3Config8B` is `llama3-8b`.
fn model(document: &mut Document) -> Option<Model> {
    let Some(class) = class(document, MODEL) else {
        unnamed(document, "is not read");
        return None;
    };
    if SIZED.iter().any(|key| says(document, &format!("{MODEL}.{key}"))) {
        unnamed(document, &format!("sets sizes that `{class}` has"));
        return None;
    }
    let name = NAMES.iter().find(|(own, _)| *own == class).map(|(_, name)| (*name).to_owned());
    let name = name.unwrap_or_else(|| class.replacen("Config", "", 1));
    let Some(mut model) = known::of_recipe(&name) else {
        unnamed(document, &format!("is `{class}`, which the catalogue lacks"));
        return None;
    };
    let of_class = CLASSES.iter().filter(|(begin, _)| class.starts_with(begin)).flat_map(|(_, own)| *own);
    for (key, value) in of_class {
        let path = format!("{MODEL}.{key}");
        if !document.has(&path) {
            put(document, &path, value, MODEL);
        }
    }
    // A module that predicts several tokens is the recipe's choice.
    model.mtp_depth = document.word(&format!("{MODEL}.mtp_num_layers")).map_or(Some(0), |word| word.parse().ok())?;
    let message = format!("`{class}` is read as the model {}, with its vocabulary", model.name);
    let place = document.place(MODEL);
    document.note(Finding::note("assumed", message).at_maybe(place.as_ref()).expected("another: --model"));
    Some(model)
}
