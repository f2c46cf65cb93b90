//! Layers of each virtual stage and rank, counted by kind and by recomputation.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use super::runs::Runs;
use crate::plan::{Plan, Recompute};

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

/// Neighbouring pipeline ranks that hold the same, each such range as one class.
pub(super) type Classes = SmallVec<[Range<u32>; 8]>;

/// Classes of one rank each.
pub(super) fn each_rank(pp: u32) -> Classes {
    (0..pp).map(|rank| rank..rank + 1).collect()
}

/// Index of the class of a rank.
pub(super) fn class_of(classes: &[Range<u32>], rank: u32) -> usize {
    classes.partition_point(|class| class.end <= rank)
}

/// Parts of a pipeline whose layers are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// Ranks; virtual stages only where their memory needs them.
    Ranks,
    /// Ranks and virtual stages.
    Chunks,
}

/// Layers of each choice on each virtual stage and on each rank.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StageCounts {
    /// Kind, recomputation and host share of the layers counted.
    pub choices: Choices,
    /// Layers of each rank.
    pub ranks: Runs,
    /// Layers of each virtual stage, in model order; empty if not requested.
    pub chunks: Runs,
    /// The virtual stage of the multi-token-prediction layers.
    pub mtp_chunk: u32,
    /// Multi-token-prediction layers, a projection each.
    pub mtp: u32,
    /// Choice of the multi-token-prediction layers that the counts leave out; none where they count them.
    pub mtp_choice: Option<usize>,
}

impl StageCounts {
    /// Layers of each choice on each rank, those of multi-token prediction among them.
    pub fn all_on_ranks(&self, plan: &Plan) -> Cow<'_, Runs> {
        self.with_mtp(&self.ranks, |chunk| plan.pipeline().rank_of(chunk))
    }

    /// Layers of each choice on each virtual stage, those of multi-token prediction among them.
    pub fn all_on_chunks(&self) -> Cow<'_, Runs> {
        self.with_mtp(&self.chunks, |chunk| chunk)
    }

    fn with_mtp<'c>(&self, layers: &'c Runs, place: impl Fn(u32) -> u32) -> Cow<'c, Runs> {
        let Some(choice) = self.mtp_choice else { return Cow::Borrowed(layers) };
        Cow::Owned(layers.with(place(self.mtp_chunk), choice, f64::from(self.mtp)))
    }

    /// Classes of neighbouring ranks with the same layers. An end of the model and multi-token prediction set a rank apart.
    pub fn classes(&self, plan: &Plan) -> Classes {
        let pipeline = plan.pipeline();
        let apart = [0, pipeline.chunks() - 1, self.mtp_chunk].map(|chunk| pipeline.rank_of(chunk));
        let mut classes = Classes::new();
        for (ranks, _) in self.ranks.iter() {
            let mut start = ranks.start;
            while start < ranks.end {
                // A class ends before each rank that is set apart, and behind it.
                let mut end = ranks.end;
                for rank in apart {
                    let cut = if rank > start { rank } else { rank + 1 };
                    end = if cut > start { end.min(cut) } else { end };
                }
                classes.push(start..end);
                start = end;
            }
        }
        classes
    }

    /// Layers of each class of ranks, without multi-token prediction that the counts leave out.
    pub fn of_classes<'c>(&'c self, classes: &'c [Range<u32>]) -> impl Iterator<Item = &'c [f64]> {
        classes.iter().map(|class| &self.ranks.at(class.start)[..])
    }

    /// Layers by kind, from layers by choice.
    pub fn by_kind(&self, layers: &[f64], kinds: usize) -> impl Iterator<Item = f64> {
        let of_kind = move |kind| {
            let own = self.choices.iter().zip(layers).filter(move |(choice, _)| choice.kind == kind);
            own.fold(0.0, |sum, (_, count)| sum + count)
        };
        (0..kinds).map(of_kind)
    }
}

/// Value of each stage or rank, computed by `value` from its layers; once for neighbours with the same layers.
pub(super) fn by_layers<'c, T: Copy>(
    places: impl Iterator<Item = &'c [f64]>,
    value: impl Fn(&'c [f64]) -> T,
) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(places.size_hint().0);
    let mut before: Option<&[f64]> = None;
    for layers in places {
        if before == Some(layers) {
            all.extend_from_within(all.len() - 1..);
        } else {
            all.push(value(layers));
        }
        before = Some(layers);
    }
    all
}
