//! Entries of the catalogue that a page offers to choose from.

use std::error::Error;

use serde_json::{Value, json};

use meshwright::catalog::{self, ClusterOrPools, Overrides};
use meshwright::frameworks;
use meshwright::gpu::Format;

/// Models, clusters, stacks, frameworks and purchase terms of the catalogue, each with the figures that a chooser shows.
///
/// # Errors
///
/// An entry of the catalogue is invalid.
pub fn catalogue() -> Result<Value, Box<dyn Error>> {
    let sets = Overrides::default();
    let models = catalog::model_names().into_iter().map(|name| {
        let model = catalog::model(name, &sets)?;
        let parameters = model.parameters();
        Ok(json!({
            "name": name,
            "title": model.name,
            "parameters": parameters.total,
            "active": parameters.active,
            "layers": model.layers(),
            "hidden": model.hidden,
            "seq_len": model.seq_len,
            "experts": model.experts(),
        }))
    });
    let models = models.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let file_of = |title: &str| {
        catalog::gpu_names().into_iter().find(|name| catalog::gpu(name).is_ok_and(|gpu| gpu.name == title))
    };
    let clusters = catalog::cluster_names().into_iter().map(|name| {
        let ClusterOrPools::Cluster(cluster) = catalog::machine(name, &sets)? else { return Ok(None) };
        let nic = cluster.levels.first().map_or(cluster.gpu.nic.value, |level| level.bandwidth.value);
        Ok(Some(json!({
            "name": name,
            "title": cluster.name,
            "gpu_file": file_of(&cluster.gpu.name),
            "gpu": cluster.gpu.name,
            "gpus": cluster.gpus,
            "gpus_per_node": cluster.gpus_per_node,
            "domain": cluster.scale_up.gpus,
            "hbm_gb": cluster.gpu.hbm.value.get() / 1e9,
            "nic_gbps": nic.get() * 8.0 / 1e9,
            "peak_tflops": cluster.gpu.peak_of(Format::Bf16).map(meshwright::units::FlopsPerSec::as_tflops),
            "hbm_tbps": cluster.gpu.hbm_bandwidth.value.get() / 1e12,
        })))
    });
    let clusters = clusters.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let market = catalog::market(catalog::defaults::MARKET, &sets)?;
    Ok(json!({
        "models": models,
        "clusters": clusters.into_iter().flatten().collect::<Vec<_>>(),
        "stacks": catalog::stack_names(),
        "frameworks": frameworks::names().collect::<Vec<_>>(),
        "terms": market.terms.keys().collect::<Vec<_>>(),
        "version": env!("CARGO_PKG_VERSION"),
    }))
}
