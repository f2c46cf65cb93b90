//! Llama and families like it: `RMSNorm`, rotary positions, a gated MLP.

use super::error::HfError;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, Pattern, gated_mlp, layer, mlp_with_bias, spans};
use meshwright_engine::model::{Attention, Ffn, Layer, Mlp, Model, Norm, QkNorm, Span};

/// Model with one layer per span, otherwise identical.
fn windowed(frame: &Frame, fields: &Fields, attention: &Attention, mlp: &Mlp, spans: Vec<Span>) -> Model {
    let one = |span| layer(Attention { span, ..attention.clone() }, Ffn::Dense(mlp.clone()));
    frame.model(fields, Norm::Rms, spans.into_iter().map(one).collect())
}

/// Llama 1 to 3, and Granite, whose multipliers are no parameters.
pub fn llama(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let one = layer(frame.biased_attention(fields, None)?, Ffn::Dense(mlp));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// IQuest-Coder: Llama with heads of 128 where the file does not say.
pub fn iquest_coder(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let usual_dim = if fields.is_null("head_dim") { None } else { Some(128) };
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let one = layer(frame.biased_attention(fields, usual_dim)?, Ffn::Dense(mlp));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Kyutai's Helium: Llama whose output projection is square and has no bias.
pub fn helium(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { out_bias: false, ..frame.biased_attention(fields, Some(128))? };
    if u64::from(attention.heads) * u64::from(attention.head_dim) != u64::from(frame.hidden) {
        return Err(fields.unsupported("head_dim", "heads times their dimension are not the hidden size"));
    }
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&layer(attention, Ffn::Dense(mlp)))))
}

/// Mistral: the class slides over 4,096 keys where the file says nothing; later files say null.
pub fn mistral(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let window = if fields.is_null("sliding_window") {
        None
    } else {
        Some(fields.given_size(&["sliding_window"])?.unwrap_or(4096))
    };
    let spans = spans(fields, frame.layers, window, Pattern::Always)?;
    Ok(windowed(&frame, fields, &frame.attention(fields)?, &gated_mlp(fields)?, spans))
}

/// Phi-3 and Phi-4: fused projections.
pub fn phi3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let window = fields.given_size(&["sliding_window"])?;
    let spans = spans(fields, frame.layers, window, Pattern::Always)?;
    Ok(windowed(&frame, fields, &frame.attention(fields)?, &gated_mlp(fields)?, spans))
}

/// The windows of Qwen 2 and 3: only with `use_sliding_window`, and from `max_window_layers` on.
pub fn qwen_spans(fields: &Fields, layers: u32) -> Result<Vec<Span>, HfError> {
    let window = if fields.flag("use_sliding_window")?.unwrap_or(false) {
        fields.given_size(&["sliding_window"])?
    } else {
        None
    };
    let from = fields.given_count(&["max_window_layers"])?.unwrap_or(28);
    spans(fields, layers, window, Pattern::From(from))
}

/// Qwen 2 and 2.5: biases on queries, keys and values, always.
pub fn qwen2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qkv_bias: true, ..frame.attention(fields)? };
    let spans = qwen_spans(fields, frame.layers)?;
    Ok(windowed(&frame, fields, &attention, &gated_mlp(fields)?, spans))
}

/// Xiaomi's `MiMo` 7B: Qwen 2 with a layer that predicts another token.
///
/// Source: `modeling_mimo.py` of XiaomiMiMo/MiMo-7B-Base: two norms, a projection of both inputs, attention and MLP
/// with their norms.
pub fn mimo(fields: &Fields) -> Result<Model, HfError> {
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers"])?;
    Ok(Model { mtp_depth, ..qwen2(fields)? })
}

/// The attention of Qwen 3: a norm on each head's queries and keys; the class has heads of 128.
pub fn qwen3_attention(frame: &Frame, fields: &Fields) -> Result<Attention, HfError> {
    Ok(Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, Some(128))? })
}

/// Qwen 3, dense.
pub fn qwen3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let spans = qwen_spans(fields, frame.layers)?;
    Ok(windowed(&frame, fields, &qwen3_attention(&frame, fields)?, &gated_mlp(fields)?, spans))
}

/// `OLMo` 1: norms without any parameter, and values of projections that `clip_qkv` may cap.
pub fn olmo(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let one = layer(frame.biased_attention(fields, None)?, Ffn::Dense(gated_mlp(fields)?));
    Ok(frame.model(fields, Norm::LayerPlain, frame.repeat(&one)))
}

/// `OLMo` 2: norms after the two parts, and over all queries and all keys.
pub fn olmo2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::Full, ..frame.biased_attention(fields, None)? };
    let one = layer(attention, Ffn::Dense(gated_mlp(fields)?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// `OLMo` 3: `OLMo` 2 with three of four layers sliding.
pub fn olmo3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::Full, ..frame.biased_attention(fields, None)? };
    let window = fields.given_size(&["sliding_window"])?.unwrap_or(4096);
    let spans = spans(fields, frame.layers, Some(window), Pattern::AllBut(4))?;
    Ok(windowed(&frame, fields, &attention, &gated_mlp(fields)?, spans))
}

/// Cohere's Command R: one norm without bias before both parts, which run beside each other.
pub fn cohere(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let normed = fields.flag("use_qk_norm")?.unwrap_or(false);
    let qk_norm = if normed { QkNorm::Full } else { QkNorm::None };
    let attention = Attention { qk_norm, ..frame.biased_attention(fields, None)? };
    let one = Layer { norms: 1, ..layer(attention, Ffn::Dense(gated_mlp(fields)?)) };
    Ok(frame.model(fields, Norm::LayerNoBias, frame.repeat(&one)))
}

/// Cohere's Command A and R7B: three of four layers slide, and only those are rotary.
pub fn cohere2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let attention = frame.biased_attention(fields, None)?;
    let mlp = gated_mlp(fields)?;
    let window = fields.given_size(&["sliding_window"])?.unwrap_or(4096);
    let every = fields.given_size(&["sliding_window_pattern", "_sliding_window_pattern"])?.unwrap_or(4);
    let one = |span| {
        let attention = Attention { span, rope: span != Span::Full, ..attention.clone() };
        Layer { norms: 1, ..layer(attention, Ffn::Dense(mlp.clone())) }
    };
    let spans = spans(fields, frame.layers, Some(window), Pattern::AllBut(every))?;
    Ok(frame.model(fields, Norm::LayerNoBias, spans.into_iter().map(one).collect()))
}
