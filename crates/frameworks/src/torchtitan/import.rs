//! torchtitan's TOML (up to 0.2), its configurations in Python (0.3), and its command line.
//!
//! Source: [torchtitan] `torchtitan/config/job_config.py` of 0.2 and `torchtitan/config/configs.py` of 0.3.

mod built;
mod flavors;
mod registry;
mod release;
mod split;

use crate::import::adapters::AdapterTraining;
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::{Finding, Place};
use crate::import::imported::{Adapters, Imported, Unknown, divides, replicas};
use crate::readers::document::{self, Document, Form};
use crate::rules::FusedExchange;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::Model;
use meshwright_engine::plan::{CpKind, Layout, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::{Dispatcher, Family};
use meshwright_engine::workload::Recipe;

pub(crate) use registry::{fill_from_registry, of_python};
pub(crate) use release::Written;

/// Sections that are read here key by key.
const READ: &[(&str, &str)] = &[
    (
        "parallelism",
        "data_parallel_replicate_degree data_parallel_shard_degree fsdp_reshard_after_forward enable_fsdp_symm_mem \
         tensor_parallel_degree enable_sequence_parallel spmd_backend disable_loss_parallel enable_async_tensor_parallel \
         enable_compiled_autograd pipeline_parallel_degree module_fqns_per_model_part pipeline_parallel_first_stage_less_layers \
         pipeline_parallel_last_stage_less_layers pipeline_parallel_layers_per_stage pipeline_parallel_schedule \
         pipeline_parallel_schedule_csv pipeline_parallel_microbatch_size num_pp_microbatches \
         pipeline_parallel_split_points context_parallel_degree \
         context_parallel_rotate_method context_parallel_load_balancer context_parallel_ptrr_mask_key expert_parallel_degree \
         expert_tensor_parallel_degree expert_parallel_comm_backend",
    ),
    (
        "training",
        "dataset dataset_path local_batch_size batch_size global_batch_size seq_len max_norm steps enable_cpu_offload dtype \
         mixed_precision_param mixed_precision_reduce gc_freq gc_debug seed deterministic debug_moe_force_load_balance compile \
         disable_cuda_graphs num_tokens_per_microbatch_per_dp_rank max_context_length warmup_steps",
    ),
    (
        "activation_checkpoint",
        "mode selective_ac_option per_op_sac_force_recompute_mm_shapes_by_fqns early_stop memory_budget \
         visualize_memory_budget_pareto preserve_rng_state determinism_check debug",
    ),
    ("compile", "enable components backend enable_async_tensor_parallel"),
    ("model", "name flavor hf_assets_path tokenizer_path converters print_after_conversion norm_type"),
];

/// Other sections: nothing of them changes the step here.
const OTHER: &str = "job profiling metrics optimizer lr_scheduler checkpoint float8 mx quantize comm memory_estimation \
    fault_tolerance experimental validation debug model_spec hf_assets_path dump_folder profiler tokenizer dataloader validator \
    override loss";

/// Hidden share of tensor-parallel collectives under async TP. Source: [calibration-1-1].
const ASYNC_TP: f64 = 0.5;

/// Rank of adapters where the file sets none. Source: [torchtitan] `torchtitan/components/lora.py`.
const LORA_RANK: u32 = 8;

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "torchtitan";

/// Reads a file of this kind.
///
/// # Errors
/// A file that does not parse.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let (document, written) = if context.is_python() {
        (registry::of_python(text, context.configuration(), context)?, Written::Python)
    } else {
        (document::parse(text, Form::Toml, context)?, Written::Toml)
    };
    Ok(imported_from(&document, written, &Launched::default()))
}

/// Plan, workload and settings of a configuration.
pub(crate) fn imported_from(document: &Document, written: Written, launched: &Launched) -> Imported {
    let mut imported = Imported::new(KIND, Family::Torchtitan, release::stack(document, written));
    release::settings(document, written, &mut imported);
    imported.world = launched.world;
    imported.gpus_per_node = launched.gpus_per_node;
    imported.model = model(document);
    imported.names_other_model = built::is_built(document) && imported.model.is_none();
    layout(document, &mut imported);
    let local = batch(document, &mut imported);
    imported.plan.schedule = schedule(document, &imported);
    pipeline_batch(document, &imported, local);
    let (pp, v) = (imported.plan.layout.pp, imported.plan.schedule.virtual_stages());
    if pp > 1 {
        let layers = imported.model.as_ref().map(Model::layers);
        imported.plan.split = split::split(document, layers, pp, v).unwrap_or_default();
    }
    imported.plan.recompute = recompute(document);
    software(document, &mut imported);
    for (section, known) in READ {
        for key in document.keys(section) {
            let path = format!("{section}.{key}");
            if !known.split_whitespace().any(|known| known == key)
                && let Some(place) = document.place(&path)
            {
                let nearest = meshwright_engine::suggest::nearest(&key, known.split_whitespace());
                imported.unknown.push(Unknown { name: path, values: Vec::new(), place, nearest });
            }
        }
    }
    for key in document.keys("") {
        let read = READ.iter().any(|(section, _)| *section == key);
        if !read
            && !OTHER.split_whitespace().any(|known| known == key)
            && let Some(place) = document.place(&key)
        {
            let sections = READ.iter().map(|(section, _)| *section).chain(OTHER.split_whitespace());
            imported.unknown.push(Unknown {
                nearest: meshwright_engine::suggest::nearest(&key, sections),
                name: key,
                values: Vec::new(),
                place,
            });
        }
    }
    let unknown: Vec<String> = imported.unknown.iter().map(|unknown| unknown.name.clone()).collect();
    let left = document.unread().into_iter().map(|(path, _)| path);
    imported.without_effect = left.filter(|path| !unknown.iter().any(|name| path.starts_with(name.as_str()))).collect();
    for (key, path) in [
        ("tp", "tensor_parallel_degree"),
        ("pp", "pipeline_parallel_degree"),
        ("cp", "context_parallel_degree"),
        ("ep", "expert_parallel_degree"),
        ("zero", "data_parallel_shard_degree"),
        ("vpp", "pipeline_parallel_schedule"),
    ] {
        imported.places.extend(document.place(&format!("parallelism.{path}")).map(|place| (key.to_owned(), place)));
    }
    for (key, path) in [
        ("mbs", "training.local_batch_size"),
        ("batch", "training.global_batch_size"),
        ("seq", "training.seq_len"),
        ("recompute", "activation_checkpoint.mode"),
    ] {
        imported.places.extend(document.place(path).map(|place| (key.to_owned(), place)));
    }
    imported.findings = document.findings.take();
    imported
}

fn model(document: &Document) -> Option<Model> {
    let (name, flavor) = (document.word("model.name")?, document.word("model.flavor").unwrap_or_default());
    if built::is_built(document) {
        if let Some(model) = built::model(document) {
            return Some(model);
        }
        let finding = Finding::warning("unknown-model", "the model that it builds is not read");
        document.note(finding.at_maybe(document.place("model_spec").as_ref()).expected("give it with --model"));
        return None;
    }
    if let Some(model) = flavors::model(&name, &flavor) {
        return Some(model);
    }
    let place = document.place("model.flavor").or_else(|| document.place("model.name"));
    let finding = Finding::warning("unknown-model", format!("`{name}` `{flavor}` is no model that is known"));
    document.note(finding.at_maybe(place.as_ref()).expected("give it with --model"));
    None
}

fn layout(document: &Document, imported: &mut Imported) {
    let degree = |key: &str| document.degree(&format!("parallelism.{key}"));
    let (tp, cp, pp) = (
        degree("tensor_parallel_degree").unwrap_or(1),
        degree("context_parallel_degree").unwrap_or(1),
        degree("pipeline_parallel_degree").unwrap_or(1),
    );
    let copies = degree("data_parallel_replicate_degree").unwrap_or(1);
    let shards = match (degree("data_parallel_shard_degree"), imported.world) {
        (Some(shards), _) => {
            let world =
                [tp, cp, pp, copies, shards].iter().fold(1_u32, |product, degree| product.saturating_mul(*degree));
            match imported.world {
                Some(launched) if launched != world => {
                    let place = document.place("parallelism.data_parallel_shard_degree");
                    let finding = Finding::error(
                        "world-size",
                        format!("the degrees multiply to {world}, and {launched} GPUs are launched"),
                    );
                    document.note(finding.at_maybe(place.as_ref()).expected("−1 takes what is left"));
                }
                Some(_) | None => imported.world = Some(world),
            }
            shards
        }
        (None, Some(world)) => replicas(world, &[tp, cp, pp, copies]),
        (None, None) => 1,
    };
    let plan = &mut imported.plan;
    plan.layout = Layout {
        tp,
        cp,
        pp,
        dp: copies.saturating_mul(shards),
        ep: degree("expert_parallel_degree").unwrap_or(1),
        etp: degree("expert_tensor_parallel_degree").unwrap_or(1),
    };
    plan.sequence_parallel = tp > 1 && document.switch("parallelism.enable_sequence_parallel").unwrap_or(true);
    let open = degree("data_parallel_shard_degree").is_none();
    plan.zero = if open || shards.saturating_mul(cp) > 1 { ZeroStage::Three } else { ZeroStage::Zero };
    plan.shard_group = (copies > 1 && plan.zero == ZeroStage::Three).then(|| shards.saturating_mul(cp));
    plan.reshard_after_forward = match document.word("parallelism.fsdp_reshard_after_forward").as_deref() {
        Some("always") => true,
        Some("never") => false,
        Some("default") | None => pp == 1,
        Some(other) => {
            document.wrong("parallelism.fsdp_reshard_after_forward", other, "default, always or never");
            true
        }
    };
    let backend = document.word("model_spec.moe_comm_backend");
    let backend = backend.or_else(|| document.word("parallelism.expert_parallel_comm_backend"));
    let is_standard = backend.as_ref().is_none_or(|backend| backend == "standard"); // its default
    plan.dispatcher = if is_standard { Dispatcher::AllToAll } else { Dispatcher::DeepEp };
    if let Some(backend) = backend {
        imported.exchange = FusedExchange::named(&backend);
    }
    plan.cp_kind = match document.word("parallelism.context_parallel_rotate_method").as_deref() {
        Some("alltoall") => CpKind::Ring,
        Some(_) | None => CpKind::AllGather,
    };
    divides(
        &mut document.findings.borrow_mut(),
        imported.world,
        &imported.plan,
        document.place("parallelism").as_ref(),
    );
}

/// The batch; gives the sequences of a rank that pass the pipeline at once.
fn batch(document: &Document, imported: &mut Imported) -> u32 {
    let local =
        document.size("training.local_batch_size").or_else(|| document.size("training.batch_size")).unwrap_or(8);
    let of_pipeline = match document.size("parallelism.num_pp_microbatches") {
        Some(parts) => (local / parts).max(1),
        None => document.size("parallelism.pipeline_parallel_microbatch_size").unwrap_or(1),
    };
    let plan = &mut imported.plan;
    plan.micro_batch = if plan.layout.pp > 1 { of_pipeline } else { local };
    let whole = document.degree("training.global_batch_size");
    imported.work.global_batch = whole.or_else(|| imported.world.map(|_| local.saturating_mul(plan.layout.dp)));
    imported.work.seq_len = document.size("training.seq_len").or_else(|| document.size("training.max_context_length"));
    if document.switch("training.enable_cpu_offload").unwrap_or(false) {
        plan.offload.optimizer = 1.0;
    }
    local
}

/// Micro-batches that pass the pipeline at once: whole ones, as many as 1F1B asks for, and all those of the step, or else the
/// pipeline drains several times a step.
///
/// Source: [torchtitan] `trainer.py` (`gradient_accumulation_steps`), `distributed/pipeline_parallel.py`, release
/// 0.3.0; PyTorch 2.15, `distributed/pipelining/schedules.py` (`Schedule1F1B`).
fn pipeline_batch(document: &Document, imported: &Imported, local: u32) {
    let Layout { pp, dp, .. } = imported.plan.layout;
    let (micro, at_once) = (imported.plan.micro_batch, local / imported.plan.micro_batch.max(1));
    if pp == 1 {
        return;
    }
    let place = document.place("training.local_batch_size").or_else(|| document.place("parallelism"));
    if !local.is_multiple_of(micro.max(1)) {
        let message = format!("micro-batches of {micro} do not divide the {local} sequences of a rank");
        document.note(Finding::error("does-not-divide", message).at_maybe(place.as_ref()));
    } else if imported.plan.schedule == Schedule::OneFOneB && at_once < pp {
        let message = format!("its 1F1B refuses {at_once} micro-batches at once, fewer than its {pp} stages");
        let expected = "a larger local_batch_size, fewer stages, or GPipe, which runs the same passes";
        document.note(Finding::error("few-micro-batches", message).at_maybe(place.as_ref()).expected(expected));
    }
    let steps = imported.work.global_batch.map_or(1, |whole| whole / local.saturating_mul(dp).max(1));
    if steps > 1 {
        let message =
            format!("the pipeline fills and drains {steps} times a step, {at_once} micro-batches each; priced as once");
        let expected = format!("local_batch_size = {}", local.saturating_mul(steps));
        document.note(Finding::warning("not-modelled", message).at_maybe(place.as_ref()).expected(expected));
    }
}

fn schedule(document: &Document, imported: &Imported) -> Schedule {
    let pp = imported.plan.layout.pp;
    let name = document.word("parallelism.pipeline_parallel_schedule").unwrap_or_else(|| "1F1B".into());
    if pp == 1 {
        return Schedule::OneFOneB;
    }
    let layers = imported.model.as_ref().map(Model::layers);
    let single = ["1f1b", "gpipe"].contains(&name.to_ascii_lowercase().as_str());
    let usual = if single { 1 } else { 2 }; // torchtitan gives the looped schedules two stages a rank
    let chunks = split::stages_of_rank(document, layers, pp, usual);
    match name.to_ascii_lowercase().as_str() {
        "1f1b" => Schedule::OneFOneB,
        "gpipe" => Schedule::GPipe,
        "interleaved1f1b" => Schedule::Interleaved { virtual_stages: chunks.max(2) },
        "loopedbfs" => Schedule::LoopedBfs { virtual_stages: chunks.max(2) },
        "zbvzerobubble" => Schedule::ZbV,
        "dualpipev" => Schedule::DualPipeV,
        "interleavedzerobubble" => {
            let place = document.place("parallelism.pipeline_parallel_schedule");
            document.note(
                Finding::warning("not-modelled", "InterleavedZeroBubble is priced as Interleaved1F1B")
                    .at_maybe(place.as_ref()),
            );
            Schedule::Interleaved { virtual_stages: chunks.max(2) }
        }
        _ => {
            let known = "1F1B, Interleaved1F1B, GPipe, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble or DualPipeV";
            document.wrong("parallelism.pipeline_parallel_schedule", &name, known);
            Schedule::OneFOneB
        }
    }
}

fn recompute(document: &Document) -> Recompute {
    let option = document.word("activation_checkpoint.selective_ac_option").unwrap_or_else(|| "2".into());
    match document.word("activation_checkpoint.mode").as_deref() {
        Some("none") => Recompute::None,
        Some("full") => Recompute::Full,
        Some("selective") | None => match option.as_str() {
            "op" => Recompute::PerOp,
            "1" => Recompute::Full,
            "2" => Recompute::EveryOther,
            other => {
                let place = document.place("activation_checkpoint.selective_ac_option");
                let finding = Finding::warning(
                    "not-modelled",
                    format!("every {other}-th layer recomputed is priced as every second"),
                );
                document.note(finding.at_maybe(place.as_ref()));
                Recompute::EveryOther
            }
        },
        Some("memory_budget") => {
            let place = document.place("activation_checkpoint.mode");
            document.note(
                Finding::warning("not-modelled", "a memory budget is priced as per-op recomputation")
                    .at_maybe(place.as_ref()),
            );
            Recompute::PerOp
        }
        Some(other) => {
            document.wrong("activation_checkpoint.mode", other, "none, selective, full or memory_budget");
            Recompute::None
        }
    }
}

fn software(document: &Document, imported: &mut Imported) {
    let converters = document.words("model.converters").join(" ");
    imported.work.format = if converters.contains("mx") {
        Format::Mxfp8
    } else if converters.contains("float8") {
        Format::Fp8
    } else {
        Format::Bf16
    };
    if let Some((path, _)) = registry::converters(document).iter().find(|(_, class)| class.contains("lora")) {
        let rank = Some(document.size(&format!("{path}.rank")).unwrap_or(LORA_RANK));
        let targets = document.words(&format!("{path}.target_modules"));
        let place = document.place(path).unwrap_or(Place { file: String::new(), line: 1 });
        let setting = "`LoRAConverter`".to_owned();
        AdapterTraining { setting, place, adapters: Adapters { rank, targets } }.apply(imported);
    }
    let has_dtype = |path: &str, dtype: &str| document.word(path).as_deref() == Some(dtype);
    if has_dtype("training.dtype", "bfloat16") {
        // Weights, gradients and moments; nothing is kept in fp32.
        imported.work.recipe = Recipe::HALF;
    }
    if has_dtype("training.mixed_precision_param", "float32") {
        let place = document.place("training.mixed_precision_param");
        document.note(Finding::warning("not-modelled", "GEMMs in fp32 are priced as bf16").at_maybe(place.as_ref()));
    }
    let reduced = if has_dtype("training.mixed_precision_reduce", "bfloat16") { 2.0 } else { 4.0 };
    imported.settings.put("reduce_bytes", reduced, 4.0);
    if document.switch("optimizer.early_step_in_backward").unwrap_or(false) {
        let place = document.place("optimizer.early_step_in_backward");
        let finding =
            Finding::note("not-modelled", "each gradient is freed once it is applied: memory is less by them");
        document.note(finding.at_maybe(place.as_ref()));
    }
    let is_on = |paths: [&str; 2]| paths.iter().any(|path| document.switch(path).unwrap_or(false));
    let async_tp = is_on(["parallelism.enable_async_tensor_parallel", "compile.enable_async_tensor_parallel"]);
    if imported.plan.layout.tp > 1 && async_tp {
        imported.settings.put("overlap.tp", ASYNC_TP, 0.0);
    }
    let narrow =
        is_on(["float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather"]);
    imported.settings.put("fp8_all_gather", narrow, false);
    let recipes = ["float8.recipe_name", "quantize.linear.float8.recipe_name"].map(|path| document.word(path));
    if imported.work.format == Format::Fp8 && recipes.iter().flatten().any(|recipe| recipe.starts_with("rowwise")) {
        imported.settings.scale_by_rows();
    }
}
