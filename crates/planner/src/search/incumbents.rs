//! Incumbents: the best plans so far, and the cutoff that a lower bound must stay under.

use std::sync::Arc;

use super::options::{Goal, Objective, SearchOptions};
use super::pareto::{ParetoFront, Tolerances};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::Price;
use meshwright_engine::plan::{Layout, Plan};
use meshwright_engine::units::{Bytes, Seconds};

/// Limits of the plans that an answer has beyond those that it must name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TieLimits {
    /// Number of plans at most, those that must be named among them.
    pub most: usize,
    /// Largest relative difference of their objective from the last that must be named.
    pub within: f64,
}

impl TieLimits {
    /// No plan beyond those that must be named.
    pub const NONE: Self = Self { most: 0, within: 0.0 };
}

/// Goal and limits of one search.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchTarget {
    pub goal: Goal,
    pub top: usize,
    /// Plans beyond the `top` that are wanted where they are nearly as good.
    pub ties: TieLimits,
    /// Memory of a device that a plan may fill ([`Problem::hbm_budget`](meshwright_engine::problem::Problem::hbm_budget)).
    pub hbm_budget: Bytes,
    /// Largest objective value that an answer may have.
    pub ceiling: f64,
    /// Fewest GPUs that a plan uses.
    pub fewest: u32,
    /// Tolerances of a Pareto front; zero for other goals.
    pub tolerances: Tolerances,
}

impl SearchTarget {
    /// Target of a search under the problem's own memory budget.
    pub fn new(costs: &Costs, options: &SearchOptions, goal: Goal) -> Self {
        let hbm_budget = costs.problem.hbm_budget();
        let fewest = if options.restrictions.allows_idle() { 1 } else { costs.problem.cluster().gpus };
        let tolerances = Tolerances::of(goal.tolerance());
        let (top, ties, ceiling) = (options.top, TieLimits::NONE, f64::INFINITY);
        Self { goal, top, ties, hbm_budget, ceiling, fewest, tolerances }
    }

    /// Cutoff: the largest objective that is wanted, given the ascending objectives of the best plans of different layouts.
    fn last(&self, ascending: &[f64]) -> f64 {
        let Some(named) = ascending.get(self.top.saturating_sub(1)) else { return self.ceiling };
        let near = named * (1.0 + self.ties.within);
        let tied = || ascending.get(self.ties.most - 1).map_or(near, |last| last.min(near));
        let last = if self.ties.most > self.top { tied() } else { *named };
        last.min(self.ceiling)
    }

    /// Target of the best plan alone.
    pub fn of_one(self) -> Self {
        Self { top: 1, ties: TieLimits::NONE, ..self }
    }

    /// Number of plans that an answer has at most.
    pub fn most(&self) -> usize {
        if matches!(self.goal, Goal::Pareto { .. }) { usize::MAX } else { self.top.max(self.ties.most) }
    }
}

/// Position of a plan in the order of the space. Of plans that tie, the earlier is kept, in whatever order they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpacePosition {
    /// Rank of the plan's shape by layer bound.
    pub shape: u32,
    /// Number of its pipeline among those of the shape.
    pub pipeline: u32,
}

impl SpacePosition {
    /// Position after all others, of a plan that was known before the search: a plan that ties with it is kept, as if
    /// the search had not known it.
    pub const LAST: Self = Self { shape: u32::MAX, pipeline: u32::MAX };
}

/// Evaluated plan.
#[derive(Clone, Debug)]
struct Candidate {
    plan: Plan,
    price: Price,
    position: SpacePosition,
}

/// Best plan of each layout so far, or the Pareto front so far. Each worker of a batch improves a copy; the copies are merged.
#[derive(Clone, Debug)]
pub(super) struct Incumbents {
    pub wanted: SearchTarget,
    by_layout: Vec<Candidate>,
    /// Cutoff: objective of the worst plan of the answer so far, or the ceiling while there are fewer than `top` plans.
    last: f64,
    /// Pareto front at the start of the batch, which all its workers read.
    known_front: Arc<ParetoFront<Candidate>>,
    /// Plans found since the start of the batch that neither `known_front` nor one another dominates.
    front: ParetoFront<Candidate>,
}

impl Incumbents {
    pub fn new(wanted: SearchTarget) -> Self {
        Self {
            wanted,
            by_layout: Vec::new(),
            last: wanted.ceiling,
            known_front: Arc::default(),
            front: ParetoFront::default(),
        }
    }

    /// Objective that ranks the answer; none in a search for a Pareto front.
    pub fn objective(&self) -> Option<Objective> {
        match self.wanted.goal {
            Goal::Fastest => Some(Objective::StepTime),
            Goal::Best(objective) => Some(objective),
            Goal::Pareto { .. } => None,
        }
    }

    /// Whether a lower bound prunes: no plan of this layout with at least its time and memory can enter the answer.
    pub fn is_hopeless(&self, layout: &Layout, bound: Price) -> bool {
        let Some(objective) = self.objective() else {
            return self.is_dominated(bound, layout.world_size());
        };
        let least = objective.value(bound, layout.world_size());
        least > self.last || self.of_layout(layout).is_some_and(|known| least > measure(known, objective))
    }

    /// Predicate on lower bounds of the step time of plans of one layout: whether they cannot enter the answer.
    pub fn too_slow(&self, layout: &Layout) -> impl Fn(Seconds) -> bool + use<> {
        let gpus = layout.world_size();
        let limit = self.objective().map(|objective| (objective, self.limit(layout, objective)));
        let least = |time| Price { time, memory: Bytes::ZERO };
        move |time: Seconds| limit.is_some_and(|(objective, limit)| objective.value(least(time), gpus) > limit)
    }

    /// Whether as many plans are known as must be named, so that bounds exclude others.
    pub fn has_cutoff(&self) -> bool {
        self.last < self.wanted.ceiling
    }

    /// Best plan of a layout so far.
    fn of_layout(&self, layout: &Layout) -> Option<&Candidate> {
        self.by_layout.iter().find(|known| known.plan.layout == *layout)
    }

    /// Objective beyond which no plan of this layout can enter the answer.
    fn limit(&self, layout: &Layout, objective: Objective) -> f64 {
        self.of_layout(layout).map_or(self.last, |known| measure(known, objective).min(self.last))
    }

    /// Memory beyond which no plan can enter the answer, in a search for the least memory without a budget; `None` in others.
    pub fn most_memory(&self) -> Option<Bytes> {
        let is_sought = self.wanted.goal == Goal::Best(Objective::Memory) && self.wanted.hbm_budget.get().is_infinite();
        is_sought.then(|| Bytes::new(self.last))
    }

    /// Whether no plan of any layout with at least the time and memory of `bound` can enter the answer.
    pub fn is_hopeless_for_all(&self, bound: Price) -> bool {
        let fewest = self.wanted.fewest;
        match self.objective() {
            Some(objective) => objective.value(bound, fewest) > self.last,
            None => self.is_dominated(bound, fewest),
        }
    }

    /// Inserts a plan if it improves on the incumbent of its layout or on the front.
    pub fn offer(&mut self, plan: Plan, price: Price, position: SpacePosition) {
        let candidate = Candidate { plan, price, position };
        let Some(objective) = self.objective() else {
            self.offer_to_front(candidate);
            return;
        };
        match self.by_layout.iter_mut().find(|known| known.plan.layout == candidate.plan.layout) {
            Some(known) if !preferred(&candidate, known, objective) => return,
            Some(known) => *known = candidate,
            None => self.by_layout.push(candidate),
        }
        let mut all: Vec<f64> = self.by_layout.iter().map(|known| measure(known, objective)).collect();
        all.sort_by(f64::total_cmp);
        let last = self.wanted.last(&all);
        self.last = last;
        self.by_layout.retain(|known| measure(known, objective) <= last);
    }

    /// Whether a plan of the Pareto front dominates all plans with at least this time and memory on these GPUs, or covers them
    /// within the tolerance and none of them is faster than every plan of the front.
    fn is_dominated(&self, bound: Price, gpus: u32) -> bool {
        let tolerance = self.wanted.tolerances.search;
        let fronts = || [&*self.known_front, &self.front].into_iter();
        if tolerance <= 0.0 {
            return fronts().any(|front| front.dominates(bound, gpus));
        }
        let is_slower = |front: &ParetoFront<Candidate>| front.least_time().is_some_and(|least| bound.time >= least);
        fronts().any(is_slower) && fronts().any(|front| front.covers(bound, gpus, tolerance))
    }

    fn offer_to_front(&mut self, candidate: Candidate) {
        let (price, gpus) = (candidate.price, candidate.plan.layout.world_size());
        if !self.is_dominated(price, gpus) {
            add(&mut self.front, candidate);
        }
    }

    /// These incumbents with those that workers have found since they were copied.
    pub fn merge(mut self, other: Self) -> Self {
        for candidate in other.by_layout {
            self.offer(candidate.plan, candidate.price, candidate.position);
        }
        drop(other.known_front);
        let found = std::mem::take(&mut self.front).into_values().chain(other.front.into_values());
        found.for_each(|candidate| add(Arc::make_mut(&mut self.known_front), candidate));
        self
    }

    /// Incumbent plans, best first; a Pareto front by ascending step time.
    pub fn into_plans(self) -> Vec<Plan> {
        let objective = self.objective().unwrap_or_default();
        let most = self.wanted.most();
        let mut front = Arc::unwrap_or_clone(self.known_front);
        self.front.into_values().for_each(|candidate| add(&mut front, candidate));
        let tolerance = self.wanted.tolerances.answer;
        let front = if tolerance > 0.0 { front.thinned(tolerance) } else { front };
        let mut all: Vec<Candidate> = self.by_layout.into_iter().chain(front.into_values()).collect();
        all.sort_by(|a, b| {
            let compared_by = |key: fn(&Candidate) -> f64| key(a).total_cmp(&key(b));
            measure(a, objective)
                .total_cmp(&measure(b, objective))
                .then(compared_by(|c| c.price.time.get()))
                .then(compared_by(|c| c.price.memory.get()))
                .then(a.plan.layout.cmp(&b.plan.layout))
        });
        all.into_iter().take(most).map(|candidate| candidate.plan).collect()
    }
}

/// Value of the objective for a candidate.
fn measure(candidate: &Candidate, objective: Objective) -> f64 {
    objective.value(candidate.price, candidate.plan.layout.world_size())
}

/// Whether `a` ranks before `b`: by objective, then time, then memory, then position.
fn preferred(a: &Candidate, b: &Candidate, objective: Objective) -> bool {
    let key = |c: &Candidate| [measure(c, objective), c.price.time.get(), c.price.memory.get()];
    let by_price = key(a).iter().zip(key(b)).map(|(a, b)| a.total_cmp(&b)).find(|order| order.is_ne());
    by_price.unwrap_or_else(|| a.position.cmp(&b.position)).is_lt()
}

/// Adds a plan to a front. Of two with the same time, memory and GPUs, the earlier in the order of the space is kept.
fn add(front: &mut ParetoFront<Candidate>, candidate: Candidate) {
    let (price, gpus) = (candidate.price, candidate.plan.layout.world_size());
    front.add(candidate, price, gpus, |a, b| a.position < b.position);
}
