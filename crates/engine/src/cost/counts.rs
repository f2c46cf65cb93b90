//! Layers of each virtual stage and rank, counted by kind and by recomputation.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::plan::{Plan, Recompute};
use crate::schedule::Schedule;

/// Numbers by kind of layer.
pub(super) type PerKind = SmallVec<[f64; 4]>;

/// Choice for the layers of a stage: their kind, their recomputation, and the share of their activations on the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LayerChoice {
    /// Index into the model's kinds.
    pub kind: usize,
    /// Recomputed in backward.
    pub recompute: Recompute,
    /// Share of the activations on the host.
    pub on_host: f64,
}

/// Choices of a plan; few have more than its kinds of layer.
pub(super) type Choices = SmallVec<[LayerChoice; 4]>;

/// Layers of each choice on each virtual stage and on each rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StageCounts {
    /// Kind, recomputation and host share of the layers counted.
    pub choices: Choices,
    /// Layers of each rank.
    pub ranks: Vec<PerKind>,
    /// Layers of each virtual stage, in model order, row after row; empty if not requested.
    pub(super) chunks: Vec<f64>,
    /// The virtual stage of the multi-token-prediction layers.
    pub mtp_chunk: u32,
    /// Multi-token-prediction layers, a projection each.
    pub mtp: u32,
    /// Choice of the multi-token-prediction layers that the counts leave out; none where they count them.
    pub mtp_choice: Option<usize>,
}

impl StageCounts {
    /// Layers of each choice on each rank, those of multi-token prediction among them.
    pub fn all_on_ranks(&self, plan: &Plan) -> Cow<'_, [PerKind]> {
        let Some(choice) = self.mtp_choice else { return Cow::Borrowed(&self.ranks) };
        let mut ranks = self.ranks.clone();
        ranks[plan.schedule.rank_of(self.mtp_chunk, plan.layout.pp) as usize][choice] += f64::from(self.mtp);
        Cow::Owned(ranks)
    }

    /// Layers of each choice on each virtual stage, those of multi-token prediction among them, in model order.
    pub fn all_on_chunks(&self) -> impl Iterator<Item = PerKind> {
        self.chunks().enumerate().map(|(chunk, layers)| {
            let mut layers = PerKind::from_slice(layers);
            if let Some(choice) = self.mtp_choice.filter(|_| self.mtp_chunk as usize == chunk) {
                layers[choice] += f64::from(self.mtp);
            }
            layers
        })
    }

    /// Layers by kind, from layers by choice.
    pub fn by_kind(&self, layers: &[f64], kinds: usize) -> PerKind {
        let mut all = PerKind::from_elem(0.0, kinds);
        self.choices.iter().zip(layers).for_each(|(choice, count)| all[choice.kind] += count);
        all
    }

    /// Layers of each choice on each virtual stage.
    pub fn chunks(&self) -> impl Iterator<Item = &[f64]> {
        self.chunks.chunks(self.choices.len())
    }
}

/// Whether memory of a rank depends on which of its virtual stages hold its layers.
pub(super) const fn peaks_by_chunk(schedule: Schedule, pp: u32) -> bool {
    match schedule {
        Schedule::Interleaved { .. } | Schedule::ZbV | Schedule::DualPipe | Schedule::DualPipeV => pp > 1,
        Schedule::Naive
        | Schedule::GPipe
        | Schedule::OneFOneB
        | Schedule::ZbH1
        | Schedule::ZbH2
        | Schedule::LoopedBfs { .. } => false,
    }
}
