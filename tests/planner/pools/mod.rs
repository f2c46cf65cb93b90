//! Pools of heterogeneous GPUs against one cluster and against enumeration.

mod domains;
mod files;
mod launch;
mod replicas;
mod stages;

use meshwright::catalog::{self, Overrides};
use meshwright::cluster::pools::{Link, Pool, PooledCluster};
use meshwright::cluster::{Cluster, Level};
use meshwright::gpu::Format;
use meshwright::model::Model;
use meshwright::pools::Pooled;
use meshwright::problem::{HbmProfile, Problem, ProblemError};
use meshwright::workload::{Adaptation, Half, Optimizer, Workload, recipe};

const SOURCE: &str = "dgx-superpod-h100";

fn cluster(name: &str, gpus: u32) -> Cluster {
    catalog::cluster(name, &Overrides::default()).unwrap().resized(gpus)
}

/// A leaf of `gpus` GPUs at 400 Gb/s, and nothing above it.
fn leaf(name: &str, gpus: u32) -> Cluster {
    let mut cluster = cluster(name, gpus);
    cluster.levels = vec![level("leaf", gpus)];
    cluster.check().unwrap();
    cluster
}

fn level(name: &str, gpus: u32) -> Level {
    let mut level = cluster("dgx-h100-1k", 1024).levels[0].clone();
    (level.name, level.gpus) = (name.into(), gpus);
    level
}

fn link(between: &[&str], bandwidth: &str) -> Link {
    let mut like = level("link", 0).bandwidth;
    like.value = bandwidth.parse().unwrap();
    Link {
        between: between.iter().map(|name| (*name).to_owned()).collect(),
        bandwidth: like,
        latency: None,
        trunk: None,
        oversubscription: 1.0,
        efficiency: 0.85,
    }
}

fn pools(clusters: Vec<Cluster>, bandwidth: &str) -> PooledCluster {
    let names: Vec<String> = (0..clusters.len()).map(|at| format!("pool-{at}")).collect();
    let between: Vec<&str> = names.iter().map(String::as_str).collect();
    let links = vec![link(&between, bandwidth)];
    let pools = clusters.into_iter().zip(&names);
    let pools = pools.map(|(cluster, name)| Pool { name: name.clone(), cluster, price: None }).collect();
    let pooled = PooledCluster { name: "test".into(), pools, links, source: SOURCE.into() };
    pooled.check().unwrap();
    pooled
}

fn problem(model: &str, cluster: Cluster, global_batch: u32) -> Result<Problem, ProblemError> {
    problem_of(catalog::model(model, &Overrides::default()).unwrap(), cluster, global_batch)
}

fn problem_of(model: Model, cluster: Cluster, global_batch: u32) -> Result<Problem, ProblemError> {
    let none = Overrides::default();
    let stack = catalog::stack("nemo-25", &none).unwrap();
    let workload = Workload {
        global_batch,
        seq_len: 4096,
        document_len: None,
        format: Format::Bf16,
        half: Half::default(),
        recipe: recipe(stack.usual_recipe(Format::Bf16)).unwrap(),
        optimizer: Optimizer::Elementwise,
        adaptation: Adaptation::Full,
        imbalance: 1.0,
        drops_tokens: false,
    };
    Problem::new(model, cluster, workload, stack, HbmProfile::Normal)
}

fn pooled(model: &str, clusters: Vec<Cluster>, bandwidth: &str, global_batch: u32) -> Pooled {
    Pooled::new(pools(clusters, bandwidth), |cluster| problem(model, cluster, global_batch)).unwrap()
}
