//! Llama-Nemotron Super and Ultra, whose layers a search chose one by one: each has its own attention, MLP, or neither.

use super::error::HfError;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, HEADS};
use meshwright_engine::model::{Attention, Ffn, Layer, Mixer, Mlp, Model, Norm};

/// Width that intermediate sizes are a multiple of.
const MULTIPLE: u32 = 256;

/// Llama-Nemotron: a block of `block_configs` for each layer. A part that does nothing has no norm.
///
/// Source: [megatron-lm] `megatron/core/transformer/heterogeneous/heterogeneous_config.py`; `modeling_decilm.py` of
/// nvidia/Llama-3_3-Nemotron-Super-49B-v1.
pub fn nemotron_nas(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let heads = fields.size(HEADS)?;
    let blocks = fields.parts("block_configs", "block_configs.")?;
    if blocks.len() != frame.layers as usize {
        return Err(fields.unsupported("block_configs", format!("not one entry for each of {} layers", frame.layers)));
    }
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = fields.flag("mlp_bias")?.unwrap_or(false);
    let whole = Attention { qkv_bias: bias, out_bias: bias, ..frame.attention(fields)? };
    let one = |block: &Fields| {
        let mixer = match group(&block.part("attention", "block_configs.attention.")?, heads)? {
            Some(group) => Mixer::Attention(Attention { kv_heads: heads / group, ..whole.clone() }),
            None => Mixer::None,
        };
        let ffn = match intermediate(&block.part("ffn", "block_configs.ffn.")?, frame.hidden)? {
            Some(intermediate) => Ffn::Dense(Mlp { intermediate, gated: true, bias: mlp_bias }),
            None => Ffn::None,
        };
        let norms = u32::from(mixer != Mixer::None) + u32::from(ffn != Ffn::None);
        Ok(Layer { mixer, ffn, norms, extra_parameters: 0 })
    };
    let layers = blocks.iter().map(one).collect::<Result<_, _>>()?;
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Whether a part of a block does something. A part that is replaced by one linear map, as attention in some layers of
/// Llama-3.1-Nemotron-51B, is refused.
fn acts(part: &Fields) -> Result<bool, HfError> {
    if part.flag("replace_with_linear")?.unwrap_or(false) {
        return Err(part.unsupported("replace_with_linear", "a linear map in place of a part is not modelled"));
    }
    Ok(!part.flag("no_op")?.unwrap_or(false))
}

/// Heads of queries that share one of keys, where the block attends.
fn group(attention: &Fields, heads: u32) -> Result<Option<u32>, HfError> {
    for name in ["window_length", "num_sink_tokens"] {
        if attention.count(&[name])? > 0 {
            return Err(attention.unsupported(name, "windows and sinks of single blocks are not modelled"));
        }
    }
    if !acts(attention)? {
        return Ok(None);
    }
    let group = attention.size(&["n_heads_in_group"])?;
    if heads.is_multiple_of(group) {
        return Ok(Some(group));
    }
    Err(attention.unsupported("n_heads_in_group", format!("{heads} heads are not a multiple of it")))
}

/// Intermediate size of a block's MLP: two thirds of `ffn_mult` times the hidden size, rounded down and then up to a
/// multiple of 256.
fn intermediate(ffn: &Fields, hidden: u32) -> Result<Option<u32>, HfError> {
    if !acts(ffn)? {
        return Ok(None);
    }
    if let Some(size) = ffn.given_size(&["intermediate_size"])? {
        return Ok(Some(size));
    }
    let Some(times) = ffn.real("ffn_mult")? else { return Err(ffn.missing(&["ffn_mult"])) };
    let width = (2.0 * times * f64::from(hidden) / 3.0).floor();
    if (1.0..=1e6).contains(&width) {
        return Ok(Some((width as u32).next_multiple_of(MULTIPLE)));
    }
    Err(ffn.unsupported("ffn_mult", format!("an intermediate size of {width}")))
}
