//! Frontier of a search: the shapes that are left to explore, by ascending lower bound of the objective.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use rayon::prelude::*;

use super::bounded::{BoundKey, BoundOrder, ShapeBound};
use super::certificate::Counts;
use super::incumbents::Incumbents;
use super::options::{Goal, Objective};
use super::pipelines::Pipelines;
use super::state::SearchState;
use super::tables::{SearchShape, Shapes};
use crate::space::Rejection;
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::incremental::{Price, layer_bound};
use meshwright_engine::units::Bytes;

/// Number of shapes whose pipelines are bounded at once. It is fixed so that the counts of a search do not depend on the number
/// of threads.
const AT_ONCE: usize = 64;

/// Shape that is ready to be explored.
#[derive(Clone)]
pub(super) struct Ready {
    /// Lower bound of its plans; the memory is zero unless the search minimises it or layouts are left out by it.
    pub bound: Price,
    /// Key of the order of shapes: the bound of the memory where the search minimises it, else of the step time.
    key: f64,
    /// Rank by layer bound, from 1.
    pub rank: u32,
    /// Index among the shapes.
    pub index: usize,
    /// Limit of the memory: layouts whose states alone exceed it were left out; none if no layout was looked at so.
    pub most: Option<Bytes>,
    /// Key of the first of its layouts, by ascending layer bound, whose pipelines are not bounded.
    pub next: Option<BoundKey>,
    /// Key of the first pipeline, by ascending bound, whose states fit, among layouts whose pipelines are bounded.
    pub first: BoundKey,
    /// Number of plans of these layouts.
    left: u64,
}

/// Shape that is known by its layer bound.
#[derive(Clone, Copy)]
struct UnopenedShape {
    /// Lower bound of its plans.
    bound: Price,
    /// Index among the shapes.
    index: usize,
    /// Rank by layer bound, from 1.
    rank: u32,
}

/// Shapes left to explore. Most are known by their layer bound alone, which is cheap but says nothing of pipelines: few
/// micro-batches on many ranks, or states that do not fit, make the best of them slow. So the pipelines of a shape are bounded
/// before it is explored, which finds good incumbents early, and most shapes are never explored.
pub(super) struct Frontier {
    /// Every shape, by ascending key.
    by_layers: Vec<UnopenedShape>,
    /// Bound by which shapes are explored.
    order: BoundOrder,
    /// Number of shapes, by ascending layer bound, whose pipelines are bounded.
    bounded: usize,
    ready: BinaryHeap<Ready>,
    /// Number of plans below shapes that were ready and are excluded.
    excluded: u64,
}

impl Frontier {
    pub fn new(pipelines: &Pipelines, shapes: &Shapes, goal: Goal) -> Self {
        let costs = pipelines.costs;
        let order = if goal == Goal::Best(Objective::Memory) { BoundOrder::Memory } else { BoundOrder::Time };
        let gpus = costs.problem.cluster().gpus;
        let may_gather = pipelines.tables.engines(2).gathered;
        let fewest = if pipelines.space.allows_idle() { 1 } else { gpus };
        let mut by_layers: Vec<UnopenedShape> = (0..shapes.len())
            .into_par_iter()
            .map(|index| {
                let SearchShape { plan, parts } = shapes.at(index);
                let time = layer_bound(costs, &plan, parts, &(fewest..=gpus), may_gather);
                UnopenedShape { bound: Price { time, memory: Bytes::ZERO }, index, rank: 0 }
            })
            .collect();
        sort_by_numbers(&mut by_layers, |shape| [shape.bound.time.get()]);
        by_layers.iter_mut().zip(1..).for_each(|(shape, rank)| shape.rank = rank);
        if order == BoundOrder::Memory || pipelines.has_ends() {
            let mut known = BTreeMap::new();
            for shape in &mut by_layers {
                let plan = shapes.at(shape.index).plan;
                let Price { time, memory } = *known
                    .entry(pipelines.layout_bounds_key(&plan))
                    .or_insert_with(|| pipelines.beside_layers(&plan, order));
                shape.bound = Price { time: shape.bound.time + time, memory };
            }
            sort_by_numbers(&mut by_layers, |shape| [order.key(shape.bound)]);
        }
        Self { by_layers, order, bounded: 0, ready: BinaryHeap::new(), excluded: 0 }
    }

    /// Bounds the pipelines of the next shapes, until the best of those is known not to be worse than any other shape.
    pub fn bound_pipelines(&mut self, pipelines: &Pipelines, shapes: &Shapes, found: &mut SearchState) {
        while let Some(&UnopenedShape { bound: least, .. }) = self.by_layers.get(self.bounded) {
            let has_better = self.ready.peek().is_some_and(|best| best.key < self.order.key(least));
            if has_better || found.best.is_hopeless_for_all(least) {
                return;
            }
            let from = self.bounded;
            self.bounded = (from + AT_ONCE).min(self.by_layers.len());
            let has_example = found.counts.has_rejected(Rejection::OUT_OF_MEMORY);
            let best = &found.best;
            let bound = |&UnopenedShape { bound: least, index, rank }: &UnopenedShape| {
                let mut counts = Counts::default();
                let bound = pipelines.bound(&shapes.at(index), least.time, has_example, best, &mut counts);
                let ready = bound.map(|ShapeBound { bound: time, memory, most, next, first, left }| {
                    let bound = Price { time, memory: memory.max(least.memory) };
                    Ready { bound, key: self.order.key(bound), rank, index, most, next, first, left }
                });
                (counts, ready)
            };
            let next: Vec<(Counts, Option<Ready>)> = self.by_layers[from..self.bounded].par_iter().map(bound).collect();
            for (counts, ready) in next {
                found.counts.add(counts);
                self.ready.extend(ready);
            }
        }
    }

    /// The shapes of least bound, which stay to be explored.
    pub fn leaders(&mut self, most: usize) -> Vec<Ready> {
        let leaders: Vec<Ready> = std::iter::from_fn(|| self.ready.pop()).take(most).collect();
        self.ready.extend(leaders.iter().cloned());
        leaders
    }

    /// The next shapes to explore; none if no plan of the others can enter the answer. Where no objective ranks the
    /// shapes, all of them are tested: one that cannot says nothing about the next.
    pub fn next(&mut self, most: usize, best: &Incumbents) -> Vec<Ready> {
        let mut batch = Vec::new();
        while batch.len() < most
            && let Some(next) = self.ready.pop()
        {
            if !best.is_hopeless_for_all(next.bound) {
                batch.push(next);
            } else if best.objective().is_none() {
                self.excluded += next.left;
            } else {
                self.ready.push(next);
                break;
            }
        }
        batch
    }

    /// Whether shapes are left whose pipelines are not bounded and may enter the answer.
    pub fn has_more(&self, best: &Incumbents) -> bool {
        self.by_layers.get(self.bounded).is_some_and(|shape| !best.is_hopeless_for_all(shape.bound))
    }

    /// Lower bound of all shapes that are left; `None` if there are none.
    pub fn bound(&self) -> Option<Price> {
        let others = || self.by_layers[self.bounded..].iter().map(|shape| shape.bound);
        if self.order == BoundOrder::Memory {
            let least = |a: Price, b: Price| Price { time: a.time.min(b.time), memory: a.memory.min(b.memory) };
            return self.ready.iter().map(|ready| ready.bound).chain(others()).reduce(least);
        }
        let ready = self.ready.peek().map(|ready| ready.bound);
        ready.into_iter().chain(others().next()).min_by(|a, b| a.time.get().total_cmp(&b.time.get()))
    }

    /// Number of plans below the pipelines of the shapes that are ready or were excluded.
    pub fn plans_left(&self) -> u64 {
        self.excluded + self.ready.iter().map(|ready| ready.left).sum::<u64>()
    }
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    /// The shape to explore first is the greatest: the least bound, then the first by layer bound.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.total_cmp(&self.key).then(other.rank.cmp(&self.rank))
    }
}
