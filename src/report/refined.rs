//! Refined stages for a reader.

use meshwright_engine::units::{percent, significant};
use serde::Serialize;

use super::Sheet;
use meshwright_engine::problem::Problem;
use meshwright_engine::stages::StagedPlan;
use meshwright_planner::refine::ranking::Entry;
use meshwright_planner::refine::{Proof, Refined};

/// The refined plans as a table.
pub fn sheet(problem: &Problem, entries: &[Entry]) -> Sheet {
    let columns =
        ["#", "plan", "before", "refined", "gain", "no split is faster", "peak GiB", "stages", "recomputation"];
    let mut sheet = Sheet::new("with layers and recomputation chosen for each stage", &columns);
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
            significant(refined.price.evaluation.footprint.device().as_gib()),
            refined.staged.megatron_layout(),
            refined.staged.recomputation(problem.model().kinds.len()) + &on_host(&refined.staged),
        ]);
    }
    sheet
}

/// What waits on the host, where anything does.
fn on_host(staged: &StagedPlan) -> String {
    let Some(offload) = staged.offload.first() else { return String::new() };
    let share = |what: &str, share: f64| {
        if share > 0.0 { format!("; {} of {what} on the host", percent(share)) } else { String::new() }
    };
    share("activations", offload.activations) + &share("the optimizer", offload.optimizer)
}

fn proof(proof: Proof) -> String {
    match proof {
        Proof::Optimal => "proved".into(),
        Proof::WithinGap { gap } => format!("by over {:.2} %", gap * 100.0),
        Proof::TimeLimit { gap } => format!("by over {:.2} % (search cut short)", gap * 100.0),
    }
}

/// What refinement changed, in words; empty where it changed nothing.
pub fn sentence(entries: &[Entry], fastest_unrefined: Option<meshwright_engine::units::Seconds>) -> String {
    let Some((entry, refined)) = entries.iter().find_map(|entry| Some((entry, entry.outcome.as_ref().ok()?))) else {
        return String::new();
    };
    let flags = if refined.staged.recomputes_alike() {
        ""
    } else {
        " Its stages recompute differently: give the ranks of each stage their own recompute flags."
    };
    match (refined.before, fastest_unrefined) {
        (None, None) => format!(
            "A plan fits only thanks to refinement: {} with stages {} takes {}; with alike stages and one recomputation for \
             all layers nothing fits.{flags}",
            entry.plan,
            refined.staged.megatron_layout(),
            refined.step()
        ),
        (None, Some(fastest)) if refined.step() < fastest => format!(
            "The fastest plan exists only thanks to refinement: {} does not fit with alike stages; with stages {} it takes \
             {}, {} less than the fastest that does.{flags}",
            entry.plan,
            refined.staged.megatron_layout(),
            refined.step(),
            percent(1.0 - refined.step() / fastest)
        ),
        (_, Some(fastest)) if refined.step() < fastest => format!(
            "Refined, {} is the fastest: stages {} take {}, {} less than the fastest plan with alike stages.{flags}",
            entry.plan,
            refined.staged.megatron_layout(),
            refined.step(),
            percent(1.0 - refined.step() / fastest)
        ),
        _ => String::new(),
    }
}

/// One refined plan as JSON.
#[derive(Debug, Serialize)]
pub struct Document {
    plan: String,
    place: Option<usize>,
    fits: bool,
    reason: Option<String>,
    refined: Option<Stages>,
}

/// Stages with their price.
#[derive(Debug, Serialize)]
pub struct Stages {
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
    recomputes_alike: bool,
    staged: StagedPlan,
}

impl Stages {
    /// Of refined stages.
    pub fn new(refined: &Refined) -> Self {
        let ends = refined.staged.first_and_last();
        let proof = match refined.proof {
            Proof::Optimal => "optimal",
            Proof::WithinGap { .. } => "within-gap",
            Proof::TimeLimit { .. } => "time-limit",
        };
        Self {
            step_time_before_s: refined.before.map(meshwright_engine::units::Seconds::get),
            step_time_s: refined.step().get(),
            bound_s: refined.bound.get(),
            proof,
            gap: refined.proof.gap(),
            peak_mem_gib: refined.price.evaluation.footprint.device().as_gib(),
            only_by_refinement: refined.before.is_none(),
            megatron_layout: refined.staged.megatron_layout(),
            decoder_first_pipeline_num_layers: ends.map(|(first, _)| first),
            decoder_last_pipeline_num_layers: ends.map(|(_, last)| last),
            recomputes_alike: refined.staged.recomputes_alike(),
            staged: refined.staged.clone(),
        }
    }
}

impl Document {
    /// Of an entry.
    pub fn new(entry: &Entry) -> Self {
        Self {
            plan: entry.plan.to_string(),
            place: entry.place,
            fits: entry.outcome.is_ok(),
            reason: entry.outcome.as_ref().err().map(ToString::to_string),
            refined: entry.outcome.as_ref().ok().map(Stages::new),
        }
    }
}
