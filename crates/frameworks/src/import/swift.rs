//! ms-swift: `megatron sft` takes Megatron's arguments with underscores, `swift sft` those of Hugging Face's `Trainer`.
//!
//! Source: [ms-swift] `docs/source_en/Megatron-SWIFT/Command-line-parameters.md`: names, and what is on where nothing is said.

use super::context::{Context, Launched};
use super::finding::{Finding, Place};
use super::imported::Imported;
use super::known;
use super::launch::Launch;
use crate::megatron::flags::{Arity, flags};
use crate::megatron::import as megatron;
use crate::megatron::import::arguments::Arguments;
use crate::readers::shell::Ran;
use crate::readers::shell::text::{Text, readable};

/// Arguments that are on by default.
const USUAL: &[(&str, &str)] = &[
    ("--bf16", ""),
    ("--use-distributed-optimizer", ""),
    ("--cross-entropy-loss-fusion", ""),
    ("--attention-backend", "flash"),
    ("--moe-token-dispatcher-type", "alltoall"),
    ("--expert-tensor-parallel-size", "1"),
    ("--global-batch-size", "16"),
    ("--recompute-granularity", "selective"),
];

/// GPUs in all and of a node, as its environment says.
pub(crate) fn world(ran: &Ran) -> (Option<u32>, Option<u32>) {
    let number = |name: &str| ran.variables.get(name).and_then(|text| text.plain().parse::<u32>().ok());
    let visible = ran.variables.get("CUDA_VISIBLE_DEVICES").filter(|text| text.missing().is_empty());
    let visible = visible.map(|text| text.plain().split(',').count() as u32);
    let each = number("NPROC_PER_NODE").or(visible.filter(|n| *n == 1));
    (each.and_then(|each| each.checked_mul(number("NNODES").unwrap_or(1))), each)
}

/// Settles `megatron sft` and its relatives.
pub(crate) fn settle(launch: &Launch, launched: &Launched, context: &Context) -> Imported {
    let mut list = Arguments::empty(true);
    let mut words = launch.arguments.as_slice();
    let place = |word: &Text| Place { file: context.file.to_owned(), line: word.line().unwrap_or(launch.line).max(1) };
    let mut launched = Launched { open: true, ..launched.clone() };
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
            ("model", _) => launched.model = model(&value, &place(word), &mut list),
            ("train_type" | "tuner_type", _) if value != "full" => {
                list.findings.push(Finding::of_adapters(&format!("`{text} {value}`"), &place(word)));
            }
            (_, Some(Arity::Switch | Arity::Exactly(0))) => match value.as_str() {
                "false" | "False" => {
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
    let at = Place { file: context.file.to_owned(), line: launch.line };
    for (flag, value) in USUAL {
        if list.place(flag).is_none() && !list.denies(flag) {
            let values = if value.is_empty() { Vec::new() } else { vec![Text::on(value, launch.line)] };
            list.add(flag, values, at.clone());
        }
    }
    let effect = std::mem::take(&mut list.without_effect);
    let mut imported = megatron::settle(list, &launched);
    imported.without_effect.extend(effect);
    imported
}

fn model(name: &str, place: &Place, list: &mut Arguments) -> Option<meshwright_engine::model::Model> {
    let model = known::of_hub(name);
    let finding = match &model {
        Some(model) => Finding::note("assumed", format!("`{name}` is read as {}", model.name)),
        None => Finding::warning("unknown-model", format!("`{name}` is no model of the catalogue")),
    };
    list.findings.push(finding.at(place).expected("another: --model"));
    model
}
