//! Clusters and pools of the catalogue, or the user's own files.

use super::clusters::{ClusterOrPools, is_whole, of_file, suggest_whole};
use super::error::{CatalogError, EntryKind};
use super::overrides::{Overrides, Setting};
use super::{files, pools, read};
use meshwright_engine::cluster::{Cluster, ClusterFile};

/// A cluster with its device, with what the user set of `cluster.…` and `gpu.…`.
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
    let text = read::find(EntryKind::Cluster, files::CLUSTERS, name, None, sets.text(name))?;
    if pools::has_pools(&text) {
        return pools::read(&text, sets, &|name| cluster(name, sets));
    }
    let (whole, inside): (Vec<&Setting>, Vec<&Setting>) =
        sets.of_kind(EntryKind::Cluster).partition(|setting| is_whole(setting));
    let file: ClusterFile = read::parse(&text, inside).map_err(|error| suggest_whole(error, sets))?;
    of_file(file, &text, &whole, sets).map(|cluster| ClusterOrPools::Cluster(Box::new(cluster)))
}
