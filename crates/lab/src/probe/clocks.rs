//! Clocks under the power limit, of a loop of one GEMM, of a layer and of a run: how much faster a kernel alone is than in each.

use super::kernel::Kernel;
use super::sample::{Sample, Samples};
use meshwright_engine::gpu::Format;
use meshwright_planner::median::upper_median;

/// Clocks of a layer over those of a loop of one of its GEMMs under load: the mean over four devices. A layer's
/// streaming kernels draw less than the power limit, and leave it to the GEMMs.
///
/// Source: [meshwright-silicon].
pub(super) const LAYER_OVER_LOOP: f64 = 1.047;

/// Clocks of a GPU in a run over those of a layer that was timed on one GPU with its chassis to itself.
///
/// With it the calibrations of an H100 and an H200 predict 354 published runs on such GPUs without a bias in bf16;
/// without it, 9 to 12 % too fast, whatever the stack, the format and the number of GPUs. Its causes are not told
/// apart: neighbours that share air and power, hours under load, the slowest of many devices.
///
/// Source: [meshwright-silicon], [published-runs] (`tests/evidence/in_runs.rs`).
pub const RUN_OVER_LAYER: f64 = 0.87;

/// κ, as the mean over the layers that were timed as one run; without them, from the median of the GEMMs that were
/// timed alone and after seconds of load.
///
/// ```text
/// layer   Σ T_gemm/κ + Σ T_attention/√κ + Σ T_other = T_run          GEMM   1.047·T/T_loaded
/// ```
///
/// A layer is what a step sustains. κ exceeds 1 where loops of one GEMM run at the power limit and a layer does not:
/// its other kernels draw less, which leaves more to its GEMMs.
pub(super) fn sustained(samples: &Samples, format: Format) -> Option<f64> {
    let alone = |kernel: &Kernel| Some(samples.time(kernel)?.get());
    let of_layer = |(kernels, run): (&Vec<Kernel>, &Sample)| {
        let (mut gemms, mut attention, mut other) = (0.0, 0.0, 0.0);
        for kernel in kernels {
            match kernel {
                Kernel::Gemm(gemm) if gemm.format == format => gemms += alone(kernel)?,
                Kernel::Attention(_) => attention += alone(kernel)?,
                _ => other += alone(kernel)?,
            }
        }
        let left = run.median().get() - other;
        (gemms > 0.0 && left > 0.0).then(|| clocks(gemms, attention, left))
    };
    let of_gemm = |(kernel, soaked): (&Kernel, &Sample)| {
        let Kernel::Sustained(gemm) = kernel else { return None };
        (gemm.format == format).then_some((alone(&Kernel::Gemm(*gemm))? / soaked.median().get()).min(1.0))
    };
    let of_layers: Vec<f64> = samples.together.iter().filter_map(of_layer).collect();
    if of_layers.is_empty() {
        return upper_median(samples.of.iter().filter_map(of_gemm).collect()).map(|of_loop| of_loop * LAYER_OVER_LOOP);
    }
    Some(of_layers.iter().sum::<f64>() / of_layers.len() as f64)
}

/// Root κ of gemms/κ + attention/√κ = time, a quadratic equation in 1/√κ.
fn clocks(gemms: f64, attention: f64, time: f64) -> f64 {
    let slower = ((attention * attention + 4.0 * gemms * time).sqrt() - attention) / (2.0 * gemms);
    1.0 / (slower * slower)
}

#[cfg(test)]
mod tests {
    use super::clocks;

    #[test]
    fn clocks_stretch_the_kernels_of_a_layer_to_its_run() {
        for kappa in [0.7, 0.9, 1.0, 1.04] {
            let time = 30.0 / kappa + 8.0 / f64::sqrt(kappa);
            assert!((clocks(30.0, 8.0, time) - kappa).abs() < 1e-12);
        }
    }
}
