//! How many layers each rank's stages hold, branched on until no split that is left is faster than what is known.

use rayon::prelude::*;

use super::configs::Configs;
use super::network::Network;
use super::program::Program;
use super::raise::{Branch, Raised, Rest, raise};
use super::weigh::{Field, Pool, Prices};
use meshwright_engine::schedule::paths::Path;

/// Branches raised at once, whatever the number of threads, so that the answer is the same on all machines.
const AT_ONCE: usize = 4;

/// What may still be done, the same on every machine: multiplications, and operations played.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How much is left.
    pub left: usize,
}

/// What is known of all branches.
struct Tree<'a> {
    program: &'a Program<'a>,
    network: &'a Network<'a>,
    field: Field<'a>,
    pool: Pool,
    goal: f64,
    open: Vec<Branch>,
    /// The least bound of splits that are not branched any more.
    proved: f64,
}

/// A lower bound on the longest chain of every split of these choices, up to `goal`. Chains that splits wait for join the others;
/// splits whose chains are shorter than the goal are played, which says what the goal is from then on.
///
/// The branches with the least bounds are split: by how many layers a rank holds, then by how many each of its stages holds, then
/// by what its stages recompute.
pub fn prove(
    program: &Program,
    network: &Network,
    configs: &Configs,
    chains: &mut Vec<Path>,
    goal: f64,
    (budget, play): (&mut Budget, &mut dyn FnMut(Vec<usize>) -> f64),
) -> f64 {
    let left: Vec<Vec<usize>> = configs.ranks.iter().map(|of_rank| (0..of_rank.len()).collect()).collect();
    let even = 1.0 / chains.len() as f64;
    let prices = Prices {
        chains: (0..chains.len()).map(|chain| (chain, even)).collect(),
        kinds: vec![0.0; program.layer_kinds()],
    };
    let field = Field::new(program, configs, network, goal);
    let mut pool = Pool::default();
    chains.drain(..).for_each(|chain| field.join(&mut pool, chain));
    let open = vec![Branch { left, prices, bound: 0.0, depth: 0, leaf: false }];
    let mut tree = Tree { program, network, field, pool, goal, open, proved: f64::INFINITY };
    while budget.left > 0 {
        let next = tree.next();
        if next.is_empty() {
            break;
        }
        let before = tree.pool.chains.len();
        let raised: Vec<Raised> =
            next.into_par_iter().map(|branch| raise(&tree.field, &tree.pool, branch, tree.goal)).collect();
        for raised in raised {
            budget.left = budget.left.saturating_sub(raised.work);
            tree.take(raised, before, play);
        }
    }
    *chains = tree.pool.chains;
    tree.open.iter().map(|branch| branch.bound).fold(tree.proved, f64::min).min(tree.goal)
}

impl Tree<'_> {
    /// The branches with the least bounds, of equals the deepest, as far as they are under the goal.
    fn next(&mut self) -> Vec<Branch> {
        self.open.sort_by(|a, b| b.bound.total_cmp(&a.bound).then(a.depth.cmp(&b.depth)));
        let first = self.open.len().saturating_sub(AT_ONCE);
        let over = self.open[first..].iter().take_while(|branch| branch.bound >= self.goal).count();
        self.open.split_off(first + over)
    }

    /// Takes note of what was met where so many chains were known, and splits what is left.
    fn take(&mut self, raised: Raised, before: usize, play: &mut dyn FnMut(Vec<usize>) -> f64) {
        let places = self.join(raised.fresh, before);
        if let Some(cuts) = raised.short.and_then(|chosen| self.cuts(&chosen)) {
            self.goal = play(cuts).min(self.goal);
        }
        let Some(Rest { mut branch, shares, each }) = raised.rest else { return };
        for (chain, _) in &mut branch.prices.chains {
            *chain = if *chain < before { *chain } else { places[*chain - before] };
        }
        let Some((rank, parts)) = self.parts(&branch, &shares) else {
            return self.leaf(branch, &shares, play);
        };
        let with = |choice: &usize| branch.left[rank].binary_search(choice).map_or(f64::INFINITY, |at| each[rank][at]);
        for part in parts {
            let bound = part.iter().map(with).fold(f64::INFINITY, f64::min).max(branch.bound);
            let mut left = branch.left.clone();
            left[rank] = part;
            self.open.push(Branch { left, prices: branch.prices.clone(), bound, depth: branch.depth + 1, leaf: false });
        }
    }

    /// A branch where every rank holds one number of layers for each stage: the cuts are known, and with them the kinds. What is
    /// recomputed is left to choose.
    fn leaf(&mut self, mut branch: Branch, shares: &[Vec<(usize, f64)>], play: &mut dyn FnMut(Vec<usize>) -> f64) {
        let mut cuts = vec![0; self.program.chunks + 1];
        for (rank, left) in branch.left.iter().enumerate() {
            let of_rank = &self.field.configs.ranks[rank];
            for (&chunk, &layers) in of_rank.chunks.iter().zip(&self.field.sizes[rank][left[0]]) {
                cuts[chunk + 1] = layers as usize;
            }
        }
        for chunk in 1..cuts.len() {
            cuts[chunk] += cuts[chunk - 1];
        }
        for (of_rank, left) in self.field.configs.ranks.iter().zip(&mut branch.left) {
            left.retain(|&choice| {
                of_rank.chunks.iter().zip(of_rank.shapes(choice)).all(|(&chunk, &shape)| {
                    let counts = self.network.shapes()[shape].counts.iter().copied();
                    self.program.counts_between(cuts[chunk], cuts[chunk + 1]).eq(counts)
                })
            });
        }
        if branch.left.iter().any(Vec::is_empty) {
            return;
        }
        if !branch.leaf {
            self.open.push(Branch { depth: branch.depth + 1, leaf: true, ..branch });
            return;
        }
        self.goal = play(cuts).min(self.goal);
        if let Some((rank, parts)) = halves(&self.field, &branch, shares) {
            for part in parts {
                let mut left = branch.left.clone();
                left[rank] = part;
                self.open.push(Branch {
                    left,
                    prices: branch.prices.clone(),
                    bound: branch.bound,
                    depth: branch.depth + 1,
                    leaf: true,
                });
            }
            return;
        }
        self.proved = self.proved.min(branch.bound);
    }

    /// Adds chains to the pool; where those of a branch have come to lie. Others may have met them at the same time.
    fn join(&mut self, fresh: Pool, before: usize) -> Vec<usize> {
        let mut places = Vec::with_capacity(fresh.chains.len());
        for chain in fresh.chains {
            let at = self.pool.chains[before..].iter().position(|known| *known == chain);
            places.push(before + at.unwrap_or(self.pool.chains.len() - before));
            if at.is_none() {
                self.field.join(&mut self.pool, chain);
            }
        }
        places
    }

    /// Cuts that give each stage the layers of its rank's choice; `None` where they are no split of these kinds.
    fn cuts(&self, chosen: &[usize]) -> Option<Vec<usize>> {
        let program = self.program;
        let mut shapes = vec![0; program.chunks];
        for (of_rank, &choice) in self.field.configs.ranks.iter().zip(chosen) {
            for (&chunk, &shape) in of_rank.chunks.iter().zip(of_rank.shapes(choice)) {
                shapes[chunk] = shape;
            }
        }
        let mut cuts = vec![0];
        for (chunk, shape) in shapes.into_iter().enumerate() {
            let (a, shape) = (cuts[chunk], &self.network.shapes()[shape]);
            let b = a + shape.counts.iter().sum::<u32>() as usize;
            if b > program.len() || !program.counts_between(a, b).eq(shape.counts.iter().copied()) {
                return None;
            }
            cuts.push(b);
        }
        (cuts[program.chunks] == program.len()).then_some(cuts)
    }

    /// A rank, and its choices in parts: by layers of the rank where they differ on any, else by layers of each stage. The rank
    /// whose parts are mixed the most; none where every rank has one.
    fn parts(&self, here: &Branch, shares: &[Vec<(usize, f64)>]) -> Option<(usize, Vec<Vec<usize>>)> {
        let by_rank = |rank: usize, choice: usize| vec![self.field.sizes[rank][choice].iter().sum::<u32>()];
        let by_stage = |rank: usize, choice: usize| self.field.sizes[rank][choice].clone();
        most_mixed(here, shares, by_rank).or_else(|| most_mixed(here, shares, by_stage))
    }
}

/// The rank whose choices are mixed the most by a key, and those in parts of equal keys.
fn most_mixed(
    here: &Branch,
    shares: &[Vec<(usize, f64)>],
    key: impl Fn(usize, usize) -> Vec<u32>,
) -> Option<(usize, Vec<Vec<usize>>)> {
    let mut found: Option<(f64, usize, Vec<Vec<usize>>)> = None;
    for (rank, left) in here.left.iter().enumerate() {
        let mut parts: Vec<(Vec<u32>, Vec<usize>)> = Vec::new();
        for &choice in left {
            let key = key(rank, choice);
            match parts.iter_mut().find(|part| part.0 == key) {
                Some(part) => part.1.push(choice),
                None => parts.push((key, vec![choice])),
            }
        }
        if parts.len() < 2 {
            continue;
        }
        let share = |part: &[usize]| -> f64 {
            shares[rank].iter().filter(|(choice, _)| part.contains(choice)).map(|(_, share)| share).sum()
        };
        let most = parts.iter().map(|part| share(&part.1)).fold(0.0, f64::max);
        if found.as_ref().is_none_or(|(known, ..)| most < *known) {
            found = Some((most, rank, parts.into_iter().map(|part| part.1).collect()));
        }
    }
    found.map(|(_, rank, parts)| (rank, parts))
}

/// Choices of the rank whose choices are mixed the most, in two parts about their mean; none where no rank has all that there are
/// and more than one.
fn halves(field: &Field, here: &Branch, shares: &[Vec<(usize, f64)>]) -> Option<(usize, Vec<Vec<usize>>)> {
    let mut found: Option<(f64, usize, usize)> = None;
    for (rank, left) in here.left.iter().enumerate() {
        if left.len() < 2 || !field.configs.ranks[rank].listed {
            continue;
        }
        let (mut most, mut sum, mut all) = (0.0_f64, 0.0, 0.0);
        for (choice, share) in &shares[rank] {
            most = most.max(*share);
            sum += share * left.binary_search(choice).unwrap_or_default() as f64;
            all += share;
        }
        if found.is_none_or(|(known, ..)| most < known) {
            found = Some((most, rank, ((sum / all) as usize + 1).clamp(1, left.len() - 1)));
        }
    }
    let (_, rank, middle) = found?;
    let (first, second) = here.left[rank].split_at(middle);
    Some((rank, vec![first.to_vec(), second.to_vec()]))
}
