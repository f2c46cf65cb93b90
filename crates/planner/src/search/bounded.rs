//! Layouts and pipelines of one shape with their lower bounds, in the order in which they are explored.

use std::cmp::Ordering;
use std::rc::Rc;

use super::incumbents::Incumbents;
use super::menus::ReplicatedEnds;
use super::options::Objective;
use super::tables::PipelineEntry;
use meshwright_engine::cost::incremental::{AroundFlow, Price, Stages};
use meshwright_engine::plan::{Plan, Recompute};
use meshwright_engine::split::LayerSplit;
use meshwright_engine::units::{Bytes, Seconds};

/// Lower bound by which shapes are explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundOrder {
    /// Bound of the step time.
    Time,
    /// Bound of the memory, where the search minimises it.
    Memory,
}

impl BoundOrder {
    /// The number that orders a bound: seconds or bytes.
    pub const fn key(self, bound: Price) -> f64 {
        match self {
            Self::Time => bound.time.get(),
            Self::Memory => bound.memory.get(),
        }
    }
}

/// Lower bound of all plans of a shape, and the pipelines that are left to explore.
pub(super) struct ShapeBound {
    pub bound: Seconds,
    /// Lower bound of their memory; zero unless layouts are left out by it.
    pub memory: Bytes,
    /// Limit of the memory: layouts whose states alone exceed it were left out; none if no layout was looked at so.
    pub most: Option<Bytes>,
    /// Key of the first of its layouts, by ascending layer bound, whose pipelines are not bounded.
    pub next: Option<BoundKey>,
    /// Key of the first pipeline, by ascending bound, whose states fit, among layouts whose pipelines are bounded.
    pub first: BoundKey,
    /// Number of plans of these layouts.
    pub left: u64,
}

/// Lower bounds of the time at the ends of a step of the plans of a layout: of the update on the host of what memory
/// has no room for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeastEnds {
    /// Under ZeRO 0 to 2.
    pub replicated: Seconds,
    /// Under ZeRO 3.
    pub gathered: Seconds,
}

/// Legal layout of a shape, with a lower bound of its plans over all pipelines.
pub(super) struct BoundedLayout {
    /// The plan, but for its pipeline, recomputation, offload and sharding.
    pub plan: Plan,
    /// Number of its shardings.
    pub shardings: u64,
    /// Layer bound of its GPUs, and lower bound of its memory, which is zero unless layouts are left out by it.
    pub bound: Price,
    /// Lower bounds of the time at the ends of a step of its plans under ZeRO 0 to 2; zero where no objective ranks plans.
    pub ends: ReplicatedEnds,
    /// Number of its first pipeline among those of the shape.
    pub number: u32,
}

impl BoundedLayout {
    /// Key of its order among the layouts.
    pub fn key(&self) -> BoundKey {
        BoundKey::new(self.bound.time, self.number)
    }
}

/// Key of the order of the layouts or pipelines of a shape: by lower bound of the step time, of equal bounds by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BoundKey {
    /// Bits of the lower bound in seconds. Bits of numbers that are not negative are in the order of the numbers.
    bits: u64,
    /// Number of the pipeline, or of the first of the layout, among those of the shape.
    number: u32,
}

impl BoundKey {
    /// Key of a lower bound and a number.
    pub const fn new(bound: Seconds, number: u32) -> Self {
        Self { bits: bound.get().to_bits(), number }
    }
}

/// Lower bounds of the plans of a legal pipeline.
pub(super) struct PipelineBound {
    /// Of their step time, and of their memory, which is zero unless layouts are left out by it.
    pub price: Price,
    /// Number of the plans.
    pub plans: u64,
    /// Key of its order among the pipelines of the shape.
    pub key: BoundKey,
}

impl PipelineBound {
    /// Whether its lower bound exceeds the cutoff of a search for the fastest plans: it then comes after all pipelines that are
    /// explored, by ascending bound.
    pub fn is_too_slow(&self, best: &Incumbents) -> bool {
        best.objective() == Some(Objective::StepTime) && best.is_hopeless_for_all(self.price)
    }
}

/// Legal pipeline of a shape, with a lower bound of its step time.
pub(super) struct BoundedPipeline<'p> {
    /// The plan, but for its recomputation, offload and sharding.
    pub plan: Plan,
    /// Its lightest recomputation.
    pub lightest: Recompute,
    /// Index of that in the table.
    pub at: usize,
    pub entry: &'p PipelineEntry,
    /// Number of shardings of its layout.
    pub shardings: u64,
    /// Classes of its ranks.
    pub stages: &'p Stages,
    pub ends: LeastEnds,
    /// Sends, stragglers and exchange around the flow of the pipelines of its layout.
    pub around: Rc<AroundFlow>,
    pub bound: Seconds,
    /// Lower bound of the memory of its plans; zero unless layouts are left out by it.
    pub memory: Bytes,
    /// Number among the pipelines of the shape, in the order of the space.
    pub number: u32,
}

impl BoundedPipeline<'_> {
    /// Number of plans below it.
    pub const fn plans(&self) -> u64 {
        self.entry.below * self.shardings
    }

    /// Key of its order among the pipelines.
    pub fn key(&self) -> BoundKey {
        BoundKey::new(self.bound, self.number)
    }

    /// Whether none of its plans can enter the answer, by its bounds.
    pub fn is_hopeless(&self, best: &Incumbents) -> bool {
        best.is_hopeless(&self.plan.layout, Price { time: self.bound, memory: self.memory })
    }

    /// Whether all its plans have the same layers on each virtual stage: a cost-balanced split depends on the recomputation.
    pub fn has_one_split(&self) -> bool {
        self.plan.split != LayerSplit::CostBalanced || self.entry.recomputes.len() == 1
    }
}

impl PartialEq for BoundedPipeline<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for BoundedPipeline<'_> {}

impl PartialOrd for BoundedPipeline<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BoundedPipeline<'_> {
    /// The first to explore is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}
