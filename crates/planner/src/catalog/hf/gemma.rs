//! Gemma 1 to 4: tied embeddings, heads of 256, sandwich norms from the second on.

use super::error::HfError;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, HEADS, Pattern, Usual, gated_mlp, layer, spans};
use meshwright_engine::model::{Attention, Ffn, Layer, Model, Moe, Norm, OutputGate, QkNorm, Span};

/// Dimension of a head where the file has none.
const HEAD_DIM: Option<u32> = Some(256);

/// Gemma 1, the first generation.
pub fn gemma(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let one = layer(frame.biased_attention(fields, HEAD_DIM)?, Ffn::Dense(gated_mlp(fields)?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// `VaultGemma`: Gemma 2 with norms before the two parts alone.
pub fn vaultgemma(fields: &Fields) -> Result<Model, HfError> {
    let model = gemma2(fields)?;
    let kinds = model.kinds.into_iter().map(|kind| Layer { norms: 2, ..kind }).collect();
    Ok(Model { kinds, ..model })
}

/// Gemma 2: every second layer slides.
pub fn gemma2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let attention = frame.biased_attention(fields, HEAD_DIM)?;
    let window = fields.given_size(&["sliding_window"])?.unwrap_or(4096);
    let spans = spans(fields, frame.layers, Some(window), Pattern::AllBut(2))?;
    sandwiched(&frame, fields, &attention, spans)
}

/// Gemma 3: five of six layers slide; published files leave heads, vocabulary and positions to the class.
pub fn gemma3(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read_with(
        fields,
        EmbeddingTies::Tied,
        Usual { vocab: Some(262_208), layers: None, positions: Some(131_072) },
    )?;
    let heads = fields.given_size(HEADS)?.unwrap_or(8);
    let kv_heads = fields.given_size(&["num_key_value_heads"])?.unwrap_or(4);
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    let attention = Attention {
        heads,
        kv_heads,
        head_dim: fields.given_size(&["head_dim"])?.unwrap_or(256),
        value_dim: 0,
        span: Span::Full,
        qkv_bias: bias,
        out_bias: bias,
        qk_norm: QkNorm::PerHead,
        sinks: false,
        output_gate: OutputGate::None,
        keys_are_values: false,
        rope: true,
    };
    let window = fields.given_size(&["sliding_window"])?.unwrap_or(4096);
    let every = fields.given_size(&["sliding_window_pattern", "_sliding_window_pattern"])?.unwrap_or(6);
    let spans = spans(fields, frame.layers, Some(window), Pattern::AllBut(every))?;
    sandwiched(&frame, fields, &attention, spans)
}

fn sandwiched(frame: &Frame, fields: &Fields, attention: &Attention, spans: Vec<Span>) -> Result<Model, HfError> {
    let mlp = gated_mlp(fields)?;
    let one = |span| {
        let attention = Attention { span, ..attention.clone() };
        Layer { norms: 4, ..layer(attention, Ffn::Dense(mlp.clone())) }
    };
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().map(one).collect()))
}

/// Gemma 4: global layers have wider heads, fewer of them for keys, and may take keys for values; experts
/// stand beside a dense MLP. Per-layer embeddings, shared keys and double-wide MLPs (E2B, E4B) are refused.
pub fn gemma4(fields: &Fields) -> Result<Model, HfError> {
    if fields.given_count(&["hidden_size_per_layer_input"])? != Some(0) {
        let why = "embeddings per layer are not modelled, and the class has them unless this is 0";
        return Err(fields.unsupported("hidden_size_per_layer_input", why));
    }
    gemma4_layers(fields, 512)
}

/// Text part of Gemma 4 Unified: Gemma 4 without embeddings per layer and without experts.
pub fn gemma4_unified(fields: &Fields) -> Result<Model, HfError> {
    gemma4_layers(fields, 1024)
}

/// Layers of Gemma 4, with the window of its class where the file has none.
fn gemma4_layers(fields: &Fields, usual_window: u32) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Tied)?;
    let window = fields.given_size(&["sliding_window"])?.unwrap_or(usual_window);
    let mut spans = spans(fields, frame.layers, Some(window), Pattern::AllBut(6))?;
    if let Some(last) = spans.last_mut() {
        *last = Span::Full;
    }
    let local = Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, HEAD_DIM)? };
    let keys_are_values = fields.flag("attention_k_eq_v")?.unwrap_or(false);
    let global_kv = fields.given_size(&["num_global_key_value_heads"])?.filter(|_| keys_are_values);
    let global = Attention {
        head_dim: fields.given_size(&["global_head_dim"])?.unwrap_or(512),
        kv_heads: global_kv.unwrap_or(local.kv_heads),
        keys_are_values,
        ..local.clone()
    };
    let mlp = gated_mlp(fields)?;
    let (ffn, norms, extra_parameters) = if fields.flag("enable_moe_block")?.unwrap_or(false) {
        let experts = fields.size(&["num_experts"])?;
        let top_k = fields.size(&["top_k_experts", "num_experts_per_tok"])?;
        let width = fields.size(&["moe_intermediate_size", "expert_intermediate_size"])?;
        let moe = Moe {
            router_bias: true, // a scale per expert: as many parameters as a bias
            dense_intermediate: mlp.intermediate,
            ..Moe::gated(experts, top_k, width)
        };
        (Ffn::Moe(moe), 7, u64::from(frame.hidden)) // the router scales its input, channel by channel
    } else {
        (Ffn::Dense(mlp), 4, 0)
    };
    // Files that newer releases of the class wrote have the sizes of global layers here.
    let own = fields.sizes_of_layers("per_layer_config", &["head_dim", "num_key_value_heads"])?;
    let one = |(i, span): (u32, Span)| {
        let usual = if span == Span::Full { &global } else { &local };
        let attention = Attention {
            head_dim: own.get(&(i, "head_dim")).copied().unwrap_or(usual.head_dim),
            kv_heads: own.get(&(i, "num_key_value_heads")).copied().unwrap_or(usual.kv_heads),
            span,
            ..usual.clone()
        };
        Layer { norms, extra_parameters, ..layer(attention, ffn.clone()) }
    };
    Ok(frame.model(fields, Norm::Rms, (0..).zip(spans).map(one).collect()))
}
