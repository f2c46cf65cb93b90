//! Exact parameter counts of a model from its parts.

use serde::Serialize;

use super::{Ffn, Layer, Mixer, Model};

/// Parameters of one layer, by the way in which they are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerParameters {
    /// Mixer with its biases and inner norms.
    pub mixer: u64,
    /// Dense MLP of the layer.
    pub mlp: u64,
    /// All routed experts together.
    pub experts: u64,
    /// Shared experts together.
    pub shared: u64,
    /// Router and gate of the shared expert.
    pub router: u64,
    /// Norms over the hidden size.
    pub norms: u64,
    /// Parameters of any other part.
    pub other: u64,
    /// Part of `mixer` that tensor parallelism does not split: down-projections of latent attention and their norms, its indexer.
    pub mixer_whole: u64,
}

impl LayerParameters {
    /// Parameters without the routed experts.
    pub const fn dense(&self) -> u64 {
        let Self { mixer, mlp, experts: _, shared, router, norms, other, mixer_whole: _ } = *self;
        mixer + mlp + shared + router + norms + other
    }

    /// Parameters that every tensor-parallel rank has whole: low-rank down-projections, routers, projections of latent experts and norms.
    ///
    /// Source: [megatron-lm] `multi_latent_attention.py` (`parallel_mode = "duplicated"`), `moe/router.py`, `moe/moe_layer.py`.
    pub const fn whole(&self) -> u64 {
        self.mixer_whole + self.router + self.norms
    }

    /// Sum of all parts.
    pub const fn total(&self) -> u64 {
        self.dense() + self.experts
    }
}

/// Parameters of a whole model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelParameters {
    /// Total, without multi-token prediction.
    pub total: u64,
    /// Active parameters per token: all except the experts that the token does not use.
    pub active: u64,
    /// Input embedding (and learned positions).
    pub embedding: u64,
    /// Output head; 0 when tied.
    pub head: u64,
    /// Mixers: attention, latent attention, state-space blocks.
    pub mixer: u64,
    /// Dense MLPs of all layers.
    pub mlp: u64,
    /// Routed experts of all layers.
    pub experts: u64,
    /// Shared experts of all layers.
    pub shared_experts: u64,
    /// Routers of all layers, and projections into and out of the latent space of their experts.
    pub router: u64,
    /// Norms over the hidden size, including the final norm and the embedding's.
    pub norm: u64,
    /// Parameters of any other part.
    pub other: u64,
    /// Multi-token prediction: extra layers and their projections, not in `total`.
    pub mtp: u64,
}

impl Mixer {
    /// Parameters beside the linear maps of [`Self::weights`]: convolutions, biases, inner norms, an indexer.
    fn small_parameters(&self, hidden: u32, norm_width: u64) -> u64 {
        match self {
            Self::Attention(a) => a.small_parameters(hidden, norm_width),
            Self::Mla(m) => m.index_weights(hidden) + m.small_parameters(norm_width),
            Self::Mamba(m) => m.small_parameters(hidden),
            Self::DeltaNet(d) => d.small_parameters(),
            Self::KimiDelta(d) => d.small_parameters(),
            Self::ShortConv(c) => c.small_parameters(hidden),
            Self::AttentionMamba(both) => both.mixers().iter().map(|m| m.small_parameters(hidden, norm_width)).sum(),
            Self::None => 0,
        }
    }
}

impl Layer {
    /// Parameters of this layer.
    ///
    /// Source: specification §1.1, after [megatron-lm] `theoretical_memory_usage.py`.
    pub fn parameters(&self, hidden: u32, norm_width: u64) -> LayerParameters {
        let mixer = self.mixer.weights(hidden) + self.mixer.small_parameters(hidden, norm_width);
        let mixer_whole = if let Mixer::Mla(m) = &self.mixer { m.whole_parameters(hidden, norm_width) } else { 0 };
        let (mlp, experts, shared, router) = match &self.ffn {
            Ffn::Dense(mlp) => (mlp.parameters(hidden), 0, 0, 0),
            Ffn::Moe(moe) => (
                0,
                moe.expert_parameters(hidden),
                moe.shared().map_or(0, |mlp| mlp.parameters(hidden)),
                moe.router_parameters(hidden) + moe.latent_weights(hidden),
            ),
            Ffn::None => (0, 0, 0, 0),
        };
        let norms = u64::from(self.norms) * norm_width * u64::from(hidden);
        LayerParameters { mixer, mlp, experts, shared, router, norms, other: self.extra_parameters, mixer_whole }
    }
}

impl Model {
    /// Parameters of a layer of this kind.
    pub fn layer_parameters(&self, kind: usize) -> LayerParameters {
        self.kinds[kind].parameters(self.hidden, self.norm.width())
    }

    /// Parameters of the whole model.
    pub fn parameters(&self) -> ModelParameters {
        let h = u64::from(self.hidden);
        let embedding = (u64::from(self.vocab) + u64::from(self.learned_positions)) * h;
        let head_bias = if self.head_bias { u64::from(self.vocab) } else { 0 };
        let head = if self.tied_embeddings { 0 } else { u64::from(self.vocab) * h } + head_bias;
        let mut sum = ModelParameters {
            embedding,
            head,
            norm: self.norm.width() * h * if self.embedding_norm { 2 } else { 1 },
            ..ModelParameters::default()
        };
        let mut idle = 0;
        for (kind, count) in self.kind_counts().into_iter().enumerate() {
            let LayerParameters { mixer, mlp, experts, shared, router, norms, other, mixer_whole: _ } =
                self.layer_parameters(kind);
            let count = u64::from(count);
            sum.mixer += count * mixer;
            sum.mlp += count * mlp;
            sum.experts += count * experts;
            sum.shared_experts += count * shared;
            sum.router += count * router;
            sum.norm += count * norms;
            sum.other += count * other;
            if let Some(moe) = self.kinds[kind].moe() {
                idle += count * u64::from(moe.experts - moe.top_k) * moe.one_expert(self.hidden);
            }
        }
        sum.total = sum.embedding
            + sum.head
            + sum.mixer
            + sum.mlp
            + sum.experts
            + sum.shared_experts
            + sum.router
            + sum.norm
            + sum.other;
        sum.active = sum.total - idle;
        sum.mtp = u64::from(self.mtp_depth) * self.mtp_layer_parameters();
        sum
    }

    /// Parameters of one multi-token-prediction depth: a layer of the last kind, the 2h·h projection and two norms.
    ///
    /// Source: specification §1.1 (embedding and head are shared).
    pub(crate) fn mtp_layer_parameters(&self) -> u64 {
        let h = u64::from(self.hidden);
        self.layer_parameters(self.last_kind()).total() + 2 * h * h + 2 * self.norm.width() * h
    }
}
