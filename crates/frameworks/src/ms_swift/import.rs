//! ms-swift: `megatron sft` takes Megatron's arguments with underscores, `swift sft` those of Hugging Face's `Trainer`;
//! either from the command line, or from a YAML or JSON of the same names.
//!
//! Source: [ms-swift] `swift/megatron/arguments/megatron_args.py`, `swift/arguments/sft_args.py`, `swift/trainers/arguments.py`,
//! `swift/cli/main.py`, `swift/config/`, commit 3602360a: names and defaults.

use crate::hugging_face::import::{self as hugging_face, OnHost, Shipped, Trainer, is_on};
use crate::import::adapters::{AdapterTraining, not_priced, other_adapters};
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::{Finding, Place};
use crate::import::imported::{Adapters, Imported};
use crate::import::known;
use crate::import::launch::{Launch, LaunchedGpus};
use crate::megatron::flags::{Arity, flags};
use crate::megatron::import as megatron;
use crate::megatron::import::arguments::Arguments;
use crate::readers::document::{self, Document, Form};
use crate::readers::shell::Ran;
use crate::readers::shell::text::{Text, names as unresolved, readable};
use meshwright_engine::plan::{CpKind, Layout, Recompute, ZeroStage};
use meshwright_engine::stack::Family;
use meshwright_engine::workload::{Half, Recipe};

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "ms-swift";

/// Arguments of Megatron that are on by default.
const USUAL: &[(&str, &str)] = &[
    ("--use-distributed-optimizer", ""),
    ("--cross-entropy-loss-fusion", ""),
    ("--attention-backend", "flash"),
    ("--moe-token-dispatcher-type", "alltoall"),
    ("--expert-tensor-parallel-size", "1"),
    ("--global-batch-size", "16"),
    ("--recompute-granularity", "selective"),
];

/// `CUDA_DEVICE_MAX_CONNECTIONS` where the environment does not set it. Source: [ms-swift] `swift/cli/_megatron/sft.py`.
const CONNECTIONS: &str = "1";

/// Argument that ms-swift has under the name that Megatron core has given up.
const FUSED_EXCHANGE: &str = "`--moe-enable-deepep`";

/// Keys that only its version on Megatron core has.
const MEGATRONS: &str = "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_model_parallel_size \
    micro_batch_size global_batch_size recompute_granularity sequence_parallel mcore_model use_megatron_fsdp";

/// Files of its folder `swift/config`, by the names that its command line takes.
const SHIPPED: &[Shipped] = &[
    Shipped::new("zero0", 0, OnHost::Nothing),
    Shipped::new("zero1", 1, OnHost::Nothing),
    Shipped::new("zero2", 2, OnHost::Nothing),
    Shipped::new("zero2_offload", 2, OnHost::Optimizer),
    Shipped::new("zero3", 3, OnHost::Nothing),
    Shipped::new("zero3_offload", 3, OnHost::OptimizerAndWeights),
];

/// GPUs of a launch, as variables of the environment say.
fn counted(variable: impl Fn(&str) -> Option<String>) -> LaunchedGpus {
    let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<u32>().ok());
    let visible = variable("CUDA_VISIBLE_DEVICES").map(|visible| visible.split(',').count() as u32);
    let each = number("NPROC_PER_NODE").or(visible.filter(|n| *n == 1));
    let all = each.and_then(|each| each.checked_mul(number("NNODES").unwrap_or(1)));
    LaunchedGpus { all, per_node: each }
}

/// GPUs of a launch, as its environment says.
pub(crate) fn gpus(launch: &Launch, ran: &Ran) -> LaunchedGpus {
    counted(|name| {
        let own = launch.own.iter().rfind(|(own, _)| own == name).map(|(_, value)| value);
        own.or_else(|| ran.variables.get(name)).filter(|text| text.missing().is_empty()).map(Text::plain)
    })
}

/// Reads a YAML or JSON.
///
/// # Errors
/// A file that does not parse, that trains by preferences or rewards, or names a JSON of DeepSpeed's that is not there.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let document = document::parse(text, Form::Yaml, context)?;
    let is_megatrons = MEGATRONS.split_whitespace().any(|key| document.has(key));
    imported_from(None, &document, is_megatrons, &Launched::default(), context)
}

/// Plan, workload and settings of a configuration, or of a command line, for `megatron sft` or for `swift sft`; `engine` is the FSDP or
/// DeepSpeed that `accelerate launch` sets up for the latter.
///
/// # Errors
/// Those of [`read`].
pub(crate) fn imported_from(
    engine: Option<Imported>,
    document: &Document,
    is_megatrons: bool,
    launched: &Launched,
    context: &Context,
) -> Result<Imported, ImportError> {
    if let Some(kind) = document.word("rlhf_type") {
        let place = document.place("rlhf_type").unwrap_or(Place { file: context.file.to_owned(), line: 1 });
        let why = format!("`rlhf_type: {kind}` trains by preferences or rewards, which is not priced");
        let expected = "the degrees of its trainer: `meshwright explain --plan`".into();
        return Err(ImportError { file: place.file, line: place.line, why, expected });
    }
    let mut launched = launched.clone();
    let LaunchedGpus { all: world, per_node: each } = counted(|name| document.word(&format!("ENV.{name}")));
    (launched.world, launched.gpus_per_node) = (launched.world.or(world), launched.gpus_per_node.or(each));
    if !is_megatrons {
        return of_trainer(engine, document, &launched, context);
    }
    let keys = document.keys("");
    let first = keys.first().and_then(|key| document.place(key));
    let file = first.map_or_else(|| context.file.to_owned(), |place| place.file);
    let mut words = Vec::new();
    for key in keys.iter().filter(|key| *key != "ENV") {
        let line = document.place(key).map_or(1, |place| place.line);
        words.push(Text::on(&format!("--{key}"), line));
        words.extend(document.leaves(key).iter().map(|word| Text::on(word, line)));
    }
    Ok(of_words(&words, 1, &launched, &file))
}

/// Settles the arguments of `megatron sft`, launched on a line of a file.
pub(crate) fn of_words(arguments: &[Text], line: u32, launched: &Launched, file: &str) -> Imported {
    let mut list = Arguments::empty(true);
    let mut words = arguments;
    let place = |word: &Text| Place { file: file.to_owned(), line: word.line().unwrap_or(line).max(1) };
    let mut launched = Launched { open: true, ..launched.clone() };
    if arguments.iter().all(|word| word.plain() != "--use_megatron_fsdp") {
        launched.connections.get_or_insert_with(|| CONNECTIONS.to_owned());
    }
    let (mut adapting, mut adapters) = (None, Adapters { rank: None, targets: Vec::new() });
    let mut other_model = false;
    while let Some((word, rest)) = words.split_first() {
        words = rest;
        let text = word.plain();
        let Some(name) = text.strip_prefix("--") else { continue };
        let follow = words.iter().take_while(|word| !word.plain().starts_with("--")).count();
        let (values, rest) = words.split_at(follow);
        words = rest;
        let flag = format!("--{}", name.replace('_', "-"));
        let value = values.first().map(Text::plain).unwrap_or_default();
        match (name, flags().get(flag.as_str()).map(|flag| flag.arity)) {
            ("max_length", _) => list.add("--seq-length", values.to_vec(), place(word)),
            ("model", _) => {
                launched.model = model(&value, &place(word), &mut list);
                other_model = launched.model.is_none() && unresolved(&value).is_empty();
            }
            ("virtual_pipeline_model_parallel_size", _) => {
                list.add("--num-virtual-stages-per-pipeline-rank", values.to_vec(), place(word));
            }
            ("recompute_granularity", _) if value == "none" => list.deny(&flag),
            ("torch_dtype", _) if value.contains("float16") => {
                let half = if value.ends_with("bfloat16") { "--bf16" } else { "--fp16" };
                list.add(half, Vec::new(), place(word));
            }
            ("attention_backend", _) if value.starts_with("flash_") => {
                list.add(&flag, vec![Text::on("flash", word.line().unwrap_or(line))], place(word));
                let version = Text::on(&value["flash_".len()..], word.line().unwrap_or(line));
                list.add("--flash-attention-version", vec![version], place(word));
            }
            ("train_type" | "tuner_type", _) if value == "lora" => {
                adapting = Some((format!("`{text} {value}`"), place(word)));
            }
            ("train_type" | "tuner_type", _) if value != "full" => {
                list.findings.push(other_adapters(&format!("`{text} {value}`"), &place(word)));
            }
            ("lora_rank", _) => adapters.rank = value.parse().ok(),
            ("target_modules", _) => adapters.targets = values.iter().map(Text::plain).collect(),
            (_, Some(Arity::Switch | Arity::Exactly(0))) => match value.to_ascii_lowercase().as_str() {
                "false" | "0" => {
                    let off = format!("--no-{}", &flag[2..]);
                    if flags().get(flag.as_str()).map(|flag| flag.arity) == Some(Arity::Switch) {
                        list.add(&off, Vec::new(), place(word));
                    }
                    list.deny(&flag);
                }
                _ => list.add(&flag, Vec::new(), place(word)),
            },
            (_, Some(_)) => list.add(&flag, values.to_vec(), place(word)),
            (_, None) => list.without_effect.push(format!("{text} {}", readable(&value)).trim().to_owned()),
        }
    }
    usual(&mut list, &Place { file: file.to_owned(), line });
    let effect = std::mem::take(&mut list.without_effect);
    let mut imported = megatron::imported_from(list, &launched);
    imported.kind = KIND;
    imported.names_other_model = other_model;
    imported.findings.retain(|finding| finding.rule != "deprecated" || !finding.message.starts_with(FUSED_EXCHANGE));
    imported.without_effect.extend(effect);
    if let Some((setting, place)) = adapting {
        AdapterTraining { setting, place, adapters }.apply(&mut imported);
    }
    imported
}

/// Adds the settings that ms-swift turns on by default.
fn usual(list: &mut Arguments, at: &Place) {
    let add = |list: &mut Arguments, flag: &str, value: &str| {
        if list.place(flag).is_none() && !list.denies(flag) {
            let values = if value.is_empty() { Vec::new() } else { vec![Text::on(value, at.line)] };
            list.add(flag, values, at.clone());
        }
    };
    for (flag, value) in USUAL {
        add(list, flag, value);
    }
    if list.place("--fp16").is_none() {
        add(list, "--bf16", "");
    }
    if list.place("--use-megatron-fsdp").is_some() {
        add(list, "--data-parallel-sharding-strategy", "optim_grads_params");
    }
}

fn model(name: &str, place: &Place, list: &mut Arguments) -> Option<meshwright_engine::model::Model> {
    let model = known::of_hub(name);
    let finding = match &model {
        Some(model) => Finding::note("assumed", format!("`{name}` is read as {}", model.name)),
        None if !unresolved(name).is_empty() => {
            let message = format!("`{}`, which names the model, is not set", readable(name));
            list.findings.push(Finding::warning("unknown-model", message).at(place).expected("--var, or --model"));
            return None;
        }
        None => Finding::warning("unknown-model", format!("`{name}` is no model of the catalogue")),
    };
    list.findings.push(finding.at(place).expected("another: --model"));
    model
}

/// Fewest sequences of a step where the file sets no accumulation.
const LEAST_BATCH: u32 = 16;

/// Trainer and settings of `swift sft`; `engine` is what its launcher sets up.
fn of_trainer(
    engine: Option<Imported>,
    document: &Document,
    launched: &Launched,
    context: &Context,
) -> Result<Imported, ImportError> {
    let micro_batch = document.size("per_device_train_batch_size").unwrap_or(1);
    let accumulation = document.size("gradient_accumulation_steps");
    let world = engine.as_ref().map_or(launched.world, |engine| engine.world);
    let usual = world.map(|world| LEAST_BATCH.div_ceil(micro_batch.saturating_mul(world).max(1)));
    let types = ["torch_dtype", "dtype"].map(|key| document.word(key));
    let is_fp16 =
        is_on(document, "fp16") || types.iter().flatten().any(|word| matches!(word.as_str(), "float16" | "fp16"));
    let _ = is_on(document, "bf16"); // the format of most models, and the default
    let half = if is_fp16 { Half::Fp16 } else { Half::Bf16 };
    let trainer = Trainer { micro_batch, steps: accumulation.or(usual).unwrap_or(1), half: Some(half) };
    let (tp, cp) = (document.size("deepspeed_autotp_size"), document.size("sequence_parallel_size"));
    let mut imported = if let Some(name) = document.word("deepspeed") {
        let mut json = if name.trim_start().starts_with('{') {
            document::parse(&name, Form::Json, context)?
        } else {
            hugging_face::json_of(&name, document.place("deepspeed").as_ref(), SHIPPED, context)?
        };
        let line = document.place("deepspeed").map_or(1, |place| place.line);
        let sizes = [("tensor_parallel.autotp_size", tp), ("sequence_parallel_size", cp)];
        let group = ("zero_optimization.zero_hpz_partition_size", document.size("zero_hpz_partition_size"));
        for (path, size) in sizes.into_iter().chain([group]) {
            if let Some(size) = size {
                json.put(path, &size.to_string(), line);
            }
        }
        trainer.over_deepspeed(&mut json, launched)
    } else {
        let mut imported = engine.map_or_else(|| of_fsdp(document, launched, context), Ok)?;
        trainer.fill(&mut imported, document);
        if imported.family == Family::Fsdp && imported.plan.zero == ZeroStage::Zero {
            // Without an engine the Trainer updates the weights as they were loaded, in 16 bits.
            imported.work.recipe = Recipe::HALF;
        }
        imported
    };
    imported.kind = KIND;
    imported.findings.retain(|finding| finding.rule != "needs-code"); // its own code does it
    imported.work.seq_len = document.size("packing_length").or_else(|| document.size("max_length"));
    if is_on(document, "packing") {
        document.note(Finding::of_documents("packing").at_maybe(document.place("packing").as_ref()));
    }
    hugging_face::optimizer(document, "optim", &mut imported);
    hugging_face::attention(document, "attn_impl", &mut imported);
    for key in ["model", "model_id_or_path"] {
        hugging_face::model(document, key, &mut imported);
    }
    if is_on(document, "use_liger_kernel") {
        hugging_face::chunked_loss(document, "use_liger_kernel", &mut imported);
    }
    if document.word("gradient_checkpointing").is_none() || is_on(document, "gradient_checkpointing") {
        imported.plan.recompute = Recompute::Full;
    }
    if accumulation.is_none() && usual.is_none() {
        let message = "`gradient_accumulation_steps` follows from the number of GPUs, which is not said: 1 is assumed";
        document.note(
            Finding::warning("unresolved-value", message).expected("NPROC_PER_NODE, or --gpus and --global-batch"),
        );
    }
    unpriced(document, context, &mut imported);
    for key in ["lora_ga_batch_size", "lora_ga_max_length"] {
        let _ = document.word(key); // of the sample that its initialisation takes
    }
    for (key, path) in [("mbs", "per_device_train_batch_size"), ("seq", "max_length"), ("zero", "deepspeed")] {
        imported.places.extend(document.place(path).map(|place| (key.to_owned(), place)));
    }
    imported.without_effect.extend(document.unread().into_iter().map(|(path, _)| path));
    imported.findings.extend(document.findings.take());
    Ok(imported)
}

/// Copies, or FSDP 2 by the name of its preset or by a JSON of the same form.
fn of_fsdp(document: &Document, launched: &Launched, context: &Context) -> Result<Imported, ImportError> {
    let mut imported = Imported::new(KIND, Family::Fsdp, "fsdp-eager-2023");
    (imported.world, imported.gpus_per_node) = (launched.world, launched.gpus_per_node);
    let cp = document.size("sequence_parallel_size").unwrap_or(1);
    let dp = launched.world.map_or(1, |world| (world / cp).max(1));
    imported.plan.layout = Layout { cp, dp, ..Layout::data_parallel(1) };
    imported.plan.sequence_parallel = false;
    if cp > 1 {
        imported.plan.cp_kind = CpKind::AllToAll; // Ulysses, and a ring for what the heads do not divide
    }
    let Some(name) = document.word("fsdp").filter(|name| !name.is_empty()) else { return Ok(imported) };
    imported.plan.zero = ZeroStage::Three;
    if name == "fsdp2" {
        imported.plan.recompute = Recompute::Full; // its preset has `activation_checkpointing`
        return Ok(imported);
    }
    let Some(text) = (context.files)(&name) else {
        let place = document.place("fsdp").unwrap_or(Place { file: context.file.to_owned(), line: 1 });
        let why = format!("`{name}`, its configuration of FSDP, was not found");
        return Err(ImportError {
            file: place.file,
            line: place.line,
            why,
            expected: "fsdp2, or the file beside this one".into(),
        });
    };
    let json = document::parse(&text, Form::Json, &Context { files: context.files, ..Context::alone(&name) })?;
    for word in json.word("fsdp").iter().flat_map(|words| words.split(' ')) {
        if word == "offload" {
            imported.plan.offload.optimizer = 1.0;
        }
        let _ = hugging_face::strategy(word, launched.gpus_per_node, &mut imported.plan);
    }
    if let Some(reshards) = json.switch("fsdp_config.reshard_after_forward") {
        imported.plan.reshard_after_forward = reshards;
    }
    if is_on(&json, "fsdp_config.activation_checkpointing") {
        imported.plan.recompute = Recompute::Full;
    }
    Ok(imported)
}

/// Adapters, which it trains by default, and findings on settings that are not priced.
fn unpriced(document: &Document, context: &Context, imported: &mut Imported) {
    let kinds = ["tuner_type", "train_type", "sft_type"].map(|key| document.word(key).map(|kind| (key, kind)));
    let rank = hugging_face::rank(document, "lora_rank");
    let targets = document.leaves("target_modules");
    let adapters = Adapters { rank, targets };
    let place = |key: &str| document.place(key).unwrap_or(Place { file: context.file.to_owned(), line: 1 });
    match kinds.into_iter().flatten().next() {
        Some((_, kind)) if matches!(kind.as_str(), "full" | "longlora" | "galore") => {}
        Some((key, kind)) if kind == "lora" => {
            AdapterTraining { setting: format!("`{key} {kind}`"), place: place(key), adapters }.apply(imported);
        }
        Some((key, kind)) => document.note(other_adapters(&format!("`{key} {kind}`"), &place(key))),
        None => {
            AdapterTraining { setting: "ms-swift without `--tuner_type full`".into(), place: place("model"), adapters }
                .apply(imported);
        }
    }
    for (key, message) in [
        ("quant_bits", "weights are priced in 16 bits"),
        ("use_dora", "the norms of DoRA are not priced"),
        ("modules_to_save", "modules that are trained whole are priced as frozen"),
        ("freeze_parameters_ratio", "frozen layers are priced as if they were trained"),
    ] {
        if is_on(document, key) {
            document.note(not_priced(&format!("`{key}`"), message, document.place(key).as_ref()));
        }
    }
}
