//! Finds and reads models, devices, clusters and stacks: the built-in ones, and the user's own files.
//!
//! A name is one of the catalogue, or a path to a TOML file of the same form: anything with a `/` or `\` in it, anything
//! that ends in `.toml`, or the name of a file that exists.

pub mod defaults;
mod error;
pub mod files;
pub mod fits;
pub mod gpu_names;
pub mod hf;
mod like;
mod one_line;
mod overrides;
mod pools;
mod read;
mod shelf;

use std::path::Path;

pub use error::{CatalogError, EntryKind, nearest_expected};
pub use meshwright_engine::suggest::nearest;
pub use overrides::{Overrides, SET_SOURCE, Setting};
pub use shelf::Shelf;

use meshwright_engine::cluster::pools::PooledCluster;
use meshwright_engine::cluster::{Cluster, ClusterFile};
use meshwright_engine::gpu::Gpu;
use meshwright_engine::model::{Model, ModelFile};
use meshwright_engine::money::Market;
use meshwright_engine::sources::Sourced;
use meshwright_engine::stack::Stack;
use meshwright_engine::units::BytesPerSec;

/// Names of the built-in models, sorted.
pub fn model_names() -> Vec<&'static str> {
    names(files::MODELS)
}

/// A model: a name of the catalogue, a TOML file, or a Hugging Face `config.json` (or the folder that holds one); with
/// what the user set of `model.…` where it is TOML.
///
/// # Errors
/// When there is none of this name, or its file does not make one.
pub fn model(name: &str, sets: &Overrides) -> Result<Model, CatalogError> {
    let path = Path::new(name);
    let config = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    if config.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        let text = read::read(&config)?;
        let origin = config.display().to_string();
        if let Some(setting) = sets.of(EntryKind::Model).next() {
            return Err(setting.error("a config.json takes no settings; write them into the file", None));
        }
        return Ok(hf::from_config(&text, &origin)?);
    }
    let text = read::find(EntryKind::Model, files::MODELS, name, None)?;
    let file: ModelFile = read::parse(&text, sets.of(EntryKind::Model))?;
    file.into_model().map_err(|why| CatalogError::Invalid { origin: text.origin, why: why.to_string() })
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

/// A market, with what the user set of `market.…`.
///
/// # Errors
/// When there is none of this name, its file does not make one, or a `--set` does not fit.
pub fn market(name: &str, sets: &Overrides) -> Result<Market, CatalogError> {
    let text = read::find(EntryKind::Market, files::PRICES, name, None)?;
    let text = like::joined(text, EntryKind::Market, files::PRICES, sets)?;
    let market: Market = read::parse(&text, sets.of(EntryKind::Market))?;
    match market.check() {
        Ok(()) => Ok(market),
        Err(why) => Err(CatalogError::Invalid { origin: text.origin, why: why.to_string() }),
    }
}

/// Names of the built-in fits, sorted.
pub fn fit_names() -> Vec<&'static str> {
    names(files::FITS)
}

fn names(list: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    list.iter().map(|(name, _)| *name).collect()
}

/// A device, with the default fit.
///
/// # Errors
/// When there is none of this name, or its file does not make one.
pub fn gpu(name: &str) -> Result<Gpu, CatalogError> {
    gpu_at(name, None, &Overrides::default())
}

/// A device, with what the user set of `gpu.…`.
///
/// # Errors
/// As [`gpu`], and when a `--set` does not fit.
pub fn gpu_with(name: &str, sets: &Overrides) -> Result<Gpu, CatalogError> {
    gpu_at(name, None, sets)
}

fn gpu_at(name: &str, folder: Option<&Path>, sets: &Overrides) -> Result<Gpu, CatalogError> {
    let text = read::find(EntryKind::Gpu, files::GPUS, name, folder)?;
    let text = like::joined(text, EntryKind::Gpu, files::GPUS, sets)?;
    let gpu: Gpu = read::parse_fitted(&text, fitted(&text, EntryKind::Gpu, name, sets), sets.of(EntryKind::Gpu))?;
    match gpu.check() {
        Ok(()) => Ok(gpu),
        Err(why) => Err(CatalogError::Invalid { origin: text.origin, why }),
    }
}

/// Constants of the fit for an entry of the catalogue. The user's own files stay as they are.
fn fitted<'a>(
    text: &read::Text,
    kind: EntryKind,
    name: &'a str,
    sets: &'a Overrides,
) -> impl Iterator<Item = &'a fits::Constant> {
    let fit = if text.is_built_in() { sets.fit() } else { None };
    fit.into_iter().flat_map(move |fit| fit.of(kind, name))
}

/// A software stack, with what the user set of `stack.…`.
///
/// # Errors
/// When there is none of this name, its file does not make one, or a `--set` does not fit.
pub fn stack(name: &str, sets: &Overrides) -> Result<Stack, CatalogError> {
    let text = read::find(EntryKind::Stack, files::STACKS, name, None)?;
    let text = like::joined(text, EntryKind::Stack, files::STACKS, sets)?;
    let stack: Stack =
        read::parse_fitted(&text, fitted(&text, EntryKind::Stack, name, sets), sets.of(EntryKind::Stack))?;
    match stack.check() {
        Ok(()) => Ok(stack),
        Err(why) => Err(CatalogError::Invalid { origin: text.origin, why }),
    }
}

/// A cluster with its device, with what the user set of `cluster.…` and `gpu.…`.
///
/// Three keys of `cluster` change more than one value: `gpus` lets the last level grow, `nic` is the bandwidth of every
/// level, and `oversubscription` that of the last.
///
/// # Errors
/// When there is none of this name, it or its device does not load, or a `--set` does not fit.
pub fn cluster(name: &str, sets: &Overrides) -> Result<Cluster, CatalogError> {
    match machine(name, sets)? {
        ClusterOrPools::Cluster(cluster) => Ok(*cluster),
        ClusterOrPools::Pools(pooled) => {
            let names: Vec<&str> = pooled.pools.iter().map(|pool| pool.name.as_str()).collect();
            let why = format!(
                "has pools of heterogeneous GPUs ({}), but this command needs identical GPUs\n\nhint: `meshwright \
                plan`, `explain` and `emit` accept pools; a pool \
                 alone is a cluster file of its own",
                names.join(", ")
            );
            Err(CatalogError::Invalid { origin: name.to_owned(), why })
        }
    }
}

/// Content of a cluster file: one cluster or several pools.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterOrPools {
    /// Cluster of identical GPUs.
    Cluster(Box<Cluster>),
    /// Two or more pools of heterogeneous GPUs.
    Pools(PooledCluster),
}

/// Reads a cluster as [`cluster`] does, or pools of heterogeneous GPUs from `[[pool]]` tables; a single pool is a cluster.
///
/// # Errors
///
/// As for [`cluster`], and when the pools do not fit together.
pub fn machine(name: &str, sets: &Overrides) -> Result<ClusterOrPools, CatalogError> {
    let text = read::find(EntryKind::Cluster, files::CLUSTERS, name, None)?;
    if pools::has_pools(&text) {
        return pools::read(&text, sets);
    }
    let (whole, inside): (Vec<&Setting>, Vec<&Setting>) =
        sets.of(EntryKind::Cluster).partition(|setting| is_whole(setting));
    let file: ClusterFile = read::parse(&text, inside).map_err(|error| suggest_whole(error, sets))?;
    of_file(file, &text, &whole, sets).map(|cluster| ClusterOrPools::Cluster(Box::new(cluster)))
}

fn is_whole(setting: &Setting) -> bool {
    WHOLE.contains(&setting.path[0].as_str()) && setting.path.len() == 1
}

/// Reads the cluster of a file, with its device and the settings that apply to the whole.
fn of_file(
    file: ClusterFile,
    text: &read::Text,
    whole: &[&Setting],
    sets: &Overrides,
) -> Result<Cluster, CatalogError> {
    let gpu = gpu_at(&file.gpu, text.folder.as_deref(), sets)?;
    let invalid = |why| CatalogError::Invalid { origin: text.origin.clone(), why };
    let mut cluster = file.into_cluster(gpu).map_err(invalid)?;
    for key in WHOLE {
        for setting in whole.iter().filter(|setting| setting.path[0] == key) {
            cluster = set_whole(cluster, setting)?;
        }
    }
    cluster.check().map_err(invalid)?;
    Ok(cluster)
}

/// Keys of `cluster` that change more than one value, in the order in which they are applied.
const WHOLE: [&str; 3] = ["gpus", "nic", "oversubscription"];

fn set_whole(mut cluster: Cluster, setting: &Setting) -> Result<Cluster, CatalogError> {
    let text = setting.plain();
    match setting.path[0].as_str() {
        "gpus" => {
            let gpus = text
                .replace('_', "")
                .parse()
                .map_err(|_| setting.error(format!("`{text}` is not a number of GPUs"), None))?;
            return Ok(cluster.resized(gpus));
        }
        "nic" => {
            let value: BytesPerSec = text.parse().map_err(|error: meshwright_engine::units::ParseQuantityError| {
                setting.error(error.to_string(), None)
            })?;
            let sourced = Sourced { value, source: SET_SOURCE.to_owned() };
            for level in &mut cluster.levels {
                level.bandwidth = sourced.clone();
            }
            cluster.gpu.nic = sourced;
        }
        _ => {
            let ratio = text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio >= 1.0);
            let ratio = ratio.ok_or_else(|| setting.error(format!("`{text}` is not a ratio of 1 or more"), None))?;
            let last = cluster.levels.last_mut();
            last.ok_or_else(|| setting.error("the cluster has no [[level]] above its nodes", None))?.oversubscription =
                ratio;
        }
    }
    Ok(cluster)
}

/// `cluster.nix` is nearer to `nic`, which is no key of the file, than to any that is.
fn suggest_whole(error: CatalogError, sets: &Overrides) -> CatalogError {
    let CatalogError::Set { item, why, nearest } = error else {
        return error;
    };
    let key = sets.of(EntryKind::Cluster).find(|setting| setting.item == item).map(|setting| setting.path[0].clone());
    let known = WHOLE.into_iter().chain(nearest.as_deref());
    let nearest = key
        .filter(|_| why.starts_with("unknown field"))
        .and_then(|key| meshwright_engine::suggest::nearest(&key, known))
        .or_else(|| nearest.clone());
    CatalogError::Set { item, why, nearest }
}
