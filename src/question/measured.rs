//! Measured step times, MFU and scaling efficiencies of `lint`.

use super::error::QuestionError;
use meshwright_engine::cost::{Costs, Figures};
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;
use meshwright_frameworks::lint::measured::Point;
use meshwright_planner::space;

/// Measured points of `--measured`.
///
/// # Errors
///
/// One is no measurement, its run does not exist, or a single scaling efficiency is given.
pub(super) fn points(measured: &[String], problem: &Problem, plan: &Plan) -> Result<Vec<Point>, QuestionError> {
    let mut found = Vec::new();
    let mut first: Option<FirstEfficiency> = None;
    for item in measured {
        let point = point(item, problem, plan, &mut first)
            .map_err(|why| QuestionError::refused(format!("--measured {item}: {why}")))?;
        found.push(point);
    }
    if found.len() == 1 && found[0].relative {
        return Err(QuestionError::refused(
            "--measured: a single scaling efficiency is not enough\n\nhint: give two, of different numbers of GPUs: \
            85%,gpus=16 and 40%",
        ));
    }
    Ok(found)
}

/// Scaling efficiency that the others of a question are relative to.
#[derive(Clone, Copy)]
struct FirstEfficiency {
    /// Efficiency over the FLOPs of one GPU in a step.
    per_flop: f64,
    /// Predicted step time of its run.
    predicted: Seconds,
}

/// Measurement of one `--measured`; the first scaling efficiency becomes `first`.
fn point(item: &str, problem: &Problem, plan: &Plan, first: &mut Option<FirstEfficiency>) -> Result<Point, String> {
    let mut parts = item.split(',').map(str::trim);
    let value = parts.next().unwrap_or_default();
    let (mut gpus, mut batch, mut text) = (None, None, None);
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not gpus=N, batch=B or plan=…"))?;
        match key.trim() {
            "gpus" => gpus = Some(number(value)?),
            "batch" => batch = Some(number(value)?),
            "plan" => text = Some(value.to_owned()),
            other => return Err(format!("`{other}` is not one of gpus, batch and plan")),
        }
    }
    let (problem, plan) = other_run(problem, plan, gpus, batch, text.as_deref())?;
    let costs = Costs::new(&problem);
    if let Some(why) = space::check(&costs, &plan).into_iter().find(|why| !why.is_of_memory()) {
        return Err(format!("the plan {plan} does not run there: {why}\n\nhint: batch=… or plan=… of that run"));
    }
    let evaluation = costs.evaluate_simulated(&plan);
    let predicted = evaluation.step.total();
    let lower = value.to_ascii_lowercase();
    let (measured, relative) = if let Some(share) = lower.strip_suffix("mfu") {
        let share = percentage(share)?;
        let mfu = Figures::new(&problem, &evaluation).mfu;
        if mfu <= 0.0 {
            return Err("the device has no peak for the format".to_owned());
        }
        (predicted * (mfu / share), false)
    } else if lower.ends_with('%') {
        let share = percentage(&lower)?;
        let per_flop = share / flops_per_gpu(&problem);
        // The first efficiency is taken at its predicted time; the others follow from their ratio to it and from their
        // work.
        let first = first.get_or_insert(FirstEfficiency { per_flop, predicted });
        (first.predicted * first.per_flop / per_flop, true)
    } else {
        (lower.parse::<Seconds>().map_err(|why| format!("{why}"))?, false)
    };
    if measured.get() <= 0.0 || !measured.get().is_finite() {
        return Err(format!("`{value}` is not a step time"));
    }
    Ok(Point { problem, plan, measured, relative })
}

/// FLOPs of one GPU in one step.
fn flops_per_gpu(problem: &Problem) -> f64 {
    let tokens = problem.workload().tokens_per_step() / f64::from(problem.cluster().gpus);
    problem.flops_per_token(AttentionConvention::Causal).get() * tokens
}

fn percentage(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    let share = number.map(|n| if text.contains('%') { n / 100.0 } else { n });
    share
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("`{text}` is not a share between 0 and 100 %"))
}

fn number(text: &str) -> Result<u32, String> {
    text.trim().parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("`{text}` is not a whole number above 0"))
}

/// Variant of the file's run on another number of GPUs; the batch is scaled in proportion unless it is given.
fn other_run(
    problem: &Problem,
    plan: &Plan,
    gpus: Option<u32>,
    batch: Option<u32>,
    text: Option<&str>,
) -> Result<(Problem, Plan), String> {
    let own = problem.cluster().gpus;
    let gpus = gpus.unwrap_or(own);
    let mut workload = problem.workload().clone();
    let scaled = (u64::from(workload.global_batch) * u64::from(gpus) / u64::from(own)).max(1);
    workload.global_batch = batch.unwrap_or(u32::try_from(scaled).unwrap_or(u32::MAX));
    let cluster = problem.cluster().clone().resized(gpus);
    let (model, stack) = (problem.model().clone(), problem.stack().clone());
    let other = Problem::new(model, cluster, workload, stack, problem.hbm_profile()).map_err(|why| why.to_string())?;
    let mut plan = plan.clone();
    if let Some(text) = text {
        plan = space::parse_plan(text, &other).map_err(|why| format!("plan: {why}"))?;
    } else {
        let layout = &mut plan.layout;
        layout.dp = (gpus / (layout.tp * layout.cp * layout.pp)).max(1);
        let ranks = layout.tp * layout.cp * layout.dp;
        while layout.ep > 1 && !ranks.is_multiple_of(layout.ep * layout.etp) && layout.ep.is_multiple_of(2) {
            layout.ep /= 2;
        }
    }
    Ok((other, plan))
}
