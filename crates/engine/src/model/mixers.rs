//! Kinds of the mixers of a layer and of a whole model.

use std::collections::BTreeSet;

use super::{Mixer, MixerKind, Mla, Model};

impl Mixer {
    /// Kind of the mixer; none of a layer that is an MLP alone.
    pub const fn kind(&self) -> Option<MixerKind> {
        Some(match self {
            Self::Attention(_) => MixerKind::Attention,
            Self::Mla(Mla { indexer: None, .. }) => MixerKind::Mla,
            Self::Mla(_) => MixerKind::SparseMla,
            Self::Mamba(_) => MixerKind::Mamba,
            Self::DeltaNet(_) => MixerKind::DeltaNet,
            Self::KimiDelta(_) => MixerKind::KimiDelta,
            Self::ShortConv(_) => MixerKind::ShortConv,
            Self::AttentionMamba(_) => MixerKind::AttentionMamba,
            Self::None => return None,
        })
    }
}

impl Model {
    /// Kinds of the mixers of its layers.
    pub fn mixer_kinds(&self) -> BTreeSet<MixerKind> {
        self.kinds.iter().filter_map(|layer| layer.mixer.kind()).collect()
    }
}
