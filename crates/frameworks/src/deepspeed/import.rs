//! DeepSpeed's JSON. It names no model and few degrees other than ZeRO's: the launcher and the model's code say the rest.
//!
//! Source: [deepspeed] `deepspeed/runtime/config.py`, `zero/config.py`, `precision_config.py`, release 0.19.8.

use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::{Imported, Unknown, divides, replicas};
use crate::readers::document::{self, Document, Form};
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::{CpKind, Layout, Recompute, ZeroStage};
use meshwright_engine::stack::Family;
use meshwright_engine::workload::{Half, Recipe};

/// Top-level keys that DeepSpeed reads.
const TOP: &str = "activation_checkpointing aio autotuning bf16 bfloat16 checkpoint comet comms_logger communication_data_type \
    compile csv_monitor data_efficiency data_parallel_size data_types dataloader_drop_last datastates_ckpt \
    disable_allgather disable_python_gc \
    dump_state expert_parallel flops_profiler fp16 gradient_accumulation_steps gradient_allreduce_op gradient_clipping \
    gradient_predivide_factor hybrid_engine log_level managed_gradient_accumulation memory_breakdown optimizer pipeline \
    prescale_gradients scheduler seq_parallel_communication_data_type sequence_parallel_size steps_per_print tensor_parallel \
    tensorboard timers torch_autocast train_batch_size train_micro_batch_size_per_gpu use_data_before_expert_parallelism \
    vocabulary_size wall_clock_breakdown wandb weight_quantization zero_allow_untested_optimizer zero_force_ds_cpu_optimizer \
    zero_optimization";
/// Top-level keys that only earlier releases read.
const REMOVED: &str = "amp compression_training curriculum_learning eigenvalue elasticity graph_harvesting nebula \
    progressive_layer_drop quantize_training sparse_attention sparse_gradients";
/// Keys of `zero_optimization`, which refuses others.
const ZERO: &str = "stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce \
    allgather_partitions allgather_bucket_size overlap_comm compute_grad_norm load_from_fp32_weights elastic_checkpoint \
    offload_param offload_optimizer zenflow sub_group_size cpu_offload_param cpu_offload_use_pin_memory cpu_offload \
    prefetch_bucket_size param_persistence_threshold model_persistence_threshold max_live_parameters max_reuse_distance \
    gather_16bit_weights_on_model_save module_granularity_threshold use_all_reduce_for_fetch_params allgather_sequential \
    ignore_unused_parameters legacy_stage1 round_robin_gradients parameter_alignment \
    zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights zero_quantized_gradients \
    memory_efficient_linear pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks \
    save_muon_momentum_buffer_in_memory leaf_module";

/// Prefix of ZeRO's keys that concern stage 3.
const PREFIX: &str = "stage3_";
/// Those that may also have the prefix `stage3_`, and one that must.
const STAGE3: &str = "prefetch_bucket_size param_persistence_threshold model_persistence_threshold max_live_parameters \
    max_reuse_distance gather_16bit_weights_on_model_save module_granularity_threshold use_all_reduce_for_fetch_params \
    allgather_sequential gather_fp16_weights_on_model_save";

fn lists(list: &str, key: &str) -> bool {
    list.split_whitespace().any(|known| known == key)
}

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "deepspeed";

/// Reads a file of this kind.
///
/// # Errors
/// A file that does not parse.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    Ok(imported_from(&document::parse(text, Form::Json, context)?, &Launched::default()))
}

/// Plan, workload and settings of a configuration.
pub(crate) fn imported_from(document: &Document, launched: &Launched) -> Imported {
    let mut imported = Imported::new(KIND, Family::Deepspeed, super::STACK);
    imported.world = launched.world;
    imported.gpus_per_node = launched.gpus_per_node;
    zero(document, &mut imported);
    let or_one = |size: Option<u32>| size.unwrap_or(1);
    let tp = or_one(
        document
            .number("tensor_parallel.autotp_size")
            .filter(|n| *n > 0)
            .or_else(|| document.size("tensor_parallel.tp.tp_size")),
    );
    let cp = or_one(document.size("sequence_parallel_size"));
    let pp = or_one(document.number("pipeline.stages"));
    let ep = or_one(document.size("expert_parallel.autoep_size"));
    let etp = or_one(document.size("expert_parallel.expert_tensor_parallel_size"));
    let dp = launched.world.map_or(1, |world| replicas(world, &[tp, cp, pp]));
    imported.plan.layout = Layout { tp, cp, pp, dp, ep, etp };
    if cp > 1 {
        imported.plan.cp_kind = CpKind::AllToAll;
    }
    batch(document, &mut imported);
    precision(document, &mut imported);
    replicated(document, &mut imported);
    recompute(document, pp, &mut imported);
    if pp > 1 && imported.plan.zero >= ZeroStage::Two {
        let place = document.place("zero_optimization.stage");
        let finding = Finding::error("contradiction", "ZeRO 2 and 3 do not combine with the pipeline engine")
            .at_maybe(place.as_ref());
        document.note(finding.expected("stage 0 or 1, or one pipeline stage"));
    }
    read_other_keys(document, &mut imported);
    divides(&mut document.findings.borrow_mut(), launched.world, &imported.plan, None);
    for (key, path) in [
        ("zero", "zero_optimization.stage"),
        ("mbs", "train_micro_batch_size_per_gpu"),
        ("batch", "train_batch_size"),
        ("tp", "tensor_parallel.autotp_size"),
        ("cp", "sequence_parallel_size"),
        ("pp", "pipeline.stages"),
    ] {
        let place = document.place(path).filter(|_| document.peek(path) != Some(AUTO));
        imported.places.extend(place.map(|place| (key.to_owned(), place)));
    }
    imported.findings = document.findings.take();
    imported
}

/// Value that the Trainer fills.
const AUTO: &str = "auto";
/// Finding on a JSON without a batch.
pub(crate) const NO_BATCH: &str = "neither `train_batch_size` nor `train_micro_batch_size_per_gpu` has a number";

fn zero(document: &Document, imported: &mut Imported) {
    let stage = document.number("zero_optimization.stage").unwrap_or(0);
    match u8::try_from(stage).ok().and_then(|stage| ZeroStage::try_from(stage).ok()) {
        Some(stage) => imported.plan.zero = stage,
        None => document.wrong("zero_optimization.stage", &stage.to_string(), "0, 1, 2 or 3"),
    }
    let shards = document.size("zero_optimization.zero_hpz_partition_size").unwrap_or(1);
    if shards > 1 {
        imported.plan.shard_group = Some(shards);
        let place = document.place("zero_optimization.zero_hpz_partition_size");
        let finding =
            Finding::note("not-modelled", "`zero_hpz_partition_size` is priced as sharding inside of its groups alone");
        document.note(finding.at_maybe(place.as_ref()));
    }
    let device =
        |part: &str| document.word(&format!("zero_optimization.{part}.device")).filter(|device| device != "none");
    let optimizer =
        device("offload_optimizer").is_some() || document.switch("zero_optimization.cpu_offload").unwrap_or(false);
    if optimizer {
        imported.plan.offload.optimizer =
            document.real("zero_optimization.offload_optimizer.ratio").unwrap_or(1.0).clamp(0.0, 1.0);
    }
    if device("offload_param").is_some() {
        let place = document.place("zero_optimization.offload_param");
        document.note(
            Finding::warning("not-modelled", "offloaded parameters are priced as if they stayed on the device")
                .at_maybe(place.as_ref()),
        );
    }
    let overlaps = document.switch("zero_optimization.overlap_comm").unwrap_or(imported.plan.zero == ZeroStage::Three);
    imported.settings.put("overlap.dp", overlaps, false);
    for key in document.keys("zero_optimization") {
        if !key.strip_prefix(PREFIX).map_or_else(|| lists(ZERO, &key), |rest| lists(STAGE3, rest)) {
            let path = format!("zero_optimization.{key}");
            let place = document.place(&path);
            let prefixed: Vec<String> = STAGE3.split_whitespace().map(|rest| format!("{PREFIX}{rest}")).collect();
            let known = ZERO.split_whitespace().chain(prefixed.iter().map(String::as_str));
            let unprefixed = key.strip_prefix(PREFIX).filter(|rest| lists(ZERO, rest)).map(str::to_owned);
            let near = unprefixed.or_else(|| meshwright_engine::suggest::nearest(&key, known));
            let expected = near.map_or_else(|| "remove it".to_owned(), |near| format!("did you mean `{near}`?"));
            document.note(
                Finding::error(
                    "unknown-key",
                    format!("`{path}`: DeepSpeed refuses keys of ZeRO that it does not know"),
                )
                .at_maybe(place.as_ref())
                .expected(expected),
            );
        }
    }
}

/// Reads stage 0 with 16-bit weights as ZeRO 1 where DeepSpeed does not keep copies of all states: with gradients in
/// fp32, and with bf16 in the pipeline engine, unless the launch has one replica, which shards nothing.
///
/// Source: [deepspeed] `runtime/engine.py` (`_do_optimizer_sanity_check`), release 0.19.8.
fn replicated(document: &Document, imported: &mut Imported) {
    let is_on = |key: &str| document.switch(&format!("{key}.enabled")).unwrap_or(false);
    let bf16 = is_on("bf16") || is_on("bfloat16");
    if imported.plan.zero != ZeroStage::Zero || !(bf16 || is_on("fp16")) {
        return;
    }
    let has_one_replica = imported.world.is_some() && imported.plan.layout.dense_replicas() == 1;
    let wide = document.word("data_types.grad_accum_dtype").is_some_and(|dtype| dtype.contains("32"));
    let message = if wide {
        "stage 0 with gradients in fp32: DeepSpeed 0.19 stops, older releases shard the optimizer's states; read as ZeRO 1"
    } else if bf16 && imported.plan.layout.pp > 1 && !has_one_replica {
        "stage 0 with bf16: the pipeline engine's optimizer shards its states over the replicas, read as ZeRO 1"
    } else {
        return;
    };
    imported.plan.zero = ZeroStage::One;
    let place = document.place("zero_optimization.stage").or_else(|| document.place("data_types.grad_accum_dtype"));
    document
        .note(Finding::warning("stage-0", message).at_maybe(place.as_ref()).expected("`\"stage\": 1`, which says so"));
}

/// Recomputation. The pipeline engine recomputes between its checkpoints. Elsewhere `activation_checkpointing` acts only if
/// the model's code calls it, which is assumed.
fn recompute(document: &Document, pp: u32, imported: &mut Imported) {
    let interval = document.number("pipeline.activation_checkpoint_interval").unwrap_or(0);
    if pp > 1 && interval > 0 {
        imported.plan.recompute = Recompute::Full;
        if interval > 1 {
            let place = document.place("pipeline.activation_checkpoint_interval");
            let finding = Finding::note(
                "not-modelled",
                format!("one checkpoint every {interval} layers is priced as one a layer"),
            );
            document.note(finding.at_maybe(place.as_ref()));
        }
    }
    if !document.has("activation_checkpointing") {
        return;
    }
    if pp == 1 {
        imported.plan.recompute = Recompute::Full;
    }
    let place = document.place("activation_checkpointing");
    let finding = Finding::note(
        "needs-code",
        "`activation_checkpointing` only acts where the model's code calls DeepSpeed's checkpointing",
    );
    let expected = "priced as if every layer did; give another recomputation to `explain --plan`";
    document.note(finding.at_maybe(place.as_ref()).expected(expected));
    if document.switch("activation_checkpointing.cpu_checkpointing").unwrap_or(false) {
        imported.plan.offload.activations = 1.0;
        imported.plan.recompute = Recompute::Full;
    }
}

fn batch(document: &Document, imported: &mut Imported) {
    let whole = document.size("train_batch_size");
    let micro = document.size("train_micro_batch_size_per_gpu");
    let steps = document.size("gradient_accumulation_steps");
    let dp = imported.world.map(|_| imported.plan.layout.dp);
    imported.accumulation = steps.unwrap_or(1);
    imported.plan.micro_batch = micro.unwrap_or(1);
    imported.work.global_batch = match (whole, micro, steps, dp) {
        (Some(whole), Some(micro), Some(steps), Some(dp)) => {
            let product = u64::from(micro) * u64::from(steps) * u64::from(dp);
            if product != u64::from(whole) {
                let place = document.place("train_batch_size");
                let message = format!(
                    "`train_batch_size` {whole} is not micro-batch · accumulation · replicas = {micro}·{steps}·{dp} = {product}"
                );
                document.note(
                    Finding::error("does-not-divide", message)
                        .at_maybe(place.as_ref())
                        .expected("DeepSpeed asserts it: leave one of the three out"),
                );
            }
            Some(whole)
        }
        (Some(whole), ..) => Some(whole),
        (None, Some(micro), steps, Some(dp)) => Some(micro.saturating_mul(dp).saturating_mul(steps.unwrap_or(1))),
        (None, ..) => None,
    };
    if micro.is_none() && whole.is_some() {
        imported.derives_micro_batch = true;
        imported.plan.micro_batch = dp.and_then(|dp| imported.micro_batch_on(dp)).unwrap_or(1);
    }
    if whole.is_none() && micro.is_none() {
        let place = document.place("train_batch_size").or_else(|| document.place("train_micro_batch_size_per_gpu"));
        let finding = Finding::warning("unresolved-value", NO_BATCH);
        document.note(finding.at_maybe(place.as_ref()).expected("give --global-batch"));
    }
}

fn precision(document: &Document, imported: &mut Imported) {
    let is_on = |key: &str| document.switch(&format!("{key}.enabled")).unwrap_or(false);
    let (bf16, fp16) = (is_on("bf16") || is_on("bfloat16"), is_on("fp16"));
    if bf16 && fp16 {
        let place = document.place("fp16.enabled");
        document.note(
            Finding::error("contradiction", "bf16 and fp16 are both enabled")
                .at_maybe(place.as_ref())
                .expected("one of them"),
        );
    }
    imported.work.format = Format::Bf16;
    imported.work.half = if fp16 && !bf16 { Half::Fp16 } else { Half::Bf16 };
    let auto = ["bf16.enabled", "bfloat16.enabled", "fp16.enabled"]
        .iter()
        .any(|path| document.word(path).is_some_and(|word| word == "auto"));
    let half = Recipe { weight: 2.0, gradient: 2.0, master: 4.0, state: 8.0 };
    imported.work.recipe =
        if bf16 || fp16 || auto { half } else { Recipe { weight: 4.0, gradient: 4.0, master: 0.0, state: 8.0 } };
    if !bf16 && !fp16 && !auto {
        document.note(Finding::warning(
            "not-modelled",
            "neither bf16 nor fp16 is enabled: trained in fp32, GEMMs priced as bf16",
        ));
    }
    if document.word("data_types.grad_accum_dtype").is_some_and(|dtype| dtype.contains("32")) {
        imported.work.recipe.gradient = 4.0;
    }
    if document.switch("bf16.bf16_master_weights_and_grads").unwrap_or(false) {
        imported.work.recipe.master = 0.0;
    }
    if document.switch("bf16.bf16_optimizer_states").unwrap_or(false) {
        imported.work.recipe.state = 4.0;
    }
    optimizer(document, imported);
}

/// States of the optimizer: two in fp32 for Adam and its kin, one for Lion, Adagrad, Muon and SGD with momentum.
///
/// Source: [deepspeed] `runtime/engine.py` (`_configure_basic_optimizer`), release 0.19.8.
fn optimizer(document: &Document, imported: &mut Imported) {
    let name = document.word("optimizer.type").unwrap_or_default().to_lowercase();
    let recipe = &mut imported.work.recipe;
    match name.as_str() {
        "" | "auto" => {}
        _ if name.contains("muon") => {
            imported.work.optimizer = meshwright_engine::workload::Optimizer::Muon;
            recipe.state = 4.0;
        }
        _ if name.contains("adam") || name.contains("lamb") => {}
        "lion" | "adagrad" => recipe.state = 4.0,
        "sgd" => {
            let momentum = document.real("optimizer.params.momentum").is_some_and(|momentum| momentum != 0.0);
            recipe.state = if momentum { 4.0 } else { 0.0 };
        }
        _ => {
            let message = format!("the optimizer `{name}` is priced as Adam: two states in fp32");
            let place = document.place("optimizer.type");
            document.note(Finding::note("not-modelled", message).at_maybe(place.as_ref()));
        }
    }
}

fn read_other_keys(document: &Document, imported: &mut Imported) {
    for key in document.keys("") {
        if lists(TOP, &key) || key.starts_with('_') {
            continue;
        }
        let Some(place) = document.place(&key) else { continue };
        if lists(REMOVED, &key) {
            document.note(
                Finding::warning("deprecated", format!("`{key}` was removed from DeepSpeed"))
                    .at(&place)
                    .expected("remove it"),
            );
            continue;
        }
        let nearest = meshwright_engine::suggest::nearest(&key, TOP.split_whitespace());
        imported.unknown.push(Unknown { name: key, values: Vec::new(), place, nearest });
    }
    let known = |path: &str| path.split('.').next().is_some_and(|key| lists(TOP, key));
    imported.without_effect = document.unread().into_iter().map(|(path, _)| path).filter(|path| known(path)).collect();
}
