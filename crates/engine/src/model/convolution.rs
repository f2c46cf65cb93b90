//! Gated short convolutions, which mix a token with the few before it.

use serde::{Deserialize, Serialize};

use super::attention::Projection;

/// A gated short convolution over the hidden size: `out(C ⊙ conv(B ⊙ x))`, with B, C and x from one projection (LFM2).
///
/// Source: [transformers] `modeling_lfm2.py`, `Lfm2ShortConv`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShortConv {
    /// Kernel of the causal convolution, which runs over each channel alone.
    pub conv_kernel: u32,
    /// Whether the projections and the convolution have biases.
    #[serde(default)]
    pub bias: bool,
}

impl ShortConv {
    /// Width of the input projection: B, C and x.
    pub const fn in_width(hidden: u32) -> u64 {
        3 * hidden as u64
    }

    /// Linear maps of the block.
    pub fn projections(hidden: u32) -> [Projection; 2] {
        let h = f64::from(hidden);
        [Projection::columns(h, Self::in_width(hidden) as f64), Projection::rows(h, h)]
    }

    /// Weights of the two projections: `3h·h + h·h`.
    pub fn weights(hidden: u32) -> u64 {
        u64::from(hidden) * (Self::in_width(hidden) + u64::from(hidden))
    }

    /// Taps of the convolution and biases of all three maps: `L·h + β·5h`.
    pub fn small_parameters(&self, hidden: u32) -> u64 {
        let h = u64::from(hidden);
        let biases = if self.bias { Self::in_width(hidden) + 2 * h } else { 0 };
        h * u64::from(self.conv_kernel) + biases
    }

    /// Forward FLOPs per token: two gates, and a product and a sum for each tap.
    pub fn flops(&self, hidden: u32) -> f64 {
        2.0 * f64::from(hidden) * (1.0 + f64::from(self.conv_kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::ShortConv;

    /// LFM2-1.2B: 2,048 channels and kernels of three tokens; 10 of its layers have 167,833,600 parameters in mixers.
    #[test]
    fn parameters_are_two_maps_taps_and_biases() {
        let (plain, biased) = (ShortConv { conv_kernel: 3, bias: false }, ShortConv { conv_kernel: 3, bias: true });
        assert_eq!(10 * (ShortConv::weights(2048) + plain.small_parameters(2048)), 167_833_600);
        assert_eq!(biased.small_parameters(2048) - plain.small_parameters(2048), 5 * 2048);
        assert!((plain.flops(2048) - 16_384.0).abs() < 1e-9);
    }
}
