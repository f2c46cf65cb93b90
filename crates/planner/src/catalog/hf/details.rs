//! Settings that change neither parameters nor price: rotary frequencies, epsilon, activation, router, caps and multipliers.

use super::error::HfError;
use super::fields::Fields;
use meshwright_engine::model::{
    Activation, Details, Ffn, Mla, Model, RopeScaling, RopeScalingKind, Router, RouterScore,
};

/// Families whose routers score by a sigmoid unless the file says otherwise.
///
/// Source: [transformers] `modeling_*.py` of each.
const SIGMOID: &[&str] = &[
    "afmoe",
    "axk1",
    "bailing_moe",
    "bailing_moe_v2",
    "beam",
    "deepseek_v3",
    "deepseek_v32",
    "dots1",
    "exaone_moe",
    "flint",
    "glm4_moe",
    "glm4_moe_lite",
    "glm4v_moe_text",
    "glm_moe_dsa",
    "hy_v3",
    "kimi_k2",
    "kimi_linear",
    "kolibri1",
    "laguna",
    "lfm2_moe",
    "llama4_text",
    "mimo_v2",
    "mimo_v2_flash",
    "minimax_m2",
    "nemotron_h",
    "sarvam_mla",
    "sarvam_moe",
    "solar_open",
    "step3p5",
];

/// Families whose routers choose with a bias for each expert that no gradient changes (`e_score_correction_bias`).
///
/// Source: [transformers] `modeling_*.py` of each.
const BIASED: &[&str] = &[
    "afmoe",
    "bailing_moe",
    "bailing_moe_v2",
    "beam",
    "deepseek_v3",
    "deepseek_v32",
    "dots1",
    "ernie4_5_moe",
    "exaone_moe",
    "glm4_moe",
    "glm4_moe_lite",
    "glm4v_moe_text",
    "glm_moe_dsa",
    "hy_v3",
    "kimi_k2",
    "kimi_linear",
    "kolibri1",
    "laguna",
    "lfm2_moe",
    "mimo_v2",
    "mimo_v2_flash",
    "minimax_m2",
    "nemotron_h",
    "sarvam_mla",
    "sarvam_moe",
    "solar_open",
    "step3p5",
];

/// Families that divide the chosen scores by their sum, whatever the file says.
///
/// Source: [transformers] `modeling_*.py` of each.
const NORMALIZED: &[&str] = &[
    "aria_text",
    "bailing_moe",
    "bailing_moe_v2",
    "ernie4_5_moe",
    "gpt_oss",
    "granitemoe",
    "granitemoe_swa",
    "granitemoehybrid",
    "granitemoeshared",
    "hy_v3",
    "laguna",
    "lfm2_moe",
    "mixtral",
    "step3p5",
];

/// Families whose norms are on the outputs of attention and MLP, before these are added.
///
/// Source: [transformers] `modeling_{exaone4,flex_olmo,olmo2,olmo3}.py`.
const NORMS_AFTER: &[&str] = &["exaone4", "flex_olmo", "olmo2", "olmo3"];

/// Names of the factor on the outputs of routed experts.
const ROUTED_SCALES: &[&str] = &[
    "routed_scaling_factor",
    "route_scale",
    "router_scaling_factor",
    "moe_routed_scaling_factor",
    "moe_router_scaling_factor",
];

/// Multipliers and caps, each with its neutral value.
const OTHERS: &[(&str, f64)] = &[
    ("attention_in_multiplier", 1.0),
    ("attention_multiplier", 0.0),
    ("attention_out_multiplier", 1.0),
    ("attention_value_scale", 1.0),
    ("attn_logit_softcapping", 0.0),
    ("clip_qkv", 0.0),
    ("embedding_multiplier", 1.0),
    ("final_logit_softcapping", 0.0),
    ("key_multiplier", 1.0),
    ("lm_head_multiplier", 1.0),
    ("logit_scale", 1.0),
    ("logits_scaling", 1.0),
    ("moe_router_logit_softcapping", 0.0),
    ("output_multiplier", 1.0),
    ("qk_scale_factor", 1.0),
    ("query_pre_attn_scalar", 0.0),
    ("residual_multiplier", 1.0),
    ("router_logit_softcapping", 0.0),
    ("scale_depth", 1.0),
    ("scale_emb", 1.0),
    ("ssm_in_multiplier", 1.0),
    ("ssm_out_multiplier", 1.0),
];

/// Families whose layers add attention and MLP to one input unless the field says otherwise. Where they have one norm for both, the
/// number of norms tells.
///
/// Source: [transformers] `modeling_gpt_neox.py`, `modeling_falcon.py`.
const PARALLEL: &[(&str, &str)] = &[("gpt_neox", "use_parallel_residual"), ("falcon", "parallel_attn")];

/// The field by which a model's layers, of two norms each, add attention and MLP to one input; none where they are added in turn.
fn parallel_parts(fields: &Fields, model_type: &str, model: &Model) -> Result<Option<(String, f64)>, HfError> {
    let Some((_, name)) = PARALLEL.iter().find(|(family, _)| *family == model_type) else { return Ok(None) };
    let is_parallel = fields.flag(name)?.unwrap_or(true) && model.kinds.iter().any(|layer| layer.norms == 2);
    Ok(is_parallel.then(|| ((*name).to_owned(), 1.0)))
}

/// Dimension of a head of the first attention; of latent attention, that of its keys.
fn head_dim(model: &Model) -> Option<u32> {
    model.kinds.iter().find_map(|layer| {
        let latent = layer.latent().map(Mla::qk_dim);
        layer.attention().map(|attention| attention.head_dim).or(latent)
    })
}

/// Whether a setting has the value that the head's dimension gives anyway: a scale of scores.
fn is_usual_scale(name: &str, value: f64, head_dim: Option<u32>) -> bool {
    let Some(dim) = head_dim.map(f64::from) else { return false };
    match name {
        "query_pre_attn_scalar" => (value - dim).abs() < 1e-9,
        "attention_multiplier" => (value * value * dim - 1.0).abs() < 1e-6,
        _ => false,
    }
}

/// Families whose settings of attention are in a part of their own, and of experts in another.
///
/// Source: [transformers] `configuration_{dbrx,mpt}.py`.
const IN_PARTS: &[&str] = &["dbrx", "mpt"];

/// Adds the settings of such a family's nested configurations: DBRX divides the chosen scores by their sum, and its
/// experts have `SiLU`.
fn from_parts(fields: &Fields, model_type: &str, details: &mut Details) -> Result<(), HfError> {
    if !IN_PARTS.contains(&model_type) {
        return Ok(());
    }
    if fields.has("attn_config") {
        let attention = fields.part("attn_config", "attn_config.")?;
        details.rope_theta = attention.real("rope_theta")?.or(details.rope_theta);
        let cap = attention.real("clip_qkv")?.filter(|cap| *cap > 0.0);
        details.others.extend(cap.map(|cap| ("clip_qkv".to_owned(), cap)));
    }
    if model_type == "dbrx" {
        let experts = fields.part("ffn_config", "ffn_config.")?;
        details.activation = Some(Activation::Silu);
        details.router.normalized = Some(true);
        details.router.aux_loss = experts.real("moe_loss_weight")?;
    }
    Ok(())
}

/// The settings of a configuration of this type, which is read as `model`.
pub fn details(fields: &Fields, model_type: &str, model: &Model) -> Result<Details, HfError> {
    let dim = head_dim(model);
    let rope = rope_object(fields)?;
    let from_rope = |name| rope.as_ref().map_or(Ok(None), |rope: &Fields| rope.real(name));
    let others = OTHERS.iter().filter_map(|&(name, neutral)| match fields.real(name) {
        Ok(Some(value)) if (value - neutral).abs() > 0.0 && !is_usual_scale(name, value, dim) => {
            Some(Ok((name.to_owned(), value)))
        }
        Ok(_) => None,
        Err(why) => Some(Err(why)),
    });
    let others = others.chain(parallel_parts(fields, model_type, model).transpose());
    let rotary_dim =
        fields.given_size(&["rotary_dim"])?.zip(dim).map(|(rotary, dim)| f64::from(rotary) / f64::from(dim));
    let share = first(fields, &["partial_rotary_factor", "rotary_pct"])?.or(rotary_dim);
    let mut details = Details {
        rope_theta: first(fields, &["rope_theta", "rotary_emb_base"])?.or(from_rope("rope_theta")?),
        rope_local_theta: first(fields, &["rope_local_base_freq", "swa_rope_theta"])?.or(local_theta(fields)?),
        rotary_share: share.or(from_rope("partial_rotary_factor")?).filter(|share| *share < 1.0),
        rope_scaling: rope.as_ref().map_or(Ok(None), |rope| scaling(rope, fields))?,
        norm_epsilon: first(
            fields,
            &["rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps", "layernorm_epsilon"],
        )?,
        activation: activation(fields, model_type)?,
        norms_after: NORMS_AFTER.contains(&model_type),
        index_interleaved: index_interleaved(fields, model_type, model)?,
        router: router(fields, model_type)?,
        left_out: Vec::new(),
        others: others.collect::<Result<_, _>>()?,
    };
    from_parts(fields, model_type, &mut details)?;
    Ok(details)
}

/// Whether the indexer rotates neighbouring elements, as GLM 5 does, or halves; none without an indexer.
///
/// Source: [transformers] `modeling_glm_moe_dsa.py`, `modeling_deepseek_v32.py`.
fn index_interleaved(fields: &Fields, model_type: &str, model: &Model) -> Result<Option<bool>, HfError> {
    let given = fields.flag("indexer_rope_interleave")?;
    Ok(model.indexer().map(|_| given.unwrap_or(model_type == "glm_moe_dsa")))
}

/// The first of several names that has a number.
fn first(fields: &Fields, names: &[&'static str]) -> Result<Option<f64>, HfError> {
    for &name in names {
        if let Some(value) = fields.real(name)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The object of the rotary settings: `rope_parameters`, that of full attention where there are several, or `rope_scaling`.
fn rope_object<'a>(fields: &'a Fields) -> Result<Option<Fields<'a>>, HfError> {
    if !fields.has("rope_parameters") {
        return if fields.has("rope_scaling") {
            fields.part("rope_scaling", "rope_scaling.").map(Some)
        } else {
            Ok(None)
        };
    }
    let all = fields.part("rope_parameters", "rope_parameters.")?;
    if all.has("full_attention") {
        return all.part("full_attention", "rope_parameters.full_attention.").map(Some);
    }
    Ok(Some(all))
}

/// Base of the rotary frequencies of sliding layers, from `rope_parameters` by kind of layer.
fn local_theta(fields: &Fields) -> Result<Option<f64>, HfError> {
    if !fields.has("rope_parameters") {
        return Ok(None);
    }
    let all = fields.part("rope_parameters", "rope_parameters.")?;
    if !all.has("sliding_attention") {
        return Ok(None);
    }
    all.part("sliding_attention", "rope_parameters.sliding_attention.")?.real("rope_theta")
}

/// Numbers beside YaRN's that change queries or keys.
const BESIDE_YARN: [&str; 2] = ["attention_factor", "llama_4_scaling_beta"];

/// First of these numbers that the object has.
fn first_given(fields: &Fields, names: &[&'static str]) -> Result<Option<&'static str>, HfError> {
    for &name in names {
        if fields.real(name)?.is_some() {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The change of the rotary frequencies; none where there is none, or only sections for images.
fn scaling(rope: &Fields, fields: &Fields) -> Result<Option<RopeScaling>, HfError> {
    let Some(kind) = rope.text("rope_type")?.or(rope.text("type")?) else {
        return Ok(None);
    };
    let yarn = || -> Result<RopeScalingKind, HfError> {
        Ok(RopeScalingKind::Yarn {
            beta_fast: rope.real("beta_fast")?.unwrap_or(32.0),
            beta_slow: rope.real("beta_slow")?.unwrap_or(1.0),
            mscale: rope.real("mscale")?,
            mscale_all_dim: rope.real("mscale_all_dim")?,
            truncate: rope.flag("truncate")?.unwrap_or(true),
        })
    };
    let kind = match kind {
        "default" | "mrope" => return Ok(None),
        "linear" => RopeScalingKind::Linear,
        "llama3" => RopeScalingKind::Llama3 {
            low: rope.real("low_freq_factor")?.unwrap_or(1.0),
            high: rope.real("high_freq_factor")?.unwrap_or(4.0),
        },
        "yarn" => match first_given(rope, &BESIDE_YARN)? {
            Some(name) => RopeScalingKind::Other(format!("yarn with {name}")),
            None => yarn()?,
        },
        other => RopeScalingKind::Other(other.to_owned()),
    };
    let original = rope.given_size(&["original_max_position_embeddings"])?;
    let original = original.or(fields.given_size(&["original_max_position_embeddings"])?);
    Ok(Some(RopeScaling { kind, factor: rope.real("factor")?.unwrap_or(1.0), original_positions: original }))
}

/// Clamp of GPT-OSS' activation where the file has none.
const GPT_OSS_LIMIT: f64 = 7.0;

/// The activation, by the names of transformers; GPT-OSS' class has one of its own, whatever the name.
fn activation(fields: &Fields, model_type: &str) -> Result<Option<Activation>, HfError> {
    if model_type == "gpt_oss" {
        let limit = fields.real("swiglu_limit")?.unwrap_or(GPT_OSS_LIMIT);
        return Ok(Some(Activation::ClampedQuickGelu { limit }));
    }
    for name in ["hidden_activation", "hidden_act", "mlp_hidden_act", "activation_function"] {
        if let Some(text) = fields.text(name)? {
            return Ok(Some(match text {
                "silu" | "swish" => Activation::Silu,
                "gelu" => Activation::Gelu,
                "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Activation::GeluTanh,
                "relu2" => Activation::SquaredRelu,
                other => Activation::Other(other.to_owned()),
            }));
        }
    }
    Ok(None)
}

/// Writes the score of the routers into the model's layers, by the file and the fixed settings of the family.
pub fn add_router_score(fields: &Fields, model_type: &str, model: &mut Model) -> Result<(), HfError> {
    let usual = if SIGMOID.contains(&model_type) { RouterScore::Sigmoid } else { RouterScore::Softmax };
    let by_name = fields.text("scoring_func")?.or(fields.text("expert_selection_fn")?);
    let score = match by_name.or(fields.text("moe_router_activation_func")?) {
        Some("sigmoid") => RouterScore::Sigmoid,
        Some("softmax") => RouterScore::Softmax,
        Some(_) | None => usual,
    };
    for layer in &mut model.kinds {
        if let Ffn::Moe(moe) = &mut layer.ffn {
            moe.router_score = Some(score);
        }
    }
    Ok(())
}

/// The router, by the file and the fixed settings of the family.
fn router(fields: &Fields, model_type: &str) -> Result<Router, HfError> {
    let normalized = fields.flag("norm_topk_prob")?.or(fields.flag("moe_renormalize")?);
    let normalized = normalized.or(NORMALIZED.contains(&model_type).then_some(true));
    Ok(Router {
        normalized,
        bias: Some(BIASED.contains(&model_type) && fields.flag("use_expert_bias")?.unwrap_or(true)),
        scale: first(fields, ROUTED_SCALES)?.filter(|scale| (scale - 1.0).abs() > 0.0),
        aux_loss: first(fields, &["router_aux_loss_coef", "aux_loss_alpha"])?,
    })
}
