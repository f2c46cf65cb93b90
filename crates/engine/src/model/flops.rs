//! Model FLOPs: operations of training one token by definition, independent of the kernels.

use super::{Ffn, Layer, Mixer, Model, ShortConv, Span};
use crate::units::Flops;

/// Convention for counting the attention FLOPs of a causal model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionConvention {
    /// Half the square, as a causal kernel computes (Megatron-Core today, DeepSeek's second figure).
    Causal,
    /// The whole square, as SC'21, `NeMo` up to 25.07, `PaLM` and llm-foundry count.
    Full,
}

impl Mixer {
    /// Weights of the linear maps, without those of an indexer.
    pub(super) fn weights(&self, hidden: u32) -> u64 {
        match self {
            Self::Attention(a) => a.weights(hidden),
            Self::Mla(m) => m.weights(hidden),
            Self::Mamba(m) => m.weights(hidden),
            Self::DeltaNet(d) => d.weights(hidden),
            Self::KimiDelta(d) => d.weights(hidden),
            Self::ShortConv(_) => ShortConv::weights(hidden),
            Self::AttentionMamba(both) => both.mixers().iter().map(|mixer| mixer.weights(hidden)).sum(),
            Self::None => 0,
        }
    }

    /// Forward FLOPs per token of scores and context (or of the state update).
    ///
    /// ```text
    /// 2·a·(d_qk + d_v)·σ                        attention, σ = mean keys seen (specification §1.3)
    /// 2·3·heads·head_dim·state                  Mamba-2: decay, input and output of the state
    /// 2·h·(1 + L)                               short convolution: two gates and L taps
    /// ```
    fn mixing_flops(&self, hidden: u32, s: f64, convention: AttentionConvention) -> f64 {
        let keys = |span: Span| match convention {
            AttentionConvention::Causal => span.mean_keys(s),
            AttentionConvention::Full => match span {
                Span::Full => s,
                Span::Window(w) | Span::Chunk(w) => s.min(f64::from(w)),
            },
        };
        match self {
            Self::Attention(a) => 2.0 * f64::from(a.heads) * f64::from(a.head_dim + a.v_dim()) * keys(a.span),
            Self::Mla(m) => 2.0 * f64::from(m.heads) * f64::from(m.qk_dim() + m.v_dim) * keys(m.span()),
            Self::Mamba(m) => 6.0 * m.inner() as f64 * f64::from(m.state),
            Self::DeltaNet(d) => 6.0 * d.values() as f64 * f64::from(d.key_dim),
            Self::KimiDelta(d) => 6.0 * d.width() as f64 * f64::from(d.head_dim),
            Self::ShortConv(c) => c.flops(hidden),
            Self::AttentionMamba(both) => {
                both.mixers().iter().map(|mixer| mixer.mixing_flops(hidden, s, convention)).sum()
            }
            Self::None => 0.0,
        }
    }
}

impl Layer {
    /// Number of weights that one token multiplies with, without those of an indexer.
    pub fn matmul_weights(&self, hidden: u32) -> f64 {
        let ffn = match &self.ffn {
            Ffn::Dense(mlp) => mlp.weights(hidden),
            Ffn::Moe(moe) => {
                u64::from(moe.top_k) * moe.expert().weights(moe.token_width(hidden))
                    + moe.latent_weights(hidden)
                    + moe.shared().map_or(0, |mlp| mlp.weights(hidden))
                    + u64::from(hidden) * u64::from(moe.experts)
            }
            Ffn::None => 0,
        };
        (self.mixer.weights(hidden) + ffn) as f64
    }

    /// Forward FLOPs per token of scores and context (or of the state update).
    pub fn mixing_flops(&self, hidden: u32, s: f64, convention: AttentionConvention) -> f64 {
        self.mixer.mixing_flops(hidden, s, convention)
    }

    /// FLOPs per token of an indexer, forward and backward; its inputs get no gradient.
    ///
    /// ```text
    /// 4·weights + 2·a_i·d_i·(σ + 2·κ)          σ = all keys before a token, κ = those that are chosen
    /// ```
    ///
    /// Source: [deepseek-v32] §2.1: its loss trains it alone, over the chosen keys.
    fn index_flops(&self, hidden: u32, s: f64) -> f64 {
        let Mixer::Mla(mla) = &self.mixer else { return 0.0 };
        let Some(indexer) = &mla.indexer else { return 0.0 };
        let scores = indexer.score_flops(Span::Full.mean_keys(s), indexer.span().mean_keys(s));
        4.0 * mla.index_weights(hidden) as f64 + scores
    }
}

impl Model {
    /// Model FLOPs of training one token, forward and backward.
    ///
    /// ```text
    /// F = 3·Σ_layers(2·weights + scores) + 6·V·h·(1 + MTP)          specification §1.4
    /// ```
    ///
    /// Model FLOPs exclude the embedding look-up; a multi-token-prediction depth adds a layer, its projection and a head.
    pub fn flops_per_token(&self, seq_len: u32, convention: AttentionConvention) -> Flops {
        let (h, s) = (f64::from(self.hidden), f64::from(seq_len));
        let layer = |kind: usize| {
            let layer = &self.kinds[kind];
            3.0 * (2.0 * layer.matmul_weights(self.hidden) + layer.mixing_flops(self.hidden, s, convention))
                + layer.index_flops(self.hidden, s)
        };
        let layers: f64 =
            self.kind_counts().iter().enumerate().map(|(kind, &count)| f64::from(count) * layer(kind)).sum();
        let mtp = f64::from(self.mtp_depth);
        let extra = mtp * (layer(self.last_kind()) + 6.0 * 2.0 * h * h);
        let head = 6.0 * f64::from(self.vocab) * h * (1.0 + mtp);
        Flops::new(layers + extra + head)
    }
}
