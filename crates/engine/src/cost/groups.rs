//! Process groups of a plan, in Megatron's rank order.

use crate::cluster::Cluster;
use crate::collective::Group;
use crate::plan::{Layout, Plan, RankOrder};

/// The tensor-parallel group: neighbours.
pub const fn tp(plan: &Plan) -> Group {
    Group { ranks: plan.layout.tp, stride: 1 }
}

/// The context-parallel group, whose neighbours are tp ranks apart.
pub const fn cp(plan: &Plan) -> Group {
    Group { ranks: plan.layout.cp, stride: plan.layout.tp }
}

/// A group of `ranks` of the data-parallel ranks of dense weights. Under `tp-cp-ep-pp-dp` neighbours are a whole pipeline apart;
/// the cp ranks among them are nearer, but are taken as that far too.
pub const fn dp(plan: &Plan, ranks: u32) -> Group {
    let stride = match plan.order {
        RankOrder::PipelineOutermost => plan.layout.tp,
        RankOrder::DataOutermost => plan.layout.tp * plan.layout.pp,
    };
    Group { ranks, stride }
}

/// The ranks of a stage that hold the same experts.
///
/// ```text
/// tp-cp-ep-dp-pp   etp·ep apart
/// tp-cp-ep-pp-dp   etp·ep·pp apart: a whole pipeline lies between two of them
/// ```
///
/// Source: [megatron-lm] `parallel_state.py`, `initialize_model_parallel`: experts have a rank grid of their own, of (etp, ep, dp,
/// pp) in the same order, context parallelism folded into its replicas.
pub const fn experts(plan: &Plan) -> Group {
    let group = plan.layout.ep * plan.layout.etp;
    let stride = match plan.order {
        RankOrder::PipelineOutermost => group,
        RankOrder::DataOutermost => group * plan.layout.pp,
    };
    Group { ranks: plan.layout.expert_replicas(), stride }
}

/// GPUs of a scale-up domain of `domain` that a plan's ranks fill, so that no group that fits in a domain lies in two: the largest
/// multiple of the largest such group, of tensor and context parallelism and of experts. 64 of 72 for 64 expert ranks.
pub fn filled(plan: &Plan, domain: u32) -> u32 {
    let Layout { tp, cp, ep, etp, .. } = plan.layout;
    let largest = [1, tp, tp * cp, etp * ep].into_iter().filter(|ranks| *ranks <= domain).max().unwrap_or(1);
    domain / largest * largest
}

/// Scale-up domains that a plan needs, where its cluster is known to have fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewDomains {
    /// GPUs that the plan fills of each.
    pub filled: u32,
    /// Domains that it needs.
    pub needed: u32,
    /// Domains that the cluster has.
    pub had: u32,
}

impl TooFewDomains {
    /// The domains of a plan whose groups do not divide a domain; none where the cluster has enough, or where it is not known how many
    /// it has. In a pool's view of several, the domains of the ranks that lie in that pool.
    pub fn of(plan: &Plan, cluster: &Cluster) -> Option<Self> {
        let (filled, had) = (filled(plan, cluster.scale_up.gpus), cluster.domains()?);
        let needed = cluster.pool_gpus.unwrap_or_else(|| plan.layout.world_size()).div_ceil(filled);
        (needed > had).then_some(Self { filled, needed, had })
    }
}

/// Distance in ranks between neighbouring stages.
pub const fn stage_distance(plan: &Plan) -> u32 {
    match plan.order {
        RankOrder::PipelineOutermost => plan.layout.tp * plan.layout.cp * plan.layout.dp,
        RankOrder::DataOutermost => plan.layout.tp * plan.layout.cp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(layout: Layout, order: RankOrder) -> Plan {
        Plan { order, ..Plan::of_layout(layout) }
    }

    /// The ranks that share all coordinates of rank 0 but one, in a grid of (size, whether it varies) from the innermost.
    fn group(grid: &[(u32, bool)]) -> Vec<u32> {
        let mut ranks = vec![0];
        let mut stride = 1;
        for &(size, varies) in grid {
            if varies {
                ranks = ranks.iter().flat_map(|rank| (0..size).map(move |at| rank + at * stride)).collect();
            }
            stride *= size;
        }
        ranks.sort_unstable();
        ranks
    }

    fn listed(group: Group) -> Vec<u32> {
        (0..group.ranks).map(|at| at * group.stride).collect()
    }

    #[test]
    fn groups_fill_whole_multiples_of_a_domain() {
        let of = |tp, cp, ep| {
            filled(&plan(Layout { tp, cp, pp: 1, dp: 1152, ep, etp: 1 }, RankOrder::PipelineOutermost), 72)
        };
        assert_eq!(
            [of(1, 1, 64), of(1, 1, 32), of(8, 1, 8), of(1, 1, 72), of(16, 1, 8), of(4, 2, 128)],
            [64, 64, 72, 72, 64, 72]
        );
    }

    /// By hand: 48 ranks, tp 4, cp 2, pp 3, dp 2, expert groups of 4·2 = 8 ranks. With replicas outermost the first stage is
    /// ranks 0–7 and 24–31, so an expert of rank 0 is on rank 24 again; with stages outermost it is ranks 0–15, and on rank 8.
    #[test]
    fn replicas_of_experts_lie_a_pipeline_apart_where_data_is_outermost() {
        let layout = Layout { tp: 4, cp: 2, pp: 3, dp: 2, ep: 4, etp: 2 };
        let ranks_under = |order| listed(experts(&plan(layout, order)));
        assert_eq!(ranks_under(RankOrder::PipelineOutermost), [0, 8]);
        assert_eq!(ranks_under(RankOrder::DataOutermost), [0, 24]);
    }

    #[test]
    fn groups_are_those_of_the_grids() {
        let layouts = [
            Layout { tp: 4, cp: 2, pp: 3, dp: 2, ep: 4, etp: 2 },
            Layout { tp: 2, cp: 1, pp: 4, dp: 8, ep: 2, etp: 1 },
            Layout { tp: 1, cp: 4, pp: 2, dp: 4, ep: 2, etp: 2 },
            Layout { tp: 8, cp: 1, pp: 1, dp: 4, ep: 8, etp: 1 },
        ];
        for layout in layouts {
            let Layout { tp, cp, pp, dp, ep, etp } = layout;
            let copies = layout.expert_replicas();
            let last = plan(layout, RankOrder::PipelineOutermost);
            let first = plan(layout, RankOrder::DataOutermost);
            let no = |size| (size, false);
            assert_eq!(listed(experts(&last)), group(&[no(etp), no(ep), (copies, true), no(pp)]), "{layout:?}");
            assert_eq!(listed(experts(&first)), group(&[no(etp), no(ep), no(pp), (copies, true)]), "{layout:?}");
            assert_eq!(listed(super::tp(&last)), group(&[(tp, true), no(cp), no(dp), no(pp)]), "{layout:?}");
            assert_eq!(listed(super::cp(&last)), group(&[no(tp), (cp, true), no(dp), no(pp)]), "{layout:?}");
            // Replicas of dense weights are those of dp and cp; with stages outermost they are one block, tp apart.
            let replicas = listed(super::dp(&last, layout.dense_replicas()));
            assert_eq!(replicas, group(&[no(tp), (cp, true), (dp, true), no(pp)]), "{layout:?}");
            // The next stage is as far as the second rank of its group.
            for (plan, grid) in
                [(&last, [no(tp), no(cp), no(dp), (pp, true)]), (&first, [no(tp), no(cp), (pp, true), no(dp)])]
            {
                assert!(group(&grid).get(1).is_none_or(|&next| next == stage_distance(plan)), "{layout:?}");
            }
        }
    }
}
