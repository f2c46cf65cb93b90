//! Calibration: samples of one machine, the curves fitted to them, their residuals, and the figures that they replace.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::analytic::EMPTY_LAUNCH;
use super::clocks::{self, RUN_OVER_LAYER};
use super::kernel::{Gemm, Kernel};
use super::sample::{
    HeldRow, Machine, SampleRow, Samples, SamplesError, TogetherRow, check_date, held, micros, quoted, rows, runs,
    times,
};
use super::{fit, roofline};
use crate::probe::curves::{Curves, Residual, rounded};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::{AttentionCurve, AttentionOccupancy, Figure, Format, GemmCurve};
use meshwright_engine::kernel::GemmShape;
use meshwright_engine::sources::{Basis, Sourced};
use meshwright_engine::stack::Stack;
use meshwright_engine::units::Seconds;
use meshwright_planner::catalog::parse_toml;

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
    #[serde(default)]
    together: Vec<TogetherRow>,
    #[serde(default)]
    held: Vec<HeldRow>,
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
    ) -> Result<Self, super::source::ProbeError> {
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
        let file: File = parse_toml(text).map_err(Box::new)?;
        let File { gpu, basis, source, command, machine, curves, residuals: _, samples, together, held: sizes } = file;
        check_date(&machine.date)?;
        let (of, together, held) = (rows(samples)?, runs(together)?, held(sizes));
        Ok(Self { source, samples: Samples { machine, gpu, basis, of, together, held }, command, curves })
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

    /// Replaces the measured figures as they are in a run: at its clocks where the cluster has several GPUs, and GEMMs
    /// of the shapes that were timed alone as they were measured.
    ///
    /// # Errors
    ///
    /// The calibration is of another device, or makes its figures inconsistent.
    pub fn apply(&self, gpu_name: &str, cluster: &mut Cluster, stack: &mut Stack) -> Result<(), ApplyError> {
        self.apply_curves(gpu_name, cluster, stack)?;
        // An earlier calibration's shapes stay where this one has no curve of their format.
        let mut timed = std::mem::take(&mut cluster.gpu.timed_gemms);
        self.curves.gemm.keys().for_each(|format| timed.forget(*format));
        let curves = fit::analytic(cluster, stack);
        for (kernel, sample) in &self.samples.of {
            let Kernel::Gemm(gemm @ Gemm { batch: 1, .. }) = kernel else { continue };
            let GemmShape { m, n, k, output_bytes, .. } = gemm.into();
            let ratio = sample.median() / curves.predict(kernel);
            timed.insert(gemm.format, gemm.pass, [m, n, k, output_bytes], ratio);
        }
        cluster.gpu.timed_gemms = timed;
        if cluster.gpus > 1 {
            for (_, curve) in cluster.gpu.gemm.iter_mut().filter(|(format, _)| self.has_clocks(**format)) {
                curve.sustained *= RUN_OVER_LAYER;
            }
        }
        Ok(())
    }

    /// Whether the clocks of a layer's GEMMs in a format were measured on one GPU. Those of the cost model's own
    /// predictions are a run's.
    pub fn has_clocks(&self, format: Format) -> bool {
        self.samples.basis == Basis::Measured && clocks::sustained(&self.samples, format).is_some()
    }

    /// Replaces the measured figures: curves of the device, efficiency of the network, launches of the stack.
    ///
    /// # Errors
    ///
    /// The calibration is of another device, or makes its figures inconsistent.
    pub fn apply_curves(&self, gpu_name: &str, cluster: &mut Cluster, stack: &mut Stack) -> Result<(), ApplyError> {
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
            stack.launches.x86 = time / EMPTY_LAUNCH;
            stack.launches.grace = time / EMPTY_LAUNCH;
        }
        cluster.gpu.check().and_then(|()| cluster.check()).map_err(ApplyError::Invalid)
    }

    /// Text of the calibration file; equal samples give equal bytes.
    pub fn to_toml(&self, cluster: &Cluster, stack: &Stack) -> String {
        let (mut known, mut driven) = (cluster.clone(), stack.clone());
        // An inconsistent calibration is written too, so that it can be inspected.
        let _ = self.apply_curves(&cluster.gpu.name, &mut known, &mut driven);
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
            let fitted = micros(Seconds::new(rounded(after.predict(kernel).get())));
            let _ = writeln!(text, "\"{kernel}\" = {{ times_us = {}, fit_us = {fitted} }}", times(sample));
        }
        text.push_str(&self.samples.together_toml());
        text
    }
}

/// Replaces a figure by a calibrated value, if there is one.
fn replace<T>(figure: &mut Sourced<T>, value: Option<T>, source: impl Fn() -> String) {
    if let Some(value) = value {
        *figure = Sourced { value, source: source() };
    }
}
