//! Pareto front of step time, memory and GPUs in use, as far as it is known.
//!
//! ```text
//! staircase of N GPUs: the front of time and memory of all plans on N GPUs or fewer
//! ```
//!
//! Whether a plan is dominated is then one binary search in the staircase of its GPUs, however many plans the front has.

use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::incremental::Price;
use meshwright_engine::units::Seconds;

/// Tolerances of a front: one for the plans that the search prunes, one for those that the answer then leaves out.
///
/// ```text
/// 1 + ε = (1 + ε_search)·(1 + ε_answer),   1 + ε_search = (1 + ε)^¾
/// ```
///
/// The plans that the search keeps depend on the order in which it finds them, and many cover others of them, so that the answer has
/// half as many. The exponent is a setting of speed: the coarser the search, the fewer plans it simulates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub search: f64,
    pub answer: f64,
}

impl Tolerances {
    /// Parts of a tolerance, which is a share.
    pub fn of(whole: f64) -> Self {
        let quarter = (1.0 + whole).sqrt().sqrt();
        Self { search: quarter * quarter * quarter - 1.0, answer: quarter - 1.0 }
    }
}

/// Pareto front of values, each with a price and a number of GPUs.
#[derive(Clone, Debug)]
pub(super) struct ParetoFront<T> {
    /// Values in order of insertion; some are dominated by later ones.
    values: Vec<T>,
    /// Staircases by ascending number of GPUs.
    staircases: Vec<Staircase>,
}

/// Front of time and memory of all values on `gpus` GPUs or fewer.
#[derive(Clone, Debug)]
struct Staircase {
    gpus: u32,
    /// Steps by ascending time and descending memory.
    steps: Vec<Step>,
}

/// One value on a staircase.
#[derive(Clone, Copy, Debug)]
struct Step {
    price: Price,
    gpus: u32,
    /// Index among the values.
    value: usize,
}

impl<T> Default for ParetoFront<T> {
    fn default() -> Self {
        Self { values: Vec::new(), staircases: Vec::new() }
    }
}

impl<T> ParetoFront<T> {
    /// Whether a value is no worse in time, memory and GPUs, and better in at least one.
    pub fn dominates(&self, price: Price, gpus: u32) -> bool {
        self.lightest(price, gpus).is_some_and(|step| {
            let Price { time, memory } = step.price;
            memory < price.memory || memory == price.memory && (time < price.time || step.gpus < gpus)
        })
    }

    /// Whether a value is worse by no more than `tolerance`, a share, in each of time, memory and GPUs.
    pub fn covers(&self, price: Price, gpus: u32, tolerance: f64) -> bool {
        let factor = 1.0 + tolerance;
        let most = Price { time: price.time * factor, memory: price.memory * factor };
        self.lightest(most, (f64::from(gpus) * factor) as u32).is_some_and(|step| step.price.memory <= most.memory)
    }

    /// Least time of all values; `None` if there is none.
    pub fn least_time(&self) -> Option<Seconds> {
        self.staircases.last().and_then(|all| all.steps.first()).map(|fastest| fastest.price.time)
    }

    /// Step of least memory among those on no more GPUs that take no longer.
    fn lightest(&self, price: Price, gpus: u32) -> Option<&Step> {
        let staircase = self.staircases.partition_point(|staircase| staircase.gpus <= gpus).checked_sub(1)?;
        self.staircases[staircase].lightest(price)
    }

    /// Adds a value that none dominates. Of two with the same price and GPUs, the one that `is_earlier` is kept.
    pub fn add(&mut self, value: T, price: Price, gpus: u32, is_earlier: impl Fn(&T, &T) -> bool) {
        if self.dominates(price, gpus) {
            return;
        }
        let at = self.staircases.partition_point(|staircase| staircase.gpus < gpus);
        if self.staircases.get(at).is_none_or(|staircase| staircase.gpus != gpus) {
            let steps = if at > 0 { self.staircases[at - 1].steps.clone() } else { Vec::new() };
            self.staircases.insert(at, Staircase { gpus, steps });
        }
        if let Some(equal) = self.staircases[at].lightest(price).filter(|step| step.price == price && step.gpus == gpus)
        {
            let known = &mut self.values[equal.value];
            if is_earlier(&value, known) {
                *known = value;
            }
            return;
        }
        let step = Step { price, gpus, value: self.values.len() };
        self.values.push(value);
        self.staircases[at..].iter_mut().for_each(|staircase| staircase.add(step));
    }

    /// The values that no other dominates.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.into_steps().map(|(_, value)| value)
    }

    /// Part of the front that covers all of it within `tolerance`: the fastest value, and in ascending order of memory each that
    /// those before it do not cover.
    pub fn thinned(self, tolerance: f64) -> Self {
        let least = self.least_time();
        let mut all: Vec<(Step, T)> = self.into_steps().collect();
        let is_slower = |step: &Step| f64::from(u8::from(Some(step.price.time) != least));
        sort_by_numbers(&mut all, |(step, _)| [is_slower(step), step.price.memory.get(), step.price.time.get()]);
        let mut kept = Self::default();
        for (Step { price, gpus, .. }, value) in all {
            if !kept.covers(price, gpus, tolerance) {
                kept.add(value, price, gpus, |_, _| false);
            }
        }
        kept
    }

    /// The values that no other dominates, with their steps.
    fn into_steps(self) -> impl Iterator<Item = (Step, T)> {
        let mut values: Vec<Option<T>> = self.values.into_iter().map(Some).collect();
        let own = |staircase: Staircase| staircase.steps.into_iter().filter(move |step| step.gpus == staircase.gpus);
        self.staircases.into_iter().flat_map(own).filter_map(move |step| Some((step, values[step.value].take()?)))
    }
}

impl Staircase {
    /// Step of least memory among those that take no longer.
    fn lightest(&self, price: Price) -> Option<&Step> {
        let later = self.steps.partition_point(|step| step.price.time <= price.time);
        later.checked_sub(1).map(|at| &self.steps[at])
    }

    /// Adds a step, unless another is better, and drops those that are no better.
    fn add(&mut self, step: Step) {
        let Price { time, memory } = step.price;
        let is_better = |known: &Step| known.price.memory <= memory && known.price != step.price;
        if self.lightest(step.price).is_some_and(is_better) {
            return;
        }
        let from = self.steps.partition_point(|known| known.price.time < time);
        let dropped = self.steps[from..].partition_point(|known| known.price.memory >= memory);
        self.steps.splice(from..from + dropped, [step]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_engine::units::{Bytes, Seconds};

    type Point = (u8, u8, u8);

    /// Whether `a` is no worse than `b` in any of three figures, and better in one.
    fn dominates(a: Point, b: Point) -> bool {
        a.0 <= b.0 && a.1 <= b.1 && a.2 <= b.2 && a != b
    }

    fn price((time, memory, _): Point) -> Price {
        Price { time: Seconds::new(f64::from(time)), memory: Bytes::new(f64::from(memory)) }
    }

    /// Points of three figures below 6, the same from the same seed.
    fn drawn(seed: u64, count: usize) -> Vec<Point> {
        let mut state = seed;
        let mut figure = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % 6) as u8
        };
        (0..count).map(|_| (figure(), figure(), figure())).collect()
    }

    /// Whether `a` is worse than `b` by no more than a tolerance in each of three figures.
    fn covers(a: Point, b: Point, tolerance: f64) -> bool {
        let within = |a: u8, b: u8| f64::from(a) <= f64::from(b) * (1.0 + tolerance);
        within(a.0, b.0) && within(a.1, b.1) && within(a.2, b.2)
    }

    #[test]
    fn a_thinned_front_covers_the_whole_and_has_its_fastest() {
        let (mut whole, mut thin) = (0, 0);
        for seed in 0..400 {
            let points = drawn(seed, 1 + seed as usize % 40);
            let mut front = ParetoFront::default();
            for &point in &points {
                front.add(point, price(point), u32::from(point.2), |_, _| false);
            }
            for any in itertools::iproduct!(0..6, 0..6, 0..6) {
                let plain = points.iter().any(|known| covers(*known, any, 0.5));
                assert_eq!(front.covers(price(any), u32::from(any.2), 0.5), plain, "{any:?} of {points:?}");
            }
            let fastest = points.iter().map(|point| point.0).min();
            assert_eq!(front.least_time(), fastest.map(|time| Seconds::new(f64::from(time))));
            whole += front.clone().into_values().count();
            let thinned: Vec<Point> = front.thinned(0.5).into_values().collect();
            thin += thinned.len();
            assert!(points.iter().all(|any| thinned.iter().any(|known| covers(*known, *any, 0.5))), "{points:?}");
            assert_eq!(thinned.iter().map(|point| point.0).min(), fastest, "{points:?}");
        }
        assert!(thin < whole, "{thin} of {whole}");
    }

    #[test]
    fn the_front_is_what_a_plain_comparison_leaves() {
        for seed in 0..400 {
            let points = drawn(seed, seed as usize % 40);
            let mut front = ParetoFront::default();
            for (place, &point) in points.iter().enumerate().rev() {
                front.add((place, point), price(point), u32::from(point.2), |a, b| a.0 < b.0);
            }
            for any in itertools::iproduct!(0..6, 0..6, 0..6) {
                let plain = points.iter().any(|known| dominates(*known, any));
                assert_eq!(front.dominates(price(any), u32::from(any.2)), plain, "{any:?} of {points:?}");
            }
            let is_first = |&(place, point): &(usize, Point)| !points[..place].contains(&point);
            let is_left = |(_, point): &(usize, Point)| !points.iter().any(|known| dominates(*known, *point));
            let plain: Vec<_> = points.iter().copied().enumerate().filter(is_first).filter(is_left).collect();
            let mut found: Vec<_> = front.into_values().collect();
            found.sort_unstable();
            assert_eq!(found, plain);
        }
    }
}
