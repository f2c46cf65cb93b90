//! Which ranks of a pipeline do the same and which hold the same: few classes, however many ranks.

use crate::cost::memory::Holding;
use crate::cost::{Costs, PerKind};
use crate::plan::{Plan, Recompute};

/// Ranks that do the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    /// Layers by kind.
    pub layers: PerKind,
    /// Of those, the ones that are wholly recomputed (`FirstLayers`).
    pub forgotten: PerKind,
    /// Whether the embedding lies here.
    pub first: bool,
    /// Whether the head lies here.
    pub last: bool,
    /// Whether multi-token prediction lies here.
    pub mtp: bool,
    /// How many such ranks.
    pub count: f64,
    /// Layers by kind in the chunks before the first chunk of the last such rank.
    pub before: PerKind,
    /// Of those, the ones that are wholly recomputed.
    pub forgotten_before: PerKind,
    /// Whether the embedding lies before it.
    pub embedding_before: bool,
}

/// Ranks that hold the same, of which the first has the most micro-batches in flight.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hold {
    /// The first of them.
    pub holding: Holding,
    /// All of them.
    pub ranks: Vec<u32>,
}

/// The classes of one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    pub(super) classes: Vec<Class>,
    pub(super) holds: Vec<Hold>,
}

impl Stages {
    /// The classes of a plan's pipeline: pp, schedule, and the number of first layers where only those are recomputed. Chunks
    /// have the layers that the split names, else are alike (`LayerSplit::Even`).
    pub fn new(costs: &Costs, plan: &Plan) -> Self {
        Self { classes: classes(costs, plan, &costs.held_layers(plan)), holds: holds(costs, plan) }
    }

    /// The same ranks with other layers on each chunk; memory counts what it did.
    #[must_use]
    pub fn with_layers(&self, costs: &Costs, plan: &Plan, layers: &[u32]) -> Self {
        Self { classes: classes(costs, plan, layers), holds: self.holds.clone() }
    }
}

fn classes(costs: &Costs, plan: &Plan, layers: &[u32]) -> Vec<Class> {
    let (kinds, pp) = (costs.problem.model().kinds.len(), plan.layout.pp);
    let empty = Class {
        layers: PerKind::from_elem(0.0, kinds),
        forgotten: PerKind::from_elem(0.0, kinds),
        first: false,
        last: false,
        mtp: false,
        count: 1.0,
        before: PerKind::from_elem(0.0, kinds),
        forgotten_before: PerKind::from_elem(0.0, kinds),
        embedding_before: false,
    };
    let mut ranks = vec![empty; pp as usize];
    let add = |to: &mut [f64], from: u32, until: u32| {
        for (sum, times) in to.iter_mut().zip(costs.kinds_between(from, until)) {
            *sum += f64::from(times);
        }
    };
    let mtp_chunk = Costs::mtp_chunk(plan);
    let mut from = 0;
    let mut forgotten = PerKind::from_elem(0.0, kinds);
    for (chunk, &count) in layers.iter().enumerate() {
        let rank = plan.schedule.rank_of(chunk as u32, pp) as usize;
        let first = if let Recompute::FirstLayers(most) = plan.recompute { count.min(most) } else { 0 };
        if chunk < pp as usize && chunk > 0 {
            ranks[rank].embedding_before = true;
            add(&mut ranks[rank].before, 0, from);
            ranks[rank].forgotten_before.clone_from(&forgotten);
        }
        add(&mut forgotten, from, from + first);
        add(&mut ranks[rank].layers, from, from + count);
        add(&mut ranks[rank].forgotten, from, from + first);
        ranks[rank].first |= chunk == 0;
        ranks[rank].last |= chunk + 1 == layers.len();
        ranks[rank].mtp |= chunk as u32 == mtp_chunk;
        from += count;
    }
    let mut classes: Vec<Class> = Vec::new();
    for rank in ranks {
        let same = |known: &&mut Class| {
            known.layers == rank.layers
                && known.forgotten == rank.forgotten
                && known.first == rank.first
                && known.last == rank.last
                && known.mtp == rank.mtp
        };
        match classes.iter_mut().find(same) {
            Some(known) => *known = Class { count: known.count + 1.0, ..rank },
            None => classes.push(rank),
        }
    }
    classes
}

fn holds(costs: &Costs, plan: &Plan) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    let first = plan.schedule.rank_of(0, plan.layout.pp);
    for holding in costs.holdings(&Plan { recompute: Recompute::None, ..*plan }) {
        let (rank, is_first) = (holding.rank, holding.rank == first);
        let same = |known: &&mut Hold| {
            known.holding.kept == holding.kept
                && known.holding.is_last == holding.is_last
                && known.holding.mtp == holding.mtp
                && (known.holding.rank == first) == is_first
        };
        match holds.iter_mut().find(same) {
            Some(known) => known.ranks.push(rank),
            None => holds.push(Hold { holding, ranks: vec![rank] }),
        }
    }
    holds
}
