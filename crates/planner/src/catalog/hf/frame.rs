//! Fields that all families share: sizes, tied embeddings, sequence length, and the usual attention and MLP.

use super::error::HfError;
use super::fields::Fields;
use meshwright_engine::distinct::distinct;
use meshwright_engine::model::{Attention, Details, Ffn, Layer, Mixer, Mlp, Model, Norm, Span};

/// The longest sequence that is taken from a configuration.
///
/// `max_position_embeddings` is what a model can read, often after an extension of its context; most
/// of a pre-training runs at 4,096 or 8,192. `--seq-len` says otherwise.
const LONGEST_SEQUENCE: u32 = 8192;

/// The sequence length where a configuration has none.
const USUAL_SEQUENCE: u32 = 4096;

/// Default of `tie_word_embeddings` in a family's configuration class.
#[derive(Clone, Copy)]
pub enum EmbeddingTies {
    /// One matrix serves as embedding and head.
    Tied,
    /// Embedding and head are two matrices.
    Untied,
}

/// Defaults of a family for sizes that the file omits.
#[derive(Clone, Copy)]
pub struct Usual {
    /// Default vocabulary size.
    pub vocab: Option<u32>,
    /// Number of layers, if the file lists them individually.
    pub layers: Option<u32>,
    /// Default number of positions.
    pub positions: Option<u32>,
}

/// Sizes that all layers of a model share.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Hidden size.
    pub hidden: u32,
    /// Vocabulary size.
    pub vocab: u32,
    /// Number of layers.
    pub layers: u32,
    /// Training sequence length in tokens.
    pub seq_len: u32,
    /// Whether embedding and head share one matrix.
    pub tied: bool,
    /// Whether any dropout rate is above 0.
    pub dropout: bool,
}

/// Names of the number of layers.
pub const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
/// Names of the hidden size.
pub const HIDDEN: &[&str] = &["hidden_size", "n_embd", "n_embed", "d_model"];
/// Name of the vocabulary's size.
const VOCAB: &[&str] = &["vocab_size", "padded_vocab_size"];
/// Names of the number of heads.
pub const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
/// Names of the number of positions.
pub const POSITIONS: &[&str] =
    &["max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len", "model_max_length"];
/// Names of the dropout rates.
const DROPOUT: &[&str] = &[
    "attention_dropout",
    "attn_dropout_prob",
    "attn_pdrop",
    "dropout",
    "emb_dropout_prob",
    "emb_pdrop",
    "embed_dropout",
    "embd_pdrop",
    "embedding_dropout",
    "hidden_dropout",
    "resid_dropout",
    "resid_pdrop",
    "residual_dropout",
];

impl Frame {
    /// Reads the sizes of a configuration; `ties` is the family's default for tied embeddings.
    pub fn read(fields: &Fields, ties: EmbeddingTies) -> Result<Self, HfError> {
        Self::read_with(fields, ties, Usual { vocab: None, layers: None, positions: None })
    }

    /// Reads the sizes with the class's defaults for sizes that the file may leave out.
    pub fn read_with(fields: &Fields, ties: EmbeddingTies, usual: Usual) -> Result<Self, HfError> {
        let mut dropout = false;
        for &name in DROPOUT {
            dropout |= fields.real(name)?.is_some_and(|rate| rate > 0.0);
        }
        Ok(Self {
            hidden: fields.size(HIDDEN)?,
            vocab: fields.given_size(VOCAB)?.or(usual.vocab).ok_or_else(|| fields.missing(VOCAB))?,
            layers: fields.given_layers(LAYERS)?.or(usual.layers).ok_or_else(|| fields.missing(LAYERS))?,
            seq_len: fields
                .given_size(POSITIONS)?
                .or(usual.positions)
                .map_or(USUAL_SEQUENCE, |n| n.min(LONGEST_SEQUENCE)),
            tied: fields.flag("tie_word_embeddings")?.unwrap_or(matches!(ties, EmbeddingTies::Tied)),
            dropout,
        })
    }

    /// The usual attention: no bias, no norm on queries and keys, rotary, all keys.
    pub fn attention(&self, fields: &Fields) -> Result<Attention, HfError> {
        self.attention_of(fields, None)
    }

    /// Usual attention of a class that has a default `head_dim` for files without one.
    pub fn attention_of(&self, fields: &Fields, usual_dim: Option<u32>) -> Result<Attention, HfError> {
        let heads = fields.size(HEADS)?;
        let kv_heads = fields.given_size(&["num_key_value_heads", "num_kv_heads", "n_head_kv"])?.unwrap_or(heads);
        let head_dim = match fields.given_size(&["head_dim", "attention_head_dim"])?.or(usual_dim) {
            Some(dim) => dim,
            None if self.hidden.is_multiple_of(heads) => self.hidden / heads,
            None => {
                let why =
                    format!("the hidden size {} is not a multiple of it, and there is no `head_dim`", self.hidden);
                return Err(fields.unsupported("num_attention_heads", why));
            }
        };
        Ok(Attention::plain(heads, kv_heads, head_dim))
    }

    /// The usual attention with `attention_bias` on all four projections.
    pub fn biased_attention(&self, fields: &Fields, usual_dim: Option<u32>) -> Result<Attention, HfError> {
        let bias = fields.flag("attention_bias")?.unwrap_or(false);
        Ok(Attention { qkv_bias: bias, out_bias: bias, ..self.attention_of(fields, usual_dim)? })
    }

    /// The MLP of `GPT-2` and families like it: two matrices with biases, four times as wide unless the file says so.
    pub fn plain_mlp(&self, fields: &Fields, names: &[&'static str]) -> Result<Mlp, HfError> {
        let intermediate = match fields.given_size(names)? {
            Some(size) => size,
            None => fields.product("hidden_size", 4, self.hidden)?,
        };
        Ok(Mlp { intermediate, gated: false, bias: true })
    }

    /// Model whose layers are all identical.
    pub fn repeat(&self, layer: &Layer) -> Vec<Layer> {
        vec![layer.clone(); self.layers as usize]
    }

    /// The model of these layers, in order.
    pub fn model(&self, fields: &Fields, norm: Norm, layers: Vec<Layer>) -> Model {
        let (kinds, order) = distinct(layers);
        Model {
            name: String::new(),
            source: fields.origin().to_owned(),
            hidden: self.hidden,
            vocab: self.vocab,
            seq_len: self.seq_len,
            tied_embeddings: self.tied,
            learned_positions: 0,
            embedding_norm: false,
            head_bias: false,
            norm,
            dropout: self.dropout,
            kinds,
            order,
            mtp_depth: 0,
            details: Details::default(),
        }
    }
}

/// A gated MLP without biases.
pub fn gated_mlp(fields: &Fields) -> Result<Mlp, HfError> {
    Ok(Mlp { intermediate: fields.size(&["intermediate_size"])?, gated: true, bias: false })
}

/// A gated MLP whose biases `name` switches.
pub fn mlp_with_bias(fields: &Fields, name: &'static str) -> Result<Mlp, HfError> {
    Ok(Mlp { bias: fields.flag(name)?.unwrap_or(false), ..gated_mlp(fields)? })
}

/// A layer of two norms.
pub const fn layer(attention: Attention, ffn: Ffn) -> Layer {
    Layer { mixer: Mixer::Attention(attention), ffn, norms: 2, extra_parameters: 0 }
}

/// Which layers slide, where the file has no `layer_types`.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// All.
    Always,
    /// All but every n-th.
    AllBut(u32),
    /// Those from this layer on (Qwen's `max_window_layers`).
    From(u32),
    /// All but the first of each group of n layers.
    AllButFirstOf(u32),
}

impl Pattern {
    const fn slides(self, layer: u32) -> bool {
        match self {
            Self::Always => true,
            Self::AllBut(n) => !(layer + 1).is_multiple_of(n),
            Self::From(n) => layer >= n,
            Self::AllButFirstOf(n) => !layer.is_multiple_of(n),
        }
    }
}

/// The window: `usual` where the file has none, and none where it says null.
pub fn window_or(fields: &Fields, usual: Option<u32>) -> Result<Option<u32>, HfError> {
    if fields.is_null("sliding_window") { Ok(None) } else { Ok(fields.given_size(&["sliding_window"])?.or(usual)) }
}

/// The span of each layer: from `layer_types`, or by the pattern of the class.
pub fn spans(fields: &Fields, layers: u32, window: Option<u32>, pattern: Pattern) -> Result<Vec<Span>, HfError> {
    let sliding = || {
        window
            .map(Span::Window)
            .ok_or_else(|| fields.unsupported("layer_types", "a sliding layer without `sliding_window`"))
    };
    match fields.per_layer("layer_types", layers)? {
        Some(types) => types
            .into_iter()
            .map(|name| match name {
                "full_attention" => Ok(Span::Full),
                "sliding_attention" => sliding(),
                other => Err(fields.unsupported("layer_types", format!("`{other}` is not a layer of this family"))),
            })
            .collect(),
        None => (0..layers)
            .map(|i| match window {
                Some(window) if pattern.slides(i) => Ok(Span::Window(window)),
                Some(_) | None => Ok(Span::Full),
            })
            .collect(),
    }
}
