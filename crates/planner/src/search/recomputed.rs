//! Layers of one shape under each recomputation.

use std::cell::OnceCell;

use super::groups::Groups;
use super::tables::{SearchShape, Tables};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{Block, Layers};
use meshwright_engine::plan::{Plan, Recompute};

/// Layers of one shape under each recomputation, computed on first use.
pub(super) struct Recomputed<'r> {
    costs: &'r Costs<'r>,
    shape: &'r Plan,
    block: Block,
    known: Vec<(Recompute, OnceCell<Layers>)>,
    /// Cost of the head in a pipeline, in layers, under each recomputation.
    heads: Vec<OnceCell<f64>>,
    /// Smallest and largest of those.
    range_of_heads: OnceCell<(f64, f64)>,
    floor: OnceCell<Layers>,
    groups: OnceCell<Groups>,
}

impl<'r> Recomputed<'r> {
    pub fn new(costs: &'r Costs<'r>, tables: &Tables, shape: &'r SearchShape) -> Self {
        let SearchShape { plan: ref shape, parts } = *shape;
        let known: Vec<_> = tables.recomputes().iter().map(|recompute| (*recompute, OnceCell::new())).collect();
        let heads = vec![OnceCell::new(); known.len()];
        let block = Block::new(costs, shape, parts);
        let (range_of_heads, floor, groups) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { costs, shape, block, known, heads, range_of_heads, floor, groups }
    }

    /// Layers with the smallest memory over all recomputations, term by term: a lower bound of each.
    pub fn floor(&self) -> &Layers {
        self.floor.get_or_init(|| self.at(0).floor())
    }

    /// Groups of recomputations that take about as long.
    pub fn groups(&self) -> &Groups {
        let priced = || (0..self.known.len()).map(|index| (self.known[index].0, self.at(index)));
        self.groups.get_or_init(|| Groups::new(priced()))
    }

    /// Layers under the recomputation of this index.
    pub fn at(&self, index: usize) -> &Layers {
        let (recompute, cell) = &self.known[index];
        cell.get_or_init(|| self.block.layers(self.costs, &Plan { recompute: *recompute, ..self.shape.clone() }))
    }

    /// Cost of the head in a pipeline, in layers, under the recomputation of this index.
    pub fn head(&self, index: usize) -> f64 {
        let plan = || Plan { recompute: self.known[index].0, ..self.shape.clone() };
        *self.heads[index].get_or_init(|| self.block.head_in_pipeline(self.costs, &plan()))
    }

    /// Smallest and largest cost of the head in a pipeline, in layers, under any recomputation.
    pub fn range_of_heads(&self) -> (f64, f64) {
        let wider = |(least, most): (f64, f64), head: f64| (least.min(head), most.max(head));
        let heads = || (0..self.known.len()).map(|index| self.head(index));
        *self.range_of_heads.get_or_init(|| heads().fold((f64::INFINITY, 0.0), wider))
    }
}
