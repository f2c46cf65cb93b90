//! Families whose layers slide, with sinks or with experts: Granite 4.1, Command A with experts, Mellum 2, Kolibri.

use super::error::HfError;
use super::experts::{SHARED, experts, fine_grained, sparse_layers};
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, Pattern, gated_mlp, layer, spans, window_or};
use meshwright_engine::model::{Attention, Ffn, Layer, Mlp, Model, Moe, Norm, QkNorm, Span};

/// Layers of Granite that slide but for the first of each four: a sink for each head in all of them, and no positions where the base of
/// the layer's frequencies is 0.
///
/// Source: [transformers] `modular_granite_swa.py`.
fn granite_attentions(frame: &Frame, fields: &Fields) -> Result<Vec<Attention>, HfError> {
    let attention = Attention { sinks: true, ..frame.biased_attention(fields, None)? };
    let spans = spans(fields, frame.layers, window_or(fields, Some(128))?, Pattern::AllButFirstOf(4))?;
    let bases = fields.reals("layer_rope_theta")?;
    if bases.as_ref().is_some_and(|bases| bases.len() != frame.layers as usize) {
        let why = format!("not one entry for each of {} layers", frame.layers);
        return Err(fields.unsupported("layer_rope_theta", why));
    }
    let rope = |i: usize| bases.as_ref().is_none_or(|bases| bases[i] > 0.0);
    Ok(spans.into_iter().enumerate().map(|(i, span)| Attention { span, rope: rope(i), ..attention.clone() }).collect())
}

/// Granite with layers that slide, dense.
pub fn granite_swa(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let mlp = Mlp { bias: fields.flag("mlp_bias")?.unwrap_or(false), ..gated_mlp(fields)? };
    let one = |attention| layer(attention, Ffn::Dense(mlp.clone()));
    let layers = granite_attentions(&frame, fields)?.into_iter().map(one).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Granite with layers that slide and experts, with or without a shared one.
pub fn granitemoe_swa(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let shared_intermediate = fields.count(&["shared_intermediate_size"])?;
    let moe = Moe { shared_intermediate, ..experts(fields, &["intermediate_size"])? };
    let one = |attention| layer(attention, Ffn::Moe(moe.clone()));
    let layers = granite_attentions(&frame, fields)?.into_iter().map(one).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Command A with experts: Command A's layers, the first of them dense by `first_k_dense_replace` and without its pattern of windows.
/// All layers that slide are rotary, and dense ones where `prefix_dense_sliding_window_pattern` is 1.
///
/// Source: [transformers] `configuration_cohere2_moe.py`, `modular_cohere2_moe.py`.
pub fn cohere2_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let norm = if fields.real("rms_norm_eps")?.is_some() { Norm::Rms } else { Norm::LayerNoBias };
    let attention = frame.biased_attention(fields, Some(128))?;
    let routed = experts(fields, &["intermediate_size"])?;
    let shared_intermediate = fields.product("num_shared_experts", fields.count(SHARED)?, routed.intermediate)?;
    let moe = Moe { shared_intermediate, ..routed };
    let first = fields.count(&["first_k_dense_replace"])?.min(frame.layers);
    let sparse = sparse_layers(fields, frame.layers, first)?;
    let every = fields.given_size(&["sliding_window_pattern"])?.unwrap_or(4);
    let every_dense = fields.given_size(&["prefix_dense_sliding_window_pattern"])?.unwrap_or(1);
    let window = window_or(fields, Some(4096))?;
    let spans = if fields.has("layer_types") {
        spans(fields, frame.layers, window, Pattern::Always)?
    } else {
        let mut prefix = spans(fields, first, window, Pattern::AllBut(every_dense))?;
        prefix.extend(spans(fields, frame.layers - first, window, Pattern::AllBut(every))?);
        prefix
    };
    let dense = if sparse.iter().all(|sparse| *sparse) {
        None
    } else {
        let intermediate = fields.size(&["prefix_dense_intermediate_size"])?;
        Some(Mlp { intermediate, gated: true, bias: false })
    };
    let one = |(span, sparse): (Span, bool)| {
        let rope = span != Span::Full || (!sparse && every_dense == 1);
        let ffn = match &dense {
            Some(mlp) if !sparse => Ffn::Dense(mlp.clone()),
            Some(_) | None => Ffn::Moe(moe.clone()),
        };
        Layer { norms: 1, ..layer(Attention { span, rope, ..attention.clone() }, ffn) }
    };
    Ok(frame.model(fields, norm, spans.into_iter().zip(sparse).map(one).collect()))
}

/// `JetBrains`' Mellum 2: Qwen 3's layers with experts, of which `layer_types` says which slide. A layer that predicts another token
/// slides too, and is read where the last one does.
pub fn mellum(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, Some(128))? };
    let window = if fields.has("layer_types") { window_or(fields, Some(1024))? } else { None };
    let spans = spans(fields, frame.layers, window, Pattern::Always)?;
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers", "num_mtp_layers"])?;
    if mtp_depth > 0 && spans.last().is_none_or(|span| *span == Span::Full) {
        let why = "the layer that predicts slides, and the last layer, whose kind it is counted as, does not";
        return Err(fields.unsupported("num_nextn_predict_layers", why));
    }
    let ffns = fine_grained(&frame, fields, 0)?;
    let one = |(span, ffn)| layer(Attention { span, ..attention.clone() }, ffn);
    let layers = spans.into_iter().zip(ffns).map(one).collect();
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, layers) })
}

/// Aleph Alpha's Kolibri: four of five layers slide, and only those are rotary; sandwich norms, and experts with a shared one.
pub fn kolibri(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.attention_of(fields, Some(128))? };
    let shared_intermediate = fields.size(&["shared_expert_intermediate_size"])?;
    let moe = Moe { shared_intermediate, ..experts(fields, &["moe_intermediate_size"])? };
    let spans = spans(fields, frame.layers, window_or(fields, Some(513))?, Pattern::AllBut(5))?;
    let one = |span| {
        let attention = Attention { span, rope: span != Span::Full, ..attention.clone() };
        Layer { norms: 4, ..layer(attention, Ffn::Moe(moe.clone())) }
    };
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().map(one).collect()))
}
