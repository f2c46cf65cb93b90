//! Exchange between replicas: the least of all shardings of a layout.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::space::{ShardingChoice, Space};
use meshwright_engine::cost::incremental::Parameters;
use meshwright_engine::plan::Plan;
use meshwright_engine::units::Seconds;

/// Key of the exchanges of dense parameters: tp, pp, replicas, whether data parallelism has several, and the bits of the number of
/// parameters of the rank with the most.
type DenseKey = (u32, u32, u32, bool, u64);
/// Least exchange of dense parameters of any shard group, with a sharding of its kind and rank order.
type DenseExchanges = Arc<[(ShardingChoice, Seconds)]>;

/// Least exchanges of dense parameters, of which many layouts and pipelines have the same.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    dense: RwLock<BTreeMap<DenseKey, DenseExchanges>>,
}

impl Exchanges {
    /// Lower bound of the time of the exchange that no flow hides, over all shardings under ZeRO 0 to 2 of a plan's layout:
    ///
    /// ```text
    /// min over k, o, g of (D(k, o, g) + E(k, o))  =  min over k, o of (min over g of D(k, o, g) + E(k, o))
    /// ```
    ///
    /// D = exposed exchange of dense parameters, E = that of experts and tied ends, k = whether ZeRO shards, o = rank order, g = shard
    /// group. With infinite windows, what is exposed of a sum of exchanges is the sum of what is exposed of each.
    pub fn least(&self, space: &Space, plan: &Plan, parameters: &Parameters) -> Seconds {
        let dense = self.dense(space, plan, parameters);
        let whole = |&(choice, dense): &(ShardingChoice, Seconds)| {
            dense + parameters.least_ends(space.costs(), &choice.on(plan))
        };
        dense.iter().map(whole).reduce(Seconds::min).unwrap_or_default()
    }

    fn dense(&self, space: &Space, plan: &Plan, parameters: &Parameters) -> DenseExchanges {
        let layout = &plan.layout;
        let key = (layout.tp, layout.pp, layout.dense_replicas(), layout.dp > 1, parameters.dense().to_bits());
        if let Some(known) = self.dense.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let mut least: Vec<(ShardingChoice, Seconds)> = Vec::new();
        for choice in space.exchanges(layout) {
            let time = parameters.least_dense_exchange(space.costs(), &choice.on(plan));
            match least.iter_mut().find(|(known, _)| (known.zero, known.order) == (choice.zero, choice.order)) {
                Some((_, known)) => *known = known.min(time),
                None => least.push((choice, time)),
            }
        }
        let least = DenseExchanges::from(least);
        Arc::clone(self.dense.write().expect("no writer panics").entry(key).or_insert(least))
    }
}
