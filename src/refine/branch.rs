//! How many layers each rank's stages hold, branched on until no split that is left is faster than what is known. Only this file
//! of the layer knows microlp.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};

use super::blend::length;
use super::configs::Configs;
use super::coupled::foreseen;
use super::network::Network;
use super::program::{Load, Program};
use crate::schedule::paths::Path;

/// Share of the longest chain by which a mean may surprise the rows before what it waits for joins them.
const SURPRISE: f64 = 1.5e-3;
/// Share by which a row may be shorter than the longest chain and be handed on.
const BINDING: f64 = 1e-6;
/// Most chains that join before the first branch, on a branch, and where every rank's layers are known.
const MOST_JOIN_AT_ROOT: usize = 150;
const MOST_JOIN: usize = 40;
const MOST_JOIN_AT_LEAF: usize = 60;
/// Most chains that are known.
const MOST_CHAINS: usize = 2000;
/// What playing an operation takes, in coefficients of a program.
const PLAY: usize = 1;
/// What solving a program anew takes, in solutions after one more row.
const ANEW: usize = 10;

/// What may still be done, the same on every machine: coefficients of the programs that are solved, and operations played.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How much is left.
    pub left: usize,
}

/// Choices with which a program takes twice the steps of a small one.
const STEPS: usize = 2500;

/// Coefficients of a program, as often as its steps touch them.
const fn work(choices: usize, rows: usize) -> usize {
    choices * rows * (STEPS + choices) / STEPS
}

impl Budget {
    fn spend(&mut self, work: usize) -> bool {
        let enough = self.left >= work;
        self.left = self.left.saturating_sub(work);
        enough
    }
}

/// Splits that are left.
#[derive(Clone)]
struct Branch {
    /// Choices of each rank.
    left: Vec<Vec<usize>>,
    /// The chains that bind them.
    rows: Vec<usize>,
    /// Length of the longest chain, as a share of the goal: no split has a shorter one.
    bound: f64,
    /// The rank whose choice of layers for its stages is mixed the most; none where every rank has one.
    mixed: Option<usize>,
}

/// The linear program over a branch.
///
/// ```text
/// y_rc   share of choice c of rank r        T   the longest chain, as a share of the goal
///
/// minimise   T
/// s.t.       Σ_c y_rc = 1                             every rank holds one choice            (rank)
///            Σ_r Σ_c layers_q(c)·y_rc = total_q       every layer of kind q is held          (layers)
///            Σ_r Σ_c length_k(c)·y_rc ≤ goal·T        for every chain k                      (time)
/// ```
struct Relaxed {
    longest: Variable,
    /// Of each choice left.
    shares: Vec<Vec<Variable>>,
    solution: Solution,
}

/// What is known of all branches.
struct Tree<'a> {
    program: &'a Program<'a>,
    configs: &'a Configs,
    goal: f64,
    /// Layers of each stage, by rank and choice.
    sizes: Vec<Vec<Vec<u32>>>,
    chains: &'a mut Vec<Path>,
    budget: &'a mut Budget,
}

/// A lower bound on the longest chain of every split of these choices, up to `goal`; and cuts that the bound is made of. Chains
/// that means wait for join the others.
///
/// The branch with the least bound is split into one for each number of layers that a rank's stages may hold.
pub fn prove(
    program: &Program,
    network: &Network,
    configs: &Configs,
    chains: &mut Vec<Path>,
    goal: f64,
    budget: &mut Budget,
) -> (f64, Vec<Vec<usize>>) {
    let sizes =
        |of_rank: &super::configs::OfRank| (0..of_rank.len()).map(|choice| of_rank.sizes(choice, network)).collect();
    let sizes: Vec<Vec<Vec<u32>>> = configs.ranks.iter().map(sizes).collect();
    let left = configs.ranks.iter().map(|of_rank| (0..of_rank.len()).collect()).collect();
    let mut tree = Tree { program, configs, goal, sizes, chains, budget };
    let (mut proved, mut met) = (1.0_f64, Vec::new());
    let mut open: Vec<Branch> = tree.relax(left, Vec::new(), 0.0, MOST_JOIN_AT_ROOT).into_iter().collect();
    while let Some(at) = (0..open.len()).min_by(|&a, &b| open[a].bound.total_cmp(&open[b].bound)) {
        if tree.budget.left == 0 {
            break;
        }
        let here = open.swap_remove(at);
        let Some(rank) = here.mixed else {
            if let Some((bound, cuts)) = tree.leaf(here) {
                proved = proved.min(bound);
                met.push(cuts);
            }
            continue;
        };
        for class in tree.classes(rank, &here.left[rank]) {
            let mut left = here.left.clone();
            left[rank] = class;
            open.extend(tree.relax(left, here.rows.clone(), here.bound, MOST_JOIN));
        }
    }
    (open.iter().map(|branch| branch.bound).fold(proved, f64::min) * goal, met)
}

impl Tree<'_> {
    /// Choices with the same number of layers on each stage.
    fn classes(&self, rank: usize, left: &[usize]) -> Vec<Vec<usize>> {
        let sizes = &self.sizes[rank];
        let mut classes: Vec<Vec<usize>> = Vec::new();
        for &choice in left {
            match classes.iter_mut().find(|class| sizes[class[0]] == sizes[choice]) {
                Some(class) => class.push(choice),
                None => classes.push(vec![choice]),
            }
        }
        classes
    }

    /// Solves a branch, and adds the chains that its mean waits for until there are none or its bound is the goal. `None` where no
    /// split is left; a program that is not solved leaves the bound that was known.
    fn relax(&mut self, left: Vec<Vec<usize>>, mut rows: Vec<usize>, known: f64, most: usize) -> Option<Branch> {
        let choices: usize = left.iter().map(Vec::len).sum();
        if left.iter().any(Vec::is_empty) {
            return None;
        }
        if !self.budget.spend(ANEW * work(choices, rows.len() + left.len())) {
            return Some(self.unsolved(left, rows, known));
        }
        let mut relaxed = match self.solve(&left, &rows) {
            Ok(relaxed) => relaxed,
            Err(microlp::Error::Infeasible) => return None,
            Err(_) => return Some(self.unsolved(left, rows, known)),
        };
        let mut bound = known;
        let mut loads = Vec::new();
        for joined in 0..=most {
            bound = bound.max(relaxed.solution.var_value(relaxed.longest));
            if bound >= 1.0 {
                return None;
            }
            loads = self.mean(&left, &relaxed);
            if joined == most || !self.budget.spend(work(choices, rows.len() + left.len())) {
                break;
            }
            let Some(chain) = self.surprise(&loads, &rows, bound * (1.0 + SURPRISE)) else { break };
            rows.push(chain);
            let row = self.time_row(chain, &left, (&relaxed.shares, relaxed.longest));
            match relaxed.solution.add_constraint(row, ComparisonOp::Ge, 0.0).map(microlp::SolveOutcome::into_solution)
            {
                Ok(Ok(solution)) => relaxed.solution = solution,
                Err(microlp::Error::Infeasible) => return None,
                _ => return Some(self.unsolved(left, rows, bound)),
            }
        }
        let limit = relaxed.solution.var_value(relaxed.longest) * self.goal * (1.0 - BINDING);
        rows.retain(|&chain| length(&self.chains[chain], &loads) >= limit);
        Some(Branch { mixed: self.most_mixed(&left, &relaxed), left, rows, bound })
    }

    /// A branch of which no more is known: split where it can be.
    fn unsolved(&self, left: Vec<Vec<usize>>, rows: Vec<usize>, bound: f64) -> Branch {
        let mixed = (0..left.len()).find(|&rank| self.classes(rank, &left[rank]).len() > 1);
        Branch { left, rows, bound, mixed }
    }

    /// The chain that a mean waits for beyond its rows.
    fn surprise(&mut self, loads: &[Load], rows: &[usize], limit: f64) -> Option<usize> {
        let limit = limit * self.goal;
        let lengths = self.chains.iter().map(|chain| length(chain, loads)).enumerate();
        let longest = lengths.max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((chain, own)) = longest
            && own > limit
            && !rows.contains(&chain)
        {
            return Some(chain);
        }
        let operations = self.program.player()?.operations();
        if self.chains.len() >= MOST_CHAINS || !self.budget.spend(PLAY * operations) {
            return None;
        }
        let path = foreseen(self.program, loads)?;
        if length(&path, loads) <= limit || self.chains.contains(&path) {
            return None;
        }
        self.chains.push(path);
        Some(self.chains.len() - 1)
    }

    fn solve(&self, left: &[Vec<usize>], rows: &[usize]) -> Result<Relaxed, microlp::Error> {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let longest = problem.add_var(1.0, (0.0, f64::INFINITY));
        let shares: Vec<Vec<Variable>> =
            left.iter().map(|left| left.iter().map(|_| problem.add_var(0.0, (0.0, 1.0))).collect()).collect();
        for shares in &shares {
            let row: Vec<(Variable, f64)> = shares.iter().map(|&share| (share, 1.0)).collect();
            problem.add_constraint(row, ComparisonOp::Eq, 1.0);
        }
        for kind in 0..self.program.layer_kinds() {
            let total = self.program.items.iter().filter(|&&of| of == kind).count();
            let row = row(left, &shares, |rank, choice| f64::from(self.configs.ranks[rank].kinds(choice)[kind]));
            problem.add_constraint(row, ComparisonOp::Eq, total as f64);
        }
        for &chain in rows {
            problem.add_constraint(self.time_row(chain, left, (&shares, longest)), ComparisonOp::Ge, 0.0);
        }
        match problem.solve()?.into_solution() {
            Ok(solution) => Ok(Relaxed { longest, shares, solution }),
            Err(_) => Err(microlp::Error::InternalError("interrupted".to_owned())),
        }
    }

    /// The row of a chain: its length is no more than the longest.
    fn time_row(
        &self,
        chain: usize,
        left: &[Vec<usize>],
        (shares, longest): (&[Vec<Variable>], Variable),
    ) -> Vec<(Variable, f64)> {
        let path = &self.chains[chain];
        let mut row = row(left, shares, |rank, choice| -self.configs.ranks[rank].length(choice, path) / self.goal);
        row.push((longest, 1.0));
        row
    }

    /// Stages under the mean of all choices; what is recomputed on any of a rank's stages is not in it.
    fn mean(&self, left: &[Vec<usize>], relaxed: &Relaxed) -> Vec<Load> {
        let none = Load { forward: 0.0, backward: 0.0, wgrad: 0.0, kept: 0.0, again: 0.0, slack: 0.0, point: None };
        let mut loads = vec![none; self.program.chunks];
        for ((of_rank, left), shares) in self.configs.ranks.iter().zip(left).zip(&relaxed.shares) {
            let v = of_rank.chunks.len();
            for (&choice, &share) in left.iter().zip(shares) {
                let share = relaxed.solution.var_value(share);
                if share > 0.0 {
                    let times = of_rank.times(choice);
                    for (at, &chunk) in of_rank.chunks.iter().enumerate() {
                        loads[chunk].forward += share * times[at];
                        loads[chunk].backward += share * times[v + at];
                        loads[chunk].wgrad += share * times[2 * v + at];
                    }
                }
            }
        }
        loads
    }

    /// The rank whose classes are mixed the most; none where every rank has one.
    fn most_mixed(&self, left: &[Vec<usize>], relaxed: &Relaxed) -> Option<usize> {
        let of_rank = |rank: usize| -> Option<(f64, usize)> {
            let classes = self.classes(rank, &left[rank]);
            if classes.len() < 2 {
                return None;
            }
            let share = |class: &Vec<usize>| -> f64 {
                let of = left[rank].iter().zip(&relaxed.shares[rank]);
                of.filter(|(choice, _)| class.contains(choice))
                    .map(|(_, &share)| relaxed.solution.var_value(share))
                    .sum()
            };
            Some((classes.iter().map(share).fold(0.0, f64::max), rank))
        };
        (0..left.len()).filter_map(of_rank).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, rank)| rank)
    }

    /// A branch where every rank holds one number of layers for each stage: the cuts are known, and with them the kinds. `None`
    /// where the cuts are no split, or their bound is the goal.
    fn leaf(&mut self, branch: Branch) -> Option<(f64, Vec<usize>)> {
        let mut counts = vec![0; self.program.chunks];
        for (rank, left) in branch.left.iter().enumerate() {
            let size = &self.sizes[rank][*left.first()?];
            for (&chunk, &layers) in self.configs.ranks[rank].chunks.iter().zip(size) {
                counts[chunk] = layers as usize;
            }
        }
        let mut cuts = vec![0];
        for count in counts {
            cuts.push(cuts[cuts.len() - 1] + count);
        }
        if cuts.last() != Some(&self.program.len()) {
            return None;
        }
        let mut left = branch.left;
        for (rank, left) in left.iter_mut().enumerate() {
            let of_rank = &self.configs.ranks[rank];
            let times = |chunk: usize| self.program.times(chunk, cuts[chunk], cuts[chunk + 1]);
            let forward: Vec<f64> = of_rank.chunks.iter().map(|&chunk| times(chunk)[0]).collect();
            // Equal forwards, equal kinds: what is recomputed is in the backward.
            let alike = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.max(b);
            left.retain(|&choice| of_rank.times(choice).iter().zip(&forward).all(|(&a, &b)| alike(a, b)));
        }
        let found = self.relax(left, branch.rows, branch.bound, MOST_JOIN_AT_LEAF)?;
        Some((found.bound, cuts))
    }
}

/// A row over the choices left, but for zeros.
fn row(left: &[Vec<usize>], shares: &[Vec<Variable>], of: impl Fn(usize, usize) -> f64) -> Vec<(Variable, f64)> {
    let mut row = Vec::new();
    for (rank, (left, shares)) in left.iter().zip(shares).enumerate() {
        row.extend(shares.iter().zip(left).map(|(&share, &choice)| (share, of(rank, choice))));
    }
    row.retain(|(_, value)| *value != 0.0);
    row
}
