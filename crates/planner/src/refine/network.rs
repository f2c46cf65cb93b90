//! Splits as paths through a network, priced by multipliers: a lower bound that sees order and memory at once.

use std::collections::BTreeMap;

use super::blend::{Blend, project};
use super::integer::Column;
use super::program::Program;
use meshwright_engine::schedule::paths::Path;

/// Layers of one stage, up to their order, on one kind of device: what they take and hold under each mix that some price would choose.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Items `a..b` of this shape.
    pub like: (usize, usize),
    /// Layers by kind.
    pub counts: Vec<u32>,
    /// What the frontier lost, seconds.
    slack: f64,
    /// Extra backward time and bytes kept for one micro-batch, from the fastest mix to the smallest: the lower hull.
    hull: Vec<(f64, f64)>,
}

/// One stage that holds items `a..b`.
#[derive(Clone, Copy, Debug)]
pub struct Arc {
    /// First item.
    pub a: usize,
    /// Behind the last item.
    pub b: usize,
    /// Its layers, up to their order.
    pub shape: usize,
}

/// Every stage that no split under a ceiling is without.
pub struct Network<'a> {
    program: &'a Program<'a>,
    shapes: Vec<Shape>,
    stages: Vec<Vec<Arc>>,
    /// Micro-batches of each stage's chunk at the moment when its rank holds the most of all its chunks.
    alive: Vec<f64>,
}

/// Prices of what the program couples; any that are not negative, with chains that weigh 1 together, give a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Multipliers {
    /// Weight of each chain.
    pub chains: Vec<f64>,
    /// Of a rank's memory, in steps for its whole room.
    pub memory: Vec<f64>,
}

/// What prices gave.
struct Priced {
    value: f64,
    cuts: Vec<usize>,
    /// Length of each chain, bytes of each rank.
    lengths: Vec<f64>,
    bytes: Vec<f64>,
}

impl<'a> Network<'a> {
    /// Stages whose fastest time is within `ceiling` and that fit their rank alone.
    pub fn new(program: &'a Program<'a>, ceiling: f64) -> Self {
        let n = program.len();
        let last = program.chunks - 1;
        let mut shapes = Vec::new();
        let mut known: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        let mut stages: Vec<Vec<Arc>> = Vec::with_capacity(program.chunks);
        let mut reached = vec![false; n + 1];
        reached[0] = true;
        for chunk in 0..program.chunks {
            let behind = (last - chunk).saturating_sub(1);
            let ceiling = ceiling - program.least_beside(chunk);
            let mut arcs = Vec::new();
            let mut next = vec![false; n + 1];
            for a in (0..=n.saturating_sub(behind)).filter(|&a| reached[a]) {
                for (b, reached) in next.iter_mut().enumerate().take(n.saturating_sub(behind) + 1).skip(a) {
                    if (chunk == last && b < n) || !program.may_hold(chunk, a, b) {
                        continue;
                    }
                    if program.fastest(chunk, a, b).both() > ceiling || program.least_excess(chunk, a, b) > 0.0 {
                        if chunk == last {
                            continue;
                        }
                        break;
                    }
                    let depth = |at: usize| at.saturating_sub(program.decoder_layers) as u32;
                    let key: Vec<u32> = program
                        .counts_between(a, b)
                        .chain([depth(b) - depth(a), program.device_of(chunk) as u32])
                        .collect();
                    let shape = *known.entry(key).or_insert_with(|| {
                        shapes.push(Shape::new(program, chunk, a, b));
                        shapes.len() - 1
                    });
                    *reached = true;
                    arcs.push(Arc { a, b, shape });
                }
            }
            reached = next;
            stages.push(arcs);
        }
        // Only what leads to the end.
        let mut wanted = vec![false; n + 1];
        wanted[n] = true;
        for arcs in stages.iter_mut().rev() {
            arcs.retain(|arc| wanted[arc.b]);
            wanted = vec![false; n + 1];
            for arc in arcs.iter() {
                wanted[arc.a] = true;
            }
        }
        let alive = (0..program.chunks)
            .map(|chunk| {
                let moments = &program.stager.alive()[program.rank_of(chunk)];
                let most = moments.iter().max_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
                most.map_or(1.0, |moment| moment[chunk / program.ranks])
            })
            .collect();
        Self { program, shapes, stages, alive }
    }

    /// Layers that stages may hold, up to their order; multi-token-prediction layers are told apart.
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// The shapes that a chunk may have.
    pub fn shapes_of(&self, chunk: usize) -> Vec<usize> {
        let mut shapes: Vec<usize> = self.stages[chunk].iter().map(|arc| arc.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        shapes
    }

    /// Whether no split is under the ceiling.
    pub fn is_empty(&self) -> bool {
        self.stages.iter().any(Vec::is_empty)
    }

    /// Every stage under every mix that some split with a sum of no more than `target` may take: the others are slower by these
    /// multipliers. `None` where they are more than `most`.
    pub fn columns(&self, at: &Multipliers, chains: &[Path], target: f64, most: usize) -> Option<Vec<Column>> {
        let program = self.program;
        let n = program.len();
        let blend = Blend::of(program.chunks, chains.iter().zip(at.chains.iter().copied()));
        let charged: f64 = at.memory.iter().sum::<f64>() * target;
        let priced: Vec<Vec<(Column, f64)>> = (0..program.chunks)
            .map(|stage| {
                let rank = program.rank_of(stage);
                let bytes = at.memory[rank] / program.room[rank].max(1.0) * target;
                let mut list = Vec::new();
                for arc in &self.stages[stage] {
                    let frontier = program.frontier(stage, arc.a, arc.b);
                    for point in 0..frontier.points.len() {
                        let load = program.load(stage, arc.a, arc.b, point, &frontier);
                        let sum = blend.forward[stage] * load.forward
                            + blend.backward[stage] * (load.backward - load.slack)
                            + blend.wgrad[stage] * load.wgrad
                            + blend.traffic[stage] * load.traffic
                            + bytes * (load.kept * self.alive[stage] + program.states(arc.a, arc.b));
                        list.push((Column { stage, a: arc.a, b: arc.b, load }, sum));
                    }
                }
                list
            })
            .collect();
        let none = vec![f64::INFINITY; n + 1];
        let mut to_here = vec![none.clone()];
        to_here[0][0] = 0.0;
        for list in &priced {
            let mut next = none.clone();
            for (column, sum) in list {
                next[column.b] = next[column.b].min(to_here[to_here.len() - 1][column.a] + sum);
            }
            to_here.push(next);
        }
        let mut from_here = none.clone();
        from_here[n] = 0.0;
        let mut kept = Vec::new();
        for (stage, list) in priced.iter().enumerate().rev() {
            let mut next = none.clone();
            for (column, sum) in list {
                let whole = to_here[stage][column.a] + sum + from_here[column.b];
                if whole - charged <= target * (1.0 + 1e-9) {
                    kept.push(*column);
                }
                next[column.a] = next[column.a].min(sum + from_here[column.b]);
            }
            if kept.len() > most {
                return None;
            }
            from_here = next;
        }
        kept.reverse();
        Some(kept)
    }

    /// The path from the first layer to the last, `n`, with the least sum, and that sum; `sum` = of a path so far with one more
    /// arc on a stage. `None` where no path is whole.
    pub fn cheapest(&self, n: usize, sum: impl Fn(usize, &Arc, f64) -> f64) -> Option<(f64, Vec<Arc>)> {
        let mut best = vec![f64::INFINITY; n + 1];
        best[0] = 0.0;
        let mut from: Vec<Vec<usize>> = Vec::with_capacity(self.stages.len());
        for (stage, arcs) in self.stages.iter().enumerate() {
            let mut next = vec![f64::INFINITY; n + 1];
            let mut cut = vec![usize::MAX; n + 1];
            for (index, arc) in arcs.iter().enumerate().filter(|(_, arc)| best[arc.a].is_finite()) {
                let sum = sum(stage, arc, best[arc.a]);
                if sum < next[arc.b] {
                    next[arc.b] = sum;
                    cut[arc.b] = index;
                }
            }
            best = next;
            from.push(cut);
        }
        if best[n].is_infinite() {
            return None;
        }
        let mut arcs = Vec::with_capacity(self.stages.len());
        let mut end = n;
        for (stage, from) in self.stages.iter().zip(&from).rev() {
            let arc = stage[from[end]];
            arcs.push(arc);
            end = arc.a;
        }
        arcs.reverse();
        Some((best[n], arcs))
    }

    fn priced(&self, at: &Multipliers, chains: &[Path], step: f64) -> Option<Priced> {
        let program = self.program;
        let n = program.len();
        let blend = Blend::of(program.chunks, chains.iter().zip(at.chains.iter().copied()));
        let bytes_of = |rank: usize| at.memory[rank] / program.room[rank].max(1.0) * step;
        // By stage: bytes' price, and the least of each shape's mixes.
        let prices: Vec<(f64, Vec<f64>)> = (0..program.chunks)
            .map(|chunk| {
                let bytes = bytes_of(program.rank_of(chunk));
                let least = |shape: &Shape| shape.least(blend.backward[chunk], bytes * self.alive[chunk]).0;
                (bytes, self.shapes.iter().map(least).collect())
            })
            .collect();
        let (value, arcs) = self.cheapest(n, |chunk, arc, so_far| {
            let (bytes, mixed) = &prices[chunk];
            let load = program.times(chunk, arc.a, arc.b);
            so_far
                + blend.forward[chunk] * load[0]
                + blend.backward[chunk] * load[1]
                + blend.wgrad[chunk] * load[2]
                + blend.traffic[chunk] * load[3]
                + mixed[arc.shape]
                + bytes * program.states(arc.a, arc.b)
        })?;
        let mut priced = Priced {
            value,
            cuts: std::iter::once(0).chain(arcs.iter().map(|arc| arc.b)).collect(),
            lengths: vec![0.0; chains.len()],
            bytes: vec![0.0; program.ranks],
        };
        for (chunk, arc) in arcs.into_iter().enumerate().rev() {
            let rank = program.rank_of(chunk);
            let shape = &self.shapes[arc.shape];
            let (_, extra, kept) = shape.least(blend.backward[chunk], bytes_of(rank) * self.alive[chunk]);
            let [forward, mut backward, wgrad, traffic] = program.times(chunk, arc.a, arc.b);
            backward += extra - shape.slack;
            priced.bytes[rank] += kept * self.alive[chunk] + program.states(arc.a, arc.b);
            for (length, path) in priced.lengths.iter_mut().zip(chains) {
                *length += path.forward[chunk] * forward
                    + path.backward[chunk] * backward
                    + path.wgrad[chunk] * wgrad
                    + path.traffic[chunk] * traffic;
            }
        }
        priced.value -= at.memory.iter().sum::<f64>() * step;
        Some(priced)
    }

    /// Raises the bound on the longest chain of every split, by steps along the subgradient whose length Polyak's rule takes from
    /// `target`, until it meets the target or has priced as many arcs as the budget has. Returns the bound, its multipliers, and
    /// the cuts met.
    ///
    /// ```text
    /// L(w, λ) = min over splits of  Σ_k w_k·chain_k + Σ_r λ_r·(held_r/room_r − 1)
    /// ```
    pub fn raise(
        &self,
        start: Multipliers,
        chains: &[Path],
        target: f64,
        (rounds, budget): (usize, &mut usize),
    ) -> (f64, Multipliers, Vec<Vec<usize>>) {
        let program = self.program;
        let arcs: usize = self.stages.iter().map(Vec::len).sum::<usize>() + program.chunks * self.shapes.len();
        let (mut here, mut best, mut most) = (start.clone(), start, f64::NEG_INFINITY);
        let mut met: Vec<Vec<usize>> = Vec::new();
        let (mut pace, mut stalled) = (1.0, 0);
        for round in 0..rounds {
            if round > 0 && *budget < arcs {
                break;
            }
            *budget = budget.saturating_sub(arcs);
            let Some(priced) = self.priced(&here, chains, target) else {
                return (f64::INFINITY, here, met);
            };
            if !met.contains(&priced.cuts) {
                met.push(priced.cuts.clone());
            }
            if priced.value > most + 1e-7 * target {
                stalled = 0;
            } else {
                stalled += 1;
            }
            if priced.value > most {
                most = priced.value;
                best.clone_from(&here);
            }
            if most >= target {
                break;
            }
            if stalled >= 6 {
                pace *= 0.6;
                stalled = 0;
                here.clone_from(&best);
                if pace < 0.01 {
                    break;
                }
                continue;
            }
            let mean = priced.lengths.iter().zip(&here.chains).map(|(l, w)| l * w).sum::<f64>();
            let chain = |length: &f64| length - mean;
            let over = |rank: usize| (priced.bytes[rank] / program.room[rank].max(1.0) - 1.0) * target;
            let pinned = |multiplier: f64, slope: f64| if multiplier <= 0.0 && slope < 0.0 { 0.0 } else { slope };
            let mut norm =
                priced.lengths.iter().zip(&here.chains).map(|(l, w)| pinned(*w, chain(l)).powi(2)).sum::<f64>();
            for r in 0..program.ranks {
                norm += pinned(here.memory[r], over(r)).powi(2);
            }
            if norm <= 0.0 {
                break;
            }
            let step = pace * (target - priced.value) / norm;
            for (weight, length) in here.chains.iter_mut().zip(&priced.lengths) {
                *weight += step * pinned(*weight, chain(length));
            }
            project(&mut here.chains);
            for r in 0..program.ranks {
                here.memory[r] = (here.memory[r] + step * over(r)).max(0.0);
            }
        }
        (most, best, met)
    }
}

impl Shape {
    fn new(program: &Program, chunk: usize, a: usize, b: usize) -> Self {
        let frontier = program.frontier(chunk, a, b);
        let mut hull: Vec<(f64, f64)> = Vec::new();
        for point in &frontier.points {
            let next = (point.extra, point.kept);
            while let [.., before, here] = hull[..] {
                let turns = (here.1 - before.1) * (next.0 - here.0) >= (next.1 - here.1) * (here.0 - before.0);
                if !turns {
                    break;
                }
                hull.pop();
            }
            if hull.last().is_none_or(|known| next.1 < known.1) {
                hull.push(next);
            }
        }
        Self { like: (a, b), counts: program.counts_between(a, b).collect(), slack: frontier.slack, hull }
    }

    /// The mix of the least price, for a price of time and of bytes: the price, the extra time, the bytes. What the frontier lost
    /// counts for the bound's safe side, which is the other one where time is a gain.
    fn least(&self, time: f64, bytes: f64) -> (f64, f64, f64) {
        let lost = if time < 0.0 { -self.slack } else { self.slack };
        let price = |(extra, kept): &(f64, f64)| time * (extra - lost) + bytes * kept;
        let mut best = (f64::INFINITY, 0.0, 0.0);
        for point in &self.hull {
            let sum = price(point);
            if sum < best.0 {
                best = (sum, point.0, point.1);
            }
        }
        best
    }
}
