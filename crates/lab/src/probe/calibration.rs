//! Calibration: samples of one machine, the curves fitted to them, their residuals, and the figures that they replace.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::kernel::{COLLECTIVES, Kernel, format_name, name_of};
use super::sample::{Machine, SampleRow, Samples, SamplesError, check_date, micros, quoted, rows, times};
use super::{fit, roofline};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::{
    AttentionCurve, AttentionKernel, AttentionOccupancy, Collective, CollectiveCurve, Figure, Format, GemmCurve,
};
use meshwright_engine::sources::Basis;
use meshwright_engine::stack::Stack;
use meshwright_engine::units::{BytesPerSec, Seconds};

/// Efficiency of collectives on the network above the scale-up domain.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Share of the wire rate that collectives reach.
    pub efficiency: f64,
    /// Latency of ring hops relative to the 14 us of the specification §3.3.
    pub hop_latency: f64,
}

/// Figures that samples determined; the others keep their catalogue values.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Curves {
    /// GEMM curves by format, with κ.
    pub gemm: BTreeMap<Format, GemmCurve>,
    /// Attention curves by kernel.
    pub attention: BTreeMap<AttentionKernel, AttentionCurve>,
    /// Occupancy of the attention kernels.
    pub attention_occupancy: Option<AttentionOccupancy>,
    /// Share of the HBM bandwidth that streaming kernels reach.
    pub hbm_efficiency: Option<f64>,
    /// Gap between dependent kernels.
    pub kernel_gap: Option<Seconds>,
    /// Bandwidth of the link to the host.
    pub host_link: Option<BytesPerSec>,
    /// Slow-down of compute beside communication (σ).
    pub contention: Option<f64>,
    /// Host time of one launch.
    pub launch: Option<Seconds>,
    /// Curves of collectives inside the scale-up domain.
    pub collectives: BTreeMap<Collective, Vec<CollectiveCurve>>,
    /// Efficiency of collectives that leave the scale-up domain.
    pub network: Option<Network>,
}

/// Residuals of one figure's curve, before and after the fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    /// Figure that the samples determine.
    pub figure: Figure,
    /// Number of kernels.
    pub samples: usize,
    /// Mean absolute relative error of the catalogue's curve.
    pub before: f64,
    /// Mean absolute relative error of the fitted curve.
    pub after: f64,
    /// Mean relative error of the fitted curve.
    pub bias: f64,
    /// Largest relative error of the fitted curve.
    pub worst: f64,
}

/// Samples with the curves fitted to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Source of the samples: a key of `docs/sources.toml`, or `measured`.
    pub source: String,
    /// Samples of the machine.
    pub samples: Samples,
    /// Command that produced the file.
    pub command: String,
    /// Curves fitted to the samples.
    pub curves: Curves,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    gpu: String,
    basis: Basis,
    source: String,
    command: String,
    machine: Machine,
    curves: Curves,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers: made again from the samples where needed")]
    residuals: toml::Table,
    samples: BTreeMap<String, SampleRow>,
}

/// Reason why a calibration does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The calibration is of another device.
    #[error("the calibration is of {of}, and the cluster is of {cluster}")]
    OtherDevice {
        /// Device of the calibration.
        of: String,
        /// Device of the cluster.
        cluster: String,
    },
    /// The calibrated device has inconsistent figures.
    #[error("the calibration does not fit the device: {0}")]
    Invalid(String),
}

impl Calibration {
    /// Fits curves to samples, starting from the catalogue's figures of the device.
    ///
    /// # Errors
    ///
    /// A sample is faster than the datasheet allows.
    pub fn new(
        samples: Samples,
        source: &str,
        command: &str,
        cluster: &Cluster,
        stack: &Stack,
    ) -> Result<Self, super::ProbeError> {
        for (kernel, sample) in &samples.of {
            roofline::check(kernel, sample, &cluster.gpu)?;
        }
        let curves = fit::fit(&samples, cluster, stack);
        Ok(Self { source: source.to_owned(), samples, command: command.to_owned(), curves })
    }

    /// Parses a calibration file.
    ///
    /// # Errors
    ///
    /// The text is not a calibration.
    pub fn parse(text: &str) -> Result<Self, SamplesError> {
        let file: File = toml::from_str(text).map_err(Box::new)?;
        let File { gpu, basis, source, command, machine, curves, residuals: _, samples } = file;
        check_date(&machine.date)?;
        Ok(Self { source, samples: Samples { machine, gpu, basis, of: rows(samples)? }, command, curves })
    }

    /// Figures that the calibration replaces.
    pub fn figures(&self) -> Vec<Figure> {
        let Curves {
            gemm,
            attention,
            attention_occupancy: _,
            hbm_efficiency,
            kernel_gap: _,
            host_link,
            contention,
            launch,
            collectives,
            network,
        } = &self.curves;
        let timed = |kernel: fn(&Kernel) -> Option<Format>, format| {
            self.samples.of.keys().any(|key| kernel(key) == Some(format))
        };
        let mut figures = Vec::new();
        for &format in gemm.keys() {
            if timed(|key| if let Kernel::Gemm(gemm) = key { Some(gemm.format) } else { None }, format) {
                figures.push(Figure::Gemm(format));
            }
            if timed(|key| if let Kernel::Sustained(gemm) = key { Some(gemm.format) } else { None }, format) {
                figures.push(Figure::Sustained(format));
            }
        }
        figures.extend(attention.keys().map(|&kernel| Figure::Attention(kernel)));
        let single = [
            (hbm_efficiency.is_some(), Figure::Hbm),
            (host_link.is_some(), Figure::HostLink),
            (contention.is_some(), Figure::Contention),
            (launch.is_some(), Figure::Launch),
            (network.is_some(), Figure::Network),
        ];
        figures.extend(single.into_iter().filter(|(known, _)| *known).map(|(_, figure)| figure));
        for (&op, curves) in collectives {
            figures.extend(curves.iter().map(|curve| Figure::Collective(op, curve.ranks)));
        }
        figures
    }

    /// Replaces the measured figures: curves of the device, efficiency of the network, launches of the stack.
    ///
    /// # Errors
    ///
    /// The calibration is of another device, or makes its figures inconsistent.
    pub fn apply(&self, gpu_name: &str, cluster: &mut Cluster, stack: &mut Stack) -> Result<(), ApplyError> {
        if gpu_name != cluster.gpu.name {
            return Err(ApplyError::OtherDevice { of: gpu_name.to_owned(), cluster: cluster.gpu.name.clone() });
        }
        let Curves {
            gemm,
            attention,
            attention_occupancy,
            hbm_efficiency,
            kernel_gap,
            host_link,
            contention,
            launch,
            collectives,
            network,
        } = self.curves.clone();
        let source = || format!("calibration of {}", self.samples.machine.date);
        let gpu = &mut cluster.gpu;
        gpu.gemm.extend(gemm.into_iter().map(|(format, curve)| (format, GemmCurve { source: source(), ..curve })));
        gpu.attention.extend(
            attention.into_iter().map(|(kernel, curve)| (kernel, AttentionCurve { source: source(), ..curve })),
        );
        if let Some(occupancy) = attention_occupancy {
            gpu.attention_occupancy = AttentionOccupancy { source: source(), ..occupancy };
        }
        replace(&mut gpu.hbm_efficiency, hbm_efficiency, source);
        replace(&mut gpu.kernel_gap, kernel_gap, source);
        replace(&mut gpu.host_link, host_link, source);
        replace(&mut gpu.contention, contention, source);
        for (op, curves) in collectives {
            let known = gpu.collectives.entry(op).or_default();
            known.retain(|curve| curves.iter().all(|new| new.ranks != curve.ranks));
            known.extend(curves);
            known.sort_by_key(|curve| curve.ranks);
        }
        for figure in self.figures() {
            gpu.calibrated.insert(figure, self.samples.basis);
        }
        if let Some(network) = network {
            for level in &mut cluster.levels {
                level.efficiency = network.efficiency;
                level.hop_latency = network.hop_latency;
            }
        }
        if let Some(time) = launch {
            stack.launches.x86 = time;
            stack.launches.grace = time;
        }
        cluster.gpu.check().and_then(|()| cluster.check()).map_err(ApplyError::Invalid)
    }

    /// Text of the calibration file; equal samples give equal bytes.
    pub fn to_toml(&self, cluster: &Cluster, stack: &Stack) -> String {
        let (mut known, mut driven) = (cluster.clone(), stack.clone());
        // An inconsistent calibration is written too, so that it can be inspected.
        let _ = self.apply(&cluster.gpu.name, &mut known, &mut driven);
        let (before, after) = (fit::analytic(cluster, stack), fit::analytic(&known, &driven));
        let mut text = String::from("# Written by `meshwright calibrate`: the same samples give the same bytes.\n");
        let line = |text: &mut String, key: &str, value: &str| {
            let _ = writeln!(text, "{key} = {}", quoted(value));
        };
        line(&mut text, "gpu", &self.samples.gpu);
        line(&mut text, "basis", &self.samples.basis.to_string());
        line(&mut text, "source", &self.source);
        line(&mut text, "command", &self.command);
        text.push_str(&self.samples.machine_toml());
        self.curves.write(&mut text, &self.source);
        text.push_str("\n# Relative errors: mean absolute before and after calibration, mean and largest after.\n");
        text.push_str("[residuals]\n");
        for residual in fit::residuals(&self.samples, &before, &after) {
            let Residual { figure, samples, before, after, bias, worst } = residual;
            let _ = writeln!(
                text,
                "\"{figure}\" = {{ samples = {samples}, before = {before:?}, after = {after:?}, bias = {bias:?}, \
                 worst = {worst:?} }}"
            );
        }
        text.push_str("\n[samples]\n");
        for (kernel, sample) in &self.samples.of {
            let fitted = micros(Seconds::new(fit::rounded(after.predict(kernel).get())));
            let _ = writeln!(text, "\"{kernel}\" = {{ times_us = {}, fit_us = {fitted} }}", times(sample));
        }
        text
    }
}

fn replace<T>(figure: &mut meshwright_engine::sources::Sourced<T>, value: Option<T>, source: impl Fn() -> String) {
    if let Some(value) = value {
        *figure = meshwright_engine::sources::Sourced { value, source: source() };
    }
}

impl Curves {
    fn write(&self, text: &mut String, source: &str) {
        let Self {
            gemm,
            attention,
            attention_occupancy,
            hbm_efficiency,
            kernel_gap,
            host_link,
            contention,
            launch,
            collectives,
            network,
        } = self;
        let source = quoted(source);
        text.push_str("\n[curves]\n");
        let mut single = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {value}");
            }
        };
        let gbytes = |rate: BytesPerSec| format!("\"{} GB/s\"", fit::rounded(rate.get() / 1e9));
        single("hbm_efficiency", hbm_efficiency.map(|value| format!("{value:?}")));
        single("kernel_gap", kernel_gap.map(|gap| format!("\"{} us\"", fit::rounded(gap.get() * 1e6))));
        single("host_link", host_link.map(gbytes));
        single("contention", contention.map(|value| format!("{value:?}")));
        single("launch", launch.map(|time| format!("\"{} us\"", fit::rounded(time.get() * 1e6))));
        if let Some(AttentionOccupancy { forward, backward, source: _ }) = attention_occupancy {
            let value = format!("{{ forward = {forward:?}, backward = {backward:?}, source = {source} }}");
            single("attention_occupancy", Some(value));
        }
        if let Some(Network { efficiency, hop_latency }) = network {
            single("network", Some(format!("{{ efficiency = {efficiency:?}, hop_latency = {hop_latency:?} }}")));
        }
        if !gemm.is_empty() {
            text.push_str("\n[curves.gemm]\n");
        }
        for (format, curve) in gemm {
            let GemmCurve { efficiency, half_depth, intensity_exponent, wave_exponent, sustained, source: _ } = curve;
            let _ = writeln!(
                text,
                "{} = {{ efficiency = {efficiency:?}, half_depth = {half_depth:?}, intensity_exponent = \
                 {intensity_exponent:?}, wave_exponent = {wave_exponent:?}, sustained = {sustained:?}, source = {source} }}",
                format_name(*format)
            );
        }
        if !attention.is_empty() {
            text.push_str("\n[curves.attention]\n");
        }
        for (kernel, AttentionCurve { forward, backward, half_sequence, narrow_heads, source: _ }) in attention {
            let _ = writeln!(
                text,
                "{} = {{ forward = \"{} TFLOP/s\", backward = \"{} TFLOP/s\", half_sequence = {half_sequence:?}, \
                 narrow_heads = {narrow_heads:?}, source = {source} }}",
                format!("{kernel:?}").to_lowercase(),
                fit::rounded(forward.as_tflops()),
                fit::rounded(backward.as_tflops())
            );
        }
        if !collectives.is_empty() {
            text.push_str("\n[curves.collectives]\n");
        }
        for (op, curves) in collectives {
            let _ = writeln!(text, "{} = [", name_of(&COLLECTIVES, op));
            for CollectiveCurve { ranks, latency, bandwidth, half_size, exponent } in curves {
                let _ = writeln!(
                    text,
                    "  {{ ranks = {ranks}, latency = \"{} us\", bandwidth = {}, half_size = \"{} MB\", exponent = \
                     {exponent:?} }},",
                    fit::rounded(latency.get() * 1e6),
                    gbytes(*bandwidth),
                    fit::rounded(half_size.get() / 1e6)
                );
            }
            text.push_str("]\n");
        }
    }
}
