//! Fit of the network: efficiency and latency of collectives across nodes.

use std::collections::BTreeMap;

use super::{log_error, medians, minimise};
use crate::probe::analytic::Analytic;
use crate::probe::curves::{Curves, Network, rounded};
use crate::probe::kernel::Kernel;
use crate::probe::sample::{Machine, Sample};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::stack::Stack;

/// Fewest message sizes for a fit.
const LEAST: usize = 6;

/// Efficiency and hop latency of the levels above the scale-up domain (specification §3.3, §3.4), from collectives that
/// cross nodes. Inside the domain the fitted curves are used, if there are any.
pub fn fit(samples: &BTreeMap<Kernel, Sample>, cluster: &Cluster, stack: &Stack, curves: &Curves) -> Option<Network> {
    let level = cluster.levels.first()?;
    let timed = medians(samples, |kernel| match kernel {
        Kernel::Collective { nodes, .. } if *nodes > 1 => Some(*kernel),
        _ => None,
    });
    if timed.len() < LEAST {
        return None;
    }
    let mut known = cluster.clone();
    known.gpu.collectives.extend(curves.collectives.clone());
    let errors = |p: &[f64]| {
        let mut cluster = known.clone();
        for level in &mut cluster.levels {
            level.efficiency = p[0].exp();
            level.hop_latency = p[1].exp();
        }
        let model = Analytic::new(&cluster, stack, Machine::default());
        timed.iter().map(|(kernel, time)| log_error(model.predict(kernel), *time)).collect::<Vec<_>>()
    };
    let starts = [0.5, 1.0].map(|hops: f64| vec![level.efficiency.ln(), hops.ln()]);
    let (found, _) = minimise(&starts, &errors)?;
    Some(Network { efficiency: rounded(found[0].exp()), hop_latency: rounded(found[1].exp()) })
}
