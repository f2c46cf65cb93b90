//! Models, devices, stacks and markets of the catalogue, or the user's own files.

use std::fmt::Display;
use std::path::Path;

use super::error::{CatalogError, EntryKind};
use super::overrides::Overrides;
use super::read::fitted;
use super::{files, hf, like, read};
use crate::limits::check_release;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::model::{Model, ModelFile};
use meshwright_engine::money::Market;
use meshwright_engine::stack::Stack;
use meshwright_engine::suggest::nearest;
use meshwright_engine::transport::Transport;

/// Names of the built-in models, sorted.
pub fn model_names() -> Vec<&'static str> {
    names(files::MODELS)
}

/// A model: a name of the catalogue, a TOML file, or a Hugging Face `config.json` (or the folder that holds one); with
/// the user's settings of `model.…` applied where it is TOML.
///
/// # Errors
/// There is no entry of this name, or its file is invalid.
pub fn model(name: &str, sets: &Overrides) -> Result<Model, CatalogError> {
    let path = Path::new(name);
    let config = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    if config.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        let text = sets.text(name).map_or_else(|| read::read(&config), |given| Ok(given.to_owned()))?;
        let origin = config.display().to_string();
        if let Some(setting) = sets.of_kind(EntryKind::Model).next() {
            return Err(setting.error("a config.json takes no settings; write them into the file", None));
        }
        return Ok(hf::from_config(&text, &origin)?);
    }
    if let Some(folder) = hub_model(name).filter(|_| sets.text(name).is_none() && !path.exists()) {
        let nearest = nearest(folder, model_names());
        return Err(CatalogError::HubModel { id: name.to_owned(), folder: folder.to_owned(), nearest });
    }
    let text = read::find(EntryKind::Model, files::MODELS, name, None, sets.text(name))?;
    let file: ModelFile = read::parse(&text, sets.of_kind(EntryKind::Model))?;
    file.into_model().map_err(|why| invalid(text, EntryKind::Model, sets, &why))
}

/// The model's own name in one of the Hugging Face Hub, `owner/model`; nothing where it has the form of another path.
fn hub_model(name: &str) -> Option<&str> {
    let (owner, model) = name.split_once('/')?;
    let named = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c))
    };
    let toml = Path::new(model).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    (named(owner) && named(model) && !toml).then_some(model)
}

/// Error of an entry whose values contradict a rule, with the `--set` items that may be the cause.
fn invalid(text: read::EntryText, kind: EntryKind, sets: &Overrides, why: &dyn Display) -> CatalogError {
    let items: Vec<&str> = sets.of_kind(kind).map(|setting| setting.item.as_str()).collect();
    let origin =
        if items.is_empty() { text.origin } else { format!("{} with --set {}", text.origin, items.join(" --set ")) };
    CatalogError::Invalid { origin, why: why.to_string() }
}

/// Names of the built-in devices, sorted.
pub fn gpu_names() -> Vec<&'static str> {
    names(files::GPUS)
}

/// Names of the built-in clusters, sorted.
pub fn cluster_names() -> Vec<&'static str> {
    names(files::CLUSTERS)
}

/// Names of the built-in stacks, sorted.
pub fn stack_names() -> Vec<&'static str> {
    names(files::STACKS)
}

/// A market, with the user's settings of `market.…`.
///
/// # Errors
/// There is no entry of this name, its file is invalid, or a `--set` does not fit.
pub fn market(name: &str, sets: &Overrides) -> Result<Market, CatalogError> {
    let text = read::find(EntryKind::Market, files::PRICES, name, None, sets.text(name))?;
    let text = like::joined(text, EntryKind::Market, files::PRICES, sets)?;
    let market: Market = read::parse(&text, sets.of_kind(EntryKind::Market))?;
    match market.check() {
        Ok(()) => Ok(market),
        Err(why) => Err(invalid(text, EntryKind::Market, sets, &why)),
    }
}

/// Names of the built-in fits, sorted.
pub fn fit_names() -> Vec<&'static str> {
    names(files::FITS)
}

pub(super) fn names(list: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    list.iter().map(|(name, _)| *name).collect()
}

/// A device, with the default fit.
///
/// # Errors
/// There is no entry of this name, or its file is invalid.
pub fn gpu(name: &str) -> Result<Gpu, CatalogError> {
    gpu_at(name, None, &Overrides::default())
}

/// A device, with the user's settings of `gpu.…`.
///
/// # Errors
/// As for [`gpu`], or a `--set` does not fit.
pub fn gpu_with(name: &str, sets: &Overrides) -> Result<Gpu, CatalogError> {
    gpu_at(name, None, sets)
}

pub(super) fn gpu_at(name: &str, folder: Option<&Path>, sets: &Overrides) -> Result<Gpu, CatalogError> {
    let text = read::find(EntryKind::Gpu, files::GPUS, name, folder, sets.text(name))?;
    let text = like::joined(text, EntryKind::Gpu, files::GPUS, sets)?;
    let gpu: Gpu = read::parse_fitted(&text, fitted(&text, EntryKind::Gpu, name, sets), sets.of_kind(EntryKind::Gpu))?;
    match gpu.check() {
        Ok(()) => Ok(gpu),
        Err(why) => Err(invalid(text, EntryKind::Gpu, sets, &why)),
    }
}

/// A software stack, with the user's settings of `stack.…`.
///
/// # Errors
/// There is no entry of this name, its file is invalid, or a `--set` does not fit.
pub fn stack(name: &str, sets: &Overrides) -> Result<Stack, CatalogError> {
    let text = read::find(EntryKind::Stack, files::STACKS, name, None, sets.text(name))?;
    let text = like::joined(text, EntryKind::Stack, files::STACKS, sets)?;
    let stack: Stack =
        read::parse_fitted(&text, fitted(&text, EntryKind::Stack, name, sets), sets.of_kind(EntryKind::Stack))?;
    match stack.check().and_then(|()| check_release(&stack)) {
        Ok(()) => Ok(stack),
        Err(why) => Err(invalid(text, EntryKind::Stack, sets, &why)),
    }
}

/// Transport of a network.
///
/// # Errors
/// There is no entry of this name, or its file is invalid.
pub fn transport(name: &str, sets: &Overrides) -> Result<Transport, CatalogError> {
    let text = read::find(EntryKind::Transport, files::TRANSPORTS, name, None, sets.text(name))?;
    let transport: Transport =
        read::parse_fitted(&text, fitted(&text, EntryKind::Transport, name, sets), sets.of_kind(EntryKind::Transport))?;
    match transport.check() {
        Ok(()) => Ok(transport),
        Err(why) => Err(CatalogError::Invalid { origin: text.origin, why }),
    }
}
