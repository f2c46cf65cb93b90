//! Planning problems of tasks on the machines of choices.

use super::choice::Choice;
use super::error::SweepError;
use super::file::Sweep;
use super::machine::cluster;
use super::task::{Task, format};
use meshwright_engine::problem::{HbmProfile, Problem};
use meshwright_engine::workload::{self, Workload};
use meshwright_planner::catalog;

/// Problem of a task on the machine of a choice, and whether it leaves open the CUDA graphs of its stack's recipes, which it has.
///
/// # Errors
///
/// The GPU lacks a format, or the parts do not fit together.
pub fn problem(sweep: &Sweep, task: &Task, choice: &Choice) -> Result<(Problem, bool), SweepError> {
    let cluster = cluster(choice, &sweep.sets)?;
    let mut stack = match (choice.get("stack"), &task.stack) {
        (Some(name), _) => catalog::stack(name, &sweep.sets)?,
        (None, Some(stack)) => stack.clone(),
        (None, None) => {
            let usual = catalog::defaults::stack(&cluster.gpu);
            catalog::stack(catalog::defaults::stack_for(&task.model, usual), &sweep.sets)?
        }
    };
    let adaptation = task.workload.adaptation;
    let replays = catalog::defaults::replays(&task.model, &cluster, &stack, adaptation, &sweep.sets);
    stack.cuda_graphs |= replays;
    let format = match choice.get("precision") {
        Some(name) => format(name).map_err(|why| SweepError::value("precision", why))?,
        None => task.workload.format,
    };
    let recipe = task.recipe.as_deref().unwrap_or_else(|| stack.usual_recipe(format));
    let recipe = workload::recipe(recipe).ok_or_else(|| SweepError::value("optimizer", "there is no such recipe"))?;
    let workload = Workload { format, recipe, ..task.workload.clone() };
    let problem = Problem::new(task.model.clone(), cluster, workload, stack, HbmProfile::Normal)
        .map_err(|why| SweepError::value(&task.name, why.to_string().lines().next().unwrap_or_default()))?;
    Ok((problem, replays))
}
