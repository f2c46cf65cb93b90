//! `meshwright verify`: measures the top plans on the local GPU and ranks them again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use serde::Serialize;

use super::format::OutputFormat;
use super::timing::{ProbeArgs, cuda, kernels_to_time, machine, open, resume, time_kernels, top_plans};
use super::{Outcome, files, output};
use crate::files::Existing;
use crate::question::Question;
use crate::question::recalibrated::recalibrated;
use crate::report::recalibrated::{Recalibrated, sheet as recalibrated_sheet};
use crate::report::{json, verify as sheets};
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_lab::probe::checked::LayerMemory;
use meshwright_lab::probe::verify::{Verdict, Verification, calibrated, measured, memory, run_layers, verify};
use meshwright_lab::probe::{Analytic, Calibration, Effort, Machine, Probe, ProbeError, Samples, shapes};
use meshwright_planner::catalog;

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    problem: Question,
    /// Number of plans.
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    #[command(flatten)]
    probe: ProbeArgs,
    /// File of the samples; kernels already in it are not measured again [default: no file].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Output format of the report.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    problem: String,
    machine: &'a Machine,
    basis: Basis,
    #[serde(flatten)]
    verification: &'a Verification,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<&'a Recalibrated>,
}

/// Runs the command; any verdict other than "confirmed" is a failure.
pub fn run(args: &Args) -> Result<Outcome> {
    let opened = if args.probe.is_cuda() { Some(cuda(&args.probe)?) } else { None };
    let problem = output::noted(args.problem.problem(None)?);
    let plans = top_plans(&problem, args.top);
    if plans.is_empty() {
        bail!("no plan fits: there is nothing to verify\n\nhint: meshwright plan says why");
    }
    let gpu = &problem.cluster().gpu;
    let costs = Costs::new(&problem);
    let wanted = kernels_to_time(Some(&costs), &plans, shapes::base(gpu, args.probe.effort(), &[]));
    let analytic = Analytic::new(problem.cluster(), problem.stack(), machine("cost model"));
    let (mut probe, basis) = match opened {
        Some(opened) => (opened, Basis::Measured),
        None => open(&args.probe, analytic)?,
    };
    let name =
        catalog::gpu_names().into_iter().find(|name| catalog::gpu(name).is_ok_and(|known| known.name == gpu.name));
    let name = name.unwrap_or("device");
    let taken_before = probe.recorded().cloned();
    if let Some(recorded) = taken_before.as_ref().filter(|recorded| recorded.gpu != name) {
        let wanted = &gpu.name;
        bail!(
            "the recording is of a {}, and the plans are for {wanted}\n\nhint: give a cluster of this GPU",
            recorded.gpu
        );
    }
    let mut samples = taken_before.unwrap_or_else(|| Samples::new(name, basis, probe.machine().clone()));
    let kept = args
        .out
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("meshwright-verify-{}.toml", std::process::id())));
    if args.out.is_some() {
        resume(&kept, &mut samples)?;
    }
    let taken = time_kernels(&mut *probe, &wanted, gpu, &args.probe, &mut samples, &kept);
    let layers = taken.and_then(|()| layers(&problem, &plans, &mut *probe, args.probe.effort(), &mut samples));
    if args.out.is_some() {
        files::write(&kept, &samples.to_toml(), Existing::Replace)?;
    } else {
        let _ = std::fs::remove_file(&kept);
    }
    let plans = layers?;
    let calibration =
        Calibration::new(samples.clone(), "measured", &samples.machine.command, problem.cluster(), problem.stack())?;
    let known = calibrated(&problem, &calibration).map_err(|why| anyhow!("{why}"))?;
    let in_run = measured(&problem, &calibration).map_err(|why| anyhow!("{why}"))?;
    let verification = verify(&problem, &known, &in_run, &samples, &plans);
    let recalibrated = recalibrated(&problem, &in_run);
    let text = if args.format == OutputFormat::Json {
        json::text(&Document {
            schema: json::SCHEMA,
            problem: problem.heading(),
            machine: &samples.machine,
            basis: samples.basis,
            verification: &verification,
            again: recalibrated.as_ref(),
        })?
    } else {
        let mut sheets = sheets::report(&problem.heading(), &samples, &verification);
        sheets.extend(recalibrated.as_ref().map(recalibrated_sheet));
        output::sheets(&sheets, args.format)?
    };
    output::print(&text)?;
    output::talk(&sheets::in_words(&verification));
    Ok(if verification.verdict == Verdict::Confirmed { Outcome::Answered } else { Outcome::NoPlan })
}

/// Plans, each with the measured memory of its layers if the probe can allocate them; the layers' kernels are timed as one run.
fn layers(
    problem: &Problem,
    plans: &[Plan],
    probe: &mut dyn Probe,
    effort: Effort,
    samples: &mut Samples,
) -> Result<Vec<(Plan, Vec<LayerMemory>)>> {
    let mut all = Vec::new();
    let mut reasons = BTreeSet::new();
    let mut known = |what: &str, error: ProbeError| {
        let why = match error {
            ProbeError::Unsupported { why, .. } => why,
            ProbeError::NotRecorded { .. } => "it is not in the recording".into(),
            other => return Err(other),
        };
        reasons.insert(format!("{what} was not measured: {why}"));
        Ok(())
    };
    for plan in plans {
        if let Err(error) = run_layers(problem, plan, probe, effort, samples) {
            known("a layer as one run", error)?;
        }
        let layers = match memory(problem, plan, probe, samples) {
            Ok(layers) => layers,
            Err(error) => {
                known("memory", error)?;
                Vec::new()
            }
        };
        all.push((plan.clone(), layers));
    }
    for reason in reasons {
        output::talk(&reason);
    }
    Ok(all)
}
