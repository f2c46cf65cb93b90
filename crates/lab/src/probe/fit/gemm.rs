//! Fits of the GEMM curve in each format.

use std::collections::BTreeMap;

use super::{log_error, medians, minimise};
use crate::probe::clocks;
use crate::probe::curves::rounded;
use crate::probe::kernel::{Gemm, Kernel};
use crate::probe::sample::Samples;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::{Format, GemmCurve};
use meshwright_engine::kernel::Device;
use meshwright_engine::stack::Stack;
use meshwright_engine::units::Seconds;

/// Fewest shapes for fitting all parameters; with fewer, only the efficiency is fitted.
const WHOLE_CURVE: usize = 12;
/// Fewest shapes for fitting the efficiency.
const LEAST: usize = 3;
/// Starting values of a curve's parameters.
#[derive(Clone, Copy)]
struct Start {
    /// K0.
    half_depth: f64,
    /// ρ.
    intensity_exponent: f64,
    /// γ.
    wave_exponent: f64,
}

/// Starting values beside the device's own, which enclose the fitted curves of [aiconfigurator]'s tables.
const STARTS: [Start; 3] = [
    Start { half_depth: 100.0, intensity_exponent: 2.0, wave_exponent: 0.05 },
    Start { half_depth: 70.0, intensity_exponent: 0.05, wave_exponent: 0.6 },
    Start { half_depth: 200.0, intensity_exponent: 0.5, wave_exponent: 1.2 },
];
/// Largest exponent of intensity (ρ): beyond the tables' shapes a larger one would predict absurd times of small GEMMs. The
/// fits of the specification §2.1 reach 4.0.
const MOST_INTENSITY_EXPONENT: f64 = 4.0;
/// Largest exponent of filled waves (γ), for the same reason; the fits of the specification §2.1 reach 1.2.
const MOST_WAVE_EXPONENT: f64 = 2.0;
/// Stand-in for zero, since parameters are logarithms.
const ALMOST_ZERO: f64 = 1e-3;

/// Curves of each timed format for which the device has a peak; a format without a curve starts from bf16's.
pub fn curves(samples: &Samples, cluster: &Cluster, stack: &Stack) -> BTreeMap<Format, GemmCurve> {
    let gpu = &cluster.gpu;
    Format::ALL
        .into_iter()
        .filter(|format| gpu.peak_of(*format).is_some())
        .filter_map(|format| {
            let own = gpu.gemm.get(&format).or_else(|| gpu.gemm.get(&Format::Bf16))?;
            Some((format, curve(samples, format, own, cluster, stack)?))
        })
        .collect()
}

/// Curve of one format: all its parameters where enough shapes were timed, else the efficiency alone, else κ alone.
fn curve(samples: &Samples, format: Format, own: &GemmCurve, cluster: &Cluster, stack: &Stack) -> Option<GemmCurve> {
    // Grouped GEMMs have a ramp of their own on top of the curve.
    let pick = |gemm: &Gemm| (gemm.format == format && gemm.batch == 1).then_some(*gemm);
    let alone = medians(&samples.of, |kernel| if let Kernel::Gemm(gemm) = kernel { pick(gemm) } else { None });
    let soaked = medians(&samples.of, |kernel| if let Kernel::Sustained(gemm) = kernel { pick(gemm) } else { None });
    let sustained = clocks::sustained(samples, format).unwrap_or(own.sustained);
    // Traces of training steps have sustained times only: κ stays, and the curve is fitted under it.
    let (timed, clocks) = if alone.len() >= LEAST || soaked.len() < LEAST { (alone, 1.0) } else { (soaked, sustained) };
    if timed.len() < LEAST {
        return sustained_only(samples, format, own);
    }
    let errors = |curve: GemmCurve| errors(&timed, curve, format, cluster, stack);
    let curve_of = |p: &[f64]| GemmCurve {
        efficiency: p[0].exp(),
        half_depth: p.get(1).map_or(own.half_depth, |p| p.exp().max(ALMOST_ZERO)),
        intensity_exponent: p.get(2).map_or(own.intensity_exponent, |p| p.exp().min(MOST_INTENSITY_EXPONENT)),
        wave_exponent: p.get(3).map_or(own.wave_exponent, |p| p.exp().clamp(ALMOST_ZERO, MOST_WAVE_EXPONENT)),
        sustained: clocks,
        source: own.source.clone(),
    };
    let start = own.efficiency.ln();
    let starts: Vec<Vec<f64>> = if timed.len() < WHOLE_CURVE {
        vec![vec![start]]
    } else {
        let GemmCurve { half_depth, intensity_exponent, wave_exponent, .. } = *own;
        let log = |parameter: f64| parameter.max(ALMOST_ZERO).ln();
        let logs = |of: Start| vec![start, log(of.half_depth), log(of.intensity_exponent), log(of.wave_exponent)];
        [Start { half_depth, intensity_exponent, wave_exponent }].into_iter().chain(STARTS).map(logs).collect()
    };
    let (found, _) = minimise(&starts, &|p| errors(curve_of(p)))?;
    let found = curve_of(&found);
    Some(GemmCurve {
        efficiency: rounded(found.efficiency),
        half_depth: rounded(found.half_depth),
        intensity_exponent: rounded(found.intensity_exponent),
        wave_exponent: rounded(found.wave_exponent),
        sustained: rounded(sustained),
        source: String::new(),
    })
}

/// Logarithmic errors of the predicted times of GEMMs.
fn errors(timed: &[(Gemm, Seconds)], curve: GemmCurve, format: Format, cluster: &Cluster, stack: &Stack) -> Vec<f64> {
    let mut gpu = cluster.gpu.clone();
    gpu.gemm.insert(format, curve);
    let device = Device { gpu: &gpu, stack, format, host: cluster.host, meter: None };
    timed.iter().map(|(gemm, time)| log_error(device.gemm_pass(&gemm.into(), format, gemm.pass), *time)).collect()
}

/// Curve with a new κ alone, if only sustained times are available.
fn sustained_only(samples: &Samples, format: Format, own: &GemmCurve) -> Option<GemmCurve> {
    let sustained = rounded(clocks::sustained(samples, format)?);
    Some(GemmCurve { sustained, source: String::new(), ..own.clone() })
}
