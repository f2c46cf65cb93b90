//! Kimi-Linear, whose layers have Kimi Delta Attention, or latent attention without positions.
//!
//! Source: [transformers] `configuration_kimi_linear.py`, `modeling_kimi_linear.py`.

use super::error::HfError;
use super::experts::{fine_grained, latent_attention};
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame};
use meshwright_engine::model::{KimiDelta, Layer, Mixer, Mla, Model, Norm};

/// Part of a file that has the sizes and the places of Kimi Delta Attention.
const LINEAR: &str = "linear_attn_config";

/// Kimi-Linear: Kimi Delta Attention in most layers and latent attention in the others; experts after a dense layer.
/// The class ties no embeddings. Kimi K3's text models, which have this type too, are refused by their own fields.
pub fn kimi_linear(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame { tied: false, ..Frame::read(fields, EmbeddingTies::Untied)? };
    if fields.flag("mla_use_nope")? == Some(false) {
        return Err(fields.unsupported("mla_use_nope", "the class rotates no part of its heads"));
    }
    let mla = Mla { rope: false, ..latent_attention(fields)? };
    let biases = if fields.flag("attention_bias")?.unwrap_or(false) { biases(&mla, frame.hidden) } else { 0 };
    let mla = Mixer::Mla(mla);
    let part = if fields.has(LINEAR) { Some(fields.part(LINEAR, "linear_attn_config.")?) } else { None };
    let delta = Mixer::KimiDelta(delta(fields, part.as_ref())?);
    let attends = attends(&frame, fields, part.as_ref())?;
    if let Some(part) = &part {
        part.nothing_left()?;
    }
    let one = |(attends, ffn)| {
        let (mixer, extra_parameters) = if attends { (mla.clone(), biases) } else { (delta.clone(), 0) };
        Layer { mixer, ffn, norms: 2, extra_parameters }
    };
    let layers = attends.into_iter().zip(fine_grained(&frame, fields, 1)?).map(one).collect();
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers"])?;
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, layers) })
}

/// Biases of latent attention under `attention_bias`: of the maps down to both ranks, of the part that heads share, and
/// of the output.
fn biases(mla: &Mla, hidden: u32) -> u64 {
    [mla.q_rank, mla.kv_rank, mla.rope_dim, hidden].into_iter().map(u64::from).sum()
}

/// Sizes of the delta attention: those of the part, else those beside it, else the defaults of the class.
fn delta(fields: &Fields, part: Option<&Fields>) -> Result<KimiDelta, HfError> {
    let size = |of_part: &'static str, beside: &'static str, usual: u32| {
        let given = part.map_or(Ok(None), |part| part.given_size(&[of_part]))?;
        Ok(given.or(fields.given_size(&[beside])?).unwrap_or(usual))
    };
    Ok(KimiDelta {
        heads: size("num_heads", "linear_num_heads", 32)?,
        head_dim: size("head_dim", "linear_head_dim", 128)?,
        conv_kernel: size("short_conv_kernel_size", "linear_conv_kernel_dim", 4)?,
    })
}

/// Whether each layer has latent attention: by `layer_types`, else by the numbers of the part, which count from 1, else
/// each fourth after the first.
fn attends(frame: &Frame, fields: &Fields, part: Option<&Fields>) -> Result<Vec<bool>, HfError> {
    if let Some(types) = fields.per_layer("layer_types", frame.layers)? {
        let one = |kind| match kind {
            "full_attention" => Ok(true),
            "linear_attention" => Ok(false),
            other => Err(fields.unsupported("layer_types", format!("`{other}` is not a layer of Kimi-Linear"))),
        };
        return types.into_iter().map(one).collect();
    }
    let listed = part.filter(|part| part.has("full_attn_layers") || part.has("kda_layers"));
    let Some(part) = listed else { return Ok((0..frame.layers).map(|i| i > 0 && i.is_multiple_of(4)).collect()) };
    let (full, delta) = (part.counts("full_attn_layers")?, part.counts("kda_layers")?);
    let one = |i| match (full.contains(&i), delta.contains(&i)) {
        (true, false) => Ok(true),
        (false, true) => Ok(false),
        (true, true) => Err(part.unsupported("kda_layers", format!("layer {i} is in `full_attn_layers` too"))),
        (false, false) => Err(part.unsupported("kda_layers", format!("layer {i} is in neither list"))),
    };
    (1..=frame.layers).map(one).collect()
}
