//! Grouped-query attention, with multi-head and multi-query attention as special cases, and the types that all kinds of
//! attention share.

use serde::{Deserialize, Serialize};

/// Attention span: the keys that each query attends to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// All keys up to the query's position (causal).
    #[default]
    Full,
    /// The last keys up to the query's position, at most this many.
    Window(u32),
    /// Keys of the query's own chunk of this size, up to its position.
    Chunk(u32),
}

impl Span {
    /// Mean number of keys that a query attends to in a causal sequence of `s` tokens (σ of the specification §1.3).
    ///
    /// ```text
    /// full    s/2
    /// window  W·(1 − W/(2s))          W ≤ s
    /// chunk   C/2                     C ≤ s
    /// ```
    pub fn mean_keys(self, s: f64) -> f64 {
        match self {
            Self::Window(w) if f64::from(w) < s => f64::from(w) * (1.0 - f64::from(w) / (2.0 * s)),
            Self::Chunk(c) if f64::from(c) < s => f64::from(c) / 2.0,
            Self::Full | Self::Window(_) | Self::Chunk(_) => s / 2.0,
        }
    }
}

/// Normalisation of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QkNorm {
    /// No normalisation.
    #[default]
    None,
    /// One weight over a head's dimension, shared by the heads (Qwen3, Gemma 3).
    PerHead,
    /// One weight over all heads (OLMo 2).
    Full,
}

/// Gate on the output of attention, a projection of the layer's input through a sigmoid or the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputGate {
    /// No gate.
    #[default]
    None,
    /// One gate for each head (Laguna, Step 3.5).
    PerHead,
    /// One gate for each element (Qwen3-Next).
    PerElement,
}

/// Grouped-query attention; `kv_heads = heads` is multi-head, 1 is multi-query.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Number of query heads.
    pub heads: u32,
    /// Number of key and value heads.
    pub kv_heads: u32,
    /// Dimension of a head of queries and keys; of values too, where `value_dim` is 0.
    pub head_dim: u32,
    /// Dimension of a head of values where it is another one (MiMo-V2); 0 where it is not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub value_dim: u32,
    /// Attention span of the layer.
    #[serde(default)]
    pub span: Span,
    /// Whether the query, key and value projections have biases.
    #[serde(default)]
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    #[serde(default)]
    pub out_bias: bool,
    /// Normalisation of queries and keys.
    #[serde(default)]
    pub qk_norm: QkNorm,
    /// Whether the softmax has a learned sink per head (GPT-OSS).
    #[serde(default)]
    pub sinks: bool,
    /// Gate on the output, projected with the queries.
    #[serde(default)]
    pub output_gate: OutputGate,
    /// Whether keys serve as values, without a value projection (Gemma 4, global layers).
    #[serde(default)]
    pub keys_are_values: bool,
    /// Whether positions are rotary.
    #[serde(default = "yes")]
    pub rope: bool,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field over by reference")]
const fn is_zero(size: &u32) -> bool {
    *size == 0
}

impl Attention {
    /// Rotary attention over all positions, without biases, norms or other extras.
    pub const fn plain(heads: u32, kv_heads: u32, head_dim: u32) -> Self {
        Self {
            heads,
            kv_heads,
            head_dim,
            value_dim: 0,
            span: Span::Full,
            qkv_bias: false,
            out_bias: false,
            qk_norm: QkNorm::None,
            sinks: false,
            output_gate: OutputGate::None,
            keys_are_values: false,
            rope: true,
        }
    }

    /// Dimension of a head of values.
    pub const fn v_dim(&self) -> u32 {
        if self.value_dim == 0 { self.head_dim } else { self.value_dim }
    }

    /// Elements per token of the context: values of all heads of queries.
    pub fn context_width(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.v_dim())
    }

    /// Elements per token of queries (and gate), keys and values: the width of the fused projection.
    pub fn qkv_width(&self) -> u64 {
        let values = if self.keys_are_values { 0 } else { u64::from(self.kv_heads) * u64::from(self.v_dim()) };
        u64::from(self.head_dim) * u64::from(self.heads + self.kv_heads) + self.gate_width() + values
    }

    /// Elements per token of the gate on the output.
    fn gate_width(&self) -> u64 {
        match self.output_gate {
            OutputGate::None => 0,
            OutputGate::PerHead => u64::from(self.heads),
            OutputGate::PerElement => self.context_width(),
        }
    }

    /// Weights of the two projections, without biases and norms.
    ///
    /// ```text
    /// h·(d·(a + g) + d_v·g) + a·d_v·h          specification §1.1, d_v = d but where values are narrower
    /// ```
    pub fn weights(&self, hidden: u32) -> u64 {
        let h = u64::from(hidden);
        h * self.qkv_width() + self.context_width() * h
    }

    /// Biases, sinks and the norms on queries and keys. The gate of a head has no bias.
    pub fn small_parameters(&self, hidden: u32, norm_width: u64) -> u64 {
        let d = u64::from(self.head_dim);
        let unbiased = if self.output_gate == OutputGate::PerHead { self.gate_width() } else { 0 };
        let qkv = if self.qkv_bias { self.qkv_width() - unbiased } else { 0 };
        let out = if self.out_bias { u64::from(hidden) } else { 0 };
        let norms = match self.qk_norm {
            QkNorm::None => 0,
            QkNorm::PerHead => 2 * d,
            QkNorm::Full => d * (u64::from(self.heads) + u64::from(self.kv_heads)),
        };
        let sinks = if self.sinks { u64::from(self.heads) } else { 0 };
        qkv + out + norms * norm_width + sinks
    }
}

/// Widths of a linear map on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Widths {
    /// Width of the input.
    pub input: f64,
    /// Width of the output.
    pub output: f64,
}

/// Linear map of a layer, before tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Projection {
    /// Width of the input.
    pub input: f64,
    /// Width of the output.
    pub output: f64,
    /// Split of the map under tensor parallelism.
    pub split: Split,
    /// Whether it is an up-projection of latent attention, which `mla_up_proj` recomputes.
    pub is_up: bool,
}

/// Split of a linear map under tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Split of the output (column parallel).
    Columns,
    /// Split of the input (row parallel).
    Rows,
    /// No split: every rank has the whole map.
    Whole,
}

impl Projection {
    /// Creates a column-parallel map.
    pub const fn columns(input: f64, output: f64) -> Self {
        Self { input, output, split: Split::Columns, is_up: false }
    }
    /// Creates a row-parallel map.
    pub const fn rows(input: f64, output: f64) -> Self {
        Self { input, output, split: Split::Rows, is_up: false }
    }
    /// Map that every rank has whole.
    pub const fn whole(input: f64, output: f64) -> Self {
        Self { input, output, split: Split::Whole, is_up: false }
    }
    /// Map as an up-projection of latent attention.
    pub(super) const fn up(self) -> Self {
        Self { is_up: true, ..self }
    }
    /// Widths on one of `tp` ranks.
    pub fn on_rank(&self, tp: f64) -> Widths {
        let Self { input, output, .. } = *self;
        match self.split {
            Split::Columns => Widths { input, output: output / tp },
            Split::Rows => Widths { input: input / tp, output },
            Split::Whole => Widths { input, output },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sliding layers of MiMo-V2-Flash: 64 heads, 8 of them for keys of 192 and values of 128.
    #[test]
    fn narrow_values_narrow_two_projections_and_the_context() {
        let wide = Attention::plain(64, 8, 192);
        let narrow = Attention { value_dim: 128, ..wide.clone() };
        assert_eq!((narrow.qkv_width(), narrow.context_width()), (64 * 192 + 8 * 192 + 8 * 128, 64 * 128));
        assert_eq!(wide.weights(4096) - narrow.weights(4096), 4096 * (8 + 64) * (192 - 128));
        assert_eq!(Attention { value_dim: 192, ..wide.clone() }.weights(4096), wide.weights(4096));
    }

    #[test]
    fn a_sliding_window_sees_3072_of_4096_keys() {
        assert!((Span::Window(4096).mean_keys(8192.0) - 3072.0).abs() < 1e-9);
        assert!((Span::Full.mean_keys(8192.0) - 4096.0).abs() < 1e-9);
    }
}
