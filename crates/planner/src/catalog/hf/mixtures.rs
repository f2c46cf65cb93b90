//! Families with routed experts other than Mixtral, Qwen and `DeepSeek`: Phi, Granite, ERNIE, `MiniMax`, Hunyuan and others.

use super::dense::{exaone_attentions, hunyuan_attention};
use super::error::HfError;
use super::experts::{SHARED, experts, fine_grained};
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, Pattern, gated_mlp, layer, spans, window_or};
use super::gated::gated_attention;
use meshwright_engine::model::{Attention, Ffn, Layer, Model, Moe, Norm, QkNorm, Span};

/// Phi-3.5-MoE: `LayerNorm`, and biases on the attention and the head by their switches.
pub fn phimoe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = frame.biased_attention(fields, None)?;
    let moe = experts(fields, &["intermediate_size"])?;
    let spans = spans(fields, frame.layers, window_or(fields, None)?, Pattern::Always)?;
    let one = |span| layer(Attention { span, ..attention.clone() }, Ffn::Moe(moe.clone()));
    let head_bias = fields.flag("lm_head_bias")?.unwrap_or(false);
    Ok(Model { head_bias, ..frame.model(fields, Norm::Layer, spans.into_iter().map(one).collect()) })
}

/// Granite with experts, with or without a shared one; its multipliers are no parameters.
pub fn granitemoe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let shared_intermediate = fields.count(&["shared_intermediate_size"])?;
    let moe = Moe { shared_intermediate, ..experts(fields, &["intermediate_size"])? };
    let one = layer(frame.biased_attention(fields, None)?, Ffn::Moe(moe));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// ERNIE 4.5 with experts in a range of layers, each `moe_layer_interval`-th of them; a bias for each expert routes.
pub fn ernie4_5_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    if fields.flag("use_bias")?.unwrap_or(false) {
        return Err(fields.unsupported("use_bias", "biases beside experts without them are not modelled"));
    }
    let (count, top_k) = (fields.size(&["moe_num_experts"])?, fields.size(&["moe_k"])?);
    let width = fields.size(&["moe_intermediate_size"])?;
    let shared = fields.product("moe_num_shared_experts", fields.count(&["moe_num_shared_experts"])?, width)?;
    let moe = Moe { shared_intermediate: shared, router_bias: true, ..Moe::gated(count, top_k, width) };
    let first = fields.given_count(&["moe_layer_start_index"])?.unwrap_or(1);
    let last = fields.given_index("moe_layer_end_index")?.unwrap_or(frame.layers - 1);
    let every = fields.given_size(&["moe_layer_interval"])?.unwrap_or(1);
    let (attention, mlp) = (frame.attention(fields)?, gated_mlp(fields)?);
    let one = |i: u32| {
        let routed = (first..=last).contains(&i) && (i + 1).is_multiple_of(every);
        layer(attention.clone(), if routed { Ffn::Moe(moe.clone()) } else { Ffn::Dense(mlp.clone()) })
    };
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers"])?;
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, (0..frame.layers).map(one).collect()) })
}

/// `MiniMax` M2: norms over all queries and all keys; multi-token prediction by `use_mtp`.
pub fn minimax_m2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    if fields.counts("attn_type_list")?.iter().any(|kind| *kind != 1) {
        return Err(fields.unsupported("attn_type_list", "lightning attention is not modelled"));
    }
    if !fields.flag("use_qk_norm")?.unwrap_or(true) || fields.text("qk_norm_type")?.is_some_and(|t| t != "per_layer") {
        return Err(fields.unsupported("qk_norm_type", "the class norms all queries and all keys"));
    }
    let attention = Attention { qk_norm: QkNorm::Full, ..frame.attention_of(fields, Some(128))? };
    let shared_intermediate = fields.count(&["shared_intermediate_size"])?;
    if shared_intermediate > 0 {
        return Err(fields.unsupported("shared_intermediate_size", "the class has no shared expert"));
    }
    let one = layer(attention, Ffn::Moe(experts(fields, &["intermediate_size"])?));
    let mtp_depth = fields.mtp_layers(&["num_mtp_modules"])?;
    let mtp_depth = if fields.flag("use_mtp")?.unwrap_or(false) { mtp_depth } else { 0 };
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, frame.repeat(&one)) })
}

/// Hunyuan with experts and a shared one as wide as they are; sizes may be a list of one value for each layer.
pub fn hunyuan_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let width = fields.size(&["intermediate_size"])?;
    let wanted = [("moe_intermediate_size", width), ("num_shared_expert", 1), ("moe_layer_num_skipped", 0)];
    for (name, wanted) in wanted {
        if fields.uniform(name)?.is_some_and(|given| given != wanted) {
            return Err(fields.unsupported(name, format!("the class has {wanted} in every layer")));
        }
    }
    if !fields.flag("use_mixed_mlp_moe")?.unwrap_or(true) {
        return Err(fields.unsupported("use_mixed_mlp_moe", "the class always has a shared expert"));
    }
    let (Some(count), Some(top_k)) = (fields.uniform("num_experts")?, fields.uniform("moe_topk")?) else {
        return Err(fields.missing(&["num_experts"]));
    };
    let moe = Moe { shared_intermediate: width, ..Moe::gated(count, top_k, width) };
    let one = layer(hunyuan_attention(&frame, fields)?, Ffn::Moe(moe));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Fine-grained experts after some dense layers, `usual_dense` where the file does not say.
fn fine(fields: &Fields, frame: &Frame, attentions: Vec<Attention>, usual_dense: u32) -> Result<Model, HfError> {
    let ffns = fine_grained(frame, fields, usual_dense)?;
    let one = |(attention, ffn)| layer(attention, ffn);
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers"])?;
    let layers = attentions.into_iter().zip(ffns).map(one).collect();
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, layers) })
}

/// `dots.llm1`: a norm on each head's queries and keys; layers from `max_window_layers` on slide, where there is a window.
pub fn dots1(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, None)? };
    let from = fields.given_count(&["max_window_layers"])?.unwrap_or(62);
    let spans = spans(fields, frame.layers, window_or(fields, Some(4096))?, Pattern::From(from))?;
    let attentions = spans.into_iter().map(|span| Attention { span, ..attention.clone() }).collect();
    fine(fields, &frame, attentions, 0)
}

/// Ling 2.0 of Ant Group: a norm on each head's queries and keys, groups of experts after a dense layer. Ling 1, of the
/// same type, has no groups and is refused by their name.
///
/// Source: `models/modeling_bailing_moe_v2.py` and `configuration_bailing_moe_v2.py` of inclusionAI/Ling-V2 at af8837e6.
pub fn bailing(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    fields.size(&["n_group"])?;
    let normed = fields.flag("use_qk_norm")?.unwrap_or(true);
    let attention = Attention {
        qkv_bias: fields.flag("use_qkv_bias")?.unwrap_or(false),
        out_bias: fields.flag("use_bias")?.unwrap_or(false),
        qk_norm: if normed { QkNorm::PerHead } else { QkNorm::None },
        ..frame.attention_of(fields, Some(128))?
    };
    fine(fields, &frame, vec![attention; frame.layers as usize], 1)
}

/// Solar Open: grouped heads without norms, whose biases are on queries, keys and values; experts in every layer.
pub fn solar_open(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { out_bias: false, ..frame.biased_attention(fields, Some(128))? };
    fine(fields, &frame, vec![attention; frame.layers as usize], 0)
}

/// Tencent's Hy3: a norm on each head's queries and keys; experts after a dense layer.
pub fn hy_v3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, Some(128))? };
    fine(fields, &frame, vec![attention; frame.layers as usize], 1)
}

/// Text part of Aria: Llama's attention, experts in every layer, shared ones as wide as routed ones.
pub fn aria(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let (count, top_k) = (fields.size(&["moe_num_experts"])?, fields.size(&["moe_topk"])?);
    let width = fields.size(&["intermediate_size"])?;
    let shared = fields.product("moe_num_shared_experts", fields.count(&["moe_num_shared_experts"])?, width)?;
    let moe = Moe { shared_intermediate: shared, ..Moe::gated(count, top_k, width) };
    let one = layer(frame.biased_attention(fields, None)?, Ffn::Moe(moe));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// K-EXAONE: EXAONE 4's attention, norms before the two parts, experts.
pub fn exaone_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attentions = exaone_attentions(&frame, fields)?;
    fine(fields, &frame, attentions, 1)
}

/// Arcee's Trinity: gated attention, rotary where it slides, sandwich norms, a bias for each expert.
pub fn afmoe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = gated_attention(&frame, fields)?;
    let every = fields.given_size(&["global_attn_every_n_layers"])?.unwrap_or(4);
    let spans = spans(fields, frame.layers, window_or(fields, Some(1024))?, Pattern::AllBut(every))?;
    let routed = experts(fields, &["moe_intermediate_size"])?;
    let shared = fields.product("num_shared_experts", fields.count(SHARED)?, routed.intermediate)?;
    let moe = Moe { shared_intermediate: shared, router_bias: true, ..routed };
    let (dense, mlp) = (fields.count(&["num_dense_layers"])?, gated_mlp(fields)?);
    let one = |(i, span): (u32, Span)| {
        let ffn = if i < dense { Ffn::Dense(mlp.clone()) } else { Ffn::Moe(moe.clone()) };
        Layer { norms: 4, ..layer(Attention { span, rope: span != Span::Full, ..attention.clone() }, ffn) }
    };
    Ok(frame.model(fields, Norm::Rms, (0..).zip(spans).map(one).collect()))
}

/// DBRX, whose sizes of attention and experts are in objects of their own.
pub fn dbrx(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let heads = frame.attention(fields)?;
    let attention = fields.part("attn_config", "attn_config.")?;
    let ffn = fields.part("ffn_config", "ffn_config.")?;
    let kv_heads = attention.given_size(&["kv_n_heads"])?.unwrap_or(1);
    let (count, top_k) = (ffn.size(&["moe_num_experts"])?, ffn.size(&["moe_top_k"])?);
    let moe = Moe::gated(count, top_k, ffn.size(&["ffn_hidden_size"])?);
    attention.nothing_left()?;
    ffn.nothing_left()?;
    let one = layer(Attention { kv_heads, ..heads }, Ffn::Moe(moe));
    Ok(frame.model(fields, Norm::LayerNoBias, frame.repeat(&one)))
}
