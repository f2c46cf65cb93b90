//! Classes of identical ranks of a pipeline, by work and memory; there are few even with many ranks.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use smallvec::SmallVec;

use crate::cost::costs::Costs;
use crate::cost::counts::{StageCounts, each_rank};
use crate::cost::runs::PerKind;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::schedule::closed::in_flight;
use crate::split::layers as split;

/// Class of ranks with the same work.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WorkClass {
    /// Layers of each choice on a rank, those of multi-token prediction among them.
    pub layers: PerKind,
    /// Whether its ranks have the embedding.
    pub has_embedding: bool,
    /// Whether its ranks have the output head.
    pub has_head: bool,
    /// Number of its ranks.
    pub count: f64,
    /// Layers of each choice in the virtual stages that precede the first one of the class's last rank.
    pub layers_before: PerKind,
    /// Whether the embedding precedes it too.
    pub embedding_before: bool,
}

/// Class of ranks with the same parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ParameterClass {
    /// Its ranks, ascending.
    pub ranks: Vec<u32>,
    /// Whether its ranks have the output head.
    pub has_head: bool,
}

/// Layers of each choice in flight on a rank at a moment at which its memory may peak.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moment {
    /// The rank.
    pub rank: u32,
    /// Layers in flight of each choice: layers times micro-batches.
    pub in_flight: PerKind,
    /// Virtual stages in flight that have layers: stages times micro-batches.
    pub stages: f64,
    /// Whether the rank has layers of each choice: 1 or 0.
    pub has_layers: PerKind,
}

/// Moments of each class of ranks with the same parameters.
pub(super) type Moments = Arc<[Vec<Moment>]>;

/// The classes of one pipeline.
#[derive(Debug)]
pub struct Stages {
    pub(super) counts: StageCounts,
    last_chunk: u32,
    pub(super) work_classes: Vec<WorkClass>,
    pub(super) parameter_classes: Vec<ParameterClass>,
    /// Cache of moments, by the bits of the number of micro-batches.
    moments: RwLock<BTreeMap<u64, Moments>>,
}

impl Stages {
    /// The classes of a plan's pipeline: pp, schedule, split, and the number of first layers where only those are recomputed.
    /// `layers` = layers of each virtual stage.
    pub fn new(costs: &Costs, plan: &Plan, layers: &[u32]) -> Self {
        let counts = costs.counts_of(plan, layers);
        Self {
            work_classes: work_classes(plan, &counts),
            parameter_classes: parameter_classes(costs, plan, &counts),
            counts,
            last_chunk: layers.last().copied().unwrap_or_default(),
            moments: RwLock::default(),
        }
    }

    /// The classes of a plan's pipeline, whose head costs as much as `head` layers.
    pub fn with_head_cost(costs: &Costs, plan: &Plan, head: f64) -> Self {
        Self::new(costs, plan, &costs.split_layers(plan, head))
    }

    /// Layers of the last chunk of a plan's pipeline, which identify a cost-balanced split.
    pub fn last_chunk_of(costs: &Costs, plan: &Plan, head: f64) -> u32 {
        let chunks = plan.pipeline().chunks();
        split::last_of_cost_balanced(costs.problem.model().layers(), chunks, head)
    }

    /// Decoder layers of the last virtual stage.
    pub const fn last_chunk(&self) -> u32 {
        self.last_chunk
    }

    /// Layers in flight at the moments when ranks of each class may need the most memory.
    pub(super) fn moments(&self, costs: &Costs, plan: &Plan) -> Moments {
        let key = distinct_micro_batches(plan, costs.micro_batches(plan)).to_bits();
        if let Some(known) = self.moments.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let by_rank = moments_of_ranks(costs, plan, &self.counts);
        let of_class = |class: &ParameterClass| {
            let mut kept: Vec<Moment> = Vec::new();
            class.ranks.iter().flat_map(|&rank| &by_rank[rank as usize]).for_each(|moment| keep(&mut kept, moment));
            kept
        };
        let moments: Moments = self.parameter_classes.iter().map(of_class).collect();
        Arc::clone(self.moments.write().expect("no writer panics").entry(key).or_insert(moments))
    }
}

/// Number of micro-batches under which the moments of a plan's pipeline are cached. Where the schedule
/// limits the number in flight, more micro-batches than twice the ranks change nothing.
fn distinct_micro_batches(plan: &Plan, micro_batches: f64) -> f64 {
    match plan.schedule {
        Schedule::Naive | Schedule::OneFOneB | Schedule::ZbH1 | Schedule::ZbH2 => {
            micro_batches.min(2.0 * f64::from(plan.layout.pp))
        }
        Schedule::GPipe
        | Schedule::LoopedBfs { .. }
        | Schedule::Interleaved { .. }
        | Schedule::ZbV
        | Schedule::DualPipe
        | Schedule::DualPipeV => micro_batches,
    }
}

/// Adds a moment unless another needs at least as much memory; drops those that need no more than it.
fn keep(kept: &mut Vec<Moment>, moment: &Moment) {
    let no_less = |a: &PerKind, b: &PerKind| a.iter().zip(b).all(|(a, b)| a >= b);
    // Stages in flight may free their inputs (`frees_stage_inputs`), so that more of them never need more memory.
    let covers = |a: &Moment, b: &Moment| {
        no_less(&a.in_flight, &b.in_flight) && no_less(&a.has_layers, &b.has_layers) && a.stages <= b.stages
    };
    if kept.iter().any(|known| covers(known, moment)) {
        return;
    }
    kept.retain(|known| !covers(moment, known));
    kept.push(moment.clone());
}

/// Layers of each choice in flight on each rank, at each moment that may be its peak.
fn moments_of_ranks(costs: &Costs, plan: &Plan, counts: &StageCounts) -> Vec<Vec<Moment>> {
    let (pp, m, width) = (plan.layout.pp, costs.micro_batches(plan), counts.choices.len());
    let scaled = |layers: &[f64], times: f64| -> PerKind { layers.iter().map(|count| count * times).collect() };
    let has_each =
        |layers: &[f64]| -> PerKind { layers.iter().map(|count| f64::from(u8::from(*count > 0.0))).collect() };
    if !plan.pipeline().peaks_by_chunk() {
        let of_rank = |(rank, layers): (u32, &PerKind)| {
            let in_flight = in_flight(plan.pipeline(), rank, m);
            let stages = has_layers(layers) * f64::from(plan.schedule.virtual_stages()) * in_flight;
            vec![Moment { rank, in_flight: scaled(layers, in_flight), stages, has_layers: has_each(layers) }]
        };
        return (0..pp).zip(counts.all_on_ranks(plan).each()).map(of_rank).collect();
    }
    let on_chunks = counts.all_on_chunks();
    let peaks = costs.peaks.of_pipeline(plan.pipeline(), m);
    let of_rank = |rank: u32| {
        let own = plan.pipeline().chunks_of(rank).map(|chunk| on_chunks.at(chunk));
        let (chunks, peak): (SmallVec<[&PerKind; 16]>, _) = (own.collect(), &peaks[rank as usize]);
        if chunks.iter().all(|layers| *layers == chunks[0]) {
            let (stages, in_flight) = (has_layers(chunks[0]) * peak.most, scaled(chunks[0], peak.most));
            return vec![Moment { rank, in_flight, stages, has_layers: has_each(chunks[0]) }];
        }
        let mut all = PerKind::from_elem(0.0, width);
        for &layers in &chunks {
            all.iter_mut().zip(layers).for_each(|(sum, count)| *sum += count);
        }
        let mut kept = Vec::new();
        for moment in peak.moments() {
            let mut in_flight = PerKind::from_elem(0.0, width);
            for (&layers, n) in chunks.iter().zip(moment) {
                in_flight.iter_mut().zip(layers).for_each(|(sum, count)| *sum += count * n);
            }
            let stages = chunks.iter().zip(moment).map(|(layers, n)| has_layers(layers) * n).sum();
            keep(&mut kept, &Moment { rank, in_flight, stages, has_layers: has_each(&all) });
        }
        kept
    };
    (0..pp).map(of_rank).collect()
}

/// Whether a virtual stage holds a layer: 1 or 0.
fn has_layers(layers: &[f64]) -> f64 {
    f64::from(u8::from(layers.iter().any(|count| *count > 0.0)))
}

fn work_classes(plan: &Plan, counts: &StageCounts) -> Vec<WorkClass> {
    let pp = plan.layout.pp;
    let (first, last) = (plan.pipeline().rank_of(0), plan.pipeline().last_rank());
    let mut before = PerKind::from_elem(0.0, counts.choices.len());
    let of_rank = |(rank, layers): (u32, &PerKind)| {
        let class = WorkClass {
            layers: layers.clone(),
            has_embedding: rank == first,
            has_head: rank == last,
            count: 1.0,
            layers_before: before.clone(),
            embedding_before: rank > 0,
        };
        // The first virtual stages of the ranks come first in the pipeline, in the order of ranks.
        before.iter_mut().zip(counts.chunks.at(rank)).for_each(|(sum, count)| *sum += count);
        class
    };
    let mut classes: Vec<WorkClass> = Vec::new();
    for rank in (0..pp).zip(counts.all_on_ranks(plan).each()).map(of_rank) {
        let same = |known: &&mut WorkClass| {
            known.layers == rank.layers && known.has_embedding == rank.has_embedding && known.has_head == rank.has_head
        };
        match classes.iter_mut().find(same) {
            Some(known) => *known = WorkClass { count: known.count + 1.0, ..rank },
            None => classes.push(rank),
        }
    }
    classes
}

/// Classes of ranks with equal parameters and ends of the model, over all recomputations.
fn parameter_classes(costs: &Costs, plan: &Plan, counts: &StageCounts) -> Vec<ParameterClass> {
    let pp = plan.layout.pp;
    let parameters = costs.parameters_of(plan, counts, &each_rank(pp));
    let mut classes: Vec<ParameterClass> = Vec::new();
    for rank in 0..pp {
        let has_head = plan.pipeline().holds_last(rank);
        let own = parameters[rank as usize];
        let same =
            |known: &&mut ParameterClass| parameters[known.ranks[0] as usize] == own && known.has_head == has_head;
        match classes.iter_mut().find(same) {
            Some(known) => known.ranks.push(rank),
            None => classes.push(ParameterClass { ranks: vec![rank], has_head }),
        }
    }
    classes
}
