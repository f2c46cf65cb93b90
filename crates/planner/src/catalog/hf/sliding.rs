//! Families whose layers slide, with sinks or with experts: Granite, Command A with experts, Mellum 2, Kolibri, Flint, `MiMo` V2.

use super::error::HfError;
use super::experts::{SHARED, experts, fine_grained, sparse_layers};
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, Pattern, gated_mlp, layer, mlp_with_bias, spans, window_or};
use meshwright_engine::model::{Attention, Ffn, Layer, Mlp, Model, Moe, Norm, QkNorm, Span};

/// Layers of Granite that slide but for the first of each four: a sink for each head in all of them, and no positions
/// where the base of the layer's frequencies is 0.
///
/// Source: [transformers] `modular_granite_swa.py`.
fn granite_attentions(frame: &Frame, fields: &Fields) -> Result<Vec<Attention>, HfError> {
    let attention = Attention { sinks: true, ..frame.biased_attention(fields, None)? };
    let spans = spans(fields, frame.layers, window_or(fields, Some(128))?, Pattern::AllButFirstOf(4))?;
    let bases = fields.reals_by_layer("layer_rope_theta", frame.layers)?;
    let rope = |i: usize| bases.as_ref().is_none_or(|bases| bases[i] > 0.0);
    Ok(spans.into_iter().enumerate().map(|(i, span)| Attention { span, rope: rope(i), ..attention.clone() }).collect())
}

/// Granite with layers that slide, dense.
pub fn granite_swa(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
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

/// Command A with experts: Command A's layers, the first of them dense by `first_k_dense_replace` and without its
/// pattern of windows. All layers that slide are rotary, and dense ones where `prefix_dense_sliding_window_pattern` is
/// 1.
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

/// `JetBrains`' Mellum 2: Qwen 3's layers with experts, of which `layer_types` says which slide. A layer that predicts
/// another token slides too, and is read where the last one does.
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

/// Flint: Qwen 3's layers with experts and an ungated shared one, the first two dense; a sink for each head; layers that slide are
/// rotary and the others are not.
///
/// Source: [transformers] `modular_flint.py`.
pub fn flint(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::PerHead, sinks: true, ..frame.biased_attention(fields, Some(128))? };
    let window = window_or(fields, Some(513))?;
    let last = frame.layers - 1;
    let given = spans(fields, frame.layers, window, Pattern::Always)?;
    let is_full = |i: u32| !fields.has("layer_types") && (i < 2 || i % 4 == 1 || i == last);
    let shared_intermediate = fields.given_size(&["shared_expert_intermediate_size"])?.unwrap_or(1024);
    let moe = Moe { shared_intermediate, ..experts(fields, &["moe_intermediate_size"])? };
    let dense = if fields.has("mlp_only_layers") { fields.counts("mlp_only_layers")? } else { vec![0, 1] };
    let step = fields.given_size(&["decoder_sparse_step"])?.unwrap_or(1);
    let mlp = gated_mlp(fields)?;
    let one = |(i, span): (u32, Span)| {
        let span = if is_full(i) { Span::Full } else { span };
        let is_dense = dense.contains(&i) || !(i + 1).is_multiple_of(step);
        let ffn = if is_dense { Ffn::Dense(mlp.clone()) } else { Ffn::Moe(moe.clone()) };
        layer(Attention { span, rope: span != Span::Full, ..attention.clone() }, ffn)
    };
    Ok(frame.model(fields, Norm::Rms, (0..).zip(given).map(one).collect()))
}

/// Xiaomi's `MiMo` V2: five of six layers slide, with a sink for each head and twice the heads of keys; values are
/// narrower than keys; experts in all layers but the first. Fields of the files that are published come before those of
/// the class in transformers.
///
/// Source: [transformers] `modular_mimo_v2_flash.py`; `configuration_mimo_v2_flash.py` of XiaomiMiMo/MiMo-V2-Flash.
pub fn mimo_v2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let full = Attention {
        value_dim: fields.given_size(&["v_head_dim"])?.unwrap_or(128),
        qkv_bias: fields.flag("attention_bias")?.unwrap_or(false),
        sinks: fields.flag("add_full_attention_sink_bias")?.unwrap_or(false),
        ..frame.attention_of(fields, Some(192))?
    };
    let kv_heads = match fields.given_size(&["swa_num_key_value_heads"])? {
        Some(heads) => heads,
        None => fields.product("num_key_value_heads", 2, full.kv_heads)?,
    };
    let sliding = Attention {
        heads: fields.given_size(&["swa_num_attention_heads"])?.unwrap_or(full.heads),
        kv_heads,
        head_dim: fields.given_size(&["swa_head_dim"])?.unwrap_or(full.head_dim),
        value_dim: fields.given_size(&["swa_v_head_dim"])?.unwrap_or(full.value_dim),
        sinks: fields.flag("add_swa_attention_sink_bias")?.unwrap_or(true),
        ..full.clone()
    };
    if fields.count(SHARED)? > 0 {
        return Err(fields.unsupported("n_shared_experts", "the class has no shared expert"));
    }
    if fields.mtp_layers(&["num_nextn_predict_layers"])? > 0 {
        let why = "layers that predict are dense and slide, which the last layer, whose kind they are counted as, is \
        not; 0 plans without them";
        return Err(fields.unsupported("num_nextn_predict_layers", why));
    }
    let spans = mimo_spans(fields, frame.layers)?;
    let sparse = if fields.has("mlp_layer_types") || !fields.has("moe_layer_freq") {
        sparse_layers(fields, frame.layers, 1)?
    } else {
        let marks = fields.counts_by_layer("moe_layer_freq", frame.layers)?.unwrap_or_default();
        marks.into_iter().map(|mark| mark != 0).collect()
    };
    let moe = experts(fields, &["moe_intermediate_size"])?;
    let mlp = gated_mlp(fields)?;
    let one = |(span, sparse): (Span, bool)| {
        let attention = if span == Span::Full { &full } else { &sliding };
        let ffn = if sparse { Ffn::Moe(moe.clone()) } else { Ffn::Dense(mlp.clone()) };
        layer(Attention { span, ..attention.clone() }, ffn)
    };
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().zip(sparse).map(one).collect()))
}

/// Spans of `MiMo` V2's layers: by `hybrid_layer_pattern`, whose 1 slides, by `layer_types`, or full in the first and
/// each sixth. A query sees itself beside the `sliding_window_size` tokens before it.
fn mimo_spans(fields: &Fields, layers: u32) -> Result<Vec<Span>, HfError> {
    let before = fields.given_size(&["sliding_window_size"])?;
    let given = fields.given_size(&["sliding_window"])?.unwrap_or(129);
    let window = before.map_or(given, |before| before.saturating_add(1));
    if fields.has("layer_types") {
        return spans(fields, layers, Some(window), Pattern::Always);
    }
    let slides: Vec<bool> = match fields.counts_by_layer("hybrid_layer_pattern", layers)? {
        Some(marks) => marks.into_iter().map(|mark| mark == 1).collect(),
        None => (0..layers).map(|i| i > 0 && !(i + 1).is_multiple_of(6)).collect(),
    };
    Ok(slides.into_iter().map(|slides| if slides { Span::Window(window) } else { Span::Full }).collect())
}
