//! List of the transfers between ranks in the step of a plan.

use std::sync::Mutex;

use super::costs::Costs;
use super::groups;
use crate::collective::{Group, Observer, PricedTransfer};
use crate::plan::Plan;

/// Observer that lists every distinct transfer.
#[derive(Debug, Default)]
struct Distinct(Mutex<Vec<PricedTransfer>>);

impl Observer for Distinct {
    fn transfer(&self, transfer: &PricedTransfer) {
        let mut known = self.0.lock().expect("nobody panics with it");
        if !known.contains(transfer) {
            known.push(*transfer);
        }
    }
}

impl Costs<'_> {
    /// Distinct transfers of a plan's step with the group that each runs in, those of one group together and the longest first.
    pub fn transfers(&self, plan: &Plan) -> Vec<(&'static str, PricedTransfer)> {
        let seen = Distinct::default();
        let _ = self.observed(&seen).evaluate_simulated(plan);
        let named = |transfer: PricedTransfer| (name(plan, transfer.group), transfer);
        let mut all: Vec<_> = seen.0.into_inner().expect("nobody panics with it").into_iter().map(named).collect();
        all.sort_by(|(a, one), (b, other)| a.cmp(b).then(other.time.get().total_cmp(&one.time.get())));
        all
    }

    /// Outermost network level that a group crosses; none inside a scale-up domain.
    pub fn outermost_level(&self, group: Group) -> Option<&str> {
        self.fabric.crossed(group).last().map(|(level, _)| level.name.as_str())
    }
}

/// Name of the process group of a plan that has these ranks.
fn name(plan: &Plan, group: Group) -> &'static str {
    let layout = plan.layout;
    let (replicas, shards) = (layout.dense_replicas(), plan.dense_shards());
    let dense = groups::dp(plan, replicas);
    let between = Group { ranks: replicas / shards, stride: dense.stride * shards };
    let of_experts = Group { ranks: layout.ep, stride: layout.etp };
    let all = [
        ("tensor parallel", groups::tp(plan)),
        ("expert tensor parallel", Group { ranks: layout.etp, stride: 1 }),
        ("expert parallel", of_experts),
        ("context parallel", groups::cp(plan)),
        ("data parallel", dense),
        ("shard group", groups::dp(plan, shards)),
        ("between shard groups", between),
        ("expert replicas", groups::experts(plan)),
        ("pipeline", Group { ranks: 2, stride: groups::stage_distance(plan) }),
    ];
    all.into_iter().find(|(_, known)| *known == group).map_or("other ranks", |(name, _)| name)
}
