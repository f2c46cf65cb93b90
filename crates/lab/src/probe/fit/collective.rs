//! Fits of the collective curves inside one scale-up domain.

use std::collections::{BTreeMap, BTreeSet};

use super::{medians, minimise};
use crate::probe::curves::rounded;
use crate::probe::kernel::Kernel;
use crate::probe::sample::Sample;
use meshwright_engine::gpu::{Collective, CollectiveCurve};
use meshwright_engine::units::{Bytes, BytesPerSec, Seconds};

/// Fewest message sizes for the curve of a group.
const LEAST: usize = 6;

/// Curves by ascending number of ranks, for each group size that was timed over enough message sizes.
///
/// ```text
/// T = α + φ·S/B∞·(1 + (S½/S)^β)          specification §3.2
/// ```
pub fn curves(samples: &BTreeMap<Kernel, Sample>, wanted: Collective) -> Vec<CollectiveCurve> {
    let groups: BTreeSet<u64> = samples
        .keys()
        .filter_map(|kernel| match kernel {
            Kernel::Collective { op, ranks, nodes: 1, bytes: _ } if *op == wanted && *ranks > 1 => Some(*ranks),
            _ => None,
        })
        .collect();
    groups.into_iter().filter_map(|ranks| curve(samples, wanted, ranks)).collect()
}

/// Curve of one group size, from the logarithms of α, B∞, S½ and β.
fn curve(samples: &BTreeMap<Kernel, Sample>, wanted: Collective, group: u64) -> Option<CollectiveCurve> {
    let timed = medians(samples, |kernel| match kernel {
        Kernel::Collective { op, ranks, nodes: 1, bytes } if *op == wanted && *ranks == group => Some(*bytes as f64),
        _ => None,
    });
    if timed.len() < LEAST {
        return None;
    }
    let n = group as f64;
    let share = if wanted == Collective::AllReduce { 2.0 } else { 1.0 } * (n - 1.0) / n;
    let least = timed.iter().map(|(_, time)| time.get()).fold(f64::INFINITY, f64::min);
    let fastest = timed.iter().map(|(bytes, time)| share * bytes / time.get()).fold(0.0, f64::max);
    let predict = |p: &[f64], bytes: f64| {
        let saturation = 1.0 + (p[2].exp() / bytes).powf(p[3].exp());
        p[0].exp() + share * bytes / p[1].exp() * saturation
    };
    let residuals =
        |p: &[f64]| timed.iter().map(|(bytes, time)| (predict(p, *bytes) / time.get()).ln()).collect::<Vec<_>>();
    let starts: Vec<Vec<f64>> = [(5e6, 0.5), (2e7, 0.4), (2e6, 0.8)]
        .into_iter()
        .map(|(half, beta): (f64, f64)| vec![least.ln(), (fastest * 1.1).ln(), half.ln(), beta.ln()])
        .collect();
    let (found, _) = minimise(&starts, &residuals)?;
    let value = |at: usize| rounded(found[at].exp());
    Some(CollectiveCurve {
        ranks: group as u32,
        latency: Seconds::new(value(0)),
        bandwidth: BytesPerSec::new(value(1)),
        half_size: Bytes::new(value(2)),
        exponent: value(3),
    })
}
