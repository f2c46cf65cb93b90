//! The architecture as Megatron's flags.

use super::LAST_OF_MAMBA;
use crate::details::unknown;
use crate::emit::flags::{FlagGroup, folded};
use crate::emit::request::Request;
use crate::megatron::flags::names;
use crate::megatron::hybrid::Hybrid;
use crate::megatron::sparse;
use crate::rules::FusedExchange;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::model::{
    Activation, Mamba, Model, Moe, Norm, OutputGate, QkNorm, RopeScaling, RopeScalingKind, Router, Span,
};
use meshwright_engine::plan::Layout;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::{CoreRelease, Dispatcher};

/// First release of Megatron core with `--moe-router-fusion`, by which layers with experts are priced.
const ROUTER_FUSION: CoreRelease = CoreRelease::new(14);
/// Groups of experts where routing is limited to some: DeepSeek-V2's and V3's `n_group`. Source: [hf-deepseek-v3].
const EXPERT_GROUPS: u32 = 8;

/// The first release whose `--qk-layernorm` norms the input of a query projection that is not compressed.
///
/// Source: [megatron-lm] `core/transformer/mla_qk_norm_config.py`, which 0.18 does not have.
const FIRST_WITH_NORM: &str = "0.19";

/// Whether a release norms that input; other software than Megatron-LM's own releases is newer.
fn norms_queries(release: Option<&str>) -> bool {
    let place = |name: &str| names().iter().position(|known| *known == name);
    release.and_then(place).is_none_or(|at| Some(at) >= place(FIRST_WITH_NORM))
}

/// Sizes, norms, biases, positions, experts.
pub(super) fn architecture(
    request: &Request,
    sizes: &Sizes,
    hybrid: Option<&Hybrid>,
    notes: &mut Vec<String>,
) -> FlagGroup {
    let model = request.costs.problem.model();
    let seq_len = request.costs.problem.workload().seq_len;
    let mut group = FlagGroup::default();
    match hybrid {
        None => group.set("num-layers", model.layers()),
        Some(hybrid) => pattern(request, hybrid, &mut group),
    }
    group.set("hidden-size", model.hidden);
    if let Some(mlp) = &sizes.dense {
        group.set("ffn-hidden-size", mlp.intermediate);
    } else if let Some(moe) = &sizes.moe {
        group.set("ffn-hidden-size", moe.intermediate);
    }
    attention(model, sizes, &mut group);
    if matches!(&sizes.mixer, SharedMixer::Mla(mla) if mla.q_rank == 0) && norms_queries(request.release) {
        notes.push(format!(
            "without a rank of queries, Megatron core {FIRST_WITH_NORM} and later norms the input of their projection \
            once more: {} weights that {} has not",
            u64::from(model.layers()) * u64::from(model.hidden),
            model.name
        ));
    }
    if sizes.indexer().is_some() {
        notes.push(sparse::NOTE.into());
    }
    if let Some(Activation::ClampedQuickGelu { limit }) = model.details.activation {
        group.on("quick-geglu");
        group.set("glu-linear-offset", "1.0");
        group.set("activation-func-clamp-value", real(limit));
    } else {
        group.on_if(sizes.gated(), "swiglu");
    }
    if model.details.activation == Some(Activation::SquaredRelu) {
        group.on("squared-relu");
        group.on("no-bias-gelu-fusion"); // its kernels of a bias and an activation are for GELU, SwiGLU and quick GELU
    }
    if let Some(missing) = unknown(model) {
        let usual = match model.details.activation {
            Some(_) => "",
            None if sizes.gated() => ", and the activation is SwiGLU",
            None => ", and the activation is GELU",
        };
        notes.push(format!(
            "the model's source does not say its {missing}: Megatron's defaults hold{usual}; set what it has"
        ));
    }
    if let Some(epsilon) = model.details.norm_epsilon {
        group.set("norm-epsilon", epsilon);
    }
    group.set("normalization", if model.norm == Norm::Rms { "RMSNorm" } else { "LayerNorm" });
    let biases = sizes.biases();
    if !biases.out {
        group.on("disable-bias-linear");
        group.on_if(biases.qkv, "add-qkv-bias");
    }
    if hybrid.is_some_and(Hybrid::positionless) && model.learned_positions == 0 {
        group.set("position-embedding-type", "none");
        group.set("max-position-embeddings", seq_len);
    } else {
        positions(model, sizes, seq_len, &mut group);
        rotary(model, &mut group);
    }
    if !model.dropout {
        group.set("attention-dropout", "0.0");
        group.set("hidden-dropout", "0.0");
    }
    group.on_if(!model.tied_embeddings, "untie-embeddings-and-output-weights");
    group.set("vocab-size", model.vocab);
    if model.mtp_depth > 0 {
        group.set("mtp-num-layers", model.mtp_depth);
    }
    if sizes.moe.is_some() {
        experts(request, sizes, &mut group, notes);
    }
    group
}

/// A letter for each layer, with bars between stages; they are the layout of the pipeline too.
fn pattern(request: &Request, hybrid: &Hybrid, group: &mut FlagGroup) {
    let Mamba { heads, head_dim, groups, state, conv_kernel: _, conv_bias: _, proj_bias: _, out_bias: _, norm: _ } =
        hybrid.mamba;
    // Before 0.19 the program of hybrids raises an error without the layers' own module ([megatron-lm] `hybrid_builders.py`).
    let layers = if request.release == Some(LAST_OF_MAMBA) { "mamba" } else { "hybrid" };
    group.list("spec", [format!("megatron.core.models.{layers}.{layers}_layer_specs"), format!("{layers}_stack_spec")]);
    group.set("hybrid-layer-pattern", hybrid.pattern(&request.layers_of_chunks()));
    group.set("mamba-num-heads", heads);
    group.set("mamba-head-dim", head_dim);
    group.set("mamba-num-groups", groups);
    group.set("mamba-state-dim", state);
}

fn attention(model: &Model, sizes: &Sizes, group: &mut FlagGroup) {
    match &sizes.mixer {
        SharedMixer::Attention(a) => {
            group.set("num-attention-heads", a.heads);
            if a.kv_heads != a.heads {
                group.on("group-query-attention");
                group.set("num-query-groups", a.kv_heads);
            }
            group.set("kv-channels", a.head_dim);
            group.on_if(a.qk_norm == QkNorm::PerHead, "qk-layernorm");
            group.on_if(a.output_gate == OutputGate::PerElement, "attention-output-gate");
            if a.sinks {
                group.set("softmax-type", "learnable");
            }
        }
        SharedMixer::Mla(m) => {
            group.set("num-attention-heads", m.heads);
            group.on("multi-latent-attention");
            // Megatron divides the hidden size by the heads where nothing is said, and latent attention has its own.
            group.set("kv-channels", m.nope_dim + m.rope_dim);
            if m.q_rank > 0 {
                group.set("q-lora-rank", m.q_rank);
            }
            group.set("kv-lora-rank", m.kv_rank);
            group.set("qk-head-dim", m.nope_dim);
            group.set("qk-pos-emb-head-dim", m.rope_dim);
            group.set("v-head-dim", m.v_dim);
            group.on("qk-layernorm");
            // YaRN that stretches nothing is rotary embedding, and the one whose kernel is fused for latent attention
            let (factor, mscale, all) = match &model.details.rope_scaling {
                Some(RopeScaling { kind: RopeScalingKind::Yarn { mscale, mscale_all_dim, .. }, factor, .. }) => {
                    (*factor, mscale.unwrap_or(1.0), mscale_all_dim.unwrap_or(0.0))
                }
                Some(_) | None => (1.0, 1.0, 1.0),
            };
            group.set("rope-type", "yarn");
            group.set("rotary-scaling-factor", real(factor));
            group.set("mscale", real(mscale));
            group.set("mscale-all-dim", real(all));
            sparse::write(sizes, &model.details, group);
        }
    }
    let windows: Vec<u32> = sizes.spans.iter().map(|span| u32::from(*span != Span::Full)).collect();
    if let Some(Span::Window(size)) = sizes.spans.iter().find(|span| **span != Span::Full) {
        group.set("window-size", format!("{},0", size.saturating_sub(1)));
        if windows.contains(&0) {
            group.set("window-attn-skip-freq", folded(&windows));
        }
    }
}

fn positions(model: &Model, sizes: &Sizes, seq_len: u32, group: &mut FlagGroup) {
    if model.learned_positions > 0 {
        group.set("position-embedding-type", "learned_absolute");
        group.set("max-position-embeddings", model.learned_positions);
        return;
    }
    let stretched = !model.has_mla() && model.details.rope_scaling.as_ref().is_some_and(RopeScaling::is_yarn);
    group.set("position-embedding-type", if stretched { "yarn" } else { "rope" });
    group.set("max-position-embeddings", seq_len);
    if sizes.rope.contains(&false) {
        let skipped: Vec<u32> = sizes.rope.iter().map(|rope| u32::from(!rope)).collect();
        group.set("no-rope-freq", folded(&skipped));
    }
}

/// Base, share and change of the rotary frequencies.
fn rotary(model: &Model, group: &mut FlagGroup) {
    if model.learned_positions > 0 {
        return;
    }
    if let Some(theta) = model.details.rope_theta {
        group.set("rotary-base", theta);
    }
    if let Some(share) = model.details.rotary_share {
        group.set("rotary-percent", share);
    }
    match &model.details.rope_scaling {
        Some(RopeScaling { kind: RopeScalingKind::Llama3 { .. }, factor, .. }) => {
            group.on("use-rope-scaling");
            group.set("rope-scaling-factor", real(*factor));
        }
        Some(RopeScaling { kind: RopeScalingKind::Linear, factor, .. }) => {
            group.set("rotary-seq-len-interpolation-factor", *factor);
        }
        Some(scaling) if !model.has_mla() => yarn(scaling, group),
        Some(_) | None => {}
    }
}

/// YaRN of grouped heads, every number of it, since not all releases and programs have the same defaults; nothing of
/// another change.
fn yarn(scaling: &RopeScaling, group: &mut FlagGroup) {
    let RopeScaling { kind, factor, original_positions } = scaling;
    let RopeScalingKind::Yarn { beta_fast, beta_slow, mscale, mscale_all_dim, truncate } = kind else { return };
    group.set("rotary-scaling-factor", real(*factor));
    if let Some(original) = original_positions {
        group.set("yarn-original-max-position-embeddings", original);
    }
    group.set("yarn-beta-fast", real(*beta_fast));
    group.set("yarn-beta-slow", real(*beta_slow));
    // With 1 and 0 the factor of queries and keys is 0.1 ln(factor) + 1, as it is where the model does not say both.
    let (mscale, all_dim) = mscale.zip(*mscale_all_dim).unwrap_or((1.0, 0.0));
    group.set("mscale", real(mscale));
    group.set("mscale-all-dim", real(all_dim));
    let rounds = if *truncate { "yarn-correction-range-round-to-int" } else { "no-yarn-correction-range-round-to-int" };
    group.on(rounds);
}

/// A number that Python reads as a float.
fn real(value: f64) -> String {
    format!("{value:?}")
}

/// Score, normalisation, bias, scale and loss of the router; what its source does not say by the kind of its parameters.
fn router(details: &Router, moe: &Moe, group: &mut FlagGroup) {
    let sigmoid = moe.has_sigmoid_scores();
    group.on_if(moe.top_k == 1 || !sigmoid && details.normalized == Some(false), "moe-router-pre-softmax");
    if sigmoid {
        group.set("moe-router-score-function", "sigmoid");
        group.on_if(details.bias.unwrap_or(moe.router_bias), "moe-router-enable-expert-bias");
    }
    if let Some(scale) = details.scale {
        group.set("moe-router-topk-scaling-factor", scale);
    }
    if let Some(loss) = details.aux_loss.filter(|loss| *loss > 0.0) {
        group.set("moe-router-load-balancing-type", "aux_loss");
        group.set("moe-aux-loss-coeff", loss);
    }
}

/// Whether the router's kernels are asked for: they are Transformer Engine's on NVIDIA's GPUs, from a release of Megatron core on.
fn fuses_router(problem: &Problem) -> bool {
    problem.cluster().gpu.vendor == "NVIDIA"
        && problem.stack().megatron_core.is_none_or(|release| release >= ROUTER_FUSION)
}

fn experts(request: &Request, sizes: &Sizes, group: &mut FlagGroup, notes: &mut Vec<String>) {
    let Some(moe) = &sizes.moe else { return };
    let plan = &request.evaluation.plan;
    group.set("num-experts", moe.experts);
    group.set("moe-router-topk", moe.top_k);
    group.set("moe-ffn-hidden-size", moe.intermediate);
    if moe.latent > 0 {
        group.set("moe-latent-size", moe.latent);
    }
    if sizes.has_experts.contains(&false) {
        let frequency: Vec<u32> = sizes.has_experts.iter().map(|has| u32::from(*has)).collect();
        group.set("moe-layer-freq", folded(&frequency));
    }
    if moe.shared_intermediate > 0 {
        group.set("moe-shared-expert-intermediate-size", moe.shared_intermediate);
        group.on_if(moe.shared_gate, "moe-shared-expert-gate");
    }
    router(&request.costs.problem.model().details.router, moe, group);
    if moe.group_limit > 0 && moe.group_limit < EXPERT_GROUPS && moe.experts.is_multiple_of(EXPERT_GROUPS) {
        group.set("moe-router-num-groups", EXPERT_GROUPS);
        group.set("moe-router-group-topk", moe.group_limit);
        notes.push(format!("routing is limited to {} of {EXPERT_GROUPS} groups, DeepSeek's number", moe.group_limit));
    }
    group.set("moe-router-dtype", "fp32");
    let Layout { ep, etp, .. } = plan.layout;
    if plan.dispatcher == Dispatcher::DeepEp && etp * ep > 1 {
        group.set("moe-token-dispatcher-type", "flex");
        let exchange = FusedExchange::of(request.costs.problem).unwrap_or(FusedExchange::DeepEp);
        group.set("moe-flex-dispatcher-backend", exchange.name());
    } else {
        group.set("moe-token-dispatcher-type", "alltoall");
    }
    group.on("moe-grouped-gemm");
    group.on("moe-permute-fusion");
    group.on_if(fuses_router(request.costs.problem), "moe-router-fusion");
    group.on_if(moe.bias, "no-bias-dropout-fusion");
    if request.costs.problem.workload().drops_tokens {
        group.set("moe-expert-capacity-factor", request.costs.problem.workload().imbalance);
    }
}
