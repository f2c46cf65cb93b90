//! Cluster files with identical GPUs.

use super::entries::gpu_at;
use super::error::{CatalogError, EntryKind};
use super::overrides::{Overrides, Setting};
use super::read;
use meshwright_engine::cluster::pools::PooledCluster;
use meshwright_engine::cluster::{Cluster, ClusterFile};
use meshwright_engine::range;
use meshwright_engine::sources::{SET_SOURCE, Sourced};
use meshwright_engine::units::BytesPerSec;

/// Content of a cluster file: one cluster or several pools.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterOrPools {
    /// Cluster of identical GPUs.
    Cluster(Box<Cluster>),
    /// Two or more pools of heterogeneous GPUs.
    Pools(PooledCluster),
}

/// Whether a setting is one of [`WHOLE`].
pub(super) fn is_whole(setting: &Setting) -> bool {
    WHOLE.contains(&setting.path[0].as_str()) && setting.path.len() == 1
}

/// Reads the cluster of a file, with its device and the settings that apply to the whole.
pub(super) fn of_file(
    file: ClusterFile,
    text: &read::EntryText,
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

/// Keys of `cluster` that are applied to the cluster once it is read, in this order.
const WHOLE: [&str; 3] = ["gpus", "nic", "oversubscription"];

/// Cluster with a setting of [`WHOLE`] applied.
fn set_whole(mut cluster: Cluster, setting: &Setting) -> Result<Cluster, CatalogError> {
    let text = setting.plain();
    match setting.path[0].as_str() {
        "gpus" => {
            let gpus = text
                .replace('_', "")
                .parse()
                .map_err(|_| setting.error(format!("`{text}` is not a number of GPUs"), None))?;
            range::GPUS.check("gpus", f64::from(gpus)).map_err(|why| setting.error(why.to_string(), None))?;
            // As if its file had that number; of a name it is still not known what it is part of.
            return Ok(Cluster { machine_gpus: cluster.machine_gpus.map(|_| gpus), ..cluster.resized(gpus) });
        }
        "nic" => {
            let value: BytesPerSec = text.parse().map_err(|error: meshwright_engine::units::ParseQuantityError| {
                setting.error(error.to_string(), None)
            })?;
            range::BANDWIDTH.check("nic", value.get()).map_err(|why| setting.error(why.to_string(), None))?;
            let sourced = Sourced { value, source: SET_SOURCE.to_owned() };
            for level in &mut cluster.levels {
                level.bandwidth = sourced.clone();
                level.assumed = false;
            }
            cluster.gpu.nic = sourced;
        }
        _ => {
            let ratio: Option<f64> = text.parse().ok();
            let ratio = ratio.ok_or_else(|| setting.error(format!("`{text}` is not a ratio of 1 or more"), None))?;
            range::RATIO.check("oversubscription", ratio).map_err(|why| setting.error(why.to_string(), None))?;
            let last = cluster.levels.last_mut();
            last.ok_or_else(|| setting.error("the cluster has no [[level]] above its nodes", None))?.oversubscription =
                ratio;
        }
    }
    Ok(cluster)
}

/// Error of an unknown key with the nearest name among the keys of the file and of [`WHOLE`]: for `cluster.nix` that is
/// `nic`, which is no key of the file.
pub(super) fn suggest_whole(error: CatalogError, sets: &Overrides) -> CatalogError {
    let CatalogError::Set { item, why, nearest } = error else {
        return error;
    };
    let key =
        sets.of_kind(EntryKind::Cluster).find(|setting| setting.item == item).map(|setting| setting.path[0].clone());
    let known = WHOLE.into_iter().chain(nearest.as_deref());
    let nearest = key
        .filter(|_| why.starts_with("unknown field"))
        .and_then(|key| meshwright_engine::suggest::nearest(&key, known))
        .or_else(|| nearest.clone());
    CatalogError::Set { item, why, nearest }
}
