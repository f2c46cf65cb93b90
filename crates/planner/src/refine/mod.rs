//! Layers and recomputation of each stage: what enumeration over degrees cannot choose.

mod cuts;
mod device;
mod edges;
mod enumeration;
mod frontier;
mod multi;
mod paths;
pub mod pools;
mod program;
pub mod ranking;
mod single;

use serde::Serialize;

use meshwright_engine::cost::{Costs, StagedEvaluation, Stager};
use meshwright_engine::plan::{Offload, Plan, Recompute, ZeroStage};
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::units::{Bytes, Seconds};

use edges::Edges;
pub use program::Freedom;
use program::StageLoad;
use program::StageProgram;
pub use single::exact;

/// Optimality of a refined plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Proof {
    /// No other stages are faster, in the model.
    Optimal,
    /// No other stages are faster by more than this share.
    WithinGap {
        /// Optimality gap, as a share of the step.
        gap: f64,
    },
    /// A limit on the work ended the search; no other stages are faster by more than this share.
    TimeLimit {
        /// Optimality gap, as a share of the step.
        gap: f64,
    },
}

impl Proof {
    /// Optimality gap, as a share of the step.
    pub const fn gap(self) -> f64 {
        match self {
            Self::Optimal => 0.0,
            Self::WithinGap { gap } | Self::TimeLimit { gap } => gap,
        }
    }
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Optimal => f.write_str("optimal"),
            Self::WithinGap { gap } => write!(f, "within {:.2} %", gap * 100.0),
            Self::TimeLimit { gap } => write!(f, "cut short, within {:.2} %", gap * 100.0),
        }
    }
}

/// Plan with stages of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Refined {
    /// The stages.
    pub staged: StagedPlan,
    /// Evaluation of the stages, independent of the solver.
    pub price: StagedEvaluation,
    /// Step time of the plan before, by the same evaluator; none where it did not fit.
    pub before: Option<Seconds>,
    /// Lower bound on the step time of any stages of this plan.
    pub bound: Seconds,
    /// Optimality.
    pub proof: Proof,
    /// Splits that were evaluated.
    pub replayed: usize,
}

impl Refined {
    /// Step time.
    pub fn step(&self) -> Seconds {
        self.price.evaluation.step.total()
    }
}

/// Why no stages of a plan fit: the constraints that cannot hold, by the name of their family, with their numbers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Infeasible {
    /// Fewer layers than stages that must hold one.
    #[error("layers: every stage holds one: {stages} stages between embedding and loss, {layers} layers")]
    TooFewLayers {
        /// Stages that may not be empty.
        stages: u32,
        /// Layers.
        layers: u32,
    },
    /// A rank is over its memory however layers are cut and recomputed.
    #[error(
        "memory: rank {rank}: {in_flight} in flight x {each}, states {states} and working set {working} over its {room}, with all that recomputation can save"
    )]
    Memory {
        /// The rank that is over by the most in the split that comes nearest.
        rank: u32,
        /// What tensors may fill.
        room: Bytes,
        /// Weights, gradients and optimizer states.
        states: Bytes,
        /// Logits, a recomputed layer, caches.
        working: Bytes,
        /// Micro-batches in flight.
        in_flight: f64,
        /// Activations of one of them.
        each: Bytes,
    },
    /// What ranks leave on their host is over its memory.
    #[error("host: ranks of one host leave {needed} there, over its {available}")]
    Host {
        /// Left by the ranks of the fullest host.
        needed: Bytes,
        /// Memory of a host.
        available: Bytes,
    },
    /// The program does not apply.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// One method of the solver, so that its worth can be measured by leaving it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Bisection of the slowest stage's time, one stage a rank.
    Bisection,
    /// Shortest paths over cuts, one stage a rank: without them, the methods of several stages a rank.
    ShortestPaths,
    /// Descent by single layers.
    Descent,
    /// Annealing, several stages a rank.
    Annealing,
    /// Recomputation of the incumbent chosen again by the replay, several stages a rank.
    Rechoice,
    /// Lagrangian branch and bound, several stages a rank.
    BranchAndBound,
    /// Enumeration of every split where there are few.
    Enumeration,
}

/// Cuts of the layers into stages, with the loads of the stages.
#[derive(Clone, Debug, PartialEq)]
struct StagedSplit {
    /// First item of each stage, and the number of items at the end.
    cuts: Vec<usize>,
    /// Stages.
    loads: Vec<StageLoad>,
}

/// Incumbent of one program with a lower bound.
struct Solution {
    /// Incumbent and its step time; none where no split was found.
    best: Option<(f64, StagedSplit)>,
    /// Lower bound on the step time of every split.
    bound: f64,
    /// Splits that were evaluated.
    replayed: usize,
    /// Whether a limit on the work ended the search.
    cut_short: bool,
}

/// Settings of the solver.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Choices beside the number of layers.
    pub freedom: Freedom,
    /// What may wait on the host, the same for every rank; one of these is chosen. None listed: nothing, or what the plan leaves
    /// there.
    pub offloads: Vec<Offload>,
    /// Gap at which to stop.
    pub tolerance: f64,
    /// Most splits that local search evaluates: the same on every machine.
    pub most_replays: usize,
    /// Whether every split is enumerated where there are few.
    pub enumerate: bool,
    /// Whether a split to rank plans by is enough: with several stages a rank, neither annealing nor branch and bound.
    pub rough: bool,
    /// Method to leave out.
    pub without: Option<Method>,
}

impl Options {
    /// Whether a method is used.
    pub(crate) fn uses(&self, method: Method) -> bool {
        self.without != Some(method)
    }
}

impl Default for Options {
    fn default() -> Self {
        let freedom = Freedom::default();
        Self {
            freedom,
            offloads: Vec::new(),
            tolerance: 1e-9,
            most_replays: 400,
            enumerate: true,
            rough: false,
            without: None,
        }
    }
}

/// Finds the stages of a plan: for its degrees, layers of every virtual stage, what each recomputes, and what waits on the
/// host, so that the replayed step is the shortest under every rank's own memory.
///
/// The answer is priced by `cost::Stager`, which knows nothing of the program, and is never slower than the plan as it was.
///
/// # Errors
/// Says why no stages fit, with the numbers.
pub fn refine(costs: &Costs, plan: &Plan, options: &Options) -> Result<Refined, Infeasible> {
    if plan.zero == ZeroStage::Three {
        return Err(Infeasible::Unsupported("ZeRO 3 gathers weights layer by layer: its stages are not refined"));
    }
    let stager = Stager::new(costs, plan);
    let (staged, price) = unrefined(costs, &stager, plan);
    let fits = price.over(costs.problem.hbm_budget()).is_none() && stager.over_host(&staged).is_none();
    let before = fits.then(|| price.evaluation.step.total());
    let mut answer = Solution { best: None, bound: f64::INFINITY, replayed: 0, cut_short: false };
    let mut best = before.map(|step| (step, staged, price));
    let mut why: Option<Infeasible> = None;
    let (mut offloads, mut covered) = offloads(&stager, plan, options);
    let programs = offloads.len();
    let mut next = 0;
    while let Some(&offload) = offloads.get(next) {
        next += 1;
        let freedom = Freedom { offload, ..options.freedom };
        let program = StageProgram::new(&stager, plan.recompute, freedom);
        let chunks = program.chunks as u32;
        let needed = chunks.saturating_sub(2);
        if needed as usize > program.len() || (chunks == 1 && program.len() == 0) {
            return Err(Infeasible::TooFewLayers { stages: needed, layers: program.len() as u32 });
        }
        let known = best.as_ref().map(|(step, ..)| step.get());
        let of_offload = solve_under(&program, options, known, programs);
        answer.bound = answer.bound.min(of_offload.bound);
        answer.replayed += of_offload.replayed;
        answer.cut_short |= of_offload.cut_short;
        let Some((_, split)) = of_offload.best else {
            if known.is_none() {
                why = Some(nearest(&program));
            }
            continue;
        };
        let staged = program.staged(&split);
        let price = stager.evaluate(&staged);
        let step = price.evaluation.step.total();
        // The solver's word is not taken: what the evaluator finds too large or slower is not returned.
        let believed = price.over(costs.problem.hbm_budget()).is_none();
        debug_assert!(believed, "the evaluator refutes the program: {:?}", price.over(costs.problem.hbm_budget()));
        // Hosts are shared by ranks that the program takes one by one: what is too much for them is refused here.
        if let Some((needed, available)) = stager.over_host(&staged) {
            why = Some(Infeasible::Host { needed, available });
            offloads.append(&mut covered); // smaller shares may do
            continue;
        }
        if believed && best.as_ref().is_none_or(|(known, ..)| step < *known) {
            best = Some((step, staged, price));
        }
    }
    match best {
        Some((_, staged, price)) => Ok(finish(staged, price, before, &answer)),
        None => Err(why.unwrap_or(Infeasible::Unsupported("nothing was allowed to change"))),
    }
}

/// What may wait on the host, and what of it is covered by the rest. Activations whose transfer hides behind compute cost nothing:
/// of such shares the largest will do, where the host takes it.
fn offloads(stager: &Stager, plan: &Plan, options: &Options) -> (Vec<Offload>, Vec<Offload>) {
    let mut all =
        if options.offloads.is_empty() { vec![Offload::NONE, plan.offload] } else { options.offloads.clone() };
    let kinds = 0..stager.costs().problem.model().kinds.len();
    let time = |kind: usize, share: f64| stager.layer(kind, Recompute::None, share).time;
    let is_free = |share: f64| kinds.clone().all(|kind| time(kind, share) == time(kind, 0.0));
    let free: Vec<f64> = all.iter().map(|o| o.activations).filter(|&share| is_free(share)).collect();
    let most = free.iter().copied().fold(0.0, f64::max);
    all.sort_by(|a, b| a.optimizer.total_cmp(&b.optimizer).then(a.activations.total_cmp(&b.activations)));
    all.dedup();
    all.into_iter().partition(|o| !free.contains(&o.activations) || o.activations >= most)
}

/// Split and lower bound of one program, under an incumbent's step `known`; `programs` share the work that one plan is worth.
fn solve_under(program: &StageProgram, options: &Options, known: Option<f64>, programs: usize) -> Solution {
    let stager = program.stager;
    if let Some(known) = known {
        let least = stager.micro_batches() * multi::bound::busiest(program) + program.sends;
        if Edges::least(program).lift(program, least) >= known {
            return Solution { best: None, bound: known, replayed: 0, cut_short: false };
        }
    }
    let step = |split: &StagedSplit| stager.evaluate(&program.staged(split)).evaluation.step.total().get();
    solve(program, (options, programs), enumeration::MOST_ENUMERATED, step)
}

/// Split and lower bound of one program, where `step` is the step time of a split; every split is enumerated where there are at most
/// `most`.
fn solve(
    program: &StageProgram,
    (options, programs): (&Options, usize),
    most: f64,
    mut step: impl FnMut(&StagedSplit) -> f64,
) -> Solution {
    let single = program.chunks == program.ranks && (program.stager.plays() || program.ranks == 1);
    let mut answer = if single && options.uses(Method::ShortestPaths) {
        single::solve(program, paths::dependency_paths(program), options, &mut step)
    } else {
        multi::solve(program, (options, programs), &mut step)
    };
    if options.enumerate && options.uses(Method::Enumeration) && enumeration::splits(program) <= most {
        enumeration::enumerate(program, &mut step, &mut answer);
    }
    if let Some((time, _)) = answer.best {
        answer.bound = answer.bound.min(time);
    }
    answer
}

/// Refined plan of a solution, with its optimality.
fn finish(staged: StagedPlan, price: StagedEvaluation, before: Option<Seconds>, answer: &Solution) -> Refined {
    let step = price.evaluation.step.total();
    let bound = Seconds::new(answer.bound).min(step);
    let gap = (step - bound) / step;
    let proof = match gap {
        none if none <= 1e-9 => Proof::Optimal,
        gap if answer.cut_short => Proof::TimeLimit { gap },
        gap => Proof::WithinGap { gap },
    };
    Refined { staged, price, before, bound, proof, replayed: answer.replayed }
}

/// Plan before refinement, with the stages that its split and recomputation give, and its evaluation.
fn unrefined(costs: &Costs, stager: &Stager, plan: &Plan) -> (StagedPlan, StagedEvaluation) {
    let counts = costs.layers_of_chunks(plan, &costs.shape(plan));
    let staged = StagedPlan::uniform(costs.problem.model(), plan, &counts);
    let price = stager.evaluate(&staged);
    (staged, price)
}

/// Names the rank that is over by the most in the split that comes nearest to fitting.
fn nearest(program: &StageProgram) -> Infeasible {
    let (rank, cuts) = cuts::nearest_split(program);
    let stager = program.stager;
    let chunks: Vec<usize> = (0..program.chunks).filter(|&chunk| program.rank_of(chunk) == rank).collect();
    let room = stager.costs().tensor_room(stager.plan());
    let fixed = room - Bytes::new(program.room[rank]);
    let states: f64 = chunks.iter().map(|&chunk| program.states(cuts[chunk], cuts[chunk + 1])).sum();
    let working = stager.fixed_bytes(rank as u32);
    let most = |chunk: usize| program.most_alive[chunk];
    let in_flight = chunks.iter().map(|&chunk| most(chunk)).sum::<f64>() / chunks.len() as f64;
    let mut each = 0.0;
    let mut again = 0.0_f64;
    for &chunk in &chunks {
        let frontier = program.frontier(chunk, cuts[chunk], cuts[chunk + 1]);
        let least = frontier
            .points
            .iter()
            .min_by(|a, b| (a.kept * most(chunk) + a.again).total_cmp(&(b.kept * most(chunk) + b.again)));
        if let Some(point) = least {
            each += point.kept * most(chunk) / in_flight.max(1.0);
            again = again.max(point.again);
        }
    }
    Infeasible::Memory {
        rank: rank as u32,
        room,
        states: Bytes::new(states) + fixed - working,
        working: working + Bytes::new(again),
        in_flight,
        each: Bytes::new(each),
    }
}
