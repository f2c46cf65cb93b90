//! Families with latent attention other than `DeepSeek` and GLM: `MiniCPM` 3, Youtu, A.X K1.

use super::error::HfError;
use super::experts::{fine_grained, latent_attention, latent_attention_of};
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, HEADS, gated_mlp};
use meshwright_engine::model::{Ffn, Layer, Mixer, Mla, Model, Norm};

/// Model of latent attention and MLPs.
fn dense(fields: &Fields, frame: &Frame, mla: Mla) -> Result<Model, HfError> {
    let ffn = Ffn::Dense(gated_mlp(fields)?);
    let one = Layer { mixer: Mixer::Mla(mla), ffn, norms: 2, extra_parameters: 0 };
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Tencent's Youtu-LLM: `DeepSeek`'s attention with MLPs alone.
pub fn youtu(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    dense(fields, &frame, latent_attention(fields)?)
}

/// `MiniCPM` 3: values as wide as the hidden size over the heads unless the file says otherwise.
pub fn minicpm3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let heads = fields.size(HEADS)?;
    let v_dim = fields.given_size(&["v_head_dim"])?.unwrap_or(frame.hidden / heads);
    dense(fields, &frame, latent_attention_of(fields, v_dim)?)
}

/// SK Telecom's A.X K1: `DeepSeek`'s layers with a norm on the output of the experts.
///
/// Source: [transformers] `modular_axk1.py`.
pub fn axk1(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let mla = latent_attention(fields)?;
    let one = |ffn| {
        let norms = if matches!(ffn, Ffn::Moe(_)) { 3 } else { 2 };
        Layer { mixer: Mixer::Mla(mla.clone()), ffn, norms, extra_parameters: 0 }
    };
    let layers = fine_grained(&frame, fields, 1)?.into_iter().map(one).collect();
    Ok(frame.model(fields, Norm::Rms, layers))
}
