//! Recurrent mixers, which have a state instead of keys: Mamba-2, the gated delta rule, and Kimi's delta attention.

use serde::{Deserialize, Serialize};

use super::attention::Projection;

/// A Mamba-2 block.
///
/// Source: [megatron-lm] `megatron/core/ssm/mamba_mixer.py`; [transformers] `modeling_nemotron_h.py`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mamba {
    /// Number of state-space heads.
    pub heads: u32,
    /// Dimension of a head; `heads · head_dim` is the inner width.
    pub head_dim: u32,
    /// Groups that share B and C.
    pub groups: u32,
    /// State size.
    pub state: u32,
    /// Kernel of the causal convolution.
    pub conv_kernel: u32,
    /// Whether the convolution has a bias.
    #[serde(default)]
    pub conv_bias: bool,
    /// Whether the projections have biases.
    #[serde(default)]
    pub proj_bias: bool,
    /// Whether the projection out has a bias, where that differs from `proj_bias` (Falcon-H1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_bias: Option<bool>,
    /// Whether a norm follows the gate; without one the scan applies the gate by itself.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub norm: bool,
}

/// Default of a switch that is on.
pub(super) const fn yes() -> bool {
    true
}

/// Whether a switch is on.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field over by reference")]
pub(super) const fn is_true(value: &bool) -> bool {
    *value
}

impl Mamba {
    /// Width of the inner state-space channels.
    pub fn inner(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.head_dim)
    }

    /// Width that the convolution runs over: x, B and C.
    pub(crate) fn conv_width(&self) -> u64 {
        self.inner() + 2 * u64::from(self.groups) * u64::from(self.state)
    }

    /// Width of the input projection: z, x, B, C and dt.
    pub fn in_width(&self) -> u64 {
        self.inner() + self.conv_width() + u64::from(self.heads)
    }

    /// Linear maps of the block.
    pub fn projections(&self, hidden: u32) -> [Projection; 2] {
        let (h, d) = (f64::from(hidden), self.inner() as f64);
        [Projection::columns(h, self.in_width() as f64), Projection::rows(d, h)]
    }

    /// Weights of the two projections.
    pub fn weights(&self, hidden: u32) -> u64 {
        u64::from(hidden) * (self.in_width() + self.inner())
    }

    /// Convolution, A, D, the step bias, the gated norm if there is one, and biases.
    pub fn small_parameters(&self, hidden: u32) -> u64 {
        let conv = self.conv_width() * (u64::from(self.conv_kernel) + u64::from(self.conv_bias));
        let biases = u64::from(self.proj_bias) * self.in_width() + u64::from(self.has_out_bias()) * u64::from(hidden);
        conv + 3 * u64::from(self.heads) + u64::from(self.norm) * self.inner() + biases
    }

    /// Whether the projection out has a bias.
    pub fn has_out_bias(&self) -> bool {
        self.out_bias.unwrap_or(self.proj_bias)
    }
}

/// A gated delta-rule block.
///
/// Source: [transformers] `modeling_qwen3_next.py`, `Qwen3NextGatedDeltaNet`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaNet {
    /// Number of key heads.
    pub key_heads: u32,
    /// Number of value heads.
    pub value_heads: u32,
    /// Dimension of a key head.
    pub key_dim: u32,
    /// Dimension of a value head.
    pub value_dim: u32,
    /// Kernel of the causal convolution.
    pub conv_kernel: u32,
}

impl DeltaNet {
    /// Width of all keys.
    pub fn keys(&self) -> u64 {
        u64::from(self.key_heads) * u64::from(self.key_dim)
    }

    /// Width of all values: the inner width.
    pub fn values(&self) -> u64 {
        u64::from(self.value_heads) * u64::from(self.value_dim)
    }

    /// Width of the keys after they are expanded to the heads of values.
    pub(crate) fn expanded_keys(&self) -> u64 {
        u64::from(self.value_heads) * u64::from(self.key_dim)
    }

    /// Whether heads of values share keys.
    pub(crate) const fn shares_keys(&self) -> bool {
        self.value_heads > self.key_heads
    }

    /// Width of the input projections: q, k, v, the gate z, and the two per-head scalars.
    pub fn in_width(&self) -> u64 {
        2 * self.keys() + 2 * self.values() + 2 * u64::from(self.value_heads)
    }

    /// Linear maps of the block.
    pub fn projections(&self, hidden: u32) -> [Projection; 2] {
        let (h, v) = (f64::from(hidden), self.values() as f64);
        [Projection::columns(h, self.in_width() as f64), Projection::rows(v, h)]
    }

    /// Weights of the projections.
    pub fn weights(&self, hidden: u32) -> u64 {
        u64::from(hidden) * (self.in_width() + self.values())
    }

    /// Convolution over q, k, v; decay and step bias per value head; the gated norm.
    pub fn small_parameters(&self) -> u64 {
        (2 * self.keys() + self.values()) * u64::from(self.conv_kernel)
            + 2 * u64::from(self.value_heads)
            + u64::from(self.value_dim)
    }
}

/// Kimi Delta Attention: a gated delta rule whose decay is by channel, from a map of low rank.
///
/// Source: [transformers] `modeling_kimi_linear.py`, `KimiLinearDeltaAttention`; [flash-linear-attention] `fla/layers/kda.py`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KimiDelta {
    /// Number of heads.
    pub heads: u32,
    /// Dimension of a head: of its queries, keys and values, and the rank of the maps to decays and to the output's gate.
    pub head_dim: u32,
    /// Kernel of the causal convolutions over queries, keys and values.
    pub conv_kernel: u32,
}

impl KimiDelta {
    /// Width of all queries, and as well of keys, of values, of decays and of the gate.
    pub fn width(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.head_dim)
    }

    /// Linear maps of the block: queries, keys, values; decay and gate, each down to a head's dimension and up; step sizes; output.
    pub fn projections(&self, hidden: u32) -> [Projection; 9] {
        let (h, w, d) = (f64::from(hidden), self.width() as f64, f64::from(self.head_dim));
        let (into, down, up) = (Projection::columns(h, w), Projection::whole(h, d), Projection::columns(d, w));
        let steps = Projection::columns(h, f64::from(self.heads));
        [into, into, into, down, up, down, up, steps, Projection::rows(w, h)]
    }

    /// Weights of the projections: `4·h·w + 2·d·(h + w) + h·heads`.
    pub fn weights(&self, hidden: u32) -> u64 {
        let (h, w, d) = (u64::from(hidden), self.width(), u64::from(self.head_dim));
        4 * h * w + 2 * d * (h + w) + h * u64::from(self.heads)
    }

    /// Convolutions over q, k and v; the decay's bias for each channel and scale for each head; the gated norm.
    pub fn small_parameters(&self) -> u64 {
        3 * self.width() * u64::from(self.conv_kernel) + self.width() + u64::from(self.heads) + u64::from(self.head_dim)
    }
}

#[cfg(test)]
mod tests {
    use super::KimiDelta;

    /// A layer of Kimi-Linear-48B-A3B: 32 heads of 128 at a hidden size of 2,304.
    #[test]
    fn maps_of_kimis_delta_attention_add_up() {
        let net = KimiDelta { heads: 32, head_dim: 128, conv_kernel: 4 };
        let maps: f64 = net.projections(2304).iter().map(|map| map.input * map.output).sum();
        assert_eq!(net.weights(2304), maps as u64);
        assert_eq!(net.small_parameters(), 3 * 4096 * 4 + 4096 + 32 + 128);
    }
}
