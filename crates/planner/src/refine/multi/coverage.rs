//! Whether the ranks together can hold the layers of every kind.

use crate::refine::program::StageProgram;

/// Most states of the dynamic program over layer counts.
const MOST_STATES: usize = 20_000;

/// Layers that a rank may hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankCapacity {
    /// Number of layers of each of the other kinds.
    pub others: Vec<usize>,
    /// Largest number of layers of the main kind in addition.
    pub main: usize,
}

/// Layers of a program that are distributed over its ranks, with lower bounds of their times.
pub struct LayersToPlace {
    /// Layers of each kind.
    pub all: Vec<usize>,
    /// Kind with the most layers.
    pub main: usize,
    /// Other kinds that have layers.
    pub others: Vec<usize>,
    /// Time that one layer of each kind occupies its rank at least, seconds.
    pub time: Vec<f64>,
    /// Time that each rank is occupied without a layer at least, seconds.
    pub ends: Vec<f64>,
    /// Values that each digit of a state takes: layers of one of the other kinds that are placed, from none to all.
    digits: Vec<usize>,
}

impl LayersToPlace {
    /// Layers of a program; none where it has no kind of layer.
    pub fn new(program: &StageProgram) -> Option<Self> {
        let kinds = program.layer_kinds();
        let mut all = vec![0_usize; kinds];
        for &kind in &program.items {
            all[kind] += 1;
        }
        let mut ends = vec![0.0; program.ranks];
        for chunk in 0..program.chunks {
            ends[program.rank_of(chunk)] += program.fastest(chunk, 0, 0).busy;
        }
        let main = (0..kinds).max_by_key(|&kind| all[kind])?;
        let others: Vec<usize> = (0..kinds).filter(|&kind| kind != main && all[kind] > 0).collect();
        let digits = others.iter().map(|&kind| all[kind] + 1).collect();
        Some(Self { all, main, others, time: program.least_layers(), ends, digits })
    }

    /// Number of states of [`LayersToPlace::covered`].
    fn states(&self) -> usize {
        self.digits.iter().product()
    }

    /// Whether there are few enough states for [`LayersToPlace::covered`].
    pub fn are_countable(&self) -> bool {
        self.states() <= MOST_STATES
    }

    /// Whether ranks that are occupied for at most `ceiling` seconds each can hold all layers; `capacities(rank)` are
    /// those of a rank within the ceiling.
    ///
    /// Dynamic program over the number of placed layers of the other kinds, whose value is the largest number of placed
    /// layers of the main kind. A state is dropped if the least time of the layers left exceeds the time of the ranks
    /// left.
    pub fn covered(&self, ceiling: f64, capacities: impl Fn(usize) -> Vec<RankCapacity>) -> bool {
        let (sizes, states) = (&self.digits, self.states());
        let mut most: Vec<Option<usize>> = vec![None; states];
        most[0] = Some(0);
        for rank in 0..self.ends.len() {
            let capacities = undominated(capacities(rank));
            let room: f64 = self.ends[rank..].iter().map(|end| ceiling - end).sum::<f64>() + SLACK * ceiling;
            let mut next: Vec<Option<usize>> = vec![None; states];
            for (state, &had) in most.iter().enumerate() {
                let Some(had) = had else { continue };
                let placed = digits_of(state, sizes);
                if self.rest(&placed, had) > room {
                    continue;
                }
                for capacity in &capacities {
                    let (mut index, mut scale) = (0, 1);
                    for ((placed, n), size) in placed.iter().zip(&capacity.others).zip(sizes) {
                        let sum = (placed + n).min(size - 1);
                        index += sum * scale;
                        scale *= size;
                    }
                    next[index] = next[index].max(Some(had + capacity.main));
                }
            }
            most = next;
        }
        most[states - 1].is_some_and(|most| most >= self.all[self.main])
    }

    /// Least time of the layers that are not placed yet.
    fn rest(&self, placed: &[usize], mains: usize) -> f64 {
        let others: f64 =
            self.others.iter().zip(placed).map(|(&kind, n)| (self.all[kind] - n) as f64 * self.time[kind]).sum();
        others + self.all[self.main].saturating_sub(mains) as f64 * self.time[self.main]
    }
}

/// Share of the ceiling by which sums of times may differ by rounding.
const SLACK: f64 = 1e-6;

/// The digits of a state in a mixed radix, the least significant first.
fn digits_of(state: usize, sizes: &[usize]) -> Vec<usize> {
    let mut rest = state;
    let digit = |size: &usize| {
        let digit = rest % size;
        rest /= size;
        digit
    };
    sizes.iter().map(digit).collect()
}

/// Capacities of which no other holds as many layers of every kind: whatever others cover, these do.
fn undominated(mut all: Vec<RankCapacity>) -> Vec<RankCapacity> {
    all.sort_by(|a, b| b.cmp(a));
    let mut kept: Vec<RankCapacity> = Vec::new();
    for next in all {
        let covers = |known: &RankCapacity| {
            known.main >= next.main && known.others.iter().zip(&next.others).all(|(a, b)| a >= b)
        };
        if !kept.iter().any(covers) {
            kept.push(next);
        }
    }
    kept
}
