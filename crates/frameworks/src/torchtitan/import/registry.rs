//! torchtitan's configurations in Python, and those of its own registries by name.

use super::flavors;
use crate::import::context::{Context, ImportError};
use crate::readers::document::CALLED;
use crate::readers::document::Document;
use crate::readers::python;

/// Configuration of a registry.
struct Registered {
    name: &'static str,
    model: &'static str,
    flavor: &'static str,
    /// Sequences of a rank in one micro-batch.
    local_batch: u32,
    /// Tokens of a sequence.
    seq_len: u32,
    /// `activation_checkpoint.mode`.
    recompute: &'static str,
    /// Further settings, by their path.
    others: &'static [(&'static str, &'static str)],
}

/// The configuration that the others are given as changes of.
const LLAMA3_8B: Registered = Registered {
    name: "llama3_8b",
    model: "llama3",
    flavor: "8B",
    local_batch: 1,
    seq_len: 8192,
    recompute: "selective",
    others: &[],
};

/// Configurations of the registries of torchtitan. Source: [torchtitan] `torchtitan/models/*/config_registry.py`, release 0.3.0.
const REGISTRY: &[Registered] = &[
    LLAMA3_8B,
    Registered {
        name: "llama3_8b_mxfp8",
        others: &[("compile.enable", "true"), ("model.converters", "mxfp8")],
        ..LLAMA3_8B
    },
    Registered {
        name: "llama3_70b",
        flavor: "70B",
        local_batch: 8,
        recompute: "full",
        others: &[("parallelism.tensor_parallel_degree", "8")],
        ..LLAMA3_8B
    },
    Registered {
        name: "llama3_405b",
        flavor: "405B",
        local_batch: 2,
        recompute: "full",
        others: &[
            ("parallelism.tensor_parallel_degree", "8"),
            ("compile.enable", "true"),
            ("compile.enable_async_tensor_parallel", "true"),
            ("model.converters", "float8"),
        ],
        ..LLAMA3_8B
    },
    Registered {
        name: "qwen3_30b_a3b",
        model: "qwen3",
        flavor: "30B-A3B",
        local_batch: 2,
        seq_len: 4096,
        recompute: "full",
        ..LLAMA3_8B
    },
    Registered {
        name: "qwen3_32b",
        model: "qwen3",
        flavor: "32B",
        local_batch: 2,
        seq_len: 4096,
        recompute: "full",
        ..LLAMA3_8B
    },
    Registered {
        name: "deepseek_v3_671b",
        model: "deepseek_v3",
        flavor: "671B",
        local_batch: 4,
        seq_len: 4096,
        others: &[
            ("parallelism.pipeline_parallel_schedule", "Interleaved1F1B"),
            ("parallelism.expert_parallel_degree", "2"),
            ("compile.enable", "true"),
            ("compile.components", "loss"),
        ],
        ..LLAMA3_8B
    },
    Registered { name: "gpt_oss_20b", model: "gpt_oss", flavor: "20b", recompute: "full", ..LLAMA3_8B },
    Registered { name: "gpt_oss_120b", model: "gpt_oss", flavor: "120b", recompute: "full", ..LLAMA3_8B },
];

/// Applies the settings of a configuration of its registries; whether there is one of that name.
pub(crate) fn fill_from_registry(document: &mut Document, config: &str, line: u32) -> bool {
    let Some(known) = REGISTRY.iter().find(|known| known.name == config) else { return false };
    let Registered { name: _, model, flavor, local_batch, seq_len, recompute, others } = known;
    let mut put = |path: &str, value: &str| document.put(path, value, line);
    put("model.name", model);
    put("model.flavor", flavor);
    put("training.local_batch_size", &local_batch.to_string());
    put("training.seq_len", &seq_len.to_string());
    put("activation_checkpoint.mode", recompute);
    put("activation_checkpoint.selective_ac_option", "op");
    for (path, value) in *others {
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

/// Converters of a configuration in Python: the path of each, and its class in lower case. They stand in the call of
/// the registry; or, where the registry was run, around the model that they convert.
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

/// Token dispatcher of a model that the file spells out: `comm_backend="deepep"`. That of a call of the registry, `moe_comm_backend`, is
/// in the document.
fn backend(text: &str) -> Option<(&str, u32)> {
    let lines = text.lines().zip(1_u32..);
    let lines = lines.filter(|(line, _)| !line.trim_start().starts_with('#') && !line.contains("moe_comm_backend"));
    let found = lines.filter_map(|(line, at)| Some((line.split_once("comm_backend=\"")?.1.split('"').next()?, at)));
    found.last()
}
