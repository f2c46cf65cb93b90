//! Pools of heterogeneous GPUs: each a cluster of its own, and the links that join them.

use serde::{Deserialize, Serialize};

use super::{Cluster, ClusterFile, Host, HostMemory, Level};
use crate::gpu::Topology;
use crate::range::{self, OutOfRange};
use crate::sources::Sourced;
use crate::suggest::nearest_hint;
use crate::units::{BytesPerSec, Seconds, UsdPerHour};

/// Link between two or more pools.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Names of the pools that it joins.
    pub between: Vec<String>,
    /// Bandwidth of one GPU into the link, one direction.
    pub bandwidth: Sourced<BytesPerSec>,
    /// Additional one-way latency, beyond that of a send through a network.
    pub latency: Option<Sourced<Seconds>>,
    /// Total bandwidth of all GPUs through the link, one direction; unlimited if `None`.
    pub trunk: Option<Sourced<BytesPerSec>>,
    /// Oversubscription: down-links over up-links; 1 is full bisection.
    #[serde(default = "super::one")]
    pub oversubscription: f64,
    /// Share of the wire rate that collectives reach, as for a network level.
    pub efficiency: f64,
}

impl Link {
    /// Checks every number against the range of its kind.
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { between: _, bandwidth, latency, trunk, oversubscription, efficiency } = self;
        range::check([
            ("bandwidth", bandwidth.value.get(), range::BANDWIDTH),
            ("latency", latency.as_ref().map_or(0.0, |latency| latency.value.get()), range::LATENCY),
            ("trunk", trunk.as_ref().map_or(range::STORAGE.least(), |trunk| trunk.value.get()), range::STORAGE),
            ("oversubscription", *oversubscription, range::RATIO),
            ("efficiency", *efficiency, range::EFFICIENCY),
        ])
    }

    /// The link as a network level that joins `gpus` GPUs, of which `senders` share its trunk.
    pub fn level(&self, gpus: u32, senders: u32) -> Level {
        let mut bandwidth = self.bandwidth.clone();
        if let Some(trunk) = &self.trunk {
            let share = trunk.value / f64::from(senders.max(1)) * self.oversubscription;
            if share < bandwidth.value {
                bandwidth = Sourced { value: share, source: trunk.source.clone() };
            }
        }
        Level {
            name: "link".into(),
            gpus,
            bandwidth,
            assumed: false,
            oversubscription: self.oversubscription,
            efficiency: self.efficiency,
            hop_latency: 1.0,
            in_network_reduction: false,
            latency: self.latency.as_ref().map_or(Seconds::ZERO, |latency| latency.value),
        }
    }

    /// Bandwidth of each of `senders` GPUs that send across at once.
    pub fn rate(&self, senders: u32) -> BytesPerSec {
        let level = self.level(0, senders);
        level.bandwidth.value * (level.efficiency / level.oversubscription)
    }
}

/// Pool of identical GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pool {
    /// Name as printed.
    pub name: String,
    /// GPUs of the pool with the levels that join them.
    pub cluster: Cluster,
    /// Price of one GPU-hour.
    pub price: Option<UsdPerHour>,
}

/// Two or more pools of heterogeneous GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PooledCluster {
    /// Name as printed.
    pub name: String,
    /// Pools in the order of the file.
    pub pools: Vec<Pool>,
    /// Links between the pools; every two pools are joined.
    pub links: Vec<Link>,
    /// Key of its source, or the path of the file it was read from.
    pub source: String,
}

impl PooledCluster {
    /// Total number of GPUs.
    pub fn gpus(&self) -> u32 {
        self.pools.iter().fold(0, |sum, pool| pool.cluster.gpus.saturating_add(sum))
    }

    /// Link that joins two pools.
    pub fn link(&self, a: usize, b: usize) -> Option<&Link> {
        let joins = |link: &&Link| [a, b].iter().all(|&pool| link.between.contains(&self.pools[pool].name));
        self.links.iter().find(joins)
    }

    /// Slowest link between any two pools, with `senders` GPUs at once: the bottleneck of a collective over all pools.
    pub(crate) fn slowest_link(&self, senders: u32) -> Option<&Link> {
        let rate = |link: &&Link| link.rate(senders).get();
        self.links.iter().min_by(|a, b| rate(a).total_cmp(&rate(b)))
    }

    /// Cluster of all GPUs as seen from one pool: its own GPUs and levels, and above them the slowest link, which joins the
    /// rest. Communication that leaves the pool is timed on that link.
    pub fn joined(&self, pool: usize) -> Cluster {
        let smallest = self.pools.iter().map(|pool| pool.cluster.gpus).min().unwrap_or_default();
        self.under(pool, self.slowest_link(smallest), smallest)
    }

    /// Cluster of all GPUs as seen from one pool, joined by the link to one other pool, which `senders` GPUs use at once.
    pub fn towards(&self, pool: usize, other: usize, senders: u32) -> Cluster {
        self.under(pool, self.link(pool, other), senders)
    }

    /// Cluster of all GPUs as seen from one pool, with `link` as its outermost level.
    fn under(&self, pool: usize, link: Option<&Link>, senders: u32) -> Cluster {
        let (own, all) = (&self.pools[pool].cluster, self.gpus());
        let mut cluster = own.clone();
        cluster.scale_up.gpus = cluster.scale_up.gpus.min(own.gpus);
        let inside = cluster.scale_up.gpus;
        for level in &mut cluster.levels {
            level.gpus = level.gpus.min(own.gpus).max(inside);
        }
        cluster.levels.extend(link.map(|link| link.level(all, senders)));
        (cluster.gpus, cluster.pool_gpus) = (all, Some(own.gpus));
        cluster.name.clone_from(&self.name);
        cluster
    }

    /// Validates the pools.
    ///
    /// # Errors
    ///
    /// Names the invalid field, with its numbers.
    pub fn check(&self) -> Result<(), String> {
        for (at, pool) in self.pools.iter().enumerate() {
            if self.pools[..at].iter().any(|known| known.name == pool.name) {
                return Err(format!("two pools are named `{}`", pool.name));
            }
            let price = pool.price.map_or(0.0, UsdPerHour::get);
            pool.cluster
                .check()
                .and_then(|()| range::RENT.check("price", price).map_err(|why| why.to_string()))
                .map_err(|why| format!("pool `{}`: {why}", pool.name))?;
            let (gpu, first) = (&pool.cluster.gpu, &self.pools[0].cluster.gpu);
            if gpu.vendor != first.vendor {
                return Err(format!(
                    "pool `{}` has GPUs of {}, pool `{}` of {}: no collective library runs over both; a file with one `[[pool]]` \
                     plans each alone",
                    self.pools[0].name, first.vendor, pool.name, gpu.vendor
                ));
            }
            if pool.cluster.scale_up.topology == Topology::Torus {
                return Err(format!("pool `{}`: slices of a torus are not joined to other pools", pool.name));
            }
        }
        range::GPUS.check("gpus of all pools", f64::from(self.gpus())).map_err(|why| why.to_string())?;
        self.check_links()
    }

    /// Checks that each link joins two or more pools, and that exactly one link joins every two.
    fn check_links(&self) -> Result<(), String> {
        for link in &self.links {
            for (at, name) in link.between.iter().enumerate() {
                if !self.pools.iter().any(|pool| pool.name == *name) {
                    let names = || self.pools.iter().map(|pool| pool.name.as_str());
                    let near = nearest_hint(name, names());
                    let all = names().collect::<Vec<_>>().join(", ");
                    return Err(format!("a [[link]] joins `{name}`, which is not a pool{near} (there are: {all})"));
                }
                if link.between[..at].contains(name) {
                    return Err(format!("a [[link]] joins `{name}` to itself"));
                }
            }
            if link.between.len() < 2 {
                return Err("a [[link]] joins two pools or more: between = [\"a\", \"b\"]".into());
            }
            link.check_ranges().map_err(|why| format!("the link between {}: {why}", link.between.join(" and ")))?;
        }
        for b in 0..self.pools.len() {
            for a in 0..b {
                let (a_name, b_name) = (&self.pools[a].name, &self.pools[b].name);
                let joining =
                    self.links.iter().filter(|link| link.between.contains(a_name) && link.between.contains(b_name));
                match joining.count() {
                    1 => {}
                    0 => {
                        return Err(format!(
                            "nothing joins pools `{a_name}` and `{b_name}`\n\nhint: add a [[link]] with between = \
                             [\"{a_name}\", \"{b_name}\"], a bandwidth and an efficiency"
                        ));
                    }
                    n => return Err(format!("{n} links join pools `{a_name}` and `{b_name}`: say which one it is")),
                }
            }
        }
        Ok(())
    }
}

/// Cluster file with `[[pool]]` tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolsFile {
    /// Name as printed.
    pub name: String,
    /// Tables of the pools.
    pub pool: Vec<PoolFile>,
    /// Links between the pools.
    #[serde(default)]
    pub link: Vec<Link>,
    /// Key of the source.
    pub source: String,
}

/// Table `[[pool]]`: a catalogue cluster by name, or the fields of a cluster file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolFile {
    /// Name as printed.
    pub name: String,
    /// Cluster by name or file; only `gpus` and `price` may accompany it.
    pub cluster: Option<String>,
    /// Catalogue name of the device.
    pub gpu: Option<String>,
    /// Number of GPUs.
    pub gpus: Option<u32>,
    /// GPUs per node.
    pub gpus_per_node: Option<u32>,
    /// Processor of the hosts.
    pub host: Option<Host>,
    /// Memory of one host.
    pub host_memory: Option<HostMemory>,
    /// GPUs in a scale-up domain, if it differs from the device's own.
    pub scale_up_gpus: Option<u32>,
    /// Axes of a torus slice, if they differ from the device's own.
    pub scale_up_axes: Option<Vec<u32>>,
    /// Network levels above the domain.
    pub level: Option<Vec<Level>>,
    /// Price of one GPU-hour.
    pub price: Option<UsdPerHour>,
}

impl PoolFile {
    /// Converts the pool to a cluster file, if it names no catalogue cluster.
    ///
    /// # Errors
    ///
    /// Names the missing field.
    pub fn into_file(self, name: String, source: String) -> Result<ClusterFile, String> {
        let Self {
            name: pool, gpu, gpus, gpus_per_node, host, host_memory, scale_up_gpus, scale_up_axes, level, ..
        } = self;
        let missing = |key: &str| format!("pool `{pool}` needs `{key}`, or a `cluster` that has it");
        Ok(ClusterFile {
            name,
            gpu: gpu.ok_or_else(|| missing("gpu"))?,
            gpus: gpus.ok_or_else(|| missing("gpus"))?,
            gpus_per_node: gpus_per_node.ok_or_else(|| missing("gpus_per_node"))?,
            host,
            host_memory,
            scale_up_gpus,
            scale_up_axes,
            level: level.unwrap_or_default(),
            source,
        })
    }

    /// Name of the first key that may not accompany `cluster`.
    pub fn beside_cluster(&self) -> Option<&'static str> {
        let Self {
            name: _,
            cluster: _,
            gpu,
            gpus: _,
            gpus_per_node,
            host,
            host_memory,
            scale_up_gpus,
            scale_up_axes,
            level,
            price: _,
        } = self;
        [
            ("gpu", gpu.is_some()),
            ("gpus_per_node", gpus_per_node.is_some()),
            ("host", host.is_some()),
            ("host_memory", host_memory.is_some()),
            ("scale_up_gpus", scale_up_gpus.is_some()),
            ("scale_up_axes", scale_up_axes.is_some()),
            ("level", level.is_some()),
        ]
        .into_iter()
        .find_map(|(key, there)| there.then_some(key))
    }
}
