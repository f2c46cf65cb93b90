//! Model of a row, from its shape columns.

use super::cell::{Cells, flag, text};
use super::refusal::Refusal;
use super::row::Row;
use meshwright_engine::distinct::distinct;
use meshwright_engine::model::{
    Attention, Details, Ffn, Layer, Mamba, Mixer, Mla, Mlp, Model, Moe, Norm, OutputGate, QkNorm, RouterScore, Span,
};

/// Ranks and dimensions of latent attention for rows that give none: those of DeepSeek-V3.
const LATENT: Mla =
    Mla { heads: 0, q_rank: 1536, kv_rank: 512, nope_dim: 128, rope_dim: 64, v_dim: 128, rope: true, indexer: None };
/// Sliding window of GPT-OSS, on every second layer.
const GPT_OSS_WINDOW: u32 = 128;
/// Kernel of Mamba's convolution. Source: [hf-nemotron-h].
const CONVOLUTION: u32 = 4;
/// Attention chunk of Llama 4, on three layers of four.
const LLAMA_4_CHUNK: u32 = 8192;

/// Names of models whose router scores experts by a sigmoid. Source: `scoring_func` or the like in their config.json.
const SIGMOID_SCORES: [&str; 7] =
    ["DeepSeek-V3", "deepseekv3", "Kimi-K2", "Moonlight", "Nemotron-3", "Ling-mini-2.0", "GLM-4.5"];

/// Most layers that a row may have: far above any model, so that a mistyped cell does not exhaust memory.
const MOST_LAYERS: u32 = 10_000;

/// Kind of decoder that the columns describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decoder {
    /// `RMSNorm`, rotary positions, no bias.
    Llama,
    /// `LayerNorm`, rotary positions, no bias.
    Nemotron,
    /// `LayerNorm`, `ALiBi`, no bias.
    Mpt,
    /// `LayerNorm`, biases, learned positions.
    Gpt,
}

impl Decoder {
    fn of(row: &Row) -> Self {
        let name = text(row.model_name.as_ref());
        match flag(row.gated_mlp) {
            Some(true) => Self::Llama,
            Some(false) | None if name.contains("Nemotron") => Self::Nemotron,
            Some(false) | None if name.contains("MPT") => Self::Mpt,
            Some(false) | None => Self::Gpt,
        }
    }
}

/// Model of a row.
pub(super) fn model(row: &Row, cells: &Cells) -> Result<Model, Refusal> {
    let (Some(layers), Some(hidden), Some(vocab), Some(seq_len)) =
        (cells.layers, cells.hidden, cells.vocab, cells.seq_len)
    else {
        return Refusal::unsupported("model shape unknown");
    };
    if layers > MOST_LAYERS {
        return Refusal::invalid(format!("{layers} layers are more than any model has"));
    }
    let decoder = Decoder::of(row);
    let (kinds, order) = distinct(layer_kinds(row, cells, seq_len, layers));
    let kinds = kinds.into_iter().map(|kind| layer(row, cells, decoder, kind)).collect::<Result<_, _>>()?;
    let gpt = decoder == Decoder::Gpt;
    let framework = text(row.framework.as_ref());
    Ok(Model {
        name: text(row.model_name.as_ref()).to_owned(),
        source: "published-runs".into(),
        hidden,
        vocab,
        seq_len,
        tied_embeddings: flag(row.tied_embeddings).unwrap_or(false),
        learned_positions: if gpt { seq_len } else { 0 },
        embedding_norm: false,
        head_bias: false,
        norm: if decoder == Decoder::Llama { Norm::Rms } else { Norm::Layer },
        dropout: gpt && (cells.year <= 2022 || framework == "Megatron-LM"),
        kinds,
        order,
        mtp_depth: cells.mtp_layers.unwrap_or_else(|| u32::from(predicts_two_tokens(row))),
        details: Details::default(),
    })
}

/// Score of the router of a row's experts, as far as its model's name says.
fn router_score(row: &Row) -> Option<RouterScore> {
    let name = text(row.model_name.as_ref());
    SIGMOID_SCORES.iter().any(|known| name.contains(known)).then_some(RouterScore::Sigmoid)
}

/// Kind of a layer, as far as a row's columns tell layers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    /// Layer of a hybrid, by the letter of its pattern.
    Hybrid(char),
    /// Layer of attention and a feed-forward part, which has experts or none.
    Decoder { span: Span, experts: bool },
}

/// Kind of each layer: by its letter where the row's pattern has one, else by its span and the number of dense layers.
fn layer_kinds(row: &Row, cells: &Cells, seq_len: u32, layers: u32) -> Vec<LayerKind> {
    let name = text(row.model_name.as_ref());
    let mut letters = text(row.layer_pattern.as_ref()).chars();
    let decoder = |index| LayerKind::Decoder {
        span: span(name, seq_len, index),
        experts: cells.experts > 1 && index >= cells.dense_layers,
    };
    (0..layers).map(|index| letters.next().map_or_else(|| decoder(index), LayerKind::Hybrid)).collect()
}

fn layer(row: &Row, cells: &Cells, decoder: Decoder, kind: LayerKind) -> Result<Layer, Refusal> {
    match kind {
        LayerKind::Hybrid(letter) => hybrid_layer(row, cells, decoder, letter),
        LayerKind::Decoder { span, experts } => Ok(Layer {
            mixer: mixer(row, cells, decoder, span)?,
            ffn: ffn(row, cells, decoder, experts)?,
            norms: 2,
            extra_parameters: 0,
        }),
    }
}

/// One layer of a hybrid, which has a single part.
fn hybrid_layer(row: &Row, cells: &Cells, decoder: Decoder, letter: char) -> Result<Layer, Refusal> {
    let (mixer, ffn) = match letter {
        'M' => (Mixer::Mamba(mamba(text(row.mamba.as_ref()))?), Ffn::None),
        '*' => (mixer(row, cells, decoder, Span::Full)?, Ffn::None),
        'E' => (Mixer::None, ffn(row, cells, decoder, cells.experts > 1)?),
        '-' => (Mixer::None, ffn(row, cells, decoder, false)?),
        other => return Refusal::unsupported(format!("layer `{other}` of a pattern")),
    };
    Ok(Layer { mixer, ffn, norms: 1, extra_parameters: 0 })
}

/// Sizes of a Mamba layer from `heads=… head_dim=… state=… groups=…`.
fn mamba(sizes: &str) -> Result<Mamba, Refusal> {
    let size = |name: &str| {
        let value = sizes.split_whitespace().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        match value.and_then(|value| value.parse().ok()) {
            Some(size) => Ok(size),
            None => Refusal::unsupported(format!("`{name}` of Mamba layers unknown")),
        }
    };
    Ok(Mamba {
        heads: size("heads")?,
        head_dim: size("head_dim")?,
        groups: size("groups")?,
        state: size("state")?,
        conv_kernel: CONVOLUTION,
        conv_bias: true,
        proj_bias: false,
        out_bias: None,
        norm: true,
    })
}

/// Whether the notes mention a multi-token-prediction layer that is trained too.
fn predicts_two_tokens(row: &Row) -> bool {
    let notes = text(row.notes.as_ref());
    notes.contains("MTP layer on") || notes.contains("w/ MTP")
}

/// Attention span of a layer of the model of this name.
fn span(name: &str, seq_len: u32, index: u32) -> Span {
    if name.contains("GPT-OSS") && index.is_multiple_of(2) {
        Span::Window(GPT_OSS_WINDOW)
    } else if name.contains("Llama4") && seq_len > LLAMA_4_CHUNK && index % 4 != 3 {
        Span::Chunk(LLAMA_4_CHUNK)
    } else {
        Span::Full
    }
}

/// Families whose attention gates each element of its output. Source: [transformers] `modeling_qwen3_next.py`, `modeling_qwen3_5.py`.
const GATED: [&str; 2] = ["Qwen3-Next", "Qwen3.5"];

fn mixer(row: &Row, cells: &Cells, decoder: Decoder, span: Span) -> Result<Mixer, Refusal> {
    let (Some(hidden), Some(heads)) = (cells.hidden, cells.heads) else {
        return Refusal::unsupported("model shape unknown");
    };
    if flag(row.mla) == Some(true) {
        return Ok(Mixer::Mla(Mla { heads, ..LATENT }));
    }
    let (name, bias) = (text(row.model_name.as_ref()), decoder == Decoder::Gpt);
    Ok(Mixer::Attention(Attention {
        heads,
        kv_heads: cells.kv_heads.unwrap_or(heads),
        head_dim: cells.head_dim.unwrap_or(hidden / heads),
        value_dim: 0,
        span,
        qkv_bias: bias,
        out_bias: bias,
        qk_norm: if name.contains("Qwen3") { QkNorm::PerHead } else { QkNorm::None },
        sinks: name.contains("GPT-OSS"),
        output_gate: if GATED.iter().any(|family| name.contains(family)) {
            OutputGate::PerElement
        } else {
            OutputGate::None
        },
        keys_are_values: false,
        rope: matches!(decoder, Decoder::Llama | Decoder::Nemotron),
    }))
}

fn ffn(row: &Row, cells: &Cells, decoder: Decoder, experts: bool) -> Result<Ffn, Refusal> {
    let gated = flag(row.gated_mlp).unwrap_or(false);
    let bias = decoder == Decoder::Gpt;
    if !experts {
        return match cells.ffn {
            Some(0) => Refusal::invalid("`ffn` is 0, and there are dense layers"),
            Some(intermediate) => Ok(Ffn::Dense(Mlp { intermediate, gated, bias })),
            None => Refusal::unsupported("model shape unknown: no `ffn`"),
        };
    }
    let (Some(top_k), Some(intermediate)) = (cells.topk, cells.moe_ffn) else {
        return Refusal::unsupported("model shape unknown: no `topk` or `moe_ffn`");
    };
    let latent = cells.moe_latent.unwrap_or(0);
    let shared_intermediate = cells.shared_experts.saturating_mul(intermediate);
    let bias = bias || text(row.model_name.as_ref()).contains("GPT-OSS");
    let routed = Moe::gated(cells.experts, top_k, intermediate);
    Ok(Ffn::Moe(Moe { gated, bias, shared_intermediate, router_score: router_score(row), latent, ..routed }))
}
