//! Reports on refined stages.

use meshwright_engine::units::{Seconds, percent, significant};
use serde::Serialize;

use super::Sheet;
use meshwright_engine::problem::Problem;
use meshwright_engine::stages::StagedPlan;
use meshwright_planner::refine::ranking::RefinedEntry;
use meshwright_planner::refine::{Proof, Refined};

/// Table of the refined plans.
pub fn sheet(problem: &Problem, entries: &[RefinedEntry]) -> Sheet {
    let columns = ["#", "plan", "before", "refined", "gain", "optimality gap", "peak GiB", "stages", "recomputation"];
    let mut sheet = Sheet::new("with layers and recomputation optimised for each stage", &columns);
    for entry in entries {
        let Ok(refined) = &entry.outcome else { continue };
        let before = refined.before.map_or_else(|| "does not fit".to_owned(), |time| time.to_string());
        let gain = refined.before.map_or_else(String::new, |time| percent(1.0 - refined.step() / time));
        sheet.push([
            entry.place.map_or_else(|| "-".to_owned(), |place| place.to_string()),
            entry.plan.to_string(),
            before,
            refined.step().to_string(),
            gain,
            proof(refined.proof),
            significant(refined.price.evaluation.footprint.peak().as_gib()),
            refined.staged.megatron_layout(),
            refined.staged.recomputation(problem.model().kinds.len()) + &on_host(&refined.staged),
        ]);
    }
    sheet
}

/// Offloaded tensors in words; empty if there are none.
fn on_host(staged: &StagedPlan) -> String {
    let Some(offload) = staged.offload.first() else { return String::new() };
    let share = |what: &str, share: f64| {
        if share > 0.0 { format!("; {} of {what} on the host", percent(share)) } else { String::new() }
    };
    share("activations", offload.activations) + &share("the optimizer", offload.optimizer)
}

/// Optimality gap as text.
fn proof(proof: Proof) -> String {
    match proof {
        Proof::Optimal => "proved".into(),
        Proof::WithinGap { gap } => format!("≤ {:.2} %", gap * 100.0),
        Proof::TimeLimit { gap } => format!("≤ {:.2} % (search stopped early)", gap * 100.0),
    }
}

/// Sentences on the effect of refinement; empty if it changed nothing.
pub fn sentence(entries: &[RefinedEntry], fastest_unrefined: Option<Seconds>) -> String {
    let Some((entry, refined)) = entries.iter().find_map(|entry| Some((entry, entry.outcome.as_ref().ok()?))) else {
        return String::new();
    };
    let flags = if refined.staged.recomputes_uniformly() {
        ""
    } else {
        " Its stages recompute differently: give the ranks of each stage their own recompute flags."
    };
    match (refined.before, fastest_unrefined) {
        (None, None) => format!(
            "Only refinement makes a plan fit: {} with stages {} takes {}; with identical stages and one \
            recomputation for all layers, no plan fits.{flags}",
            entry.plan,
            refined.staged.megatron_layout(),
            refined.step()
        ),
        (None, Some(fastest)) if refined.step() < fastest => format!(
            "Only refinement makes the fastest plan fit: {} does not fit with identical stages; with stages {} it \
             takes {}, {} less than the fastest plan that fits without it.{flags}",
            entry.plan,
            refined.staged.megatron_layout(),
            refined.step(),
            percent(1.0 - refined.step() / fastest)
        ),
        (_, Some(fastest)) if refined.step() < fastest => format!(
            "With the stages {} plan {} takes {}, {} less than the fastest plan with identical stages: `emit --refine` writes \
             them.{flags}",
            refined.staged.megatron_layout(),
            entry.place.map_or_else(|| entry.plan.to_string(), |place| place.to_string()),
            refined.step(),
            percent(1.0 - refined.step() / fastest)
        ),
        _ => String::new(),
    }
}

/// JSON form of a refined plan.
#[derive(Debug, Serialize)]
pub struct RefinedDocument {
    plan: String,
    place: Option<usize>,
    fits: bool,
    reason: Option<String>,
    refined: Option<StagesDocument>,
}

/// JSON form of refined stages with their cost.
#[derive(Debug, Serialize)]
pub struct StagesDocument {
    step_time_before_s: Option<f64>,
    step_time_s: f64,
    bound_s: f64,
    proof: &'static str,
    gap: f64,
    peak_mem_gib: f64,
    only_by_refinement: bool,
    megatron_layout: String,
    decoder_first_pipeline_num_layers: Option<u32>,
    decoder_last_pipeline_num_layers: Option<u32>,
    recomputes_uniformly: bool,
    staged: StagedPlan,
}

impl StagesDocument {
    /// JSON form of refined stages.
    pub fn new(refined: &Refined) -> Self {
        let ends = refined.staged.first_and_last();
        let proof = match refined.proof {
            Proof::Optimal => "optimal",
            Proof::WithinGap { .. } => "within-gap",
            Proof::TimeLimit { .. } => "time-limit",
        };
        Self {
            step_time_before_s: refined.before.map(Seconds::get),
            step_time_s: refined.step().get(),
            bound_s: refined.bound.get(),
            proof,
            gap: refined.proof.gap(),
            peak_mem_gib: refined.price.evaluation.footprint.peak().as_gib(),
            only_by_refinement: refined.before.is_none(),
            megatron_layout: refined.staged.megatron_layout(),
            decoder_first_pipeline_num_layers: ends.map(|(first, _)| first),
            decoder_last_pipeline_num_layers: ends.map(|(_, last)| last),
            recomputes_uniformly: refined.staged.recomputes_uniformly(),
            staged: refined.staged.clone(),
        }
    }
}

impl RefinedDocument {
    /// JSON form of an entry.
    pub fn new(entry: &RefinedEntry) -> Self {
        Self {
            plan: entry.plan.to_string(),
            place: entry.place,
            fits: entry.outcome.is_ok(),
            reason: entry.outcome.as_ref().err().map(ToString::to_string),
            refined: entry.outcome.as_ref().ok().map(StagesDocument::new),
        }
    }
}
