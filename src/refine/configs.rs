//! Everything a rank may hold: layers for each of its stages, and the least time that they take within its memory.

use super::bound::shared_out;
use super::edges::Edges;
use super::network::Network;
use super::program::Program;
use crate::schedule::paths::Path;

/// Most sets of layers, of all ranks together.
const MOST: usize = 30_000;
/// Most stages of a rank: with more, there are too many sets to list.
const MOST_OF_RANK: usize = 4;
/// Most states of the sharing out of kinds.
const MOST_STATES: usize = 20_000;

/// What the ranks may hold under a ceiling on the time of a rank.
pub struct Configs {
    /// By rank.
    pub ranks: Vec<OfRank>,
}

/// What one rank may hold: layers for each of its stages under a mix of recomputation, one choice after another.
pub struct OfRank {
    /// Its stages.
    pub chunks: Vec<usize>,
    /// The least time of each choice for one micro-batch.
    pub time: Vec<f64>,
    /// A shape of the network for each stage.
    shapes: Vec<usize>,
    /// Forwards of all stages, backwards, weight gradients.
    times: Vec<f64>,
    /// What is recomputed on any of the stages, beyond that.
    floating: Vec<f64>,
    /// Layers by kind.
    kinds: Vec<u32>,
}

impl OfRank {
    /// How many choices.
    pub fn len(&self) -> usize {
        self.time.len()
    }
    /// The shapes of a choice.
    pub fn shapes(&self, choice: usize) -> &[usize] {
        &self.shapes[choice * self.chunks.len()..(choice + 1) * self.chunks.len()]
    }
    /// Forwards of all its stages, then backwards, then weight gradients.
    pub fn times(&self, choice: usize) -> &[f64] {
        let width = 3 * self.chunks.len();
        &self.times[choice * width..(choice + 1) * width]
    }
    /// What a choice adds to a chain, at the least.
    pub fn length(&self, choice: usize, path: &Path) -> f64 {
        let (times, v) = (self.times(choice), self.chunks.len());
        let mut sum = 0.0;
        for (at, &chunk) in self.chunks.iter().enumerate() {
            let counted = if path.separate { path.backward[chunk] } else { 0.0 };
            sum += path.forward[chunk] * times[at]
                + path.backward[chunk] * times[v + at]
                + (path.wgrad[chunk] - counted) * times[2 * v + at];
        }
        let least = self.chunks.iter().map(|&chunk| path.backward[chunk]).fold(f64::INFINITY, f64::min);
        sum + self.floating[choice] * least
    }
    /// Layers by kind.
    pub fn kinds(&self, choice: usize) -> &[u32] {
        let width = self.kinds.len() / self.len();
        &self.kinds[choice * width..(choice + 1) * width]
    }
    /// Layers of each stage.
    pub fn sizes(&self, choice: usize, network: &Network) -> Vec<u32> {
        self.shapes(choice).iter().map(|&shape| network.shapes()[shape].counts.iter().sum()).collect()
    }

    fn push(&mut self, program: &Program, network: &Network, shapes: &[usize], extra: &Extra) {
        let like = |shape: usize| network.shapes()[shape].like;
        let of: Vec<[f64; 3]> = self
            .chunks
            .iter()
            .zip(shapes)
            .map(|(&chunk, &shape)| program.times(chunk, like(shape).0, like(shape).1))
            .collect();
        self.times.extend(of.iter().map(|time| time[0]));
        self.times.extend(of.iter().zip(&extra.of_stage).map(|(time, extra)| time[1] + extra));
        self.times.extend(of.iter().map(|time| time[2]));
        let base: f64 = of.iter().map(|time| time[0] + time[1]).sum();
        self.time.push(base + extra.of_stage.iter().sum::<f64>() + extra.floating);
        self.floating.push(extra.floating);
        self.shapes.extend(shapes);
        let kinds = program.options.len();
        let counts =
            (0..kinds).map(|kind| shapes.iter().map(|&shape| network.shapes()[shape].counts[kind]).sum::<u32>());
        self.kinds.extend(counts);
    }
}

/// What a rank recomputes beyond its fastest mixes.
struct Extra {
    /// On each of its stages.
    of_stage: Vec<f64>,
    /// On any of them.
    floating: f64,
}

/// Mixes of one shape whose whole recomputed layers need no more than a working set: none slower and larger than another.
struct Stairs {
    again: f64,
    /// Extra time and bytes of one micro-batch, the fastest first.
    steps: Vec<(f64, f64)>,
}

impl Configs {
    /// Every set of layers whose least time is within `ceiling` and that fits. `None` where they are too many.
    pub fn new(program: &Program, network: &Network, ceiling: f64) -> Option<Self> {
        if program.chunks > MOST_OF_RANK * program.ranks {
            return None;
        }
        let mut mixes: Vec<Option<Vec<Stairs>>> = Vec::new();
        mixes.resize_with(network.shapes().len(), || None);
        let mut left = MOST;
        let mut ranks = Vec::with_capacity(program.ranks);
        for rank in 0..program.ranks {
            let chunks: Vec<usize> = (0..program.chunks).filter(|&chunk| program.rank_of(chunk) == rank).collect();
            let of_chunk: Vec<Vec<(usize, f64)>> = chunks
                .iter()
                .map(|&chunk| {
                    let time = |shape: usize| {
                        let (a, b) = network.shapes()[shape].like;
                        program.fastest(chunk, a, b).both()
                    };
                    network.shapes_of(chunk).into_iter().map(|shape| (shape, time(shape))).collect()
                })
                .collect();
            let mut of_rank = OfRank {
                chunks,
                time: Vec::new(),
                shapes: Vec::new(),
                times: Vec::new(),
                floating: Vec::new(),
                kinds: Vec::new(),
            };
            let least: Vec<f64> =
                of_chunk.iter().map(|list| list.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min)).collect();
            let mut found = Vec::new();
            combine(&of_chunk, &least, ceiling, 0.0, &mut Vec::new(), &mut found, left)?;
            for (shapes, time) in found {
                for extra in extras(program, network, &mut mixes, (rank, &of_rank.chunks), &shapes, ceiling - time) {
                    of_rank.push(program, network, &shapes, &extra);
                }
            }
            left = left.checked_sub(of_rank.time.len())?;
            ranks.push(of_rank);
        }
        Some(Self { ranks })
    }

    /// The least time of the busiest rank over all ways to share the layers out among ranks, whatever their order, as far as
    /// they may hold them.
    pub fn busiest(&self, program: &Program, network: &Network) -> f64 {
        let mut times: Vec<f64> = self.ranks.iter().flat_map(|rank| rank.time.iter().copied()).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let kinds = program.options.len();
        let mut all = vec![0_usize; kinds];
        for &kind in &program.items {
            all[kind] += 1;
        }
        let Some(main) = (0..kinds).max_by_key(|&kind| all[kind]) else { return 0.0 };
        let others: Vec<usize> = (0..kinds).filter(|&kind| kind != main && all[kind] > 0).collect();
        if others.iter().map(|&kind| all[kind] + 1).product::<usize>() > MOST_STATES {
            return 0.0;
        }
        let fits = |ceiling: f64| {
            let takes = |rank: usize| {
                let of_rank = &self.ranks[rank];
                let sets = (0..of_rank.time.len()).filter(|&set| of_rank.time[set] <= ceiling);
                let mut takes: Vec<(Vec<usize>, usize)> = sets
                    .map(|set| {
                        let sum = |kind: usize| {
                            let counts = of_rank.shapes(set).iter().map(|&shape| network.shapes()[shape].counts[kind]);
                            counts.sum::<u32>() as usize
                        };
                        (others.iter().map(|&kind| sum(kind)).collect(), sum(main))
                    })
                    .collect();
                takes.sort_by(|a, b| b.cmp(a));
                let mut kept: Vec<(Vec<usize>, usize)> = Vec::new();
                for take in takes {
                    let covers = |known: &(Vec<usize>, usize)| {
                        known.1 >= take.1 && known.0.iter().zip(&take.0).all(|(a, b)| a >= b)
                    };
                    if !kept.iter().any(covers) {
                        kept.push(take);
                    }
                }
                kept
            };
            shared_out(&all, main, &others, program.ranks, takes)
        };
        let at = times.partition_point(|&time| !fits(time));
        times.get(at).copied().unwrap_or(f64::INFINITY)
    }

    /// What the step adds to its pipeline at the least, as a line over the pipeline's time: some rank holds no less than the
    /// mean, as one of these sets does, and nothing hides behind more than a rank takes.
    pub fn line(&self, program: &Program, network: &Network, ceiling: f64, sends: f64) -> (f64, f64) {
        let times = |chunk: usize, shape: usize| {
            let (a, b) = network.shapes()[shape].like;
            (program.times(chunk, a, b), program.parameters(chunk, a, b))
        };
        let [dense, experts] = (0..program.chunks)
            .map(|chunk| program.parameters(chunk, 0, if chunk == 0 { program.len() } else { 0 }))
            .fold([0.0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        let mean = (dense + experts) / program.ranks as f64 * (1.0 - 1e-12);
        let (mut longest, mut held) = ([0.0_f64; 2], Vec::<[f64; 2]>::new());
        for of_rank in &self.ranks {
            for set in 0..of_rank.time.len() {
                let (mut forward, mut own) = (0.0, [0.0; 2]);
                for (&chunk, &shape) in of_rank.chunks.iter().zip(of_rank.shapes(set)) {
                    let (time, parameters) = times(chunk, shape);
                    forward += time[0];
                    own = [own[0] + parameters[0], own[1] + parameters[1]];
                }
                longest = [longest[0].max(forward), longest[1].max(ceiling - forward)];
                if own[0] + own[1] >= mean && !held.contains(&own) {
                    held.push(own);
                }
            }
        }
        let lines = held.into_iter().map(|[dense, experts]| {
            let [forward, backward] = longest.map(|time| time / program.share);
            Edges { dense, experts, forward, backward }.line(program, sends)
        });
        lines.reduce(|a, b| if b.0 < a.0 { b } else { a }).unwrap_or((f64::INFINITY, 1.0))
    }
}

/// All choices of a shape for each stage whose fastest times are within the ceiling. `None` where they are more than `most`.
fn combine(
    of_chunk: &[Vec<(usize, f64)>],
    least: &[f64],
    ceiling: f64,
    time: f64,
    chosen: &mut Vec<usize>,
    found: &mut Vec<(Vec<usize>, f64)>,
    most: usize,
) -> Option<()> {
    let at = chosen.len();
    if at == of_chunk.len() {
        found.push((chosen.clone(), time));
        return (found.len() <= most).then_some(());
    }
    let behind: f64 = least[at + 1..].iter().sum();
    for &(shape, own) in &of_chunk[at] {
        if time + own + behind <= ceiling {
            chosen.push(shape);
            combine(of_chunk, least, ceiling, time + own, chosen, found, most)?;
            chosen.pop();
        }
    }
    Some(())
}

/// What a rank recomputes to hold these shapes, the least or less: for two stages every way to share it that some price would
/// choose, for more how much it is together. Nothing where they never fit with no more than `ceiling` recomputed.
fn extras(
    program: &Program,
    network: &Network,
    mixes: &mut [Option<Vec<Stairs>>],
    (rank, chunks): (usize, &[usize]),
    shapes: &[usize],
    ceiling: f64,
) -> Vec<Extra> {
    let like = |shape: usize| network.shapes()[shape].like;
    let loads =
        || chunks.iter().zip(shapes).map(|(&chunk, &shape)| program.fastest(chunk, like(shape).0, like(shape).1));
    let states: f64 = shapes.iter().map(|&shape| program.states(like(shape).0, like(shape).1)).sum();
    let room = program.room[rank] - states;
    let again = loads().map(|load| load.again).fold(0.0, f64::max);
    let weights = |moment: &[f64]| -> Vec<f64> { chunks.iter().map(|&chunk| moment[chunk / program.ranks]).collect() };
    let tight: Vec<Vec<f64>> = program.stager.alive()[rank]
        .iter()
        .map(|moment| weights(moment))
        .filter(|weights| loads().zip(weights).map(|(load, weight)| load.kept * weight).sum::<f64>() + again > room)
        .collect();
    let none = vec![0.0; chunks.len()];
    if tight.is_empty() {
        return vec![Extra { of_stage: none, floating: 0.0 }];
    }
    for &shape in shapes {
        if mixes[shape].is_none() {
            mixes[shape] = Some(stairs(program, like(shape)));
        }
    }
    let of: Vec<&Vec<Stairs>> = shapes.iter().filter_map(|&shape| mixes[shape].as_ref()).collect();
    let mut levels: Vec<f64> = of.iter().flat_map(|list| list.iter().map(|stairs| stairs.again)).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let lists = |level: f64| -> Option<Vec<&[(f64, f64)]>> {
        of.iter().map(|list| list.iter().rev().find(|s| s.again <= level).map(|s| s.steps.as_slice())).collect()
    };
    let slack: Vec<f64> = shapes.iter().map(|&shape| program.frontier(like(shape).0, like(shape).1).slack).collect();
    if let [_, _] = shapes {
        let mut all: Vec<(f64, f64)> = Vec::new();
        for level in levels {
            if let Some(lists) = lists(level) {
                shared(lists[0], lists[1], &tight, room - level, &mut all);
            }
        }
        let less = |extra: f64, at: usize| (extra - slack[at]).max(0.0);
        let all = all.into_iter().map(|(one, other)| (less(one, 0), less(other, 1)));
        return lower_hull(all.filter(|(one, other)| one + other <= ceiling).collect())
            .into_iter()
            .map(|(one, other)| Extra { of_stage: vec![one, other], floating: 0.0 })
            .collect();
    }
    let mut most = 0.0_f64;
    for weights in &tight {
        let least = levels
            .iter()
            .filter_map(|&level| least_extra(&lists(level)?, weights, room - level))
            .fold(f64::INFINITY, f64::min);
        most = most.max(least);
    }
    let floating = (most - slack.iter().sum::<f64>()).max(0.0);
    if floating > ceiling { Vec::new() } else { vec![Extra { of_stage: none, floating }] }
}

/// Adds the pairs of steps, one of each list, that fit at every moment: with each of the first the fastest of the second.
fn shared(first: &[(f64, f64)], second: &[(f64, f64)], moments: &[Vec<f64>], room: f64, all: &mut Vec<(f64, f64)>) {
    // As the first is slower and smaller, the second may be faster and larger.
    let mut at = second.len();
    for step in first {
        let fits = |other: &(f64, f64)| moments.iter().all(|w| step.1 * w[0] + other.1 * w[1] <= room);
        while at > 0 && fits(&second[at - 1]) {
            at -= 1;
        }
        if let Some(other) = second.get(at) {
            all.push((step.0, other.0));
        }
    }
}

/// The points that the least of some sum with positive weights takes.
fn lower_hull(mut all: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for next in all {
        if hull.last().is_some_and(|known| known.1 <= next.1) {
            continue;
        }
        while let [.., before, here] = hull[..] {
            if (here.1 - before.1) * (next.0 - here.0) < (next.1 - here.1) * (here.0 - before.0) {
                break;
            }
            hull.pop();
        }
        hull.push(next);
    }
    hull
}

/// The mixes of layers `a..b` for each working set that one of them needs.
fn stairs(program: &Program, (a, b): (usize, usize)) -> Vec<Stairs> {
    let frontier = program.frontier(a, b);
    let mut levels: Vec<f64> = frontier.points.iter().map(|point| point.again).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels
        .into_iter()
        .map(|again| {
            let mut steps: Vec<(f64, f64)> = Vec::new();
            for point in frontier.points.iter().filter(|point| point.again <= again) {
                if steps.last().is_none_or(|known| point.kept < known.1) {
                    steps.push((point.extra, point.kept));
                }
            }
            Stairs { again, steps }
        })
        .collect()
}

/// The least sum of extra times, one step of each list, whose weighted bytes are within `room`; of several lists the
/// linear relaxation. `None` where nothing fits.
fn least_extra(lists: &[&[(f64, f64)]], weights: &[f64], room: f64) -> Option<f64> {
    match lists {
        [only] => only.iter().find(|step| step.1 * weights[0] <= room).map(|step| step.0),
        lists => relaxed(lists, weights, room),
    }
}

/// The linear relaxation of [`least_extra`]: steps along the lower hulls, the most bytes for their time first.
fn relaxed(lists: &[&[(f64, f64)]], weights: &[f64], room: f64) -> Option<f64> {
    let mut over = -room;
    let mut edges: Vec<(f64, f64)> = Vec::new(); // extra time, bytes saved
    for (list, weight) in lists.iter().zip(weights) {
        let mut hull: Vec<(f64, f64)> = Vec::new();
        for &step in *list {
            while let [.., before, here] = hull[..] {
                if (before.1 - here.1) * (step.0 - here.0) > (here.1 - step.1) * (here.0 - before.0) {
                    break;
                }
                hull.pop();
            }
            hull.push(step);
        }
        over += hull.first()?.1 * weight;
        edges.extend(hull.windows(2).map(|pair| (pair[1].0 - pair[0].0, (pair[0].1 - pair[1].1) * weight)));
    }
    edges.sort_by(|a, b| (a.0 * b.1).total_cmp(&(b.0 * a.1)));
    let mut extra = lists.iter().map(|list| list[0].0).sum::<f64>();
    for (time, bytes) in edges {
        if over <= 0.0 {
            break;
        }
        let share = if bytes > 0.0 { (over / bytes).min(1.0) } else { 0.0 };
        extra += time * share;
        over -= bytes * share;
    }
    // Rounding of sums of bytes is not what keeps a rank from fitting.
    (over <= 1e-6 * room.abs()).then_some(extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of pairs that fit, the hull holds the least of every sum with weights that are not negative.
    #[test]
    fn the_hull_of_shared_steps_holds_every_least() {
        let first = [(0.0, 10.0), (1.0, 6.0), (2.5, 5.0), (4.0, 1.0)];
        let second = [(0.0, 8.0), (0.5, 7.0), (2.0, 5.0), (3.0, 2.0)];
        let moments = [vec![2.0, 1.0], vec![1.0, 3.0]];
        for tenths in 40..400 {
            let room = f64::from(tenths) / 10.0;
            let fits = |a: f64, b: f64| moments.iter().all(|w| a * w[0] + b * w[1] <= room);
            let mut found = Vec::new();
            shared(&first, &second, &moments, room, &mut found);
            let hull = lower_hull(found);
            for part in 0..=10 {
                let weight = f64::from(part) / 10.0;
                let price = |a: f64, b: f64| weight * a + (1.0 - weight) * b;
                let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a, b)));
                let least = pairs.filter(|(a, b)| fits(a.1, b.1)).map(|(a, b)| price(a.0, b.0)).reduce(f64::min);
                let of_hull = hull.iter().map(|&(a, b)| price(a, b)).reduce(f64::min);
                assert_eq!(least.map(|l| (l * 1e9).round()), of_hull.map(|l| (l * 1e9).round()), "{room} {weight}");
            }
        }
    }

    #[test]
    fn what_is_relaxed_is_no_more_than_the_least() {
        let first = [(0.0, 10.0), (1.0, 6.0), (4.0, 1.0)];
        let second = [(0.0, 8.0), (2.0, 5.0), (3.0, 2.0)];
        let all = |room: f64| {
            let sums = first.iter().flat_map(|a| second.iter().map(move |b| (a.0 + b.0, 2.0 * a.1 + b.1)));
            sums.filter(|sum| sum.1 <= room).map(|sum| sum.0).reduce(f64::min)
        };
        for tenths in 0..300 {
            let room = f64::from(tenths) / 10.0;
            let exact = all(room);
            let relaxed = relaxed(&[&first, &second], &[2.0, 1.0], room);
            match (exact, relaxed) {
                (Some(exact), Some(relaxed)) => assert!(relaxed <= exact + 1e-12, "{room}: {relaxed} {exact}"),
                (exact, relaxed) => assert_eq!(exact.is_some(), relaxed.is_some(), "{room}"),
            }
        }
    }
}
