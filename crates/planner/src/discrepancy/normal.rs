//! Normal law: its density, its distribution function and a quadrature over it.

use std::f64::consts::{PI, SQRT_2};

/// Number of nodes of the quadrature.
const NODES: u32 = 61;
/// Half the range of the nodes, in standard deviations.
const SPAN: f64 = 4.0;

/// Mean and variance of a quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanVariance {
    /// Mean.
    pub mean: f64,
    /// Variance.
    pub variance: f64,
}

/// Density of a normal law.
pub fn normal_density(value: f64, mean: f64, deviation: f64) -> f64 {
    let z = (value - mean) / deviation;
    libm::exp(-0.5 * z * z) / (deviation * (2.0 * PI).sqrt())
}

/// Share of the standard normal law below `z`.
pub fn normal_share_below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / SQRT_2)
}

/// Node of a quadrature.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuadratureNode {
    pub value: f64,
    pub weight: f64,
}

/// Equidistant nodes of a quadrature over a normal law, with their weights: the density times the distance between nodes.
/// The weights sum to one but for the 6·10⁻⁵ beyond the range.
pub(super) fn nodes(mean: f64, deviation: f64) -> impl Iterator<Item = QuadratureNode> {
    let step = 2.0 * SPAN / f64::from(NODES - 1);
    (0..NODES).map(move |node| {
        let z = f64::from(node).mul_add(step, -SPAN);
        QuadratureNode { value: mean + z * deviation, weight: step * normal_density(z, 0.0, 1.0) }
    })
}
