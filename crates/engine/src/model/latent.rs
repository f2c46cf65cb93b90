//! Multi-head latent attention, over all keys or those that an indexer chooses.

use serde::{Deserialize, Serialize};

use super::attention::{Projection, Span, Split};
use super::indexer::Indexer;
use super::recurrent::{is_true, yes};

/// Multi-head latent attention.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mla {
    /// Number of query heads.
    pub heads: u32,
    /// Rank of the query compression; 0 for a full projection.
    pub q_rank: u32,
    /// Rank of the key-value compression.
    pub kv_rank: u32,
    /// Dimension of a head's query and key without position.
    pub nope_dim: u32,
    /// Dimension of a head's rotary part; its key is shared by the heads.
    pub rope_dim: u32,
    /// Dimension of a head's value.
    pub v_dim: u32,
    /// Whether the rotary part is rotated; without positions (Kimi-Linear) it is as wide and shared by the heads as well.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub rope: bool,
    /// Indexer that chooses the keys of each query; none where queries attend to all keys before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexer: Option<Indexer>,
}

impl Mla {
    /// Dimension of a head's query and key.
    pub const fn qk_dim(&self) -> u32 {
        self.nope_dim.saturating_add(self.rope_dim)
    }

    /// Input and output width of each projection, and its split under tensor parallelism:
    /// query down, query up, key-value down (with the rotary key), key-value up, output.
    pub fn projections(&self, hidden: u32) -> Vec<Projection> {
        self.before_keys(hidden).into_iter().chain([self.key_value_up(), self.output(hidden)]).collect()
    }

    /// The projections that run over tokens. With an indexer, key-value up does not: it is absorbed, its key part into the
    /// queries and its value part into the results of attention.
    pub(crate) fn token_projections(&self, hidden: u32) -> Vec<Projection> {
        if self.indexer.is_none() {
            return self.projections(hidden);
        }
        self.before_keys(hidden).into_iter().chain([self.output(hidden)]).collect()
    }

    /// Query down, query up and key-value down.
    fn before_keys(&self, hidden: u32) -> Vec<Projection> {
        let (h, q) = (f64::from(hidden), f64::from(self.q_rank));
        let queries = f64::from(self.heads) * f64::from(self.qk_dim());
        let compressed = Projection::whole(h, f64::from(self.kv_rank) + f64::from(self.rope_dim));
        if self.q_rank > 0 {
            vec![Projection::whole(h, q), Projection::columns(q, queries).up(), compressed]
        } else {
            vec![Projection::columns(h, queries), compressed]
        }
    }

    fn key_value_up(&self) -> Projection {
        let width = f64::from(self.nope_dim) + f64::from(self.v_dim);
        Projection::columns(f64::from(self.kv_rank), f64::from(self.heads) * width).up()
    }

    fn output(&self, hidden: u32) -> Projection {
        Projection::rows(f64::from(self.heads) * f64::from(self.v_dim), f64::from(hidden))
    }

    /// Keys that a query attends to.
    pub fn span(&self) -> Span {
        self.indexer.as_ref().map_or(Span::Full, Indexer::span)
    }

    /// Linear maps of the indexer; nothing where there is none.
    pub fn index_projections(&self, hidden: u32) -> Vec<Projection> {
        self.indexer.as_ref().map_or_else(Vec::new, |indexer| indexer.projections(self.queries_from(hidden), hidden))
    }

    /// Weights of the indexer's maps.
    pub(crate) fn index_weights(&self, hidden: u32) -> u64 {
        self.indexer.as_ref().map_or(0, |indexer| indexer.weights(self.queries_from(hidden), hidden))
    }

    /// Input width of the projection of index queries: the compressed queries, or the hidden size.
    pub const fn queries_from(&self, hidden: u32) -> u32 {
        if self.q_rank > 0 { self.q_rank } else { hidden }
    }

    /// Weights of the projections, without the indexer's.
    ///
    /// ```text
    /// q_r·(h + a·d_qk) + kv_r·(h + a·(d_qk − d_r + d_v)) + h·d_r + a·d_v·h          specification §1.1
    /// ```
    pub fn weights(&self, hidden: u32) -> u64 {
        self.projections(hidden).iter().map(|p| (p.input * p.output) as u64).sum()
    }

    /// Parameters that tensor parallelism does not split: the projections down, the norms of their outputs, and the indexer.
    pub(crate) fn whole_parameters(&self, hidden: u32, norm_width: u64) -> u64 {
        let down = self.projections(hidden).into_iter().filter(|p| p.split == Split::Whole);
        down.chain(self.index_projections(hidden)).map(|p| (p.input * p.output) as u64).sum::<u64>()
            + self.small_parameters(norm_width)
    }

    /// The norms on the two compressions and on the index key.
    pub fn small_parameters(&self, norm_width: u64) -> u64 {
        let index_key = self.indexer.as_ref().map_or(0, Indexer::small_parameters);
        (u64::from(self.q_rank) + u64::from(self.kv_rank)) * norm_width + index_key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latent_attention_keeps_its_projections_down_on_every_rank() {
        let mla = Mla {
            heads: 128,
            q_rank: 1536,
            kv_rank: 512,
            nope_dim: 128,
            rope_dim: 64,
            v_dim: 128,
            rope: true,
            indexer: None,
        };
        assert_eq!(mla.whole_parameters(7168, 1), 7168 * 1536 + 7168 * (512 + 64) + 1536 + 512);
    }
}
