//! Kinds of mixers: those of one kind launch the same kernels, whatever their sizes.

use serde::{Deserialize, Serialize};

/// Kind of a layer's mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MixerKind {
    /// Attention over all keys, a window or a chunk of them.
    Attention,
    /// Multi-head latent attention.
    Mla,
    /// Latent attention over the keys that an indexer chooses.
    SparseMla,
    /// Mamba-2 state-space block.
    Mamba,
    /// Gated delta rule.
    DeltaNet,
    /// Kimi Delta Attention.
    KimiDelta,
    /// Gated short convolution.
    ShortConv,
    /// Attention and a Mamba-2 block side by side.
    AttentionMamba,
}

impl MixerKind {
    /// Layers of this kind, as sentences name them.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Mla => "latent attention",
            Self::SparseMla => "sparse attention",
            Self::Mamba => "Mamba-2 blocks",
            Self::DeltaNet => "gated delta rules",
            Self::KimiDelta => "Kimi Delta Attention",
            Self::ShortConv => "gated short convolutions",
            Self::AttentionMamba => "attention beside Mamba-2 blocks",
        }
    }
}
