//! Every stage that fits its rank, and shortest paths over cuts through them.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::refine::edges::Edges;
use crate::refine::paths::PathWeights;
use crate::refine::program::StageProgram;
use crate::refine::split::{StageLoad, StageParameters};
use meshwright_engine::schedule::paths::Path;

/// First items that each stage may have.
pub type FirstItems = Vec<Range<usize>>;

/// Every stage that fits, by first item and length, under a ceiling on its time.
pub struct StageTable {
    ranks: usize,
    items: usize,
    stages: Vec<Fitting>,
}

/// Loads of one stage. Layers that are identical but for their order share one.
struct Fitting {
    loads: Vec<StageLoad>,
    /// `of[a]` = the loads of `a..a`, `a..a+1`, … while they fit and stay under the ceiling; none where they do not.
    of: Vec<Vec<Option<u32>>>,
}

/// Classes of stretches of items that hold identical layers but for their order: the class of `a..b` is `of[a][b - a]`.
struct IdenticalLayers {
    of: Vec<Vec<u32>>,
    count: usize,
}

impl IdenticalLayers {
    fn new(program: &StageProgram) -> Self {
        // Items of each kind, and those that are multi-token prediction: what a load depends on beside its stage.
        let mut known: BTreeMap<SmallVec<[u32; 6]>, u32> = BTreeMap::new();
        let depth = |at: usize| at.saturating_sub(program.decoder_layers) as u32;
        let items = program.len();
        let mut number = |a: usize, b: usize| {
            let layers = program.counts_between(a, b).chain([depth(b) - depth(a)]).collect();
            let next = known.len() as u32;
            *known.entry(layers).or_insert(next)
        };
        let of = (0..=items).map(|a| (a..=items).map(|b| number(a, b)).collect()).collect();
        Self { of, count: known.len() }
    }
}

/// Verdict on some layers as one stage.
#[derive(Clone, Copy)]
enum Verdict {
    /// They take longer than the ceiling or do not fit, and so do any more layers.
    Beyond,
    /// They cannot be a stage, but more layers may be.
    No,
    /// Their load.
    StageLoad(u32),
}

impl Fitting {
    fn new(program: &StageProgram, identical: &IdenticalLayers, stage: usize, ceiling: f64) -> Self {
        let mut loads = Vec::new();
        let mut of_layers = |a: usize, b: usize| {
            if program.fastest(stage, a, b).busy > ceiling {
                return Verdict::Beyond;
            }
            let load = if program.may_hold(stage, a, b) { program.fitting(stage, a, b) } else { None };
            match load {
                None if b > a && program.least_excess(stage, a, b) > 0.0 => Verdict::Beyond,
                Some(load) if load.busy <= ceiling => {
                    loads.push(load);
                    Verdict::StageLoad(loads.len() as u32 - 1)
                }
                None | Some(_) => Verdict::No,
            }
        };
        let mut known: Vec<Option<Verdict>> = vec![None; identical.count];
        let of = identical.of.iter().enumerate().map(|(a, layers)| {
            let mut here = Vec::new();
            for (len, &layers) in layers.iter().enumerate() {
                match *known[layers as usize].get_or_insert_with(|| of_layers(a, a + len)) {
                    Verdict::Beyond => break,
                    Verdict::No => here.push(None),
                    Verdict::StageLoad(load) => here.push(Some(load)),
                }
            }
            here
        });
        let of = of.collect();
        Self { loads, of }
    }

    /// Ends of stages that begin at `a`, with their loads.
    fn from(&self, a: usize) -> impl Iterator<Item = (usize, usize)> {
        self.of[a].iter().enumerate().filter_map(move |(len, load)| Some((a + len, (*load)? as usize)))
    }
}

impl StageTable {
    /// Table of every stage whose fastest time is within `ceiling` and that fits its rank.
    pub fn new(program: &StageProgram, ceiling: f64) -> Self {
        let identical = IdenticalLayers::new(program);
        let stages = (0..program.chunks).map(|stage| Fitting::new(program, &identical, stage, ceiling)).collect();
        Self { ranks: program.chunks, items: program.len(), stages }
    }

    /// Stages within `high` that lie on a split of stages within `high` where every stage begins in its window.
    pub fn usable(&self, high: f64, windows: &FirstItems) -> Arcs {
        let n = self.items;
        let within: Vec<Vec<bool>> = self
            .stages
            .iter()
            .map(|stage| stage.loads.iter().map(|load| load.busy - load.slack <= high).collect())
            .collect();
        let mut ends = vec![vec![false; n + 1]; self.ranks + 1]; // from which the rest can be covered
        ends[self.ranks][n] = true;
        for stage in (0..self.ranks).rev() {
            for a in windows[stage].clone() {
                ends[stage][a] = self.stages[stage].from(a).any(|(b, load)| ends[stage + 1][b] && within[stage][load]);
            }
        }
        let mut reached = vec![0];
        let stages = (0..self.ranks)
            .map(|stage| {
                let arcs = StageArcs::new(&self.stages[stage], &within[stage], &reached, &ends[stage + 1]);
                reached = (0..=n).filter(|&b| !arcs.ending(b).is_empty()).collect();
                arcs
            })
            .collect();
        Arcs { items: n, stages }
    }

    /// All first items of every stage: no split is left out.
    pub fn windows(&self) -> FirstItems {
        vec![0..self.items + 1; self.ranks]
    }

    /// Least time of the slowest stage over all splits.
    pub fn bottleneck(&self) -> Option<f64> {
        let n = self.items;
        let mut best = vec![f64::INFINITY; n + 1];
        best[0] = 0.0;
        for stage in &self.stages {
            let mut next = vec![f64::INFINITY; n + 1];
            for (a, &so_far) in best.iter().enumerate().filter(|(_, so_far)| so_far.is_finite()) {
                for (b, load) in stage.from(a) {
                    next[b] = next[b].min(so_far.max(stage.loads[load].busy));
                }
            }
            best = next;
        }
        (best[n].is_finite()).then_some(best[n])
    }

    /// Least length of a dependency path over all splits.
    pub fn shortest(&self, path: &Path) -> Option<f64> {
        let weights = PathWeights::of(self.ranks, [(path, 1.0)].into_iter());
        let arcs = self.usable(f64::INFINITY, &self.windows());
        self.shortest_path(&arcs, |stage, load| weights.length_of(stage, load)).map(|path| path.length)
    }

    /// Bounds on the parts of a step outside the pipeline: parameters of the heaviest rank, windows that hide communication.
    ///
    /// The heaviest rank of a split holds at least H parameters, H = the least over splits of their most; of those no more
    /// than the most that any stage here holds are experts, and no more than the most are dense.
    pub fn edges(&self, program: &StageProgram, arcs: &Arcs) -> Edges {
        let n = self.items;
        let mut best = vec![f64::INFINITY; n + 1];
        best[0] = 0.0;
        let (mut most, mut forward, mut backward) = (StageParameters::default(), 0.0_f64, 0.0_f64);
        for (stage, arcs) in arcs.stages.iter().enumerate() {
            let mut next = vec![f64::INFINITY; n + 1];
            for (b, next) in next.iter_mut().enumerate() {
                for arc in arcs.ending(b) {
                    let a = arc.first as usize;
                    let own = program.parameters(stage, a, b);
                    most = most.max(own);
                    *next = next.min(best[a].max(own.total()));
                }
            }
            for &load in &arcs.loads {
                let load = self.load(stage, load);
                (forward, backward) = (forward.max(load.forward), backward.max(load.backward));
            }
            best = next;
        }
        let least = if best[n].is_finite() { best[n] } else { 0.0 };
        Edges { dense: (least - most.experts).max(0.0), experts: (least - most.dense).max(0.0), forward, backward }
    }

    /// Loads of a split.
    pub fn loads(&self, cuts: &[usize]) -> Option<Vec<StageLoad>> {
        let stages = self.stages.iter().zip(cuts.windows(2));
        stages
            .map(|(stage, cut)| {
                let id = (*stage.of.get(cut[0])?.get(cut[1].checked_sub(cut[0])?)?)?;
                Some(stage.loads[id as usize])
            })
            .collect()
    }

    fn load(&self, stage: usize, load: u32) -> &StageLoad {
        &self.stages[stage].loads[load as usize]
    }

    /// Whether a stage has a load here that is slower than `low`.
    pub fn any_slower(&self, arcs: &Arcs, stage: usize, low: f64) -> bool {
        arcs.stages[stage].loads.iter().any(|&load| self.load(stage, load).busy > low)
    }

    /// Shortest path over cuts where `length` is that of a stage with a load; stages of infinite length are left out.
    pub fn shortest_path(&self, arcs: &Arcs, length: impl Fn(usize, &StageLoad) -> f64) -> Option<ShortestPath> {
        let n = arcs.items;
        let width = n + 1;
        let mut lengths = vec![f64::INFINITY; self.stages.iter().map(|stage| stage.loads.len()).sum()];
        let mut first = Vec::with_capacity(self.stages.len() + 1); // of each stage among the lengths
        first.push(0);
        let mut sums = vec![f64::INFINITY; width * (arcs.stages.len() + 1)];
        sums[0] = 0.0;
        for (stage, arcs) in arcs.stages.iter().enumerate() {
            let loads = &self.stages[stage].loads;
            let own = &mut lengths[first[stage]..first[stage] + loads.len()];
            first.push(first[stage] + loads.len());
            for &load in &arcs.loads {
                own[load as usize] = length(stage, &loads[load as usize]);
            }
            let (before, next) = sums[stage * width..(stage + 2) * width].split_at_mut(width);
            for b in arcs.ends.clone() {
                let mut least = f64::INFINITY;
                for &Arc { first, load } in arcs.ending(b) {
                    let sum = before[first as usize] + own[load as usize];
                    least = if sum < least { sum } else { least };
                }
                next[b] = least;
            }
        }
        let sums = |stage: usize, at: usize| sums[stage * width + at];
        let whole = sums(arcs.stages.len(), n);
        if whole.is_infinite() {
            return None;
        }
        let mut cuts = Vec::with_capacity(arcs.stages.len() + 1);
        cuts.push(n);
        for (stage, arcs) in arcs.stages.iter().enumerate().rev() {
            let b = cuts[cuts.len() - 1];
            let sum = |arc: &Arc| sums(stage, arc.first as usize) + lengths[first[stage] + arc.load as usize];
            let last = arcs.ending(b).iter().find(|arc| sum(arc) <= sums(stage + 1, b))?;
            cuts.push(last.first as usize);
        }
        cuts.reverse();
        Some(ShortestPath { length: whole, cuts })
    }
}

/// Shortest path over cuts.
pub struct ShortestPath {
    /// Its length, in seconds.
    pub length: f64,
    /// First item of each stage, and the number of items at the end.
    pub cuts: Vec<usize>,
}

/// Stage of a path over cuts, whose end is known.
#[derive(Clone, Copy)]
struct Arc {
    /// First item.
    first: u32,
    /// Index of its load among those of the stage.
    load: u32,
}

/// Stages of a subset of the splits, by their end.
pub struct Arcs {
    items: usize,
    stages: Vec<StageArcs>,
}

/// Arcs of one stage.
struct StageArcs {
    /// The arcs, by end.
    arcs: Vec<Arc>,
    /// Index of the first arc of each end.
    begin: Vec<u32>,
    /// Range of the ends.
    ends: Range<usize>,
    /// Loads that the arcs use.
    loads: Vec<u32>,
}

impl Arcs {
    /// Number of arcs: the work of a shortest path.
    pub fn len(&self) -> usize {
        self.stages.iter().map(|stage| stage.arcs.len()).sum()
    }
}

impl StageArcs {
    /// Stages between the `reached` states and those that lead to the end, whose loads are within a ceiling.
    fn new(stage: &Fitting, within: &[bool], reached: &[usize], to: &[bool]) -> Self {
        let mut used = vec![false; stage.loads.len()];
        let (mut arcs, mut begin, mut ends) = (Vec::new(), vec![0], 0..0);
        let mut reached = reached;
        for (b, &leads_on) in to.iter().enumerate() {
            let before = arcs.len();
            while let [first, rest @ ..] = reached
                && first + stage.of[*first].len() <= b
            {
                reached = rest;
            }
            for &a in reached.iter().take_while(|&&a| leads_on && a <= b) {
                if let Some(&Some(load)) = stage.of[a].get(b - a)
                    && within[load as usize]
                {
                    used[load as usize] = true;
                    arcs.push(Arc { first: a as u32, load });
                }
            }
            if arcs.len() > before {
                ends = if before == 0 { b..b + 1 } else { ends.start..b + 1 };
            }
            begin.push(arcs.len() as u32);
        }
        let loads = (0..used.len()).filter(|&load| used[load]).map(|load| load as u32).collect();
        Self { arcs, begin, ends, loads }
    }

    /// Stages that end with `b`.
    fn ending(&self, b: usize) -> &[Arc] {
        &self.arcs[self.begin[b] as usize..self.begin[b + 1] as usize]
    }
}
