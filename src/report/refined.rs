//! Refined stages for a reader.

use serde::Serialize;

use super::{Sheet, percent, significant};
use crate::problem::Problem;
use crate::refine::ranking::Entry;
use crate::refine::{Proof, Refined};
use crate::stages::{Mix, Stage, StagedPlan};

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
            recomputation(problem, &refined.staged) + &on_host(&refined.staged),
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

/// What stages recompute: one line if they do alike, else runs of stages that do.
pub fn recomputation(problem: &Problem, staged: &StagedPlan) -> String {
    let texts: Vec<String> = staged.stages.iter().map(|stage| of_stage(problem, stage)).collect();
    let filled: Vec<&String> = texts.iter().filter(|text| !text.is_empty()).collect();
    if let Some(first) = filled.first()
        && filled.iter().all(|text| text == first)
        && staged.recomputes_alike()
    {
        return (*first).clone();
    }
    let mut lines = Vec::new();
    let mut at = 0;
    while at < texts.len() {
        let run = texts[at..].iter().take_while(|text| **text == texts[at]).count();
        let stages = if run == 1 { format!("{at}") } else { format!("{at}-{}", at + run - 1) };
        if !texts[at].is_empty() {
            lines.push(format!("stage {stages}: {}", texts[at]));
        }
        at += run;
    }
    lines.join(";\n")
}

fn of_stage(problem: &Problem, stage: &Stage) -> String {
    let one_kind = problem.model().kinds.len() == 1;
    let alike = stage.mixes.windows(2).all(|pair| pair[0].recompute == pair[1].recompute);
    match stage.mixes.first() {
        None => String::new(),
        Some(first) if alike => first.recompute.to_string(),
        Some(_) => {
            let of = |mix: &Mix| {
                let kind = if one_kind { String::new() } else { format!(" of kind {}", mix.kind) };
                format!("{} layers{kind} {}", mix.layers, mix.recompute)
            };
            stage.mixes.iter().map(of).collect::<Vec<_>>().join(", ")
        }
    }
}

/// What refinement changed, in words; empty where it changed nothing.
pub fn sentence(entries: &[Entry], fastest_unrefined: Option<crate::units::Seconds>) -> String {
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
            step_time_before_s: refined.before.map(crate::units::Seconds::get),
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
