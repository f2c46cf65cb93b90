//! Scale-up domain of a device.

use serde::{Deserialize, Serialize};

use crate::sources::own_source;
use crate::units::BytesPerSec;

/// Wiring of the scale-up domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Switched: any subset of devices has the full bandwidth.
    Switch,
    /// Direct links: a group of n sees n−1 of them (xGMI, Gaudi).
    Mesh,
    /// Torus of chips (TPU, Trainium).
    Torus,
    /// PCI Express tree through the host.
    Pcie,
}

/// Scale-up domain in which the device is sold.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleUp {
    /// Number of devices in one domain.
    pub gpus: u32,
    /// Wiring of the domain.
    pub topology: Topology,
    /// Bandwidth of one device, one direction.
    pub bandwidth: BytesPerSec,
    /// Bandwidth between one pair, one direction.
    pub pair_bandwidth: BytesPerSec,
    /// Chips along each axis of a torus.
    #[serde(default)]
    pub axes: Vec<u32>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Devices of the largest domain that lies in one node: a node of fewer devices has a smaller one.
const LARGEST_NODE: u32 = 8;

impl ScaleUp {
    /// Devices of one domain in nodes of `gpus_per_node`. Domains above eight devices, as those of a rack, join nodes.
    pub fn within_node(&self, gpus_per_node: u32) -> u32 {
        if self.gpus <= LARGEST_NODE { self.gpus.min(gpus_per_node) } else { self.gpus }
    }
}
