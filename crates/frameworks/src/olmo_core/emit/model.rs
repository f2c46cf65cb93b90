//! The model of a program: its blocks by kind, and the order in which they come.

use crate::emit::language::Python;
use crate::emit::request::Request;
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::distinct::distinct;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::model::{
    Attention, Model, Moe, Norm, QkNorm, RopeScaling, RopeScalingKind, Router, RouterScore, Span,
};

/// Kind of blocks.
#[derive(Clone, Copy, PartialEq)]
struct BlockKind {
    /// Keys that each token sees.
    span: Span,
    /// Whether positions are rotary.
    rope: bool,
    /// Whether it has experts.
    has_experts: bool,
}

/// Kinds of blocks in the order in which they come, and the kind of each layer.
fn kinds(sizes: &Sizes) -> (Vec<BlockKind>, Vec<usize>) {
    let all = sizes.spans.iter().zip(&sizes.rope).zip(&sizes.has_experts);
    distinct(all.map(|((&span, &rope), &has_experts)| BlockKind { span, rope, has_experts }))
}

/// Name of a kind of blocks.
fn name_of(kind: usize) -> Snippet<Python> {
    Snippet::name(&format!("block_{kind}"))
}

/// `build_model()`.
pub(super) fn architecture(request: &Request, sizes: &Sizes, text: &mut Lines<Python>) {
    let problem = request.costs.problem;
    let model = problem.model();
    let (kinds, order) = kinds(sizes);
    text.fixed("\ndef build_model() -> TransformerConfig:");
    text.line(snippet!("    norm = {}", norm(model)));
    for (at, kind) in kinds.iter().enumerate() {
        text.line(snippet!("    {} = {}", name_of(at), block(request, sizes, *kind)));
    }
    let kind = if sizes.moe.is_some() { "moe" } else { "default" };
    text.line(snippet!("    return TransformerConfig(\n        name=TransformerType.{},", Snippet::name(kind)));
    text.line(snippet!("        d_model={},\n        vocab_size={},", model.hidden, model.vocab));
    text.line(snippet!("        n_layers={},", model.layers()));
    if kinds.len() == 1 {
        text.fixed("        block=block_0,");
    } else {
        let named =
            kinds.iter().enumerate().map(|(at, _)| snippet!("{}: {}", format!("block_{at}").as_str(), name_of(at)));
        text.line(snippet!("        block={{}},", Snippet::joined(named, ", ")));
        text.line(snippet!("        block_pattern={},", pattern(&order)));
    }
    if model.embedding_norm {
        text.fixed("        embedding_norm=norm,");
    }
    let chunks = problem.stack().memory.loss_chunks > 1;
    let loss = Snippet::fixed(if chunks { "fused_linear" } else { "default" });
    text.line(snippet!(
        "        lm_head=LMHeadConfig(layer_norm=norm, bias={}, loss_implementation=LMLossImplementation.{}),",
        model.head_bias,
        loss
    ));
    text.line(snippet!("        tie_word_embeddings={},\n    )\n", model.tied_embeddings));
}

/// Names of the kinds of all layers, `["block_0"] * 3 + ["block_1"]`: a pattern that repeats is written once where it divides them.
fn pattern(order: &[usize]) -> Snippet<Python> {
    let repeats = |period: &usize| {
        order.len().is_multiple_of(*period) && order.iter().enumerate().all(|(at, kind)| *kind == order[at % period])
    };
    let period = (1..order.len()).find(repeats).unwrap_or(order.len());
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for kind in &order[..period] {
        match runs.last_mut() {
            Some((last, count)) if last == kind => *count += 1,
            Some(_) | None => runs.push((*kind, 1)),
        }
    }
    let runs = runs.into_iter().map(|(kind, count)| snippet!("[{}] * {}", format!("block_{kind}").as_str(), count));
    Snippet::joined(runs, " + ")
}

fn norm(model: &Model) -> Snippet<Python> {
    let kind = Snippet::fixed(if model.norm == Norm::Rms { "rms" } else { "default" });
    let epsilon = model.details.norm_epsilon.map_or_else(|| Snippet::fixed(""), |eps| snippet!(", eps={}", eps));
    let affine = Snippet::fixed(if model.norm == Norm::LayerPlain { ", elementwise_affine=False" } else { "" });
    snippet!("LayerNormConfig(name=LayerNormType.{}{}, bias={}{})", kind, epsilon, model.norm == Norm::Layer, affine)
}

fn block(request: &Request, sizes: &Sizes, kind: BlockKind) -> Snippet<Python> {
    let BlockKind { span, rope, has_experts } = kind;
    let problem = request.costs.problem;
    let model = problem.model();
    let kind = match (has_experts, model.details.norms_after) {
        (false, false) => "default",
        (false, true) => "reordered_norm",
        (true, false) => "moe",
        (true, true) => "moe_reordered_norm",
    };
    let mut parts = vec![snippet!("name=TransformerBlockType.{}", Snippet::name(kind))];
    if let SharedMixer::Attention(of_model) = &sizes.mixer {
        parts.push(snippet!("sequence_mixer={}", attention(request, of_model, span, rope)));
    }
    match (&sizes.moe, &sizes.dense) {
        (Some(moe), _) if has_experts => {
            parts.push(snippet!("feed_forward_moe={}", experts(moe, &model.details.router)));
        }
        (_, Some(mlp)) => {
            let (width, bias) = (mlp.intermediate, mlp.bias);
            parts.push(snippet!("feed_forward=FeedForwardConfig(hidden_size={}, bias={})", width, bias));
        }
        (_, None) => {}
    }
    parts.push(Snippet::fixed("layer_norm=norm"));
    if model.dropout {
        parts.push(Snippet::fixed("dropout=0.1"));
    }
    snippet!("TransformerBlockConfig(\n        {},\n    )", Snippet::joined(parts, ",\n        "))
}

/// Indented arguments of a call inside a block.
fn call(name: &'static str, parts: Vec<Snippet<Python>>) -> Snippet<Python> {
    snippet!("{}(\n            {},\n        )", Snippet::fixed(name), Snippet::joined(parts, ",\n            "))
}

fn attention(request: &Request, attention: &Attention, span: Span, rope: bool) -> Snippet<Python> {
    let problem = request.costs.problem;
    let backend = match problem.stack().attention {
        AttentionKernel::Fa3 => "flash_3",
        AttentionKernel::Cudnn => "te",
        AttentionKernel::Efficient => "torch",
        AttentionKernel::Fa2 | AttentionKernel::Fa1 | AttentionKernel::Unfused => "flash_2",
    };
    let Attention { heads, kv_heads, head_dim, out_bias, qk_norm, .. } = *attention;
    let mut parts = vec![
        snippet!("n_heads={}, n_kv_heads={}, head_dim={}", heads, kv_heads, head_dim),
        snippet!("bias={}, backend=AttentionBackendName.{}", out_bias, Snippet::name(backend)),
    ];
    if rope {
        parts.push(snippet!("rope={}", rotary(problem.model())));
    }
    if qk_norm != QkNorm::None {
        parts.push(snippet!("qk_norm=norm, use_head_qk_norm={}", qk_norm == QkNorm::PerHead));
    }
    if let Span::Window(width) = span {
        parts.push(snippet!(
            "sliding_window=SlidingWindowAttentionConfig(\n                pattern=[{}],\n                \
             force_full_attention_on_first_layer=False,\n                \
             force_full_attention_on_last_layer=False,\n            )",
            width
        ));
    }
    if problem.model().dropout {
        parts.push(Snippet::fixed("dropout=0.1"));
    }
    call("AttentionConfig", parts)
}

fn rotary(model: &Model) -> Snippet<Python> {
    let mut parts = Vec::new();
    parts.extend(model.details.rope_theta.map(|theta| snippet!("theta={}", theta as u64)));
    parts.extend(model.details.rotary_share.map(|share| snippet!("partial_rotary_factor={}", share)));
    parts.extend(model.details.rope_scaling.as_ref().and_then(scaling).map(|scaling| snippet!("scaling={}", scaling)));
    snippet!("RoPEConfig({})", Snippet::joined(parts, ", "))
}

/// A change of the rotary frequencies; none where the limits refuse it.
fn scaling(scaling: &RopeScaling) -> Option<Snippet<Python>> {
    let length = scaling.original_positions.unwrap_or_default();
    match scaling.kind {
        RopeScalingKind::Linear => Some(snippet!("PIRoPEScalingConfig(factor={})", scaling.factor)),
        RopeScalingKind::Llama3 { low, high } => Some(snippet!(
            "StepwiseRoPEScalingConfig(\n                factor={}, low_freq_proportion={}, high_freq_proportion={}, \
             old_context_len={}\n            )",
            scaling.factor,
            1.0 - 1.0 / low,
            1.0 / high,
            length
        )),
        RopeScalingKind::Yarn { beta_fast, beta_slow, .. } => Some(snippet!(
            "YaRNRoPEScalingConfig(\n                factor={}, beta_fast={}, beta_slow={}, old_context_len={}\n            )",
            scaling.factor,
            beta_fast as u64,
            beta_slow as u64,
            length
        )),
        RopeScalingKind::Other(_) => None,
    }
}

/// Step of the bias with which a router balances experts, as DeepSeek-V3 has it; to be edited.
const BIAS_STEP: f64 = 0.001;

fn experts(moe: &Moe, router: &Router) -> Snippet<Python> {
    let mut chosen = vec![snippet!("top_k={}", moe.top_k)];
    let score = if moe.router_score == Some(RouterScore::Sigmoid) { "sigmoid" } else { "softmax" };
    chosen.push(snippet!("gating_function=MoERouterGatingFunction.{}", Snippet::name(score)));
    if router.normalized == Some(true) {
        chosen.push(Snippet::fixed("normalize_expert_weights=1.0"));
    }
    if router.bias == Some(true) {
        chosen.push(snippet!("bias_gamma={}", BIAS_STEP));
    }
    let loss = router.aux_loss.filter(|loss| *loss > 0.0);
    let loss = loss.map_or_else(|| Snippet::fixed("None"), Snippet::from);
    call(
        "MoEConfig",
        vec![
            snippet!("name=MoEType.dropless, num_experts={}, hidden_size={}", moe.experts, moe.intermediate),
            snippet!("router=MoERouterConfig({})", Snippet::joined(chosen, ", ")),
            snippet!("lb_loss_weight={}, scale_loss_by_num_layers=False", loss),
        ],
    )
}
