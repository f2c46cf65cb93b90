//! Collectives inside one scale-up domain: measured curves by group size.

use crate::cluster::Cluster;
use crate::gpu::{Collective, CollectiveCurve, Topology};
use crate::units::{Bytes, BytesPerSec, Seconds};

/// Growth of the latency with each doubling beyond the largest measured group. Source: specification §3.2 [A].
const LATENCY_PER_DOUBLING: f64 = 0.35;

/// Curve of a group of `ranks`: measured, interpolated between measured sizes, or extrapolated beyond the largest.
///
/// ```text
/// beyond n0:  α·(1 + 0.35·log2(n/n0)),  S½·n/n0,  B∞ and β unchanged
/// ```
///
/// Source: specification §3.2.
pub fn curve(cluster: &Cluster, op: Collective, ranks: u32) -> CollectiveCurve {
    let curves = &cluster.gpu.collectives[&op];
    let n = f64::from(ranks);
    let last = curves.last().expect("every device has curves: Gpu::check");
    let above = curves.iter().position(|c| c.ranks >= ranks);
    let mut found = match above {
        Some(0) => curves[0].clone(),
        Some(at) if curves[at].ranks == ranks => curves[at].clone(),
        Some(at) => {
            let (low, high) = (&curves[at - 1], &curves[at]);
            let x = (n - f64::from(low.ranks)) / f64::from(high.ranks - low.ranks);
            CollectiveCurve {
                ranks,
                latency: low.latency + (high.latency - low.latency) * x,
                bandwidth: low.bandwidth + (high.bandwidth - low.bandwidth) * x,
                half_size: low.half_size + (high.half_size - low.half_size) * x,
                exponent: low.exponent + (high.exponent - low.exponent) * x,
            }
        }
        None => {
            let times = n / f64::from(last.ranks);
            CollectiveCurve {
                ranks,
                latency: last.latency * (1.0 + LATENCY_PER_DOUBLING * libm::log2(times)),
                half_size: last.half_size * times,
                ..last.clone()
            }
        }
    };
    // In a mesh of direct links a smaller group sees only the links to its own members (specification §3.12).
    if cluster.scale_up.topology == Topology::Mesh && ranks < cluster.scale_up.gpus {
        found.bandwidth = found.bandwidth.min(cluster.scale_up.pair_bandwidth * (n - 1.0));
    }
    found
}

/// Bus bandwidth of very large buffers over `ranks` GPUs of one domain.
pub fn asymptote(cluster: &Cluster, op: Collective, ranks: u32) -> BytesPerSec {
    curve(cluster, op, ranks).bandwidth
}

/// Time of a collective over a group inside one domain.
///
/// ```text
/// T = α + φ·S/B∞·(1 + (S½/S)^β)          φ = (n−1)/n, all-reduce 2(n−1)/n
/// ```
///
/// Source: specification §3.2.
pub fn time(cluster: &Cluster, op: Collective, payload: Bytes, ranks: u32) -> Seconds {
    on_curve(&curve(cluster, op, ranks), op, payload, ranks)
}

/// Time of a collective on a given curve.
pub fn on_curve(curve: &CollectiveCurve, op: Collective, payload: Bytes, ranks: u32) -> Seconds {
    let n = f64::from(ranks);
    let share = if op == Collective::AllReduce { 2.0 } else { 1.0 } * (n - 1.0) / n;
    let saturation = 1.0 + libm::pow(curve.half_size / payload, curve.exponent);
    curve.latency + payload / curve.bandwidth * (share * saturation)
}
