//! The bandwidth hierarchy: which links join a given set of ranks.

pub mod pools;

use serde::{Deserialize, Serialize};

use crate::gpu::{Gpu, ScaleUp};
use crate::sources::{Sourced, own_source};
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Processor of the hosts, which sets what one kernel launch costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// x86 servers.
    X86,
    /// NVIDIA Grace.
    Grace,
}

/// One level of the network above the scale-up domain.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Name: `leaf`, `pod`, `spine`.
    pub name: String,
    /// GPUs that one unit of this level joins.
    pub gpus: u32,
    /// Bandwidth of one GPU into this level, one direction.
    pub bandwidth: Sourced<BytesPerSec>,
    /// Down-links over up-links: 1 is full bisection.
    #[serde(default = "one")]
    pub oversubscription: f64,
    /// Share of the wire rate that collectives reach: 0.85 InfiniBand and tuned RoCE, 0.75 plain Ethernet
    /// (specification §3.4).
    #[serde(default = "tuned_efficiency")]
    pub efficiency: f64,
    /// Ring hops against the 14 us of the specification §3.3: 0.5 InfiniBand or tuned RoCE, 1 EFA and the like.
    #[serde(default = "tuned_hop")]
    pub hop_latency: f64,
    /// Whether the switches reduce (SHARP).
    #[serde(default)]
    pub in_network_reduction: bool,
    /// One way across, beside what hops through a network take anyway: of links between sites.
    #[serde(default, skip_serializing_if = "is_none")]
    pub latency: Seconds,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_none(latency: &Seconds) -> bool {
    *latency == Seconds::ZERO
}

const fn one() -> f64 {
    1.0
}

/// Of InfiniBand and tuned RoCE. Source: specification §3.4.
const fn tuned_efficiency() -> f64 {
    0.85
}

/// Of InfiniBand and tuned RoCE. Source: specification §3.3.
const fn tuned_hop() -> f64 {
    0.5
}

/// A cluster: alike GPUs, and the levels that join them, innermost first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// Name as printed.
    pub name: String,
    /// The device.
    pub gpu: Gpu,
    /// How many.
    pub gpus: u32,
    /// Per node: the unit of launchers and of failures.
    pub gpus_per_node: u32,
    /// Host processor.
    pub host: Host,
    /// Memory of one host.
    pub host_memory: Option<Bytes>,
    /// The scale-up domain as built here.
    pub scale_up: ScaleUp,
    /// The levels above it, by ascending size; the last joins all.
    pub levels: Vec<Level>,
    /// Key of its source, or the path of the file it was read from.
    pub source: String,
}

/// Memory of a host as a file has it: with a source of its own, or with the file's.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected bytes such as \"2 TB\", or { value = \"2 TB\", source = \"…\" }")]
pub enum HostMemory {
    /// The file's source says it.
    Plain(Bytes),
    /// Another does.
    Sourced(Sourced<Bytes>),
}

impl HostMemory {
    /// How much it is.
    pub fn bytes(self) -> Bytes {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Sourced(sourced) => sourced.value,
        }
    }
}

/// A cluster file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Name as printed.
    pub name: String,
    /// Catalogue name of the device.
    pub gpu: String,
    /// How many.
    pub gpus: u32,
    /// Per node.
    pub gpus_per_node: u32,
    /// Host processor.
    pub host: Host,
    /// Memory of one host.
    pub host_memory: Option<HostMemory>,
    /// Scale-up domain, where it is not the device's own.
    pub scale_up_gpus: Option<u32>,
    /// Axes of a torus slice, where they are not the device's own.
    pub scale_up_axes: Option<Vec<u32>>,
    /// The levels above.
    #[serde(default)]
    pub level: Vec<Level>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

impl ClusterFile {
    /// Joins the file with its device.
    ///
    /// # Errors
    /// Names what does not fit together.
    pub fn into_cluster(self, gpu: Gpu) -> Result<Cluster, String> {
        let mut scale_up = gpu.scale_up.clone();
        if let Some(gpus) = self.scale_up_gpus {
            scale_up.gpus = gpus;
        }
        if let Some(axes) = self.scale_up_axes {
            let chips = axes.iter().try_fold(1_u32, |chips, axis| chips.checked_mul(*axis));
            scale_up.gpus = chips.ok_or("`scale_up_axes` multiply to more chips than can be counted")?;
            scale_up.axes = axes;
        }
        let cluster = Cluster {
            name: self.name,
            gpu,
            gpus: self.gpus,
            gpus_per_node: self.gpus_per_node,
            host: self.host,
            host_memory: self.host_memory.map(HostMemory::bytes),
            scale_up,
            levels: self.level,
            source: self.source,
        };
        cluster.check()?;
        Ok(cluster)
    }
}

impl Cluster {
    /// Checks what every plan would trip over.
    ///
    /// # Errors
    /// Names what is wrong, with its numbers.
    pub fn check(&self) -> Result<(), String> {
        self.gpu.check()?;
        if self.gpus == 0 {
            return Err("a cluster of 0 GPUs trains nothing".into());
        }
        if self.gpus_per_node == 0 || self.scale_up.gpus == 0 {
            return Err("`gpus_per_node` and the scale-up domain must be above 0".into());
        }
        let mut below = self.scale_up.gpus;
        for level in &self.levels {
            if level.gpus < below {
                return Err(format!(
                    "level `{}` joins {} GPUs, fewer than the {below} below it",
                    level.name, level.gpus
                ));
            }
            if level.bandwidth.value.get() <= 0.0 || level.efficiency <= 0.0 || level.oversubscription < 1.0 {
                return Err(format!(
                    "level `{}` needs a bandwidth and an efficiency above 0 and an oversubscription of 1 or more",
                    level.name
                ));
            }
            below = level.gpus;
        }
        if self.gpus > below {
            return Err(format!(
                "{} GPUs, but the levels join only {below}\n\nhint: add a [[level]] that joins them all",
                self.gpus
            ));
        }
        Ok(())
    }

    /// One scale-up domain of a device, and nothing above it: where samples of one device are judged.
    pub fn of_one_domain(gpu: Gpu) -> Self {
        Self {
            name: format!("one domain of {}", gpu.name),
            gpus: gpu.scale_up.gpus,
            gpus_per_node: gpu.scale_up.gpus,
            host: Host::X86,
            host_memory: None,
            scale_up: gpu.scale_up.clone(),
            levels: Vec::new(),
            source: gpu.collectives_source.clone(),
            gpu,
        }
    }

    /// The same cluster with another number of GPUs: the last level grows as needed.
    #[must_use]
    pub fn resized(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        match self.levels.last_mut() {
            Some(last) => last.gpus = last.gpus.max(gpus),
            None if gpus > self.scale_up.gpus => self.levels.push(Level {
                name: "network".into(),
                gpus,
                bandwidth: self.gpu.nic.clone(),
                oversubscription: 1.0,
                efficiency: tuned_efficiency(),
                hop_latency: tuned_hop(),
                in_network_reduction: false,
                latency: Seconds::ZERO,
            }),
            None => {}
        }
        self
    }
}
