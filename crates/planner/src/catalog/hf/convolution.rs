//! Families with gated short convolutions in most layers: LFM2 and LFM3.
//!
//! Source: [transformers] `configuration_lfm2.py`, `modeling_lfm2.py`, `modeling_lfm2_moe.py`, `modular_lfm3.py`.

use super::error::HfError;
use super::experts::experts;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, gated_mlp, window_or};
use meshwright_engine::model::{Attention, Ffn, Layer, Mixer, Mlp, Model, Norm, OutputGate, QkNorm, ShortConv, Span};

/// LFM2: attention with norms on each head's queries and keys in some layers, short convolutions in the others; an MLP
/// in every layer.
pub fn lfm2(fields: &Fields) -> Result<Model, HfError> {
    let frame = frame(fields)?;
    let intermediate = intermediate(fields)?;
    let mixers = mixers(&frame, fields, attends_by_index(&frame, fields)?)?;
    let mlp = Ffn::Dense(Mlp { intermediate, gated: true, bias: false });
    let layers = mixers.into_iter().map(|mixer| layer(mixer, mlp.clone())).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// LFM2 with experts in all layers but the first `num_dense_layers`.
pub fn lfm2_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = frame(fields)?;
    let dense = fields.given_count(&["num_dense_layers"])?.unwrap_or(2);
    let moe = experts(fields, &["moe_intermediate_size"])?;
    let mlp = gated_mlp(fields)?;
    let mixers = mixers(&frame, fields, None)?;
    let ffn = |i| if i < dense { Ffn::Dense(mlp.clone()) } else { Ffn::Moe(moe.clone()) };
    let layers = (0..).zip(mixers).map(|(i, mixer)| layer(mixer, ffn(i))).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// LFM3: LFM2 with sandwich norms and a gate for each head; half of the attention layers have a sliding window.
pub fn lfm3(fields: &Fields) -> Result<Model, HfError> {
    let frame = frame(fields)?;
    let gated = fields.flag("use_attention_gate")?.unwrap_or(true);
    let attention = Attention {
        qk_norm: QkNorm::PerHead,
        output_gate: if gated { OutputGate::PerHead } else { OutputGate::None },
        ..frame.biased_attention(fields, Some(128))?
    };
    let window = window_or(fields, Some(256))?;
    let conv = conv(fields, 7)?;
    let norms = if fields.flag("use_sandwich_norm")?.unwrap_or(true) { 4 } else { 2 };
    let mlp = Ffn::Dense(gated_mlp(fields)?);
    let usual = |i: u32| match i % 4 {
        2 => "full_attention",
        0 if i > 0 => "sliding_attention",
        _ => "conv",
    };
    let types = fields.per_layer("layer_types", frame.layers)?;
    let types = types.unwrap_or_else(|| (0..frame.layers).map(usual).collect());
    let one = |kind| {
        let mixer = match (kind, window) {
            ("conv", _) => Mixer::ShortConv(conv.clone()),
            ("full_attention", _) => Mixer::Attention(attention.clone()),
            ("sliding_attention", Some(window)) => {
                Mixer::Attention(Attention { span: Span::Window(window), ..attention.clone() })
            }
            ("sliding_attention", None) => {
                return Err(fields.unsupported("layer_types", "a sliding layer without `sliding_window`"));
            }
            (other, _) => return Err(fields.unsupported("layer_types", format!("`{other}` is not a layer of LFM3"))),
        };
        Ok(Layer { norms, ..layer(mixer, mlp.clone()) })
    };
    let layers = types.into_iter().map(one).collect::<Result<_, _>>()?;
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// The short convolution, as long as its class has it where the file does not say.
fn conv(fields: &Fields, usual_length: u32) -> Result<ShortConv, HfError> {
    Ok(ShortConv {
        conv_kernel: fields.given_size(&["conv_L_cache"])?.unwrap_or(usual_length),
        bias: fields.flag("conv_bias")?.unwrap_or(false),
    })
}

const fn layer(mixer: Mixer, ffn: Ffn) -> Layer {
    Layer { mixer, ffn, norms: 2, extra_parameters: 0 }
}

/// The sizes that all layers share; `tie_embedding` of the published files goes before `tie_word_embeddings`.
fn frame(fields: &Fields) -> Result<Frame, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    Ok(Frame { tied: fields.flag("tie_embedding")?.unwrap_or(frame.tied), ..frame })
}

/// Intermediate size of the MLPs: two thirds of `block_ff_dim`, or of `intermediate_size`, times a factor, in whole multiples.
fn intermediate(fields: &Fields) -> Result<u32, HfError> {
    let given = fields.given_size(&["block_ff_dim"])?;
    let size = fields.given_size(&["intermediate_size"])?;
    let size = given.or(size).ok_or_else(|| fields.missing(&["intermediate_size"]))?;
    let factor = fields.real("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    let multiple = fields.given_size(&["block_multiple_of"])?.unwrap_or(256);
    if !fields.flag("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(size);
    }
    let thirds = 2 * u64::from(size) / 3;
    if fields.is_null("block_ffn_dim_multiplier") {
        return u32::try_from(thirds).map_err(|_| fields.unsupported("intermediate_size", "it is too large"));
    }
    let scaled = (factor * thirds as f64).floor();
    if !(1.0..=f64::from(u32::MAX / 2)).contains(&scaled) {
        return Err(fields.unsupported("block_ffn_dim_multiplier", format!("an MLP of {scaled} has no price")));
    }
    fields.product("block_multiple_of", (scaled as u32).div_ceil(multiple), multiple)
}

/// Layers with attention by `full_attn_idxs`, all where it is not given; none where `layer_types` says it.
fn attends_by_index(frame: &Frame, fields: &Fields) -> Result<Option<Vec<bool>>, HfError> {
    let listed = fields.counts("full_attn_idxs")?;
    if fields.has("layer_types") {
        return Ok(None);
    }
    let all = !fields.has("full_attn_idxs");
    Ok(Some((0..frame.layers).map(|i| all || listed.contains(&i)).collect()))
}

/// The mixer of each layer, by `attends` or else by `layer_types`.
fn mixers(frame: &Frame, fields: &Fields, attends: Option<Vec<bool>>) -> Result<Vec<Mixer>, HfError> {
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.attention(fields)? };
    let conv = conv(fields, 3)?;
    let attends = match (attends, fields.per_layer("layer_types", frame.layers)?) {
        (Some(attends), _) => attends,
        (None, None) => return Err(fields.missing(&["layer_types"])),
        (None, Some(types)) => types
            .into_iter()
            .map(|kind| match kind {
                "full_attention" => Ok(true),
                "conv" => Ok(false),
                other => Err(fields.unsupported("layer_types", format!("`{other}` is not a layer of LFM2"))),
            })
            .collect::<Result<_, _>>()?,
    };
    let one = |attends| {
        if attends { Mixer::Attention(attention.clone()) } else { Mixer::ShortConv(conv.clone()) }
    };
    Ok(attends.into_iter().map(one).collect())
}
