//! Launch files of the chosen plan.

use anyhow::{Result, anyhow};

use super::files::{Existing, write_all};
use super::output;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::emit::{EmittedFile, Request, emit};
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_planner::catalog;
use meshwright_planner::refine::Refined;
use meshwright_planner::refine::ranking::RefinedEntry;
use meshwright_planner::space::{Rejection, check};

/// Writes files and reports their paths on stderr.
pub fn written(folder: &std::path::Path, files: &[EmittedFile], existing: Existing) -> Result<()> {
    for path in write_all(folder, files, existing)? {
        output::talk(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Plan to write, with its stages if they were optimised.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Plan in the ranking.
    pub plan: &'a Plan,
    /// Optimised stages with their cost.
    pub refined: Option<&'a Refined>,
}

impl<'a> Chosen<'a> {
    /// The best plan, with its refined stages if those are faster; without a best plan, the first whose stages fit.
    pub fn best(best: Option<&'a Evaluation>, refined: &'a [RefinedEntry]) -> Option<Self> {
        let mut fitting = refined.iter().filter_map(|entry| Some((&entry.plan, entry.outcome.as_ref().ok()?)));
        match best {
            Some(best) => {
                let stages = fitting.find(|(plan, stages)| **plan == best.plan && stages.step() < best.step.total());
                Some(Self { plan: &best.plan, refined: stages.map(|(_, stages)| stages) })
            }
            None => fitting.next().map(|(plan, stages)| Self { plan, refined: Some(stages) }),
        }
    }
}

/// The files of a plan; none where it is illegal or cannot be expressed, and the reasons on stderr.
pub fn files(
    framework: &'static Framework,
    problem: &Problem,
    chosen: &Chosen,
    recipe: &str,
) -> Option<Vec<EmittedFile>> {
    let costs = Costs::new(problem);
    let (too_large, illegal): (Vec<Rejection>, Vec<Rejection>) =
        check(&costs, chosen.plan).into_iter().partition(Rejection::is_of_memory);
    for rejection in &illegal {
        output::talk(&format!("does not run: {rejection}"));
    }
    if !illegal.is_empty() {
        return None;
    }
    let evaluation = chosen
        .refined
        .map_or_else(|| costs.evaluate_simulated(chosen.plan), |refined| refined.price.evaluation.clone());
    let staged = chosen.refined.map(|refined| &refined.staged);
    match emit(framework, &Request { recipe: Some(recipe), staged, ..Request::new(&costs, &evaluation) }) {
        Ok(files) => {
            for rejection in too_large.iter().filter(|_| staged.is_none()) {
                output::talk(&format!("warning: predicted not to fit: {rejection}"));
            }
            Some(files)
        }
        Err(refusal) => {
            output::talk(&refusal.to_string());
            None
        }
    }
}

/// Whether a framework can train the model; reports the reasons on stderr if not.
pub fn model_runs(framework: Option<&Framework>, problem: &Problem) -> bool {
    let obstacles = framework.map_or_else(Vec::new, |framework| framework.limits.problem_obstacles(problem));
    for (framework, obstacle) in framework.iter().cycle().zip(&obstacles) {
        output::talk(&format!("{framework} cannot run this: {obstacle}"));
    }
    obstacles.is_empty()
}

/// Target by name; an error suggests the nearest name.
pub fn framework(name: &str) -> Result<&'static Framework> {
    frameworks::named(name).ok_or_else(|| {
        let names = frameworks::names;
        let nearest = catalog::nearest(name, names());
        let nearest = nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        anyhow!(
            "there is no framework `{name}` to write files for{nearest}\n\nhint: there are: {}",
            names().collect::<Vec<_>>().join(", ")
        )
    })
}
