//! Which trial a log or a row belongs to, by what it says of its plan.

use super::posterior::Posterior;
use meshwright_engine::plan::{Plan, Recompute};
use meshwright_engine::problem::Problem;
use meshwright_lab::runs::Row;

/// Differences between a row and the plan of a problem; cells that are blank say nothing.
pub fn differences(row: &Row, problem: &Problem, plan: &Plan) -> Vec<String> {
    let (model, workload, layout) = (problem.model(), problem.workload(), plan.layout);
    let number = |name: &str, said: Option<f64>, planned: u32| {
        let said = said.filter(|said| (said - f64::from(planned)).abs() > 1e-9)?;
        Some(format!("{name} {said} instead of {planned}"))
    };
    let zero = row.zero_stage.filter(|_| layout.dp > 1);
    let recompute = row.recompute.as_deref().filter(|said| !said.is_empty()).and_then(|said| {
        let kind = |said: &str| if said == "none" { 0 } else { 1 + u32::from(said.starts_with("full")) };
        let planned = match plan.recompute {
            Recompute::None => 0,
            Recompute::Selective(_) | Recompute::PerOp | Recompute::EveryOther => 1,
            Recompute::FirstLayers(_) | Recompute::Full => 2,
        };
        (kind(said) != planned).then(|| format!("recompute {said} instead of {}", plan.recompute))
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
        number("zero", zero, u32::from(u8::from(plan.zero))),
        number("micro-batch", row.micro_batch, plan.micro_batch),
        recompute,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Index of the trial that a row describes: the one without differences, of those waiting first.
///
/// # Errors
///
/// No trial is like the row, or several are; names the nearest with what differs.
pub fn matching(row: &Row, posterior: &Posterior) -> Result<usize, String> {
    let named = row.id.as_deref().filter(|id| !id.is_empty());
    if let Some(at) = posterior.trials().iter().position(|trial| named.is_some() && trial.id.as_deref() == named) {
        return Ok(at);
    }
    let mut differing: Vec<(usize, Vec<String>)> = (0..posterior.trials().len())
        .map(|at| (at, differences(row, posterior.trial_problem(), posterior.trial_plan(at))))
        .collect();
    differing.sort_by_key(|(at, differs)| (differs.len(), !posterior.is_waiting(*at), *at));
    let name = |at: usize| posterior.trials()[at].trial;
    let alike: Vec<usize> = differing.iter().take_while(|(_, differs)| differs.is_empty()).map(|(at, _)| *at).collect();
    let waiting: Vec<usize> = alike.iter().copied().filter(|at| posterior.is_waiting(*at)).collect();
    match (alike.as_slice(), waiting.as_slice()) {
        (_, [one]) | ([one], _) => Ok(*one),
        ([], _) => {
            let (at, differs) = &differing[0];
            Err(format!(
                "it is no trial of this study; the nearest is trial {}, and it says {}",
                name(*at),
                differs.join(", ")
            ))
        }
        (several, _) => {
            let numbers: Vec<String> = several.iter().map(|at| name(*at).to_string()).collect();
            Err(format!("trials {} are all like it\n\nhint: --trial N says which it was", numbers.join(", ")))
        }
    }
}
