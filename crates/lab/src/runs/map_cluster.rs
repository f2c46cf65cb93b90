//! Device and cluster of a row, from its GPU and network columns.

use super::cell::{Cells, text};
use super::refusal::Refusal;
use super::release::Release;
use super::row::Row;
use meshwright_engine::cluster::{Cluster, Level};
use meshwright_engine::gpu::{Gpu, Host, ScaleUp};
use meshwright_engine::sources::Sourced;
use meshwright_engine::units::BytesPerSec;
use meshwright_planner::catalog::{CachedCatalog, gpu_names};

/// Device whose host caps its power in this framework's runs, with the capped catalogue entry: measured and published by
/// the authors.
const POWER_CAPPED: (&str, &str) = ("B200", "b200-power-capped");

/// Device of which four share a board, its power and its links, the GPUs of such a node, and its catalogue entry there.
const FOUR_WAY: (&str, u32, &str) = ("GH200", 4, "gh200-quad");

/// Word of a network column whose rate the source does not state.
const ASSUMED: &str = "assumed";

/// Device of a row: a name of the table, of the catalogue or of a driver.
pub(super) fn gpu(row: &Row, gpus_per_node: u32, catalog: &CachedCatalog) -> Result<Gpu, Refusal> {
    let name = text(row.gpu.as_ref());
    let capped = name == POWER_CAPPED.0 && Release::of(row) == Release::MegatronWithoutOverlap;
    let four_way = name == FOUR_WAY.0 && gpus_per_node == FOUR_WAY.1;
    let entry = match (capped, four_way) {
        (true, _) => Some(POWER_CAPPED.1),
        (_, true) => Some(FOUR_WAY.2),
        _ => gpu_names::in_runs(name),
    };
    match entry {
        Some(name) => catalog.gpu(name).map_err(Refusal::Unsupported),
        None if name.is_empty() => Refusal::unsupported("GPU unknown"),
        None => Refusal::unsupported(format!("GPU unknown: {name}")),
    }
}

/// Cluster of a row: the device's scale-up domains joined by one network.
pub(super) fn cluster(row: &Row, cells: &Cells, gpu: Gpu, catalog: &CachedCatalog) -> Result<Cluster, Refusal> {
    let network = text(row.interconnect_inter.as_ref());
    let read = rate(network, f64::from(cells.gpus_per_node));
    let assumed = gpu.scale_up.axes.is_empty() && (read.is_none() || network.contains(ASSUMED));
    let bandwidth = read.map_or_else(|| gpu.nic.clone(), |value| Sourced { value, source: "published-runs".into() });
    // A device that has no domain of its own, as two GH200 on one board.
    let joined = gpu.scale_up.gpus == 1 && text(row.interconnect_intra.as_ref()).contains("NVLink");
    let domain = if joined { cells.gpus_per_node } else { gpu.scale_up.within_node(cells.gpus_per_node) };
    let transport = catalog.transport(transport(network)).map_err(Refusal::Unsupported)?;
    let cluster = Cluster {
        name: format!("{} × {}", cells.gpus, gpu.name),
        gpus: cells.gpus,
        gpus_per_node: cells.gpus_per_node,
        host: gpu.superchip.as_ref().map_or(Host::X86, |board| board.host),
        host_memory: None,
        scale_up: ScaleUp { gpus: domain, ..gpu.scale_up.clone() },
        levels: vec![Level {
            name: "network".into(),
            gpus: cells.gpus.max(domain),
            bandwidth,
            assumed,
            oversubscription: 1.0,
            efficiency: transport.efficiency,
            hop_latency: transport.hop_latency,
            in_network_reduction: false,
            latency: meshwright_engine::units::Seconds::ZERO,
        }],
        gpu,
        source: "published-runs".into(),
        machine_gpus: None,
        pool_gpus: None,
    };
    cluster.check().map_err(Refusal::Invalid)?;
    Ok(cluster)
}

/// Name of a network's transport in the catalogue.
fn transport(network: &str) -> &'static str {
    if network.contains("EFA") {
        "efa"
    } else if network.contains("OmniPath") || network.contains("Omni-Path") {
        "omni-path"
    } else {
        "infiniband"
    }
}

/// Bandwidth of one GPU into the network, from text such as `8x400Gb IB`, `1600Gbps RoCE per node`, `400Gb/s per GPU`.
/// Clauses about Ethernet and PCI Express beside others are skipped: they describe other networks.
fn rate(text: &str, gpus_per_node: f64) -> Option<BytesPerSec> {
    let is_other =
        |clause: &&str| ["Ethernet", "Data bandwidth", "PCIe-NIC"].iter().any(|other| clause.contains(other));
    let clauses: Vec<&str> = text.split([',', ';']).filter(|clause| !is_other(clause)).collect();
    let text = if clauses.is_empty() { text.to_owned() } else { clauses.join(" ") };
    let gigabits = gigabits(&text)?;
    let gigabytes = if text.contains("per GPU") {
        gigabits / 8.0
    } else if let Some(ports) = ports(&text) {
        ports * gigabits / 8.0 / gpus_per_node
    } else if gigabits >= 1000.0 {
        gigabits / 8.0 / gpus_per_node
    } else {
        return None;
    };
    (gigabytes > 0.0).then(|| BytesPerSec::gbytes(gigabytes))
}

/// Number before the first `Gb`: of three digits or more, or of a port, as the `25` of `2x25Gb`.
fn gigabits(text: &str) -> Option<f64> {
    text.match_indices("Gb").find_map(|(at, _)| {
        let before = text[..at].trim_end();
        let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
        let of_port = before[..digits].ends_with('x');
        before[digits..].parse().ok().filter(|rate| of_port || *rate >= 100.0)
    })
}

/// Number of ports: the `8` of `8x400Gb` and of `8x ConnectX-7`.
fn ports(text: &str) -> Option<f64> {
    text.match_indices('x').find_map(|(at, _)| {
        let before = &text[..at];
        let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
        before[digits..].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_from_what_sources_print() {
        let gbytes = |text: &str| rate(text, 8.0).map(|rate| rate.get() / 1e9);
        for (text, expected) in [
            ("8x400Gb IB", Some(50.0)),
            ("4x ConnectX-7 IB NDR 400 Gb/s", Some(25.0)),
            ("1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", Some(50.0)),
            ("1600Gbps RoCE per node", Some(25.0)),
            ("EFA 3200Gbps per node", Some(50.0)),
            ("400Gb/s RDMA per GPU", Some(50.0)),
            ("4x100Gb OmniPath per node (Jean Zay)", Some(6.25)),
            ("InfiniBand; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", None),
            ("1x1Gb Ethernet", Some(0.015_625)),
            ("2x25Gb Ethernet, 8x200Gb RoCE", Some(25.0)),
            ("10Gb Ethernet", None),
            ("100GbE InfiniBand", None),
            ("single node", None),
            ("", None),
        ] {
            assert_eq!(gbytes(text), expected, "{text}");
        }
    }
}
