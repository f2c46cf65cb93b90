//! Sparse attention of a whole model: which layers choose keys, and which take those of another.

use super::{Indexer, Mixer, Model, ModelError};

impl Model {
    /// Indexer of any layer, if there is one.
    pub fn indexer(&self) -> Option<&Indexer> {
        self.kinds.iter().find_map(|layer| match &layer.mixer {
            Mixer::Mla(mla) => mla.indexer.as_ref(),
            Mixer::Attention(_)
            | Mixer::Mamba(_)
            | Mixer::DeltaNet(_)
            | Mixer::KimiDelta(_)
            | Mixer::ShortConv(_)
            | Mixer::AttentionMamba(_)
            | Mixer::None => None,
        })
    }

    /// Whether a layer takes the keys that an earlier one chose.
    pub fn shares_keys(&self, layer: usize) -> bool {
        let indexer = match &self.kinds[self.order[layer]].mixer {
            Mixer::Mla(mla) => mla.indexer.as_ref(),
            Mixer::Attention(_)
            | Mixer::Mamba(_)
            | Mixer::DeltaNet(_)
            | Mixer::KimiDelta(_)
            | Mixer::ShortConv(_)
            | Mixer::AttentionMamba(_)
            | Mixer::None => None,
        };
        indexer.is_some_and(|indexer| indexer.shared)
    }

    /// Whether any layer takes the keys that an earlier one chose.
    pub fn shares_any_keys(&self) -> bool {
        (0..self.order.len()).any(|layer| self.shares_keys(layer))
    }

    /// Checks that layers attend to chosen keys all or none, as many keys each, and that index heads hold the rotary part.
    pub(super) fn check_indexers(&self) -> Result<(), ModelError> {
        let Some(first) = self.indexer() else { return Ok(()) };
        for layer in &self.kinds {
            let Mixer::Mla(mla) = &layer.mixer else {
                return Err(ModelError::Size("layers without an indexer stand beside layers with one".to_owned()));
            };
            let Some(indexer) = &mla.indexer else {
                return Err(ModelError::Size("layers without an indexer stand beside layers with one".to_owned()));
            };
            if (Indexer { shared: first.shared, ..indexer.clone() }) != *first {
                return Err(ModelError::Size("indexers of several sizes".to_owned()));
            }
            if indexer.head_dim < mla.rope_dim {
                let (head, rope) = (indexer.head_dim, mla.rope_dim);
                return Err(ModelError::Size(format!(
                    "index heads of {head} are narrower than the rotary part of {rope}"
                )));
            }
        }
        Ok(())
    }
}
