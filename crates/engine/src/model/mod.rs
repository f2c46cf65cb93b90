//! Model architecture: an ordered list of layers between an embedding and a loss head.

pub mod attention;
mod attention_mamba;
pub mod convolution;
pub mod details;
mod error;
pub mod ffn;
pub mod flops;
pub mod indexer;
pub mod latent;
mod limits;
mod mixer_kind;
mod mixers;
pub mod parameters;
pub mod recurrent;
mod sparse;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::range::{LAYERS, PARAMETERS};
use crate::sources::own_source;

pub use attention::{Attention, OutputGate, QkNorm, Span};
pub use attention_mamba::AttentionMamba;
pub use convolution::ShortConv;
pub use details::{Activation, Details, RopeScaling, RopeScalingKind, Router};
pub use error::ModelError;
pub use ffn::{Ffn, Mlp, Moe, RouterScore};
pub use indexer::Indexer;
pub use latent::Mla;
pub use mixer_kind::MixerKind;
pub use recurrent::{DeltaNet, KimiDelta, Mamba};

/// Normalisation of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// RMSNorm: one weight per channel.
    Rms,
    /// LayerNorm: a weight and a bias per channel.
    Layer,
    /// LayerNorm without a bias.
    LayerNoBias,
    /// LayerNorm with neither weight nor bias.
    LayerPlain,
}

impl Norm {
    /// Number of parameters per channel (ν of the specification §1.1).
    pub const fn width(self) -> u64 {
        match self {
            Self::LayerPlain => 0,
            Self::Rms | Self::LayerNoBias => 1,
            Self::Layer => 2,
        }
    }
}

/// Token-mixing part of a layer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Mixer {
    /// Multi-head, grouped-query or multi-query attention.
    Attention(Attention),
    /// Multi-head latent attention (DeepSeek).
    Mla(Mla),
    /// Mamba-2 state-space block.
    Mamba(Mamba),
    /// Gated delta rule (linear attention of Qwen3-Next).
    DeltaNet(DeltaNet),
    /// Kimi Delta Attention (Kimi-Linear).
    KimiDelta(KimiDelta),
    /// Gated short convolution (LFM2).
    ShortConv(ShortConv),
    /// Attention and a Mamba-2 block side by side (Falcon-H1).
    AttentionMamba(AttentionMamba),
    /// No mixer: the layer is an MLP alone (Nemotron-H counts those as layers).
    None,
}

impl AttentionMamba {
    /// The two mixers, each as a layer of its own would have it.
    pub fn mixers(&self) -> [Mixer; 2] {
        [Mixer::Attention(self.attention.clone()), Mixer::Mamba(self.mamba.clone())]
    }
}

/// One layer: a mixer, a feed-forward part, and the norms around them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Token-mixing part.
    pub mixer: Mixer,
    /// Feed-forward part, which processes each token alone.
    pub ffn: Ffn,
    /// Norms over the hidden size: 2 before the two parts, 4 where they are sandwiched, 1 where parallel.
    #[serde(default = "two")]
    pub norms: u32,
    /// Parameters outside all matrices, norms and biases named here, such as layer scalars.
    #[serde(default)]
    pub extra_parameters: u64,
}

const fn two() -> u32 {
    2
}

impl Layer {
    /// Attention of the layer, if it has any that is not latent.
    pub const fn attention(&self) -> Option<&Attention> {
        match &self.mixer {
            Mixer::Attention(attention) | Mixer::AttentionMamba(AttentionMamba { attention, .. }) => Some(attention),
            Mixer::Mla(_)
            | Mixer::Mamba(_)
            | Mixer::DeltaNet(_)
            | Mixer::KimiDelta(_)
            | Mixer::ShortConv(_)
            | Mixer::None => None,
        }
    }

    /// Mixture of experts of the layer, if it has one.
    pub const fn moe(&self) -> Option<&Moe> {
        match &self.ffn {
            Ffn::Moe(moe) => Some(moe),
            Ffn::Dense(_) | Ffn::None => None,
        }
    }
}

/// Model to train.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// Name as printed.
    pub name: String,
    /// Key of its source in `docs/sources.toml`, or the path of the file it was read from.
    pub source: String,
    /// Hidden size.
    pub hidden: u32,
    /// Vocabulary size before padding.
    pub vocab: u32,
    /// Sequence length of its training: the default of `--seq-len`.
    pub seq_len: u32,
    /// Whether input and output embeddings share one matrix.
    pub tied_embeddings: bool,
    /// Rows of a learned position table; 0 for rotary or ALiBi.
    pub learned_positions: u32,
    /// Whether the embedding is normalised (BLOOM).
    pub embedding_norm: bool,
    /// Whether the output head has a bias per vocabulary entry (Phi-1/2).
    pub head_bias: bool,
    /// Normalisation of the layers.
    pub norm: Norm,
    /// Whether training uses dropout.
    pub dropout: bool,
    /// Distinct kinds of layers.
    pub kinds: Vec<Layer>,
    /// Kind of each layer, in order: indices into `kinds`.
    pub order: Vec<usize>,
    /// Multi-token-prediction depth: number of extra layers of the last kind, each with a head.
    pub mtp_depth: u32,
    /// Settings that change neither parameters nor price.
    #[serde(skip_serializing_if = "Details::is_unknown")]
    pub details: Details,
}

impl Model {
    /// Number of layers, without multi-token prediction.
    pub const fn layers(&self) -> u32 {
        self.order.len() as u32
    }

    /// Number of layers of each kind.
    pub fn kind_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.kinds.len()];
        for &kind in &self.order {
            counts[kind] += 1;
        }
        counts
    }

    /// Kind of the multi-token-prediction layers: that of the last layer.
    pub fn last_kind(&self) -> usize {
        *self.order.last().expect("a model has at least one layer")
    }

    /// Largest number of experts in any layer; 0 for a dense model.
    pub fn experts(&self) -> u32 {
        self.kinds.iter().filter_map(Layer::moe).map(|moe| moe.experts).max().unwrap_or(0)
    }

    /// Whether any layer has experts.
    pub fn is_moe(&self) -> bool {
        self.experts() > 0
    }

    /// Whether any layer uses multi-head latent attention.
    pub fn has_mla(&self) -> bool {
        self.kinds.iter().any(|layer| matches!(layer.mixer, Mixer::Mla(_)))
    }

    /// Vocabulary size padded to a multiple of 128·tp, so that all `tp` ranks have equal shares.
    ///
    /// Source: [megatron-lm] `--make-vocab-size-divisible-by`, default 128.
    pub(crate) fn padded_vocab(&self, tp: u32) -> f64 {
        let multiple = 128 * u64::from(tp);
        (u64::from(self.vocab).div_ceil(multiple) * multiple) as f64
    }
}

/// Model file, before its layer string is expanded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    name: String,
    #[serde(default = "own_source")]
    source: String,
    hidden: u32,
    vocab: u32,
    seq_len: u32,
    #[serde(default)]
    tied_embeddings: bool,
    #[serde(default)]
    learned_positions: u32,
    #[serde(default)]
    embedding_norm: bool,
    #[serde(default)]
    head_bias: bool,
    norm: Norm,
    #[serde(default)]
    dropout: bool,
    #[serde(default)]
    mtp_depth: u32,
    activation: Option<Activation>,
    rope_theta: Option<f64>,
    norm_epsilon: Option<f64>,
    layers: String,
    layer: BTreeMap<char, Layer>,
}

impl ModelFile {
    /// Expands the layer string and validates the model.
    ///
    /// # Errors
    ///
    /// The layer string does not parse, or [`Model::check`] fails.
    pub fn into_model(self) -> Result<Model, ModelError> {
        let letters: Vec<char> = self.layer.keys().copied().collect();
        let order = spell(&self.layers)?
            .into_iter()
            .map(|letter| letters.iter().position(|&l| l == letter).ok_or(ModelError::UnknownLetter { letter }))
            .collect::<Result<Vec<_>, _>>()?;
        let model = Model {
            name: self.name,
            source: self.source,
            hidden: self.hidden,
            vocab: self.vocab,
            seq_len: self.seq_len,
            tied_embeddings: self.tied_embeddings,
            learned_positions: self.learned_positions,
            embedding_norm: self.embedding_norm,
            head_bias: self.head_bias,
            norm: self.norm,
            dropout: self.dropout,
            kinds: self.layer.into_values().collect(),
            order,
            mtp_depth: self.mtp_depth,
            details: Details {
                activation: self.activation,
                rope_theta: self.rope_theta,
                norm_epsilon: self.norm_epsilon,
                ..Details::default()
            },
        };
        model.check()?;
        Ok(model)
    }
}

impl Model {
    /// Validates the model: sizes above zero, heads that form groups, at least top-k experts.
    ///
    /// # Errors
    ///
    /// Names the invalid field, with its numbers.
    pub fn check(&self) -> Result<(), ModelError> {
        let size = |text: String| Err(ModelError::Size(text));
        self.check_ranges()?;
        PARAMETERS.check("parameters", self.weight_bound().ceil())?;
        self.details.check()?;
        for layer in &self.kinds {
            match layer.attention() {
                Some(a) if a.heads % a.kv_heads != 0 => {
                    return size(format!("{} heads are not a multiple of {} kv_heads", a.heads, a.kv_heads));
                }
                Some(a) if a.keys_are_values && a.v_dim() != a.head_dim => {
                    return size(format!("keys of {} serve as values of {}", a.head_dim, a.v_dim()));
                }
                Some(_) | None => {}
            }
            if let Some(moe) = layer.moe().filter(|moe| moe.top_k > moe.experts) {
                return size(format!("top_k {} is over the {} experts", moe.top_k, moe.experts));
            }
            if let Some(moe) = layer.moe().filter(|moe| moe.latent > self.hidden) {
                return size(format!("latent {} is over the hidden size of {}", moe.latent, self.hidden));
            }
        }
        if !self.order.is_empty() && self.shares_keys(0) {
            return size(
                "the first layer has an indexer that is shared, and no layer before it chooses its keys".to_owned(),
            );
        }
        self.check_indexers()
    }
}

/// Expands a layer string: `(l*2 g)*2 l` is `l l g l l g l`.
fn spell(text: &str) -> Result<Vec<char>, ModelError> {
    let bad = |why: &str| ModelError::Layers { text: text.to_owned(), why: why.to_owned() };
    let mut stack: Vec<Vec<char>> = vec![Vec::new()];
    let mut last = Some(0); // where the item that `*n` would repeat starts in the top of the stack
    let most = LAYERS.most() as usize;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let top = stack.last_mut().expect("never empty: `)` below the bottom is refused");
        match c {
            c if c.is_whitespace() || c == ',' => {}
            '(' => {
                stack.push(Vec::new());
                last = None;
            }
            ')' => {
                let group = stack.pop().expect("just looked at");
                let outer = stack.last_mut().ok_or_else(|| bad("a `)` too many"))?;
                last = Some(outer.len());
                outer.extend(group);
            }
            '*' => {
                let mut digits = String::new();
                while let Some(d) = chars.next_if(char::is_ascii_digit) {
                    digits.push(d);
                }
                let times: usize = digits.parse().map_err(|_| bad("a `*` without a number"))?;
                let item = last.map(|from| top.split_off(from)).unwrap_or_default();
                if item.is_empty() {
                    return Err(bad("a `*` with nothing before it"));
                }
                if item.len().saturating_mul(times) > most {
                    return Err(bad(&format!("over {most} layers")));
                }
                top.extend(item.repeat(times));
            }
            c if c.is_ascii_alphabetic() => {
                last = Some(top.len());
                top.push(c);
            }
            c => return Err(bad(&format!("`{c}` is not a letter"))),
        }
        if stack.len() > most || stack.last().is_some_and(|top| top.len() > most) {
            return Err(bad(&format!("over {most} layers")));
        }
    }
    if stack.len() == 1 { Ok(stack.swap_remove(0)) } else { Err(bad("a `(` that is not closed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_spelled_out() {
        let text = |s: &str| spell(s).map(String::from_iter);
        assert_eq!(text("(l*2 g)*2 l").unwrap(), "llgllgl");
        assert_eq!(text("d*3 m*2").unwrap(), "dddmm");
        for wrong in ["(d", "d)", "*3", "d*", "d*999999999", "d-", "dd(*2)", "d(*0)", "(d*400 d*400)", "(d)*0*2"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
