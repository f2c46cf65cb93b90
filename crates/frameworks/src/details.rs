//! Settings of a model that a framework's files must carry: which it can express, and the field that it cannot.

use meshwright_engine::model::{
    Activation, Details, Layer, Mixer, Model, RopeScaling, RopeScalingKind, Router, RouterScore,
};
use meshwright_planner::limits::Obstacle;

use crate::rules::bytes_are;
use crate::sizes::Sizes;

/// Settings that a framework's files can express. Rotary base, epsilon and `SiLU` in gated parts all can.
pub(crate) struct Expressible {
    /// Whether a share of a head's dimension can be rotary.
    pub rotary_share: bool,
    /// Whether a change of the rotary frequencies can be expressed; `latent` for latent attention.
    pub scaling: fn(scaling: &RopeScaling, latent: bool) -> bool,
    /// Whether gated parts can have GPT-OSS' activation.
    pub clamped_quick_gelu: bool,
    /// Whether the norms of the two parts can be behind them.
    pub norms_after: bool,
    /// Activations of parts without a gate.
    pub plain: &'static [Activation],
    /// Whether a softmax router may choose with a bias for each expert, which a sigmoid one may.
    pub softmax_bias: bool,
    /// Whether a router may score by a sigmoid and keep the scores as they are.
    pub raw_sigmoid: bool,
    /// Whether an auxiliary loss may balance experts.
    pub balance_loss: bool,
    /// Whether experts can work in a latent space.
    pub latent_experts: bool,
    /// Whether an indexer may choose the keys of each query.
    pub indexer: bool,
}

/// Flags of Megatron-LM for settings of a model. Latent attention has YaRN's factor and scale of scores as flags, its
/// other numbers by default; grouped heads have all of them as flags from core 0.19 on.
///
/// Source: [megatron-lm] `training/arguments.py`, `training/argument_utils.py`;
/// `core/models/common/embeddings/rotary_pos_embedding.py` (Llama 3's factors 1 and 4 over 8,192 positions);
/// `core/fusions/fused_bias_gelu.py` (GELU by the hyperbolic tangent).
pub(crate) const MEGATRON: Expressible = Expressible {
    rotary_share: true,
    scaling: |scaling, latent| match &scaling.kind {
        RopeScalingKind::Linear => !latent && scaling.factor.fract() == 0.0,
        RopeScalingKind::Llama3 { low, high } => {
            !latent && bytes_are(*low, 1.0) && bytes_are(*high, 4.0) && scaling.original_positions == Some(8192)
        }
        RopeScalingKind::Yarn { .. } => {
            scaling.original_positions.is_some() && (!latent || has_latent_defaults(scaling))
        }
        RopeScalingKind::Other(_) => false,
    },
    clamped_quick_gelu: true,
    norms_after: false,
    plain: &[Activation::Gelu, Activation::GeluTanh, Activation::SquaredRelu],
    softmax_bias: false,
    raw_sigmoid: false,
    balance_loss: true,
    latent_experts: true,
    indexer: true,
};

/// Attributes of Megatron-Bridge's providers: as [`MEGATRON`], and YaRN's other numbers for latent attention too, whose
/// ramp is rounded.
///
/// Source: [megatron-bridge] `models/gpt_provider.py`, `models/mla_provider.py`; [megatron-lm] `MLATransformerConfig`.
pub(crate) const MEGATRON_BRIDGE: Expressible = Expressible {
    scaling: |scaling, latent| match &scaling.kind {
        RopeScalingKind::Yarn { truncate, .. } => scaling.original_positions.is_some() && (!latent || *truncate),
        RopeScalingKind::Linear | RopeScalingKind::Llama3 { .. } | RopeScalingKind::Other(_) => {
            (MEGATRON.scaling)(scaling, latent)
        }
    },
    ..MEGATRON
};

/// Whether YaRN has the numbers that `MLATransformerConfig` of Megatron core has by default.
pub(crate) fn has_latent_defaults(scaling: &RopeScaling) -> bool {
    let RopeScalingKind::Yarn { beta_fast, beta_slow, truncate, .. } = scaling.kind else { return false };
    bytes_are(beta_fast, 32.0) && bytes_are(beta_slow, 1.0) && truncate && scaling.original_positions == Some(4096)
}

/// Settings of a model that a framework cannot express, by the names that `config.json` has for them.
pub(crate) fn inexpressible(model: &Model, sizes: &Sizes, can: &Expressible) -> Vec<Obstacle> {
    let Details {
        rope_theta: _,
        rope_local_theta,
        rotary_share,
        rope_scaling,
        norm_epsilon: _,
        activation,
        norms_after,
        index_interleaved: _,
        router,
        left_out: _,
        others,
    } = &model.details;
    let mut found = Vec::new();
    let mut refuse = |when: bool, field: String, why: &'static str| {
        if when {
            found.push(Obstacle::of_model(format!("{}: {field}", model.name), why));
        }
    };
    let latent = model.has_mla();
    if let Some(indexer) = model.indexer().filter(|_| !can.indexer) {
        let field = format!("index_topk = {}", indexer.top_k);
        refuse(true, field, "every query attends to all keys before it: --for megatron or megatron-bridge");
    }
    if let Some(theta) = rope_local_theta.filter(|theta| Some(*theta) != model.details.rope_theta) {
        let field = format!("rope_local_base_freq = {theta}");
        refuse(true, field, "one rotary base is for all layers");
    }
    if let Some(share) = rotary_share.filter(|_| !can.rotary_share) {
        refuse(true, format!("partial_rotary_factor = {share}"), "whole heads are rotary");
    }
    let behind = *norms_after && !can.norms_after;
    refuse(behind, "norms behind attention and MLP".to_owned(), "its norms are before the two");
    if let Some(scaling) = rope_scaling {
        let field = format!("rope_scaling = {}", scaling_name(scaling));
        refuse(!(can.scaling)(scaling, latent), field, "its files cannot say this change of rotary frequencies");
    }
    if let Some(activation) = activation {
        let allowed = match activation {
            Activation::Silu if sizes.gated() => true,
            Activation::ClampedQuickGelu { .. } => sizes.gated() && can.clamped_quick_gelu,
            _ => !sizes.gated() && can.plain.contains(activation),
        };
        refuse(
            !allowed,
            format!("hidden_act = {}", activation_name(activation)),
            "its files cannot say this activation",
        );
    }
    if let Some(moe) = &sizes.moe {
        refuse(
            moe.latent > 0 && !can.latent_experts,
            format!("moe_latent_size = {}", moe.latent),
            "its experts work at the hidden size: --for megatron or megatron-bridge",
        );
        let soft = moe.router_score == Some(RouterScore::Softmax);
        refuse(
            soft && router.bias == Some(true) && !can.softmax_bias,
            "a router's bias beside a softmax".to_owned(),
            "its routers have it with a sigmoid alone",
        );
        refuse(
            moe.router_score == Some(RouterScore::Sigmoid)
                && router.normalized == Some(false)
                && moe.top_k > 1
                && !can.raw_sigmoid,
            "norm_topk_prob = false".to_owned(),
            "its routers divide the scores of a sigmoid by their sum",
        );
        if let Some(loss) = router.aux_loss.filter(|loss| *loss > 0.0 && !can.balance_loss) {
            refuse(
                true,
                format!("router_aux_loss_coef (or aux_loss_alpha) = {loss}"),
                "it balances experts by a bias and has no such loss: 0 in the file plans without it",
            );
        }
    }
    for (name, value) in others {
        refuse(true, format!("{name} = {value}"), "its files cannot say it");
    }
    found
}

/// Name of a change of the rotary frequencies, as `rope_type` has it.
pub(crate) fn scaling_name(scaling: &RopeScaling) -> &str {
    match &scaling.kind {
        RopeScalingKind::Linear => "linear",
        RopeScalingKind::Llama3 { .. } => "llama3",
        RopeScalingKind::Yarn { .. } => "yarn",
        RopeScalingKind::Other(name) => name,
    }
}

/// Name of an activation, as `hidden_act` has it.
fn activation_name(activation: &Activation) -> &str {
    match activation {
        Activation::Silu => "silu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_pytorch_tanh",
        Activation::SquaredRelu => "relu2",
        Activation::ClampedQuickGelu { .. } => "clamped quick GELU",
        Activation::Other(name) => name,
    }
}

/// Settings of a model that its source does not state, in words for a note; none where all are known.
pub(crate) fn unknown(model: &Model) -> Option<String> {
    let Details { rope_theta, norm_epsilon, activation, router, .. } = &model.details;
    let chosen = model.is_moe() && *router == Router::default();
    let turns = |layer: &Layer| match &layer.mixer {
        Mixer::Mla(latent) => latent.rope,
        _ => layer.attention().is_some_and(|attention| attention.rope),
    };
    let rotary = model.learned_positions == 0 && model.kinds.iter().any(turns);
    let missing: Vec<&str> = [
        (rotary && rope_theta.is_none(), "rotary base"),
        (norm_epsilon.is_none(), "epsilon"),
        (activation.is_none(), "activation"),
        (chosen, "router's bias, scale and loss"),
    ]
    .into_iter()
    .filter_map(|(missing, name)| missing.then_some(name))
    .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}
