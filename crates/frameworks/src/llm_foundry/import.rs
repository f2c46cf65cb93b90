//! llm-foundry's YAML: the engine (FSDP or DDP), batch, sequence, precision, optimizer and model, whose values may refer to others.
//!
//! Source: [llm-foundry-code] `utils/config_utils.py`, `command_utils/train.py`, commit 8c8dd48f; [composer]
//! `utils/parallelism.py`, `distributed/{dist_strategy,mosaic_parallelism}.py`, `core/{state,precision}.py`, release
//! 0.32.1.

use super::model;
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::{Imported, Unknown};
use crate::readers::document::{self, Document, Form};
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::{Layout, Recompute, ZeroStage};
use meshwright_engine::stack::Family;
use meshwright_engine::suggest::{is_slip, nearest};
use meshwright_engine::workload::{Half, Recipe};

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "llm-foundry";

/// Keys of `TrainConfig`, which refuses others.
const TOP: &str = "model tokenizer optimizer scheduler train_loader device_train_batch_size device_eval_batch_size max_duration \
    max_seq_len seed precision code_paths max_split_size_mb expandable_segments cuda_load_lazy dist_timeout fsdp_config tp_config \
    accumulate_train_batch_on_tokens eval_interval eval_loader eval_loaders icl_tasks icl_tasks_str eval_gauntlet \
    eval_gauntlet_str \
    icl_subset_num_batches icl_seq_len loggers progress_bar log_to_console python_log_level console_log_interval \
    log_config callbacks \
    algorithms save_folder save_latest_filename save_overwrite save_weights_only save_filename save_interval \
    save_num_checkpoints_to_keep load_path load_weights_only load_strict_model_weights load_ignore_keys save_ignore_keys \
    only_hf_checkpoint only_composer_checkpoint train_subset_num_batches device_train_microbatch_size global_train_batch_size \
    spin_dataloaders eval_subset_num_batches eval_first compile_config metadata flatten_metadata run_name autoresume \
    profiler variables n_gpus device_train_grad_accum";

/// Fields of `FSDPConfig`, and those that older releases had; others are taken and have no effect.
const FSDP: &str = "activation_checkpointing activation_checkpointing_reentrant activation_cpu_offload auto_wrap \
te_checkpoint_wrapper te_shard_fp8_weight backward_prefetch backward_prefetch_limit cpu_offload data_parallel_shard_degree \
    data_parallel_replicate_degree \
    forward_prefetch forward_prefetch_limit ignored_modules keep_low_precision_grads limit_all_gathers load_monolith_rank0_only \
    load_planner mixed_precision process_group save_planner sharded_ckpt_prefix_dir sharding_strategy state_dict_type \
    sync_module_states use_orig_params verbose min_params flatten_parameters device_mesh load_fsdp_monolith_rank0_only";

/// Reads a file of this kind, or a job of MosaicML's platform with one below `parameters`.
///
/// # Errors
/// A file that does not parse, or a part of it that decides the layout and is not read.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let document = document::parse(text, Form::Yaml, context)?;
    let Some(inner) = document.below("parameters") else { return imported_from(document, &Launched::default()) };
    let world = document.size("compute.gpus").or_else(|| document.size("gpu_num"));
    imported_from(inner, &Launched { world, ..Launched::default() })
}

/// Whether a document is a configuration of a training.
pub(crate) fn is_its(document: &Document) -> bool {
    document.has("train_loader") && (document.has("model.name") || document.has("device_train_microbatch_size"))
}

/// Plan, workload and settings of a configuration.
///
/// # Errors
/// Tensor parallelism, process groups, and models that are not read.
pub(crate) fn imported_from(mut document: Document, launched: &Launched) -> Result<Imported, ImportError> {
    document.resolve();
    let document = &document;
    let mut imported = Imported::new(KIND, Family::Fsdp, "foundry-2023");
    (imported.world, imported.gpus_per_node) = (launched.world, launched.gpus_per_node);
    let dp = launched.world.unwrap_or(1);
    imported.plan.layout = Layout { tp: 1, cp: 1, pp: 1, dp, ep: 1, etp: 1 };
    tensor_parallelism(document)?;
    let wraps = !document.keys("fsdp_config").is_empty() && launched.world != Some(1);
    if wraps {
        fsdp(document, &mut imported)?;
    } else if launched.world == Some(1) && document.has("fsdp_config") {
        let place = document.place("fsdp_config");
        let finding = Finding::warning("without-effect", "one GPU trains without FSDP, and recomputes nothing");
        document.note(finding.at_maybe(place.as_ref()));
    }
    precision(document, wraps, &mut imported);
    optimizer(document, &mut imported);
    batch(document, &mut imported);
    imported.work.seq_len = sequence(document);
    model::read(document, &mut imported)?;
    target(document, &imported);
    others(document);
    keys(document, &mut imported);
    for (key, path) in [
        ("mbs", "device_train_microbatch_size"),
        ("batch", "global_train_batch_size"),
        ("seq", "max_seq_len"),
        ("zero", "fsdp_config.sharding_strategy"),
        ("shard", "fsdp_config.data_parallel_shard_degree"),
        ("recompute", "fsdp_config.activation_checkpointing"),
        ("ep", "model.ffn_config.moe_world_size"),
        ("heads", "model.n_heads"),
        ("layers", "model.n_layers"),
    ] {
        imported.places.extend(document.place(path).map(|place| (key.to_owned(), place)));
    }
    imported.findings.extend(document.findings.take());
    Ok(imported)
}

fn refused(document: &Document, path: &str, why: String, expected: &str) -> ImportError {
    let place = document.place(path).unwrap_or_else(|| document.start());
    ImportError { file: place.file, line: place.line, why, expected: expected.into() }
}

/// `tp_config`: its one strategy splits MLPs alone.
fn tensor_parallelism(document: &Document) -> Result<(), ImportError> {
    let degree = "tp_config.tensor_parallel_degree";
    if document.keys("tp_config").is_empty() || document.peek(degree) == Some("1") {
        let _ = document.word(degree);
        return Ok(());
    }
    let why = format!(
        "`tp_config` over {} ranks splits MLPs alone, which no plan says",
        document.peek(degree).unwrap_or("?")
    );
    Err(refused(document, "tp_config", why, "a configuration without it"))
}

/// Sharding, recomputation and offloading.
fn fsdp(document: &Document, imported: &mut Imported) -> Result<(), ImportError> {
    let path_of = |key: &str| format!("fsdp_config.{key}");
    for (key, why) in [
        ("process_group", "groups of its processes are not read"),
        ("device_mesh", "Composer refuses `device_mesh` since release 0.24"),
    ] {
        if document.has(&path_of(key))
            && document.peek(&path_of(key)).is_none_or(|word| !matches!(word, "" | "null" | "~"))
        {
            let expected = "`data_parallel_shard_degree` and `data_parallel_replicate_degree`";
            return Err(refused(document, &path_of(key), why.into(), expected));
        }
    }
    let copies = mesh(document, imported);
    let path = path_of("sharding_strategy");
    let strategy = document.word(&path).unwrap_or_else(|| "FULL_SHARD".into()).to_ascii_uppercase();
    let plan = &mut imported.plan;
    plan.zero = ZeroStage::Three;
    match strategy.as_str() {
        "FULL_SHARD" | "HYBRID_SHARD" => {}
        "SHARD_GRAD_OP" | "_HYBRID_SHARD_ZERO2" => plan.reshard_after_forward = false,
        "NO_SHARD" => plan.zero = ZeroStage::Zero,
        other => document.wrong(&path, other, "FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD or NO_SHARD"),
    }
    if strategy.contains("HYBRID") && !copies {
        let message = format!("`{strategy}` without `data_parallel_replicate_degree` shards over all GPUs");
        document.note(Finding::warning("without-effect", message).at_maybe(document.place(&path).as_ref()));
    }
    if strategy == "NO_SHARD" && copies {
        let message = "`NO_SHARD` beside `data_parallel_replicate_degree`";
        document.note(Finding::error("contradiction", message).at_maybe(document.place(&path).as_ref()));
    }
    if document.switch(&path_of("activation_checkpointing")).unwrap_or(false) {
        plan.recompute = Recompute::Full;
    }
    if document.switch(&path_of("activation_cpu_offload")).unwrap_or(false) {
        plan.offload.activations = 1.0;
    }
    if document.switch(&path_of("cpu_offload")).unwrap_or(false) {
        let place = document.place(&path_of("cpu_offload"));
        document.note(Finding::error("wrong-value", "Composer refuses `cpu_offload`").at_maybe(place.as_ref()));
    }
    Ok(())
}

/// Sizes of the device mesh; whether weights are replicated.
fn mesh(document: &Document, imported: &mut Imported) -> bool {
    let (shard, copies) = ("fsdp_config.data_parallel_shard_degree", "fsdp_config.data_parallel_replicate_degree");
    let place = document.place(shard).or_else(|| document.place(copies));
    let (shard, copies) = (document.degree(shard), document.degree(copies));
    let product = u64::from(shard.unwrap_or(1)) * u64::from(copies.unwrap_or(1));
    let whole = shard.is_some() && (copies.is_some() || !document.has("fsdp_config.data_parallel_replicate_degree"));
    match imported.world.map(u64::from) {
        Some(world) if (whole && product != world) || !world.is_multiple_of(product) => {
            let message = format!("shards and copies multiply to {product}, and there are {world} GPUs");
            let finding = Finding::error("world-size", message).at_maybe(place.as_ref());
            document.note(finding.expected("−1 for one of them, or a product of all GPUs"));
            return false;
        }
        None if whole => {
            imported.world = u32::try_from(product).ok();
            imported.plan.layout.dp = imported.world.unwrap_or(1);
        }
        Some(_) | None => {}
    }
    imported.shard_groups = copies.filter(|copies| *copies > 1);
    if imported.world.is_some() || shard.is_some() {
        let dp = imported.plan.layout.dp;
        let group = shard.or_else(|| copies.map(|copies| dp / copies));
        imported.plan.shard_group = group.filter(|group| *group > 1 && (*group < dp || imported.world.is_none()));
    }
    copies.is_some()
}

/// Number formats of GEMMs, weights, gradients and optimizer states.
fn precision(document: &Document, wraps: bool, imported: &mut Imported) {
    let name = document.word("precision").unwrap_or_else(|| "amp_bf16".into());
    let whole = |what: &str| {
        let finding = Finding::warning("not-modelled", format!("{what}: trained in fp32, GEMMs priced as bf16"));
        document.note(finding.at_maybe(document.place("precision").as_ref()));
        Recipe { weight: 4.0, gradient: 4.0, master: 0.0, state: 8.0 }
    };
    match name.as_str() {
        "amp_bf16" => {}
        "amp_fp16" | "amp" => imported.work.half = Half::Fp16,
        "amp_fp8" => narrow(document, imported),
        "fp32" => imported.work.recipe = whole("`precision: fp32`"),
        other => document.wrong("precision", other, "amp_bf16, amp_fp16, amp_fp8 or fp32"),
    }
    let half = ["bf16", "fp16", "float16", "bfloat16", "amp_fp16", "amp_bf16"];
    let narrow_weights = document.word("model.master_weights_dtype").is_some_and(|word| half.contains(&word.as_str()));
    if narrow_weights {
        imported.work.recipe = Recipe::HALF;
    }
    if !wraps {
        return;
    }
    let path = "fsdp_config.mixed_precision";
    let (cast, reduced) = if document.keys(path).is_empty() {
        let kind = document.word(path).unwrap_or_else(|| "DEFAULT".into()).to_ascii_uppercase();
        if !["DEFAULT", "PURE", "FULL"].contains(&kind.as_str()) {
            document.wrong(path, &kind, "PURE, DEFAULT or FULL");
        }
        (kind != "FULL", if kind == "PURE" && name != "fp32" { 2.0 } else { 4.0 })
    } else {
        let word_of = |key: &str| document.word(&format!("{path}.{key}"));
        let is_wide = |word: &String| word.contains("32");
        let cast = word_of("param_dtype").is_some_and(|word| !is_wide(&word));
        let _ = word_of("buffer_dtype");
        // Gradients are reduced as they were made where the file names no format.
        let wide = word_of("reduce_dtype").as_ref().map_or(!cast && !narrow_weights, is_wide);
        (cast, if wide { 4.0 } else { 2.0 })
    };
    if !cast && name != "fp32" && !narrow_weights {
        imported.work.recipe = whole("weights that are gathered in fp32");
    }
    imported.settings.put("reduce_bytes", reduced, 4.0);
}

/// `amp_fp8`: GEMMs of Transformer Engine's layers alone are in FP8.
fn narrow(document: &Document, imported: &mut Imported) {
    let place = document.place("precision");
    let name = document.word("model.fc_type.name").filter(|_| !document.keys("model.fc_type").is_empty());
    let linear = name.or_else(|| document.peek("model.fc_type").map(str::to_owned)).is_some_and(|name| name == "te");
    let mlp = document.peek("model.ffn_config.ffn_type").is_some_and(|kind| kind.starts_with("te"));
    if linear || mlp {
        imported.work.format = Format::Fp8;
    }
    let message = match (linear, mlp) {
        (true, _) => return,
        (false, true) => "`amp_fp8` multiplies in the MLPs alone (`te_ln_mlp`): all layers are priced so",
        (false, false) => "`amp_fp8` without layers of Transformer Engine (`fc_type: te`) multiplies in bf16",
    };
    let rule = if mlp { "not-modelled" } else { "without-effect" };
    document.note(Finding::warning(rule, message).at_maybe(place.as_ref()));
}

/// States of the optimizer.
fn optimizer(document: &Document, imported: &mut Imported) {
    let path = "optimizer.name";
    let Some(name) = document.word(path) else { return };
    let share = match name.as_str() {
        "decoupled_adamw" | "adamw" => 1.0,
        "decoupled_lionw" | "clip_lion" | "adalr_lion" => 0.5,
        "decoupled_lionw_8b" => 0.125,
        other => {
            let message = format!("`{other}` is priced as AdamW");
            document.note(Finding::warning("not-modelled", message).at_maybe(document.place(path).as_ref()));
            1.0
        }
    };
    imported.work.recipe.state *= share;
}

/// `calculate_batch_size_info`: the batch of all GPUs, and micro-batches of at most that of one.
fn batch(document: &Document, imported: &mut Imported) {
    let (path, whole_path) = ("device_train_microbatch_size", "global_train_batch_size");
    let place = document.place(path);
    let whole = document.size(whole_path);
    if whole.is_none() {
        let finding = Finding::error("missing-flag", format!("`{whole_path}` is not given"));
        document.note(finding.at_maybe(document.place(whole_path).as_ref()));
    }
    imported.work.global_batch = whole;
    let micro_batch = document.peek(path);
    if micro_batch.is_none_or(|word| word == "auto") {
        let _ = document.word(path);
        let found = "the largest that fits, found while it trains, and priced as 1";
        let message = match micro_batch {
            Some(_) => format!("`{path}: auto` is {found}"),
            None => format!("`{path}` is not given: its default, `auto`, is {found}"),
        };
        let finding = Finding::error("unresolved-value", message).at_maybe(place.as_ref());
        document.note(finding.expected("a number of sequences"));
        return;
    }
    let micro = document.size(path).unwrap_or(1);
    imported.plan.micro_batch = micro;
    let (Some(world), Some(whole)) = (imported.world, whole) else { return };
    let each = whole / world;
    if !whole.is_multiple_of(world) {
        let message = format!("a batch of {whole} is not divided by {world} GPUs, and llm-foundry refuses it");
        document.note(Finding::error("does-not-divide", message).at_maybe(document.place(whole_path).as_ref()));
    } else if micro > each {
        let message =
            format!("micro-batches of {micro} are over the {each} sequences of one GPU, which are one micro-batch");
        document.note(Finding::note("assumed", message).at_maybe(place.as_ref()));
        imported.plan.micro_batch = each;
    } else if !each.is_multiple_of(micro) {
        let message =
            format!("the {each} sequences of one GPU are not divided by micro-batches of {micro}: the last is smaller");
        document.note(Finding::warning("does-not-divide", message).at_maybe(place.as_ref()));
    }
}

/// Tokens of a sequence: those of the training data.
fn sequence(document: &Document) -> Option<u32> {
    let (own, top) = ("train_loader.dataset.max_seq_len", "max_seq_len");
    let (of_data, whole) = (document.size(own), document.size(top));
    if let (Some(of_data), Some(whole)) = (of_data, whole)
        && of_data != whole
    {
        let message = format!("`{own}` is {of_data} and `{top}` is {whole}: the data's counts");
        document.note(Finding::warning("contradiction", message).at_maybe(document.place(own).as_ref()));
    }
    let is_tuning = document.peek("train_loader.name") == Some("finetuning");
    if is_tuning && document.word("train_loader.dataset.packing_ratio").is_none() {
        let message = "sequences that are not packed are priced as if each were `max_seq_len` long";
        document.note(Finding::note("assumed", message).at_maybe(document.place("train_loader").as_ref()));
    }
    if of_data.or(whole).is_none() {
        document.note(Finding::error("missing-flag", "`max_seq_len` is not given"));
    }
    of_data.or(whole)
}

/// `activation_checkpointing_target` other than whole blocks.
fn target(document: &Document, imported: &Imported) {
    let path = "model.activation_checkpointing_target";
    let whole = document.peek(path).is_some_and(|word| word.eq_ignore_ascii_case("mptblock"));
    if document.has(path) && !whole && imported.plan.recompute == Recompute::Full {
        let finding = Finding::error("unread-setting", "`activation_checkpointing_target` recomputes parts of blocks");
        document.note(finding.at_maybe(document.place(path).as_ref()).expected("MPTBlock"));
    }
}

/// Findings of settings that are priced as if they were off.
fn others(document: &Document) {
    let plain = ["gradient_clipping", "low_precision_layernorm", "fused_layernorm"];
    for key in document.keys("algorithms").iter().filter(|key| !plain.contains(&key.as_str())) {
        let place = document.place(&format!("algorithms.{key}"));
        let finding = Finding::warning("not-modelled", format!("the algorithm `{key}` is priced as if it were off"));
        document.note(finding.at_maybe(place.as_ref()));
    }
    if document.has("compile_config") && document.peek("compile_config").is_none_or(|word| !matches!(word, "" | "null"))
    {
        let finding = Finding::warning("not-modelled", "`compile_config` compiles the model: priced as eager");
        document.note(finding.at_maybe(document.place("compile_config").as_ref()));
    }
    // Sequences of evaluation.
    let _ = document.word("icl_seq_len");
}

/// Keys that are refused or have no effect.
fn keys(document: &Document, imported: &mut Imported) {
    let top = document.keys("").into_iter().map(|key| (key.clone(), key, TOP));
    let inner = document.keys("fsdp_config").into_iter().map(|key| (format!("fsdp_config.{key}"), key, FSDP));
    let unread: Vec<String> = document.unread().into_iter().map(|(path, _)| path).collect();
    let strict = document.has("variables");
    for (path, key, known) in top.chain(inner) {
        if known.split_whitespace().any(|known| known == key) {
            continue;
        }
        let Some(place) = document.place(&path) else { continue };
        let near = nearest(&key, known.split_whitespace());
        if strict && known == TOP {
            let finding =
                Finding::error("unknown-key", format!("`{key}`: llm-foundry refuses keys that it does not know"));
            let near = near.filter(|near| is_slip(&key, near));
            let expected = near.map_or_else(|| "below `variables`".into(), |near| format!("did you mean `{near}`?"));
            document.note(finding.at(&place).expected(expected));
        } else if known == FSDP || (near.as_ref().is_some_and(|near| is_slip(&key, near)) && unread.contains(&path)) {
            imported.unknown.push(Unknown { name: path, values: Vec::new(), place, nearest: near });
        }
    }
    let told = |path: &String| imported.unknown.iter().any(|unknown| unknown.name == *path);
    imported.without_effect = unread.into_iter().filter(|path| !told(path)).collect();
}
