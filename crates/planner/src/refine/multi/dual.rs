//! Lagrangian dual of the relaxation over columns: one shortest path over ranks for each vector of multipliers.
//!
//! Nothing here holds the program itself, so that nodes are raised on several threads.

use crate::refine::multi::columns::{Columns, RankColumns};
use crate::refine::multi::multipliers::Multipliers;
use crate::refine::multi::packed::{NEVER, PackedColumns, PackedRank};
use crate::refine::multi::shapes::StageShapes;
use crate::refine::paths::{length, stage_times};
use crate::refine::program::StageProgram;
use crate::refine::split::StageLoad;
use meshwright_engine::schedule::paths::{Pairing, Path};
use meshwright_engine::schedule::simulator::Simulator;

/// Columns of every rank, with the constraints that couple them.
pub struct Dual<'a> {
    /// Columns of each rank.
    pub columns: &'a Columns,
    /// Layers of each stage, by rank and column.
    pub sizes: Vec<Vec<Vec<u32>>>,
    /// Simulator of the schedule, where it has a list of operations, and the time of its pairs of passes.
    simulator: Option<&'a Simulator>,
    pairing: Pairing,
    /// Stages, and layers in all.
    stages: usize,
    items: usize,
    /// Layers of all stages of the rank together, by rank and column.
    layers: Vec<Vec<usize>>,
    /// Layers of each kind, by rank, column and kind.
    kinds: Vec<Vec<f64>>,
    /// Layers of each kind in all.
    totals: Vec<f64>,
    /// Scale of a layer relative to a second in a subgradient: about the seconds that a rank works for one layer in a step.
    pub unit: f64,
    /// Index of each rank's first entry among the times that paths count.
    from: Vec<usize>,
    /// Times of a stage that paths count: forward and backward, or weight gradients and expert traffic too.
    parts: usize,
}

/// Dependency paths of the schedule that are rows of the relaxation.
#[derive(Clone, Debug, Default)]
pub struct PathPool {
    /// The paths.
    pub paths: Vec<Path>,
    /// Visits of each path, rank by rank in the order of its times.
    counted: Vec<Vec<f64>>,
}

/// Pool shared by all nodes, and the paths that one node has met since.
pub struct PathView<'p> {
    base: &'p PathPool,
    /// Paths met since; their indices follow those of the shared pool.
    pub fresh: PathPool,
}

impl<'p> PathView<'p> {
    /// View of a shared pool, with no fresh paths.
    pub fn new(base: &'p PathPool) -> Self {
        Self { base, fresh: PathPool::default() }
    }
    fn len(&self) -> usize {
        self.base.paths.len() + self.fresh.paths.len()
    }
    fn iter(&self) -> impl Iterator<Item = &Path> {
        self.base.paths.iter().chain(&self.fresh.paths)
    }
    /// Lengths of the weighted paths over these times.
    pub fn lengths(&self, times: &[f64], at: &Multipliers) -> Vec<f64> {
        at.paths.iter().map(|of| dot(self.counted(of.path), times)).collect()
    }
    fn counted(&self, path: usize) -> &[f64] {
        let before = self.base.paths.len();
        if path < before { &self.base.counted[path] } else { &self.fresh.counted[path - before] }
    }
}

/// Paths that are known at one node, and the work done on it.
pub struct AscentProgress<'p> {
    /// Paths of the shared pool, and those that the node has met.
    pub paths: PathView<'p>,
    /// Multiplications, and operations simulated.
    pub work: usize,
}

/// Share by which a critical path must exceed the known paths to become a row.
pub const VIOLATED: f64 = 1e-4;
/// Work of pricing a column, in multiplications.
const COLUMN: usize = 24;
/// Most paths in a pool.
const MOST_PATHS: usize = 4000;

/// Minimiser of the Lagrangian for one vector of multipliers.
pub struct Minimiser {
    /// Value of the Lagrangian: a lower bound on the longest dependency path of every split of the node.
    pub value: f64,
    /// Column of each rank.
    pub chosen: Vec<usize>,
    /// Weight of a second of each stage's passes, rank by rank in the order of its times.
    pub weights: Vec<f64>,
}

impl<'a> Dual<'a> {
    /// Dual of a program's columns; `cutoff` is about the time of a pipeline.
    pub fn new(program: &'a StageProgram, columns: &'a Columns, shapes: &StageShapes, cutoff: f64) -> Self {
        let sizes = |of_rank: &RankColumns| (0..of_rank.len()).map(|column| of_rank.sizes(column, shapes)).collect();
        let sizes: Vec<Vec<Vec<u32>>> = columns.ranks.iter().map(sizes).collect();
        let sums = |of_rank: &Vec<Vec<u32>>| of_rank.iter().map(|size| size.iter().sum::<u32>() as usize).collect();
        let layers = sizes.iter().map(sums).collect();
        let kinds = |of_rank: &RankColumns| {
            (0..of_rank.len()).flat_map(|column| of_rank.kinds(column).iter().map(|&n| f64::from(n))).collect()
        };
        let kinds = columns.ranks.iter().map(kinds).collect();
        let mut totals = vec![0.0; program.layer_kinds()];
        for &kind in &program.items {
            totals[kind] += 1.0;
        }
        let schedule = program.stager.plan().schedule;
        let parts = if schedule.splits_backward() || schedule.is_bidirectional() { 4 } else { 2 };
        let mut from = vec![0];
        for of_rank in &columns.ranks {
            from.push(from[from.len() - 1] + parts * of_rank.chunks.len());
        }
        let unit = cutoff * program.ranks as f64 / program.len() as f64;
        let (simulator, pairing) = (program.simulator(), program.stager.pairs().pairing());
        let (stages, items) = (program.chunks, program.len());
        Self { columns, sizes, simulator, pairing, stages, items, layers, kinds, totals, unit, from, parts }
    }

    /// Adds a path to a pool.
    pub fn join(&self, pool: &mut PathPool, path: Path) {
        let mut counted = Vec::with_capacity(self.width());
        for of_rank in &self.columns.ranks {
            for weights in [&path.forward, &path.backward, &path.wgrad, &path.traffic].into_iter().take(self.parts) {
                counted.extend(of_rank.chunks.iter().map(|&chunk| weights[chunk]));
            }
        }
        pool.paths.push(path);
        pool.counted.push(counted);
    }

    /// Number of times that a path counts.
    pub fn width(&self) -> usize {
        self.from[self.columns.ranks.len()]
    }

    /// Work of one evaluation, in multiplications: the paths, the reduced costs, the shortest path over ranks and layers so far.
    pub fn work(&self, left: &PackedColumns, at: &Multipliers) -> usize {
        2 * self.width() * at.paths.len() + COLUMN * left.len() + left.layer_counts() * self.items
    }

    /// Weighted mean of the paths.
    fn blend(&self, multipliers: &Multipliers, paths: &PathView) -> Vec<f64> {
        let mut blend = vec![0.0; self.width()];
        for of in multipliers.paths.iter().filter(|of| of.weight > 0.0) {
            blend.iter_mut().zip(paths.counted(of.path)).for_each(|(sum, counted)| *sum += of.weight * counted);
        }
        blend
    }

    /// Packs the columns left of a node: times that paths count, unplaced recomputation, layers of each kind.
    pub fn packed(&self, left: &[Vec<usize>]) -> PackedColumns {
        let kinds = self.totals.len();
        let of_rank = |(rank, left): (usize, &Vec<usize>)| {
            let of_rank = &self.columns.ranks[rank];
            let times = self.from[rank + 1] - self.from[rank];
            let addend = |column: usize, at: usize| match at.checked_sub(times) {
                None => of_rank.times(column)[at],
                Some(0) => of_rank.unplaced(column),
                Some(kind) => self.kinds[rank][column * kinds + kind - 1],
            };
            PackedRank::new(left, |column| self.layers[rank][column], times + 1 + kinds, addend)
        };
        PackedColumns::new(left.iter().enumerate().map(of_rank).collect())
    }

    /// Factors of the addends of a rank's reduced costs.
    fn factors(&self, rank: usize, blend: &[f64], kinds: &[f64]) -> Vec<f64> {
        let counted = &blend[self.from[rank]..self.from[rank + 1]];
        let v = self.columns.ranks[rank].chunks.len();
        let unplaced = counted[v..2 * v].iter().copied().fold(NEVER, f64::min);
        counted.iter().copied().chain([unplaced]).chain(kinds.iter().map(|multiplier| -multiplier)).collect()
    }

    /// Minimises the Lagrangian: the least sum of reduced costs over ranks that together hold every layer.
    ///
    /// ```text
    /// L(w, π) = min over columns c_r of  Σ_r (Σ_k w_k·length_k(c_r) − Σ_q π_q·layers_q(c_r)) + Σ_q π_q·total_q
    /// ```
    ///
    /// over all choices of one column a rank that hold n layers together.
    ///
    /// Weak duality: for no w ≥ 0 with Σ w = 1 and no π is L above the longest path of the shortest split. `None` where no columns
    /// hold n layers together.
    pub fn minimise(&self, left: &PackedColumns, multipliers: &Multipliers, paths: &PathView) -> Option<Minimiser> {
        let blend = self.blend(multipliers, paths);
        let costs = left.costs(|rank| self.factors(rank, &blend, &multipliers.kinds));
        let cheapest = left.cheapest(&costs);
        let n = self.items;
        let mut tables = vec![vec![0.0]];
        for list in &cheapest {
            tables.push(extended(&tables[tables.len() - 1], list, n));
        }
        let sum = *tables[cheapest.len()].get(n)?;
        if sum == NEVER {
            return None;
        }
        let mut at = n;
        let mut chosen = vec![0; cheapest.len()];
        for (rank, list) in cheapest.iter().enumerate().rev() {
            let before = |layers: usize| {
                let so_far = at.checked_sub(layers).and_then(|rest| tables[rank].get(rest));
                so_far.map_or(NEVER, |so_far| so_far + list[layers])
            };
            let layers = (0..list.len()).min_by(|&a, &b| before(a).total_cmp(&before(b)))?;
            chosen[rank] = left.column(rank, layers, &costs, list[layers])?;
            at -= layers;
        }
        Some(Minimiser { value: sum + self.of_totals(multipliers), chosen, weights: blend })
    }

    /// Part of the dual that the numbers of layers give, whatever the columns.
    fn of_totals(&self, multipliers: &Multipliers) -> f64 {
        multipliers.kinds.iter().zip(&self.totals).map(|(multiplier, total)| multiplier * total).sum()
    }

    /// Value of the Lagrangian with each column of each rank: a lower bound of the splits with that column.
    pub fn bound_of_each(&self, left: &PackedColumns, multipliers: &Multipliers, paths: &PathView) -> Vec<Vec<f64>> {
        let blend = self.blend(multipliers, paths);
        let costs = left.costs(|rank| self.factors(rank, &blend, &multipliers.kinds));
        let cheapest = left.cheapest(&costs);
        let (n, ranks, given) = (self.items, cheapest.len(), self.of_totals(multipliers));
        let mut behind = vec![vec![0.0]];
        for list in cheapest.iter().rev() {
            behind.push(extended(&behind[behind.len() - 1], list, n));
        }
        let mut before = vec![0.0];
        let mut all = Vec::with_capacity(ranks);
        for (rank, list) in cheapest.iter().enumerate() {
            let behind = &behind[ranks - 1 - rank];
            let rest = |layers: usize| {
                let rest = |(at, so_far): (usize, &f64)| {
                    let last = n.checked_sub(layers + at).and_then(|rest| behind.get(rest));
                    last.map_or(NEVER, |last| so_far + last)
                };
                before.iter().enumerate().map(rest).fold(NEVER, f64::min) + given
            };
            let rests: Vec<f64> = (0..list.len()).map(rest).collect();
            all.push(left.with_rests(rank, &costs, &rests));
            before = extended(&before, list, n);
        }
        all
    }

    /// Times that paths count of a minimiser, with unplaced recomputation on the stage of its rank where it weighs the least.
    pub fn times(&self, minimiser: &Minimiser) -> Vec<f64> {
        let mut times = Vec::with_capacity(self.width());
        for (rank, (of_rank, &column)) in self.columns.ranks.iter().zip(&minimiser.chosen).enumerate() {
            let v = of_rank.chunks.len();
            times.extend_from_slice(&of_rank.times(column)[..self.parts * v]);
            let backward = self.from[rank] + v;
            let weight = |&at: &usize| minimiser.weights[backward + at];
            let least = (0..v).min_by(|a, b| weight(a).total_cmp(&weight(b))).unwrap_or_default();
            times[backward + least] += of_rank.unplaced(column);
        }
        times
    }

    /// Layers of each kind that a minimiser has too few of.
    pub fn missing(&self, minimiser: &Minimiser) -> Vec<f64> {
        let mut missing = self.totals.clone();
        for (rank, &column) in minimiser.chosen.iter().enumerate() {
            for (missing, &n) in missing.iter_mut().zip(self.columns.ranks[rank].kinds(column)) {
                *missing -= f64::from(n);
            }
        }
        missing
    }

    /// Stages with these times.
    pub fn loads(&self, times: &[f64]) -> Vec<StageLoad> {
        let mut loads = vec![StageLoad::default(); self.stages];
        for (rank, of_rank) in self.columns.ranks.iter().enumerate() {
            let v = of_rank.chunks.len();
            let own = &times[self.from[rank]..self.from[rank + 1]];
            for (at, &chunk) in of_rank.chunks.iter().enumerate() {
                let part = |part: usize| own.get(part * v + at).copied().unwrap_or_default();
                let [forward, backward, wgrad, traffic] = [part(0), part(1), part(2), part(3)];
                loads[chunk] = StageLoad { forward, backward, wgrad, traffic, ..StageLoad::default() };
            }
        }
        loads
    }

    /// Times of stages in the order in which paths count them.
    fn counted_times(&self, loads: &[StageLoad]) -> Vec<f64> {
        let parts: [fn(&StageLoad) -> f64; 4] = [|l| l.forward, |l| l.backward, |l| l.wgrad, |l| l.traffic];
        let mut times = Vec::with_capacity(self.width());
        for of_rank in &self.columns.ranks {
            for part in &parts[..self.parts] {
                times.extend(of_rank.chunks.iter().map(|&chunk| part(&loads[chunk])));
            }
        }
        times
    }

    /// Length of the longest known path over these stages, their critical path among them.
    pub fn longest_path(&self, loads: &[StageLoad], paths: &PathView) -> f64 {
        let times = self.counted_times(loads);
        let known = (0..paths.len()).map(|path| dot(paths.counted(path), &times)).fold(0.0, f64::max);
        let critical =
            self.simulator.and_then(|own| own.critical_path(&stage_times(self.pairing, loads), self.pairing));
        critical.map_or(known, |critical| known.max(length(&critical, loads)))
    }

    /// Index of a path without a weight that is at least `limit` long over these stages, a known one or else the critical path of
    /// their simulation, which joins the fresh ones.
    pub fn violated_path(
        &self,
        loads: &[StageLoad],
        at: &Multipliers,
        mut limit: f64,
        progress: &mut AscentProgress,
    ) -> Option<usize> {
        let AscentProgress { paths, work } = progress;
        let times = self.counted_times(loads);
        let lengths = (0..paths.len()).map(|path| (path, dot(paths.counted(path), &times)));
        let longest = lengths.max_by(|a, b| a.1.total_cmp(&b.1));
        *work += self.width() * paths.len();
        if let Some((path, own)) = longest
            && own >= limit
        {
            if !at.paths.iter().any(|of| of.path == path) {
                return Some(path);
            }
            limit = own * (1.0 + VIOLATED);
        }
        let simulator = self.simulator.filter(|_| paths.len() < MOST_PATHS)?;
        *work += simulator.operations();
        let path = simulator.critical_path(&stage_times(self.pairing, loads), self.pairing)?;
        if length(&path, loads) < limit || paths.iter().any(|known| *known == path) {
            return None;
        }
        self.join(&mut paths.fresh, path);
        Some(paths.len() - 1)
    }
}

/// Dot product, in four independent sums.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (first, rest) = (a.chunks_exact(4), b.chunks_exact(4));
    let last: f64 = first.remainder().iter().zip(rest.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in first.zip(rest) {
        for at in 0..4 {
            sums[at] += a[at] * b[at];
        }
    }
    sums.iter().sum::<f64>() + last
}

/// Least cost of ranks by the number of layers that they hold together, `most` or fewer, with one rank more.
fn extended(table: &[f64], list: &[f64], most: usize) -> Vec<f64> {
    let mut next = vec![NEVER; (table.len() + list.len()).saturating_sub(1).min(most + 1)];
    for (layers, &cost) in list.iter().enumerate().filter(|(_, cost)| **cost < NEVER) {
        if layers < next.len() {
            next[layers..].iter_mut().zip(table).for_each(|(to, from)| *to = to.min(from + cost));
        }
    }
    next
}
