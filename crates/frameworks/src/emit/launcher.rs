//! `torchrun` on every node: how many nodes, and its options.

use super::language::Shell;
use super::snippet::{Snippet, snippet};

/// Nodes and GPUs on each: a part of one node stays one node.
pub(crate) fn nodes(gpus: u32, per_node: u32) -> (u32, u32) {
    if gpus <= per_node {
        (1, gpus)
    } else if gpus.is_multiple_of(per_node) {
        (gpus / per_node, per_node)
    } else {
        let fit = (1..=per_node).rev().find(|n| gpus.is_multiple_of(*n)).unwrap_or(1);
        (gpus / fit, fit)
    }
}

/// Options of `torchrun` on every node.
pub(crate) fn distributed(nodes: u32, per_node: u32) -> [Snippet<Shell>; 5] {
    [
        snippet!("--nnodes {}", nodes),
        snippet!("--nproc-per-node {}", per_node),
        Snippet::fixed("--node-rank \"${SLURM_PROCID:-0}\""),
        Snippet::fixed("--master-addr \"${MASTER_ADDR:-localhost}\""),
        Snippet::fixed("--master-port \"${MASTER_PORT:-29500}\""),
    ]
}
