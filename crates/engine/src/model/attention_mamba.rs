//! Attention and a Mamba-2 block side by side in one layer.

use serde::{Deserialize, Serialize};

use super::attention::Attention;
use super::recurrent::Mamba;

/// Attention and a Mamba-2 block side by side: both read one normed input, each scaled by numbers of its own, and their outputs are
/// added (Falcon-H1).
///
/// Source: [transformers] `modeling_falcon_h1.py`, `FalconH1DecoderLayer`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionMamba {
    /// Attention.
    pub attention: Attention,
    /// Mamba-2 block.
    pub mamba: Mamba,
}
