//! Memory of hosts: offloaded data of their ranks.

use super::by_stage::Stager;
use super::costs::Costs;
use super::footprint::Footprint;
use crate::plan::{Offload, Plan, RankOrder};
use crate::stages::StagedPlan;
use crate::units::Bytes;

/// Offloaded bytes that a host has no room for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostExcess {
    /// Offloaded bytes on the fullest host.
    pub needed: Bytes,
    /// Memory of a host.
    pub available: Bytes,
}

impl Costs<'_> {
    /// Excess of a plan's offloaded bytes over the memory of the fullest host; `None` where they fit, where the host's memory
    /// is not known, or where the plan offloads nothing.
    ///
    /// ```text
    /// host h holds  Σ over its ranks r of  offloaded optimizer states(r) + offloaded activations(r)
    /// ```
    ///
    /// This is a lower bound: buffers of transfers, the data loader and the system come on top.
    pub fn over_host(&self, plan: &Plan) -> Option<HostExcess> {
        if plan.offload == Offload::NONE || self.problem.cluster().host_memory.is_none() {
            return None;
        }
        let bare = self.footprints(&Plan { offload: Offload::NONE, ..plan.clone() });
        self.over_host_of(plan, &bare, &vec![plan.offload; bare.len()])
    }

    /// Offloaded bytes on the fullest host.
    pub fn fullest_host(&self, plan: &Plan) -> Bytes {
        let bare = self.footprints(&Plan { offload: Offload::NONE, ..plan.clone() });
        let left: Vec<Bytes> = bare.iter().map(|bare| left_on_host(bare, plan.offload)).collect();
        fullest_host(plan, &left, self.problem.cluster().gpus_per_node)
    }

    /// Result of [`Costs::over_host`] from the memory of each pipeline rank without its offload (`bare`).
    pub fn over_host_of(&self, plan: &Plan, bare: &[Footprint], offload: &[Offload]) -> Option<HostExcess> {
        let available = self.problem.cluster().host_memory?;
        let left: Vec<Bytes> = bare.iter().zip(offload).map(|(bare, &offload)| left_on_host(bare, offload)).collect();
        let needed = fullest_host(plan, &left, self.problem.cluster().gpus_per_node);
        (needed > available).then_some(HostExcess { needed, available })
    }
}

impl Stager<'_> {
    /// Excess of a staged plan's offloaded bytes over the memory of the fullest host.
    pub fn over_host(&self, staged: &StagedPlan) -> Option<HostExcess> {
        let on_device = staged.on_device()?;
        self.costs().over_host_of(&staged.plan, &self.ranks(&on_device).1.footprints, &staged.offload)
    }
}

/// Offloaded bytes of a rank, from its footprint without offload.
fn left_on_host(bare: &Footprint, offload: Offload) -> Bytes {
    bare.optimizer * offload.optimizer + bare.activations * offload.activations
}

/// Offloaded bytes on the fullest host, where each rank of pipeline stage s offloads `left[s]`. Hosts take `per_host` consecutive
/// ranks each.
fn fullest_host(plan: &Plan, left: &[Bytes], per_host: u32) -> Bytes {
    let layout = plan.layout;
    let (stage, period) = match plan.order {
        RankOrder::PipelineOutermost => (layout.tp * layout.cp * layout.dp, layout.world_size()),
        // The pattern of stages over hosts repeats after at most `per_host` replicas.
        RankOrder::DataOutermost => {
            let replica = layout.tp * layout.cp * layout.pp;
            (layout.tp * layout.cp, layout.world_size().min(replica.saturating_mul(per_host)))
        }
    };
    let of_rank = |rank: u32| left[((rank / stage.max(1)) % layout.pp) as usize];
    let hosts = (0..period).step_by(per_host.max(1) as usize);
    let of_host = |first: u32| (first..period.min(first + per_host.max(1))).map(of_rank).sum();
    hosts.map(of_host).fold(Bytes::ZERO, Bytes::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Layout;

    /// By hand: 16 ranks on hosts of 4, four stages that leave 1, 2, 3 and 4 bytes. With stages outermost a host holds 4 ranks of
    /// one stage; with replicas outermost and tp 1 one of each; with tp 2 two of two neighbours.
    #[test]
    fn hosts_hold_what_their_ranks_leave() {
        let left: Vec<Bytes> = (1..=4).map(|n| Bytes::new(f64::from(n))).collect();
        let fullest = |tp: u32, order: RankOrder| {
            let layout = Layout { tp, cp: 1, pp: 4, dp: 4 / tp, ep: 1, etp: tp };
            let plan = Plan { order, ..Plan::of_layout(layout) };
            fullest_host(&plan, &left, 4)
        };
        assert_eq!(fullest(1, RankOrder::PipelineOutermost), Bytes::new(16.0));
        assert_eq!(fullest(1, RankOrder::DataOutermost), Bytes::new(10.0));
        assert_eq!(fullest(2, RankOrder::DataOutermost), Bytes::new(14.0));
    }
}
