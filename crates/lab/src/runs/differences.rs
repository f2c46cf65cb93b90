//! Differences between a row of runs and a plan of a problem.

use super::row::Row;
use meshwright_engine::plan::{Plan, Recompute};
use meshwright_engine::problem::Problem;

/// Differences between a row and the plan of a problem; cells that are blank say nothing.
pub fn differences(row: &Row, problem: &Problem, plan: &Plan) -> Vec<String> {
    let (model, workload, layout) = (problem.model(), problem.workload(), plan.layout);
    let number = |name: &str, stated: Option<f64>, planned: u32| {
        let stated = stated.filter(|stated| (stated - f64::from(planned)).abs() > 1e-9)?;
        Some(format!("{name} {stated} instead of {planned}"))
    };
    let zero = row.zero_stage.filter(|_| layout.dp > 1);
    let recompute = row.recompute.as_deref().filter(|stated| !stated.is_empty()).and_then(|stated| {
        let kind = |stated: &str| if stated == "none" { 0 } else { 1 + u32::from(stated.starts_with("full")) };
        let planned = match plan.recompute {
            Recompute::None => 0,
            Recompute::Selective(_) | Recompute::PerOp | Recompute::EveryOther => 1,
            Recompute::FirstLayers(_) | Recompute::Full => 2,
        };
        (kind(stated) != planned).then(|| format!("recompute {stated} instead of {}", plan.recompute))
    });
    [
        number("layers", row.layers, model.layers()),
        number("hidden", row.hidden, model.hidden),
        number("GPUs", row.gpus_total, layout.world_size()),
        number("sequence length", row.seq_len, workload.seq_len),
        number("global batch", row.global_batch, workload.global_batch),
        number("tp", row.tp, layout.tp),
        number("cp", row.cp, layout.cp),
        number("pp", row.pp, layout.pp),
        number("vpp", row.vpp.filter(|_| layout.pp > 1), plan.schedule.virtual_stages()),
        number("ep", row.ep.filter(|_| model.is_moe()), layout.ep),
        number("etp", row.etp.filter(|_| model.is_moe()), layout.etp),
        number("sp", row.sp.filter(|_| layout.tp > 1), u32::from(plan.sequence_parallel)),
        number("zero", zero, u32::from(u8::from(plan.zero))),
        number("micro-batch", row.micro_batch, plan.micro_batch),
        recompute,
    ]
    .into_iter()
    .flatten()
    .collect()
}
