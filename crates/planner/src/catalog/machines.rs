//! Clusters and pools of the catalogue, or the user's own files.

use super::clusters::{ClusterOrPools, is_whole, of_file, suggest_whole};
use super::error::{CatalogError, EntryKind};
use super::overrides::{Overrides, Setting};
use super::{fat_tree, files, pools, read};
use meshwright_engine::cluster::{Cluster, ClusterFile};
use meshwright_engine::suggest::is_spelling;

/// A cluster with its device, with the user's settings of `cluster.…` and `gpu.…`.
///
/// Three keys of `cluster` change more than one value: `gpus` lets the last level grow, `nic` is the bandwidth of every
/// level, and `oversubscription` that of the last.
///
/// # Errors
/// There is no cluster of this name, it or its device does not load, or a `--set` does not fit.
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

/// Reads a cluster as [`cluster`] does, or pools of heterogeneous GPUs from `[[pool]]` tables; a single pool is a cluster.
///
/// # Errors
///
/// As for [`cluster`], or the pools do not fit together.
pub fn machine(name: &str, sets: &Overrides) -> Result<ClusterOrPools, CatalogError> {
    if let Some((gpus, gpu)) = fat_tree::counted(name).filter(|_| sets.text(name).is_none()) {
        return fat_tree_of(gpus, gpu, sets).map(|cluster| ClusterOrPools::Cluster(Box::new(cluster)));
    }
    let text =
        read::find(EntryKind::Cluster, files::CLUSTERS, name, None, sets.text(name)).map_err(|e| suggest(e, name))?;
    if pools::has_pools(&text) {
        return pools::read(&text, sets, &|name| cluster(name, sets));
    }
    of_text(&text, sets).map(|cluster| ClusterOrPools::Cluster(Box::new(cluster)))
}

/// Whether a cluster's name is a number of GPUs of a kind, such as `512xh100-sxm` or `8xours.toml`, and no name of the catalogue or of a
/// file.
pub fn is_counted(name: &str) -> bool {
    fat_tree::counted(name).is_some()
}

/// Name of as many GPUs of a kind on boards of four, such as `64xgh200-quad` for `64xgh200`; `None` where the catalogue has no such board.
pub fn on_boards_of_four(name: &str) -> Option<String> {
    let (gpus, gpu) = fat_tree::counted(name)?;
    let board = format!("{gpu}-quad");
    files::GPUS.iter().any(|(known, _)| *known == board).then(|| format!("{gpus}x{board}"))
}

/// Cluster of `gpus` GPUs of one kind on a fat tree of full bisection, as the name `512xh100-sxm` asks for; `gpu` is a name
/// of the catalogue or a path to a GPU file.
///
/// # Errors
///
/// As for [`cluster`].
pub fn fat_tree_of(gpus: u32, gpu: &str, sets: &Overrides) -> Result<Cluster, CatalogError> {
    Ok(Cluster { machine_gpus: None, ..of_text(&fat_tree::entry(gpus, gpu, sets)?, sets)? })
}

/// Cluster of a file's text.
fn of_text(text: &read::EntryText, sets: &Overrides) -> Result<Cluster, CatalogError> {
    let (whole, inside): (Vec<&Setting>, Vec<&Setting>) =
        sets.of_kind(EntryKind::Cluster).partition(|setting| is_whole(setting));
    let file: ClusterFile = read::parse(text, inside).map_err(|error| suggest_whole(error, sets))?;
    of_file(file, text, &whole, sets)
}

/// Error of an unknown cluster, with the name of the form `512xh100-sxm` that the user may have meant, unless the name is another spelling
/// of a cluster's.
fn suggest(error: CatalogError, asked: &str) -> CatalogError {
    match (error, fat_tree::nearest_counted(asked)) {
        (CatalogError::Unknown { kind, name, names, .. }, Some(counted))
            if !names.iter().any(|known| is_spelling(&name, known)) =>
        {
            CatalogError::Unknown { kind, name, nearest: Some(counted), names }
        }
        (error, _) => error,
    }
}
