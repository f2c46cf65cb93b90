//! Families with routed experts: Mixtral, Qwen, `OLMoE`, `DeepSeek`, GLM, GPT-OSS, Llama 4.

use super::dense::ropes;
use super::error::HfError;
use super::fields::Fields;
use super::frame::{EmbeddingTies, Frame, HEADS, Pattern, gated_mlp, layer, spans};
use super::llama::qwen_spans;
use meshwright_engine::model::{Attention, Ffn, Indexer, Layer, Mixer, Mla, Mlp, Model, Moe, Norm, QkNorm, Span};

/// Names of the number of experts that a token visits.
const TOP_K: &[&str] = &["num_experts_per_tok", "experts_per_token", "moe_topk", "num_experts_per_token"];

/// Names of the number of routed experts.
const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts"];

/// Names of the number of shared experts.
pub const SHARED: &[&str] = &["n_shared_experts", "num_shared_experts"];

/// Gated experts without biases or anything shared; their intermediate size is one of `names`.
pub fn experts(fields: &Fields, names: &[&'static str]) -> Result<Moe, HfError> {
    Ok(Moe::gated(fields.size(EXPERTS)?, fields.size(TOP_K)?, fields.size(names)?))
}

/// Mixtral: every layer has experts, as wide as the dense MLP would be.
pub fn mixtral(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let window = fields.given_size(&["sliding_window"])?;
    let attention = frame.attention(fields)?;
    let moe = experts(fields, &["intermediate_size"])?;
    let one = |span| layer(Attention { span, ..attention.clone() }, Ffn::Moe(moe.clone()));
    let spans = spans(fields, frame.layers, window, Pattern::Always)?;
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().map(one).collect()))
}

/// `OLMoE`: norms over all queries and all keys.
pub fn olmoe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::Full, ..frame.biased_attention(fields, None)? };
    let one = layer(attention, Ffn::Moe(experts(fields, &["intermediate_size"])?));
    Ok(frame.model(fields, Norm::Rms, frame.repeat(&one)))
}

/// The feed-forward part of each Qwen layer: experts each `decoder_sparse_step`, but for `mlp_only_layers`.
pub fn qwen_ffns(fields: &Fields, layers: u32, moe: &Moe) -> Result<Vec<Ffn>, HfError> {
    let step = fields.given_size(&["decoder_sparse_step"])?.unwrap_or(1);
    let dense = fields.counts("mlp_only_layers")?;
    let is_moe = |i: u32| !dense.contains(&i) && (i + 1).is_multiple_of(step);
    let mlp = if (0..layers).all(is_moe) { None } else { Some(gated_mlp(fields)?) };
    let one = |i| match &mlp {
        Some(mlp) if !is_moe(i) => Ffn::Dense(mlp.clone()),
        Some(_) | None => Ffn::Moe(moe.clone()),
    };
    Ok((0..layers).map(one).collect())
}

/// The experts of Qwen with the shared expert and its gate.
pub fn qwen_shared(fields: &Fields) -> Result<Moe, HfError> {
    let shared_intermediate = fields.size(&["shared_expert_intermediate_size"])?;
    Ok(Moe { shared_intermediate, shared_gate: true, ..experts(fields, &["moe_intermediate_size"])? })
}

/// Qwen 1.5 and 2 with experts.
pub fn qwen2_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let qkv_bias = fields.flag("qkv_bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias, ..frame.attention(fields)? };
    qwen_layers(&frame, fields, &attention, &qwen_shared(fields)?)
}

/// Qwen 3 with experts, none of them shared. Its classes have no head dimension of their own, as the dense one has: where the file
/// has none, it is the hidden size over the heads.
pub fn qwen3_moe(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = Attention { qk_norm: QkNorm::PerHead, ..frame.biased_attention(fields, None)? };
    qwen_layers(&frame, fields, &attention, &experts(fields, &["moe_intermediate_size"])?)
}

fn qwen_layers(frame: &Frame, fields: &Fields, attention: &Attention, moe: &Moe) -> Result<Model, HfError> {
    let spans = qwen_spans(fields, frame.layers)?;
    let ffns = qwen_ffns(fields, frame.layers, moe)?;
    let one = |(span, ffn)| layer(Attention { span, ..attention.clone() }, ffn);
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().zip(ffns).map(one).collect()))
}

/// GPT-OSS: biases everywhere, a sink per head, every second layer sliding.
pub fn gpt_oss(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let bias = fields.flag("attention_bias")?.unwrap_or(true);
    let attention = Attention { qkv_bias: bias, out_bias: bias, sinks: true, ..frame.attention_of(fields, Some(64))? };
    let moe = Moe { bias: true, router_bias: true, ..experts(fields, &["intermediate_size"])? };
    let window = fields.given_size(&["sliding_window"])?.unwrap_or(128);
    let one = |span| layer(Attention { span, ..attention.clone() }, Ffn::Moe(moe.clone()));
    let spans = spans(fields, frame.layers, Some(window), Pattern::AllBut(2))?;
    Ok(frame.model(fields, Norm::Rms, spans.into_iter().map(one).collect()))
}

/// Whether each layer has experts: from `mlp_layer_types`, else those after the first `dense` ones.
pub fn sparse_layers(fields: &Fields, layers: u32, dense: u32) -> Result<Vec<bool>, HfError> {
    let Some(types) = fields.per_layer("mlp_layer_types", layers)? else {
        return Ok((0..layers).map(|i| i >= dense).collect());
    };
    let one = |kind| match kind {
        "dense" => Ok(false),
        "sparse" => Ok(true),
        other => Err(fields.unsupported("mlp_layer_types", format!("`{other}` is neither `dense` nor `sparse`"))),
    };
    types.into_iter().map(one).collect()
}

/// The experts of `DeepSeek` and GLM: some dense layers first, `usual_dense` where the file does not say; shared
/// experts as wide as routed ones.
pub fn fine_grained(frame: &Frame, fields: &Fields, usual_dense: u32) -> Result<Vec<Ffn>, HfError> {
    if fields.given_size(&["moe_layer_freq"])?.is_some_and(|n| n != 1) {
        return Err(
            fields.unsupported("moe_layer_freq", "only experts in every layer after the dense ones are modelled")
        );
    }
    let first = fields.given_count(&["first_k_dense_replace"])?.unwrap_or(usual_dense);
    let shared = fields.count(SHARED)?;
    if !EXPERTS.iter().any(|name| fields.has(name) || fields.is_null(name)) {
        return Err(fields.missing(EXPERTS)); // the classes have defaults of their own, which differ
    }
    if fields.count(EXPERTS)? == 0 {
        return Ok(vec![Ffn::Dense(gated_mlp(fields)?); frame.layers as usize]);
    }
    let sparse = sparse_layers(fields, frame.layers, first)?;
    let routed = experts(fields, &["moe_intermediate_size"])?;
    let shared_intermediate = fields.product(SHARED[0], shared, routed.intermediate)?;
    let moe = Ffn::Moe(Moe { shared_intermediate, group_limit: group_limit(fields)?, ..routed });
    if sparse.iter().all(|sparse| *sparse) {
        return Ok(vec![moe; frame.layers as usize]);
    }
    let dense = Ffn::Dense(gated_mlp(fields)?);
    Ok(sparse.into_iter().map(|sparse| if sparse { moe.clone() } else { dense.clone() }).collect())
}

/// Groups that a token may visit, where routing is limited.
fn group_limit(fields: &Fields) -> Result<u32, HfError> {
    let groups = fields.count(&["n_group", "num_expert_group"])?;
    let limit = fields.count(&["topk_group"])?;
    let greedy = fields.text("topk_method")? == Some("greedy");
    Ok(if greedy || groups <= 1 || limit >= groups { 0 } else { limit })
}

/// `DeepSeek` V2 and V3, R1, Kimi K2: latent attention.
pub fn deepseek(fields: &Fields) -> Result<Model, HfError> {
    latent(fields, 0)
}

/// `DeepSeek` V3.2 and GLM 5: `DeepSeek`'s layers, whose attention sees the keys that an indexer chooses, after three dense ones.
pub fn sparse(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let layers = frame.layers;
    for kind in fields.per_layer("layer_types", layers)?.unwrap_or_default() {
        if !matches!(kind, "deepseek_sparse_attention" | "indexed_attention") {
            return Err(fields.unsupported("layer_types", format!("`{kind}` is not attention over chosen keys")));
        }
    }
    let indexer = Indexer {
        heads: fields.size(&["index_n_heads"])?,
        head_dim: fields.size(&["index_head_dim"])?,
        top_k: fields.size(&["index_topk"])?,
        shared: false,
    };
    let mla = latent_attention(fields)?;
    if mla.q_rank == 0 {
        return Err(fields.unsupported("q_lora_rank", "index queries are projected from compressed ones"));
    }
    if indexer.head_dim < mla.rope_dim {
        return Err(fields.unsupported("index_head_dim", format!("the rotary part of a head is {}", mla.rope_dim)));
    }
    let one = |(shared, ffn)| {
        let indexer = Some(Indexer { shared, ..indexer.clone() });
        Layer { mixer: Mixer::Mla(Mla { indexer, ..mla.clone() }), ffn, norms: 2, extra_parameters: 0 }
    };
    let shared = shared_choices(fields, layers)?;
    let layers = shared.into_iter().zip(fine_grained(&frame, fields, 3)?).map(one).collect();
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers"])?;
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, layers) })
}

/// Whether each layer takes the keys that a layer before it chose: by name, by letter, or all but each `index_topk_freq`-th after
/// `index_skip_topk_offset` layers.
///
/// Source: [transformers] `configuration_glm_moe_dsa.py`.
fn shared_choices(fields: &Fields, layers: u32) -> Result<Vec<bool>, HfError> {
    let every = fields.given_size(&["index_topk_freq"])?.unwrap_or(1);
    let offset = fields.given_count(&["index_skip_topk_offset"])?.unwrap_or(2);
    let letters = fields.text("index_topk_pattern")?;
    let (name, shared) = if let Some(types) = fields.per_layer("indexer_types", layers)? {
        let one = |kind| match kind {
            "full" => Ok(false),
            "shared" => Ok(true),
            other => Err(fields.unsupported("indexer_types", format!("`{other}` is neither `full` nor `shared`"))),
        };
        ("indexer_types", types.into_iter().map(one).collect::<Result<Vec<_>, _>>()?)
    } else if let Some(letters) = letters {
        if letters.len() != layers as usize || letters.chars().any(|letter| !matches!(letter, 'F' | 'S')) {
            let why = format!("one letter, F or S, for each of {layers} layers");
            return Err(fields.unsupported("index_topk_pattern", why));
        }
        ("index_topk_pattern", letters.chars().map(|letter| letter == 'S').collect())
    } else {
        let one = |layer: u32| !(layer + 1).saturating_sub(offset).is_multiple_of(every);
        ("index_topk_freq", (0..layers).map(one).collect())
    };
    if shared.first() == Some(&true) {
        return Err(fields.unsupported(name, "no layer before the first one chooses its keys"));
    }
    Ok(shared)
}

/// Sizes of latent attention.
pub fn latent_attention(fields: &Fields) -> Result<Mla, HfError> {
    let v_dim = fields.size(&["v_head_dim"])?;
    latent_attention_of(fields, v_dim)
}

/// Sizes of latent attention with values of this dimension.
pub fn latent_attention_of(fields: &Fields, v_dim: u32) -> Result<Mla, HfError> {
    Ok(Mla {
        heads: fields.size(HEADS)?,
        q_rank: fields.count(&["q_lora_rank"])?,
        kv_rank: fields.size(&["kv_lora_rank"])?,
        nope_dim: fields.size(&["qk_nope_head_dim"])?,
        rope_dim: fields.size(&["qk_rope_head_dim"])?,
        v_dim,
        rope: true,
        indexer: None,
    })
}

/// Latent attention, with experts after `usual_dense` layers where the file does not say how many are dense.
fn latent(fields: &Fields, usual_dense: u32) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let mla = latent_attention(fields)?;
    let one = |ffn| Layer { mixer: Mixer::Mla(mla.clone()), ffn, norms: 2, extra_parameters: 0 };
    let layers = fine_grained(&frame, fields, usual_dense)?.into_iter().map(one).collect();
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers"])?;
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, layers) })
}

/// GLM 4.7 Flash: `DeepSeek`'s layers, the first of them dense where the file does not say.
pub fn glm4_moe_lite(fields: &Fields) -> Result<Model, HfError> {
    latent(fields, 1)
}

/// GLM 4.5 to 4.7: grouped heads with biases, norms on queries and keys in the larger one.
pub fn glm4_moe(fields: &Fields) -> Result<Model, HfError> {
    glm4_layers(fields, fields.flag("attention_bias")?, false)
}

/// Sarvam 30B: GLM 4.5's layers, with norms on queries and keys where the file does not say.
///
/// Source: [transformers] `modular_sarvam_moe.py`.
pub fn sarvam_moe(fields: &Fields) -> Result<Model, HfError> {
    let bias = fields.flag("attention_bias")?.or(fields.flag("use_qkv_bias")?);
    glm4_layers(fields, bias, true)
}

fn glm4_layers(fields: &Fields, qkv_bias: Option<bool>, usually_normed: bool) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let normed = fields.flag("use_qk_norm")?.unwrap_or(usually_normed);
    let attention = Attention {
        qkv_bias: qkv_bias.unwrap_or(false),
        qk_norm: if normed { QkNorm::PerHead } else { QkNorm::None },
        ..frame.attention(fields)?
    };
    let one = |ffn| layer(attention.clone(), ffn);
    let layers = fine_grained(&frame, fields, 0)?.into_iter().map(one).collect();
    let mtp_depth = fields.mtp_layers(&["num_nextn_predict_layers"])?;
    Ok(Model { mtp_depth, ..frame.model(fields, Norm::Rms, layers) })
}

/// Llama 4: chunked rotary layers but for each fourth, which sees all keys without positions; experts in
/// each `interleave_moe_layer_step`-th layer, with a shared one. Its norm on queries and keys has no weight.
pub fn llama4(fields: &Fields) -> Result<Model, HfError> {
    let frame = Frame::read(fields, EmbeddingTies::Untied)?;
    let attention = frame.biased_attention(fields, Some(128))?;
    fields.flag("use_qk_norm")?;
    let routed = experts(fields, &["intermediate_size"])?;
    let moe = Moe { shared_intermediate: routed.intermediate, ..routed };
    let mlp = Mlp { intermediate: fields.size(&["intermediate_size_mlp"])?, gated: true, bias: false };
    let chunk = fields.given_size(&["attention_chunk_size"])?.unwrap_or(8192);
    let chunk = if fields.is_null("attention_chunk_size") { Span::Full } else { Span::Chunk(chunk) };
    let ropes = ropes(fields, frame.layers)?;
    let step = fields.given_size(&["interleave_moe_layer_step"])?.unwrap_or(1);
    let listed = fields.counts("moe_layers")?;
    let types = fields.per_layer("layer_types", frame.layers)?;
    let one = |i: u32| {
        let rope = ropes[i as usize];
        let chunked = match types.as_ref().map(|types| types[i as usize]) {
            None => rope,
            Some("chunked_attention") => true,
            Some("full_attention") => false,
            Some(other) => {
                return Err(fields.unsupported("layer_types", format!("`{other}` is not a layer of Llama 4")));
            }
        };
        let span = if chunked { chunk } else { Span::Full };
        let is_moe = if listed.is_empty() { (i + 1).is_multiple_of(step) } else { listed.contains(&i) };
        let ffn = if is_moe { Ffn::Moe(moe.clone()) } else { Ffn::Dense(mlp.clone()) };
        Ok(layer(Attention { span, rope, ..attention.clone() }, ffn))
    };
    let layers = (0..frame.layers).map(one).collect::<Result<_, _>>()?;
    Ok(frame.model(fields, Norm::Rms, layers))
}
