//! Ranks that hold several stages, taken apart: each rank chooses what it holds within its own memory, a path through the model
//! chooses the cuts, and prices make the two agree.

use super::blend::{Blend, length, project};
use super::configs::Configs;
use super::coupled::foreseen;
use super::network::Network;
use super::program::{Load, Program};
use crate::cost::by_stage::LayerOption;
use crate::schedule::paths::Path;

/// Prices; any of them, with chains that weigh 1 together, give a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// Weight of each chain.
    pub chains: Vec<f64>,
    /// Of a layer of each kind on each stage, seconds: stage by stage.
    pub layers: Vec<f64>,
}

/// A claim on the splits looked at: this rank is the busiest, and takes more than `low` and no more than `high` for a
/// micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Which rank.
    pub rank: usize,
    /// It takes more than this.
    pub low: f64,
    /// No rank takes more than this.
    pub high: f64,
}

/// The two sides.
pub struct Sides<'a> {
    program: &'a Program<'a>,
    network: &'a Network<'a>,
    configs: &'a Configs,
    /// The schedule's chains.
    chains: &'a [Path],
    /// Of a layer, for steps of prices.
    scale: f64,
}

/// What prices gave.
struct Priced {
    value: f64,
    cuts: Vec<usize>,
    /// What the ranks chose: forward, backward and weight gradients of each stage.
    times: Vec<f64>,
    /// Layers that the path gives a stage beyond those that its rank chose.
    more: Vec<f64>,
}

/// What may still be done, the same on every machine: sets of layers priced, and operations played.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How much is left.
    pub left: usize,
}

impl Budget {
    fn spend(&mut self, work: usize) -> bool {
        let enough = self.left >= work;
        self.left = self.left.saturating_sub(work);
        enough
    }
}

impl<'a> Sides<'a> {
    /// The two sides of a program.
    pub fn new(program: &'a Program<'a>, network: &'a Network<'a>, configs: &'a Configs, chains: &'a [Path]) -> Self {
        let scale = program.layers_time(0, program.len()) / program.len() as f64;
        Self { program, network, configs, chains, scale }
    }

    /// Where prices begin for a chain: what a layer is worth where others hold it.
    pub fn start(&self, chain: usize) -> Prices {
        let program = self.program;
        let path = &self.chains[chain];
        let others: Vec<usize> =
            (0..program.chunks).filter(|&stage| program.rank_of(stage) != path.rank as usize).collect();
        let mean = |visits: &[f64]| others.iter().map(|&stage| visits[stage]).sum::<f64>() / others.len().max(1) as f64;
        let (forward, backward) = (mean(&path.forward), mean(&path.backward));
        let of_kind = |options: &Vec<LayerOption>| {
            options[0].time.forward.get() * forward + options[0].time.backward.get() * backward
        };
        let kinds: Vec<f64> = program.options.iter().map(of_kind).collect();
        let mut chains = vec![0.0; self.chains.len()];
        chains[chain] = 1.0;
        Prices { chains, layers: (0..program.chunks).flat_map(|_| kinds.iter().copied()).collect() }
    }

    /// The sets of layers of each rank that a claim allows; none where a rank has none.
    fn allowed(&self, claim: &Claim) -> Option<Vec<Vec<usize>>> {
        let sets = |rank: usize| -> Vec<usize> {
            let time = &self.configs.ranks[rank].time;
            let low = if rank == claim.rank { claim.low } else { f64::NEG_INFINITY };
            (0..time.len()).filter(|&set| time[set] > low && time[set] <= claim.high).collect()
        };
        let all: Vec<Vec<usize>> = (0..self.program.ranks).map(sets).collect();
        all.iter().all(|sets| !sets.is_empty()).then_some(all)
    }

    fn priced(&self, at: &Prices, chains: &[Path], allowed: &[Vec<usize>]) -> Option<Priced> {
        let (program, network) = (self.program, self.network);
        let kinds = program.options.len();
        let blend = Blend::of(program.chunks, chains.iter().zip(at.chains.iter().copied()));
        // What a shape's layers are worth on each stage, and what they cost its rank.
        let worth: Vec<Vec<f64>> = (0..program.chunks)
            .map(|stage| {
                let own = &at.layers[stage * kinds..(stage + 1) * kinds];
                let of = |counts: &[u32]| counts.iter().zip(own).map(|(&n, price)| f64::from(n) * price).sum();
                network.shapes().iter().map(|shape| of(&shape.counts)).collect()
            })
            .collect();
        let mut priced = Priced {
            value: 0.0,
            cuts: vec![0],
            times: vec![0.0; program.chunks * 3],
            more: vec![0.0; program.chunks * kinds],
        };
        for (of_rank, sets) in self.configs.ranks.iter().zip(allowed) {
            let costs: Vec<Vec<f64>> = of_rank
                .chunks
                .iter()
                .map(|&stage| {
                    let cost = |shape: usize| {
                        let (a, b) = network.shapes()[shape].like;
                        let [forward, backward, wgrad] = program.times(stage, a, b);
                        blend.forward[stage] * forward + blend.backward[stage] * backward + blend.wgrad[stage] * wgrad
                            - worth[stage][shape]
                    };
                    (0..network.shapes().len()).map(cost).collect()
                })
                .collect();
            // What is recomputed counts where it counts the least.
            let cheapest =
                of_rank.chunks.iter().copied().min_by(|&a, &b| blend.backward[a].total_cmp(&blend.backward[b]))?;
            let again = blend.backward[cheapest];
            let (mut least, mut best) = (f64::INFINITY, 0);
            for &set in sets {
                let layers: f64 = of_rank.shapes(set).iter().zip(&costs).map(|(&shape, cost)| cost[shape]).sum();
                let sum = layers + again * of_rank.extra[set];
                if sum < least {
                    (least, best) = (sum, set);
                }
            }
            priced.value += least;
            priced.times[cheapest * 3 + 1] += of_rank.extra[best];
            for (&stage, &shape) in of_rank.chunks.iter().zip(of_rank.shapes(best)) {
                let shape = &network.shapes()[shape];
                for (sum, time) in
                    priced.times[stage * 3..].iter_mut().zip(program.times(stage, shape.like.0, shape.like.1))
                {
                    *sum += time;
                }
                for (kind, &count) in shape.counts.iter().enumerate() {
                    priced.more[stage * kinds + kind] -= f64::from(count);
                }
            }
        }
        self.follow(&worth, &mut priced).then_some(priced)
    }

    /// Adds the path whose layers are worth the least.
    fn follow(&self, worth: &[Vec<f64>], priced: &mut Priced) -> bool {
        let (program, network) = (self.program, self.network);
        let kinds = program.options.len();
        let cheapest = network.cheapest(program.len(), |stage, arc, so_far| so_far + worth[stage][arc.shape]);
        let Some((value, arcs)) = cheapest else { return false };
        priced.value += value;
        for (stage, arc) in arcs.into_iter().enumerate() {
            for (kind, &count) in network.shapes()[arc.shape].counts.iter().enumerate() {
                priced.more[stage * kinds + kind] += f64::from(count);
            }
            priced.cuts.push(arc.b);
        }
        true
    }

    /// Raises the bound on the longest chain of every split that the claim allows. Returns the bound and the cuts met.
    ///
    /// ```text
    /// L(w, π) = Σ_r min over what rank r may hold of (Σ_k w_k·chain_k − Σ_S π_S·layers_S)  +  min over cuts of Σ_S π_S·layers_S
    /// ```
    ///
    /// Steps go along the mean of what was chosen so far, as far as Polyak's rule says from `goal` (the volume algorithm); that
    /// mean is played, and the chain that it waits for joins the others.
    pub fn raise(
        &self,
        start: Prices,
        claim: &Claim,
        goal: f64,
        rounds: usize,
        budget: &mut Budget,
    ) -> (f64, Vec<Vec<usize>>) {
        let program = self.program;
        let mut met: Vec<Vec<usize>> = Vec::new();
        let Some(allowed) = self.allowed(claim) else { return (f64::INFINITY, met) };
        let sets = allowed.iter().map(Vec::len).sum::<usize>() * program.chunks / program.ranks;
        let arcs: usize = (0..program.chunks).map(|stage| self.network.arcs(stage).len()).sum();
        let played = PLAY * program.stager.micro_batches() as usize * program.chunks;
        let mut chains = self.chains.to_vec();
        let (mut here, mut best, mut most) = (start.clone(), start, f64::NEG_INFINITY);
        let (mut pace, mut failed) = (1.0_f64, 0);
        let (mut times, mut more): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            if !budget.spend(sets + arcs + chains.len() * program.chunks) {
                break;
            }
            let Some(priced) = self.priced(&here, &chains, &allowed) else { return (f64::INFINITY, met) };
            let share = (1.0 / (round + 1) as f64).max(LATEST);
            blend_in(&mut times, &priced.times, share);
            blend_in(&mut more, &priced.more, share);
            if most.is_infinite() || priced.value > most + 1e-6 * most.abs() {
                (failed, pace) = (0, (pace * 1.15).min(2.0));
            } else {
                failed += 1;
            }
            if priced.value > most {
                most = priced.value;
                best.clone_from(&here);
                if met.last() != Some(&priced.cuts) {
                    met.push(priced.cuts);
                }
            }
            if failed >= 5 {
                (failed, pace) = (0, pace * 0.7);
            }
            if most >= goal || pace < SLOWEST {
                break;
            }
            let loads = means(&times);
            if round % PLAYED_EVERY == 0
                && chains.len() < MOST_CHAINS
                && budget.spend(played)
                && let Some(chain) = foreseen(program, &loads)
                && !chains.contains(&chain)
            {
                chains.push(chain);
            }
            best.chains.resize(chains.len(), 0.0);
            here.clone_from(&best);
            let lengths: Vec<f64> = chains.iter().map(|path| length(path, &loads)).collect();
            let mean = lengths.iter().zip(&here.chains).map(|(l, w)| l * w).sum::<f64>();
            let slope = |length: f64, weight: f64| if weight <= 0.0 && length < mean { 0.0 } else { length - mean };
            let norm = lengths.iter().zip(&here.chains).map(|(&l, &w)| slope(l, w).powi(2)).sum::<f64>()
                + more.iter().map(|more| (more * self.scale).powi(2)).sum::<f64>();
            if norm <= 0.0 {
                break;
            }
            let step = pace * (goal * BEYOND - most) / norm;
            for (weight, &length) in here.chains.iter_mut().zip(&lengths) {
                *weight += step * slope(length, *weight);
            }
            project(&mut here.chains);
            for (price, more) in here.layers.iter_mut().zip(&more) {
                *price += step * self.scale.powi(2) * more;
            }
        }
        (most, met)
    }
}

/// Share of the newest choice in the mean of all, at the least.
const LATEST: f64 = 0.07;
/// Pace of the steps at which they end.
const SLOWEST: f64 = 0.01;
/// How far beyond the goal Polyak's rule aims.
const BEYOND: f64 = 1.003;
/// Rounds from one played mean to the next.
const PLAYED_EVERY: usize = 4;
/// What playing a micro-batch through a stage takes, in sets of layers priced.
const PLAY: usize = 100;
/// Most chains.
const MOST_CHAINS: usize = 300;

/// A mean with a share of what is new.
fn blend_in(mean: &mut Vec<f64>, new: &[f64], share: f64) {
    mean.resize(new.len(), 0.0);
    for (mean, new) in mean.iter_mut().zip(new) {
        *mean += share * (new - *mean);
    }
}

/// Stages that take these times.
fn means(times: &[f64]) -> Vec<Load> {
    let load = |of: &[f64]| Load {
        forward: of[0],
        backward: of[1],
        wgrad: of[2],
        kept: 0.0,
        again: 0.0,
        slack: 0.0,
        point: None,
    };
    times.chunks_exact(3).map(load).collect()
}
