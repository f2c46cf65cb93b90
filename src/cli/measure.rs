//! `meshwright measure`: times the kernels of the top plans on the local GPU.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use super::files::{self, ForceArgs};
use super::timing::{ProbeArgs, cuda, kernels_to_time, machine, open, resume, time_kernels, top_plans};
use super::today::today;
use super::{Outcome, output};
use crate::question::{Question, QuestionOptions};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cost::Costs;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::problem::Problem;
use meshwright_engine::sources::Basis;
use meshwright_lab::probe::ranks::Ranks;
use meshwright_lab::probe::{Analytic, Kernel, Machine, Probe, Samples, device, shapes};
use meshwright_planner::catalog::{self, gpu_names};

/// Stack of the predictions that kernels without a problem are compared with.
const USUAL_STACK: &str = "nemo-25";

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

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    if let Some(path) = &args.write_cluster {
        return write_cluster(args, path);
    }
    // The GPU is opened first, so that its absence is reported before any other work.
    let opened = if args.probe.is_cuda() && !args.list { Some(cuda(&args.probe)?) } else { None };
    let problem = problem(args)?;
    let plans = problem.as_ref().map(|problem| top_plans(problem, args.top)).unwrap_or_default();
    if problem.is_some() && plans.is_empty() {
        bail!("no plan fits: there is nothing to measure\n\nhint: meshwright plan says why");
    }
    let ranks = Ranks::from_environment(|name| std::env::var(name).ok())?;
    let groups = ranks.as_ref().map_or_else(Vec::new, |ranks| shapes::groups(&plans, ranks.world, ranks.per_node));
    let gpu = gpu(args, problem.as_ref(), opened.as_deref())?;
    let costs = problem.as_ref().map(Costs::new);
    let wanted = kernels_to_time(costs.as_ref(), &plans, shapes::base(&gpu, args.probe.effort(), &groups));
    if args.list {
        let lines: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        output::print(&(lines.join("\n") + "\n"))?;
        return Ok(Outcome::Answered);
    }
    let (cluster, stack) = match &problem {
        Some(problem) => (problem.cluster().clone(), problem.stack().clone()),
        None => (Cluster::of_one_domain(gpu.clone()), catalog::stack(USUAL_STACK, &catalog::Overrides::default())?),
    };
    let analytic = Analytic::new(&cluster, &stack, machine("cost model"));
    let (mut probe, basis) = match opened {
        Some(opened) => (opened, Basis::Measured),
        None => open(&args.probe, analytic)?,
    };
    let name = catalogue_name(args, &gpu, probe.machine())?;
    let mut samples = Samples::new(&name, basis, probe.machine().clone());
    resume(&args.out, &mut samples)?;
    let out = out_of_rank(args, ranks.as_ref(), &mut samples);
    time_kernels(&mut *probe, &wanted, &gpu, &args.probe, &mut samples, &out)?;
    output::talk(&format!(
        "{}: {} kernels\n\nhint: meshwright calibrate {} --out {name}.toml",
        out.display(),
        samples.of.len(),
        out.display()
    ));
    Ok(Outcome::Answered)
}

/// Writes a cluster file of hosts like this one.
fn write_cluster(args: &Args, path: &Path) -> Result<Outcome> {
    let text = device::cluster_file(&device::read(&args.root), args.nodes, args.gpu.as_deref(), &today())?;
    files::write(path, &text, args.force.existing())?;
    output::talk(&format!("{}: written", path.display()));
    Ok(Outcome::Answered)
}

/// Problem of `--for`; none without it.
fn problem(args: &Args) -> Result<Option<Problem>> {
    let [model, cluster] = args.target.as_slice() else { return Ok(None) };
    let (model, cluster, options) = (model.clone(), cluster.clone(), args.options.clone());
    Ok(Some(output::noted(Question { model, cluster, options }.problem(None)?)))
}

/// File of this rank's samples: one of its own for each rank but the first. Collectives of an earlier file are timed
/// again, since every rank must join every collective, and the ranks' files may differ.
fn out_of_rank(args: &Args, ranks: Option<&Ranks>, samples: &mut Samples) -> PathBuf {
    let mut out = args.out.clone();
    if let Some(ranks) = ranks {
        samples.of.retain(|kernel, _| !matches!(kernel, Kernel::Collective { .. }));
        if ranks.rank > 0 {
            out.as_mut_os_string().push(format!(".rank{}", ranks.rank));
        }
    }
    out
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
fn catalogue_name(args: &Args, gpu: &Gpu, machine: &Machine) -> Result<String> {
    let is_this_gpu = |name: &str| catalog::gpu(name).is_ok_and(|known| known.name == gpu.name);
    if let Some(seen) = gpu_names::in_driver(&machine.device)
        && !is_this_gpu(seen)
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
    let name = catalog::gpu_names().into_iter().find(|name| is_this_gpu(name));
    name.map(ToOwned::to_owned)
        .ok_or_else(|| anyhow!("{} is not a device of the catalogue\n\nhint: --gpu FILE", gpu.name))
}
