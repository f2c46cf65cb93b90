//! Models of the catalogue that an imported architecture is.

use std::sync::LazyLock;

use meshwright_engine::model::{Ffn, Layer, Model};
use meshwright_planner::catalog::{self, Overrides};

static KNOWN: LazyLock<Vec<(&'static str, Model)>> = LazyLock::new(|| {
    let names = catalog::files::MODELS.iter().map(|(name, _)| *name);
    names.filter_map(|name| Some((name, catalog::model(name, &Overrides::default()).ok()?))).collect()
});

/// A layer without what not every source says of its router: balancing biases are a parameter to some and a buffer to
/// others, a number per expert either way, and scores are said by some alone.
fn without_router(mut layer: Layer) -> Layer {
    if let Ffn::Moe(moe) = &mut layer.ffn {
        moe.router_bias = false;
        moe.router_score = None;
    }
    layer
}

/// Whether two models are identical in training; names, sources and the usual sequence may differ.
fn identical(a: &Model, b: &Model) -> bool {
    let Model {
        name: _,
        source: _,
        hidden,
        vocab,
        seq_len: _,
        tied_embeddings,
        learned_positions,
        embedding_norm,
        head_bias,
        norm,
        dropout: _,
        kinds,
        order,
        mtp_depth,
        details: _,
    } = a;
    let kind = |kinds: &[Layer], at: usize| kinds.get(at).cloned().map(without_router);
    let (mine, theirs): (Vec<_>, Vec<_>) = (
        (0..kinds.len()).map(|at| kind(kinds, at)).collect(),
        (0..b.kinds.len()).map(|at| kind(&b.kinds, at)).collect(),
    );
    let same_layers =
        order.len() == b.order.len() && order.iter().zip(&b.order).all(|(a, b)| mine.get(*a) == theirs.get(*b));
    *hidden == b.hidden
        && *vocab == b.vocab
        && *tied_embeddings == b.tied_embeddings
        && *learned_positions == b.learned_positions
        && *embedding_norm == b.embedding_norm
        && *head_bias == b.head_bias
        && *norm == b.norm
        && *mtp_depth == b.mtp_depth
        && same_layers
}

/// The catalogue's name of an architecture.
pub fn name_of(model: &Model) -> Option<&'static str> {
    KNOWN.iter().find(|(_, known)| identical(model, known) && model.dropout == known.dropout).map(|(name, _)| *name)
}

/// The model under the catalogue's display name, where it has one.
#[must_use]
pub fn named(mut model: Model) -> Model {
    if let Some((_, known)) = KNOWN.iter().find(|(_, known)| identical(&model, known)) {
        model.name.clone_from(&known.name);
    }
    model
}

/// Models of the catalogue that differ at most in their vocabulary, each with it, the smallest vocabulary first: Llama 2 70B and
/// Llama 3 70B share their layers.
pub(crate) fn vocabularies_of(model: &Model) -> Vec<(&'static str, u32)> {
    let same = |(name, known): &(&'static str, Model)| {
        let same = Model { vocab: known.vocab, ..model.clone() };
        identical(&same, known).then_some((*name, known.vocab))
    };
    let mut found: Vec<_> = KNOWN.iter().filter_map(same).collect();
    found.sort_by_key(|(_, vocab)| *vocab);
    found
}

/// A model of the catalogue.
pub(crate) fn catalogued(name: &str) -> Option<Model> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, model)| model.clone())
}

/// Words behind a model's name that leave its architecture as it is, in names of the hub.
const VARIANTS: &[&str] = &[
    "instruct", "chat", "base", "it", "hf", "thinking", "bf16", "fp8", "pt", "v0.1", "v0.2", "v0.3", "preview", "fft",
];

/// Words with which the rest of a recipe's name begins: the task, the precision, the hardware.
const TASKS: &[&str] = &[
    "pretrain",
    "pretraining",
    "sft",
    "peft",
    "lora",
    "finetune",
    "config",
    "recipe",
    "perf",
    "train",
    "bf16",
    "fp8",
    "fp16",
    "mxfp8",
    "nvfp4",
    "low",
    "deterministic",
    "base",
    "instruct",
    "chat",
    "h100",
    "h200",
    "b200",
    "b300",
    "gb200",
    "gb300",
    "a100",
    "mi300x",
    "mi325x",
    "mi355x",
    "posttrain",
    "mock",
    "nightly",
    "full",
    "debug",
    "performance",
    "v0.1",
];

/// Letters and digits of a text, in lower case; releases of Llama 3 share their architectures.
fn plain(text: &str) -> String {
    let text: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    text.replace("llama31", "llama3").replace("llama33", "llama3")
}

/// The model of the catalogue of just that name, spelt with other signs or none.
fn of_words(words: &[&str]) -> Option<Model> {
    let name = plain(&words.concat());
    KNOWN.iter().find(|(known, _)| plain(known) == name).map(|(_, model)| model.clone())
}

/// The model that a name of the Hugging Face hub holds: `meta-llama/Meta-Llama-3-8B` is `llama3-8b`. The whole name counts, so
/// that `DeepSeek-V2-Lite` is no `deepseek-v2`.
pub(crate) fn of_hub(name: &str) -> Option<Model> {
    let name = name.trim_end_matches('/').rsplit('/').next()?.to_lowercase();
    let date = |word: &str| word.len() == 4 && word.chars().all(|c| c.is_ascii_digit());
    let mut words: Vec<&str> = name.split(['-', '_']).filter(|word| *word != "meta").collect();
    while words.last().is_some_and(|word| VARIANTS.contains(word) || date(word)) {
        words.pop();
    }
    of_words(&words)
}

/// The model that a recipe's name begins with: `llama3_70b_pretrain_config` is `llama3-70b`; `deepseek_v2_lite_pretrain` is no
/// `deepseek-v2`.
pub(crate) fn of_recipe(recipe: &str) -> Option<Model> {
    let recipe = recipe.to_lowercase();
    let words: Vec<&str> = recipe.split(['-', '_']).filter(|word| *word != "meta").collect();
    let task = |word: &&str| TASKS.contains(word) || word.ends_with("gpu") || word.ends_with('k');
    (1..=words.len()).rev().filter(|end| words.get(*end).is_none_or(task)).find_map(|end| of_words(&words[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole() {
        let hub = |name: &str| of_hub(name).and_then(|model| name_of(&model));
        for (name, model) in [
            ("meta-llama/Meta-Llama-3-8B", Some("llama3-8b")),
            ("meta-llama/Llama-3.1-70B-Instruct", Some("llama3-70b")),
            ("deepseek-ai/DeepSeek-V2", Some("deepseek-v2")),
            ("deepseek-ai/DeepSeek-V2-Lite", None),
            ("deepseek-ai/DeepSeek-V3-0324", Some("deepseek-v3")),
            ("zai-org/GLM-4.5-Air", None),
            ("zai-org/GLM-4.5", Some("glm-4.5")),
            ("Qwen/Qwen3-8B-Base", Some("qwen3-8b")),
            ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", None),
            ("Qwen/Qwen2.5-7B", Some("qwen2.5-7b")),
        ] {
            assert_eq!(hub(name), model, "{name}");
        }
        let recipe = |name: &str| of_recipe(name).and_then(|model| name_of(&model));
        for (name, model) in [
            ("llama3_70b_pretrain_config", Some("llama3-70b")),
            ("llama31_405b_pretrain_256gpu_h100_bf16_config", Some("llama3-405b")),
            ("deepseek_v2_lite_pretrain_config", None),
            ("qwen3_30b_a3b_sft", Some("qwen3-30b-a3b")),
            ("llama3_8B", Some("llama3-8b")),
            ("llama3_8b_128k_pretrain_config", Some("llama3-8b")),
            ("llama32_1b_pretrain_config", None),
        ] {
            assert_eq!(recipe(name), model, "{name}");
        }
    }
}
