//! Indexer of sparse attention, which chooses the keys that each query attends to.

use serde::{Deserialize, Serialize};

use super::attention::{Projection, Span};

/// Indexer of latent attention (DeepSeek sparse attention): a light attention whose scores choose the keys of each query.
///
/// Source: [deepseek-v32] §2.1; [transformers] `modeling_deepseek_v32.py`, `DeepseekV32Indexer`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Indexer {
    /// Number of index heads.
    pub heads: u32,
    /// Dimension of an index head.
    pub head_dim: u32,
    /// Number of keys that each query attends to, at the most.
    pub top_k: u32,
    /// Whether the layer takes the keys that an earlier layer chose, and has no indexer of its own (GLM-5.2).
    #[serde(default)]
    pub shared: bool,
}

impl Indexer {
    /// The keys that a query attends to, as a span: the chosen ones are as many as those of a window.
    ///
    /// ```text
    /// mean number = k·(1 − k/(2s))          k ≤ s
    /// ```
    pub const fn span(&self) -> Span {
        Span::Window(self.top_k)
    }

    /// Width of all index queries of a token.
    pub fn queries(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.head_dim)
    }

    /// Linear maps of the indexer, none of which tensor parallelism splits: index queries from queries of width
    /// `queries_from`, the index key and the weights of the heads from the hidden size. A layer that takes the keys of
    /// another has none.
    ///
    /// Source: [megatron-lm] `dsa.py` (`parallel_mode = "duplicated"`).
    pub fn projections(&self, queries_from: u32, hidden: u32) -> Vec<Projection> {
        if self.shared {
            return Vec::new();
        }
        let h = f64::from(hidden);
        vec![
            Projection::whole(f64::from(queries_from), self.queries() as f64),
            Projection::whole(h, f64::from(self.head_dim)),
            Projection::whole(h, f64::from(self.heads)),
        ]
    }

    /// Weights of the maps.
    ///
    /// ```text
    /// q·a_i·d_i + h·(d_i + a_i)
    /// ```
    pub fn weights(&self, queries_from: u32, hidden: u32) -> u64 {
        self.projections(queries_from, hidden).iter().map(|map| (map.input * map.output) as u64).sum()
    }

    /// Weight and bias of the `LayerNorm` on the index key.
    pub fn small_parameters(&self) -> u64 {
        if self.shared { 0 } else { 2 * u64::from(self.head_dim) }
    }

    /// FLOPs per token of the index scores: forward over all keys before a token, the two gradients over the chosen ones.
    ///
    /// ```text
    /// 2·a_i·d_i·(σ + 2·κ)          σ = mean keys before a token, κ = mean keys that are chosen
    /// ```
    pub(crate) fn score_flops(&self, before: f64, chosen: f64) -> f64 {
        if self.shared { 0.0 } else { 2.0 * self.queries() as f64 * (before + 2.0 * chosen) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_V32: Indexer = Indexer { heads: 64, head_dim: 128, top_k: 2048, shared: false };

    #[test]
    fn the_indexer_of_deepseek_v32_has_its_published_size() {
        assert_eq!(OF_V32.weights(1536, 7168), 1536 * 8192 + 7168 * 128 + 7168 * 64);
        assert_eq!(OF_V32.small_parameters(), 256);
        let shared = Indexer { shared: true, ..OF_V32 };
        assert_eq!((shared.weights(1536, 7168), shared.small_parameters()), (0, 0));
    }

    /// Mean of min(k, keys before) over the positions of a sequence.
    #[test]
    fn as_many_keys_are_chosen_as_there_are_before_the_first_queries() {
        for seq_len in [512_u32, 2048, 4096, 16384] {
            let counted: f64 = (0..seq_len).map(|at| f64::from(at.min(OF_V32.top_k))).sum::<f64>() / f64::from(seq_len);
            let mean = OF_V32.span().mean_keys(f64::from(seq_len));
            assert!((counted / mean - 1.0).abs() < 0.003, "{seq_len}: {counted} counted, {mean} by formula");
        }
    }
}
