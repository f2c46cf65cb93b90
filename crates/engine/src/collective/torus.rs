//! Collectives on a torus of chips (TPU, Trainium).

use super::group::Group;
use super::rank_mapping::RankMapping;
use crate::gpu::{Collective, ScaleUp};
use crate::units::{Bytes, Seconds};

/// Latency of a hop between neighbouring chips in microseconds. Source: specification §3.11.
const HOP: f64 = 1.0;

/// Ratio of the time of an all-gather to that of an all-to-all of the same global array: on average an element of the all-to-all
/// moves a quarter of the ring, and both directions are in use. Source: specification §3.11, after [scaling-book].
const ALL_TO_ALL: f64 = 4.0;

/// Time of a collective over a group that occupies whole axes, innermost first.
///
/// ```text
/// all-gather, reduce-scatter   max(S·(n−1)/n / ΣW,  hops · 1 us)        ΣW = links of the axes used, both directions
/// all-reduce                   reduce-scatter + all-gather
/// all-to-all                   ¼ of the all-gather of the same global array (n·S)
/// ```
///
/// An axis that the group does not fill has no wrap-around: one direction instead of two. S is the whole tensor;
/// for all-to-all, one rank's send buffer. Source: specification §3.5 and §3.11, after [scaling-book].
pub fn time(torus: &ScaleUp, mapping: Option<&RankMapping>, op: Collective, payload: Bytes, group: Group) -> Seconds {
    let n = f64::from(group.ranks);
    let Route { links, hops } = match mapping {
        Some(mapping) => axes_shared(&torus.axes, mapping, group),
        None => axes_used(&torus.axes, group),
    };
    let bandwidth = torus.pair_bandwidth * links;
    let gather = |payload: Bytes| (payload / bandwidth * ((n - 1.0) / n)).max(Seconds::micros(HOP * hops));
    match op {
        Collective::AllGather | Collective::ReduceScatter => gather(payload),
        Collective::AllReduce => gather(payload) * 2.0,
        Collective::AllToAll => gather(payload * n) / ALL_TO_ALL,
    }
}

/// Route of a group through a torus.
#[derive(Debug, PartialEq)]
struct Route {
    /// Link directions that it can use at once.
    links: f64,
    /// Hops to its farthest member.
    hops: f64,
}

/// Route of a group where ranks fill the axes in order.
fn axes_used(axes: &[u32], group: Group) -> Route {
    let (mut stride, mut left) = (group.stride.max(1), group.ranks);
    let (mut links, mut hops) = (0.0, 0.0);
    for &length in axes {
        if left <= 1 {
            break;
        }
        if stride >= length {
            stride = stride.div_ceil(length);
            continue;
        }
        let here = (length / stride).min(left).max(1);
        let wraps = stride == 1 && here == length;
        if here > 1 {
            links += if wraps { 2.0 } else { 1.0 };
            hops += f64::from(here) * f64::from(stride) / if wraps { 2.0 } else { 1.0 };
        }
        left = left.div_ceil(here);
        stride = 1;
    }
    if links == 0.0 { Route { links: 1.0, hops: f64::from(group.ranks) } } else { Route { links, hops } }
}

/// Route of a group whose ranks have a known mapping. Groups inside it come first on an axis: where neighbours of
/// this group are s chips apart, s groups share the links (specification §3.11).
fn axes_shared(axes: &[u32], mapping: &RankMapping, group: Group) -> Route {
    let nearer = Group { ranks: group.stride, stride: 1 };
    let (mut links, mut hops) = (0.0, 0.0);
    for ((&length, here), stride) in axes.iter().zip(mapping.along(group)).zip(mapping.along(nearer)) {
        if here > 1 {
            let ways = if here == length { 2.0 } else { 1.0 };
            links += ways / f64::from(stride);
            hops += f64::from(here) * f64::from(stride) / ways;
        }
    }
    Route { links, hops }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Axis;
    use crate::gpu::Topology;
    use crate::units::BytesPerSec;

    /// Specification, appendix A: an all-gather of 268 MB on v5p takes 1.26 ms over one wrapped ring of 16, and 0.67 ms
    /// over all 256 chips of two axes.
    #[test]
    fn an_all_gather_on_a_v5p() {
        let torus = ScaleUp {
            gpus: 256,
            topology: Topology::Torus,
            bandwidth: BytesPerSec::gbytes(600.0),
            pair_bandwidth: BytesPerSec::gbytes(100.0),
            axes: vec![16, 16],
            source: "scaling-book".into(),
        };
        let gather = |ranks| time(&torus, None, Collective::AllGather, Bytes::new(268e6), Group { ranks, stride: 1 });
        assert!((gather(16).get() / 1.26e-3 - 1.0).abs() < 0.01, "{:?}", gather(16));
        assert!((gather(256).get() / 0.667e-3 - 1.0).abs() < 0.01, "{:?}", gather(256));
    }

    /// By hand, 8 × 8 × 16 chips: 8 ranks on a whole axis have both directions and 4 hops; on a half of the third axis, whose
    /// neighbours are 2 chips apart, half of one direction and 16 hops; on a corner 2 × 2 × 2 one direction of each, 6 hops.
    #[test]
    fn axes_are_shared() {
        let axes = |near: [u32; 3], inside: [u32; 3], far: [u32; 3]| {
            let axis = |inside: [u32; 3]| Axis { ranks: inside[2], inside: inside.to_vec() };
            let mapping = RankMapping { axes: vec![axis(near), axis(inside), axis(far)], below: 2 };
            axes_shared(&[8, 8, 16], &mapping, Group { ranks: inside[2], stride: near[2] })
        };
        assert_eq!(axes([1, 8, 8], [8, 8, 8], [1, 1, 16]), Route { links: 2.0, hops: 4.0 });
        assert_eq!(axes([1, 1, 2], [1, 1, 8], [8, 64, 64]), Route { links: 0.5, hops: 16.0 });
        assert_eq!(axes([1, 1, 1], [2, 4, 8], [4, 16, 128]), Route { links: 3.0, hops: 6.0 });
    }
}
