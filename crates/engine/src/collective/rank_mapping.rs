//! Mapping of ranks to the units of a cluster when hosts are not listed in rank order.

use super::group::Group;
use crate::cluster::Cluster;
use crate::gpu::Topology;

/// Axis of the rank grid, such as tensor or data parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of ranks on the axis.
    pub ranks: u32,
    /// Ranks of the axis in one unit of each size (as [`units`] lists them), nearest first; each is a multiple of the one
    /// before.
    pub inside: Vec<u32>,
}

/// Mapping of a rank grid to a cluster: its axes, innermost first, stages last (`tp-cp-ep-dp-pp`), each with its ranks
/// in each unit of the cluster.
///
/// A group is a range of that order: ranks `stride` apart, `ranks` of them. Regular strides are the grid of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankMapping {
    pub(super) axes: Vec<Axis>,
    /// Number of units below the scale-up domain: axes of a torus.
    pub(super) below: usize,
}

/// GPUs of the units that may contain a part of a group, innermost first: cumulative products of torus axes, the scale-up
/// domain, and each level except the last, which joins all.
pub fn units(cluster: &Cluster) -> Vec<u32> {
    let axes = if cluster.scale_up.topology == Topology::Torus { cluster.scale_up.axes.as_slice() } else { &[] };
    let mut chips = 1;
    let mut units: Vec<u32> = axes
        .iter()
        .map(|axis| {
            chips *= axis;
            chips
        })
        .collect();
    units.pop();
    units.push(cluster.scale_up.gpus);
    units.extend(cluster.levels.iter().rev().skip(1).rev().map(|level| level.gpus));
    units
}

impl RankMapping {
    /// Mapping of ranks on a cluster; `axes` innermost first, stages last, each with one number for each of its [`units`].
    pub fn new(cluster: &Cluster, axes: Vec<Axis>) -> Self {
        Self { axes, below: units(cluster).len() - cluster.levels.len().max(1) }
    }

    /// Axes of the grid, innermost first.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Ranks of a group inside one scale-up domain (`above` = 0) or one unit of the level `above` levels higher; the last level
    /// holds all of them.
    pub fn inside(&self, group: Group, above: usize) -> u32 {
        self.inside_unit(group, self.below + above)
    }

    /// Ranks of a group along each axis of a torus.
    pub fn along(&self, group: Group) -> impl Iterator<Item = u32> + '_ {
        let mut before = 1;
        (0..=self.below).map(move |unit| {
            let inside = self.inside_unit(group, unit);
            inside / std::mem::replace(&mut before, inside)
        })
    }

    /// Ranks of a group in one unit: the product over the axes in the group's range, nearest first.
    fn inside_unit(&self, group: Group, unit: usize) -> u32 {
        let (from, to) = (group.stride.max(1), group.stride.max(1).saturating_mul(group.ranks));
        let (mut stride, mut inside) = (1, 1);
        for axis in &self.axes {
            let end = stride * axis.ranks;
            if from.max(stride) < to.min(end) {
                let (low, high) = (from.max(stride) / stride, to.min(end) / stride);
                let here = axis.inside.get(unit).map_or(axis.ranks, |inside| inside / low);
                inside *= here.clamp(1, high / low);
            }
            stride = end;
        }
        inside
    }

    /// Share of neighbours `distance` apart that are in different units `above` levels over the domain: along the pipeline,
    /// of n stages in runs of s, (n/s − 1)/(n − 1) of them.
    pub fn crossing_share(&self, distance: u32, above: usize) -> f64 {
        let stages = self.axes.last().filter(|axis| {
            let ranks: u32 = self.axes.iter().map(|axis| axis.ranks).product();
            axis.ranks > 1 && distance * axis.ranks == ranks
        });
        let Some(stages) = stages else {
            return if self.inside(Group { ranks: 2, stride: distance }, above) < 2 { 1.0 } else { 0.0 };
        };
        let inside = stages.inside.get(self.below + above).copied().unwrap_or(stages.ranks);
        f64::from(stages.ranks / inside - 1) / f64::from(stages.ranks - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 16 stages of 8·4 ranks each. Four stages and two replicas share a pod, all four replicas of a stage two pods.
    #[test]
    fn groups_are_ranges_of_axes() {
        let inside = |domain, rack, pod| vec![domain, rack, pod];
        let axes = vec![
            Axis { ranks: 8, inside: inside(8, 8, 8) },
            Axis { ranks: 4, inside: inside(1, 2, 2) },
            Axis { ranks: 16, inside: inside(1, 1, 4) },
        ];
        let mapping = RankMapping { axes, below: 0 };
        let inside_units = |ranks, stride| [0, 1, 2, 3].map(|above| mapping.inside(Group { ranks, stride }, above));
        assert_eq!(inside_units(8, 1), [8, 8, 8, 8]);
        assert_eq!(inside_units(4, 8), [1, 2, 2, 4]);
        assert_eq!(inside_units(32, 1), [8, 16, 16, 32]);
        assert_eq!(inside_units(16, 32), [1, 1, 4, 16]);
        // The far half of the replicas: the two near ones lie in one rack, so the next lie in another.
        assert_eq!(inside_units(2, 16), [1, 1, 1, 2]);
        let crossing = [0, 1, 2, 3].map(|above| (mapping.crossing_share(32, above) * 15.0).round() as u32);
        assert_eq!(crossing, [15, 15, 3, 0]);
    }
}
