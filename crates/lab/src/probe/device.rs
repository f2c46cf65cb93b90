//! Description of a host from its own files: GPUs on PCI Express, driver, InfiniBand, memory.
//!
//! All files are read below a root folder, so that a test can use a fixture in place of `/`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use meshwright_engine::units::{Bytes, BytesPerSec};
use meshwright_planner::catalog::gpu_names;

/// PCI vendor id of NVIDIA.
const NVIDIA: &str = "0x10de";

/// GPU on the PCI bus.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PciGpu {
    /// Address on the bus.
    pub address: String,
    /// Name from the driver; empty without one.
    pub name: String,
    /// Present link: speed and number of lanes.
    pub link: Option<(String, u32)>,
    /// Best possible link: speed and number of lanes.
    pub best_link: Option<(String, u32)>,
    /// NUMA node; negative if there is none.
    pub numa: i32,
}

/// Port of an InfiniBand or RoCE adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Adapter and port, such as `mlx5_0/1`.
    pub name: String,
    /// Whether the link is up.
    pub is_active: bool,
    /// Bandwidth of one direction.
    pub rate: BytesPerSec,
    /// Link layer: `InfiniBand` or `Ethernet`.
    pub layer: String,
}

/// Host as its files describe it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostDescription {
    /// GPUs by their PCI address.
    pub gpus: Vec<PciGpu>,
    /// Version of the kernel driver.
    pub driver: Option<String>,
    /// Ports of network adapters.
    pub ports: Vec<Port>,
    /// Memory of the host.
    pub memory: Option<Bytes>,
    /// Name of the processor from `/proc/cpuinfo`.
    pub processor: String,
}

/// Text of a file without the spaces around it; `None` if it cannot be read.
fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Paths in a folder, in order; none if there is no such folder.
pub(super) fn entries(path: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Last part of a path.
fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Value of `key : value` in a file of `/proc`.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().to_owned())
}

/// Reads a host below `root`; missing files leave their fields empty.
pub fn read(root: &Path) -> HostDescription {
    let cpu = text(&root.join("proc/cpuinfo")).unwrap_or_default();
    HostDescription {
        gpus: entries(&root.join("sys/bus/pci/devices")).iter().filter_map(|path| gpu(path, root)).collect(),
        driver: text(&root.join("proc/driver/nvidia/version")).and_then(|text| version(&text)),
        ports: entries(&root.join("sys/class/infiniband"))
            .iter()
            .flat_map(|adapter| entries(&adapter.join("ports")).into_iter().map(move |port| (adapter.clone(), port)))
            .filter_map(|(adapter, path)| port(&adapter, &path))
            .collect(),
        memory: text(&root.join("proc/meminfo"))
            .and_then(|text| field(&text, "MemTotal"))
            .and_then(|total| total.strip_suffix(" kB").and_then(|kib| kib.trim().parse::<f64>().ok()))
            .map(|kib| Bytes::new(kib * 1024.0)),
        processor: field(&cpu, "model name").unwrap_or_default(),
    }
}

/// Version number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  …`.
fn version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_version).map(ToOwned::to_owned)
}

/// GPU at a PCI path: NVIDIA's, of class 3D controller or VGA.
fn gpu(path: &Path, root: &Path) -> Option<PciGpu> {
    let class = text(&path.join("class"))?;
    if text(&path.join("vendor"))? != NVIDIA || !(class.starts_with("0x0302") || class.starts_with("0x0300")) {
        return None;
    }
    let address = file_name(path);
    let information = text(&root.join("proc/driver/nvidia/gpus").join(&address).join("information"));
    let link = |speed: &str, width: &str| {
        let lanes = text(&path.join(width))?.parse().ok()?;
        Some((text(&path.join(speed))?, lanes))
    };
    Some(PciGpu {
        name: information.and_then(|text| field(&text, "Model")).unwrap_or_default(),
        link: link("current_link_speed", "current_link_width"),
        best_link: link("max_link_speed", "max_link_width"),
        numa: text(&path.join("numa_node")).and_then(|node| node.parse().ok()).unwrap_or(-1),
        address,
    })
}

/// Port of an adapter; its rate reads `400 Gb/sec (4X NDR)`.
fn port(adapter: &Path, path: &Path) -> Option<Port> {
    let rate = text(&path.join("rate"))?;
    let gbits: f64 = rate.split_whitespace().next()?.parse().ok()?;
    Some(Port {
        name: format!("{}/{}", file_name(adapter), file_name(path)),
        is_active: text(&path.join("state")).is_some_and(|state| state.contains("ACTIVE")),
        rate: BytesPerSec::gbytes(gbits / 8.0),
        layer: text(&path.join("link_layer")).unwrap_or_default(),
    })
}

/// Reason why no cluster file can describe a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCluster {
    /// The host has no GPU.
    #[error("there is no NVIDIA GPU on the PCI bus of this host")]
    NoGpu,
    /// The GPUs of the host differ.
    #[error("this host has different GPUs: {0}\n\nhint: a cluster file is of one device; write it by hand")]
    Mixed(String),
    /// The catalogue does not know the GPU's name.
    #[error("the catalogue has no device for `{0}`\n\nhint: say which with --gpu NAME (`meshwright gpus`)")]
    Unknown(String),
}

/// Cluster file of `nodes` hosts like this one; `gpu` is the catalogue name, if the driver's name does not determine it.
///
/// The bandwidth of a GPU into the network is that of all active ports divided by the GPUs. Efficiency and hop latency are
/// those of the specification §3.3 and §3.4 until nccl-tests measure them.
///
/// # Errors
///
/// The host has no GPU, its GPUs differ, or the catalogue does not know them.
pub fn cluster_file(host: &HostDescription, nodes: u32, gpu: Option<&str>, date: &str) -> Result<String, NoCluster> {
    let Some(first) = host.gpus.first() else { return Err(NoCluster::NoGpu) };
    if let Some(other) = host.gpus.iter().find(|gpu| gpu.name != first.name) {
        return Err(NoCluster::Mixed(format!("{}, {}", first.name, other.name)));
    }
    let device = match gpu {
        Some(gpu) => gpu,
        None => gpu_names::in_driver(&first.name).ok_or_else(|| NoCluster::Unknown(first.name.clone()))?,
    };
    let count = host.gpus.len() as u32;
    let active: Vec<&Port> = host.ports.iter().filter(|port| port.is_active).collect();
    let rate: BytesPerSec = active.iter().map(|port| port.rate).sum();
    let ethernet = active.iter().any(|port| port.layer == "Ethernet");
    let grace =
        host.processor.contains("Grace") || ["GB200", "GB300", "GH200"].iter().any(|part| first.name.contains(part));
    let source = format!("this machine, read on {date}");
    // NVLink joins the GPUs of a host; on Grace it joins hosts, and the catalogue gives their number.
    let domain = if grace { String::new() } else { format!("scale_up_gpus = {count}\n") };
    let memory =
        host.memory.map_or_else(String::new, |memory| format!("host_memory = \"{:.0} GiB\"\n", memory.as_gib()));
    let mut text = format!(
        "# Written by `meshwright measure --write-cluster` on {date}.\nname = \"{} x {count} {}\"\ngpu = \"{device}\"\n\
         gpus = {}\ngpus_per_node = {count}\nhost = \"{}\"\n{memory}{domain}source = \"{source}\"\n",
        nodes,
        if first.name.is_empty() { device } else { &first.name },
        nodes * count,
        if grace { "grace" } else { "x86" },
    );
    if nodes > 1 {
        let each = rate.get() / 1.25e8 / f64::from(count);
        let comment = if active.is_empty() {
            "# No active InfiniBand or RoCE port was found: put the bandwidth of one GPU here.\n"
        } else {
            ""
        };
        let (efficiency, hops) = if ethernet { (0.75, 1.0) } else { (0.85, 0.5) };
        let _ = write!(
            text,
            "\n{comment}[[level]]\nname = \"network\"\ngpus = {}\nbandwidth = {{ value = \"{each} Gb/s\", source = \
             \"{source}\" }}\nefficiency = {efficiency}\nhop_latency = {hops:?}\n",
            nodes * count
        );
    }
    Ok(text)
}
