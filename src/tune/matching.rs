//! Matching of logs and rows to trials, by the settings that they state.

use super::posterior::Posterior;
use meshwright_lab::runs::{Row, differences};

/// Index of the trial that a row describes: the one without differences, of those waiting first.
///
/// # Errors
///
/// No trial is like the row, or several are; names the nearest with the differing settings.
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
    let same: Vec<usize> = differing.iter().take_while(|(_, differs)| differs.is_empty()).map(|(at, _)| *at).collect();
    let waiting: Vec<usize> = same.iter().copied().filter(|at| posterior.is_waiting(*at)).collect();
    match (same.as_slice(), waiting.as_slice()) {
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
