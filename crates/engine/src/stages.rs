//! Virtual stages of a plan: layers by kind and recomputation, embedding, loss.

use serde::Serialize;

mod text;

use crate::model::Model;
use crate::plan::{Offload, Plan, Recompute};
use crate::split::StageLetters;

/// Layers of one kind in one stage with the same recomputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mix {
    /// Index into the model's kinds.
    pub kind: usize,
    /// Recomputation of their activations in backward.
    pub recompute: Recompute,
    /// Number of the layers.
    pub layers: u32,
}

/// One virtual stage: a run of the model's layers, and the ends of the model that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// First layer, counted over the model's layers and then its multi-token-prediction layers.
    pub from: u32,
    /// Decoder layers.
    pub layers: u32,
    /// Multi-token-prediction layers: the last kind, behind the last decoder layer.
    pub mtp: u32,
    /// Whether it has the input embedding.
    pub embedding: bool,
    /// Whether it has the output heads and the loss.
    pub loss: bool,
    /// The layers by kind and recomputation; they sum to `layers + mtp`.
    pub mixes: Vec<Mix>,
}

impl Stage {
    /// Decoder and multi-token-prediction layers.
    pub const fn all_layers(&self) -> u32 {
        self.layers + self.mtp
    }
}

/// A plan whose stages are spelled out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StagedPlan {
    /// Degrees, schedule and sharding. The fields below replace its split, recomputation and offload.
    pub plan: Plan,
    /// The virtual stages, in model order.
    pub stages: Vec<Stage>,
    /// Share of states and activations on the host, by pipeline rank.
    pub offload: Vec<Offload>,
}

/// The kind of each layer in order, multi-token-prediction layers behind the others.
pub fn kinds_in_order(model: &Model) -> Vec<usize> {
    let extra = std::iter::repeat_n(model.last_kind(), model.mtp_depth as usize);
    model.order.iter().copied().chain(extra).collect()
}

impl StagedPlan {
    /// Copy of the stages without offload; `None` if nothing is offloaded.
    pub fn on_device(&self) -> Option<Self> {
        let leaves = self.offload.iter().any(|offload| *offload != Offload::NONE);
        leaves.then(|| Self { offload: vec![Offload::NONE; self.offload.len()], ..self.clone() })
    }

    /// Stages that hold `counts` layers each, all recomputing as the plan does; multi-token prediction stands where the plan's
    /// split puts it, with the loss unless that names another stage.
    pub fn uniform(model: &Model, plan: &Plan, counts: &[u32]) -> Self {
        let mut from = 0;
        let last = counts.len() - 1;
        let mtp_stage = plan.split.mtp_stage(counts.len());
        let stages = counts
            .iter()
            .enumerate()
            .map(|(chunk, &layers)| {
                let mtp = if chunk == mtp_stage { model.mtp_depth } else { 0 };
                let mut stage =
                    Stage { from, layers, mtp, embedding: chunk == 0, loss: chunk == last, mixes: Vec::new() };
                stage.mixes = mixes(model, &stage, plan.recompute);
                from += layers;
                stage
            })
            .collect();
        Self { plan: plan.clone(), stages, offload: vec![plan.offload; plan.layout.pp as usize] }
    }

    /// Whether all stages have the same recomputation, which one set of flags can express.
    pub fn recomputes_uniformly(&self) -> bool {
        let mut all = self.stages.iter().flat_map(|stage| &stage.mixes);
        let first = all.next().map(|mix| mix.recompute);
        all.all(|mix| Some(mix.recompute) == first)
    }

    /// The recomputation that one set of flags gives every stage, if there is one: the same for all layers, or whole layers of
    /// which each stage recomputes the same number first, as far as it has them.
    pub fn shared_recompute(&self) -> Option<Recompute> {
        if self.recomputes_uniformly() {
            return self.stages.iter().flat_map(|stage| &stage.mixes).map(|mix| mix.recompute).next();
        }
        let mixes = || self.stages.iter().flat_map(|stage| &stage.mixes);
        let kind = mixes().next()?.kind;
        let plain = mixes().all(|mix| mix.kind == kind && matches!(mix.recompute, Recompute::None | Recompute::Full));
        if !plain || self.stages.iter().any(|stage| stage.mtp > 0) {
            return None;
        }
        let recomputed = |stage: &Stage| {
            let whole = stage.mixes.iter().filter(|mix| mix.recompute == Recompute::Full);
            whole.map(|mix| mix.layers).sum::<u32>()
        };
        let most = self.stages.iter().map(recomputed).max()?;
        self.stages
            .iter()
            .all(|stage| recomputed(stage) == most.min(stage.layers))
            .then_some(Recompute::FirstLayers(most))
    }

    /// Decoder layers of each virtual stage.
    pub fn layers_of_stages(&self) -> Vec<u32> {
        self.stages.iter().map(|stage| stage.layers).collect()
    }

    /// The stages as Megatron's `--pipeline-model-parallel-layout` writes them: `E` embedding, `t` a layer, `m` multi-token
    /// prediction, `L` loss, `|` between stages, `*n` for repeats; equal neighbours are folded.
    ///
    /// Source: [megatron-lm] `megatron/core/transformer/pipeline_parallel_layer_layout.py`.
    pub fn megatron_layout(&self) -> String {
        let letters =
            |&Stage { embedding, layers, mtp, loss, .. }: &Stage| StageLetters { embedding, layers, mtp, loss };
        crate::split::layout(self.stages.iter().map(letters))
    }

    /// Layers of the first and the last stage (`--decoder-first-pipeline-num-layers`,
    /// `--decoder-last-pipeline-num-layers`) where they alone differ and nothing is interleaved.
    pub fn first_and_last(&self) -> Option<(u32, u32)> {
        let counts = self.layers_of_stages();
        let (first, last) = (*counts.first()?, *counts.last()?);
        let between = counts.get(1..counts.len().checked_sub(1)?)?;
        let equal = between.windows(2).all(|pair| pair[0] == pair[1]);
        let plain = self.plan.schedule.virtual_stages() == 1 && self.stages.iter().all(|s| s.mtp == 0 || s.loss);
        (equal && plain && counts.len() > 2).then_some((first, last))
    }
}

/// Layers of a stage by kind, in the order in which kinds first appear, all with one recomputation. `FirstLayers` spells out.
fn mixes(model: &Model, stage: &Stage, recompute: Recompute) -> Vec<Mix> {
    let order = kinds_in_order(model);
    let range = stage.from as usize..(stage.from + stage.all_layers()) as usize;
    let mut mixes: Vec<Mix> = Vec::new();
    for (at, &kind) in order[range].iter().enumerate() {
        let recompute = match recompute {
            Recompute::FirstLayers(most) if (at as u32) < most.min(stage.layers) => Recompute::Full,
            Recompute::FirstLayers(_) => Recompute::None,
            other => other,
        };
        match mixes.iter_mut().find(|mix| mix.kind == kind && mix.recompute == recompute) {
            Some(mix) => mix.layers += 1,
            None => mixes.push(Mix { kind, recompute, layers: 1 }),
        }
    }
    mixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Layout;

    #[test]
    fn one_set_of_flags_says_what_stages_recompute_where_it_can() {
        let stage = |kept: u32, recomputed: u32| {
            let mix = |recompute, layers| Mix { kind: 0, recompute, layers };
            let mixes = [mix(Recompute::None, kept), mix(Recompute::Full, recomputed)];
            let mixes = mixes.into_iter().filter(|mix| mix.layers > 0).collect();
            Stage { from: 0, layers: kept + recomputed, mtp: 0, embedding: false, loss: false, mixes }
        };
        let shared = |stages: &[(u32, u32)]| {
            let stages = stages.iter().map(|&(kept, recomputed)| stage(kept, recomputed)).collect();
            StagedPlan { plan: Plan::of_layout(Layout::data_parallel(1)), stages, offload: Vec::new() }
                .shared_recompute()
        };
        assert_eq!(shared(&[(4, 0), (5, 0)]), Some(Recompute::None));
        assert_eq!(shared(&[(0, 4), (0, 5)]), Some(Recompute::Full));
        assert_eq!(shared(&[(2, 2), (3, 2), (0, 1)]), Some(Recompute::FirstLayers(2)));
        assert_eq!(shared(&[(2, 2), (4, 0)]), None, "the second stage would recompute two as well");
    }
}
