//! Clusters of choices, and problems of tasks on them.

use super::choice::Choice;
use super::error::SweepError;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::range;
use meshwright_engine::sources::Sourced;
use meshwright_engine::units::BytesPerSec;
use meshwright_planner::catalog::{self, Overrides};

/// Parses a number of GPUs.
///
/// # Errors
///
/// The text is not such a number.
pub fn whole(text: &str) -> Result<u32, String> {
    let number = text.replace('_', "").parse::<u32>().ok().filter(|n| *n > 0);
    let number = number.ok_or_else(|| format!("`{text}` is not a whole number above 0"))?;
    range::GPUS.check(text, f64::from(number)).map_err(|why| why.why().to_owned())?;
    Ok(number)
}

/// Parses a ratio of 1 or more.
///
/// # Errors
///
/// The text is not such a ratio.
pub fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| format!("`{text}` is not a ratio of 1 or more"))?;
    range::RATIO.check(text, ratio).map_err(|why| why.why().to_owned())?;
    Ok(ratio)
}

/// A cluster to buy: its network is chosen with it, at the device's usual rate.
fn bought(mut cluster: Cluster) -> Cluster {
    for level in &mut cluster.levels {
        level.assumed = false;
    }
    cluster
}

/// Cluster of a choice.
///
/// # Errors
///
/// Its parts do not fit together.
pub fn cluster(choice: &Choice, sets: &Overrides) -> Result<Cluster, SweepError> {
    let number =
        |axis: &str| choice.get(axis).map(|text| whole(text).map_err(|why| SweepError::value(axis, why))).transpose();
    let gpus = number("gpus")?;
    let mut cluster = match (choice.get("cluster"), choice.get("gpu"), gpus) {
        (Some(name), _, Some(gpus)) => catalog::cluster(name, sets)?.resized(gpus),
        (Some(name), _, None) => catalog::cluster(name, sets)?,
        (None, Some(gpu), Some(gpus)) => bought(catalog::fat_tree_of(gpus, gpu, sets)?),
        (None, _, _) => return Err(SweepError::value("options", "needs `gpu` with `gpus`, or `cluster`")),
    };
    if let Some(size) = number("scale_up")? {
        cluster.scale_up.gpus = size;
        for level in &mut cluster.levels {
            level.gpus = level.gpus.max(size);
        }
    }
    if let Some(text) = choice.get("nic") {
        let value: BytesPerSec = text.parse().map_err(|error| SweepError::value("nic", error))?;
        let bandwidth = Sourced { value, source: catalog::SET_SOURCE.to_owned() };
        for level in &mut cluster.levels {
            level.bandwidth = bandwidth.clone();
            level.assumed = false;
        }
        cluster.gpu.nic = bandwidth;
    }
    if let Some(text) = choice.get("oversubscription") {
        let ratio = ratio(text).map_err(|why| SweepError::value("oversubscription", why))?;
        if let Some(last) = cluster.levels.last_mut() {
            last.oversubscription = ratio;
        }
    }
    Ok(cluster)
}
