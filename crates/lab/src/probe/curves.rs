//! Curves fitted to samples, and their residuals.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::kernel::{COLLECTIVES, format_name, name_of};
use super::sample::quoted;
use meshwright_engine::gpu::{
    AttentionCurve, AttentionKernel, AttentionOccupancy, Collective, CollectiveCurve, Figure, Format, GemmCurve,
};
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
    /// Slow-down of compute during communication (σ).
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

impl Curves {
    pub(super) fn write(&self, text: &mut String, source: &str) {
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
        let gbytes = |rate: BytesPerSec| format!("\"{} GB/s\"", rounded(rate.get() / 1e9));
        single("hbm_efficiency", hbm_efficiency.map(|value| format!("{value:?}")));
        single("kernel_gap", kernel_gap.map(|gap| format!("\"{} us\"", rounded(gap.get() * 1e6))));
        single("host_link", host_link.map(gbytes));
        single("contention", contention.map(|value| format!("{value:?}")));
        single("launch", launch.map(|time| format!("\"{} us\"", rounded(time.get() * 1e6))));
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
                rounded(forward.as_tflops()),
                rounded(backward.as_tflops())
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
                    rounded(latency.get() * 1e6),
                    gbytes(*bandwidth),
                    rounded(half_size.get() / 1e6)
                );
            }
            text.push_str("]\n");
        }
    }
}

/// Significant digits of a fitted figure: samples support no more, and rounding makes files identical on all processors.
const DIGITS: i32 = 4;

/// Figure rounded to four significant digits.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = DIGITS - 1 - value.abs().log10().floor() as i32;
    format!("{:.*e}", (DIGITS - 1) as usize, value).parse().unwrap_or_else(|_| {
        let scale = 10_f64.powi(digits);
        (value * scale).round() / scale
    })
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn four_digits_are_kept() {
        for (value, kept) in [(0.793_456, 0.7935), (1_234_567.0, 1_235_000.0), (0.0, 0.0), (2.5e-6, 2.5e-6)] {
            assert!((rounded(value) - kept).abs() <= kept * 1e-12, "{value}");
        }
    }
}
