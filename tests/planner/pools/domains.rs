//! Scale-up domains of pools: those of a pool's own GPUs.

use super::{cluster, pooled};
use meshwright::plan::RankOrder;
use meshwright::pools::{Distribution, Pooled};
use meshwright::search::SearchOptions;
use meshwright::space::{Restrictions, parse_plan};
use std::ops::ControlFlow;

/// H100 beside as many of the 1,152 GB200 of 16 racks, of which groups of 64 fill 64 of 72, with a global batch that all
/// replicas share equally.
fn beside_racks(in_racks: u32) -> Pooled {
    let others = cluster("dgx-h100-16k", in_racks);
    pooled("qwen3-30b-a3b", vec![others, cluster("gb200-nvl72-1152", in_racks)], "400 Gb/s", 2 * in_racks)
}

fn ways(pooled: &Pooled, text: &str) -> usize {
    pooled.ways(&parse_plan(text, &pooled.joined()[0]).unwrap()).len()
}

/// Groups of 64 of 1,152 GPUs need 18 racks of 16, and of 1,024 all 16; groups of 8 fill whole racks.
#[test]
fn pools_of_racks_hold_no_more_groups_than_they_have_room_for() {
    let (whole, less) = (beside_racks(1152), beside_racks(1024));
    for (replicas, fits, ep) in [(2304, 0, 64), (2304, 0, 32), (2304, 1, 8)] {
        let found = ways(&whole, &format!("tp=1 pp=1 dp={replicas} ep={ep} zero=1 recompute=full"));
        assert_eq!(found.min(1), fits, "replicas on pools, groups of {ep}");
        let stages = format!("tp=1 pp=2 dp={} ep={ep} schedule=1f1b zero=1 recompute=full", replicas / 2);
        assert_eq!(ways(&whole, &stages).min(1), fits, "stages on pools, groups of {ep}");
    }
    assert!(ways(&less, "tp=1 pp=1 dp=2048 ep=64 zero=1 recompute=full") > 0, "16 racks have room for 16 groups");
    assert!(ways(&less, "tp=1 pp=2 dp=1024 ep=64 schedule=1f1b zero=1 recompute=full") > 0);
}

/// The search over pools names no plan that its own `ways` refuse.
#[test]
fn searches_over_pools_leave_such_plans_out() {
    let answer = |pooled: &Pooled| {
        let mut restrictions = Restrictions::default();
        for fixed in ["tp=1", "cp=1", "pp=1..2", "ep=64", "zero=1", "mbs=1", "recompute=full", "schedule=1f1b"] {
            restrictions.fix(fixed).unwrap();
        }
        pooled.answer(&SearchOptions { top: 4, restrictions }, &|_, _| ControlFlow::Continue(())).mixtures
    };
    assert!(answer(&beside_racks(1152)).is_empty());
    let found = answer(&beside_racks(1024));
    assert!(found.iter().any(|mixture| matches!(mixture.distribution, Distribution::Replicas { .. })), "{found:?}");
    let staged = found.iter().filter(|mixture| matches!(mixture.distribution, Distribution::Stages { .. }));
    assert!(staged.clone().count() > 0 && staged.clone().all(|of| of.plan.order == RankOrder::PipelineOutermost));
}
