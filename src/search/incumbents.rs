//! The best plans so far, and what a bound must stay under to be worth a look.

use std::collections::BTreeMap;

use super::Goal;
use crate::cost::incremental::Price;
use crate::plan::{Layout, Plan};
use crate::units::{Bytes, Seconds};

/// What is to be least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Step time.
    #[default]
    StepTime,
    /// Memory of the fullest rank.
    Memory,
    /// Step time times the GPUs in use: where some stay idle, not the same order.
    GpuTime,
}

impl Objective {
    /// The measure of a price on so many GPUs; grows with time and with memory, so that bounds of both bound it.
    fn of(self, price: Price, gpus: u32) -> f64 {
        match self {
            Self::StepTime => price.time.get(),
            Self::Memory => price.memory.get(),
            Self::GpuTime => price.time.get() * f64::from(gpus),
        }
    }
}

/// What the search is to bring home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub goal: Goal,
    pub top: usize,
    /// Bytes that a plan may need.
    pub budget: f64,
    /// The most that a plan may measure.
    pub ceiling: f64,
}

/// A plan with its price.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    plan: Plan,
    price: Price,
}

/// The best plans so far.
#[derive(Clone, Debug)]
pub(super) struct Incumbents {
    pub wanted: Wanted,
    by_layout: BTreeMap<Layout, Candidate>,
    /// Measure of the last plan asked for; the ceiling until so many are known.
    last: f64,
    front: Vec<Candidate>,
}

impl Incumbents {
    pub fn new(wanted: Wanted) -> Self {
        Self { wanted, by_layout: BTreeMap::new(), last: wanted.ceiling, front: Vec::new() }
    }

    /// Nothing found yet, but nothing worse than these will do.
    pub fn beside(&self) -> Self {
        self.clone()
    }

    fn objective(&self) -> Option<Objective> {
        match self.wanted.goal {
            Goal::Fastest => Some(Objective::StepTime),
            Goal::Best(objective) => Some(objective),
            Goal::Pareto => None,
        }
    }

    /// Whether no plan of a layout whose price is at least `bound` can be an answer.
    pub fn is_hopeless(&self, layout: &Layout, bound: Price) -> bool {
        let Some(objective) = self.objective() else {
            let gpus = layout.world_size();
            return self.front.iter().any(|known| beats(known, bound, gpus));
        };
        let least = objective.of(bound, layout.world_size());
        least > self.last || self.by_layout.get(layout).is_some_and(|known| least > measure(known, objective))
    }

    /// Whether no plan at all that takes at least `time` can be an answer.
    pub fn is_hopeless_for_all(&self, time: Seconds) -> bool {
        match self.objective() {
            Some(Objective::StepTime) => time.get() > self.last,
            // On one GPU at least, with no byte of memory.
            Some(Objective::Memory | Objective::GpuTime) => false,
            None => self.front.iter().any(|known| beats(known, Price { time, memory: Bytes::ZERO }, 1)),
        }
    }

    /// Takes a plan in where it is better than what is known of its layout.
    pub fn offer(&mut self, plan: Plan, price: Price) {
        let candidate = Candidate { plan, price };
        let Some(objective) = self.objective() else {
            self.offer_to_front(candidate);
            return;
        };
        match self.by_layout.get(&plan.layout) {
            Some(known) if !preferred(&candidate, known, objective) => return,
            Some(_) | None => {
                self.by_layout.insert(plan.layout, candidate);
            }
        }
        let mut all: Vec<f64> = self.by_layout.values().map(|known| measure(known, objective)).collect();
        all.sort_by(f64::total_cmp);
        let ceiling = self.wanted.ceiling;
        self.last = all.get(self.wanted.top.saturating_sub(1)).map_or(ceiling, |last| last.min(ceiling));
        let last = self.last;
        self.by_layout.retain(|_, known| measure(known, objective) <= last);
    }

    fn offer_to_front(&mut self, candidate: Candidate) {
        let Candidate { plan, price } = candidate;
        let gpus = plan.layout.world_size();
        if self.front.iter().any(|known| beats(known, price, gpus) || is_same(known, &candidate)) {
            return;
        }
        self.front.retain(|known| !beats(&candidate, known.price, known.plan.layout.world_size()));
        self.front.push(candidate);
    }

    pub fn merge(mut self, other: Self) -> Self {
        for candidate in other.by_layout.into_values().chain(other.front) {
            self.offer(candidate.plan, candidate.price);
        }
        self
    }

    /// The plans, best first; a front from the fastest to the smallest.
    pub fn into_plans(self) -> Vec<Plan> {
        let objective = self.objective().unwrap_or_default();
        let top = if self.wanted.goal == Goal::Pareto { usize::MAX } else { self.wanted.top };
        let mut all: Vec<Candidate> = self.by_layout.into_values().chain(self.front).collect();
        all.sort_by(|a, b| {
            let by = |key: fn(&Candidate) -> f64| key(a).total_cmp(&key(b));
            measure(a, objective)
                .total_cmp(&measure(b, objective))
                .then(by(|c| c.price.time.get()))
                .then(by(|c| c.price.memory.get()))
                .then(a.plan.layout.cmp(&b.plan.layout))
        });
        all.into_iter().take(top).map(|candidate| candidate.plan).collect()
    }
}

fn measure(candidate: &Candidate, objective: Objective) -> f64 {
    objective.of(candidate.price, candidate.plan.layout.world_size())
}

/// Better by the measure, then faster, then smaller; among equals the first found stays.
fn preferred(a: &Candidate, b: &Candidate, objective: Objective) -> bool {
    let key = |c: &Candidate| [measure(c, objective), c.price.time.get(), c.price.memory.get()];
    key(a)
        .iter()
        .zip(key(b))
        .map(|(a, b)| a.total_cmp(&b))
        .find(|order| order.is_ne())
        .is_some_and(std::cmp::Ordering::is_lt)
}

/// No worse in time, memory and GPUs than a price, and better in one.
fn beats(known: &Candidate, price: Price, gpus: u32) -> bool {
    let mine = known.plan.layout.world_size();
    known.price.time <= price.time
        && known.price.memory <= price.memory
        && mine <= gpus
        && (known.price.time < price.time || known.price.memory < price.memory || mine < gpus)
}

fn is_same(a: &Candidate, b: &Candidate) -> bool {
    a.price == b.price && a.plan.layout.world_size() == b.plan.layout.world_size()
}
