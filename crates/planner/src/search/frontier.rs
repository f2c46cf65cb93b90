//! Frontier of a search: the shapes that are left to explore, by ascending lower bound.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::certificate::Counts;
use super::incumbents::Incumbents;
use super::pipelines::{Pipelines, ShapeBound};
use super::state::SearchState;
use super::tables::Shapes;
use crate::space::Space;
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::layer_bound;
use meshwright_engine::units::Seconds;

/// Number of shapes whose pipelines are bounded at once. It is fixed so that the counts of a search do not depend on the number
/// of threads.
const AT_ONCE: usize = 64;

/// Shape that is ready to be explored.
#[derive(Clone)]
pub(super) struct Ready {
    pub bound: Seconds,
    /// Rank by layer bound, from 1.
    pub rank: u32,
    /// Index among the shapes.
    pub index: usize,
    /// Number of its pipelines, by ascending bound, that are known not to fit.
    pub too_large: usize,
    /// Number of plans below the others.
    left: u64,
}

/// Shapes left to explore. Most are known by their layer bound alone, which is cheap but says nothing of pipelines: few
/// micro-batches on many ranks, or states that do not fit, make the best of them slow. So the pipelines of a shape are bounded
/// before it is explored, which finds good incumbents early, and most shapes are never explored.
pub(super) struct Frontier {
    /// Layer bound and index of each shape, ascending.
    by_layers: Vec<(Seconds, usize)>,
    /// Number of shapes, by ascending layer bound, whose pipelines are bounded.
    bounded: usize,
    ready: BinaryHeap<Ready>,
}

impl Frontier {
    pub fn new(costs: &Costs, space: &Space, shapes: &Shapes) -> Self {
        let fewest = if space.allows_idle() { 1 } else { costs.problem.cluster().gpus };
        let mut by_layers: Vec<(Seconds, usize)> = (0..shapes.len())
            .into_par_iter()
            .map(|index| {
                let (plan, mixing, feeding) = shapes.at(index);
                (layer_bound(costs, &plan, mixing, feeding, fewest), index)
            })
            .collect();
        by_layers.par_sort_by(|a, b| a.0.get().total_cmp(&b.0.get()).then(a.1.cmp(&b.1)));
        Self { by_layers, bounded: 0, ready: BinaryHeap::new() }
    }

    /// Bounds the pipelines of the next shapes, until the best of those is known not to be worse than any other shape.
    pub fn bound_pipelines(&mut self, pipelines: &Pipelines, shapes: &Shapes, found: &mut SearchState) {
        while let Some(&(least, _)) = self.by_layers.get(self.bounded) {
            if self.ready.peek().is_some_and(|best| best.bound < least) || found.best.is_hopeless_for_all(least) {
                return;
            }
            let from = self.bounded;
            self.bounded = (from + AT_ONCE).min(self.by_layers.len());
            let bound = |(at, &(least, index)): (usize, &(Seconds, usize))| {
                let (plan, mixing, feeding) = shapes.at(index);
                let mut counts = Counts::default();
                let bound = pipelines.bound(&plan, (mixing, feeding), least, &mut counts);
                let rank = (from + at) as u32 + 1;
                (
                    counts,
                    bound.map(|ShapeBound { bound, too_large, left }| Ready { bound, rank, index, too_large, left }),
                )
            };
            let next: Vec<(Counts, Option<Ready>)> =
                self.by_layers[from..self.bounded].par_iter().enumerate().map(bound).collect();
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

    /// The next shapes to explore; none if no plan of the others can enter the answer.
    pub fn next(&mut self, most: usize, best: &Incumbents) -> Vec<Ready> {
        let mut batch = Vec::new();
        while batch.len() < most && self.ready.peek().is_some_and(|next| !best.is_hopeless_for_all(next.bound)) {
            batch.extend(self.ready.pop());
        }
        batch
    }

    /// Lower bound of all shapes that are left; `None` if there are none.
    pub fn bound(&self) -> Option<Seconds> {
        let ready = self.ready.peek().map(|ready| ready.bound);
        let others = self.by_layers.get(self.bounded).map(|&(bound, _)| bound);
        ready.into_iter().chain(others).reduce(Seconds::min)
    }

    /// Number of plans below the pipelines of the shapes that are ready.
    pub fn plans_left(&self) -> u64 {
        self.ready.iter().map(|ready| ready.left).sum()
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
        other.bound.get().total_cmp(&self.bound.get()).then(other.rank.cmp(&self.rank))
    }
}
