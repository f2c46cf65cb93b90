//! Megatron-LM: an argument list, alone or in a launch script.

pub mod arguments;
mod hybrid;
mod model;
mod parser;
mod plan;
mod rules;
mod split;
mod work;

pub use plan::BF16_SHARDS;

use super::sparse;
use crate::import::context::{Context, ImportError, Launched};
use crate::import::finding::{Finding, Severity};
use crate::import::imported::{Imported, Unknown, divides};
use crate::readers::shell;
use meshwright_engine::stack::Family;
use meshwright_planner::catalog::{self, Overrides};

pub use arguments::Arguments;

/// Flags that change the step and that no formula here knows.
const NOT_MODELLED: &[&str] = &[
    "--fine-grained-activation-offloading",
    "--offload-modules",
    "--moe-shared-expert-overlap",
    "--delay-wgrad-compute",
    "--tp-comm-overlap-cfg",
    "--defer-embedding-wgrad-compute",
    "--overlap-param-gather-with-optimizer-step",
    "--nccl-ub",
    "--use-sharp",
    "--moe-permute-fusion",
    "--moe-router-fusion",
    "--first-last-layers-bf16",
    "--distribute-saved-activations",
    "--outer-dp-sharding-strategy",
    "--tensor-parallel-num-weight-shards",
    "--hybrid-context-parallel",
];

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "megatron";

/// Reads an argument list without a launcher: comments and line ends mean nothing.
///
/// # Errors
/// A list without arguments, or with a quote or bracket that is not closed.
pub(crate) fn read(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let bad =
        |line, why: &str| ImportError { file: context.file.into(), line, why: why.into(), expected: String::new() };
    let words = shell::words(text, context).map_err(|error| bad(error.line, &error.why))?;
    if words.is_empty() {
        return Err(bad(1, "no argument in it"));
    }
    let launched = Launched { release: context.release, ..Launched::default() };
    Ok(imported_from(Arguments::read(&words, context.file), &launched))
}

/// Model, workload and plan of an argument list.
pub(crate) fn imported_from(mut list: Arguments, launched: &Launched) -> Imported {
    let deepspeed = list.is_deepspeed();
    let usual = if deepspeed { "megatron-deepspeed-2022" } else { "nemo-25" };
    let usual = launched.stack.unwrap_or(usual);
    let is_newer = sparse::is_set(&list) || list.size("--moe-latent-size").is_some();
    let name = if is_newer { catalog::defaults::NEXT_NEMO } else { usual };
    let mut imported = Imported::new(KIND, if deepspeed { Family::MegatronDeepspeed } else { Family::Megatron }, name);
    let Ok(stack) = catalog::stack(name, &Overrides::default()) else { return imported };
    let world = launched.world;
    imported.model = launched.model.clone().or_else(|| model::model(&mut list));
    if launched.open {
        for finding in list.findings.iter_mut().filter(|finding| finding.rule == "missing-flag") {
            finding.level = Severity::Warning;
        }
    }
    imported.plan = plan::plan(&mut list, imported.model.as_ref(), world, &stack);
    let fork = launched.open || !list.unknown.iter().all(Unknown::is_slip);
    imported.exchange = if fork { None } else { plan::exchange(&list) };
    imported.attention = work::named_kernel(&list);
    imported.shard_groups = list.number("--num-distributed-optimizer-instances");
    imported.work = work::work(&mut list, &imported.plan, world);
    if !deepspeed {
        imported.settings = work::settings(&mut list, &stack, &imported.plan);
    }
    if deepspeed {
        // Forks of Megatron-DeepSpeed take words that Megatron-LM does not.
        for finding in list.findings.iter_mut().filter(|finding| finding.rule == "unknown-value") {
            finding.level = Severity::Note;
        }
    } else if launched.open || !list.unknown.is_empty() {
        for finding in list.findings.iter_mut().filter(|finding| finding.rule == "unknown-value") {
            finding.level = Severity::Warning;
            finding.expected.push_str("; a fork, as other flags tell, may take more");
        }
    }
    rules::contradictions(&mut list, &imported.plan, deepspeed);
    if launched.open || !list.unknown.is_empty() {
        // What is missing may be set by the fork's code, or by the file that this one builds on.
        list.excuse_lacking();
    }
    let plain = !deepspeed && !launched.open && list.by_parser && list.unknown.iter().all(Unknown::is_slip);
    if plain {
        parser::judge(&mut list, launched.release);
    }
    let own = plain && launched.in_script && list.unknown.is_empty();
    if own && list.findings.iter().all(|finding| finding.rule != "unresolved-variable") {
        rules::needed(&mut list);
        rules::unread_masks(&mut list);
    }
    rules::connections(&mut list, &imported.plan, launched.connections.as_deref(), launched.in_script, deepspeed);
    imported.world = world;
    let place = list.place("--tensor-model-parallel-size");
    divides(&mut list.findings, world, &imported.plan, place.as_ref());
    imported.gpus_per_node = launched.gpus_per_node;
    for flag in NOT_MODELLED {
        list.mark_used(flag);
        if let Some(place) = list.place(flag) {
            let finding = Finding::note("not-modelled", format!("`{flag}` changes the step and is not modelled"));
            list.findings.push(finding.at(&place));
        }
    }
    let engine = list.peek("--transformer-impl").filter(|name| name == "transformer_engine");
    let engine = engine.and_then(|_| list.place("--transformer-impl"));
    imported.places = DEGREES.iter().filter_map(|(key, flag)| Some(((*key).to_owned(), list.place(flag)?))).collect();
    imported.places.extend(engine.map(|place| ("transformer-engine".to_owned(), place)));
    imported.without_effect = list.unused();
    imported.unknown = list.unknown;
    imported.findings = list.findings;
    imported
}

/// The flags behind the keys of a plan, for places.
const DEGREES: &[(&str, &str)] = &[
    ("tp", "--tensor-model-parallel-size"),
    ("pp", "--pipeline-model-parallel-size"),
    ("cp", "--context-parallel-size"),
    ("ep", "--expert-model-parallel-size"),
    ("etp", "--expert-tensor-parallel-size"),
    ("vpp", "--num-virtual-stages-per-pipeline-rank"),
    ("vpp", "--num-layers-per-virtual-pipeline-stage"),
    ("vpp", "--pipeline-model-parallel-layout"),
    ("split", "--decoder-last-pipeline-num-layers"),
    ("split", "--decoder-first-pipeline-num-layers"),
    ("split", "--pipeline-model-parallel-layout"),
    ("sp", "--sequence-parallel"),
    ("mbs", "--micro-batch-size"),
    ("batch", "--global-batch-size"),
    ("seq", "--seq-length"),
    ("heads", "--num-attention-heads"),
    ("kv", "--num-query-groups"),
    ("ffn", "--ffn-hidden-size"),
    ("experts", "--num-experts"),
    ("layers", "--num-layers"),
    ("recompute", "--recompute-granularity"),
    ("recompute", "--recompute-activations"),
    ("zero", "--use-distributed-optimizer"),
    ("dispatcher", "--moe-token-dispatcher-type"),
    ("backend", "--moe-flex-dispatcher-backend"),
    ("format", "--fp8-format"),
    ("format", "--fp4-format"),
    ("format", "--fp8-recipe"),
    ("half", "--bf16"),
    ("cp-kind", "--cp-comm-type"),
    ("zero-stage", "--zero-stage"),
    ("order", "--use-tp-pp-dp-mapping"),
];
