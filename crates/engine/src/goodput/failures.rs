//! Interruptions of a job: failures of GPUs, nodes and switches, and the spot market.

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::sources::Sourced;
use crate::units::Seconds;

/// Mean times between failures, and recovery times.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// Mean time between failures of one GPU with its memory.
    pub gpu: Sourced<Seconds>,
    /// Mean time between failures of one node: host, software, the rest.
    pub node: Sourced<Seconds>,
    /// Mean time between failures of one switch with its cables.
    pub switch: Sourced<Seconds>,
    /// Share of interruptions after which a node must be repaired.
    pub hardware: Sourced<f64>,
    /// Time from a failure until spare or repaired nodes run again: detection, scheduling, process start, warm-up; without
    /// loading the checkpoint.
    pub restart: Sourced<Seconds>,
    /// Time to repair a broken node.
    pub repair: Sourced<Seconds>,
}

/// Down-links of one switch below the top of a fat tree: half of 64 ports. Source: specification §3.4.
const DOWN_LINKS: f64 = 32.0;

/// Switches of a fat tree of 64-port switches: every level below the top has one per 32 GPUs, the top one per 64.
///
/// ```text
/// n = N·(levels − 1)/32 + N/64          0 without a level
/// ```
pub(crate) fn switches(cluster: &Cluster) -> f64 {
    let gpus = f64::from(cluster.gpus);
    match cluster.levels.len() {
        0 => 0.0,
        levels => gpus * (levels as f64 - 1.0) / DOWN_LINKS + gpus / (2.0 * DOWN_LINKS),
    }
}

/// Number of nodes of a cluster.
pub fn nodes(cluster: &Cluster) -> u32 {
    cluster.gpus.div_ceil(cluster.gpus_per_node)
}

impl Failures {
    /// Mean time to interruption of a job on the whole cluster (M).
    ///
    /// ```text
    /// 1/M = N/MTBF_gpu + nodes/MTBF_node + switches/MTBF_switch [+ nodes/MTBF_spot]          specification §7.1
    /// ```
    pub fn mean_time_to_interruption(&self, cluster: &Cluster, spot: Option<Seconds>) -> Seconds {
        let nodes = f64::from(nodes(cluster));
        let rate = f64::from(cluster.gpus) / self.gpu.value.get()
            + nodes / self.node.value.get()
            + switches(cluster) / self.switch.value.get()
            + spot.map_or(0.0, |spot| nodes / spot.get());
        Seconds::new(1.0 / rate)
    }
}
