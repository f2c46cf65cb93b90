//! `meshwright sweep`: plans workloads on all purchase options, and recommends what to buy.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use super::effort::{EffortArgs, EffortLimits};
use super::files::ForceArgs;
use super::format::OutputFormat;
use super::launch_files::written;
use super::output::talk;
use super::{Outcome, output};
use crate::files::Existing;
use crate::question::{SweepAnswer, tornado_of_cheapest};
use crate::report::html::{SweepResults, sweep_report};
use crate::report::{Sheet, sweep as sheets, sweep_csv, table};
use crate::sweep::record::Record;
use crate::sweep::select::Selection;
use crate::sweep::store::{self, Done, Expected, Store};
use crate::sweep::{Shard, Sweep, run, slurm, unpriced_networks};
use meshwright_frameworks::emit::EmittedFile;

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Sweep file in TOML (examples: clusters/sweeps/).
    #[arg(required = true)]
    file: Option<PathBuf>,
    /// Folder for results.jsonl, results.csv and page.html; results are appended as they are computed.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Resume from the results in the folder.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Part of the sweep to work through: 3/8 is the third of eight.
    #[arg(long, value_name = "I/N", requires = "out")]
    shard: Option<Shard>,
    #[command(flatten)]
    effort: EffortArgs,
    /// Write sweep.sbatch into the folder, a Slurm array of N shards, instead of working through the sweep.
    #[arg(long, value_name = "N", requires = "out", conflicts_with_all = ["resume", "shard"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    slurm: Option<u32>,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    shown: ShownArgs,
}

/// Arguments that select the results to print.
#[derive(Debug, clap::Args)]
struct ShownArgs {
    /// Number of cheapest options to show, in addition to the Pareto front.
    #[arg(long, value_name = "K", default_value_t = 10)]
    top: usize,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Merge the results of shards into one file, identical to that of an unsharded sweep.
    Merge(MergeArgs),
}

#[derive(Debug, clap::Args)]
struct MergeArgs {
    /// Sweep file in TOML.
    file: PathBuf,
    /// Folders with results of shards, or the files themselves.
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
    /// Folder for results.jsonl, results.csv and page.html.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    shown: ShownArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    if let Some(Sub::Merge(merge)) = &args.command {
        return merged(merge);
    }
    let file = args.file.as_deref().context("a sweep needs its file")?;
    let effort = args.effort.start();
    let sweep = Sweep::read(file)?;
    if let (Some(shards), Some(out)) = (args.slurm, &args.out) {
        let script = EmittedFile { name: slurm::SCRIPT.into(), text: slurm::script(file, out, shards) };
        written(out, &[script], args.force.existing())?;
        return Ok(Outcome::Answered);
    }
    let shard = args.shard.unwrap_or_default();
    let all = shard.options(&sweep);
    talk(&format!(
        "{}: {} options on {} machines{}",
        sweep.name,
        sweep.options(),
        sweep.machines(),
        shard_text(shard, all)
    ));
    let Some(folder) = &args.out else {
        let records = in_memory(&sweep, all, &effort)?;
        return answer(&sweep, &Selection::of_all(records), None, args.shown.top, args.shown.format);
    };
    let own = [folder.join(store::file_name(shard)), folder.join(store::file_name(shard)).with_extension("part")];
    // What stands beside results of this sweep was made from them; results themselves are never replaced.
    let of_this_sweep = own.iter().any(|path| path.exists());
    let existing = if of_this_sweep { Existing::Replace } else { args.force.existing() };
    if shard.count == 1 {
        refuse_existing(&REPORTS.map(|name| folder.join(name)), existing)?;
    }
    let expected = Expected { digest: &sweep.digest, options: sweep.options() };
    let (store, found) = Store::open(folder, shard, expected, args.resume)?;
    for note in &found.notes {
        talk(&format!("note: {note}"));
    }
    let path = if found.finished && found.done.count() == all {
        talk("all results are there already");
        store.close()
    } else {
        if found.finished {
            bail!("{}: has {} of {all} options but is marked as finished", folder.display(), found.done.count());
        }
        if found.done.count() > 0 {
            talk(&format!("resuming after {} of {all} options", found.done.count()));
        }
        let progress = Progress::new(all);
        run::run(&sweep, shard, &found.done, &|record| store.append(record), &|done| progress.at(done), &|_, _| {
            effort.control()
        })?;
        progress.finish();
        store.finish()?
    };
    if shard.count > 1 {
        talk(&format!(
            "{}: shard {} of {} is done; join them with `meshwright sweep merge`",
            path.display(),
            shard.index,
            shard.count
        ));
        return Ok(Outcome::Answered);
    }
    let written = Written { folder, results: &path, existing };
    answer(&sweep, &Selection::read(&path)?, Some(&written), args.shown.top, args.shown.format)
}

/// Files of reports, in the folder of the results that they are made from.
const REPORTS: [&str; 3] = ["results.csv", "results.parquet", "page.html"];

/// Errors if a report would take the place of a file that is not a sweep's.
fn refuse_existing(reports: &[PathBuf], existing: Existing) -> Result<()> {
    match reports.iter().find(|path| existing == Existing::Keep && path.symlink_metadata().is_ok()) {
        Some(path) => bail!("{}: is there, without results beside it\n\nhint: another --out keeps it", path.display()),
        None => Ok(()),
    }
}

/// Results on disk, and whether reports in their folder may be replaced.
struct Written<'a> {
    folder: &'a Path,
    results: &'a Path,
    existing: Existing,
}

fn shard_text(shard: Shard, options: u64) -> String {
    if shard.count == 1 { String::new() } else { format!("; shard {} of {} has {options}", shard.index, shard.count) }
}

/// Runs a small sweep in memory, without a folder.
fn in_memory(sweep: &Sweep, all: u64, effort: &EffortLimits) -> Result<Vec<Record>> {
    let kept = Mutex::new(Vec::new());
    let progress = Progress::new(all);
    let keep = |record: &Record| {
        kept.lock().map_err(|why| crate::sweep::SweepError::value("results", why))?.push(record.clone());
        Ok(())
    };
    run::run(sweep, Shard::default(), &Done::default(), &keep, &|done| progress.at(done), &|_, _| effort.control())?;
    progress.finish();
    let mut records = kept.into_inner().unwrap_or_default();
    records.sort_by_key(|record| record.option);
    Ok(records)
}

fn merged(args: &MergeArgs) -> Result<Outcome> {
    let sweep = Sweep::read(&args.file)?;
    let mut files = Vec::new();
    for path in &args.from {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).with_context(|| format!("{}: cannot be read", path.display()))?;
            let mut inside: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
            inside.retain(|path| {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let is_result = path.extension().is_some_and(|end| end == "jsonl" || end == "part");
                name.starts_with("results") && is_result
            });
            inside.sort();
            files.extend(inside);
        } else {
            files.push(path.clone());
        }
    }
    if let Some(part) = files.iter().find(|path| path.extension().is_some_and(|end| end == "part")) {
        bail!("{}: this shard is not finished\n\nhint: run it again with --resume", part.display());
    }
    if files.is_empty() {
        bail!(
            "there are no results in {}",
            args.from.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        );
    }
    let target = args.out.join(store::file_name(Shard::default()));
    let same = |path: &PathBuf| {
        *path == target || path.canonicalize().ok().is_some_and(|it| target.canonicalize().is_ok_and(|to| it == to))
    };
    if files.iter().any(same) {
        bail!("{}: would be merged into itself", target.display());
    }
    let existing = args.force.existing();
    super::files::check_free(
        &[&REPORTS[..], &["results.jsonl"]].concat().iter().map(|name| args.out.join(name)).collect::<Vec<_>>(),
        existing,
    )?;
    let options = sweep.options();
    let selection = store::merge(&files, &target, Expected { digest: &sweep.digest, options }, existing)?;
    talk(&format!("{}: {options} options of {} files", target.display(), files.len()));
    let written = Written { folder: &args.out, results: &target, existing };
    answer(&sweep, &selection, Some(&written), args.shown.top, args.shown.format)
}

fn answer(
    sweep: &Sweep,
    selection: &Selection,
    written: Option<&Written>,
    top: usize,
    format: OutputFormat,
) -> Result<Outcome> {
    let answer = SweepAnswer::new(sweep, selection);
    let SweepAnswer { front, break_even, marginals, fleet } = &answer;
    let records = &selection.records;
    if let Some(Written { folder, results, existing }) = written {
        let [csv, parquet, html] = REPORTS.map(|name| folder.join(name));
        sweep_csv::write(sweep, results, &csv, *existing)?;
        #[cfg(feature = "parquet")]
        crate::report::sweep_parquet::write(sweep, results, &parquet, *existing)?;
        #[cfg(not(feature = "parquet"))]
        drop(parquet);
        let tornado = tornado_of_cheapest(sweep, selection);
        let extra = SweepResults {
            counts: (selection.all, selection.infeasible),
            break_even,
            marginals,
            tornado: tornado.as_ref().map(|(at, bars)| (*at, bars.as_slice())),
            fleet: answer.bought(),
        };
        super::files::write(&html, &sweep_report(sweep, records, &extra), *existing)?;
        talk(&format!("wrote {}, results.csv and page.html", results.display()));
    }
    let mut shown = front.clone();
    shown.extend(selection.cheapest().into_iter().take(top).filter(|at| !front.contains(at)));
    let text = match format {
        OutputFormat::Json => answer.document(sweep, selection)?,
        OutputFormat::Csv => sweep_csv::text(sweep, records)?,
        OutputFormat::Table | OutputFormat::Markdown => {
            let title = format!("{}: the Pareto front of dollars and days (*), and the cheapest options", sweep.name);
            let options = sheets::options(title, records, &shown, front);
            let (head, mut list) = if format == OutputFormat::Table {
                (at_a_glance(&options, records, front, selection.cheapest().first().copied()), Vec::new())
            } else {
                (String::new(), vec![options])
            };
            if selection.infeasible > 0 {
                list.push(sheets::infeasible(records, top));
            }
            if !break_even.is_empty() {
                list.push(sheets::break_even(break_even));
            }
            if !marginals.is_empty() {
                list.push(sheets::marginals(marginals));
            }
            if let (Some(Ok(fleet)), Some(wanted)) = (fleet, &sweep.wanted) {
                list.push(sheets::fleet(fleet, wanted.goal));
            }
            head + &output::sheets(&list, format)?
        }
    };
    output::print(&text)?;
    for sentence in sheets::networks(unpriced_networks(sweep), sweep.market.own.network.value) {
        talk(&sentence);
    }
    match fleet {
        Some(Ok(fleet)) => talk(&sheets::bought(fleet)),
        Some(Err(why)) => {
            talk(&why.to_string());
            return Ok(Outcome::NoPlan);
        }
        None => {}
    }
    if front.is_empty() {
        talk("no option is feasible");
        return Ok(Outcome::NoPlan);
    }
    Ok(Outcome::Answered)
}

/// The cheapest and the fastest option in words, then one line an option.
fn at_a_glance(options: &Sheet, records: &[Record], on_front: &[usize], cheapest: Option<usize>) -> String {
    let days = |at: &usize| records[*at].totals.as_ref().map_or(f64::INFINITY, |totals| totals.days);
    let fastest = on_front.iter().copied().min_by(|a, b| days(a).total_cmp(&days(b)));
    let labels = if cheapest == fastest {
        vec![("Cheapest and fastest", cheapest)]
    } else {
        vec![("Cheapest", cheapest), ("Fastest", fastest)]
    };
    let chosen = labels.into_iter().filter_map(|(label, at)| Some((label, sheets::choice(&records[at?]))));
    let lines: Vec<String> = chosen.map(|(label, choice)| table::labelled(&format!("{label:8}"), &[choice])).collect();
    let rows = table::lines_or_records(&Sheet { title: String::new(), ..options.clone() });
    format!("{}\n\n{}\n\n{rows}\n\n", table::wrapped(&options.title), lines.join("\n"))
}

/// Progress with the remaining time: a bar on a terminal, else an occasional line.
struct Progress {
    all: u64,
    start: Instant,
    bar: Option<ProgressBar>,
    last_line: Mutex<Instant>,
}

/// Interval between progress lines without a terminal.
const PAUSE: Duration = Duration::from_secs(10);

impl Progress {
    fn new(all: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(all);
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} options, {eta} left");
            style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
        });
        Self { all, start: Instant::now(), bar, last_line: Mutex::new(Instant::now()) }
    }

    fn at(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            return;
        }
        let Ok(mut last_line) = self.last_line.lock() else { return };
        if last_line.elapsed() > PAUSE && done > 0 {
            *last_line = Instant::now();
            let left = self.start.elapsed().as_secs_f64() * (self.all.saturating_sub(done)) as f64 / done as f64;
            talk(&format!("{done} of {} options, {} left", self.all, meshwright_engine::units::Seconds::new(left)));
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
