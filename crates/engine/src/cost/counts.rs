//! Layers of each virtual stage and rank, counted by kind and by recomputation.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use crate::plan::{Plan, Recompute};

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

    /// Classes of neighbouring ranks with the same layers. An end of the model and multi-token prediction set a rank apart.
    pub fn classes(&self, plan: &Plan) -> Classes {
        let pp = plan.layout.pp;
        let last = pp * plan.schedule.virtual_stages() - 1;
        let apart = [0, last, self.mtp_chunk].map(|chunk| plan.schedule.rank_of(chunk, pp));
        let layers = |rank: u32| &self.ranks[rank as usize];
        let mut classes = Classes::new();
        for rank in 0..pp {
            let is_alike =
                |first: u32| !apart.contains(&rank) && !apart.contains(&first) && layers(first) == layers(rank);
            match classes.last_mut().filter(|class| is_alike(class.start)) {
                Some(class) => class.end += 1,
                None => classes.push(rank..rank + 1),
            }
        }
        classes
    }

    /// Layers of each class of ranks, without multi-token prediction that the counts leave out.
    pub fn of_classes<'c>(&'c self, classes: &'c [Range<u32>]) -> impl Iterator<Item = &'c [f64]> {
        classes.iter().map(|class| &self.ranks[class.start as usize][..])
    }

    /// Runs of neighbouring virtual stages with the same layers of each choice, those of multi-token prediction among them.
    pub fn runs(&self) -> impl Iterator<Item = (Range<u32>, PerKind)> {
        let width = self.choices.len();
        let mtp = self.mtp_choice.map(|choice| (self.mtp_chunk, choice));
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = &self.chunks[at as usize * width..];
            let mut layers = PerKind::from_slice(rest.get(..width)?);
            let equal = if let [one] = layers[..] {
                rest.iter().position(|count| count.to_bits() != one.to_bits()).unwrap_or(rest.len())
            } else {
                rest.chunks(width).take_while(|row| **row == layers[..]).count()
            };
            let from = at;
            at += equal as u32;
            match mtp {
                Some((chunk, choice)) if chunk == from => {
                    layers[choice] += f64::from(self.mtp);
                    at = from + 1;
                }
                Some((chunk, _)) if (from..at).contains(&chunk) => at = chunk,
                Some(_) | None => {}
            }
            Some((from..at, layers))
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
