//! Stages of a plan, as layers counted on each rank and virtual stage.

use smallvec::smallvec;

use super::costs::Costs;
use super::counts::{Choices, Counted, LayerChoice, StageCounts};
use super::runs::{PerKind, Runs};
use super::shape::ShapeCost;
use crate::plan::{Plan, Recompute};
use crate::split::LayerSplit;
use crate::split::layers as split;
use crate::stages::StagedPlan;

impl Costs<'_> {
    /// Choices of a plan's layers: each kind as the plan recomputes it; where only the first layers of each virtual stage are
    /// recomputed, each kind kept and then each recomputed whole.
    pub(super) fn choices(&self, plan: &Plan) -> Choices {
        let kinds = self.parameters.len();
        let on_host = plan.offload.activations;
        let every_kind = |recompute| (0..kinds).map(move |kind| LayerChoice { kind, recompute, on_host });
        match plan.recompute {
            Recompute::FirstLayers(_) => every_kind(Recompute::None).chain(every_kind(Recompute::Full)).collect(),
            recompute => every_kind(recompute).collect(),
        }
    }

    /// Layers of the stages of a plan.
    pub(super) fn stage_counts(&self, plan: &Plan, shape: Option<&ShapeCost>, counted: Counted) -> StageCounts {
        let pp = plan.layout.pp;
        let by_chunk = counted == Counted::Chunks || (!self.splits_unknown && plan.pipeline().peaks_by_chunk());
        if self.parameters.len() == 1 && plan.split == LayerSplit::Even {
            let chunks = if by_chunk { self.even_chunks(plan) } else { Runs::default() };
            return self.with_layers(plan, self.even_ranks(plan), chunks);
        }
        let layers = self.split_layers(plan, self.head_weight(plan, shape));
        let chunks = if by_chunk { self.counted_by_chunk(plan, &layers) } else { Runs::default() };
        self.with_layers(plan, self.counted(plan, &layers, pp, plan.pipeline().ranks()), chunks)
    }

    /// Stages of a plan with given numbers of decoder layers on each virtual stage.
    pub(super) fn counts_of(&self, plan: &Plan, layers: &[u32]) -> StageCounts {
        let ranks = self.counted(plan, layers, plan.layout.pp, plan.pipeline().ranks());
        self.with_layers(plan, ranks, self.counted_by_chunk(plan, layers))
    }

    /// Counts of a plan with its choices, these layers on its ranks and virtual stages, and the place of its
    /// multi-token prediction.
    fn with_layers(&self, plan: &Plan, ranks: Runs, chunks: Runs) -> StageCounts {
        let model = self.problem.model();
        StageCounts {
            choices: self.choices(plan),
            ranks,
            chunks,
            mtp_chunk: Self::mtp_chunk(plan),
            mtp: model.mtp_depth,
            mtp_choice: (model.mtp_depth > 0).then(|| model.last_kind()),
        }
    }

    /// Layers of the stages of a staged plan, by choice.
    pub(super) fn staged_counts(&self, staged: &StagedPlan) -> StageCounts {
        let (plan, model) = (&staged.plan, self.problem.model());
        let pp = plan.layout.pp;
        let rank_of = |chunk: usize| plan.pipeline().rank_of(chunk as u32) as usize;
        let mut choices = Choices::new();
        let mut mixes: Vec<(usize, usize, f64)> = Vec::new(); // stage, choice, layers
        for (chunk, stage) in staged.stages.iter().enumerate() {
            let on_host = staged.offload[rank_of(chunk)].activations;
            for mix in &stage.mixes {
                let choice = LayerChoice { kind: mix.kind, recompute: mix.recompute, on_host };
                let known = choices.iter().position(|known| *known == choice).unwrap_or_else(|| {
                    choices.push(choice);
                    choices.len() - 1
                });
                mixes.push((chunk, known, f64::from(mix.layers)));
            }
        }
        let width = choices.len();
        let mut chunks = vec![PerKind::from_elem(0.0, width); staged.stages.len()];
        let mut ranks = vec![PerKind::from_elem(0.0, width); pp as usize];
        for (chunk, choice, layers) in mixes {
            chunks[chunk][choice] += layers;
            ranks[rank_of(chunk)][choice] += layers;
        }
        let mtp_chunk = staged.stages.iter().position(|stage| stage.mtp > 0).unwrap_or(staged.stages.len() - 1) as u32;
        let (ranks, chunks) = (each(ranks), each(chunks));
        StageCounts { choices, ranks, chunks, mtp_chunk, mtp: model.mtp_depth, mtp_choice: None }
    }

    /// Layers of each rank of an even split of a model with one kind of layer, counted without visiting every virtual stage.
    fn even_ranks(&self, plan: &Plan) -> Runs {
        let on_ranks = |most| split::even_on_ranks(self.problem.model().layers(), plan.pipeline(), most);
        let all = on_ranks(u32::MAX);
        if let Recompute::FirstLayers(most) = plan.recompute {
            return all.into_iter().zip(on_ranks(most)).map(|(all, first)| (kept_and_first(all, first), 1)).collect();
        }
        Runs::of_distinct(all.chunk_by(u32::eq).map(|ranks| (smallvec![f64::from(ranks[0])], ranks.len() as u32)))
    }

    /// Layers of each virtual stage of an even split of a model with one kind of layer.
    fn even_chunks(&self, plan: &Plan) -> Runs {
        let chunks = plan.pipeline().chunks();
        let runs = split::even_runs(self.problem.model().layers(), chunks).into_iter();
        let runs = runs.filter(|(_, chunks)| !chunks.is_empty());
        Runs::of_distinct(runs.map(|(layers, chunks)| (of_one_kind(plan, layers), chunks.len() as u32)))
    }

    /// Layers of each choice at each of `places` ranks or virtual stages; `layers` = layers of each virtual stage, `place` = place
    /// of each.
    pub(super) fn counted(
        &self,
        plan: &Plan,
        layers: &[u32],
        places: u32,
        place: impl Iterator<Item = u32> + Clone,
    ) -> Runs {
        let all = self.layers_at(layers, u32::MAX, places, place.clone());
        let Recompute::FirstLayers(most) = plan.recompute else { return each(all) };
        let first = self.layers_at(layers, most, places, place);
        let both = |(all, first): (PerKind, PerKind)| -> PerKind {
            let kept: PerKind = all.iter().zip(&first).map(|(all, first)| all - first).collect();
            kept.into_iter().chain(first).collect()
        };
        each(all.into_iter().zip(first).map(both))
    }

    /// Layers of each choice on each virtual stage.
    fn counted_by_chunk(&self, plan: &Plan, layers: &[u32]) -> Runs {
        if self.parameters.len() == 1 {
            let runs = layers.chunk_by(u32::eq);
            return Runs::of_distinct(runs.map(|chunks| (of_one_kind(plan, chunks[0]), chunks.len() as u32)));
        }
        let chunks = layers.len() as u32;
        self.counted(plan, layers, chunks, 0..chunks)
    }

    /// Layers of each kind at each of `places`, counting the first `most` of each virtual stage.
    fn layers_at(&self, layers: &[u32], most: u32, places: u32, place: impl Iterator<Item = u32>) -> Vec<PerKind> {
        let kinds = self.problem.model().kinds.len();
        let mut counts = vec![0; places as usize * kinds];
        let mut from = 0;
        for (&count, place) in layers.iter().zip(place) {
            let here = &mut counts[place as usize * kinds..][..kinds];
            if let [sum] = here {
                *sum += count.min(most);
            } else {
                for (sum, times) in here.iter_mut().zip(self.kinds_between(from, from + count.min(most))) {
                    *sum += times;
                }
            }
            from += count;
        }
        counts.chunks(kinds).map(|counts| counts.iter().map(|&count| f64::from(count)).collect()).collect()
    }

    /// Cost of the head, in layers, for a cost-balanced split; 0 for others, which do not depend on it.
    fn head_weight(&self, plan: &Plan, shape: Option<&ShapeCost>) -> f64 {
        match (&plan.split, shape) {
            (LayerSplit::CostBalanced, Some(shape)) => self.head_in_last_layers(plan, shape),
            (LayerSplit::CostBalanced, None) => self.head_in_last_layers(plan, &self.shape(plan)),
            _ => 0.0,
        }
    }

    /// Cost of the head of the model, in layers of the last kind.
    fn head_in_last_layers(&self, plan: &Plan, shape: &ShapeCost) -> f64 {
        let kind = self.problem.model().last_kind();
        let recompute = match plan.recompute {
            Recompute::FirstLayers(_) => Recompute::None,
            other => other,
        };
        let choice = LayerChoice { kind, recompute, on_host: 0.0 };
        self.head_in_layers(&self.work_of(plan, &shape.layers[kind], &choice), &shape.ends)
    }

    /// Decoder layers of each virtual stage of this plan.
    pub fn layers_of_chunks(&self, plan: &Plan, shape: &ShapeCost) -> Vec<u32> {
        self.split_layers(plan, self.head_weight(plan, Some(shape)))
    }

    /// Decoder layers of each virtual stage of this plan, where the head costs as much as `head` layers.
    pub(super) fn split_layers(&self, plan: &Plan, head: f64) -> Vec<u32> {
        let (layers, pp) = (self.problem.model().layers(), plan.layout.pp);
        split::layers_of_chunks(&plan.split, layers, pp, plan.pipeline().chunks(), head)
    }

    /// The virtual stage that holds the multi-token-prediction layers.
    pub(super) fn mtp_chunk(plan: &Plan) -> u32 {
        plan.split.mtp_stage(plan.pipeline().chunks() as usize) as u32
    }
}

/// Layers of each choice of a virtual stage with so many layers of the model's one kind.
fn of_one_kind(plan: &Plan, layers: u32) -> PerKind {
    if let Recompute::FirstLayers(most) = plan.recompute {
        return kept_and_first(layers, layers.min(most));
    }
    smallvec![f64::from(layers)]
}

/// Layers of one kind, `first` of which are recomputed.
fn kept_and_first(all: u32, first: u32) -> PerKind {
    smallvec![f64::from(all - first), f64::from(first)]
}

/// Layers of each choice at each place.
fn each(places: impl IntoIterator<Item = PerKind>) -> Runs {
    places.into_iter().map(|layers| (layers, 1)).collect()
}
