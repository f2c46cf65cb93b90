//! Families with gated short convolutions in most layers: LFM2.
//!
//! Source: [transformers] `configuration_lfm2.py`, `modeling_lfm2.py`, `modeling_lfm2_moe.py`.

use super::error::HfError;
use super::experts::experts;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, gated_mlp};
use meshwright_engine::model::{Attention, Ffn, Layer, Mixer, Mlp, Model, Norm, QkNorm, ShortConv};

/// LFM2: attention with norms on each head's queries and keys in some layers, short convolutions in the others; an MLP in every layer.
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
    let conv = ShortConv {
        conv_kernel: fields.given_size(&["conv_L_cache"])?.unwrap_or(3),
        bias: fields.flag("conv_bias")?.unwrap_or(false),
    };
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
