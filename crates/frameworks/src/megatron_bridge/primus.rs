//! Primus: modules that override a trainer's and a model's file.
//!
//! Source: [primus] `primus/configs/modules/megatron/{trainer_base,pre_trainer,sft_trainer}.yaml`,
//! `primus/configs/models/megatron/language_model.yaml`, main of 2026-08.

use super::values::{OrPlace, defaulted};
use crate::import::finding::Finding;
use crate::import::known;
use crate::import::launch::{Launch, LaunchedGpus};
use crate::readers::document::Document;
use crate::readers::shell::Ran;

/// Name of this kind of file on the command line.
pub(crate) const KIND: &str = "primus";
/// Stack of its runs: Primus is made for AMD's GPUs.
pub(crate) const STACK: &str = "megatron-rocm-2025";

/// Settings of its trainers and models that bear on time and memory, where Megatron-LM's own default is another.
const USUAL: &[(&str, &str)] = &[
    ("bf16", "true"),
    ("use_distributed_optimizer", "true"),
    ("sequence_parallel", "true"),
    ("swiglu", "true"),
    ("add_bias_linear", "false"),
    ("untie_embeddings_and_output_weights", "true"),
];

/// Adds the settings of the files that a module extends, where the module has none.
pub(super) fn complete(document: &mut Document) {
    for module in document.keys("modules") {
        let overrides = format!("modules.{module}.overrides");
        let bf16 = document.peek(&format!("{overrides}.fp16")) != Some("true");
        let usual = USUAL.iter().filter(|(key, _)| *key != "bf16" || bf16);
        let missing: Vec<_> = usual.filter(|(key, _)| !document.has(&format!("{overrides}.{key}"))).collect();
        let line = document.place(&overrides).map_or(1, |place| place.line);
        for (key, value) in missing {
            document.put(&format!("{overrides}.{key}"), value, line);
        }
    }
}

/// Finding that names the file that a module of Primus extends, whose settings are not known.
pub(super) fn note_base(document: &Document) {
    for module in document.keys("modules") {
        let path = format!("modules.{module}.config");
        if let Some(base) = document.word(&path) {
            let message = format!("`{base}` is not read: what it alone sets is taken as not set");
            let place = document.place(&path).unwrap_or_default_place();
            let finding = Finding::warning("not-read", message).at(&place);
            document.note(finding.expected("repeat under `overrides` what bears on time and memory"));
        }
    }
}

/// The catalogue's model that a module of Primus names, such as `llama3_8B.yaml` or `${MODEL:llama3_8B}.yaml`.
pub(super) fn of_module(document: &Document) -> Option<meshwright_engine::model::Model> {
    document.keys("modules").iter().find_map(|module| {
        let path = format!("modules.{module}.model");
        let name = document.word(&path)?;
        let model = known::of_recipe(defaulted(name.trim_end_matches(".yaml")))?;
        let place = document.place(&path).unwrap_or_default_place();
        let finding = Finding::note("assumed", format!("`{name}` is read as {}", model.name)).at(&place);
        document.note(finding.expected("another: --model"));
        Some(model)
    })
}

/// GPUs of a launch, as the environment of `primus-cli` says; it starts eight of one node where that sets none.
///
/// Source: [primus] `runner/primus-cli-direct.sh`, commit fd1eeabb.
pub(crate) fn gpus(launch: &Launch, ran: &Ran) -> LaunchedGpus {
    let number = |name: &str, usual: u32| {
        let own = launch.own.iter().rfind(|(own, _)| own == name).map(|(_, value)| value);
        let Some(text) = own.or_else(|| ran.variables.get(name)) else { return Some(usual) };
        Some(text.plain()).filter(|_| text.missing().is_empty()).and_then(|text| text.trim().parse().ok())
    };
    let each = number("GPUS_PER_NODE", 8);
    let all = each.zip(number("NNODES", 1)).and_then(|(each, nodes)| each.checked_mul(nodes));
    LaunchedGpus { all, per_node: each }
}
