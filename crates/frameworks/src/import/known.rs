//! Models of the catalogue that an imported architecture is.

use std::sync::LazyLock;

use meshwright_engine::model::{Ffn, Layer, Model};
use meshwright_planner::catalog::{self, Overrides};

static KNOWN: LazyLock<Vec<(&'static str, Model)>> = LazyLock::new(|| {
    let names = catalog::files::MODELS.iter().map(|(name, _)| *name);
    names.filter_map(|name| Some((name, catalog::model(name, &Overrides::default()).ok()?))).collect()
});

/// Balancing biases of a router are a parameter to some and a buffer to others: a number per expert, either way.
fn without_router_bias(mut layer: Layer) -> Layer {
    if let Ffn::Moe(moe) = &mut layer.ffn {
        moe.router_bias = false;
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
    } = a;
    let kind = |kinds: &[Layer], at: usize| kinds.get(at).cloned().map(without_router_bias);
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

/// The model of the catalogue that differs at most in its vocabulary: its name and vocabulary.
pub(crate) fn vocabulary_of(model: &Model) -> Option<(&'static str, u32)> {
    KNOWN.iter().find_map(|(name, known)| {
        let same = Model { vocab: known.vocab, ..model.clone() };
        identical(&same, known).then_some((*name, known.vocab))
    })
}

/// A model of the catalogue.
pub(crate) fn catalogued(name: &str) -> Option<Model> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, model)| model.clone())
}

/// The model that a name of the Hugging Face hub holds: `meta-llama/Meta-Llama-3-8B` is `llama3-8b`.
pub(crate) fn of_hub(name: &str) -> Option<Model> {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let name = plain(name.trim_end_matches('/').rsplit('/').next()?).replace("llama31", "llama3");
    let of = KNOWN.iter().filter(|(known, _)| name.contains(&plain(known)));
    of.max_by_key(|(known, _)| known.len()).map(|(_, model)| model.clone())
}

/// The model that a recipe's name begins with: `llama3_70b_pretrain_config` is `llama3-70b`.
pub(crate) fn of_recipe(recipe: &str) -> Option<Model> {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let recipe = plain(recipe).replace("llama31", "llama3");
    let of = KNOWN.iter().filter(|(name, _)| recipe.starts_with(&plain(name)));
    of.max_by_key(|(name, _)| name.len()).map(|(_, model)| model.clone())
}
