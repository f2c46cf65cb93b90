//! Clusters of choices, and problems of tasks on them.

use super::choice::Choice;
use super::error::SweepError;
use meshwright_engine::cluster::{Cluster, ClusterFile, Host, HostMemory, Level};
use meshwright_engine::range;
use meshwright_engine::sources::Sourced;
use meshwright_engine::units::{BytesPerSec, Seconds};
use meshwright_planner::catalog::{self, Overrides, files::CLUSTERS};

/// GPUs of one leaf if no catalogue cluster has this GPU. Source: [dgx-superpod-h100].
const LEAF: u32 = 256;
/// Leaves below one spine, with 64-port switches. Source: [dgx-superpod-h100].
const LEAVES: u32 = 8;
/// Share of the wire rate that collectives reach on InfiniBand and tuned RoCE. Source: specification §3.4.
const EFFICIENCY: f64 = 0.85;
/// Latency of ring hops relative to the reference. Source: specification §3.3.
const HOP_LATENCY: f64 = 0.5;
/// GPUs of an x86 server.
const SERVER: u32 = 8;

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

/// Cluster of `gpus` GPUs of one kind on a fat tree of full bisection: leaves, eight of them below a spine, a core above
/// all.
///
/// Nodes, hosts and leaves are those of the catalogue's cluster of that GPU, if it has one.
///
/// # Errors
///
/// The catalogue has no such GPU.
pub fn fat_tree(gpu: &str, gpus: u32, sets: &Overrides) -> Result<Cluster, SweepError> {
    let device = catalog::gpu_with(gpu, sets)?;
    let known = CLUSTERS
        .iter()
        .find_map(|(_, text)| catalog::parse_toml::<ClusterFile>(text).ok().filter(|file| file.gpu == gpu));
    let leaf = known.as_ref().and_then(|file| file.level.first()).cloned();
    let nic = device.nic.clone();
    let (leaf_gpus, efficiency, hop_latency) = match &leaf {
        Some(level) => (level.gpus, level.efficiency, level.hop_latency),
        None => (LEAF.max(device.scale_up.gpus), EFFICIENCY, HOP_LATENCY),
    };
    let mut levels = Vec::new();
    let mut add = |name: &str, size: u32| {
        levels.push(Level {
            name: name.into(),
            gpus: size,
            bandwidth: nic.clone(),
            oversubscription: 1.0,
            efficiency,
            hop_latency,
            in_network_reduction: false,
            latency: Seconds::ZERO,
        });
    };
    let spine = leaf_gpus.saturating_mul(LEAVES);
    if gpus > device.scale_up.gpus {
        add("leaf", leaf_gpus);
    }
    if gpus > leaf_gpus {
        add("spine", spine);
    }
    if gpus > spine {
        add("core", gpus);
    }
    let (gpus_per_node, host, host_memory) = match &known {
        Some(file) => (file.gpus_per_node, file.host, file.host_memory.clone().map(HostMemory::bytes)),
        None => (SERVER.min(device.scale_up.gpus), Host::X86, None),
    };
    let name = format!("{gpus} x {}", device.name);
    let scale_up = device.scale_up.clone();
    Ok(Cluster {
        name,
        gpu: device,
        gpus,
        gpus_per_node,
        host,
        host_memory,
        scale_up,
        levels,
        source: "meshwright-estimates".into(),
    })
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
        (None, Some(gpu), Some(gpus)) => fat_tree(gpu, gpus, sets)?,
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
