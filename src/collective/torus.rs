//! Collectives on a torus of chips (TPU, Trainium).

use super::Group;
use crate::gpu::{Collective, ScaleUp};
use crate::units::{Bytes, Seconds};

/// Start of a hop between neighbouring chips. Source: specification §3.11.
const HOP: f64 = 1.0;

/// Time over a group that occupies whole axes, innermost first.
///
/// ```text
/// all-gather, reduce-scatter   max(S·(n−1)/n / ΣW,  hops · 1 us)        ΣW = links of the axes used, both directions
/// all-reduce                   reduce-scatter + all-gather
/// all-to-all                   ¼ of the all-gather of the same global array (n·S)
/// ```
///
/// An axis that the group does not fill has no wrap-around: one direction instead of two. S is the whole tensor;
/// for all-to-all, one rank's send buffer. Source: specification §3.5 and §3.11, after [scaling-book].
pub fn time(torus: &ScaleUp, op: Collective, payload: Bytes, group: Group) -> Seconds {
    let n = f64::from(group.ranks);
    let (links, hops) = axes_used(&torus.axes, group);
    let bandwidth = torus.pair_bandwidth * links;
    let gather = |payload: Bytes| (payload / bandwidth * ((n - 1.0) / n)).max(Seconds::micros(HOP * hops));
    match op {
        Collective::AllGather | Collective::ReduceScatter => gather(payload),
        Collective::AllReduce => gather(payload) * 2.0,
        Collective::AllToAll => gather(payload * n) / 4.0,
    }
}

/// Link directions that a group can use at once, and the hops to its farthest member.
fn axes_used(axes: &[u32], group: Group) -> (f64, f64) {
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
    if links == 0.0 { (1.0, f64::from(group.ranks)) } else { (links, hops) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Topology;
    use crate::units::BytesPerSec;

    /// Specification, appendix A: v5p, 268 MB over one wrapped ring of 16 is 1.26 ms; over two axes 0.63 ms.
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
        let gather = |ranks| time(&torus, Collective::AllGather, Bytes::new(268e6), Group { ranks, stride: 1 });
        assert!((gather(16).get() / 1.26e-3 - 1.0).abs() < 0.01, "{:?}", gather(16));
        assert!((gather(256).get() / 0.667e-3 - 1.0).abs() < 0.01, "{:?}", gather(256));
    }
}
