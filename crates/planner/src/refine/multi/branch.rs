//! Branch and bound over the columns of ranks.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rayon::prelude::*;

use super::ascent::{Ascended, ColumnShare, Rest, SearchNode, ShortColumns, ascend};
use super::columns::Columns;
use super::dual::{Dual, PathPool};
use super::multipliers::{Multipliers, PathMultiplier};
use super::shapes::StageShapes;
use crate::refine::program::StageProgram;
use meshwright_engine::schedule::paths::Path;

/// Number of nodes whose bounds are raised in parallel, whatever the number of threads, so that all machines give one answer.
const AT_ONCE: usize = 4;

/// Relative distance from the largest reachable bound at which a node is closed: to raise its bound further takes longer than it is
/// worth.
const NEAR: f64 = 1e-5;

/// Work that is left, in multiplications and simulated operations, which are the same on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Number of multiplications and operations.
    pub left: usize,
}

/// Open node. Nodes are branched by least bound; among equal bounds the deepest first, among those the last opened.
struct OpenNode {
    /// The node itself, or its parent, which siblings share until they are branched.
    of: Arc<SearchNode>,
    /// Rank that keeps a part of its columns of the parent, and that part; none for the node itself.
    part: Option<(usize, Vec<usize>)>,
    /// Lower bound on the longest dependency path of its splits.
    bound: f64,
    /// Number of nodes opened until this one.
    number: usize,
}

impl OpenNode {
    /// The node with columns of its own.
    fn into_node(self) -> SearchNode {
        let depth = self.depth();
        let mut node = Arc::unwrap_or_clone(self.of);
        if let Some((rank, part)) = self.part {
            node.left[rank] = part;
        }
        SearchNode { bound: self.bound, depth, ..node }
    }

    /// Depth in the tree: number of its ancestors.
    fn depth(&self) -> usize {
        self.of.depth + usize::from(self.part.is_some())
    }
}

impl Ord for OpenNode {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_bound = other.bound.total_cmp(&self.bound);
        by_bound.then(self.depth().cmp(&other.depth())).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for OpenNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OpenNode {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OpenNode {}

/// Branch and bound for a lower bound on the longest dependency path of every split of some columns.
///
/// Best first: the nodes with the least bounds are branched on the layers of a rank, then on the layers of each of its
/// stages, then on what its stages recompute. Critical paths of minimisers join the rows of all nodes.
pub struct BranchAndBound<'a> {
    program: &'a StageProgram<'a>,
    stages: &'a StageShapes,
    dual: Dual<'a>,
    pool: PathPool,
    /// Cutoff: length of the longest path at which a split is no longer of interest. It falls with the incumbent.
    cutoff: f64,
    /// Open nodes, the next one to branch first.
    open: BinaryHeap<OpenNode>,
    /// Number of nodes opened so far.
    opened: usize,
    /// Least bound of the closed nodes, which are not branched further.
    proved: f64,
    /// Upper limit of the bound of the root: the least, over the splits met as minimisers, of the longest path that their
    /// columns have. The relaxation allows these columns, so that its bound cannot exceed it.
    reachable: f64,
}

impl<'a> BranchAndBound<'a> {
    /// Tree with its root: all columns of every rank, and equal weights of `paths`.
    pub fn new(
        program: &'a StageProgram<'a>,
        stages: &'a StageShapes,
        columns: &'a Columns,
        paths: Vec<Path>,
        cutoff: f64,
    ) -> Self {
        let left: Vec<Vec<usize>> = columns.ranks.iter().map(|of_rank| (0..of_rank.len()).collect()).collect();
        let even = 1.0 / paths.len() as f64;
        let multipliers = Multipliers {
            paths: (0..paths.len()).map(|path| PathMultiplier { path, weight: even }).collect(),
            kinds: vec![0.0; program.layer_kinds()],
        };
        let dual = Dual::new(program, columns, stages, cutoff);
        let mut pool = PathPool::default();
        for path in paths {
            dual.join(&mut pool, path);
        }
        let (proved, reachable) = (f64::INFINITY, f64::INFINITY);
        let mut tree =
            Self { program, stages, dual, pool, cutoff, open: BinaryHeap::new(), opened: 0, proved, reachable };
        tree.open(&Arc::new(SearchNode { left, multipliers, bound: 0.0, depth: 0, leaf: false }), None, 0.0);
        tree
    }

    /// Lower bound in seconds, at most the cutoff. Splits that minimise the dual and have no path over the cutoff are passed to
    /// `simulate` as cuts; it returns the new cutoff.
    pub fn lower_bound(mut self, budget: &mut Budget, simulate: &mut dyn FnMut(Vec<usize>) -> f64) -> f64 {
        while budget.left > 0 {
            let next = self.next();
            if next.is_empty() {
                break;
            }
            let before = self.pool.paths.len();
            let ascended: Vec<Ascended> =
                next.into_par_iter().map(|node| ascend(&self.dual, &self.pool, node, self.cutoff)).collect();
            for ascended in ascended {
                budget.left = budget.left.saturating_sub(ascended.work);
                self.apply(ascended, before, simulate);
            }
        }
        self.open.peek().map_or(self.proved, |first| first.bound.min(self.proved)).min(self.cutoff)
    }

    /// Bound at which a node is closed.
    fn closing_bound(&self) -> f64 {
        self.cutoff.min(self.proved).min(self.reachable * (1.0 - NEAR))
    }

    /// Opens a node, or closes it at once where its bound suffices: the closing bound never rises.
    fn open(&mut self, of: &Arc<SearchNode>, part: Option<(usize, Vec<usize>)>, bound: f64) {
        if bound >= self.closing_bound() {
            self.proved = self.proved.min(bound);
            return;
        }
        self.opened += 1;
        self.open.push(OpenNode { of: Arc::clone(of), part, bound, number: self.opened });
    }

    /// Up to [`AT_ONCE`] open nodes in reverse order of branching: the next one is the last.
    fn next(&mut self) -> Vec<SearchNode> {
        let mut next = Vec::with_capacity(AT_ONCE);
        while next.len() < AT_ONCE && self.open.peek().is_some_and(|first| first.bound < self.closing_bound()) {
            next.extend(self.open.pop().map(OpenNode::into_node));
        }
        next.reverse();
        next
    }

    /// Applies the outcome of a node's ascent, which began with `before` paths in the pool, and branches the node if it survives.
    fn apply(&mut self, ascended: Ascended, before: usize, simulate: &mut dyn FnMut(Vec<usize>) -> f64) {
        let places = self.join(ascended.fresh, before);
        if let Some(ShortColumns { chosen, longest }) = ascended.short
            && let Some(cuts) = self.cuts(&chosen)
        {
            self.reachable = self.reachable.min(longest);
            self.cutoff = simulate(cuts).min(self.cutoff);
        }
        let Some(Rest { mut node, shares, each }) = ascended.rest else { return };
        for PathMultiplier { path, .. } in &mut node.multipliers.paths {
            *path = if *path < before { *path } else { places[*path - before] };
        }
        let Some(Branching { rank, parts }) = self.branching(&node, &shares) else {
            return self.leaf(node, &shares, simulate);
        };
        let node = Arc::new(node);
        let bound_with =
            |column: &usize| node.left[rank].binary_search(column).map_or(f64::INFINITY, |at| each[rank][at]);
        for part in parts {
            let bound = part.iter().map(bound_with).fold(f64::INFINITY, f64::min).max(node.bound);
            self.open(&node, Some((rank, part)), bound);
        }
    }

    /// Branches a node in which each rank has one number of layers for each stage. That fixes the cuts and the kinds of layer; only
    /// the recomputation is left to choose.
    fn leaf(&mut self, mut node: SearchNode, shares: &[Vec<ColumnShare>], simulate: &mut dyn FnMut(Vec<usize>) -> f64) {
        let mut cuts = vec![0; self.program.chunks + 1];
        for (rank, left) in node.left.iter().enumerate() {
            let of_rank = &self.dual.columns.ranks[rank];
            for (&chunk, &layers) in of_rank.chunks.iter().zip(&self.dual.sizes[rank][left[0]]) {
                cuts[chunk + 1] = layers as usize;
            }
        }
        for chunk in 1..cuts.len() {
            cuts[chunk] += cuts[chunk - 1];
        }
        for (of_rank, left) in self.dual.columns.ranks.iter().zip(&mut node.left) {
            left.retain(|&column| {
                of_rank.chunks.iter().zip(of_rank.shapes(column)).all(|(&chunk, &shape)| {
                    let counts = self.stages.shapes()[shape].counts.iter().copied();
                    self.program.counts_between(cuts[chunk], cuts[chunk + 1]).eq(counts)
                })
            });
        }
        if node.left.iter().any(Vec::is_empty) {
            return;
        }
        if !node.leaf {
            let bound = node.bound;
            self.open(&Arc::new(SearchNode { depth: node.depth + 1, leaf: true, ..node }), None, bound);
            return;
        }
        self.cutoff = simulate(cuts).min(self.cutoff);
        if let Some(Branching { rank, parts }) = halves(&self.dual, &node, shares) {
            let node = Arc::new(node);
            for part in parts {
                self.open(&node, Some((rank, part)), node.bound);
            }
            return;
        }
        self.proved = self.proved.min(node.bound);
    }

    /// Adds fresh paths to the pool and returns their indices there; nodes that were raised in parallel may have found the same.
    fn join(&mut self, fresh: PathPool, before: usize) -> Vec<usize> {
        let mut places = Vec::with_capacity(fresh.paths.len());
        for path in fresh.paths {
            let at = self.pool.paths[before..].iter().position(|known| *known == path);
            places.push(before + at.unwrap_or(self.pool.paths.len() - before));
            if at.is_none() {
                self.dual.join(&mut self.pool, path);
            }
        }
        places
    }

    /// Cuts of the split that the chosen column of each rank describes; `None` where the model's order of kinds does not allow
    /// it.
    fn cuts(&self, chosen: &[usize]) -> Option<Vec<usize>> {
        let program = self.program;
        let mut shapes = vec![0; program.chunks];
        for (of_rank, &column) in self.dual.columns.ranks.iter().zip(chosen) {
            for (&chunk, &shape) in of_rank.chunks.iter().zip(of_rank.shapes(column)) {
                shapes[chunk] = shape;
            }
        }
        let mut cuts = vec![0];
        for (chunk, shape) in shapes.into_iter().enumerate() {
            let (a, shape) = (cuts[chunk], &self.stages.shapes()[shape]);
            let b = a + shape.counts.iter().sum::<u32>() as usize;
            if b > program.len() || !program.counts_between(a, b).eq(shape.counts.iter().copied()) {
                return None;
            }
            cuts.push(b);
        }
        (cuts[program.chunks] == program.len()).then_some(cuts)
    }

    /// Rank to branch on, with its columns in parts of equal layers of the rank or, where no rank's columns differ in these, of
    /// equal layers of each stage. `None` where they differ in neither.
    fn branching(&self, here: &SearchNode, shares: &[Vec<ColumnShare>]) -> Option<Branching> {
        let by_rank = |rank: usize, column: usize| self.dual.sizes[rank][column].iter().sum::<u32>();
        let by_stage = |rank: usize, column: usize| &self.dual.sizes[rank][column];
        most_mixed(here, shares, by_rank).or_else(|| most_mixed(here, shares, by_stage))
    }
}

/// Rank to branch on, with its columns in parts, one for each new node.
struct Branching {
    rank: usize,
    parts: Vec<Vec<usize>>,
}

/// Rank whose mean of minimisers is the most fractional, with its columns in parts of equal keys: the rank whose largest part has
/// the smallest share.
fn most_mixed<K: PartialEq>(
    here: &SearchNode,
    shares: &[Vec<ColumnShare>],
    key: impl Fn(usize, usize) -> K,
) -> Option<Branching> {
    let (mut least, mut found) = (f64::INFINITY, None);
    for (rank, left) in here.left.iter().enumerate() {
        let mut parts: Vec<(K, Vec<usize>)> = Vec::new();
        for &column in left {
            let key = key(rank, column);
            match parts.iter_mut().find(|part| part.0 == key) {
                Some(part) => part.1.push(column),
                None => parts.push((key, vec![column])),
            }
        }
        if parts.len() < 2 {
            continue;
        }
        let share = |part: &[usize]| -> f64 {
            shares[rank].iter().filter(|of| part.contains(&of.column)).map(|of| of.share).sum()
        };
        let most = parts.iter().map(|part| share(&part.1)).fold(0.0, f64::max);
        if most < least {
            least = most;
            found = Some(Branching { rank, parts: parts.into_iter().map(|part| part.1).collect() });
        }
    }
    found
}

/// Rank whose mean of minimisers is the most fractional, with its columns in two parts about the mean. `None` where no rank has
/// several columns of which all are listed.
fn halves(dual: &Dual, here: &SearchNode, shares: &[Vec<ColumnShare>]) -> Option<Branching> {
    let (mut least, mut found) = (f64::INFINITY, None);
    for (rank, left) in here.left.iter().enumerate() {
        if left.len() < 2 || !dual.columns.ranks[rank].listed {
            continue;
        }
        let (mut most, mut sum, mut all) = (0.0_f64, 0.0, 0.0);
        for ColumnShare { column, share } in &shares[rank] {
            most = most.max(*share);
            sum += share * left.binary_search(column).unwrap_or_default() as f64;
            all += share;
        }
        if most < least {
            let (first, second) = left.split_at(((sum / all) as usize + 1).clamp(1, left.len() - 1));
            least = most;
            found = Some(Branching { rank, parts: vec![first.to_vec(), second.to_vec()] });
        }
    }
    found
}
