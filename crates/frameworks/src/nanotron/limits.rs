//! Limits of nanotron. Source: [nanotron] `src/nanotron/config/`, commit 2411b022.

use crate::decoder::LlamaDecoder;
use crate::details::Expressible;
use crate::rules::{self, attentions, lacking};
use crate::sizes::Sizes;
use meshwright_engine::plan::{Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::layers::layers_of_chunks;
use meshwright_engine::split::{LayerSplit, nanotron};
use meshwright_engine::stack::Family;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of nanotron.
pub const LIMITS: Limits = Limits {
    name: "nanotron",
    title: "nanotron",
    family: Family::Nanotron,
    also: &[],
    values: |_| vec!["ep=1", "etp=1", "cp-kind=allgather", "recompute=none,full", "zero=0,1", "order=tp-cp-ep-dp-pp"],
    names_stages: |_| false, // it cuts by its own costs
    own_split: Some(nanotron::own_split),
    problem: |problem| Sizes::judged(problem, of_sizes),
    shape: &[rules::gathered_context, rules::key_value_heads, rules::no_experts, rules::recompute_all_or_none],
    plan: &[schedule, split, rules::no_offload],
    optimizer_on_host: &[],
    sharding: &[sharding, rules::no_shard_group, rules::pipeline_outermost],
};

/// Its decoders of Llama and Qwen2.
const DECODER: LlamaDecoder =
    LlamaDecoder { qkv_bias: true, head_norms: false, latent_attention: false, expressible: EXPRESSIBLE };

/// Its keys for settings of a model.
///
/// Source: [nanotron] `src/nanotron/config/models_config.py` (`Qwen2Config`): `rope_theta`, `rms_norm_eps`, `hidden_act`.
const EXPRESSIBLE: Expressible = Expressible {
    rotary_share: false,
    scaling: |_, _| false,
    clamped_quick_gelu: false,
    norms_after: false,
    plain: &[],
    softmax_bias: false,
    raw_sigmoid: false,
    balance_loss: false,
    latent_experts: false,
    indexer: false,
};

/// Its decoders, dense, with heads of hidden size over heads.
fn of_sizes(problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
    let model = problem.model();
    let other_heads = attentions(model).any(|attention| attention.heads * attention.head_dim != model.hidden);
    let grid = "its grid of experts multiplies the ranks instead of folding them";
    let mut found = lacking(
        model,
        [
            (sizes.moe.is_some(), "experts", grid),
            (other_heads, "heads wider or narrower than hidden", "heads are hidden/heads wide"),
        ],
    );
    found.extend(DECODER.obstacles(problem, sizes));
    found.extend(rules::plain_mixed_precision(problem, &[4.0]));
    found
}

/// `pp_engine`: `1f1b` and `afab`.
fn schedule(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    if plan.layout.pp == 1 || matches!(plan.schedule, Schedule::OneFOneB | Schedule::GPipe) {
        return None;
    }
    Obstacle::of_plan(
        format!("schedule={}", plan.schedule.name()),
        "its engines are 1f1b and afab",
        Plan { schedule: Schedule::OneFOneB, ..plan.clone() },
    )
}

/// nanotron splits stages by its own estimate of the cost of blocks; no setting of a file changes that.
fn split(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let (model, pp) = (problem.model(), plan.layout.pp);
    if pp == 1 {
        return None;
    }
    let Some(own) = nanotron::own_split(model, pp) else {
        return Obstacle::of_plan(
            format!("pp={pp}"),
            "its split by the cost of blocks leaves a stage without any",
            rules::without_pipeline(plan),
        );
    };
    let layers = |split: &LayerSplit| layers_of_chunks(split, model.layers(), pp, pp, 0.0);
    if plan.split != LayerSplit::CostBalanced && layers(&plan.split) == layers(&own) {
        return None;
    }
    Obstacle::of_plan(
        format!("split={}", plan.split),
        "it cuts stages by the cost of their blocks, which no file changes",
        Plan { split: own, ..*plan },
    )
}

/// `zero_stage`: 0 or 1.
fn sharding(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    (plan.zero > ZeroStage::One).then(|| Obstacle {
        what: format!("zero={}", u8::from(plan.zero)),
        why: "it shards optimizer states only".into(),
        instead: Some(Plan { zero: ZeroStage::One, reshard_after_forward: true, ..plan.clone() }),
    })
}
