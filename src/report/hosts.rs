//! Header of the files of a plan over pools: the order of hosts and the prediction.

use super::pools::{Figures, heading, shares};
use meshwright_engine::units::{percent, significant};
use meshwright_planner::confidence::{Interval, MixtureConfidence};
use meshwright_planner::pools::hosts::Hosts;
use meshwright_planner::pools::{Mixture, Pooled};

/// Problem line, then one line for each group of hosts in rank order, and the prediction.
pub fn header(pooled: &Pooled, mixture: &Mixture, hosts: &[Hosts]) -> (String, Vec<String>) {
    let pools = &pooled.cluster().pools;
    let mut lines = vec!["list the hosts pool by pool, since ranks follow their order:".to_owned()];
    lines.extend(hosts.iter().map(|Hosts { pool, first, nodes }| {
        let last = first + nodes - 1;
        let ranks = if *nodes == 1 { format!("node rank {first}") } else { format!("node ranks {first} to {last}") };
        format!("{ranks}: pool {} ({})", pools[*pool].name, pools[*pool].cluster.gpu.name)
    }));
    lines.push(
        "under Slurm: name them in that order in the file $SLURM_HOSTFILE, and add --distribution=arbitrary".into(),
    );
    lines.extend(shares(pooled, &mixture.distribution));
    let figures = Figures::of_mixture(pooled, mixture);
    let MixtureConfidence { step: Interval { low: fast, high: slow }, oom_probability: risk } =
        MixtureConfidence::new(pooled, mixture);
    lines.push(format!(
        "predicted by meshwright {}: {} a step ({fast} to {slow}), {} MFU, {} tokens/s/GPU; it waits for pool {}, \
        and its probability of running out of memory is {}",
        env!("CARGO_PKG_VERSION"),
        mixture.step.total(),
        percent(figures.mfu),
        significant(figures.tokens_per_second),
        pools[mixture.slowest].name,
        percent(risk),
    ));
    let peaks: Vec<String> = pools
        .iter()
        .zip(&mixture.footprints)
        .map(|(pool, footprint)| {
            let (peak, room) = (footprint.peak().as_gib(), pool.cluster.gpu.hbm.value.as_gib());
            format!("{} {} of {}", pool.name, significant(peak), significant(room))
        })
        .collect();
    lines.push(format!("GiB at the peak: {}", peaks.join(", ")));
    (heading(pooled), lines)
}
