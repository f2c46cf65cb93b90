//! Latent attention of a layer, and sparse attention of a whole model: which layers choose keys, and which take those of another.

use super::{Indexer, Layer, Mixer, Mla, Model, ModelError};

impl Layer {
    /// Latent attention of the layer, if it has any.
    pub const fn latent(&self) -> Option<&Mla> {
        match &self.mixer {
            Mixer::Mla(mla) => Some(mla),
            Mixer::Attention(_)
            | Mixer::Mamba(_)
            | Mixer::DeltaNet(_)
            | Mixer::KimiDelta(_)
            | Mixer::ShortConv(_)
            | Mixer::AttentionMamba(_)
            | Mixer::None => None,
        }
    }

    /// Indexer of the layer's latent attention, if it has one.
    pub fn indexer(&self) -> Option<&Indexer> {
        self.latent()?.indexer.as_ref()
    }
}

impl Model {
    /// Indexer of any layer, if there is one.
    pub fn indexer(&self) -> Option<&Indexer> {
        self.kinds.iter().find_map(Layer::indexer)
    }

    /// Whether a layer takes the keys that an earlier one chose.
    pub fn shares_keys(&self, layer: usize) -> bool {
        self.kinds[self.order[layer]].indexer().is_some_and(|indexer| indexer.shared)
    }

    /// Whether any layer takes the keys that an earlier one chose.
    pub fn shares_any_keys(&self) -> bool {
        (0..self.order.len()).any(|layer| self.shares_keys(layer))
    }

    /// Checks that layers attend to chosen keys all or none, as many keys each, and that index heads hold the rotary part.
    pub(super) fn check_indexers(&self) -> Result<(), ModelError> {
        let Some(first) = self.indexer() else { return Ok(()) };
        for layer in &self.kinds {
            let Some((mla, indexer)) = layer.latent().and_then(|mla| Some((mla, mla.indexer.as_ref()?))) else {
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
