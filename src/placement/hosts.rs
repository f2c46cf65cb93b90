//! Placement as a list of hosts: launchers number ranks in the order of the list.

use meshwright_engine::cluster::Cluster;
use meshwright_engine::collective::{RankMapping, units};
use meshwright_engine::plan::Plan;

use super::grid::{filled, sequence, whole_host};

/// Host of each node rank, counted from 0 in the cluster's own order: unit by unit, domain by domain. On a torus, the chip
/// of each rank. `None` if hosts have no whole part of the grid.
pub fn host_order(cluster: &Cluster, plan: &Plan, mapping: &RankMapping) -> Option<Vec<u32>> {
    let (host, world) = (whole_host(cluster), plan.layout.world_size());
    let ranks: Vec<u32> = mapping.axes().iter().map(|axis| axis.ranks).collect();
    let of_host = filled(plan, plan.order, &ranks, host)?;
    let mut holds = vec![of_host];
    let mut sizes = Vec::new();
    for (unit, gpus) in units(cluster).into_iter().enumerate().filter(|(_, gpus)| *gpus > host) {
        let held: Vec<u32> = mapping.axes().iter().map(|axis| axis.inside[unit]).collect();
        sizes.push((gpus, held.iter().product()));
        holds.push(held);
    }
    sizes.push((cluster.gpus, world));
    holds.push(ranks.clone());
    let hosts = slots(&sizes, host, 0, cluster.gpus).into_iter().next()?;
    let counted = sequence(plan, plan.order, &ranks);
    let place = |node: u32| {
        let mut left = node * host;
        let mut at = vec![0; ranks.len()];
        for &axis in &counted {
            at[axis] = left % ranks[axis];
            left /= ranks[axis];
        }
        let (mut place, mut weight) = (0, 1);
        for pair in holds.windows(2) {
            for axis in 0..ranks.len() {
                let times = pair[1][axis] / pair[0][axis];
                place += at[axis] / pair[0][axis] % times * weight;
                weight *= times;
            }
        }
        place as usize
    };
    (0..world / host).map(|node| hosts.get(place(node)).copied()).collect()
}

/// Hosts of every block of the last size that fits the units among `gpus` GPUs from `start` on. Each block lists its hosts
/// in the order of its smaller blocks; `sizes` = GPUs of a unit, ranks of a block.
fn slots(sizes: &[(u32, u32)], host: u32, start: u32, gpus: u32) -> Vec<Vec<u32>> {
    let Some((&(_, ranks), below)) = sizes.split_last() else {
        return (start / host..(start + gpus) / host).map(|at| vec![at]).collect();
    };
    let (unit, smaller) = below.last().copied().unwrap_or((host, host));
    let parts = (0..gpus).step_by(unit as usize);
    let blocks: Vec<Vec<u32>> =
        parts.flat_map(|part| slots(below, host, start + part, unit.min(gpus - part))).collect();
    blocks.chunks_exact((ranks / smaller) as usize).map(<[Vec<u32>]>::concat).collect()
}
