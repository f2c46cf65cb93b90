//! Accelerate's YAML: who runs it, and how FSDP, DeepSpeed or a parallelism configuration share the GPUs out.
//!
//! Source: [accelerate] `commands/config/config_args.py`, `parallelism_config.py`, `utils/launch.py`, release 1.15.

use crate::deepspeed::import::NO_BATCH;
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::Finding;
use crate::import::imported::{Imported, Unknown, divides, replicas};
use crate::readers::document::{self, Document, Form};
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::{CpKind, Layout, Recompute, ZeroStage};
use meshwright_engine::stack::Family;
use meshwright_engine::workload::{Half, Recipe};

/// Keys of the top; others are refused.
const TOP: &str = "compute_environment distributed_type mixed_precision use_cpu debug num_processes machine_rank num_machines \
    gpu_ids main_process_ip main_process_port rdzv_backend same_network main_training_function enable_cpu_affinity fp8_config \
    deepspeed_config fsdp_config parallelism_config megatron_lm_config mpirun_config downcast_bf16 tpu_name tpu_zone \
    tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env dynamo_config dynamo_backend gradient_accumulation_steps";

/// Keys of `fsdp_config` that the launcher has an option for.
const FSDP: &str = "fsdp_version fsdp_sharding_strategy fsdp_reshard_after_forward fsdp_offload_params fsdp_min_num_params \
    fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap fsdp_backward_prefetch fsdp_backward_prefetch_policy \
    fsdp_forward_prefetch fsdp_state_dict_type fsdp_use_orig_params fsdp_cpu_ram_efficient_loading fsdp_sync_module_states \
    fsdp_activation_checkpointing fsdp_cpu_offload_pin_memory";

/// Settings that the training program decides, in the words of a finding.
pub(crate) const CODE_SETS: &str = "the model, its batch and its sequences are set by the training program";

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "accelerate";

/// Reads a file of this kind.
///
/// # Errors
/// A file that does not parse.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    Ok(imported_from(&document::parse(text, Form::Yaml, context)?, &Launched::default(), context.files))
}

/// Plan, workload and settings of a configuration; `files` gives the text of DeepSpeed's JSON that it names.
pub(crate) fn imported_from(
    document: &Document,
    launched: &Launched,
    files: &dyn Fn(&str) -> Option<String>,
) -> Imported {
    let kind = document.word("distributed_type").unwrap_or_else(|| "NO".into()).to_ascii_uppercase();
    let mut imported = Imported::new(KIND, Family::Fsdp, "fsdp-eager-2023");
    let processes = document.size("num_processes");
    imported.world = launched.world.or(processes);
    let nodes = document.size("num_machines").unwrap_or(1);
    imported.gpus_per_node = imported.world.filter(|world| world.is_multiple_of(nodes)).map(|world| world / nodes);
    degrees(document, &mut imported);
    match kind.as_str() {
        "FSDP" => fsdp(document, &mut imported),
        "DEEPSPEED" => deepspeed(document, &mut imported, files),
        "MEGATRON_LM" => megatron(document, &mut imported),
        "MULTI_GPU" | "NO" | "MULTI_CPU" | "MULTI_XPU" => imported.plan.zero = ZeroStage::Zero,
        other => {
            document.wrong("distributed_type", other, "FSDP, DEEPSPEED, MEGATRON_LM, MULTI_GPU or NO");
        }
    }
    if kind != "DEEPSPEED" {
        precision(document, &mut imported);
    }
    document.note(Finding::note("needs-code", CODE_SETS).expected("give --model, --global-batch and --seq-len"));
    for key in document.keys("") {
        if !TOP.split_whitespace().any(|known| known == key)
            && let Some(place) = document.place(&key)
        {
            let finding =
                Finding::error("unknown-key", format!("`{key}`: Accelerate refuses keys that it does not know"))
                    .at(&place);
            let near = meshwright_engine::suggest::nearest(&key, TOP.split_whitespace());
            document.note(
                finding.expected(near.map_or_else(|| "remove it".into(), |near| format!("did you mean `{near}`?"))),
            );
        }
    }
    for key in document.keys("fsdp_config") {
        let path = format!("fsdp_config.{key}");
        if !FSDP.split_whitespace().any(|known| known == key)
            && let Some(place) = document.place(&path)
        {
            let nearest = meshwright_engine::suggest::nearest(&key, FSDP.split_whitespace());
            imported.unknown.push(Unknown { name: path, values: Vec::new(), place, nearest });
        }
    }
    let unknown: Vec<String> = imported.unknown.iter().map(|unknown| unknown.name.clone()).collect();
    imported.without_effect =
        document.unread().into_iter().map(|(path, _)| path).filter(|path| !unknown.contains(path)).collect();
    for (key, path) in [("tp", "tp_size"), ("cp", "cp_size")] {
        let place = document
            .place(&format!("parallelism_config.parallelism_config_{path}"))
            .or_else(|| document.place(&format!("parallelism_config.{path}")));
        imported.places.extend(place.map(|place| (key.to_owned(), place)));
    }
    imported.places.extend(document.place("fsdp_config").map(|place| ("zero".to_owned(), place)));
    imported.findings.extend(document.findings.take());
    imported
}

/// Format of the GEMMs, and bytes of the parameters.
fn precision(document: &Document, imported: &mut Imported) {
    let precision = document.word("mixed_precision").unwrap_or_else(|| "no".into());
    imported.work.format = match precision.as_str() {
        "fp8" => Format::Fp8,
        "bf16" | "fp16" => Format::Bf16,
        _ => {
            let place = document.place("mixed_precision");
            document.note(
                Finding::warning(
                    "not-modelled",
                    "no mixed precision: trained as the model was loaded, GEMMs priced as bf16",
                )
                .at_maybe(place.as_ref()),
            );
            Format::Bf16
        }
    };
    imported.work.half = if precision == "fp16" { Half::Fp16 } else { Half::Bf16 };
    imported.work.recipe = Recipe { weight: 2.0, gradient: 4.0, master: 4.0, state: 8.0 };
}

fn degrees(document: &Document, imported: &mut Imported) {
    let setting = |key: &str| {
        document
            .size(&format!("parallelism_config.parallelism_config_{key}"))
            .or_else(|| document.size(&format!("parallelism_config.{key}")))
    };
    let (tp, ring, ulysses) =
        (setting("tp_size").unwrap_or(1), setting("cp_size").unwrap_or(1), setting("sp_size").unwrap_or(1));
    let (copies, shards) = (setting("dp_replicate_size"), setting("dp_shard_size"));
    let cp = ring.saturating_mul(ulysses);
    let given = document.has("parallelism_config");
    let dp = if given {
        let dp = copies.unwrap_or(1).saturating_mul(shards.unwrap_or(1));
        let product = u64::from(tp) * u64::from(cp) * u64::from(dp);
        match imported.world {
            Some(world) if u64::from(world) != product => {
                let place = document.place("num_processes").or_else(|| document.place("parallelism_config"));
                let finding = Finding::error(
                    "world-size",
                    format!("the sizes of `parallelism_config` multiply to {product}, and there are {world} processes"),
                );
                document
                    .note(finding.at_maybe(place.as_ref()).expected("dp_replicate·dp_shard·cp·sp·tp = num_processes"));
            }
            Some(_) => {}
            None => imported.world = u32::try_from(product).ok(),
        }
        dp
    } else {
        imported.world.unwrap_or(1)
    };
    imported.plan.layout = Layout { tp, cp, pp: 1, dp, ep: 1, etp: 1 };
    imported.plan.sequence_parallel = false;
    let strategy = ["parallelism_config.parallelism_config_cp_comm_strategy", "parallelism_config.cp_comm_strategy"]
        .into_iter()
        .find_map(|path| document.word(path));
    imported.plan.cp_kind = match strategy.as_deref() {
        _ if ulysses > 1 => CpKind::AllToAll,
        Some("alltoall") => CpKind::Ring, // torch passes blocks of keys and values round the ring by all-to-all
        Some(_) | None => CpKind::AllGather,
    };
    if copies.unwrap_or(1) > 1 {
        // Weights are sharded over both together.
        imported.plan.shard_group = Some(shards.unwrap_or(1).saturating_mul(cp)).filter(|group| *group > 1);
    }
}

fn fsdp(document: &Document, imported: &mut Imported) {
    let path_of = |key: &str| format!("fsdp_config.{key}");
    let second = document.word(&path_of("fsdp_version")).is_some_and(|version| version == "2");
    let plan = &mut imported.plan;
    plan.zero = ZeroStage::Three;
    if second {
        plan.reshard_after_forward = document.switch(&path_of("fsdp_reshard_after_forward")).unwrap_or(true);
    } else {
        let strategy = document
            .word(&path_of("fsdp_sharding_strategy"))
            .or_else(|| document.word(&path_of("fsdp_reshard_after_forward")));
        match strategy.as_deref() {
            Some("FULL_SHARD" | "1" | "true") | None => {}
            Some("SHARD_GRAD_OP" | "2" | "false") => plan.reshard_after_forward = false,
            Some("NO_SHARD" | "3") => plan.zero = ZeroStage::Zero,
            Some("HYBRID_SHARD" | "4") => plan.shard_group = imported.gpus_per_node,
            Some("HYBRID_SHARD_ZERO2" | "5") => {
                plan.shard_group = imported.gpus_per_node;
                plan.reshard_after_forward = false;
            }
            Some(other) => document.wrong(
                &path_of("fsdp_sharding_strategy"),
                other,
                "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD or HYBRID_SHARD",
            ),
        }
    }
    if plan.shard_group.is_some_and(|group| group >= plan.layout.dense_replicas()) {
        plan.shard_group = None;
    }
    if document.switch(&path_of("fsdp_activation_checkpointing")).unwrap_or(false) {
        plan.recompute = Recompute::Full;
    }
    if document.switch(&path_of("fsdp_offload_params")).unwrap_or(false) {
        plan.offload.optimizer = 1.0;
    }
}

/// DeepSpeed by the JSON that a configuration names, or by its own keys, which Accelerate writes into one.
fn deepspeed(document: &Document, imported: &mut Imported, files: &dyn Fn(&str) -> Option<String>) {
    let named = document.word("deepspeed_config.deepspeed_config_file");
    let named = named.map(|name| json_of(&name, document, files)).transpose().unwrap_or_else(|unread| {
        document.note(unread);
        None
    });
    let is_own = named.is_none();
    let mut json = named.unwrap_or_else(|| of_keys(document));
    let precision = document.word("mixed_precision");
    for half in ["bf16", "fp16"] {
        let path = format!("{half}.enabled");
        if json.peek(&path).is_none_or(|value| value == "auto") {
            json.put(&path, if precision.as_deref() == Some(half) { "true" } else { "false" }, 1);
        }
    }
    let launched = Launched { world: imported.world, gpus_per_node: imported.gpus_per_node, ..Launched::default() };
    *imported = Imported { kind: KIND, ..crate::deepspeed::import::imported_from(&json, &launched) };
    if is_own {
        imported.findings.retain(|finding| finding.message != NO_BATCH);
        imported.places.extend(document.place("deepspeed_config.zero_stage").map(|place| ("zero".to_owned(), place)));
    }
}

/// DeepSpeed's JSON that a configuration names, which says all that DeepSpeed does: stage, offload and batch.
fn json_of(name: &str, document: &Document, files: &dyn Fn(&str) -> Option<String>) -> Result<Document, Finding> {
    let unread = |why: String| {
        let place = document.place("deepspeed_config.deepspeed_config_file");
        Finding::error("unread-file", format!("`{name}`, DeepSpeed's JSON with the stage and the offload, {why}"))
            .at_maybe(place.as_ref())
            .expected("the file beside this one")
    };
    let text = files(name).ok_or_else(|| unread("was not found".into()))?;
    document::parse(&text, Form::Json, &Context { files, ..Context::alone(name) })
        .map_err(|error| unread(format!("cannot be read: {}", error.why)))
}

/// DeepSpeed's JSON of a configuration's own keys.
fn of_keys(document: &Document) -> Document {
    let place = document.place("deepspeed_config");
    let (file, line) = place.map_or_else(|| (String::new(), 1), |place| (place.file, place.line));
    let mut json = Document::empty(line, &file);
    let stage = document.number("deepspeed_config.zero_stage").unwrap_or(2);
    if (0..=3).contains(&stage) {
        json.put("zero_optimization.stage", &stage.to_string(), line);
    } else {
        document.wrong("deepspeed_config.zero_stage", &stage.to_string(), "0, 1, 2 or 3");
    }
    for part in ["optimizer", "param"] {
        let device = document.word(&format!("deepspeed_config.offload_{part}_device"));
        if let Some(device) = device.filter(|device| device != "none") {
            json.put(&format!("zero_optimization.offload_{part}.device"), &device, line);
        }
    }
    if let Some(steps) = document.size("deepspeed_config.gradient_accumulation_steps") {
        json.put("gradient_accumulation_steps", &steps.to_string(), line);
    }
    json
}

fn megatron(document: &Document, imported: &mut Imported) {
    imported.family = Family::Megatron;
    imported.stack = "nemo-24";
    let size = |key: &str| document.size(&format!("megatron_lm_config.megatron_lm_{key}")).unwrap_or(1);
    let is_on = |key: &str| document.switch(&format!("megatron_lm_config.megatron_lm_{key}")).unwrap_or(false);
    let plan = &mut imported.plan;
    (plan.layout.tp, plan.layout.pp) = (size("tp_degree"), size("pp_degree"));
    plan.layout.dp = imported.world.map_or(1, |world| replicas(world, &[plan.layout.tp, plan.layout.pp]));
    plan.sequence_parallel = is_on("sequence_parallelism") && plan.layout.tp > 1;
    plan.zero = if is_on("use_distributed_optimizer") { ZeroStage::One } else { ZeroStage::Zero };
    if is_on("recompute_activations") {
        plan.recompute =
            Recompute::Selective(meshwright_engine::plan::Modules { core_attn: true, ..Default::default() });
    }
    divides(&mut document.findings.borrow_mut(), imported.world, plan, document.place("megatron_lm_config").as_ref());
}
