//! Timing of kernels on the local GPU, for `measure` and `verify`: the probe, the kernels, and the samples that are kept.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::progress::Progress;
use super::{calibration, files, output, today};
use crate::files::Existing;
use meshwright_engine::cost::Costs;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_frameworks::launchable;
#[cfg(feature = "cuda")]
use meshwright_lab::probe::ranks::Ranks;
use meshwright_lab::probe::{
    Analytic, Effort, Kernel, Machine, Probe, ProbeError, Recorded, Samples, roofline, shapes,
};
use meshwright_planner::advice::{Prudence, advise};
use meshwright_planner::search::SearchOptions;

/// Selection of the probe that times kernels.
#[derive(Debug, clap::Args)]
pub struct ProbeArgs {
    /// Probe: `cuda` (the GPU), `model` (the cost model, for a dry run), or a file of recorded samples.
    #[arg(long, value_name = "PROBE", default_value = "cuda")]
    pub probe: String,
    /// Index of the GPU on this host [default: the local rank].
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Use fewer repeats and sizes: at most five minutes on one GPU.
    #[arg(long)]
    pub quick: bool,
}

/// Time after which `--quick` starts no further kernel.
const QUICK: Duration = Duration::from_secs(280);

impl ProbeArgs {
    /// Whether the probe is the local GPU.
    pub fn is_cuda(&self) -> bool {
        self.probe == "cuda"
    }

    /// Number of repeats and sizes.
    pub const fn effort(&self) -> Effort {
        if self.quick { Effort::QUICK } else { Effort::FULL }
    }
}

/// Plans of the shortest predicted steps that frameworks can launch, in their order.
pub(super) fn top_plans(problem: &Problem, count: u32) -> Vec<Plan> {
    let options = SearchOptions { top: count as usize, restrictions: launchable(problem) };
    let advice = advise(problem, &options, Prudence::default(), &|_, _| ControlFlow::Continue(()));
    advice.ranking.evaluations.into_iter().map(|evaluation| evaluation.plan).collect()
}

/// Kernels to time: those of the plans, then the device's own, each once.
pub(super) fn kernels_to_time(costs: Option<&Costs>, plans: &[Plan], of_device: Vec<Kernel>) -> Vec<Kernel> {
    let mut wanted: Vec<Kernel> = costs.map_or_else(Vec::new, |costs| {
        shapes::kernels_of_plans(costs, plans).into_iter().map(|(kernel, _)| kernel).collect()
    });
    for kernel in of_device {
        if !wanted.contains(&kernel) {
            wanted.push(kernel);
        }
    }
    wanted
}

/// Times the requested kernels, the most expensive first, and writes after each, so that an interrupted run can resume.
pub(super) fn time_kernels(
    probe: &mut dyn Probe,
    wanted: &[Kernel],
    gpu: &Gpu,
    args: &ProbeArgs,
    samples: &mut Samples,
    out: &Path,
) -> Result<()> {
    let (start, progress) = (Instant::now(), Progress::new());
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    let known = samples.machine.state.clone();
    for (at, kernel) in wanted.iter().enumerate() {
        progress.at(at as u64, wanted.len() as u64);
        if samples.of.contains_key(kernel) {
            continue;
        }
        // No rank may skip a collective that another rank joins.
        let is_shared = matches!(kernel, Kernel::Collective { .. });
        if args.quick && start.elapsed() > QUICK && !is_shared {
            *left.entry("the five minutes of --quick had passed".into()).or_default() += 1;
            continue;
        }
        match probe.time(kernel, args.effort()) {
            Ok(sample) => {
                roofline::check(kernel, &sample, gpu)?;
                samples.add(*kernel, sample);
                files::write(out, &samples.to_toml(), Existing::Replace)?;
            }
            Err(ProbeError::Unsupported { why, .. }) => *left.entry(why).or_default() += 1,
            Err(ProbeError::NotRecorded { .. }) => *left.entry("not in the recording".into()).or_default() += 1,
            Err(error) => return Err(error.into()),
        }
    }
    progress.finish();
    samples.machine.state.extend(probe.machine().state.iter().filter(|line| !known.contains(line)).cloned());
    for (why, count) in left {
        output::talk(&format!("left {count}: {why}"));
    }
    files::write(out, &samples.to_toml(), Existing::Replace)
}

/// Opens the selected probe.
pub(super) fn open<'a>(args: &ProbeArgs, analytic: Analytic<'a>) -> Result<(Box<dyn Probe + 'a>, Basis)> {
    match args.probe.as_str() {
        "cuda" => Ok((cuda(args)?, Basis::Measured)),
        "model" => Ok((Box::new(analytic), Basis::Datasheet)),
        path => {
            let text = calibration::read(Path::new(path))
                .map_err(|error| anyhow!("--probe {error}\n\nhint: there are `cuda`, `model`, and files of samples"))?;
            let samples = Samples::parse(&text).with_context(|| format!("--probe {path}"))?;
            let basis = samples.basis;
            Ok((Box::new(Recorded::new(samples)), basis))
        }
    }
}

#[cfg(feature = "cuda")]
pub(super) fn cuda(args: &ProbeArgs) -> Result<Box<dyn Probe>> {
    let ranks = Ranks::from_environment(|name| std::env::var(name).ok())?;
    let device = args.device.or(ranks.as_ref().map(|ranks| ranks.local)).unwrap_or(0);
    let mut cuda = meshwright_lab::probe::cuda::Cuda::open(device as usize, machine(""))?;
    if let Some(ranks) = ranks {
        cuda.join(ranks)?;
    }
    Ok(Box::new(cuda))
}

/// Command that builds the probe.
pub(super) const CUDA_BUILD: &str =
    "in a checkout, `cargo install --path . --features cuda` (needs no CUDA to build: docs/hardware.md)";

#[cfg(not(feature = "cuda"))]
pub(super) fn cuda(_: &ProbeArgs) -> Result<Box<dyn Probe>> {
    Err(ProbeError::Missing {
        what: "this build has no GPU probe".into(),
        remedy: format!("{CUDA_BUILD}; or use recorded samples with --probe FILE"),
    }
    .into())
}

/// Description of this machine for new samples.
pub(super) fn machine(device: &str) -> Machine {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Machine {
        device: device.to_owned(),
        date: today::today(),
        host: if device.is_empty() { host.trim().to_owned() } else { String::new() },
        command: format!("meshwright {}", std::env::args().skip(1).collect::<Vec<_>>().join(" ")),
        ..Machine::default()
    }
}

/// Resumes from a file of the same machine.
pub(super) fn resume(path: &Path, samples: &mut Samples) -> Result<()> {
    if path.symlink_metadata().is_err_and(|why| why.kind() == std::io::ErrorKind::NotFound) {
        return Ok(());
    }
    let origin = || format!("--out {}", path.display());
    let text = calibration::read(path)?;
    let before = Samples::parse(&text).with_context(origin)?;
    if before.gpu != samples.gpu || before.machine.device != samples.machine.device || before.basis != samples.basis {
        bail!(
            "{}: it has samples of {} ({}), but these are of {} ({})\n\nhint: another --out",
            origin(),
            before.machine.device,
            before.basis,
            samples.machine.device,
            samples.basis
        );
    }
    if !before.of.is_empty() {
        output::talk(&format!("{}: {} kernels are there already", path.display(), before.of.len()));
    }
    samples.machine = before.machine;
    (samples.of, samples.together, samples.held) = (before.of, before.together, before.held);
    Ok(())
}
