//! Hosts of pools in the order in which a launcher must list them.

use super::mixture::{Distribution, Mixture, Pooled};

/// Consecutive hosts of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Index of the pool.
    pub pool: usize,
    /// Node rank of the first host.
    pub first: u32,
    /// Number of hosts.
    pub nodes: u32,
}

/// Reason why a launcher cannot list the hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlisted {
    /// The hosts of two pools have different numbers of GPUs, but a launcher starts the same number of processes on every
    /// host.
    #[error(
        "hosts of pool {0} have {1} GPUs and those of pool {2} {3}, and launchers start the same number of processes on every \
         host: train on one of them, whose `[[pool]]` alone in the file is a cluster"
    )]
    UnlikeHosts(String, u32, String, u32),
    /// A pool ends inside a host.
    #[error("the {1} GPUs of pool {0} do not fill whole hosts of {2}: `gpus` of that pool must be a multiple of {2}")]
    PartOfAHost(String, u32, u32),
}

/// Hosts of each pool in rank order: for replicas pool by pool as in the file, for stages in pipeline order.
///
/// # Errors
///
/// No list of whole hosts expresses the mixture.
pub fn hosts(pooled: &Pooled, mixture: &Mixture) -> Result<Vec<Hosts>, Unlisted> {
    let pools = &pooled.cluster().pools;
    let each = pools[0].cluster.gpus_per_node;
    for pool in pools {
        let (gpus, per_node) = (pool.cluster.gpus, pool.cluster.gpus_per_node);
        if per_node != each {
            return Err(Unlisted::UnlikeHosts(pools[0].name.clone(), each, pool.name.clone(), per_node));
        }
        if !gpus.is_multiple_of(per_node) {
            return Err(Unlisted::PartOfAHost(pool.name.clone(), gpus, per_node));
        }
    }
    let mut order: Vec<usize> = match &mixture.distribution {
        Distribution::Replicas { .. } => (0..pools.len()).collect(),
        Distribution::Stages { of_rank, .. } => of_rank.clone(),
    };
    order.dedup();
    let mut first = 0;
    let list = |pool: usize| {
        let here = Hosts { pool, first, nodes: pools[pool].cluster.gpus / each };
        first += here.nodes;
        here
    };
    Ok(order.into_iter().map(list).collect())
}
