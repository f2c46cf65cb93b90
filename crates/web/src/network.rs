//! Groups of a plan on the network: who talks to whom, and through which level.

use serde_json::{Value, json};

use meshwright::collective::{Fabric, Group};
use meshwright::cost::{Costs, groups};
use meshwright::plan::Plan;
use meshwright::units::BytesPerSec;

/// Groups of more than one rank with the outermost level that each crosses, and the levels themselves.
pub fn groups(costs: &Costs, plan: &Plan) -> Value {
    let cluster = costs.problem.cluster();
    let fabric = Fabric::new(cluster, costs.problem.stack());
    let layout = plan.layout;
    let experts = Group { ranks: layout.ep, stride: layout.etp };
    let all = [
        ("tp", groups::tp(plan), "tp_comm_s"),
        ("cp", groups::cp(plan), "cp_comm_s"),
        ("ep", experts, "ep_comm_s"),
        ("dp", groups::dp(plan, layout.dp * layout.cp), "dp_comm_s"),
        ("pp", Group { ranks: layout.pp, stride: groups::stage_distance(plan) }, "pp_comm_s"),
    ];
    let listed = all.into_iter().filter(|(_, group, _)| group.ranks > 1).map(|(name, group, term)| {
        let (inside, domains) = (fabric.inside_domain(group), fabric.domains(group));
        let level = fabric.crossed(group).last().map(|(level, _)| level.name.as_str());
        json!({
            "group": name,
            "ranks": group.ranks,
            "stride": group.stride,
            "inside_domain": inside,
            "level": level,
            "gbps": gigabits(if domains > 1 { fabric.bus_bandwidth(group) } else { cluster.scale_up.bandwidth }),
            "term": term,
        })
    });
    let levels = cluster.levels.iter().map(|level| {
        json!({
            "name": level.name,
            "gpus": level.gpus,
            "gbps": gigabits(level.bandwidth.value),
            "oversubscription": level.oversubscription,
        })
    });
    json!({
        "domain": cluster.scale_up.gpus,
        "domain_gbps": gigabits(cluster.scale_up.bandwidth),
        "node": cluster.gpus_per_node,
        "gpus": cluster.gpus,
        "levels": levels.collect::<Vec<_>>(),
        "groups": listed.collect::<Vec<_>>(),
    })
}

/// A bandwidth in Gb/s.
fn gigabits(bandwidth: BytesPerSec) -> f64 {
    bandwidth.get() * 8.0 / 1e9
}
