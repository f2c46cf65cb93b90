//! Fits of a device's figures to samples: the values with which the model reproduces the measured times.

mod attention;
mod collective;
mod gemm;
mod memory;
mod network;

use std::collections::BTreeMap;

use super::analytic::Analytic;
use super::curves::{Curves, Residual};
use super::kernel::{Fused, HostTransfer, Kernel};
use super::sample::{Machine, Sample, Samples};
use crate::least_squares::minimise;
use crate::probe::curves::rounded;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::{Collective, Figure};
use meshwright_engine::stack::Stack;
use meshwright_engine::units::Seconds;

/// Logarithmic error ln(predicted / measured): errors by a factor have equal weight in both directions.
fn log_error(predicted: Seconds, measured: Seconds) -> f64 {
    (predicted / measured).ln()
}

/// Figure of the device on which the time of a kernel depends; `None` for the probe's own attention, which no plan runs, and for
/// transfers beside other work.
pub(crate) fn figure_of(kernel: &Kernel) -> Option<Figure> {
    Some(match kernel {
        Kernel::Gemm(gemm) => Figure::Gemm(gemm.format),
        Kernel::Sustained(gemm) => Figure::Sustained(gemm.format),
        Kernel::Contended(_) => Figure::Contention,
        Kernel::Attention(core) => match core.kernel {
            Fused::Library(kernel) => Figure::Attention(kernel),
            Fused::Own => return None,
        },
        Kernel::Stream { .. } => Figure::Hbm,
        Kernel::Transfer(transfer) if *transfer == HostTransfer::alone(transfer.direction, transfer.bytes) => {
            Figure::HostLink
        }
        // The cost model has no figure of one GPU for these: its node's copies are measured on all GPUs at once, and
        // the collectives of one rank cross no link.
        Kernel::Transfer(_) | Kernel::Collective { ranks: 1, .. } => return None,
        Kernel::Launch => Figure::Launch,
        Kernel::Collective { op, ranks, nodes, bytes: _ } if *nodes <= 1 => Figure::Collective(*op, *ranks as u32),
        Kernel::Collective { .. } => Figure::Network,
    })
}

/// Kernels of one kind with their median times.
fn medians<T>(samples: &BTreeMap<Kernel, Sample>, pick: impl Fn(&Kernel) -> Option<T>) -> Vec<(T, Seconds)> {
    samples.iter().filter_map(|(kernel, sample)| pick(kernel).map(|kernel| (kernel, sample.median()))).collect()
}

/// Curves that the samples determine, starting from the figures of `cluster` and `stack`.
///
/// Times are those of loops of one kernel. GEMMs and attention are fitted at those clocks; the ratio to layers that
/// were timed as one run, or to [`Kernel::Sustained`], gives what a whole step sustains (κ).
pub fn fit(samples: &Samples, cluster: &Cluster, stack: &Stack) -> Curves {
    let of = &samples.of;
    let gpu = &cluster.gpu;
    let (hbm_efficiency, kernel_gap) = memory::streaming(of, gpu);
    // GEMMs and attention are fitted with the measured gap, if there is one.
    let mut known = cluster.clone();
    if let Some(gap) = kernel_gap {
        known.gpu.kernel_gap.value = gap;
    }
    let attention = attention::fit(of, &known, stack);
    let mut curves = Curves {
        gemm: gemm::curves(samples, &known, stack),
        attention: attention.curves,
        attention_occupancy: attention.occupancy,
        hbm_efficiency,
        kernel_gap,
        host_link: memory::host_link(of),
        contention: memory::contention(of).map(|measured| measured.max(gpu.contention.value)),
        launch: memory::launch(of),
        collectives: [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll]
            .into_iter()
            .map(|op| (op, collective::curves(of, op)))
            .filter(|(_, curves)| !curves.is_empty())
            .collect(),
        network: None,
    };
    curves.network = network::fit(of, cluster, stack, &curves);
    curves
}

/// Residuals of the samples by figure, before and after.
pub fn residuals(samples: &Samples, before: &Analytic, after: &Analytic) -> Vec<Residual> {
    let mut by_figure: BTreeMap<Figure, Vec<(f64, f64)>> = BTreeMap::new();
    for (kernel, sample) in &samples.of {
        let Some(figure) = figure_of(kernel) else { continue };
        let error = |model: &Analytic| model.predict(kernel) / sample.median() - 1.0;
        by_figure.entry(figure).or_default().push((error(before), error(after)));
    }
    by_figure
        .into_iter()
        .map(|(figure, errors)| {
            let mean = |of: &dyn Fn(&(f64, f64)) -> f64| errors.iter().map(of).sum::<f64>() / errors.len() as f64;
            Residual {
                figure,
                samples: errors.len(),
                before: rounded(mean(&|e| e.0.abs())),
                after: rounded(mean(&|e| e.1.abs())),
                bias: rounded(mean(&|e| e.1)),
                worst: rounded(errors.iter().map(|e| e.1).fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a })),
            }
        })
        .collect()
}

/// Cost-model probe for a machine without a name.
pub fn analytic<'a>(cluster: &'a Cluster, stack: &'a Stack) -> Analytic<'a> {
    Analytic::new(cluster, stack, Machine::default())
}
