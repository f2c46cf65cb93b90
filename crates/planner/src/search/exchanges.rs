//! Exchange between replicas: the least of all shardings of a layout.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::space::{ShardingChoice, Space};
use meshwright_engine::cost::data::Exchange;
use meshwright_engine::cost::incremental::{LeastExchange, Parameters};
use meshwright_engine::plan::Plan;
use meshwright_engine::units::Seconds;

/// Settings that determine the exchanges of dense parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DenseKey {
    tp: u32,
    pp: u32,
    /// Number of replicas of dense parameters.
    replicas: u32,
    /// Whether the data-parallel size is above 1.
    is_data_parallel: bool,
    /// Bits of the number of dense parameters of the rank with the most parameters.
    parameter_bits: u64,
}

/// Least exchange of dense parameters of any shard group, of one kind of sharding and rank order.
#[derive(Clone, Copy, Debug)]
struct DenseExchange {
    /// A sharding of that kind and order.
    choice: ShardingChoice,
    /// Exchange that no flow hides.
    exposed: Seconds,
    /// Exchange as if nothing hid it, the minimum of each part.
    whole: Exchange,
}

/// Least exchanges of dense parameters, of which many layouts and pipelines have the same.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    dense: RwLock<BTreeMap<DenseKey, Arc<[DenseExchange]>>>,
}

impl Exchanges {
    /// Lower bound of the time of the exchange that no flow hides, over all shardings under ZeRO 0 to 2 of a plan's layout:
    ///
    /// ```text
    /// min over k, o, g of (D(k, o, g) + E(k, o))  =  min over k, o of (min over g of D(k, o, g) + E(k, o))
    /// ```
    ///
    /// D = exposed exchange of dense parameters, E = that of experts and tied ends, k = whether ZeRO shards, o = rank
    /// order, g = shard group. With infinite windows, what is exposed of a sum of exchanges is the sum of what is
    /// exposed of each.
    pub fn least_exposed(&self, space: &Space, plan: &Plan, parameters: &Parameters) -> Seconds {
        let dense = self.dense(space, plan, parameters);
        let exposed =
            |known: &DenseExchange| known.exposed + parameters.least_ends(space.costs(), &known.choice.on(plan));
        dense.iter().map(exposed).reduce(Seconds::min).unwrap_or_default()
    }

    /// Lower bound of the exchange as if nothing hid it, over the same shardings; without tied ends. It is left out
    /// where no bound knows the windows that hide it.
    pub fn least_exchange(&self, space: &Space, plan: &Plan, parameters: &Parameters) -> LeastExchange {
        if !space.costs().may_know_windows() {
            return LeastExchange::default();
        }
        let dense = self.dense(space, plan, parameters);
        let of = |known: &DenseExchange| {
            let plan = known.choice.on(plan);
            LeastExchange::new(plan.zero, plan.order, parameters.exchange(space.costs(), &plan, known.whole))
        };
        dense.iter().map(of).reduce(LeastExchange::lesser).unwrap_or_default()
    }

    fn dense(&self, space: &Space, plan: &Plan, parameters: &Parameters) -> Arc<[DenseExchange]> {
        let layout = &plan.layout;
        let key = DenseKey {
            tp: layout.tp,
            pp: layout.pp,
            replicas: layout.dense_replicas(),
            is_data_parallel: layout.dp > 1,
            parameter_bits: parameters.dense().to_bits(),
        };
        if let Some(known) = self.dense.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let mut least: Vec<DenseExchange> = Vec::new();
        for choice in space.exchanges(layout) {
            let plan = choice.on(plan);
            let whole = parameters.dense_exchange(space.costs(), &plan);
            let exposed = Parameters::least_dense_exchange(space.costs(), &plan, whole);
            let same =
                |known: &&mut DenseExchange| (known.choice.zero, known.choice.order) == (choice.zero, choice.order);
            match least.iter_mut().find(same) {
                Some(known) => {
                    known.exposed = known.exposed.min(exposed);
                    known.whole = known.whole.lesser(whole);
                }
                None => least.push(DenseExchange { choice, exposed, whole }),
            }
        }
        let least: Arc<[DenseExchange]> = least.into();
        Arc::clone(self.dense.write().expect("no writer panics").entry(key).or_insert(least))
    }
}
