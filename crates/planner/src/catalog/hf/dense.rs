//! Dense families after Llama that have norms, biases, positions or activations of their own.

use super::error::HfError;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, Pattern, gated_mlp, layer, mlp_with_bias, spans, window_or};
use meshwright_engine::model::{Attention, Ffn, Layer, Mlp, Model, Norm, QkNorm, Span};

/// Whether each layer's positions are rotary: `no_rope_layers` has 1 where they are, despite its name, else each
/// `no_rope_layer_interval`-th layer has none.
pub fn ropes(fields: &Fields, layers: u32) -> Result<Vec<bool>, HfError> {
    let every = fields.given_size(&["no_rope_layer_interval"])?.unwrap_or(4);
    Ok(match fields.counts_by_layer("no_rope_layers", layers)? {
        Some(given) => given.into_iter().map(|rope| rope != 0).collect(),
        None => (1..=layers).map(|layer| !layer.is_multiple_of(every)).collect(),
    })
}

/// `SmolLM3`: each fourth layer has no positions; a window, where there is one, is theirs.
pub fn smollm3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let attention = frame.biased_attention(fields, None)?;
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let ropes = ropes(fields, frame.layers)?;
    let slides = fields.flag("use_sliding_window")?.unwrap_or(false);
    let window = fields.given_size(&["sliding_window"])?.filter(|_| slides);
    let spans = match (fields.has("layer_types"), window) {
        (false, Some(window)) => {
            ropes.iter().map(|rope| if *rope { Span::Full } else { Span::Window(window) }).collect()
        }
        _ => spans(fields, frame.layers, window, Pattern::Always)?,
    };
    let one = |(span, rope)| layer(Attention { span, rope, ..attention.clone() }, Ffn::Dense(mlp.clone()));
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().zip(ropes).map(one).collect()))
}

/// Seed-OSS: biases on queries, keys and values, and by its own switch on the output.
pub fn seed_oss(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention {
        qkv_bias: fields.flag("attention_bias")?.unwrap_or(true),
        out_bias: fields.flag("attention_out_bias")?.unwrap_or(false),
        ..frame.attention_of(fields, Some(128))?
    };
    let one = layer(attention, Ffn::Dense(mlp_with_bias(fields, "mlp_bias")?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// ERNIE 4.5, dense: `use_bias` is for all linear layers.
pub fn ernie4_5(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let bias = fields.flag("use_bias")?.unwrap_or(false);
    let usual_dim = if fields.is_null("head_dim") { None } else { Some(128) };
    let attention = Attention { qkv_bias: bias, out_bias: bias, ..frame.attention_of(fields, usual_dim)? };
    let one = layer(attention, Ffn::Dense(mlp_with_bias(fields, "use_bias")?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Hunyuan, dense: a norm on each head's queries and keys.
pub fn hunyuan_dense(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    if fields.given_count(&["num_experts"])?.is_some_and(|experts| experts > 1) {
        return Err(fields.unsupported("num_experts", "the class is dense"));
    }
    let one = layer(hunyuan_attention(&frame, fields)?, Ffn::Dense(gated_mlp(fields)?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// The attention of Hunyuan, whose classes always norm queries and keys.
pub fn hunyuan_attention(frame: &Frame, fields: &Fields) -> Result<Attention, HfError> {
    if !fields.flag("use_qk_norm")?.unwrap_or(true) {
        return Err(fields.unsupported("use_qk_norm", "the class always norms queries and keys"));
    }
    Ok(Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, None)? })
}

/// GLM 4 of 2024: biases on queries, keys and values.
pub fn glm(fields: &Fields) -> Result<Model, HfError> {
    glm_with_norms(fields, 2, Some(128))
}

/// GLM 4 of 2025: GLM with sandwich norms.
pub fn glm4(fields: &Fields) -> Result<Model, HfError> {
    glm_with_norms(fields, 4, Some(128))
}

/// Text part of GLM-4.1V: GLM 4's layers, whose class has no head dimension of its own.
pub fn glm4v(fields: &Fields) -> Result<Model, HfError> {
    glm_with_norms(fields, 4, None)
}

fn glm_with_norms(fields: &Fields, norms: u32, usual_dim: Option<u32>) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let qkv_bias = fields.flag("attention_bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias, ..frame.attention_of(fields, usual_dim)? };
    let one = Layer { norms, ..layer(attention, Ffn::Dense(gated_mlp(fields)?)) };
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Layers of EXAONE 4: a norm per head on queries and keys; where there is a window, only the layers that slide are
/// rotary.
pub fn exaone_attentions(frame: &Frame, fields: &Fields) -> Result<Vec<Attention>, HfError> {
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.attention(fields)? };
    let window = window_or(fields, Some(4096))?;
    let letters = fields.letters("sliding_window_pattern")?;
    let pattern = match (&letters, window) {
        (_, None) => Pattern::Always,
        (Some(letters), _) => Pattern::AllBut(letters.len().try_into().unwrap_or(u32::MAX)),
        (None, _) => Pattern::AllBut(fields.given_size(&["sliding_window_pattern"])?.unwrap_or(4)),
    };
    let usual = letters.as_ref().is_none_or(|text| text.ends_with('G') && text.matches('L').count() == text.len() - 1);
    if !usual && !fields.has("layer_types") {
        return Err(fields.unsupported("sliding_window_pattern", "only layers `L` that slide before one `G` are known"));
    }
    let one = |span| Attention { span, rope: window.is_none() || span != Span::Full, ..attention.clone() };
    Ok(spans(fields, frame.layers, window, pattern)?.into_iter().map(one).collect())
}

/// EXAONE 4: norms after the two parts.
pub fn exaone4(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let mlp = gated_mlp(fields)?;
    let attentions = exaone_attentions(&frame, fields)?;
    let layers = attentions.into_iter().map(|attention| layer(attention, Ffn::Dense(mlp.clone()))).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Text part of Apertus 1.5: Apertus, with a head as wide as its vocabulary.
pub fn apertus_with_codes(fields: &Fields) -> Result<Model, HfError> {
    let model = apertus(fields)?;
    if fields.given_size(&["output_vocab_size"])?.is_some_and(|rows| rows != model.vocab) {
        return Err(fields.unsupported("output_vocab_size", "a head that is narrower than the vocabulary"));
    }
    Ok(model)
}

/// Apertus: an MLP without gate, whose activation xIELU has two parameters.
pub fn apertus(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, None)? };
    let mlp = Mlp { intermediate: fields.size(&["intermediate_size"])?, gated: false, bias: false };
    let extra_parameters = if fields.text("hidden_act")?.unwrap_or("xielu") == "xielu" { 2 } else { 0 };
    let one = Layer { extra_parameters, ..layer(attention, Ffn::Dense(mlp)) };
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Arcee's AFM: Llama with squared `ReLU` and no gate.
pub fn arcee(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let mlp = Mlp { gated: false, ..mlp_with_bias(fields, "mlp_bias")? };
    let one = layer(frame.biased_attention(fields, None)?, Ffn::Dense(mlp));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Jais 2: `LayerNorm`, squared `ReLU` without a gate, and biases on all linear layers unless the file says otherwise.
pub fn jais2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let bias = fields.flag("attention_bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias: bias, out_bias: bias, ..frame.attention(fields)? };
    let intermediate = fields.size(&["intermediate_size"])?;
    let mlp = Mlp { intermediate, gated: false, bias: fields.flag("mlp_bias")?.unwrap_or(true) };
    Ok(frame.model(fields, Norm::Layer, frame.repeat(&layer(attention, Ffn::Dense(mlp)))))
}

/// Naver's HyperCLOVA X: Granite with norms behind its parts too, unless the file says otherwise.
pub fn hyperclovax(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let norms = if fields.flag("use_post_norm")?.unwrap_or(true) { 4 } else { 2 };
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let one = Layer { norms, ..layer(frame.biased_attention(fields, None)?, Ffn::Dense(mlp)) };
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Meta's CWM: three of four layers slide, beginning after one that does not.
pub fn cwm(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = frame.attention_of(fields, Some(128))?;
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let window = window_or(fields, Some(8192))?;
    let spans = spans(fields, frame.layers, window, Pattern::AllButFirstOf(4))?;
    let one = |span| layer(Attention { span, ..attention.clone() }, Ffn::Dense(mlp.clone()));
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().map(one).collect()))
}

/// Ministral 3: Mistral without a window unless the file has one.
pub fn ministral3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = frame.attention_of(fields, Some(128))?;
    let mlp = gated_mlp(fields)?;
    let spans = spans(fields, frame.layers, window_or(fields, None)?, Pattern::Always)?;
    let one = |span| layer(Attention { span, ..attention.clone() }, Ffn::Dense(mlp.clone()));
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().map(one).collect()))
}

/// `StableLM`: `LayerNorm` around a gated MLP; one norm where its two parts stand beside each other; with
/// `qk_layernorm` a weight for each head of queries and keys.
pub fn stablelm(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let bias = fields.flag("use_qkv_bias")?.unwrap_or(false);
    let normed = fields.flag("qk_layernorm")?.unwrap_or(false);
    let qk_norm = if normed { QkNorm::PerHead } else { QkNorm::None };
    let attention = Attention { qkv_bias: bias, qk_norm, ..frame.attention(fields)? };
    let norms = if fields.flag("use_parallel_residual")?.unwrap_or(false) { 1 } else { 2 };
    // `PerHead` counts a weight and a bias for all heads together; the class has a weight for each head.
    let weights = u64::from(attention.head_dim) * (u64::from(attention.heads) + u64::from(attention.kv_heads));
    let counted = 2 * u64::from(attention.head_dim) * Norm::Layer.width();
    let extra_parameters = if normed { weights.saturating_sub(counted) } else { 0 };
    let one = Layer { norms, extra_parameters, ..layer(attention, Ffn::Dense(gated_mlp(fields)?)) };
    Ok(frame.model(fields, Norm::Layer, frame.repeat(&one)))
}

/// `InternLM` 2: `bias` is for the attention alone.
pub fn internlm2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let bias = fields.flag("bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias: bias, out_bias: bias, ..frame.attention(fields)? };
    let one = layer(attention, Ffn::Dense(gated_mlp(fields)?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// `InternLM` 3: `qkv_bias` for queries, keys and values, `bias` for the rest; or Llama's two switches.
pub fn internlm3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let usual_dim = if fields.is_null("head_dim") { None } else { Some(128) };
    let all = frame.biased_attention(fields, usual_dim)?;
    let bias = fields.flag("bias")?;
    let attention = Attention {
        qkv_bias: fields.flag("qkv_bias")?.unwrap_or(all.qkv_bias),
        out_bias: bias.unwrap_or(all.out_bias),
        ..all
    };
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let one = layer(attention, Ffn::Dense(Mlp { bias: bias.unwrap_or(mlp.bias), ..mlp }));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Baichuan 1 and 2: the 7B models are rotary, the 13B have `ALiBi` and no `max_position_embeddings`.
pub fn baichuan(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let rope = fields.has("max_position_embeddings");
    let one = layer(Attention { rope, ..frame.attention(fields)? }, Ffn::Dense(gated_mlp(fields)?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Qwen 1: biases on queries, keys and values; `intermediate_size` is that of both halves of the gated MLP together.
pub fn qwen(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    if !fields.flag("no_bias")?.unwrap_or(true) {
        return Err(fields.unsupported("no_bias", "only biases on queries, keys and values are modelled"));
    }
    let both = gated_mlp(fields)?;
    let attention = Attention { qkv_bias: true, ..frame.attention(fields)? };
    let one = layer(attention, Ffn::Dense(Mlp { intermediate: both.intermediate / 2, ..both }));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// `ChatGLM` 2 and 3, GLM-4 in its first form: grouped heads, biases on queries, keys and values.
pub fn chatglm(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    for (name, wanted) in [("rmsnorm", true), ("post_layer_norm", true), ("add_bias_linear", false)] {
        if fields.flag(name)?.is_some_and(|given| given != wanted) {
            return Err(fields.unsupported(name, format!("only {wanted} is modelled")));
        }
    }
    if fields.flag("apply_residual_connection_post_layernorm")?.unwrap_or(false) {
        return Err(fields.unsupported("apply_residual_connection_post_layernorm", "only norms before the parts are"));
    }
    let all = frame.attention_of(fields, fields.given_size(&["kv_channels"])?)?;
    let grouped = fields.flag("multi_query_attention")?.unwrap_or(false);
    let attention = Attention {
        kv_heads: if grouped { fields.size(&["multi_query_group_num"])? } else { all.heads },
        qkv_bias: fields.flag("add_qkv_bias")?.unwrap_or(false),
        ..all
    };
    let mlp = Mlp { intermediate: fields.size(&["ffn_hidden_size"])?, gated: true, bias: false };
    let one = layer(attention, Ffn::Dense(mlp));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}
