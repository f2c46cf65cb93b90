//! Models of Mamba, attention and MLP layers, each a layer of its own, as Megatron's `--hybrid-layer-pattern` expresses them.
//!
//! Source: [megatron-lm] `megatron/core/models/hybrid/hybrid_layer_allocation.py`, `megatron/core/ssm/mamba_mixer.py` and
//! `mamba_context_parallel.py`, release 0.19.2.

use crate::rules::{self, lacks};
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::gpu::Format;
use meshwright_engine::model::{Ffn, Mamba, Mixer, Model, Span};
use meshwright_engine::plan::{Layout, Modules, Plan, Recompute};
use meshwright_engine::problem::Problem;
use meshwright_planner::limits::Obstacle;

/// Whether a model has Mamba layers.
pub(crate) fn is_hybrid(model: &Model) -> bool {
    mamba(model).is_some()
}

fn mamba(model: &Model) -> Option<&Mamba> {
    model.kinds.iter().find_map(|layer| match &layer.mixer {
        Mixer::Mamba(mamba) => Some(mamba),
        Mixer::Attention(_)
        | Mixer::Mla(_)
        | Mixer::DeltaNet(_)
        | Mixer::KimiDelta(_)
        | Mixer::ShortConv(_)
        | Mixer::AttentionMamba(_)
        | Mixer::None => None,
    })
}

/// A hybrid as one set of sizes and a letter for each layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Hybrid {
    /// Attention, MLP and mixture; nothing per layer.
    pub sizes: Sizes,
    /// Mamba of every such layer.
    pub mamba: Mamba,
    /// The letter of each layer, in order: `M` Mamba, `*` attention, `+` latent attention, `-` MLP, `E` experts.
    pub letters: Vec<char>,
}

/// Layers that no letter of a pattern is, and the reason.
const TWO_PARTS: &str = "layers with a mixer and an MLP or experts";
const ONE_PART: &str = "each letter of a pattern is a layer of one of them";

impl Hybrid {
    /// The hybrid that a model is.
    ///
    /// # Errors
    /// Properties of its layers that no pattern expresses.
    pub fn of(model: &Model) -> Result<Self, Vec<Obstacle>> {
        let mut found: Vec<Obstacle> = Vec::new();
        let mut refuse = |when: bool, what: &str, why: &'static str| {
            let obstacle = lacks(model, what, why);
            if when && !found.contains(&obstacle) {
                found.push(obstacle);
            }
        };
        // Layers of attention and of feed-forward alone, as one model whose every layer has both.
        let mut whole = Model { kinds: Vec::new(), order: Vec::new(), ..model.clone() };
        let (mut mixers, mut ffns, mut mambas) = (Vec::new(), Vec::new(), Vec::new());
        for layer in &model.kinds {
            refuse(layer.norms != 1 || layer.extra_parameters > 0, TWO_PARTS, ONE_PART);
            match (&layer.mixer, &layer.ffn) {
                (Mixer::Mamba(mamba), Ffn::None) => mambas.push(mamba.clone()),
                (mixer @ (Mixer::Attention(_) | Mixer::Mla(_)), Ffn::None) => mixers.push(mixer.clone()),
                (Mixer::None, ffn @ (Ffn::Dense(_) | Ffn::Moe(_))) => ffns.push(ffn.clone()),
                _ => refuse(true, TWO_PARTS, ONE_PART),
            }
        }
        refuse(mambas.windows(2).any(|pair| pair[0] != pair[1]), "Mamba of several sizes", "all are alike");
        refuse(
            mambas.iter().any(|m| m.proj_bias || m.has_out_bias() || !m.conv_bias || m.conv_kernel != 4),
            "Mamba with other biases or kernel",
            "its convolution has a bias and a kernel of 4, its projections have no bias",
        );
        refuse(mambas.iter().any(|m| !m.norm), "Mamba without a norm", "its blocks have one behind the gate");
        let attends = model.kinds.iter().any(|layer| matches!(layer.mixer, Mixer::Attention(_) | Mixer::Mla(_)));
        refuse(!attends, "no attention", "a pattern is written beside attention here");
        refuse(
            model.mtp_depth > 0,
            "multi-token prediction beside Mamba",
            "it is left out here: --set model.mtp_depth=0",
        );
        let first = mixers.first().cloned();
        for (mixer, ffn) in mixers.iter().chain(first.iter().cycle().take(ffns.len())).zip(ffns.iter().cycle()) {
            let layer = meshwright_engine::model::Layer {
                mixer: mixer.clone(),
                ffn: ffn.clone(),
                norms: 2,
                extra_parameters: 0,
            };
            whole.order.push(whole.kinds.len());
            whole.kinds.push(layer);
        }
        if !found.is_empty() || whole.kinds.is_empty() {
            return Err(found);
        }
        let sizes = Sizes::of(&whole)?;
        let windowed = sizes.spans.iter().any(|span| *span != Span::Full);
        let mixed = sizes.rope.contains(&true) && sizes.rope.contains(&false);
        if windowed || mixed {
            return Err(vec![Obstacle::of_model(
                format!("{}: attention of several kinds", model.name),
                "all of it is alike",
            )]);
        }
        let letter = |kind: &usize| match (&model.kinds[*kind].mixer, &model.kinds[*kind].ffn) {
            (Mixer::Mamba(_), _) => 'M',
            (Mixer::Mla(_), _) => '+',
            (Mixer::None, Ffn::Moe(_)) => 'E',
            (Mixer::None, _) => '-',
            _ => '*',
        };
        let letters = model.order.iter().map(letter).collect();
        let Some(mamba) = mambas.into_iter().next() else { return Err(found) };
        Ok(Self { sizes: Sizes { has_experts: Vec::new(), spans: Vec::new(), ..sizes }, mamba, letters })
    }

    /// The letters, with a bar between the stages of these layers.
    pub fn pattern(&self, layers_of_stages: &[u32]) -> String {
        let mut rest = self.letters.as_slice();
        let mut stages = Vec::new();
        for layers in layers_of_stages {
            let (here, behind) = rest.split_at((*layers as usize).min(rest.len()));
            stages.push(here.iter().collect::<String>());
            rest = behind;
        }
        stages.join("|")
    }

    /// Whether its attention has no positions.
    pub fn positionless(&self) -> bool {
        matches!(self.sizes.mixer, SharedMixer::Attention(_)) && !self.sizes.rope.contains(&true)
    }
}

/// Obstacle of a hybrid in FP8 or narrower whose widths are not multiples of 16, which the GEMMs need.
pub(crate) fn formats(problem: &Problem) -> Option<Obstacle> {
    let width = mamba(problem.model())?.in_width();
    (problem.workload().format != Format::Bf16 && !width.is_multiple_of(16))
        .then(|| Obstacle::of_model(format!("Mamba's projection to {width}"), "narrow formats need a multiple of 16"))
}

/// Tensor parallelism divides heads and groups; context parallelism the heads of a rank, and groups or copies of them.
pub(crate) fn groups(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let mamba = mamba(problem.model())?;
    let Layout { tp, cp, dp, .. } = plan.layout;
    if !mamba.groups.is_multiple_of(tp) || !mamba.heads.is_multiple_of(tp) {
        let divides = |near: &u32| {
            tp.is_multiple_of(*near) && mamba.groups.is_multiple_of(*near) && mamba.heads.is_multiple_of(*near)
        };
        let near = (1..=tp).rev().find(divides)?;
        let layout = Layout { tp: near, dp: dp * (tp / near), ..plan.layout };
        let sequence_parallel = plan.sequence_parallel && near > 1;
        let why = format!("tensor parallelism divides Mamba's {} heads and {} groups", mamba.heads, mamba.groups);
        return Obstacle::of_plan(format!("tp={tp}"), why, Plan { layout, sequence_parallel, ..plan.clone() });
    }
    let (heads, own) = (mamba.heads / tp, (mamba.groups / tp).max(1));
    if cp > 1 && !(heads.is_multiple_of(cp) && (own.is_multiple_of(cp) || cp.is_multiple_of(own))) {
        let why = format!(
            "context parallelism divides the {heads} Mamba heads of a rank, and divides or repeats its {own} groups"
        );
        return Obstacle::of_plan(format!("cp={cp}"), why, rules::without_context(plan));
    }
    None
}

/// Norms lie inside the projections behind them: they are not recomputed alone.
pub(crate) fn recompute(problem: &Problem, plan: &Plan) -> Option<Obstacle> {
    let Recompute::Selective(modules) = plan.recompute else { return None };
    if !modules.layernorm || !is_hybrid(problem.model()) {
        return None;
    }
    let without = Modules { layernorm: false, ..modules };
    let recompute = if without == Modules::default() { Recompute::None } else { Recompute::Selective(without) };
    Obstacle::of_plan(
        format!("recompute={}", plan.recompute),
        "norms of hybrids are fused with the projections behind them",
        Plan { recompute, ..plan.clone() },
    )
}
