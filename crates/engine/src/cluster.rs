//! Cluster: the bandwidth hierarchy that joins its GPUs.

pub mod pools;

use serde::{Deserialize, Serialize};

use crate::gpu::{Gpu, Host, ScaleUp, Topology};
use crate::range::{self, OutOfRange};
use crate::sources::{Sourced, own_source};
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Network level above the scale-up domain.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Name, such as `leaf`, `pod` or `spine`.
    pub name: String,
    /// Number of GPUs that one unit of this level joins.
    pub gpus: u32,
    /// Bandwidth of one GPU into this level, one direction.
    pub bandwidth: Sourced<BytesPerSec>,
    /// Whether the bandwidth is assumed: nobody states it, and it is that of the device's usual adapter.
    #[serde(default, skip_serializing_if = "is_stated")]
    pub assumed: bool,
    /// Oversubscription: down-links over up-links; 1 is full bisection.
    #[serde(default = "one")]
    pub oversubscription: f64,
    /// Share of the wire rate that collectives reach: 0.85 InfiniBand and tuned RoCE, 0.75 plain Ethernet
    /// (specification §3.4).
    #[serde(default = "tuned_efficiency")]
    pub efficiency: f64,
    /// Ring hops against the 14 us of the specification §3.3: 0.5 InfiniBand or tuned RoCE, 1 EFA and the like.
    #[serde(default = "tuned_hop")]
    pub hop_latency: f64,
    /// Whether the switches reduce in the network (SHARP).
    #[serde(default)]
    pub in_network_reduction: bool,
    /// Additional one-way latency of links between sites, beyond that of network hops.
    #[serde(default, skip_serializing_if = "is_none")]
    pub latency: Seconds,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_stated(assumed: &bool) -> bool {
    !*assumed
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_none(latency: &Seconds) -> bool {
    *latency == Seconds::ZERO
}

const fn one() -> f64 {
    1.0
}

/// Default efficiency of a level: that of InfiniBand and tuned RoCE. Source: specification §3.4.
const fn tuned_efficiency() -> f64 {
    0.85
}

/// Default hop latency of a level: that of InfiniBand and tuned RoCE. Source: specification §3.3.
const fn tuned_hop() -> f64 {
    0.5
}

impl Level {
    /// Checks every number against the range of its kind.
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self {
            name: _,
            gpus,
            bandwidth,
            assumed: _,
            oversubscription,
            efficiency,
            hop_latency,
            in_network_reduction: _,
            latency,
        } = self;
        range::check([
            ("gpus", f64::from(*gpus), range::GPUS),
            ("bandwidth", bandwidth.value.get(), range::BANDWIDTH),
            ("oversubscription", *oversubscription, range::RATIO),
            ("efficiency", *efficiency, range::EFFICIENCY),
            ("hop_latency", *hop_latency, range::FACTOR),
            ("latency", latency.get(), range::LATENCY),
        ])
    }
}

/// Cluster of identical GPUs with the levels that join them, innermost first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// Name as printed.
    pub name: String,
    /// Device of the cluster.
    pub gpu: Gpu,
    /// Number of GPUs.
    pub gpus: u32,
    /// GPUs per node, the unit of launchers and of failures.
    pub gpus_per_node: u32,
    /// Processor of the hosts.
    pub host: Host,
    /// Memory of one host.
    pub host_memory: Option<Bytes>,
    /// Scale-up domain as built in this cluster.
    pub scale_up: ScaleUp,
    /// Network levels above the domain, by ascending size; the last joins all GPUs.
    pub levels: Vec<Level>,
    /// Key of its source, or the path of the file it was read from.
    pub source: String,
    /// GPUs that its file counts, of which a run may use a part; none where a run or a name has a number of GPUs and nothing is known
    /// of the machine that they are part of.
    #[serde(skip)]
    pub machine_gpus: Option<u32>,
    /// GPUs of its own device, where it is one pool's view of several, whose others are joined to them; none where all GPUs are.
    #[serde(skip)]
    pub pool_gpus: Option<u32>,
}

/// Host memory in a file: with its own source, or with the file's.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected bytes such as \"2 TB\", or { value = \"2 TB\", source = \"…\" }")]
pub enum HostMemory {
    /// Value with the file's source.
    Plain(Bytes),
    /// Value with its own source.
    Sourced(Sourced<Bytes>),
}

impl HostMemory {
    /// Size of the memory.
    pub fn bytes(self) -> Bytes {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Sourced(sourced) => sourced.value,
        }
    }
}

/// Cluster file before its device is resolved.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Name as printed.
    pub name: String,
    /// Catalogue name of the device.
    pub gpu: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// GPUs per node.
    pub gpus_per_node: u32,
    /// Processor of the hosts; left out, that of the device's own board, or x86 without one.
    pub host: Option<Host>,
    /// Memory of one host, if it differs from that of the device's own boards.
    pub host_memory: Option<HostMemory>,
    /// GPUs in a scale-up domain, if it differs from the device's own.
    pub scale_up_gpus: Option<u32>,
    /// Axes of a torus slice, if they differ from the device's own.
    pub scale_up_axes: Option<Vec<u32>>,
    /// Network levels above the domain.
    #[serde(default)]
    pub level: Vec<Level>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

impl ClusterFile {
    /// Combines the file with its device.
    ///
    /// # Errors
    ///
    /// Names the fields that contradict each other.
    pub fn into_cluster(self, gpu: Gpu) -> Result<Cluster, String> {
        let (host, of_boards) = self.host_of(&gpu)?;
        let mut scale_up = gpu.scale_up.clone();
        scale_up.gpus = self.scale_up_gpus.unwrap_or_else(|| scale_up.within_node(self.gpus_per_node));
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
            host,
            host_memory: self.host_memory.map(HostMemory::bytes).or(of_boards),
            scale_up,
            levels: self.level,
            source: self.source,
            machine_gpus: Some(self.gpus),
            pool_gpus: None,
        };
        cluster.check()?;
        Ok(cluster)
    }

    /// Processor of the hosts, and the memory of one where the device's own boards have it.
    ///
    /// # Errors
    ///
    /// The file states another processor than that of the device's own boards.
    fn host_of(&self, gpu: &Gpu) -> Result<(Host, Option<Bytes>), String> {
        match (&gpu.superchip, self.host) {
            (None, host) => Ok((host.unwrap_or(Host::X86), None)),
            (Some(board), Some(other)) if other != board.host => {
                let (has, told) = (board.host.name(), other.name());
                Err(format!(
                    "`host = \"{told}\"`, but a {} shares its board with a {has} host\n\nhint: leave `host` out, or write `superchip` of your own GPU file anew",
                    gpu.name
                ))
            }
            (Some(board), _) => Ok((board.host, Some(board.memory * f64::from(self.gpus_per_node)))),
        }
    }
}

impl Cluster {
    /// Validates the cluster.
    ///
    /// # Errors
    ///
    /// Names the invalid field, with its numbers.
    pub fn check(&self) -> Result<(), String> {
        self.gpu.check().map_err(|why| format!("gpu: {why}"))?;
        self.check_ranges().map_err(|why| why.to_string())?;
        let mut below = self.scale_up.gpus;
        for level in &self.levels {
            if level.gpus < below {
                return Err(format!(
                    "level `{}` joins {} GPUs, fewer than the {below} below it",
                    level.name, level.gpus
                ));
            }
            level.check_ranges().map_err(|why| format!("level `{}`: {why}", level.name))?;
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

    /// Numbers of GPUs nearest to its own, below and above, that are whole nodes; none where its own are, or are a part of one node, and
    /// of TPUs, which are had by slices.
    pub fn whole_nodes(&self) -> Option<(u32, u32)> {
        let (gpus, node) = (self.gpus, self.gpus_per_node.max(1));
        (gpus > node && !gpus.is_multiple_of(node) && self.gpu.vendor != "Google")
            .then(|| (gpus / node * node, gpus.div_ceil(node) * node))
    }

    /// Scale-up domains that the GPUs of a run may lie in: those of its own nodes, or of the whole machine where a domain joins several
    /// nodes; of pools those of the pool whose view it is. None in a torus, and where the machine's are not known: its file counts no
    /// whole domains, or fewer GPUs than are asked for.
    pub fn domains(&self) -> Option<u32> {
        let (domain, own) = (self.scale_up.gpus, self.pool_gpus.unwrap_or(self.gpus));
        match self.scale_up.topology {
            Topology::Torus => None,
            _ if domain <= self.gpus_per_node => Some(own.div_ceil(domain)),
            _ => {
                let whole = self.machine_gpus.filter(|whole| *whole >= own && whole.is_multiple_of(domain))?;
                Some(whole / domain)
            }
        }
    }

    /// Checks the numbers of GPUs and the memory of a host.
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        range::check([
            ("gpus", f64::from(self.gpus), range::GPUS),
            ("gpus_per_node", f64::from(self.gpus_per_node), range::GPUS),
            ("scale_up_gpus", f64::from(self.scale_up.gpus), range::GPUS),
            ("host_memory", self.host_memory.map_or(0.0, Bytes::get), range::OPTIONAL_MEMORY),
        ])
    }

    /// Cluster of a single scale-up domain, for comparison with samples of one device.
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
            machine_gpus: None,
            pool_gpus: None,
            gpu,
        }
    }

    /// Cluster resized to another number of GPUs; the last level grows as needed. Beyond a scale-up domain without a
    /// level above it, the network is one level of the device's adapter, which is assumed unless the user states it.
    #[must_use]
    pub fn resized(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        match self.levels.last_mut() {
            Some(last) => last.gpus = last.gpus.max(gpus),
            None if gpus > self.scale_up.gpus => self.levels.push(Level {
                name: "network".into(),
                gpus,
                bandwidth: self.gpu.nic.clone(),
                assumed: !self.gpu.states_nic(),
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
