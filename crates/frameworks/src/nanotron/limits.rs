//! Limits of nanotron. Source: [nanotron] `src/nanotron/config/`, commit 2411b022.

use crate::details::{Sayable, unsayable};
use crate::rules::{self, lacks};
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::model::{Norm, QkNorm, Span};
use meshwright_engine::plan::{CpKind, Plan, ZeroStage};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::layers::layers_of_chunks;
use meshwright_engine::split::{LayerSplit, nanotron};
use meshwright_engine::stack::Family;
use meshwright_engine::workload::Adaptation;
use meshwright_planner::limits::{Limits, Obstacle};

/// Limits of nanotron.
pub const LIMITS: Limits = Limits {
    name: "nanotron",
    title: "nanotron",
    family: Family::Nanotron,
    also: &[],
    values: |_| &["ep=1", "etp=1", "cp-kind=allgather", "recompute=none,full", "zero=0,1", "order=tp-cp-ep-dp-pp"],
    names_stages: |_| false, // it cuts by its own costs
    own_split: Some(nanotron::own_split),
    problem: |problem| Sizes::judged(problem, of_sizes),
    shape: &[context_kind, rules::key_value_heads, rules::no_experts, rules::recompute_all_or_none],
    plan: &[schedule, split, rules::no_offload],
    optimizer_on_host: &[],
    sharding: &[sharding, rules::no_shard_group, rules::pipeline_outermost],
};

/// Its keys for settings of a model.
///
/// Source: [nanotron] `src/nanotron/config/models_config.py` (`Qwen2Config`): `rope_theta`, `rms_norm_eps`, `hidden_act`.
const SAYABLE: Sayable = Sayable {
    rotary_share: false,
    scaling: |_, _| false,
    clamped_quick_gelu: false,
    norms_after: false,
    plain: &[],
    softmax_bias: false,
    raw_sigmoid: false,
    balance_loss: false,
};

/// Its models are Llama and Qwen2.
fn of_sizes(problem: &Problem, sizes: &Sizes) -> Vec<Obstacle> {
    let model = problem.model();
    let mut found = Vec::new();
    let mut refuse = |when: bool, what: &str, why: &'static str| {
        if when {
            found.push(lacks(model, what, why));
        }
    };
    refuse(sizes.moe.is_some(), "experts", "its grid of experts multiplies the ranks instead of folding them");
    match &sizes.mixer {
        SharedMixer::Mla(_) => refuse(true, "latent attention", "its models have grouped-query attention"),
        SharedMixer::Attention(a) => {
            refuse(
                a.heads * a.head_dim != model.hidden,
                "heads wider or narrower than hidden",
                "heads are hidden/heads wide",
            );
            refuse(a.qk_norm != QkNorm::None, "norms on queries and keys", "it has none");
            refuse(
                a.sinks || a.output_gate || a.keys_are_values,
                "attention sinks, gates or shared values",
                "it has none",
            );
            refuse(a.out_bias, "a bias on the output projection", "it has biases on queries, keys and values only");
        }
    }
    refuse(!sizes.gated(), "an MLP without a gate", "its MLPs are gated");
    refuse(sizes.dense.as_ref().is_some_and(|mlp| mlp.bias), "biases of the MLP", "its MLPs have none");
    refuse(model.norm != Norm::Rms || model.embedding_norm, "other norms than RMSNorm", "its norms are RMSNorm");
    refuse(
        model.learned_positions > 0 || sizes.rope.contains(&false),
        "positions that are not rotary",
        "they are rotary",
    );
    refuse(model.head_bias || model.mtp_depth > 0, "a head bias or multi-token prediction", "it has none");
    let full = sizes.spans.iter().all(|span| *span == Span::Full);
    refuse(!full, "windows", "a window would be the same in every layer, and without context parallelism");
    refuse(problem.workload().adaptation == Adaptation::Lora, "LoRA", "it trains all weights");
    found.extend(unsayable(model, sizes, &SAYABLE));
    found.extend(rules::no_float16(problem));
    found.extend(rules::plain_mixed_precision(problem, &[4.0]));
    found
}

/// `llama3_ring_attention` gathers keys and values.
fn context_kind(_: &Problem, plan: &Plan) -> Option<Obstacle> {
    rules::only_context(plan, &[CpKind::AllGather], "`llama3_ring_attention` gathers keys and values")
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

/// Stages are cut by what nanotron thinks that blocks cost, and by nothing that a file says.
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
