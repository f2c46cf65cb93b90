//! Everything a rank may hold: layers for each of its stages, and the least time that they take within its memory.

use super::bound::shared_out;
use super::edges::Edges;
use super::extras::{Extra, Stairs, extras};
use super::network::Network;
use super::program::Program;

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
    /// Whether its choices are all there are: else a mean of some may stand for one that is not listed.
    pub listed: bool,
    /// A shape of the network for each stage.
    shapes: Vec<usize>,
    /// Forwards of all stages, backwards, weight gradients, expert traffic.
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
    /// Forwards of all its stages, then backwards, then weight gradients, then expert traffic.
    pub fn times(&self, choice: usize) -> &[f64] {
        let width = 4 * self.chunks.len();
        &self.times[choice * width..(choice + 1) * width]
    }
    /// What is recomputed on any of the stages of a choice.
    pub fn floating(&self, choice: usize) -> f64 {
        self.floating[choice]
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
        let of: Vec<[f64; 4]> = self
            .chunks
            .iter()
            .zip(shapes)
            .map(|(&chunk, &shape)| program.times(chunk, like(shape).0, like(shape).1))
            .collect();
        self.times.extend(of.iter().map(|time| time[0]));
        self.times.extend(of.iter().zip(&extra.of_stage).map(|(time, extra)| time[1] + extra));
        self.times.extend(of.iter().map(|time| time[2]));
        self.times.extend(of.iter().map(|time| time[3]));
        let base: f64 = of.iter().map(|time| program.busy(*time)).sum();
        let again = extra.of_stage.iter().sum::<f64>() + extra.floating;
        self.time.push(base + program.slower() * again);
        self.floating.push(extra.floating);
        self.shapes.extend(shapes);
        let kinds = program.layer_kinds();
        let counts =
            (0..kinds).map(|kind| shapes.iter().map(|&shape| network.shapes()[shape].counts[kind]).sum::<u32>());
        self.kinds.extend(counts);
    }
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
                listed: true,
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
                let most = (ceiling - time) / program.slower();
                let (extras, all) = extras(program, network, &mut mixes, (rank, &of_rank.chunks), &shapes, most);
                of_rank.listed &= all;
                for extra in extras {
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
        let kinds = program.layer_kinds();
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
                    forward += time[0] - time[3] / 2.0;
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
