//! GPT-2 and its descendants: `LayerNorm` with biases, an MLP without gate.

use super::error::HfError;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, POSITIONS, Pattern, layer, spans};
use meshwright_engine::model::{Attention, Ffn, Layer, Mlp, Model, Norm, QkNorm, Span};

/// Rows before the first of OPT's position table.
const OPT_OFFSET: u32 = 2;

/// GPT-2: learned positions, biases everywhere, one embedding matrix.
pub fn gpt2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let attention = Attention { qkv_bias: true, out_bias: true, rope: false, ..frame.attention(fields)? };
    let one = layer(attention, Ffn::Dense(frame.plain_mlp(fields, &["n_inner"])?));
    let learned_positions = fields.given_size(POSITIONS)?.unwrap_or(1024);
    Ok(Model { learned_positions, ..frame.model(fields, Norm::Layer, frame.repeat(&one)) })
}

/// GPT-BigCode (`StarCoder` 1, `SantaCoder`): GPT-2 with one head of keys and values.
pub fn gpt_bigcode(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let all = Attention { qkv_bias: true, out_bias: true, rope: false, ..frame.attention(fields)? };
    let kv_heads = if fields.flag("multi_query")?.unwrap_or(true) { 1 } else { all.heads };
    let one = layer(Attention { kv_heads, ..all }, Ffn::Dense(frame.plain_mlp(fields, &["n_inner"])?));
    let learned_positions = fields.given_size(POSITIONS)?.unwrap_or(1024);
    Ok(Model { learned_positions, ..frame.model(fields, Norm::Layer, frame.repeat(&one)) })
}

/// GPT-NeoX and Pythia: rotary positions, two embedding matrices.
pub fn gpt_neox(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let bias = fields.flag("attention_bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias: bias, out_bias: bias, ..frame.attention(fields)? };
    let one = layer(attention, Ffn::Dense(frame.plain_mlp(fields, &["intermediate_size"])?));
    Ok(frame.model(fields, Norm::Layer, frame.repeat(&one)))
}

/// OPT; refused where it projects its embedding or norms afterwards (the 350M model).
pub fn opt(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    if fields.given_size(&["word_embed_proj_dim"])?.is_some_and(|dim| dim != frame.hidden) {
        return Err(fields.unsupported("word_embed_proj_dim", "an embedding narrower than the layers is not modelled"));
    }
    for name in ["do_layer_norm_before", "layer_norm_elementwise_affine"] {
        if !fields.flag(name)?.unwrap_or(true) {
            return Err(fields.unsupported(name, "only norms with parameters, before the two parts, are modelled"));
        }
    }
    if fields.flag("_remove_final_layer_norm")?.unwrap_or(false) {
        return Err(fields.unsupported("_remove_final_layer_norm", "a model without a last norm is not modelled"));
    }
    let bias = fields.flag("enable_bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias: bias, out_bias: bias, rope: false, ..frame.attention(fields)? };
    let mlp = Mlp { bias, ..frame.plain_mlp(fields, &["ffn_dim"])? };
    let learned_positions = fields.given_size(POSITIONS)?.unwrap_or(2048) + OPT_OFFSET;
    let one = layer(attention, Ffn::Dense(mlp));
    Ok(Model { learned_positions, ..frame.model(fields, Norm::Layer, frame.repeat(&one)) })
}

/// BLOOM: `ALiBi`, and a norm on the embedding.
pub fn bloom(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let attention = Attention { qkv_bias: true, out_bias: true, rope: false, ..frame.attention(fields)? };
    let one = layer(attention, Ffn::Dense(frame.plain_mlp(fields, &["n_inner"])?));
    Ok(Model { embedding_norm: true, ..frame.model(fields, Norm::Layer, frame.repeat(&one)) })
}

/// Falcon: 7B has one head of keys and one norm, 40B and 180B have grouped heads and two norms.
pub fn falcon(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let new = fields.flag("new_decoder_architecture")?.unwrap_or(false);
    let multi_query = fields.flag("multi_query")?.unwrap_or(true);
    let parallel = fields.flag("parallel_attn")?.unwrap_or(true);
    let bias = fields.flag("bias")?.unwrap_or(false);
    let all = frame.attention(fields)?;
    let kv_heads = match (new, multi_query) {
        (true, _) => all.kv_heads,
        (false, true) => 1,
        (false, false) => all.heads,
    };
    let rope = !fields.flag("alibi")?.unwrap_or(false);
    let given_norms = fields.given_size(&["num_ln_in_parallel_attn"])?;
    let norms = match (parallel, given_norms) {
        (false, _) | (true, Some(2)) => 2,
        (true, None) if new => 2,
        (true, None | Some(1)) => 1,
        (true, Some(_)) => return Err(fields.unsupported("num_ln_in_parallel_attn", "it is 1 or 2")),
    };
    let mlp = Mlp { bias, ..frame.plain_mlp(fields, &["ffn_hidden_size"])? };
    let attention = Attention { kv_heads, qkv_bias: bias, out_bias: bias, rope, ..all };
    let one = Layer { norms, ..layer(attention, Ffn::Dense(mlp)) };
    Ok(frame.model(fields, Norm::Layer, frame.repeat(&one)))
}

/// Phi 1 and 2: one norm before both parts, and a bias on the head.
pub fn phi(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let qk_norm = if fields.flag("qk_layernorm")?.unwrap_or(false) { QkNorm::PerHead } else { QkNorm::None };
    let attention = Attention { qkv_bias: true, out_bias: true, qk_norm, ..frame.attention(fields)? };
    let mlp = frame.plain_mlp(fields, &["intermediate_size"])?;
    let one = Layer { norms: 1, ..layer(attention, Ffn::Dense(mlp)) };
    Ok(Model { head_bias: true, ..frame.model(fields, Norm::Layer, frame.repeat(&one)) })
}

/// `StarCoder` 2: grouped heads and rotary positions.
pub fn starcoder2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let bias = fields.flag("use_bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias: bias, out_bias: bias, ..frame.attention(fields)? };
    let mlp = Mlp { bias, ..frame.plain_mlp(fields, &["intermediate_size"])? };
    let window = fields.given_size(&["sliding_window"])?;
    let one = |span| layer(Attention { span, ..attention.clone() }, Ffn::Dense(mlp.clone()));
    let spans = spans(fields, frame.layers, window, Pattern::Always)?;
    Ok(frame.model(fields, Norm::Layer, spans.into_iter().map(one).collect()))
}

/// Nemotron-4 and Minitron: squared `ReLU`, `LayerNorm` around one.
pub fn nemotron(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let bias = fields.flag("mlp_bias")?.unwrap_or(false);
    let mlp = Mlp { intermediate: fields.size(&["intermediate_size"])?, gated: false, bias };
    let one = layer(frame.biased_attention(fields, None)?, Ffn::Dense(mlp));
    Ok(frame.model(fields, Norm::Layer, frame.repeat(&one)))
}

/// GPT-J and `CodeGen`: one norm before both parts, biases on the MLP and the head alone.
pub fn gptj(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let mlp = frame.plain_mlp(fields, &["n_inner"])?;
    let one = Layer { norms: 1, ..layer(frame.attention(fields)?, Ffn::Dense(mlp)) };
    Ok(Model { head_bias: true, ..frame.model(fields, Norm::Layer, frame.repeat(&one)) })
}

/// GPT-Neo: learned positions, a bias on the attention's output alone, global and local layers in turn.
pub fn gpt_neo(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let attention = Attention { out_bias: true, rope: false, ..frame.attention(fields)? };
    let mlp = frame.plain_mlp(fields, &["intermediate_size"])?;
    let window = fields.given_size(&["window_size"])?.unwrap_or(256);
    let types = fields.per_layer("attention_layers", frame.layers)?;
    let span = |i: u32| match types.as_ref().map(|types| types[i as usize]) {
        None if i.is_multiple_of(2) => Ok(Span::Full),
        Some("global") => Ok(Span::Full),
        None | Some("local") => Ok(Span::Window(window)),
        Some(other) => {
            Err(fields.unsupported("attention_layers", format!("`{other}` is neither `global` nor `local`")))
        }
    };
    let one = |i| Ok(layer(Attention { span: span(i)?, ..attention.clone() }, Ffn::Dense(mlp.clone())));
    let layers = (0..frame.layers).map(one).collect::<Result<_, _>>()?;
    let learned_positions = fields.given_size(POSITIONS)?.unwrap_or(2048);
    Ok(Model { learned_positions, ..frame.model(fields, Norm::Layer, layers) })
}

/// MPT: `ALiBi`, no biases, `LayerNorm` without one, an MLP four times as wide.
pub fn mpt(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    if fields.given_size(&["expansion_ratio"])?.is_some_and(|ratio| ratio != 4) {
        return Err(fields.unsupported("expansion_ratio", "the class has 4"));
    }
    if !fields.flag("no_bias")?.unwrap_or(true) {
        return Err(fields.unsupported("no_bias", "the class has no biases"));
    }
    if fields.has("attn_config") {
        let attention = fields.part("attn_config", "attn_config.")?;
        if attention.text("attn_type")?.is_some_and(|kind| kind != "multihead_attention") {
            return Err(attention.unsupported("attn_type", "the class has heads of keys for each head of queries"));
        }
        if attention.flag("qk_ln")?.unwrap_or(false) {
            return Err(attention.unsupported("qk_ln", "the class has no norm on queries and keys"));
        }
        if !attention.flag("alibi")?.unwrap_or(true) {
            return Err(attention.unsupported("alibi", "the class has no other positions"));
        }
        attention.nothing_left()?;
    }
    let attention = Attention { rope: false, ..frame.attention(fields)? };
    let mlp = Mlp { bias: false, ..frame.plain_mlp(fields, &[])? };
    let one = layer(attention, Ffn::Dense(mlp));
    Ok(frame.model(fields, Norm::LayerNoBias, frame.repeat(&one)))
}

/// Persimmon: biases everywhere, norms with a bias on each head's queries and keys.
pub fn persimmon(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let qk_norm = if fields.flag("qk_layernorm")?.unwrap_or(true) { QkNorm::PerHead } else { QkNorm::None };
    let attention = Attention { qkv_bias: true, out_bias: true, qk_norm, ..frame.attention(fields)? };
    let one = layer(attention, Ffn::Dense(frame.plain_mlp(fields, &["intermediate_size"])?));
    Ok(frame.model(fields, Norm::Layer, frame.repeat(&one)))
}
