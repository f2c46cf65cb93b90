//! What training programs that follow Hugging Face's `Trainer` take on their command line.
//!
//! Source: [transformers] `training_args.py`: `per_device_train_batch_size`, `gradient_accumulation_steps`,
//! `gradient_checkpointing`; the names of model and sequence are those of its examples.

use super::finding::{Finding, Place};
use super::launch::Launch;
use super::{Imported, known};
use crate::plan::Recompute;

const SEQUENCE: &[&str] = &[
    "--max_seq_length",
    "--max_seq_len",
    "--model_max_length",
    "--block_size",
    "--seq_length",
    "--cutoff_len",
    "--max_length",
];
const MODEL: &[&str] = &["--model_name_or_path", "--model_name", "--pretrained_model_name_or_path"];

/// Adds what the program's arguments say and its configuration does not; `accumulation` is what the environment says.
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
        imported.plan.micro_batch = micro;
        imported.places.insert("mbs".into(), place);
        let steps = number(&["--gradient_accumulation_steps"]).map(|(steps, _)| steps).or(accumulation).unwrap_or(1);
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
    let checkpointing = launch.argument(&["--gradient_checkpointing", "--gradient-checkpointing"]);
    let named = |word: &str| launch.arguments.iter().any(|argument| argument.plain() == word);
    let given = checkpointing.is_some() || named("--gradient_checkpointing") || named("--gradient-checkpointing");
    let off =
        checkpointing.is_some_and(|word| matches!(word.plain().to_ascii_lowercase().as_str(), "false" | "0" | "no"));
    if given && !off && imported.plan.recompute == Recompute::None {
        imported.plan.recompute = Recompute::Full;
    }
    if imported.model.is_none()
        && let Some(name) = launch.argument(MODEL)
        && let Some(model) = known::of_hub(&name.plain())
    {
        let place = Place { file: file.to_owned(), line: name.line().unwrap_or(launch.line) };
        let message = format!("`{}` is read as {}", name.plain(), model.name);
        imported.findings.push(Finding::note("assumed", message).at(&place).expected("another: --model"));
        imported.model = Some(model);
    }
}
