//! Command lines of training programs that follow Hugging Face's `Trainer`.
//!
//! Source: [transformers] `training_args.py`: `per_device_train_batch_size`, `gradient_accumulation_steps`,
//! `gradient_checkpointing`, `fsdp`; the names of model and sequence are those of its examples. Programs with
//! `--deepspeed zero3` name a configuration that ships with ms-swift; DeepSpeed's examples take `--zero_stage`.

use super::adapters::{AdapterTraining, not_priced, other_adapters};
use super::context::Launched;
use super::finding::{Finding, Place};
use super::imported::{Adapters, Imported};
use super::known;
use super::launch::{Launch, Launcher};
use crate::accelerate::import as accelerate;
use crate::deepspeed::import as deepspeed;
use crate::hugging_face::import as hugging_face;
use crate::readers::document::Document;
use meshwright_engine::plan::Recompute;

const SEQUENCE: &[&str] = &[
    "--max_seq_length",
    "--max_seq_len",
    "--model_max_length",
    "--block_size",
    "--seq_length",
    "--cutoff_len",
    "--max_length",
];
const MODEL: &[&str] =
    &["--model", "--model_id_or_path", "--model_name_or_path", "--model_name", "--pretrained_model_name_or_path"];

/// ZeRO stage of a named configuration, such as `zero3_offload`, and whether it offloads the optimizer.
pub(crate) fn preset(launch: &Launch) -> Option<(&'static str, bool)> {
    let name = launch.argument(&["--deepspeed"])?.plain();
    let stage = ["zero0", "zero1", "zero2", "zero3"].into_iter().position(|stage| name.starts_with(stage))?;
    let plain = !name.contains(['.', '/']);
    plain.then(|| (["0", "1", "2", "3"][stage], name.contains("offload")))
}

/// Whether a program takes its batch as Hugging Face's `Trainer` does.
pub(crate) fn is_trainer(launch: &Launch) -> bool {
    let names = ["--per_device_train_batch_size", "--per-device-train-batch-size", "--zero_stage", "--deepspeed_stage"];
    launch.argument(&names).is_some()
}

/// Plan, workload and settings of a launch without a configuration file: DeepSpeed's stage and offloading, FSDP, or replicas alone.
pub(crate) fn imported_from(launch: &Launch, launched: &Launched, file: &str) -> Imported {
    let line = launch.line;
    let mut document = Document::empty(line, file);
    let given = |names: &[&str]| launch.argument(names).filter(|value| value.missing().is_empty());
    let switch = |name: &str| launch.arguments.iter().any(|word| word.plain() == name);
    let stage = given(&["--zero_stage", "--zero-stage", "--deepspeed_stage"])
        .map(|stage| (stage.plain(), stage.line().unwrap_or(line)));
    let mut imported = if let Some((stage, offload)) = preset(launch) {
        document.put("zero_optimization.stage", stage, line);
        if offload {
            document.put("zero_optimization.offload_optimizer.device", "cpu", line);
        }
        document.put("bf16.enabled", "true", line);
        deepspeed::imported_from(&document, launched)
    } else if launch.launcher == Launcher::Deepspeed || stage.is_some() {
        if let Some((stage, line)) = &stage {
            document.put("zero_optimization.stage", stage, *line);
        }
        if switch("--offload") {
            document.put("zero_optimization.offload_optimizer.device", "cpu", line);
        }
        document.put("bf16.enabled", "true", line);
        let finding =
            Finding::warning("needs-code", format!("`{}` makes DeepSpeed's configuration itself", launch.program));
        let read = if stage.is_some() { "of it, the stage and the batch are read" } else { "its stage is taken as 0" };
        document.note(finding.at(&Place { file: file.to_owned(), line }).expected(read));
        deepspeed::imported_from(&document, launched)
    } else {
        let sharding = given(&["--fsdp"]).map(|text| text.plain()).unwrap_or_default();
        document.put("distributed_type", if sharding.is_empty() { "MULTI_GPU" } else { "FSDP" }, line);
        if let Some(strategy) =
            ["hybrid_shard", "full_shard", "shard_grad_op"].iter().find(|way| sharding.contains(**way))
        {
            document.put("fsdp_config.fsdp_sharding_strategy", &strategy.to_uppercase(), line);
        }
        if sharding.split([' ', ',']).any(|word| word == "offload") {
            document.put("fsdp_config.fsdp_offload_params", "true", line);
        }
        let off = |value: &str| matches!(value.to_ascii_lowercase().as_str(), "false" | "0" | "no");
        let half = ["bf16", "fp16"].into_iter().find(|half| {
            let name = format!("--{half}");
            switch(&name) && !given(&[name.as_str()]).is_some_and(|value| off(&value.plain()))
        });
        document.put("mixed_precision", half.unwrap_or("no"), line);
        accelerate::imported_from(&document, launched, &|_| None)
    };
    fill(&mut imported, launch, None, file);
    adapters(&mut imported, launch, file);
    imported
}

/// Flags whose value says how much of the model is trained.
const EXTENT: &[&str] = &["--train_type", "--tuner_type", "--finetuning_type"];
/// Flags that only runs that train adapters have.
const ADAPTERS: &[&str] =
    &["--use_lora", "--use_peft", "--use_peft_lora", "--only_optimize_lora", "--lora_dim", "--lora_rank", "--lora_r"];
/// Flags of the adapters' rank.
const RANK: &[&str] = &["--lora_rank", "--lora_r", "--lora_dim"];
/// Flags of the modules that have adapters.
const TARGETS: &[&str] = &["--lora_target", "--lora_target_modules", "--target_modules"];

/// Adapters that are trained instead of the whole model.
fn adapters(imported: &mut Imported, launch: &Launch, file: &str) {
    let place = |line: Option<u32>| Place { file: file.to_owned(), line: line.unwrap_or(launch.line) };
    let whole = ["full", "freeze", "galore"];
    let (setting, at) = match launch.argument(EXTENT) {
        Some(extent) if whole.contains(&extent.plain().as_str()) => return,
        Some(extent) if !matches!(extent.plain().as_str(), "lora" | "qlora") => {
            return imported.findings.push(other_adapters(&format!("`{}`", extent.plain()), &place(extent.line())));
        }
        Some(extent) => (format!("`{}`", extent.plain()), extent.line()),
        None => match launch.arguments.iter().find(|word| ADAPTERS.contains(&word.plain().as_str())) {
            Some(flag) => (format!("`{}`", flag.plain()), flag.line()),
            None => return,
        },
    };
    let rank = launch.argument(RANK).and_then(|rank| rank.plain().parse().ok());
    let targets = launch.argument(TARGETS).map(|names| names.plain().split([',', ' ']).map(str::to_owned).collect());
    let adapters = Adapters { rank, targets: targets.unwrap_or_default() };
    for (flag, what) in [
        ("--use_dora", "the norms of DoRA are not priced"),
        ("--load_in_4bit", "weights are priced in 16 bits"),
        ("--load_in_8bit", "weights are priced in 16 bits"),
        ("--quant_bits", "weights are priced in 16 bits"),
        ("--modules_to_save", "modules that are trained whole are priced as frozen"),
    ] {
        let value = launch.argument(&[flag]);
        let is_off = value.is_some_and(|value| value.plain().eq_ignore_ascii_case("false"));
        if launch.arguments.iter().any(|word| word.plain() == flag) && !is_off {
            imported.findings.push(not_priced(&format!("`{flag}`"), what, Some(&place(None))));
        }
    }
    AdapterTraining { setting, place: place(at), adapters }.apply(imported);
}

/// States of the optimizer that `--optim` names.
fn optimizer(imported: &mut Imported, launch: &Launch, file: &str) {
    let Some(name) = launch.argument(&["--optim"]).filter(|name| name.missing().is_empty()) else { return };
    let mut document = Document::empty(launch.line, file);
    document.put("optim", &name.plain(), name.line().unwrap_or(launch.line));
    hugging_face::optimizer(&document, "optim", imported);
    imported.findings.extend(document.findings.take());
}

/// Head and loss by chunks, where Liger's kernels are on.
fn chunked_loss(imported: &mut Imported, launch: &Launch, file: &str) {
    let names = ["--use_liger_kernel", "--use_liger", "--use-liger-kernel"];
    let is_off = launch.argument(&names).is_some_and(|value| value.plain().eq_ignore_ascii_case("false"));
    if !is_off && launch.arguments.iter().any(|word| names.contains(&word.plain().as_str())) {
        let document = Document::empty(launch.line, file);
        hugging_face::chunked_loss(&document, names[0].trim_start_matches('-'), imported);
        imported.findings.extend(document.findings.take());
    }
}

/// Adds settings of the program's arguments that its configuration lacks; `accumulation` is that of the environment.
pub(crate) fn fill(imported: &mut Imported, launch: &Launch, accumulation: Option<u32>, file: &str) {
    let number = |names: &[&str]| {
        let dashed: Vec<String> = names.iter().map(|name| format!("--{}", name[2..].replace('_', "-"))).collect();
        let all: Vec<&str> = names.iter().copied().chain(dashed.iter().map(String::as_str)).collect();
        let text = launch.argument(&all)?;
        let value = text.plain().trim().parse::<u32>().ok().filter(|n| *n > 0)?;
        Some((value, Place { file: file.to_owned(), line: text.line().unwrap_or(launch.line) }))
    };
    if let Some((micro, place)) = number(&["--per_device_train_batch_size"])
        && !imported.places.contains_key("mbs")
    {
        (imported.plan.micro_batch, imported.derives_micro_batch) = (micro, false);
        imported.places.insert("mbs".into(), place);
        imported.findings.retain(|finding| finding.message != deepspeed::NO_BATCH);
        let steps = number(&["--gradient_accumulation_steps"]).map(|(steps, _)| steps).or(accumulation).unwrap_or(1);
        imported.accumulation = steps;
        if imported.work.global_batch.is_none() && imported.world.is_some() {
            let dp = imported.plan.layout.dp;
            imported.work.global_batch = Some(micro.saturating_mul(steps).saturating_mul(dp));
        }
    }
    if let Some((tokens, place)) = number(SEQUENCE)
        && imported.work.seq_len.is_none()
    {
        imported.work.seq_len = Some(tokens);
        imported.places.insert("seq".into(), place);
    }
    optimizer(imported, launch, file);
    let checkpointing = launch.argument(&["--gradient_checkpointing", "--gradient-checkpointing"]);
    let named = |word: &str| launch.arguments.iter().any(|argument| argument.plain() == word);
    let given = checkpointing.is_some() || named("--gradient_checkpointing") || named("--gradient-checkpointing");
    let off =
        checkpointing.is_some_and(|word| matches!(word.plain().to_ascii_lowercase().as_str(), "false" | "0" | "no"));
    if given && !off && imported.plan.recompute == Recompute::None {
        imported.plan.recompute = Recompute::Full;
    }
    if imported.model.is_none() {
        named_model(imported, launch, file);
    }
    chunked_loss(imported, launch, file);
}

/// The model of a name of the hub.
fn named_model(imported: &mut Imported, launch: &Launch, file: &str) {
    let Some(name) = launch.argument(MODEL).filter(|name| name.missing().is_empty()) else { return };
    let Some(model) = known::of_hub(&name.plain()) else {
        imported.names_other_model = true;
        return;
    };
    let place = Place { file: file.to_owned(), line: name.line().unwrap_or(launch.line) };
    let message = format!("`{}` is read as {}", name.plain(), model.name);
    imported.findings.push(Finding::note("assumed", message).at(&place).expected("another: --model"));
    imported.model = Some(model);
}
