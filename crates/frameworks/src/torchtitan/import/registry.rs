//! torchtitan's configurations in Python, and those of its own registries by name.

use super::flavors;
use crate::import::context::{Context, ImportError};
use crate::readers::document::CALLED;
use crate::readers::document::Document;
use crate::readers::python;

/// Name, model, flavor, sequences of a rank, tokens of a sequence, recomputation, and further settings.
type Registered =
    (&'static str, &'static str, &'static str, u32, u32, &'static str, &'static [(&'static str, &'static str)]);

/// Configurations of its registries: name, model and flavor, sequences of a rank, tokens of a sequence, recomputation, and
/// what else they set. Source: [torchtitan] `torchtitan/models/*/config_registry.py`, release 0.3.0.
const REGISTRY: &[Registered] = &[
    ("llama3_8b", "llama3", "8B", 1, 8192, "selective", &[]),
    (
        "llama3_8b_mxfp8",
        "llama3",
        "8B",
        1,
        8192,
        "selective",
        &[("compile.enable", "true"), ("model.converters", "mxfp8")],
    ),
    ("llama3_70b", "llama3", "70B", 8, 8192, "full", &[("parallelism.tensor_parallel_degree", "8")]),
    (
        "llama3_405b",
        "llama3",
        "405B",
        2,
        8192,
        "full",
        &[
            ("parallelism.tensor_parallel_degree", "8"),
            ("compile.enable", "true"),
            ("compile.enable_async_tensor_parallel", "true"),
            ("model.converters", "float8"),
        ],
    ),
    ("qwen3_30b_a3b", "qwen3", "30B-A3B", 2, 4096, "full", &[]),
    ("qwen3_32b", "qwen3", "32B", 2, 4096, "full", &[]),
    (
        "deepseek_v3_671b",
        "deepseek_v3",
        "671B",
        4,
        4096,
        "selective",
        &[
            ("parallelism.pipeline_parallel_schedule", "Interleaved1F1B"),
            ("parallelism.expert_parallel_degree", "2"),
            ("compile.enable", "true"),
            ("compile.components", "loss"),
        ],
    ),
    ("gpt_oss_20b", "gpt_oss", "20b", 1, 8192, "full", &[]),
    ("gpt_oss_120b", "gpt_oss", "120b", 1, 8192, "full", &[]),
];

/// Sets what a configuration of its registries sets; whether there is one of that name.
pub(crate) fn fill_from_registry(document: &mut Document, config: &str, line: u32) -> bool {
    let Some((_, name, flavor, local, seq_len, mode, more)) = REGISTRY.iter().find(|(known, ..)| *known == config)
    else {
        return false;
    };
    let mut put = |path: &str, value: &str| document.put(path, value, line);
    put("model.name", name);
    put("model.flavor", flavor);
    put("training.local_batch_size", &local.to_string());
    put("training.seq_len", &seq_len.to_string());
    put("activation_checkpoint.mode", mode);
    put("activation_checkpoint.selective_ac_option", "op");
    for (path, value) in *more {
        put(path, value);
    }
    true
}

/// Reads a configuration in Python, as releases from 0.3 have it: the function of that name, in the terms of the command line.
///
/// Source: [torchtitan] `torchtitan/trainer.py` (`Trainer.Config`), `distributed/activation_checkpoint.py`, release 0.3.0.
///
/// # Errors
/// Those of [`python::parse`].
pub(crate) fn of_python(text: &str, wanted: Option<&str>, context: &Context) -> Result<Document, ImportError> {
    let mut document = python::parse(text, wanted, context)?;
    let line = |path: &str| document.place(path).map_or(1, |place| place.line);
    let called = |path: &str| document.word(&format!("{path}.{CALLED}")).unwrap_or_default();
    let mut puts: Vec<(&str, String, u32)> = Vec::new();
    let at = line("activation_checkpoint");
    let kind = called("activation_checkpoint");
    let (mode, option) = if kind.contains("FullAC") {
        ("full", "")
    } else if kind.contains("MemoryBudgetAC") {
        ("memory_budget", "")
    } else if kind.contains("SelectiveAC") || !document.has("activation_checkpoint") {
        ("selective", "op")
    } else {
        ("none", "")
    };
    puts.push(("activation_checkpoint.mode", mode.into(), at));
    if !option.is_empty() {
        puts.push(("activation_checkpoint.selective_ac_option", option.into(), at));
    }
    if let Some(flavor) = document.word("model_spec.flavor").or_else(|| document.word("model_spec.0")) {
        let at = line("model_spec");
        puts.push(("model.flavor", flavor, at));
        let family = |name: &&str| text.contains(&format!("torchtitan.models.{name}")) || context.file.contains(*name);
        let families = flavors::families();
        let name = wanted.and_then(|name| families.clone().find(|family| name.starts_with(*family)));
        let name = name.or_else(|| families.rev().find(family));
        puts.extend(name.map(|name| ("model.name", name.to_owned(), at)));
    }
    let converters = converters(&document);
    if let Some((path, _)) = converters.first() {
        let names: Vec<&str> = converters.iter().map(|(_, name)| name.as_str()).collect();
        puts.push(("model.converters", names.join(" "), line(path)));
    }
    let tokens = document.number("training.num_tokens_per_microbatch_per_dp_rank");
    if let (Some(tokens), Some(each)) = (tokens, document.size("training.max_context_length")) {
        puts.push(("training.local_batch_size", (tokens / each).max(1).to_string(), line("training")));
    }
    if let Some((backend, line)) = backend(text).filter(|_| !document.has("model_spec.moe_comm_backend")) {
        puts.push(("model_spec.moe_comm_backend", backend.to_owned(), line));
    }
    for (path, value, line) in puts {
        document.put(path, &value, line);
    }
    Ok(document)
}

/// Converters of a configuration in Python: the path of each, and its class in lower case. They stand in the call of the registry; or,
/// where the registry was run, around the model that they convert.
pub(super) fn converters(document: &Document) -> Vec<(String, String)> {
    let called = |path: String| {
        let class = document.word(&format!("{path}.{CALLED}")).unwrap_or_default().to_lowercase();
        (path, class)
    };
    let listed = document.count("model_spec.converters").unwrap_or(0);
    let listed = (0..listed).map(|at| called(format!("model_spec.converters.{at}")));
    let around = std::iter::successors(Some("model_spec.model".to_owned()), |path| Some(format!("{path}.0")));
    let around = around.map(called).take_while(|(_, class)| class.contains("converter"));
    listed.chain(around).collect()
}

/// Token dispatcher of a model that the file spells out: `comm_backend="deepep"`.
fn backend(text: &str) -> Option<(&str, u32)> {
    let lines = text.lines().zip(1_u32..).filter(|(line, _)| !line.trim_start().starts_with('#'));
    let found = lines.filter_map(|(line, at)| Some((line.split_once("comm_backend=\"")?.1.split('"').next()?, at)));
    found.last()
}
