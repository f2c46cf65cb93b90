//! Cache of costs that several searches of one problem share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};

use super::menus::Menus;
use crate::space::{ExpertGrid, Restrictions};
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{FeedForward, Mixing, Stages};
use meshwright_engine::plan::{CpKind, Layout, Plan};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::schedule::replays::Replays;
use meshwright_engine::split::LayerSplit;

/// Restriction keys that a menu depends on, besides the framework.
const SHARDING_KEYS: [&str; 5] = ["zero", "shard", "reshard", "offload-optimizer", "order"];
/// Largest number of menu sets kept at once; on many GPUs, one takes some tens of MiB.
const MOST_MENUS: usize = 16;

/// Settings of a plan that determine the cost of its token-mixing part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MixingKey {
    tp: u32,
    sequence_parallel: bool,
    cp: u32,
    cp_kind: CpKind,
    micro_batch: u32,
}

/// Settings of a plan that determine the cost of its feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FeedForwardKey {
    pub tp: u32,
    pub sequence_parallel: bool,
    /// Bits of the number of tokens of a micro-batch on a context-parallel rank.
    pub token_bits: u64,
    pub grid: ExpertGrid,
}

/// Settings of a plan that determine the layers of its virtual stages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StagesKey {
    pub pp: u32,
    pub schedule: Schedule,
    pub split: LayerSplit,
    /// Number of layers of the last virtual stage of a cost-balanced split; 0 for any other split.
    pub last_chunk: u32,
    /// Number of first layers that are recomputed (`recompute=first-N`).
    pub first_recomputed: u32,
}

/// Cache of costs for several searches of one problem. The costs do not depend on a search's restrictions; menus do and are
/// stored by them.
#[derive(Debug, Default)]
pub(super) struct CostCache {
    mixings: RwLock<BTreeMap<MixingKey, Arc<Mixing>>>,
    feed_forwards: RwLock<BTreeMap<FeedForwardKey, Arc<FeedForward>>>,
    stages: RwLock<BTreeMap<StagesKey, Arc<Stages>>>,
    pub replays: Arc<Replays>,
    menus: Mutex<Vec<(Restrictions, Arc<Menus>)>>,
}

impl CostCache {
    /// Empty cache that shares prepared simulators of schedules with other problems.
    pub fn replaying(replays: Arc<Replays>) -> Self {
        Self { replays, ..Self::default() }
    }

    /// Token-mixing part of a plan.
    pub fn mixing(&self, costs: &Costs, plan: &Plan) -> Arc<Mixing> {
        let Layout { tp, cp, .. } = plan.layout;
        let key = MixingKey {
            tp,
            sequence_parallel: plan.sequence_parallel,
            cp,
            cp_kind: plan.cp_kind,
            micro_batch: plan.micro_batch,
        };
        if let Some(known) = self.mixings.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let mixing = Arc::new(Mixing::new(costs, plan));
        Arc::clone(self.mixings.write().expect("no writer panics").entry(key).or_insert(mixing))
    }

    /// Feed-forward part of a plan.
    pub fn feed_forward(&self, costs: &Costs, key: FeedForwardKey, plan: &Plan) -> Arc<FeedForward> {
        if let Some(known) = self.feed_forwards.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let feed_forward = Arc::new(FeedForward::new(costs, plan));
        Arc::clone(self.feed_forwards.write().expect("no writer panics").entry(key).or_insert(feed_forward))
    }

    /// Classes of the ranks of a pipeline, made on first use.
    pub fn stages(&self, key: StagesKey, make: impl FnOnce() -> Stages) -> Arc<Stages> {
        if let Some(known) = self.stages.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let stages = Arc::new(make());
        Arc::clone(self.stages.write().expect("no writer panics").entry(key).or_insert(stages))
    }

    /// Menus under the restrictions that concern sharding.
    pub fn menus(&self, restrictions: &Restrictions) -> Arc<Menus> {
        let of_shardings = restrictions.only(&SHARDING_KEYS);
        let mut menus = self.menus.lock().expect("nobody panics with it");
        let place = menus.iter().position(|(known, _)| *known == of_shardings);
        let asked = place.map_or_else(|| (of_shardings, Arc::default()), |place| menus.remove(place));
        let found = Arc::clone(&asked.1);
        // The set that was used least recently is evicted first.
        menus.push(asked);
        if menus.len() > MOST_MENUS {
            menus.remove(0);
        }
        found
    }
}
