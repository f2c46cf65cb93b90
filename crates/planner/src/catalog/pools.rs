//! Cluster files with `[[pool]]` tables.

use super::clusters::{ClusterOrPools, is_whole, of_file, suggest_whole};
use super::error::{CatalogError, EntryKind};
use super::overrides::{Overrides, Setting};
use super::read;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cluster::pools::{Pool, PoolFile, PooledCluster, PoolsFile};

/// Reads the cluster that a pool names.
type NamedCluster<'n> = dyn Fn(&str) -> Result<Cluster, CatalogError> + 'n;

/// Whether a cluster file defines pools.
pub fn has_pools(text: &read::EntryText) -> bool {
    text.table().is_ok_and(|table| table.contains_key("pool"))
}

/// Reads the pools of a file; a single pool is a cluster with the file's name.
///
/// # Errors
///
/// Names the first error and its pool.
pub fn read(text: &read::EntryText, sets: &Overrides, named: &NamedCluster) -> Result<ClusterOrPools, CatalogError> {
    let reader = PoolReader { text, sets, named };
    let (whole, inside): (Vec<&Setting>, Vec<&Setting>) =
        sets.of_kind(EntryKind::Cluster).partition(|setting| is_whole(setting));
    let file: PoolsFile = read::parse(text, inside).map_err(|error| suggest_whole(error, sets))?;
    let PoolsFile { name, pool: pools, link: links, source } = file;
    let invalid = |why: String| CatalogError::Invalid { origin: text.origin.clone(), why };
    if pools.is_empty() {
        return Err(invalid("it has no pool".into()));
    }
    let pools = match <[PoolFile; 1]>::try_from(pools) {
        Ok(_) if !links.is_empty() => return Err(invalid("a [[link]] joins pools, and there is one only".into())),
        Ok([pool]) => {
            let cluster = reader.cluster(pool, &name, &source, &whole)?;
            return Ok(ClusterOrPools::Cluster(Box::new(cluster)));
        }
        Err(several) => several,
    };
    if let Some(setting) = whole.first() {
        let why = format!("which pool's `{}` is meant? write it into the file", setting.path[0]);
        return Err(setting.error(why, None));
    }
    let mut read = Vec::new();
    for pool in pools {
        let (own, price) = (pool.name.clone(), pool.price);
        let cluster = reader.cluster(pool, &own, &source, &[])?;
        read.push(Pool { name: own, cluster, price });
    }
    let pooled = PooledCluster { name, pools: read, links, source };
    pooled.check().map_err(invalid)?;
    Ok(ClusterOrPools::Pools(pooled))
}

/// Reader of the pools of one file.
struct PoolReader<'r> {
    text: &'r read::EntryText,
    sets: &'r Overrides,
    named: &'r NamedCluster<'r>,
}

impl PoolReader<'_> {
    /// Reads one pool as a cluster with this name and source: spelled out, or a catalogue cluster with another number of GPUs.
    fn cluster(&self, pool: PoolFile, name: &str, source: &str, whole: &[&Setting]) -> Result<Cluster, CatalogError> {
        let Self { text, sets, named } = *self;
        let invalid = |why: String| CatalogError::Invalid { origin: text.origin.clone(), why };
        let Some(base) = &pool.cluster else {
            let own = pool.name.clone();
            let file = pool.into_file(name.to_owned(), source.to_owned()).map_err(invalid)?;
            return of_file(file, text, whole, sets).map_err(|error| match error {
                CatalogError::Invalid { origin, why } => {
                    CatalogError::Invalid { origin, why: format!("pool `{own}`: {why}") }
                }
                other => other,
            });
        };
        if let Some(key) = pool.beside_cluster() {
            return Err(invalid(format!("pool `{}` has `cluster` and `{key}`: one of them is enough", pool.name)));
        }
        let path = text.folder.as_ref().map(|folder| folder.join(base)).filter(|path| path.is_file());
        let base = path.map_or_else(|| base.clone(), |path| path.display().to_string());
        let cluster = named(&base)?;
        Ok(match pool.gpus {
            Some(gpus) => cluster.resized(gpus),
            None => cluster,
        })
    }
}
