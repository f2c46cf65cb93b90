//! Curves of kernels and links, fitted to tables of measured silicon before anything is fitted to whole steps.
//!
//! ```text
//! GEMMs         (e_max, K0, ρ, γ)      of T = max(T_flop, T_mem) + t_op + t_table at κ = 1: warm micro-benchmarks
//! collectives   (α, B∞, S½, β)         of T = α + φ·S/B∞·(1 + (S½/S)^β) inside one scale-up domain
//! minimise  Σ ρ(ln(predicted/measured)), ρ soft L1
//! ```
//!
//! `t_table` is the time that a table's benchmark adds to every GEMM, such as a launch or a cast: it is fitted, then discarded.
//!
//! A curve is replaced only where five-fold cross-validation over its shapes finds the new one better by a clear margin.
//! Attention is not fitted here: public tables of forward kernels are those of inference, and of training kernels there are a
//! few lengths a device, to which the evidence tests hold the catalogue.

use serde::Deserialize;
use toml::Value;

use super::bounds::{self, Bounds};
use super::free::rounded;
use crate::least_squares::softened;
use crate::validate::sample::fold;
use meshwright_engine::collective::on_curve;
use meshwright_engine::gpu::{Collective, CollectiveCurve, Format, GemmCurve, Gpu, Host};
use meshwright_engine::kernel::{Device, GemmShape};
use meshwright_engine::stack::Stack;
use meshwright_engine::units::{Bytes, BytesPerSec, Seconds};
use meshwright_planner::catalog::fits::{Constant, FOLDS};
use meshwright_planner::catalog::{self, CatalogError, Overrides, gpu_with};
use meshwright_planner::median::upper_median;

/// Relative margin by which a new curve's cross-validated error must beat the present one's.
const MARGIN: f64 = 0.05;
/// Width of the quadratic part of the loss.
const DELTA: f64 = 0.03;
/// Bounds and starting value of the time that a table's benchmark adds to every GEMM, in microseconds.
const TABLE_TIME: (f64, f64) = (0.0, 40.0);
const FIRST_TABLE_TIME: f64 = 3.0;
/// Fewest samples of a curve.
const FEWEST: usize = 15;
/// Smallest buffer of training traffic, in bytes; the smallest buffers determine the latency alone.
const LEAST_BUFFER: f64 = 4096.0;

/// Device whose kernels or links somebody measured.
struct Tables {
    /// File of the catalogue.
    gpu: &'static str,
    /// Key of the source.
    source: &'static str,
}

/// Devices whose tables the curves are fitted to.
const TABLES: [Tables; 9] = [
    Tables { gpu: "a100-80-sxm", source: "aiconfigurator" },
    Tables { gpu: "h100-sxm", source: "aiconfigurator" },
    Tables { gpu: "h200-sxm", source: "aiconfigurator" },
    Tables { gpu: "b200-sxm", source: "aiconfigurator" },
    Tables { gpu: "b300-sxm", source: "aiconfigurator" },
    Tables { gpu: "gb200", source: "aiconfigurator" },
    Tables { gpu: "gb300", source: "aiconfigurator" },
    Tables { gpu: "mi300x", source: "iree-kernel-benchmark" },
    Tables { gpu: "mi355x", source: "aiter" },
];

/// Timed GEMM of a table.
#[derive(Clone, Debug, Deserialize)]
pub struct TimedGemm {
    /// Name of the device.
    pub gpu: String,
    /// Format: `bf16`, `fp8`, `fp8_block` or `nvfp4`.
    pub dtype: String,
    /// Rows of the output.
    pub m: f64,
    /// Columns of the output.
    pub n: f64,
    /// Inner dimension of the GEMM.
    pub k: f64,
    /// Latency in microseconds.
    pub latency_us: f64,
}

/// Timed collective of a table.
#[derive(Clone, Debug, Deserialize)]
pub struct Transfer {
    /// Name of the device.
    pub gpu: String,
    /// Collective: `all_reduce`, `all_gather`, `reduce_scatter` or `alltoall`.
    pub collective: String,
    /// Number of ranks.
    pub n_gpus: u32,
    /// Bytes of the whole buffer.
    pub size_bytes: f64,
    /// Latency in microseconds.
    pub latency_us: f64,
}

/// Fitted curve with its errors.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Key of its table: `gpu.h100-sxm.gemm.bf16`.
    pub key: String,
    /// Source of the measured table.
    pub source: &'static str,
    /// Names and values of its constants, as in a file.
    pub values: Vec<(&'static str, Value)>,
    /// Number of samples.
    pub samples: usize,
    /// Median error of the present curve.
    pub before: f64,
    /// Cross-validated median error of the new curve.
    pub crossed: f64,
    /// Whether the new curve replaces the present one.
    pub kept: bool,
}

impl Curve {
    /// Constants with their provenance; empty unless the curve is accepted.
    pub fn constants(&self) -> Vec<Constant> {
        let from = format!(
            "meshwright fit --silicon: {} samples, median error {:.1} % cross-validated, {:.1} % before",
            self.samples,
            self.crossed * 100.0,
            self.before * 100.0
        );
        let constant = |(name, value): &(&str, Value)| Constant {
            source: self.source.into(),
            from: from.clone(),
            rows: u32::try_from(self.samples).ok(),
            ..Constant::plain(format!("{}.{name}", self.key), value.clone())
        };
        if self.kept { self.values.iter().map(constant).collect() } else { Vec::new() }
    }
}

/// Sample of a fit: the input of its prediction, its fold of the cross-validation, and its measured time.
struct Sample<T> {
    input: T,
    fold: usize,
    seconds: f64,
}

/// Parameters fitted to samples, and how well they predict.
struct FittedParameters {
    values: Vec<f64>,
    /// Median error of the start.
    before: f64,
    /// Median error of each fold's samples with parameters fitted without them.
    crossed: f64,
}

/// Fits parameters to samples, from a start.
fn fitted<T: Sync>(
    samples: &[Sample<T>],
    start: &[f64],
    bounds: &[Bounds],
    predict: &(dyn Fn(&[f64], &T) -> f64 + Sync),
) -> FittedParameters {
    let error = |x: &[f64], sample: &Sample<T>| (predict(x, &sample.input) / sample.seconds).ln();
    let best = |without: Option<usize>| {
        let used: Vec<&Sample<T>> = samples.iter().filter(|sample| without != Some(sample.fold)).collect();
        let residuals = |x: &[f64]| used.iter().map(|sample| softened(error(x, sample), DELTA)).collect();
        bounds::descend(&residuals, start, bounds)
    };
    let median = |errors: Vec<f64>| upper_median(errors).unwrap_or_default();
    let before = median(samples.iter().map(|sample| error(start, sample).abs()).collect());
    let folds: Vec<Vec<f64>> = (0..FOLDS).map(|fold| best(Some(fold))).collect();
    let crossed = median(samples.iter().map(|sample| error(&folds[sample.fold], sample).abs()).collect());
    FittedParameters { values: best(None), before, crossed }
}

/// Fits the GEMM curve of every device and format with enough shapes in the table.
///
/// # Errors
///
/// A device of the catalogue cannot be read.
pub fn gemms(table: &[TimedGemm], sets: &Overrides) -> Result<Vec<Curve>, CatalogError> {
    let stack = catalog::stack("nemo-25", sets)?;
    let mut curves = Vec::new();
    for tables in &TABLES {
        let gpu = gpu_with(tables.gpu, sets)?;
        for (format, present) in &gpu.gemm {
            let samples: Vec<Sample<TimedGemm>> = table
                .iter()
                .filter(|gemm| gpu.names.runs.contains(&gemm.gpu) && formats(&gemm.dtype, &gpu).contains(format))
                .map(|gemm| Sample {
                    fold: fold(&format!("{} {} {}", gemm.m, gemm.n, gemm.k), FOLDS as u32) as usize,
                    seconds: gemm.latency_us * 1e-6,
                    input: gemm.clone(),
                })
                .collect();
            if samples.len() < FEWEST || present.source != tables.source {
                continue;
            }
            curves.push(gemm_curve(&gpu, tables, *format, present, &stack, &samples));
        }
    }
    Ok(curves)
}

/// Fits the GEMM curve of one device and format, together with the time that the table's benchmark adds.
fn gemm_curve(
    gpu: &Gpu,
    tables: &Tables,
    format: Format,
    known: &GemmCurve,
    stack: &Stack,
    samples: &[Sample<TimedGemm>],
) -> Curve {
    let predict = |x: &[f64], gemm: &TimedGemm| {
        let mut gpu = gpu.clone();
        let curve = GemmCurve {
            efficiency: x[0],
            half_depth: x[1],
            intensity_exponent: x[2],
            wave_exponent: x[3],
            sustained: 1.0,
            source: String::new(),
        };
        gpu.gemm.insert(format, curve);
        let device = Device { gpu: &gpu, stack, format, host: Host::X86, meter: None };
        let TimedGemm { m, n, k, .. } = *gemm;
        device.gemm(&GemmShape { m, n, k, batch: 1.0, output_bytes: 2.0 }, format).get() + x[4] * 1e-6
    };
    let known = [known.efficiency, known.half_depth, known.intensity_exponent, known.wave_exponent];
    let bounds = [(0.2, 1.0), (0.0, 2000.0), (0.0, 5.0), (0.0, 2.0), TABLE_TIME].map(Bounds::from);
    let table_time = best_table_time(samples, &known, &predict);
    let start = [known[0], known[1], known[2], known[3], table_time];
    let FittedParameters { values: best, before, crossed } = fitted(samples, &start, &bounds, &predict);
    let names = ["efficiency", "half_depth", "intensity_exponent", "wave_exponent"];
    Curve {
        key: format!("gpu.{}.gemm.{format}", tables.gpu),
        source: tables.source,
        values: names.into_iter().zip(best.iter().map(|value| Value::Float(rounded(*value)))).collect(),
        samples: samples.len(),
        before,
        crossed,
        kept: crossed < before * (1.0 - MARGIN),
    }
}

/// Time that the table's benchmark adds to every GEMM, fitted with the present curve, so that this curve is judged at its
/// best.
fn best_table_time(
    samples: &[Sample<TimedGemm>],
    known: &[f64; 4],
    predict: &(dyn Fn(&[f64], &TimedGemm) -> f64 + Sync),
) -> f64 {
    let residuals = |x: &[f64]| {
        let all = [known[0], known[1], known[2], known[3], x[0]];
        samples.iter().map(|sample| softened((predict(&all, &sample.input) / sample.seconds).ln(), DELTA)).collect()
    };
    bounds::descend(&residuals, &[FIRST_TABLE_TIME], &[TABLE_TIME.into()])[0]
}

/// Formats that a column of the table describes. On Blackwell the block-scaled GEMM is the microscaled one; the table's
/// per-tensor GEMM includes the cast of its input, so it is not used.
fn formats(dtype: &str, gpu: &Gpu) -> Vec<Format> {
    let blackwell = gpu.gemm.contains_key(&Format::Nvfp4);
    match dtype {
        "bf16" => vec![Format::Bf16],
        "fp8" if !blackwell => vec![Format::Fp8],
        "fp8_block" if blackwell => vec![Format::Mxfp8],
        "fp8_block" => vec![Format::Fp8Block],
        "nvfp4" => vec![Format::Nvfp4],
        _ => Vec::new(),
    }
}

/// Fits the curve of every collective, group size and device with enough sizes in the table.
///
/// # Errors
///
/// A device of the catalogue cannot be read.
pub fn collectives(table: &[Transfer], sets: &Overrides) -> Result<Vec<Curve>, CatalogError> {
    let mut curves = Vec::new();
    for tables in &TABLES {
        let gpu = gpu_with(tables.gpu, sets)?;
        for (op, present) in &gpu.collectives {
            for (place, known) in present.iter().enumerate() {
                let samples: Vec<Sample<f64>> = table
                    .iter()
                    .filter(|transfer| {
                        gpu.names.runs.contains(&transfer.gpu)
                            && transfer.n_gpus == known.ranks
                            && operation(&transfer.collective) == Some(*op)
                            && transfer.size_bytes >= LEAST_BUFFER
                    })
                    .enumerate()
                    .map(|(at, transfer)| Sample {
                        fold: at % FOLDS,
                        seconds: transfer.latency_us * 1e-6,
                        input: transfer.size_bytes,
                    })
                    .collect();
                if samples.len() < FEWEST {
                    continue;
                }
                curves.push(collective_curve(tables, *op, place, known, &samples));
            }
        }
    }
    Ok(curves)
}

/// Fits one curve of a collective; parameters that span decades are fitted as logarithms.
fn collective_curve(
    tables: &Tables,
    op: Collective,
    place: usize,
    known: &CollectiveCurve,
    samples: &[Sample<f64>],
) -> Curve {
    let curve_of = |x: &[f64]| CollectiveCurve {
        ranks: known.ranks,
        latency: Seconds::micros(x[0].exp()),
        bandwidth: BytesPerSec::gbytes(x[1].exp()),
        half_size: Bytes::new(x[2].exp() * 1e6),
        exponent: x[3],
    };
    let predict = |x: &[f64], bytes: &f64| on_curve(&curve_of(x), op, Bytes::new(*bytes), known.ranks).get();
    let start = [
        (known.latency.get() * 1e6).ln(),
        (known.bandwidth.get() / 1e9).ln(),
        (known.half_size.get() / 1e6).max(1e-3).ln(),
        known.exponent,
    ];
    let bounds = [(0.0, 5.0), (1.0, 8.0), (-6.0, 6.0), (0.1, 1.5)].map(Bounds::from);
    let FittedParameters { values: best, before, crossed } = fitted(samples, &start, &bounds, &predict);
    let text = |number: f64, unit: &str| Value::String(format!("{} {unit}", rounded(number)));
    let op_name =
        serde_json::to_value(op).ok().and_then(|value| value.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    Curve {
        key: format!("gpu.{}.collectives.{op_name}.{place}", tables.gpu),
        source: tables.source,
        values: vec![
            ("latency", text(best[0].exp(), "us")),
            ("bandwidth", text(best[1].exp(), "GB/s")),
            ("half_size", text(best[2].exp(), "MB")),
            ("exponent", Value::Float(rounded(best[3]))),
        ],
        samples: samples.len(),
        before,
        crossed,
        kept: crossed < before * (1.0 - MARGIN),
    }
}

fn operation(name: &str) -> Option<Collective> {
    match name {
        "all_reduce" => Some(Collective::AllReduce),
        "all_gather" => Some(Collective::AllGather),
        "reduce_scatter" => Some(Collective::ReduceScatter),
        "alltoall" | "all_to_all" => Some(Collective::AllToAll),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_found_again_from_its_own_times() {
        let sets = Overrides::specification();
        let known = gpu_with("h100-sxm", &sets).unwrap().collectives[&Collective::AllReduce][2].clone();
        let table: Vec<Transfer> = (12..33)
            .map(|power| {
                let size_bytes = 2_f64.powi(power);
                let seconds = on_curve(&known, Collective::AllReduce, Bytes::new(size_bytes), known.ranks).get();
                let collective = "all_reduce".to_owned();
                Transfer { gpu: "H100".into(), collective, n_gpus: known.ranks, size_bytes, latency_us: seconds * 2e6 }
            })
            .collect();
        let found = collectives(&table, &sets).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].kept && (found[0].before - 2_f64.ln()).abs() < 1e-6, "half as fast as the curve says");
        assert!(found[0].crossed < 0.02, "{:?}", found[0]);
    }

    #[test]
    fn columns_of_the_table_are_formats() {
        let sets = Overrides::specification();
        let gpu = |name| gpu_with(name, &sets).unwrap();
        assert_eq!(formats("fp8", &gpu("h100-sxm")), [Format::Fp8]);
        assert_eq!(formats("fp8_block", &gpu("b200-sxm")), [Format::Mxfp8]);
        assert!(formats("int8", &gpu("h100-sxm")).is_empty());
    }
}
