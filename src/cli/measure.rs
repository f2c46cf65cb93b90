//! `meshwright measure`: times the kernels of the top plans on the local GPU.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::calibration;
use super::files::{self, ForceArgs};
use super::progress::Progress;
use super::{Outcome, output};
use crate::files::Existing;
use crate::question::{Question, QuestionOptions};
use meshwright_engine::cost::Costs;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_frameworks::launchable;
use meshwright_lab::probe::ranks::Ranks;
use meshwright_lab::probe::{
    Analytic, Effort, Kernel, Machine, Probe, ProbeError, Recorded, Samples, device, roofline, shapes,
};
use meshwright_planner::advice::{Prudence, advise};
use meshwright_planner::catalog::{self, gpu_names};
use meshwright_planner::search::SearchOptions;

/// Arguments of `measure`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model and cluster whose top plans give the kernels to measure.
    #[arg(long = "for", num_args = 2, value_names = ["MODEL", "CLUSTER"])]
    target: Vec<String>,
    /// Number of plans.
    #[arg(long, value_name = "K", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    #[command(flatten)]
    probe: ProbeArgs,
    /// Catalogue name of the local GPU [default: from the driver's device name].
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// File of the samples; kernels already in it are not measured again.
    #[arg(long, value_name = "FILE", default_value = "samples.toml")]
    out: PathBuf,
    /// List the kernels to measure, and measure nothing.
    #[arg(long)]
    list: bool,
    /// Cluster file to write that describes hosts like this one, instead of measuring.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "list"])]
    write_cluster: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Number of hosts of that cluster.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Folder below which to read the host's files.
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    root: PathBuf,
    #[command(flatten)]
    options: QuestionOptions,
}

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

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    if let Some(path) = &args.write_cluster {
        let text = device::cluster_file(&device::read(&args.root), args.nodes, args.gpu.as_deref(), &today())?;
        files::write(path, &text, args.force.existing())?;
        output::talk(&format!("{}: written", path.display()));
        return Ok(Outcome::Answered);
    }
    // The GPU is opened first, so that its absence is reported before any other work.
    let opened = if args.probe.is_cuda() && !args.list { Some(cuda(&args.probe)?) } else { None };
    let problem = match args.target.as_slice() {
        [model, cluster] => {
            let (model, cluster, options) = (model.clone(), cluster.clone(), args.options.clone());
            Some(output::noted(Question { model, cluster, options }.problem(None)?))
        }
        _ => None,
    };
    let plans = problem.as_ref().map(|problem| top(problem, args.top)).unwrap_or_default();
    if problem.is_some() && plans.is_empty() {
        bail!("no plan fits: there is nothing to measure\n\nhint: meshwright plan says why");
    }
    let mut wanted: Vec<Kernel> = match &problem {
        Some(problem) => shapes::wanted(&Costs::new(problem), &plans).into_iter().map(|(kernel, _)| kernel).collect(),
        None => Vec::new(),
    };
    let ranks = Ranks::from_environment(|name| std::env::var(name).ok())?;
    let groups = ranks.as_ref().map_or_else(Vec::new, |ranks| shapes::groups(&plans, ranks.world, ranks.per_node));
    let gpu = gpu(args, problem.as_ref(), opened.as_deref())?;
    for kernel in shapes::base(&gpu, args.probe.effort(), &groups) {
        if !wanted.contains(&kernel) {
            wanted.push(kernel);
        }
    }
    if args.list {
        let lines: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        output::print(&(lines.join("\n") + "\n"))?;
        return Ok(Outcome::Answered);
    }
    let (cluster, stack) = match &problem {
        Some(problem) => (problem.cluster().clone(), problem.stack().clone()),
        None => (
            meshwright_engine::cluster::Cluster::of_one_domain(gpu.clone()),
            catalog::stack("nemo-25", &catalog::Overrides::default())?,
        ),
    };
    let analytic = Analytic::new(&cluster, &stack, machine("cost model"));
    let (mut probe, basis) = match opened {
        Some(opened) => (opened, Basis::Measured),
        None => open(&args.probe, analytic)?,
    };
    let name = entry(args, &gpu, probe.machine())?;
    let mut samples = Samples::new(&name, basis, probe.machine().clone());
    resume(&args.out, &mut samples)?;
    let mut out = args.out.clone();
    if let Some(ranks) = &ranks {
        // Every rank must join every collective, but the ranks' files may differ.
        samples.of.retain(|kernel, _| !matches!(kernel, Kernel::Collective { .. }));
        if ranks.rank > 0 {
            out.as_mut_os_string().push(format!(".rank{}", ranks.rank));
        }
    }
    take(&mut *probe, &wanted, &gpu, &args.probe, &mut samples, &out)?;
    output::talk(&format!(
        "{}: {} kernels\n\nhint: meshwright calibrate {} --out {name}.toml",
        out.display(),
        samples.of.len(),
        out.display()
    ));
    Ok(Outcome::Answered)
}

/// Times the requested kernels, the most expensive first, and writes after each, so that an interrupted run can resume.
pub(super) fn take(
    probe: &mut dyn Probe,
    wanted: &[Kernel],
    gpu: &Gpu,
    args: &ProbeArgs,
    samples: &mut Samples,
    out: &Path,
) -> Result<()> {
    let (start, progress) = (Instant::now(), Progress::new());
    let mut left: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
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

/// Top plans in their predicted order.
pub(super) fn top(problem: &Problem, top: u32) -> Vec<Plan> {
    let options = SearchOptions { top: top as usize, restrictions: launchable(problem) };
    let advice = advise(problem, &options, Prudence::default(), &|_, _| ControlFlow::Continue(()));
    advice.ranking.evaluations.into_iter().map(|evaluation| evaluation.plan).collect()
}

/// Device that samples are compared with: the plans', the named one, or the local one.
fn gpu(args: &Args, problem: Option<&Problem>, opened: Option<&dyn Probe>) -> Result<Gpu> {
    if let Some(problem) = problem {
        return Ok(problem.cluster().gpu.clone());
    }
    if let Some(name) = &args.gpu {
        return Ok(catalog::gpu(name)?);
    }
    let on_bus = device::read(&args.root).gpus.first().map(|gpu| gpu.name.clone());
    let driver_name = opened.map(|probe| probe.machine().device.clone()).or(on_bus).unwrap_or_default();
    match gpu_names::in_driver(&driver_name) {
        Some(name) => Ok(catalog::gpu(name)?),
        None => bail!("the catalogue name of this device is unknown\n\nhint: --gpu NAME, or --for MODEL CLUSTER"),
    }
}

/// Catalogue name for the samples; the local device must be the one that they are compared with.
fn entry(args: &Args, gpu: &Gpu, machine: &Machine) -> Result<String> {
    let of = |name: &str| catalog::gpu(name).is_ok_and(|known| known.name == gpu.name);
    if let Some(seen) = gpu_names::in_driver(&machine.device)
        && !of(seen)
    {
        bail!(
            "the GPU is a {}, and the plans are for {}\n\nhint: give a cluster of this GPU",
            machine.device,
            gpu.name
        );
    }
    if let Some(name) = &args.gpu {
        return Ok(name.clone());
    }
    let name = catalog::gpu_names().into_iter().find(|name| of(name));
    name.map(ToOwned::to_owned)
        .ok_or_else(|| anyhow!("{} is not a device of the catalogue\n\nhint: --gpu FILE", gpu.name))
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

#[cfg(not(feature = "cuda"))]
pub(super) fn cuda(_: &ProbeArgs) -> Result<Box<dyn Probe>> {
    Err(ProbeError::Missing {
        what: "this build has no GPU probe".into(),
        remedy: "cargo install meshwright --features cuda (it needs no CUDA to build); or use recorded samples with \
        --probe FILE"
            .into(),
    }
    .into())
}

/// Description of this machine for new samples.
pub(super) fn machine(device: &str) -> Machine {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Machine {
        device: device.to_owned(),
        date: today(),
        host: if device.is_empty() { host.trim().to_owned() } else { String::new() },
        command: format!("meshwright {}", std::env::args().skip(1).collect::<Vec<_>>().join(" ")),
        ..Machine::default()
    }
}

/// Current date (UTC), such as 2026-11-21.
///
/// Days since 1970 to a date of the Gregorian calendar: the days from the first of March of the year 0, in eras of 400
/// years, then years, then months of 30.6 days.
pub(super) fn today() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86400)
}

fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
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

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_have_dates() {
        for (days, text) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_778, "2026-11-21"),
            (20_819, "2027-01-01"),
        ] {
            assert_eq!(date(days), text);
        }
    }
}
