//! axolotl's YAML: the engine (FSDP, DeepSpeed or copies), the mesh, batch, sequence and format.
//!
//! Source: [axolotl] `utils/schemas/`, `utils/distributed.py` (`_get_parallel_config_kwargs`), `utils/config/__init__.py`,
//! `utils/trainer.py`, release 0.19.0. It ignores keys that it does not know.

use crate::hugging_face::import::{self as hugging_face, OnHost, Shipped, Trainer, is_on};
use crate::import::adapters::{AdapterTraining, not_priced, other_adapters};
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::{Finding, Place};
use crate::import::imported::{Adapters, Imported, Unknown, divides, replicas};
use crate::readers::document::{self, Document, Form};
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::{CpKind, Layout, Recompute, ZeroStage};
use meshwright_engine::stack::{Dispatcher, Family};
use meshwright_engine::suggest::{is_slip, nearest};
use meshwright_engine::workload::Recipe;

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "axolotl";

/// Files of its folder `deepspeed_configs`.
const SHIPPED: &[Shipped] = &[
    shipped("zero1.json", 1, OnHost::Nothing),
    shipped("zero1_torch_compile.json", 1, OnHost::Nothing),
    shipped("zero2.json", 2, OnHost::Nothing),
    shipped("zero2_torch_compile.json", 2, OnHost::Nothing),
    shipped("zero3.json", 3, OnHost::Nothing),
    shipped("zero3_bf16.json", 3, OnHost::Nothing),
    shipped("zero3_bf16_cpuoffload_all.json", 3, OnHost::OptimizerAndWeights),
    shipped("zero3_bf16_cpuoffload_params.json", 3, OnHost::Weights),
];

const fn shipped(name: &'static str, stage: u8, on_host: OnHost) -> Shipped {
    Shipped { overlaps: true, ..Shipped::new(name, stage, on_host) }
}

/// Keys that decide the step; a misspelling of one is a finding.
const DECISIVE: &str = "sequence_len micro_batch_size gradient_accumulation_steps tensor_parallel_size context_parallel_size \
    expert_parallel_size dp_shard_size dp_replicate_size fsdp_config fsdp_version deepspeed gradient_checkpointing";

/// Reads a file of this kind.
///
/// # Errors
/// A file that does not parse, or names a JSON of DeepSpeed's that is not there.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    imported_from(&document::parse(text, Form::Yaml, context)?, &Launched::default(), context)
}

/// Plan, workload and settings of a configuration.
///
/// # Errors
/// A JSON of DeepSpeed's that is not there.
pub(crate) fn imported_from(
    document: &Document,
    launched: &Launched,
    context: &Context,
) -> Result<Imported, ImportError> {
    let trainer = trainer(document);
    let mut imported = match document.word("deepspeed") {
        Some(name) => over_deepspeed(document, &name, trainer, launched, context)?,
        None => over_fsdp(document, trainer, launched),
    };
    imported.kind = KIND;
    imported.work.seq_len = Some(document.size("sequence_len").unwrap_or(LENGTH));
    if is_on(document, "fp8") {
        imported.work.format = Format::Fp8;
    }
    hugging_face::optimizer(document, "optimizer", &mut imported);
    hugging_face::model(document, "base_model", &mut imported);
    loss(document, &mut imported);
    for key in ["flash_attention", "attn_implementation"] {
        hugging_face::attention(document, key, &mut imported);
    }
    recompute(document, &mut imported);
    adapting(document, &mut imported);
    unpriced(document);
    slips(document, &mut imported);
    divides(&mut document.findings.borrow_mut(), imported.world, &imported.plan, None);
    for (key, path) in [
        ("mbs", "micro_batch_size"),
        ("seq", "sequence_len"),
        ("tp", "tensor_parallel_size"),
        ("cp", "context_parallel_size"),
        ("ep", "expert_parallel_size"),
        ("zero", "deepspeed"),
        ("zero", "fsdp_config"),
    ] {
        imported.places.extend(document.place(path).map(|place| (key.to_owned(), place)));
    }
    imported.without_effect.extend(unread(document));
    imported.findings.extend(document.findings.take());
    Ok(imported)
}

/// Tokens of a sequence where the file sets none.
const LENGTH: u32 = 512;

/// Batch and format: `batch_size` is that of one GPU in a step.
fn trainer(document: &Document) -> Trainer {
    let (micro, whole) = (document.size("micro_batch_size"), document.size("batch_size"));
    let micro_batch = micro.unwrap_or(1);
    let steps = document.size("gradient_accumulation_steps").or(whole.map(|whole| (whole / micro_batch).max(1)));
    Trainer { micro_batch, steps: steps.unwrap_or(1), half: hugging_face::half(document) }
}

fn over_deepspeed(
    document: &Document,
    name: &str,
    trainer: Trainer,
    launched: &Launched,
    context: &Context,
) -> Result<Imported, ImportError> {
    let mut json = hugging_face::json_of(name, document.place("deepspeed").as_ref(), SHIPPED, context)?;
    let degree = |key: &str| document.size(key).unwrap_or(1);
    // `check_tensor_parallel_size_update_ds_json` puts it there where the JSON has none.
    let tp = degree("tensor_parallel_size");
    if tp > 1 && !json.has("tensor_parallel") {
        json.put("tensor_parallel.autotp_size", &tp.to_string(), 1);
    }
    let mut imported = trainer.over_deepspeed(&mut json, launched);
    let cp = context_parallel(document);
    if cp > 1 {
        let dp = launched.world.map_or(1, |world| replicas(world, &[imported.plan.layout.tp, cp]));
        imported.plan.layout = Layout { cp, dp, ..imported.plan.layout };
        imported.plan.cp_kind = exchange(document);
        let each = trainer.micro_batch.saturating_mul(trainer.steps);
        imported.work.global_batch = launched.world.map(|_| each.saturating_mul(dp));
    }
    for key in ["expert_parallel_size", "dp_shard_size", "dp_replicate_size"] {
        if degree(key) > 1 {
            let place = document.place(key);
            let message = format!("`{key}` stands beside DeepSpeed, which takes `tensor_parallel_size` alone");
            document.note(Finding::error("contradiction", message).at_maybe(place.as_ref()));
        }
    }
    Ok(imported)
}

/// FSDP, or copies.
fn over_fsdp(document: &Document, trainer: Trainer, launched: &Launched) -> Imported {
    let mut imported = Imported::new(KIND, Family::Fsdp, "fsdp-eager-2023");
    (imported.world, imported.gpus_per_node) = (launched.world, launched.gpus_per_node);
    let shards = document.has("fsdp_config") && !document.keys("fsdp_config").is_empty();
    let words: Vec<String> = document.words("fsdp").iter().flat_map(|word| word.split(' ')).map(Into::into).collect();
    mesh(document, shards || !words.is_empty(), &mut imported);
    if shards || !words.is_empty() {
        fsdp(document, &words, &mut imported);
    }
    trainer.fill(&mut imported, document);
    if imported.plan.zero == ZeroStage::Zero && trainer.half.is_some() && document.word("adapter").is_none() {
        // Weights are loaded in 16 bits, and nothing keeps wider ones.
        imported.work.recipe = Recipe::HALF;
    }
    imported
}

fn context_parallel(document: &Document) -> u32 {
    let older = document.size("sequence_parallel_degree");
    document.size("context_parallel_size").or(older).unwrap_or(1)
}

/// `ring_attn_func`, which packed sequences choose where the file sets none.
fn exchange(document: &Document) -> CpKind {
    let packed = is_on(document, "sample_packing");
    match document.word("ring_attn_func").as_deref() {
        Some("varlen_llama3") => CpKind::AllGather,
        None if packed => CpKind::AllGather,
        Some(_) | None => CpKind::Ring,
    }
}

/// Degrees, and how weights are shared out along data.
fn mesh(document: &Document, shards: bool, imported: &mut Imported) {
    let (tp, cp) = (document.size("tensor_parallel_size").unwrap_or(1), context_parallel(document));
    let ep = document.size("expert_parallel_size").unwrap_or(1);
    let (copies, shard) = (document.size("dp_replicate_size"), document.size("dp_shard_size"));
    let product = |sizes: &[u32]| sizes.iter().fold(1_u64, |product, size| product.saturating_mul(u64::from(*size)));
    if let (Some(copies), Some(shard)) = (copies, shard) {
        let all = product(&[copies, shard, ep, tp, cp]);
        match imported.world {
            Some(world) if u64::from(world) != all => {
                let message = format!("the sizes of the mesh multiply to {all}, and there are {world} processes");
                let place = document.place("dp_shard_size");
                let expected = "dp_replicate_size·dp_shard_size·expert·context·tensor parallel size = processes";
                document.note(Finding::error("world-size", message).at_maybe(place.as_ref()).expected(expected));
            }
            Some(_) => {}
            None => imported.world = u32::try_from(all).ok(),
        }
    }
    let dp = imported.world.map_or(1, |world| replicas(world, &[tp, cp]));
    imported.plan.layout = Layout { tp, cp, pp: 1, dp, ep, etp: 1 };
    imported.plan.cp_kind = exchange(document);
    if ep > 1 {
        imported.plan.dispatcher = Dispatcher::DeepEp;
    }
    if !shards {
        return;
    }
    match (shard, copies) {
        (Some(shard), _) => imported.plan.shard_group = Some(shard.saturating_mul(cp)).filter(|group| *group > 1),
        (None, Some(copies)) if copies > 1 => {
            let ranks = imported.plan.layout.dense_replicas();
            imported.plan.shard_group =
                imported.world.filter(|_| ranks.is_multiple_of(copies)).map(|_| (ranks / copies).max(1));
            imported.shard_groups = Some(copies);
        }
        (None, _) => {}
    }
    if imported.world.is_some() {
        hugging_face::without_whole_group(&mut imported.plan);
    }
}

fn fsdp(document: &Document, words: &[String], imported: &mut Imported) {
    let path = |key: &str| {
        let plain = format!("fsdp_config.{key}");
        if document.has(&plain) { plain } else { format!("fsdp_config.fsdp_{key}") }
    };
    let older = [document.word("fsdp_config.fsdp_version"), document.word("fsdp_config.version")];
    let version = document.word("fsdp_version").or(older.into_iter().flatten().next());
    let node = imported.gpus_per_node;
    imported.plan.zero = ZeroStage::Three;
    if version.as_deref() == Some("2") {
        imported.plan.reshard_after_forward = document.switch(&path("reshard_after_forward")).unwrap_or(true);
    } else {
        for word in words {
            let _ = hugging_face::strategy(word, node, &mut imported.plan);
        }
        if imported.world.is_some() {
            hugging_face::without_whole_group(&mut imported.plan);
        }
    }
    let strategy = path("sharding_strategy");
    if document.word(&strategy).is_some_and(|word| word != "FULL_SHARD") {
        let message = format!("`{strategy}` is no key of axolotl 0.19, which shards fully");
        let finding = Finding::warning("without-effect", message).at_maybe(document.place(&strategy).as_ref());
        document.note(finding.expected("`dp_shard_size` and `dp_replicate_size` of FSDP2"));
    }
    if is_on(document, &path("activation_checkpointing")) {
        imported.plan.recompute = Recompute::Full;
    }
    if is_on(document, &path("offload_params")) || words.iter().any(|word| word == "offload") {
        imported.plan.offload.optimizer = 1.0;
    }
}

/// Head and loss by chunks: of Liger where its switch is on, of Cut Cross Entropy where its plugin is there and not switched off.
///
/// Source: [axolotl] `integrations/liger/args.py`, `integrations/cut_cross_entropy/args.py`.
fn loss(document: &Document, imported: &mut Imported) {
    let has_plugin = document.words("plugins").iter().any(|plugin| plugin.ends_with("CutCrossEntropyPlugin"));
    let liger = is_on(document, "liger_fused_linear_cross_entropy");
    let cuts = is_on(document, "cut_cross_entropy") || has_plugin && !document.has("cut_cross_entropy");
    if liger || cuts {
        let setting = if liger { "liger_fused_linear_cross_entropy" } else { "plugins" };
        hugging_face::chunked_loss(document, setting, imported);
    }
    if is_on(document, "tiled_mlp") {
        let message = "`tiled_mlp`: the MLP's activations are priced whole, and are those of a tile";
        document.note(Finding::warning("not-modelled", message).at_maybe(document.place("tiled_mlp").as_ref()));
    }
}

fn recompute(document: &Document, imported: &mut Imported) {
    if is_on(document, "gradient_checkpointing") {
        imported.plan.recompute = Recompute::Full;
    }
    let on_host = document.word("gradient_checkpointing").is_some_and(|word| word.starts_with("offload"));
    if on_host || is_on(document, "activation_offloading") {
        imported.plan.offload.activations = 1.0;
    }
    for key in ["selective_checkpointing", "layer_offloading"] {
        if document.has(key) && document.peek(key).is_none_or(|word| !matches!(word, "false" | "" | "null")) {
            let place = document.place(key);
            document.note(
                Finding::warning("not-modelled", format!("`{key}` is priced as if it were off"))
                    .at_maybe(place.as_ref()),
            );
        }
    }
}

/// Findings of trainings other than that of the whole model on one loss.
fn unpriced(document: &Document) {
    let place = |key: &str| document.place(key).unwrap_or(Place { file: String::new(), line: 1 });
    for key in ["load_in_4bit", "load_in_8bit"] {
        if is_on(document, key) {
            let finding = Finding::warning("not-modelled", format!("`{key}`: weights are priced in 16 bits"));
            document.note(finding.at(&place(key)));
        }
    }
    if let Some(kind) = document.word("rl") {
        let message = format!("`rl: {kind}` runs more passes than one of training, which alone is priced");
        document.note(Finding::warning("not-modelled", message).at(&place("rl")));
    }
    let (packed, padded) = (is_on(document, "sample_packing"), is_on(document, "pad_to_sequence_len"));
    if packed {
        document.note(Finding::of_documents("sample_packing").at_maybe(document.place("sample_packing").as_ref()));
    }
    if !packed && !padded {
        let at = document.place("sample_packing").or_else(|| document.place("sequence_len"));
        let message = "sequences that are neither packed nor padded are priced as if each were `sequence_len` long";
        document.note(Finding::note("assumed", message).at_maybe(at.as_ref()));
    }
}

/// Low-rank adapters, and options of them that are not priced.
fn adapting(document: &Document, imported: &mut Imported) {
    let Some(kind) = document.word("adapter") else { return };
    let (setting, place) = (format!("`adapter: {kind}`"), document.place("adapter"));
    let place = place.unwrap_or(Place { file: String::new(), line: 1 });
    if !matches!(kind.as_str(), "lora" | "qlora") {
        return document.note(other_adapters(&setting, &place));
    }
    let mut targets = document.words("lora_target_modules");
    if is_on(document, "lora_target_linear") {
        targets.push("all linear".into());
    }
    let warn =
        |key: &str, what: &str| document.note(not_priced(&format!("`{key}`"), what, document.place(key).as_ref()));
    if is_on(document, "peft_use_dora") {
        warn("peft_use_dora", "the norms of DoRA are not priced");
    }
    if document.count("lora_modules_to_save").is_some_and(|count| count > 0) {
        warn("lora_modules_to_save", "modules that are trained whole are priced as frozen");
    }
    if is_on(document, "relora") {
        warn("relora", "merges of adapters are not priced");
    }
    AdapterTraining { setting, place, adapters: Adapters { rank: hugging_face::rank(document, "lora_r"), targets } }
        .apply(imported);
}

/// Keys that are nearly one that decides the step: axolotl ignores them in silence.
fn slips(document: &Document, imported: &mut Imported) {
    for (name, place) in document.unread() {
        let near = nearest(&name, DECISIVE.split_whitespace()).filter(|near| is_slip(&name, near) && *near != name);
        if let Some(near) = near {
            imported.unknown.push(Unknown { name, values: Vec::new(), place, nearest: Some(near) });
        }
    }
}

/// Keys that nobody read; settings of servers that generate are no part of a step.
fn unread(document: &Document) -> Vec<String> {
    let generates = |path: &String| path.starts_with("vllm.") || path.starts_with("trl.");
    document.unread().into_iter().map(|(path, _)| path).filter(|path| !generates(path)).collect()
}
