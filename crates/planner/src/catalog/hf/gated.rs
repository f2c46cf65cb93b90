//! Families whose attention has a gate on its output: Laguna, Step 3.5, Beam, Muse Glimmer.

use super::error::HfError;
use super::experts::{SHARED, experts, fine_grained, sparse_layers};
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, HEADS, Pattern, gated_mlp, layer, spans, window_or};
use meshwright_engine::model::{Attention, Ffn, Layer, Model, Moe, Norm, OutputGate, QkNorm, Span};

/// Poolside's Laguna: heads by layer, a gate for each head or each element, experts in all layers but the first with a shared one.
///
/// Source: [transformers] `modular_laguna.py`.
pub fn laguna(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let per_head = if fields.is_text("gating") {
        fields.text("gating")? == Some("per-head")
    } else {
        fields.flag("gating")?.unwrap_or(true)
    };
    let attention = Attention {
        qk_norm: QkNorm::PerHead,
        output_gate: if per_head { OutputGate::PerHead } else { OutputGate::PerElement },
        ..frame.biased_attention(fields, Some(128))?
    };
    let by_layer = fields.counts_by_layer("num_attention_heads_per_layer", frame.layers)?;
    let spans = spans(fields, frame.layers, Some(fields.given_size(&["sliding_window"])?.unwrap_or(512)), NEVER)?;
    let shared_intermediate = fields.given_size(&["shared_expert_intermediate_size"])?.unwrap_or(512);
    // The bias that no gradient changes is a parameter in this class.
    let moe = Moe { shared_intermediate, router_bias: true, ..experts(fields, &["moe_intermediate_size"])? };
    let mlp = gated_mlp(fields)?;
    let one = |(i, (span, sparse)): (usize, (Span, bool))| {
        let heads = by_layer.as_ref().map_or(attention.heads, |heads| heads[i]);
        let ffn = if sparse { Ffn::Moe(moe.clone()) } else { Ffn::Dense(mlp.clone()) };
        layer(Attention { heads, span, ..attention.clone() }, ffn)
    };
    let layers = spans.into_iter().zip(sparse_layers(fields, frame.layers, 1)?).enumerate().map(one).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Pattern of a class whose layers slide only where `layer_types` says so.
const NEVER: Pattern = Pattern::From(u32::MAX);

/// `StepFun`'s Step 3.5 and 3.7: a gate for each head, heads of their own in layers that slide, experts with a shared
/// one in all layers but the first three. Lists by layer may hold entries of the layers that predict behind those of
/// the model.
///
/// Source: [transformers] `modular_step3p7.py`.
pub fn step3p5(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let predicting = fields.mtp_layers(&["num_nextn_predict_layers", "num_mtp_layers"])?;
    if predicting > 0 {
        let why = "layers that predict are dense, which the last layer, whose kind they are counted as, is not; 0 \
        plans without them";
        return Err(fields.unsupported("num_nextn_predict_layers", why));
    }
    let head_dim = fields.given_size(&["head_dim"])?.unwrap_or(128);
    let kv_heads = fields.given_size(&["num_key_value_heads", "num_attention_groups"])?.unwrap_or(8);
    let full = Attention {
        qk_norm: QkNorm::PerHead,
        output_gate: OutputGate::PerHead,
        ..Attention::plain(fields.size(HEADS)?, kv_heads, head_dim)
    };
    let of_sliding = if fields.has("attention_other_setting") {
        fields.part("attention_other_setting", "attention_other_setting.")?.given_size(HEADS)?
    } else {
        None
    };
    let sliding_heads = fields.given_size(&["num_sliding_attention_heads"])?.or(of_sliding).unwrap_or(full.heads);
    let spans = spans(fields, frame.layers, fields.given_size(&["sliding_window"])?, NEVER)?;
    let sparse: Vec<bool> = match fields.listed("moe_layers_enum")? {
        Some(listed) if !fields.has("mlp_layer_types") => (0..frame.layers).map(|i| listed.contains(&i)).collect(),
        Some(_) | None => sparse_layers(fields, frame.layers, 3)?,
    };
    let moe = Moe {
        shared_intermediate: fields.given_size(&["share_expert_dim", "share_expert_dims"])?.unwrap_or(1280),
        ..Moe::gated(
            fields.given_size(&["n_routed_experts", "moe_num_experts", "num_local_experts"])?.unwrap_or(288),
            fields.given_size(&["num_experts_per_tok", "moe_top_k"])?.unwrap_or(8),
            fields.given_size(&["moe_intermediate_size"])?.unwrap_or(1280),
        )
    };
    let mlp = gated_mlp(fields)?;
    let own = fields.sizes_of_layers("per_layer_config", &[HEADS[0]])?;
    let one = |(i, (span, sparse)): (u32, (Span, bool))| {
        let usual = if span == Span::Full { full.heads } else { sliding_heads };
        let heads = own.get(&(i, HEADS[0])).copied().unwrap_or(usual);
        let ffn = if sparse { Ffn::Moe(moe.clone()) } else { Ffn::Dense(mlp.clone()) };
        layer(Attention { heads, span, ..full.clone() }, ffn)
    };
    Ok(frame.model(fields, Norm::Rms, (0..).zip(spans.into_iter().zip(sparse)).map(one).collect()))
}

/// Attention with norms on each head's queries and keys and a gate for each element, which has no bias: biases of the other
/// projections are refused, since those of queries would count it.
pub fn gated_attention(frame: &Frame, fields: &Fields) -> Result<Attention, HfError> {
    let attention = frame.biased_attention(fields, Some(128))?;
    if attention.qkv_bias {
        return Err(fields.unsupported("attention_bias", "the gate has no such bias"));
    }
    Ok(Attention { qk_norm: QkNorm::PerHead, output_gate: OutputGate::PerElement, ..attention })
}

/// Reflection's Beam: five of six layers slide, and only those are rotary; a gate for each element with a bias for each
/// head; sandwich norms; experts in all layers but the first three.
///
/// Source: [transformers] `modular_beam.py`.
pub fn beam(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = gated_attention(&frame, fields)?;
    if fields.count(SHARED)? > 0 {
        return Err(fields.unsupported("n_shared_experts", "the class has no shared expert"));
    }
    let mut spans = spans(fields, frame.layers, window_or(fields, Some(512))?, Pattern::AllBut(6))?;
    if let Some(last) = spans.last_mut().filter(|_| !fields.has("layer_types")) {
        *last = Span::Full;
    }
    let one = |(span, ffn)| {
        let attention = Attention { span, rope: span != Span::Full, ..attention.clone() };
        Layer { norms: 4, extra_parameters: u64::from(attention.heads), ..layer(attention, ffn) }
    };
    let layers = spans.into_iter().zip(fine_grained(&frame, fields, 3)?).map(one).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Meta's Muse Glimmer: each fourth layer from the last sees all keys, the others slide; layers whose base of
/// frequencies is 0 have no positions; a gate for each element; norms of queries and keys without weights; sandwich
/// norms.
///
/// Source: [transformers] `modular_muse_glimmer.py`.
pub fn muse_glimmer(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { output_gate: OutputGate::PerElement, ..frame.attention_of(fields, Some(128))? };
    let is_global = |i: u32| (frame.layers - 1 - i).is_multiple_of(4);
    let window = window_or(fields, Some(2048))?;
    let given = spans(fields, frame.layers, window, Pattern::Always)?;
    let span_of = |(i, given): (u32, Span)| if !fields.has("layer_types") && is_global(i) { Span::Full } else { given };
    let spans: Vec<Span> = (0..).zip(given).map(span_of).collect();
    let bases = fields.reals_by_layer("layer_rope_theta", frame.layers)?;
    let rope = |i: u32| bases.as_ref().map_or(!is_global(i), |bases| bases[i as usize] > 0.0);
    let mlp = gated_mlp(fields)?;
    let one = |(i, span): (u32, Span)| {
        let attention = Attention { span, rope: rope(i), ..attention.clone() };
        Layer { norms: 4, ..layer(attention, Ffn::Dense(mlp.clone())) }
    };
    Ok(frame.model(fields, Norm::Rms, (0..).zip(spans).map(one).collect()))
}
