//! Prices on chains and on kinds of layers: what the splits of a branch take at the least, by our own arithmetic.
//!
//! Nothing here knows the program: branches are weighed by many threads.

use super::blend::{length, project};
use super::configs::{Configs, OfRank};
use super::coupled::stage_times;
use super::network::Network;
use super::program::{Load, Program};
use meshwright_engine::schedule::paths::{Pairing, Path};
use meshwright_engine::schedule::player::Player;

/// What each rank may hold, and what a split must add up to.
pub struct Field<'a> {
    /// All choices of each rank.
    pub configs: &'a Configs,
    /// Layers of each stage, by rank and choice.
    pub sizes: Vec<Vec<Vec<u32>>>,
    /// What plays the schedule, if anything does, and what its pairs of passes take.
    player: Option<&'a Player>,
    pairing: Pairing,
    /// Stages, and layers in all.
    stages: usize,
    items: usize,
    /// The same for all stages of the rank together.
    layers: Vec<Vec<usize>>,
    /// Layers of each kind, by rank, choice and kind.
    kinds: Vec<Vec<f64>>,
    /// Layers of each kind in all.
    totals: Vec<f64>,
    /// What one layer more or less is worth beside a second: seconds that a rank works for one in a step, about.
    unit: f64,
    /// Where each rank begins in what a chain counts.
    from: Vec<usize>,
    /// Times of a stage that chains count: forward and backward, or weight gradients and expert traffic too.
    parts: usize,
}

/// Chains that are known, the longest of which a step is no shorter than.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// The chains.
    pub chains: Vec<Path>,
    /// What each counts, rank by rank in the order of its times.
    counted: Vec<Vec<f64>>,
}

/// Chains that others know too, and those that were met since.
pub struct Known<'p> {
    base: &'p Pool,
    /// Met since: their places are behind the others'.
    pub fresh: Pool,
}

impl<'p> Known<'p> {
    /// No more than the others know.
    pub fn new(base: &'p Pool) -> Self {
        Self { base, fresh: Pool::default() }
    }
    fn len(&self) -> usize {
        self.base.chains.len() + self.fresh.chains.len()
    }
    fn chains(&self) -> impl Iterator<Item = &Path> {
        self.base.chains.iter().chain(&self.fresh.chains)
    }
    fn counted(&self, chain: usize) -> &[f64] {
        let before = self.base.chains.len();
        if chain < before { &self.base.counted[chain] } else { &self.fresh.counted[chain - before] }
    }
}

/// Prices, of which any give a bound as long as those of chains weigh 1 together.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// Weight of each chain that has one, or had one.
    pub chains: Vec<(usize, f64)>,
    /// Of a layer of each kind, in seconds.
    pub kinds: Vec<f64>,
}

/// Share by which a mean may surprise its chains before what it waits for joins them.
pub const SURPRISE: f64 = 1e-4;
/// Most chains that are known.
const MOST_CHAINS: usize = 4000;
/// What does not happen.
const NEVER: f64 = f64::INFINITY;

/// The cheapest choice of a rank for each number of layers: its price, and which it is.
type Cheapest = Vec<(f64, usize)>;

/// What prices came to.
pub struct Priced {
    /// No split of the branch has a shorter longest chain.
    pub value: f64,
    /// The choice of each rank that takes this.
    pub chosen: Vec<usize>,
}

impl<'a> Field<'a> {
    /// Of a program's choices; `goal` = about what a pipeline takes.
    pub fn new(program: &'a Program, configs: &'a Configs, network: &Network, goal: f64) -> Self {
        let sizes = |of_rank: &OfRank| (0..of_rank.len()).map(|choice| of_rank.sizes(choice, network)).collect();
        let sizes: Vec<Vec<Vec<u32>>> = configs.ranks.iter().map(sizes).collect();
        let sums = |of_rank: &Vec<Vec<u32>>| of_rank.iter().map(|size| size.iter().sum::<u32>() as usize).collect();
        let layers = sizes.iter().map(sums).collect();
        let kinds = |of_rank: &OfRank| {
            (0..of_rank.len()).flat_map(|choice| of_rank.kinds(choice).iter().map(|&n| f64::from(n))).collect()
        };
        let kinds = configs.ranks.iter().map(kinds).collect();
        let mut totals = vec![0.0; program.layer_kinds()];
        for &kind in &program.items {
            totals[kind] += 1.0;
        }
        let schedule = program.stager.plan().schedule;
        let parts = if schedule.splits_backward() || schedule.is_bidirectional() { 4 } else { 2 };
        let mut from = vec![0];
        for of_rank in &configs.ranks {
            from.push(from[from.len() - 1] + parts * of_rank.chunks.len());
        }
        let unit = goal * program.ranks as f64 / program.len() as f64;
        let (player, pairing) = (program.player(), program.stager.pairs().pairing());
        let (stages, items) = (program.chunks, program.len());
        Self { configs, sizes, player, pairing, stages, items, layers, kinds, totals, unit, from, parts }
    }

    /// Adds a chain to a pool.
    pub fn join(&self, pool: &mut Pool, path: Path) {
        let mut counted = Vec::with_capacity(self.width());
        for of_rank in &self.configs.ranks {
            for weights in [&path.forward, &path.backward, &path.wgrad, &path.traffic].into_iter().take(self.parts) {
                counted.extend(of_rank.chunks.iter().map(|&chunk| weights[chunk]));
            }
        }
        pool.chains.push(path);
        pool.counted.push(counted);
    }

    /// How many numbers a chain counts.
    pub fn width(&self) -> usize {
        self.from[self.configs.ranks.len()]
    }

    /// Chains weighed together.
    fn blend(&self, prices: &Prices, known: &Known) -> Vec<f64> {
        let mut blend = vec![0.0; self.width()];
        for &(chain, weight) in prices.chains.iter().filter(|(_, weight)| *weight > 0.0) {
            blend.iter_mut().zip(known.counted(chain)).for_each(|(sum, counted)| *sum += weight * counted);
        }
        blend
    }

    /// The price of each choice left of a rank.
    fn prices(&self, rank: usize, left: &[usize], blend: &[f64], kinds: &[f64]) -> impl Iterator<Item = f64> {
        let of_rank = &self.configs.ranks[rank];
        let counted = &blend[self.from[rank]..self.from[rank + 1]];
        let v = of_rank.chunks.len();
        let floating = counted[v..2 * v].iter().copied().fold(NEVER, f64::min);
        left.iter().map(move |&choice| {
            let passes: f64 = counted.iter().zip(of_rank.times(choice)).map(|(weight, time)| weight * time).sum();
            let held = &self.kinds[rank][choice * kinds.len()..];
            let held: f64 = kinds.iter().zip(held).map(|(price, n)| price * n).sum();
            passes + of_rank.floating(choice) * floating - held
        })
    }

    fn cheapest(&self, rank: usize, left: &[usize], prices: impl Iterator<Item = f64>) -> Cheapest {
        let layers = &self.layers[rank];
        let mut list: Cheapest = Vec::with_capacity(16);
        for (&choice, price) in left.iter().zip(prices) {
            let layers = layers[choice];
            if layers >= list.len() {
                list.resize(layers + 1, (NEVER, 0));
            }
            if price < list[layers].0 {
                list[layers] = (price, choice);
            }
        }
        list
    }

    /// The least sum over ranks that together hold every layer.
    ///
    /// ```text
    /// L(w, π) = min over choices c_r that hold n layers together of  Σ_r (Σ_k w_k·length_k(c_r) − Σ_q π_q·layers_q(c_r)) + Σ_q π_q·total_q
    /// ```
    ///
    /// No w ≥ 0 with Σ w = 1 and no π gives more than the longest chain of the shortest split.
    pub fn priced(&self, left: &[Vec<usize>], prices: &Prices, known: &Known) -> Option<Priced> {
        let blend = self.blend(prices, known);
        let of_rank = |(rank, left): (usize, &Vec<usize>)| {
            self.cheapest(rank, left, self.prices(rank, left, &blend, &prices.kinds))
        };
        let cheapest: Vec<Cheapest> = left.iter().enumerate().map(of_rank).collect();
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
                so_far.map_or(NEVER, |so_far| so_far + list[layers].0)
            };
            let layers = (0..list.len()).min_by(|&a, &b| before(a).total_cmp(&before(b)))?;
            chosen[rank] = list[layers].1;
            at -= layers;
        }
        Some(Priced { value: sum + self.given(prices), chosen })
    }

    fn given(&self, prices: &Prices) -> f64 {
        prices.kinds.iter().zip(&self.totals).map(|(price, total)| price * total).sum()
    }

    /// The same for every choice of every rank: no split with it is shorter.
    pub fn with_each(&self, left: &[Vec<usize>], prices: &Prices, known: &Known) -> Vec<Vec<f64>> {
        let blend = self.blend(prices, known);
        let of_rank =
            |(rank, left): (usize, &Vec<usize>)| self.prices(rank, left, &blend, &prices.kinds).collect::<Vec<f64>>();
        let priced: Vec<Vec<f64>> = left.iter().enumerate().map(of_rank).collect();
        let of_rank = |(rank, left): (usize, &Vec<usize>)| self.cheapest(rank, left, priced[rank].iter().copied());
        let cheapest: Vec<Cheapest> = left.iter().enumerate().map(of_rank).collect();
        let (n, ranks, given) = (self.items, left.len(), self.given(prices));
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
                before.iter().enumerate().map(rest).fold(NEVER, f64::min)
            };
            let rests: Vec<f64> = (0..list.len()).map(rest).collect();
            let with = |(&choice, price): (&usize, &f64)| rests[self.layers[rank][choice]] + price + given;
            all.push(left[rank].iter().zip(&priced[rank]).map(with).collect());
            before = extended(&before, list, n);
        }
        all
    }

    /// Lengths of chains through these choices.
    pub fn lengths(&self, chosen: &[usize], at: &Prices, known: &Known) -> Vec<f64> {
        let mut times = Vec::with_capacity(self.width());
        for (of_rank, &choice) in self.configs.ranks.iter().zip(chosen) {
            times.extend_from_slice(&of_rank.times(choice)[..self.parts * of_rank.chunks.len()]);
        }
        at.chains.iter().map(|&(chain, _)| dot(known.counted(chain), &times)).collect()
    }

    /// Moves prices along the subgradient by `pace` of what Polyak's rule gives.
    pub fn step(&self, here: &mut Prices, priced: &Priced, lengths: &[f64], goal: f64, pace: f64) -> bool {
        let mean: f64 = lengths.iter().zip(&here.chains).map(|(length, (_, weight))| length * weight).sum();
        let slope = |(length, &(_, weight)): (&f64, &(usize, f64))| {
            let slope = length - mean;
            if weight <= 0.0 && slope < 0.0 { 0.0 } else { slope }
        };
        let slopes: Vec<f64> = lengths.iter().zip(&here.chains).map(slope).collect();
        let mut short = self.totals.clone();
        for (rank, &choice) in priced.chosen.iter().enumerate() {
            for (short, &n) in short.iter_mut().zip(self.configs.ranks[rank].kinds(choice)) {
                *short -= f64::from(n);
            }
        }
        let norm: f64 = slopes.iter().map(|slope| slope * slope).sum::<f64>()
            + short.iter().map(|short| (short * self.unit).powi(2)).sum::<f64>();
        if norm <= 0.0 {
            return false;
        }
        let step = pace * (goal - priced.value) / norm;
        let mut weights: Vec<f64> =
            here.chains.iter().zip(&slopes).map(|((_, weight), slope)| weight + step * slope).collect();
        project(&mut weights);
        here.chains.iter_mut().zip(weights).for_each(|(chain, weight)| chain.1 = weight);
        here.kinds.iter_mut().zip(&short).for_each(|(price, short)| *price += step * short * self.unit * self.unit);
        true
    }

    /// Stages of ranks that hold a mean of choices; what is recomputed on any of a rank's stages is not in it.
    pub fn loads(&self, shares: &[Vec<(usize, f64)>]) -> Vec<Load> {
        let mut loads = vec![Load::default(); self.stages];
        for (of_rank, shares) in self.configs.ranks.iter().zip(shares) {
            let v = of_rank.chunks.len();
            for &(choice, share) in shares {
                let times = of_rank.times(choice);
                for (at, &chunk) in of_rank.chunks.iter().enumerate() {
                    loads[chunk].forward += share * times[at];
                    loads[chunk].backward += share * times[v + at];
                    loads[chunk].wgrad += share * times[2 * v + at];
                    loads[chunk].traffic += share * times[3 * v + at];
                }
            }
        }
        loads
    }

    /// What chains count of stages, in their order.
    fn times(&self, loads: &[Load]) -> Vec<f64> {
        let parts: [fn(&Load) -> f64; 4] = [|l| l.forward, |l| l.backward, |l| l.wgrad, |l| l.traffic];
        let mut times = Vec::with_capacity(self.width());
        for of_rank in &self.configs.ranks {
            for part in &parts[..self.parts] {
                times.extend(of_rank.chunks.iter().map(|&chunk| part(&loads[chunk])));
            }
        }
        times
    }

    /// The chain that a mean waits for beyond those with a price, if it is at least as long as `limit`; fresh ones join. `played`
    /// counts the operations that this took.
    pub fn surprise(
        &self,
        loads: &[Load],
        at: &Prices,
        mut limit: f64,
        (known, played): (&mut Known, &mut usize),
    ) -> Option<usize> {
        let times = self.times(loads);
        let lengths = (0..known.len()).map(|chain| (chain, dot(known.counted(chain), &times)));
        let longest = lengths.max_by(|a, b| a.1.total_cmp(&b.1));
        *played += self.width() * known.len();
        if let Some((chain, own)) = longest
            && own >= limit
        {
            if !at.chains.iter().any(|&(priced, _)| priced == chain) {
                return Some(chain);
            }
            limit = own * (1.0 + SURPRISE);
        }
        let player = self.player.filter(|_| known.len() < MOST_CHAINS)?;
        *played += player.operations();
        let path = player.critical_path(&stage_times(self.pairing, loads), self.pairing)?;
        if length(&path, loads) < limit || known.chains().any(|chain| *chain == path) {
            return None;
        }
        self.join(&mut known.fresh, path);
        Some(known.len() - 1)
    }
}

/// A sum of products, in four sums beside each other.
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

/// The least price of ranks that hold so many layers together, `most` or fewer, with one rank more.
fn extended(table: &[f64], list: &Cheapest, most: usize) -> Vec<f64> {
    let mut next = vec![NEVER; (table.len() + list.len()).saturating_sub(1).min(most + 1)];
    for (layers, &(price, _)) in list.iter().enumerate().filter(|(_, (price, _))| *price < NEVER) {
        if layers < next.len() {
            next[layers..].iter_mut().zip(table).for_each(|(to, from)| *to = to.min(from + price));
        }
    }
    next
}
