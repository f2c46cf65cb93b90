//! Families that mix attention with a state: Qwen3-Next, Qwen 3.5, Nemotron-H, Bamba, Granite 4, Falcon-H1.

use super::error::HfError;
use super::experts::{experts, qwen_ffns, qwen_shared};
use super::fields::{Fields, MOST_LAYERS};
use super::frame::{EmbeddingTies, Frame, HIDDEN, Usual, gated_mlp, layer, mlp_with_bias};
use super::llama::qwen3_attention;
use meshwright_engine::model::{
    Attention, AttentionMamba, DeltaNet, Ffn, Layer, Mamba, Mixer, Mlp, Model, Moe, Norm, OutputGate, QkNorm,
};

/// Qwen3-Next: three of four layers are gated delta rules; experts with a shared one.
pub fn qwen3_next(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let ffns = qwen_ffns(fields, frame.layers, &qwen_shared(fields)?)?;
    with_delta_rules(&frame, fields, ffns)
}

/// Qwen 3.5, dense.
pub fn qwen3_5(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let ffns = vec![Ffn::Dense(gated_mlp(fields)?); frame.layers as usize];
    with_delta_rules(&frame, fields, ffns)
}

/// Qwen 3.5 with experts.
pub fn qwen3_5_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let ffns = vec![Ffn::Moe(qwen_shared(fields)?); frame.layers as usize];
    with_delta_rules(&frame, fields, ffns)
}

/// Model of gated delta rules with full attention in every `full_attention_interval`-th layer, or as `layer_types` has it.
fn with_delta_rules(frame: &Frame, fields: &Fields, ffns: Vec<Ffn>) -> Result<Model, HfError> {
    if !fields.flag("attn_output_gate")?.unwrap_or(true) {
        return Err(fields.unsupported("attn_output_gate", "the class always gates the output of its attention"));
    }
    let attention = Attention { output_gate: OutputGate::PerElement, ..qwen3_attention_of_256(frame, fields)? };
    let linear = DeltaNet {
        key_heads: fields.size(&["linear_num_key_heads"])?,
        value_heads: fields.size(&["linear_num_value_heads"])?,
        key_dim: fields.size(&["linear_key_head_dim"])?,
        value_dim: fields.size(&["linear_value_head_dim"])?,
        conv_kernel: fields.given_size(&["linear_conv_kernel_dim"])?.unwrap_or(4),
    };
    let layers = delta_layers(frame, fields, &Mixer::Attention(attention), &Mixer::DeltaNet(linear), ffns)?;
    let mtp_depth = fields.mtp_layers(&["mtp_num_hidden_layers"])?;
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, layers) })
}

/// Layers of which each `full_attention_interval`-th has full attention and the others are linear, or as `layer_types` has it.
fn delta_layers(
    frame: &Frame,
    fields: &Fields,
    full: &Mixer,
    linear: &Mixer,
    ffns: Vec<Ffn>,
) -> Result<Vec<Layer>, HfError> {
    let every = fields.given_size(&["full_attention_interval"])?.unwrap_or(4);
    let types = fields.per_layer("layer_types", frame.layers)?;
    let layer_at = |(i, ffn): (u32, Ffn)| {
        let is_full = match types.as_ref().map(|types| types[i as usize]) {
            None => (i + 1).is_multiple_of(every),
            Some("full_attention") => true,
            Some("linear_attention") => false,
            Some(other) => {
                return Err(fields.unsupported("layer_types", format!("`{other}` is not a layer of this family")));
            }
        };
        let mixer = if is_full { full.clone() } else { linear.clone() };
        Ok(Layer { mixer, ffn, norms: 2, extra_parameters: 0 })
    };
    (0..frame.layers).zip(ffns).map(layer_at).collect()
}

/// `OLMo` Hybrid: three of four layers are gated delta rules, with as many heads as the attention unless the file says otherwise.
///
/// Source: [transformers] `modular_olmo_hybrid.py`.
pub fn olmo_hybrid(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let rope = !fields.is_null("rope_parameters");
    let attention = Attention { qk_norm: QkNorm::Full, rope, ..frame.biased_attention(fields, None)? };
    let key_heads = fields.given_size(&["linear_num_key_heads"])?.unwrap_or(attention.heads);
    let key_dim = fields.given_size(&["linear_key_head_dim"])?.unwrap_or((frame.hidden / 4 * 3 / key_heads).max(1));
    let linear = DeltaNet {
        key_heads,
        value_heads: fields.given_size(&["linear_num_value_heads"])?.unwrap_or(attention.heads),
        key_dim,
        value_dim: fields.given_size(&["linear_value_head_dim"])?.unwrap_or(key_dim.saturating_mul(2)),
        conv_kernel: fields.given_size(&["linear_conv_kernel_dim"])?.unwrap_or(4),
    };
    let ffns = vec![Ffn::Dense(gated_mlp(fields)?); frame.layers as usize];
    let layers = delta_layers(&frame, fields, &Mixer::Attention(attention), &Mixer::DeltaNet(linear), ffns)?;
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Attention with a norm per head; the classes here have heads of 256.
fn qwen3_attention_of_256(frame: &Frame, fields: &Fields) -> Result<Attention, HfError> {
    let head_dim = fields.given_size(&["head_dim"])?.unwrap_or(256);
    Ok(Attention { head_dim, ..qwen3_attention(frame, fields)? })
}

/// Nemotron-H: each layer is a mixer or a feed-forward part alone, by its letter in `hybrid_override_pattern`: `M` Mamba-2,
/// `*` attention, `-` MLP, `E` experts.
pub fn nemotron_h(fields: &Fields) -> Result<Model, HfError> {
    let letters = pattern(fields)?;
    let spelled = u32::try_from(letters.len()).ok().filter(|&n| n <= MOST_LAYERS);
    let frame =
        Frame::read_with(fields, EmbeddingTies::Untied, Usual { vocab: None, layers: spelled, positions: None })?;
    if frame.tied {
        return Err(fields.unsupported("tie_word_embeddings", "the class has a head of its own"));
    }
    if Some(frame.layers) != spelled {
        return Err(fields.unsupported("num_hidden_layers", format!("{} layers are spelled out", letters.len())));
    }
    let alone = |mixer, ffn| Layer { mixer, ffn, norms: 1, extra_parameters: 0 };
    let layers = letters
        .into_iter()
        .map(|letter| match letter {
            'M' => Ok(alone(Mixer::Mamba(mamba(fields)?), Ffn::None)),
            '*' => {
                let attention = Attention { rope: false, ..frame.biased_attention(fields, Some(128))? };
                Ok(Layer { norms: 1, ..layer(attention, Ffn::None) })
            }
            '-' => Ok(alone(Mixer::None, Ffn::Dense(relu2(fields)?))),
            'E' => Ok(alone(Mixer::None, Ffn::Moe(relu2_experts(fields)?))),
            other => Err(fields.unsupported("hybrid_override_pattern", format!("`{other}` is not one of `M*-E`"))),
        })
        .collect::<Result<_, _>>()?;
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// The letters of the layers, from the pattern or from the list that later files have.
fn pattern(fields: &Fields) -> Result<Vec<char>, HfError> {
    if let Some(text) = fields.text("hybrid_override_pattern")? {
        return Ok(text.chars().collect());
    }
    let Some(blocks) = fields.texts("layers_block_type")? else {
        return Err(fields.missing(&["hybrid_override_pattern", "layers_block_type"]));
    };
    let letter = |block| match block {
        "mamba" | "linear_attention" => Ok('M'),
        "attention" | "full_attention" => Ok('*'),
        "mlp" => Ok('-'),
        "moe" => Ok('E'),
        other => Err(fields.unsupported("layers_block_type", format!("`{other}` is not a block of Nemotron-H"))),
    };
    blocks.into_iter().map(letter).collect()
}

/// Mamba 2: state-space blocks alone, as Codestral Mamba has them.
///
/// Source: [transformers] `configuration_mamba2.py`, `modeling_mamba2.py`.
pub fn mamba2(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let block = Mamba {
        heads: fields.size(&["num_heads"])?,
        head_dim: fields.size(&["head_dim"])?,
        groups: fields.size(&["n_groups"])?,
        state: fields.size(&["state_size"])?,
        conv_kernel: fields.size(&["conv_kernel"])?,
        conv_bias: fields.flag("use_conv_bias")?.unwrap_or(true),
        proj_bias: fields.flag("use_bias")?.unwrap_or(false),
        out_bias: None,
        norm: true,
    };
    let expand = fields.given_size(&["expand"])?.unwrap_or(2);
    if u64::from(fields.product("expand", expand, frame.hidden)?) != block.inner() {
        return Err(fields.unsupported("expand", "it does not agree with heads times their dimension"));
    }
    let one = Layer { mixer: Mixer::Mamba(block), ffn: Ffn::None, norms: 1, extra_parameters: 0 };
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

fn mamba(fields: &Fields) -> Result<Mamba, HfError> {
    let proj_bias = fields.flag("use_bias")?;
    let proj_bias = match (proj_bias, fields.flag("mamba_proj_bias")?) {
        (Some(a), Some(b)) if a != b => {
            return Err(fields.unsupported("mamba_proj_bias", "it does not agree with `use_bias`"));
        }
        (a, b) => a.or(b).unwrap_or(false),
    };
    let heads = fields.size(&["mamba_num_heads", "mamba_n_heads"])?;
    let head_dim = if fields.letters("mamba_d_head")?.is_some_and(|text| text == "auto") {
        mamba_width(fields)? / heads
    } else {
        fields.size(&["mamba_head_dim", "mamba_d_head"])?
    };
    Ok(Mamba {
        heads,
        head_dim,
        groups: fields.size(&["n_groups", "mamba_n_groups"])?,
        state: fields.size(&["ssm_state_size", "mamba_state_dim", "mamba_d_state"])?,
        conv_kernel: fields.size(&["conv_kernel", "mamba_d_conv"])?,
        conv_bias: fields.flag("use_conv_bias")?.or(fields.flag("mamba_conv_bias")?).unwrap_or(true),
        proj_bias,
        out_bias: None,
        norm: true,
    })
}

/// Inner width of the state-space blocks: `mamba_expand` times the hidden size.
fn mamba_width(fields: &Fields) -> Result<u32, HfError> {
    let expand = fields.given_size(&["mamba_expand"])?.unwrap_or(2);
    fields.product("mamba_expand", expand, fields.size(HIDDEN)?)
}

/// Mamba-2 blocks of a family whose layers each have a feed-forward part too.
fn checked_mamba(fields: &Fields) -> Result<Mamba, HfError> {
    let mamba = mamba(fields)?;
    if u64::from(mamba_width(fields)?) != mamba.inner() {
        return Err(fields.unsupported("mamba_expand", "it does not agree with heads times their dimension"));
    }
    Ok(mamba)
}

/// Bamba: Mamba-2 in all layers but `attn_layer_indices`, which have attention; an MLP in every layer.
pub fn bamba(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let mamba = checked_mamba(fields)?;
    let attention = frame.biased_attention(fields, None)?;
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let attends = fields.counts("attn_layer_indices")?;
    let layer_at = |i| {
        let attends = attends.contains(&i);
        let mixer = if attends { Mixer::Attention(attention.clone()) } else { Mixer::Mamba(mamba.clone()) };
        Layer { mixer, ffn: Ffn::Dense(mlp.clone()), norms: 2, extra_parameters: 0 }
    };
    Ok(frame.model(fields, Norm::Rms, (0..frame.layers).map(layer_at).collect()))
}

/// Granite 4: Mamba-2 and attention by `layer_types`; experts with a shared MLP, or that MLP alone.
pub fn granitemoehybrid(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let rope = fields.text("position_embedding_type")? == Some("rope");
    let attention = Attention { rope, ..frame.biased_attention(fields, None)? };
    let shared = fields.given_size(&["shared_intermediate_size"])?.unwrap_or(1024);
    let ffn = if fields.given_count(&["num_local_experts"])?.unwrap_or(8) == 0 {
        Ffn::Dense(Mlp { intermediate: shared, gated: true, bias: false })
    } else {
        Ffn::Moe(Moe { shared_intermediate: shared, ..experts(fields, &["intermediate_size"])? })
    };
    let types = fields.per_layer("layer_types", frame.layers)?;
    let layer_at = |i: u32| {
        let mixer = match types.as_ref().map(|types| types[i as usize]) {
            Some("attention" | "full_attention") => Mixer::Attention(attention.clone()),
            None | Some("mamba" | "linear_attention") => Mixer::Mamba(checked_mamba(fields)?),
            Some(other) => {
                return Err(fields.unsupported("layer_types", format!("`{other}` is not a layer of this family")));
            }
        };
        Ok(Layer { mixer, ffn: ffn.clone(), norms: 2, extra_parameters: 0 })
    };
    let layers = (0..frame.layers).map(layer_at).collect::<Result<_, _>>()?;
    Ok(frame.model(fields, Norm::Rms, layers))
}

/// Falcon-H1: attention and Mamba-2 side by side in every layer, and an MLP.
///
/// Source: [transformers] `configuration_falcon_h1.py`, `modeling_falcon_h1.py`.
pub fn falcon_h1(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = frame.biased_attention(fields, None)?;
    let mamba = mamba_beside(fields)?;
    let mlp = mlp_with_bias(fields, "mlp_bias")?;
    let mixer = Mixer::AttentionMamba(AttentionMamba { attention, mamba });
    let one = Layer { mixer, ffn: Ffn::Dense(mlp), norms: 2, extra_parameters: 0 };
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// Mamba-2 block of Falcon-H1: as wide as `mamba_d_ssm` says, with biases of either projection and a norm where the file says so.
fn mamba_beside(fields: &Fields) -> Result<Mamba, HfError> {
    let width = match fields.given_size(&["mamba_d_ssm"])? {
        Some(width) => width,
        None => mamba_width(fields)?,
    };
    let heads = fields.size(&["mamba_n_heads"])?;
    let auto = !fields.has("mamba_d_head") || fields.letters("mamba_d_head")?.is_some_and(|text| text == "auto");
    let head_dim = if auto { width / heads } else { fields.size(&["mamba_d_head"])? };
    let proj_bias = fields.flag("mamba_proj_bias")?.unwrap_or(false);
    let out_bias = fields.flag("projectors_bias")?.unwrap_or(false);
    let mamba = Mamba {
        heads,
        head_dim,
        groups: fields.size(&["mamba_n_groups"])?,
        state: fields.size(&["mamba_d_state"])?,
        conv_kernel: fields.size(&["mamba_d_conv"])?,
        conv_bias: fields.flag("mamba_conv_bias")?.unwrap_or(true),
        proj_bias,
        out_bias: (out_bias != proj_bias).then_some(out_bias),
        norm: fields.flag("mamba_rms_norm")?.unwrap_or(false),
    };
    if u64::from(width) != mamba.inner() {
        return Err(fields.unsupported("mamba_d_ssm", "it does not agree with heads times their dimension"));
    }
    Ok(mamba)
}

fn relu2(fields: &Fields) -> Result<Mlp, HfError> {
    let bias = fields.flag("mlp_bias")?.unwrap_or(false);
    Ok(Mlp { intermediate: fields.size(&["intermediate_size"])?, gated: false, bias })
}

fn relu2_experts(fields: &Fields) -> Result<Moe, HfError> {
    if fields.flag("mlp_bias")?.unwrap_or(false) {
        return Err(fields.unsupported("mlp_bias", "experts with biases are not modelled in this family"));
    }
    let shared = fields.given_count(&["n_shared_experts"])?.unwrap_or(1);
    if shared != 1 {
        return Err(fields.unsupported("n_shared_experts", "the class always has one"));
    }
    let shared_intermediate = fields.size(&["moe_shared_expert_intermediate_size"])?;
    let (experts, top_k) = (fields.size(&["n_routed_experts"])?, fields.size(&["num_experts_per_tok"])?);
    let routed = Moe::gated(experts, top_k, fields.size(&["moe_intermediate_size"])?);
    let latent = fields.given_size(&["moe_latent_size"])?.unwrap_or(0);
    Ok(Moe { gated: false, shared_intermediate, latent, ..routed })
}
