//! `meshwright calibrate`: fits a calibration file to measured samples.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::files::{self, ForceArgs};
use super::format::OutputFormat;
use super::{Outcome, output};
use crate::cli::calibration::read;
use crate::question::FitChoice;
use crate::report::calibration as sheets;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::sources::Basis;
use meshwright_engine::stack::Stack;
use meshwright_lab::probe::import::{Import, kineto, nccl_tests, tables};
use meshwright_lab::probe::sample::check_date;
use meshwright_lab::probe::{Calibration, Machine, Samples, fit};
use meshwright_planner::catalog::{self, Overrides};

/// Arguments of `calibrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files of samples from `meshwright measure`, or calibration files to recompute.
    samples: Vec<PathBuf>,
    /// Device of the samples [default: as the samples name it].
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// Cluster whose network carried the collectives between nodes.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Output of nccl-tests; the file name must start with the program's name unless the output has it:
    /// all_reduce_perf.txt.
    #[arg(long, value_name = "FILE")]
    nccl_tests: Vec<PathBuf>,
    /// Trace of the PyTorch profiler, with record_shapes=True.
    #[arg(long, value_name = "FILE")]
    kineto: Vec<PathBuf>,
    /// Published table of kernel times (CSV): GEMMs, attention or collectives.
    #[arg(long, value_name = "FILE", requires = "table_device")]
    table: Vec<PathBuf>,
    /// Device whose rows of the tables to use, as in their `gpu` column.
    #[arg(long, value_name = "NAME")]
    table_device: Option<String>,
    /// Date of the samples, such as 2026-11-21 [default: as the samples state it].
    #[arg(long, value_name = "DAY")]
    date: Option<String>,
    /// Source of the samples: a key of docs/sources.toml, or free text.
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    #[command(flatten)]
    fit: FitChoice,
    /// File to write, or folder for a file named after device and date [default: stdout].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Output format of the residual table on stderr.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Default source of samples.
const SOURCE: &str = "measured";

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let mut gathered = gather(args)?;
    if let Some(date) = &args.date {
        check_date(date)?;
        gathered.samples.machine.date.clone_from(date);
    }
    if gathered.samples.machine.date.is_empty() {
        bail!("the date of the samples is unknown\n\nhint: --date 2026-11-21");
    }
    if gathered.samples.of.is_empty() {
        bail!("there are no samples\n\nhint: give files of `meshwright measure`, --nccl-tests, --kineto or --table");
    }
    let sets = args.fit.over(Overrides::default())?;
    let (cluster, stack) = measured_machine(&gathered.samples.gpu, args.cluster.as_deref(), &sets)?;
    gathered.samples.in_formats_of(&cluster.gpu);
    let source = args.source.clone().or(gathered.source).unwrap_or_else(|| SOURCE.to_owned());
    let calibration = Calibration::new(gathered.samples, &source, &gathered.command, &cluster, &stack)?;
    let text = calibration.to_toml(&cluster, &stack);
    let existing = args.force.existing();
    match &args.out {
        Some(path) if path.is_dir() => {
            let path = path.join(file_name(&calibration.samples));
            files::write(&path, &text, existing)?;
            output::talk(&format!("{}: written", path.display()));
        }
        Some(path) => files::write(path, &text, existing)?,
        None => output::print(&text)?,
    }
    let (mut known, mut driven) = (cluster.clone(), stack.clone());
    calibration.apply_curves(&cluster.gpu.name, &mut known, &mut driven)?;
    let residuals =
        fit::residuals(&calibration.samples, &fit::analytic(&cluster, &stack), &fit::analytic(&known, &driven));
    let sheet = sheets::residuals(&calibration, &residuals);
    output::talk(output::sheets(&[sheet], args.format)?.trim_end());
    Ok(Outcome::Answered)
}

/// Name of the file of a device and a date, of letters, digits, `-`, `_` and `.` only, so that a device which is named by a path
/// does not lead out of the folder.
fn file_name(samples: &Samples) -> String {
    let Samples { gpu, machine: Machine { date, .. }, .. } = samples;
    let device = Path::new(gpu)
        .file_stem()
        .filter(|_| gpu.contains(['/', '\\']))
        .map_or(gpu.as_str().into(), |stem| stem.to_string_lossy());
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = format!("{device}-{date}").chars().map(plain).collect();
    format!("{}.toml", name.trim_start_matches('.'))
}

/// Samples of all inputs, the command that the file will name, and their source.
struct Gathered {
    samples: Samples,
    command: String,
    source: Option<String>,
}

/// Reads the samples of all inputs.
fn gather(args: &Args) -> Result<Gathered> {
    let mut all: Option<Samples> = None;
    let mut command = None;
    let mut source = None;
    for path in &args.samples {
        let text = read(path)?;
        let origin = || path.display().to_string();
        // A recomputed calibration keeps its command and source, so the same samples give the same file.
        if let Ok(calibration) = Calibration::parse(&text) {
            command.get_or_insert(calibration.command);
            source.get_or_insert(calibration.source);
        }
        let samples = Samples::parse(&text).with_context(origin)?;
        match &mut all {
            None => all = Some(samples),
            Some(all) if all.gpu == samples.gpu => {
                all.basis = all.basis.combine(samples.basis);
                for (kernel, sample) in samples.of {
                    all.add(kernel, sample);
                }
            }
            Some(all) => bail!("{}: samples of {}, and those before are of {}", origin(), samples.gpu, all.gpu),
        }
    }
    let imported = !(args.nccl_tests.is_empty() && args.kineto.is_empty() && args.table.is_empty());
    let basis = if args.table.is_empty() { Basis::Measured } else { Basis::Calibrated };
    let mut samples = match (all, &args.gpu) {
        (Some(all), Some(gpu)) if *gpu != all.gpu => bail!("--gpu {gpu}: the samples are of {}", all.gpu),
        (Some(all), Some(_) | None) => all,
        (None, Some(gpu)) => Samples::new(gpu, basis, Machine::default()),
        (None, None) if args.cluster.is_some() || imported => {
            bail!("the device of the samples is unknown\n\nhint: --gpu h100-sxm")
        }
        (None, None) => bail!("no samples were given\n\nhint: meshwright calibrate SAMPLES.toml"),
    };
    if imported {
        samples.basis = samples.basis.combine(basis);
        import(args, &mut samples)?;
    }
    let own_command = command_line(args);
    if samples.machine.command.is_empty() {
        samples.machine.command.clone_from(&own_command);
    }
    Ok(Gathered { samples, command: command.unwrap_or(own_command), source })
}

/// Command that reproduces the file, without the folders of its inputs and without the output options.
fn command_line(args: &Args) -> String {
    let mut words = vec!["meshwright calibrate".to_owned()];
    let name = |path: &PathBuf| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let optional = |flag: &str, value: &Option<String>| value.as_ref().map(|value| format!("{flag} {value}"));
    words.extend(args.samples.iter().map(name));
    words.extend(optional("--gpu", &args.gpu));
    words.extend(optional("--cluster", &args.cluster));
    words.extend(args.nccl_tests.iter().map(|path| format!("--nccl-tests {}", name(path))));
    words.extend(args.kineto.iter().map(|path| format!("--kineto {}", name(path))));
    words.extend(args.table.iter().map(|path| format!("--table {}", name(path))));
    words.extend(optional("--table-device", &args.table_device));
    words.extend(optional("--date", &args.date));
    words.join(" ")
}

/// Adds the samples of the outputs of other programs, and reports the samples that were left out.
fn import(args: &Args, samples: &mut Samples) -> Result<()> {
    let gpus_per_node = match &args.cluster {
        Some(name) => catalog::cluster(name, &Overrides::default())?.gpus_per_node,
        None => catalog::gpu(&samples.gpu)?.scale_up.gpus,
    };
    let mut take = |path: &Path, import: Import| {
        let taken: usize = import.samples.iter().map(|(_, sample)| sample.times().len()).sum();
        output::talk(&format!("{}: {taken} times", path.display()));
        for (why, count) in &import.left {
            output::talk(&format!("{}: left {count}: {why}", path.display()));
        }
        import.into_samples(samples);
    };
    for path in &args.nccl_tests {
        let import = nccl_tests::read(&read(path)?, &path.to_string_lossy());
        take(path, import.with_context(|| path.display().to_string())?);
    }
    for path in &args.kineto {
        let import = kineto::read(&read(path)?, u64::from(gpus_per_node));
        take(path, import.with_context(|| path.display().to_string())?);
    }
    for path in &args.table {
        let import = tables::read(&read(path)?, args.table_device.as_deref().unwrap_or_default());
        take(path, import.with_context(|| path.display().to_string())?);
    }
    Ok(())
}

/// Machine whose predictions the samples are compared with: the named cluster, or one scale-up domain of the device.
fn measured_machine(gpu: &str, cluster: Option<&str>, sets: &Overrides) -> Result<(Cluster, Stack)> {
    let device = catalog::gpu_with(gpu, sets)?;
    let stack = catalog::stack("nemo-25", sets)?;
    let Some(name) = cluster else {
        return Ok((Cluster::of_one_domain(device), stack));
    };
    let cluster = catalog::cluster(name, sets)?;
    if cluster.gpu.name != device.name {
        bail!("--cluster {name} is of {}, and the samples are of {}", cluster.gpu.name, device.name);
    }
    Ok((cluster, stack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_stay_in_the_folder() {
        let name = |gpu: &str| {
            let machine = Machine { date: "2026-11-21".into(), ..Machine::default() };
            file_name(&Samples::new(gpu, Basis::Measured, machine))
        };
        assert_eq!(name("h100-sxm"), "h100-sxm-2026-11-21.toml");
        for gpu in ["../../etc/cron.d/x", "/etc/passwd", "..", "a\\..\\b", "a\nb", "./gpus/mine.toml", ""] {
            let name = name(gpu);
            assert!(!name.starts_with('.') && !name.contains(['/', '\\', '\n']), "{gpu}: {name}");
        }
        assert_eq!(name("./gpus/mine.toml"), "mine-2026-11-21.toml");
    }
}
