//! `meshwright lint`: checks a launch file against a cluster.

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum;

use super::format::OutputFormat;
use super::import::FileArgs;
use super::{Outcome, output};
use crate::question::{Profile, recipe};
use crate::report::lint as report;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::model::flops::AttentionConvention;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::units::Seconds;
use meshwright_engine::workload::{Adaptation, Workload};
use meshwright_frameworks::import::{Finding, Imported};
use meshwright_frameworks::lint::measured::{Point, diagnose};
use meshwright_frameworks::lint::{Depth, Report, lint};
use meshwright_planner::catalog::{self, Overrides};
use meshwright_planner::space;

/// Output format of the findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Table for people, fitted to the terminal.
    #[default]
    Table,
    /// Versioned JSON for programs.
    Json,
    /// SARIF 2.1.0 for code review.
    Sarif,
    /// Markdown for documents.
    Markdown,
    /// CSV for spreadsheets.
    Csv,
}

/// Arguments of `lint`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Cluster: a name (`meshwright clusters`) or a TOML file.
    cluster: String,
    /// Number of GPUs, if the file does not give it.
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Sequences per step, instead of the file's.
    #[arg(long, value_name = "B")]
    global_batch: Option<u32>,
    /// Tokens per sequence, instead of the file's.
    #[arg(long, value_name = "S")]
    seq_len: Option<u32>,
    /// Optimizer recipe (bytes per parameter), instead of the file's.
    #[arg(long, value_name = "RECIPE")]
    optimizer: Option<String>,
    /// Software stack [default: the nearest to the file's framework].
    #[arg(long, value_name = "NAME")]
    stack: Option<String>,
    /// Share of the memory that a plan may fill: tight 97 %, normal 92 %, conservative 75 %.
    #[arg(long, value_enum, default_value = "tight")]
    hbm_profile: Profile,
    /// Override one value: cluster.nic="800 Gb/s", stack.overlap.dp=true, …
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Measured step time or MFU to diagnose: 14.2s, 38%mfu; of another run: 6.1s,gpus=16,batch=128; or two scaling
    /// efficiencies: 85%,gpus=16 and 40%. A run with another plan: "85%,gpus=16,plan=tp=8 pp=1".
    #[arg(long, value_name = "MEASURED")]
    measured: Vec<String>,
    /// Check legality and memory only, without the search for faster plans.
    #[arg(long)]
    quick: bool,
    /// Show every figure of the prediction, and the memory of each pipeline rank.
    #[arg(long)]
    wide: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
    /// Arguments of the script itself.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the command; the exit code is 1 if there are errors.
pub fn run(args: &Args) -> Result<Outcome> {
    let mut imported = args.file.read(&args.arguments)?;
    let sets = Overrides::parse(&args.set)?;
    let cluster = catalog::cluster(&args.cluster, &sets)?;
    let file = args.file.name();
    let made = problem(args, &mut imported, cluster)?;
    let report = match &made {
        Some((problem, plan)) => {
            lint(problem, &imported, plan, if args.quick { Depth::Checks } else { Depth::Everything })
        }
        None => unpriced(&imported),
    };
    let points = match &made {
        Some((problem, plan)) if report.evaluation.is_some() => points(args, problem, plan)?,
        Some(_) | None if args.measured.is_empty() => Vec::new(),
        Some(_) | None => {
            bail!("--measured: the plan of the file cannot be evaluated\n\nhint: without it, lint says why")
        }
    };
    let verdict = (!points.is_empty()).then(|| diagnose(&points));
    let command = crate::report::import::command(&imported, args.file.model.as_deref(), Some(&args.cluster));
    let answer = report::LintAnswer {
        file: &file,
        imported: &imported,
        problem: made.as_ref().map(|(problem, _)| problem),
        report: &report,
        verdict: verdict.as_ref(),
        command: &command,
    };
    output::print(&text(args, &answer)?)?;
    Ok(if report.failed() { Outcome::NoPlan } else { Outcome::Answered })
}

fn text(args: &Args, answer: &report::LintAnswer) -> Result<String> {
    let form = match args.format {
        Form::Json => return Ok(report::json(answer)?),
        Form::Sarif => return Ok(report::sarif(&answer.report.findings, answer.file)?),
        Form::Table => OutputFormat::Table,
        Form::Markdown => OutputFormat::Markdown,
        Form::Csv => return output::sheets(&[report::sheet(&answer.report.findings, answer.file)], OutputFormat::Csv),
    };
    let glance = form == OutputFormat::Table;
    let head = if glance { report::at_a_glance(answer) } else { String::new() };
    let mut sheets = Vec::new();
    let wide = args.wide || !glance;
    if let Some((problem, evaluation)) = answer.problem.zip(answer.report.evaluation.as_ref()).filter(|_| wide) {
        sheets.push(crate::report::explain::figures(problem, evaluation));
    }
    if let Some(problem) = answer.problem.filter(|_| wide && !answer.report.footprints.is_empty()) {
        sheets.push(crate::report::explain::memory(problem, &answer.report.footprints));
    }
    if !glance {
        sheets.push(report::sheet(&answer.report.findings, answer.file));
    }
    sheets.extend(answer.verdict.iter().flat_map(|verdict| [report::verdict(verdict), report::next(verdict)]));
    let gap = if glance && !sheets.is_empty() { "\n" } else { "" };
    Ok(head + gap + &output::sheets(&sheets, form)?)
}

fn unpriced(imported: &Imported) -> Report {
    let mut findings = imported.findings.clone();
    findings.sort_by_key(|finding| finding.level);
    Report {
        findings,
        evaluation: None,
        footprints: Vec::new(),
        crossings: Vec::new(),
        changes: Vec::new(),
        best: None,
    }
}

/// Problem and plan of the file on the cluster; `None`, with a finding, if they do not fit together.
fn problem(args: &Args, imported: &mut Imported, cluster: Cluster) -> Result<Option<(Problem, Plan)>> {
    let Some(model) = imported.model.clone() else {
        let finding = Finding::error("no-model", "the file describes no model").expected("give --model NAME");
        imported.findings.push(finding);
        return Ok(None);
    };
    let gpus = sized(args, imported, &cluster);
    let cluster = if gpus == cluster.gpus { cluster } else { cluster.resized(gpus) };
    let name = args.stack.as_deref().unwrap_or(imported.stack);
    let items = imported.settings.items().iter().filter(|_| args.stack.is_none()).chain(&args.set);
    let stack = catalog::stack(name, &Overrides::parse(items)?)?;
    let seq_len = args.seq_len.or(imported.work.seq_len).unwrap_or_else(|| {
        imported.findings.push(
            Finding::note("assumed", format!("sequences of {} tokens, the model's own", model.seq_len))
                .expected("--seq-len"),
        );
        model.seq_len
    });
    let global_batch = args.global_batch.or(imported.work.global_batch).unwrap_or_else(|| {
        let batch = imported.batch_on(gpus);
        imported.findings.push(
            Finding::note("assumed", format!("{batch} sequences a step: one micro-batch for each replica"))
                .expected("--global-batch"),
        );
        batch
    });
    let workload = Workload {
        global_batch,
        seq_len,
        format: imported.work.format,
        half: imported.work.half,
        recipe: args.optimizer.as_deref().map(recipe).transpose()?.unwrap_or(imported.work.recipe),
        optimizer: imported.work.optimizer,
        adaptation: Adaptation::Full,
        imbalance: 1.0,
        drops_tokens: imported.work.drops_tokens,
    };
    let plan = imported.on(gpus);
    match Problem::new(model, cluster, workload, stack, args.hbm_profile.into()) {
        Ok(problem) => Ok(Some((problem, plan))),
        Err(why) => {
            imported.findings.push(Finding::error("no-problem", why.to_string()));
            Ok(None)
        }
    }
}

/// Number of GPUs of the launch, with findings about it.
fn sized(args: &Args, imported: &mut Imported, cluster: &Cluster) -> u32 {
    let gpus = args.gpus.or(imported.world).unwrap_or(cluster.gpus);
    let mut find = |finding: Finding| imported.findings.push(finding);
    if gpus > cluster.gpus {
        let message = format!("{gpus} GPUs are launched, and {} has {}", cluster.name, cluster.gpus);
        find(
            Finding::error("cluster-size", message).expected("fewer, or a larger cluster: predicted as if it had them"),
        );
    } else if gpus < cluster.gpus {
        find(Finding::note(
            "cluster-size",
            format!("{gpus} of the {} GPUs of {} are launched", cluster.gpus, cluster.name),
        ));
    }
    if let Some(each) = imported.gpus_per_node.filter(|each| *each != cluster.gpus_per_node) {
        let message =
            format!("{each} processes a node, and a node of {} has {} GPUs", cluster.name, cluster.gpus_per_node);
        let level = if each > cluster.gpus_per_node {
            meshwright_frameworks::import::Severity::Error
        } else {
            meshwright_frameworks::import::Severity::Note
        };
        find(Finding::new("node-size", level, message));
    }
    gpus
}

/// Measured points of `--measured`.
fn points(args: &Args, problem: &Problem, plan: &Plan) -> Result<Vec<Point>> {
    let mut found = Vec::new();
    let mut efficiency: Option<(f64, f64)> = None; // of the first relative point, and its step time
    for item in &args.measured {
        let point = point(item, problem, plan, &mut efficiency).with_context(|| format!("--measured {item}"))?;
        found.push(point);
    }
    if found.len() == 1 && found[0].relative {
        bail!(
            "--measured: a single scaling efficiency is not enough\n\nhint: give two, of different numbers of GPUs: \
            85%,gpus=16 and 40%"
        );
    }
    Ok(found)
}

fn point(item: &str, problem: &Problem, plan: &Plan, efficiency: &mut Option<(f64, f64)>) -> Result<Point> {
    let mut parts = item.split(',').map(str::trim);
    let value = parts.next().unwrap_or_default();
    let (mut gpus, mut batch, mut text) = (None, None, None);
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| anyhow!("`{part}` is not gpus=N, batch=B or plan=…"))?;
        match key.trim() {
            "gpus" => gpus = Some(number(value)?),
            "batch" => batch = Some(number(value)?),
            "plan" => text = Some(value.to_owned()),
            other => bail!("`{other}` is not one of gpus, batch and plan"),
        }
    }
    let (problem, plan) = other_run(problem, plan, gpus, batch, text.as_deref())?;
    let costs = meshwright_engine::cost::Costs::new(&problem);
    if let Some(why) = space::check(&costs, &plan).into_iter().find(|why| !why.is_of_memory()) {
        bail!("the plan {plan} does not run there: {why}\n\nhint: batch=… or plan=… of that run");
    }
    let evaluation = costs.evaluate_simulated(&plan);
    let predicted = evaluation.step.total();
    let lower = value.to_ascii_lowercase();
    let (measured, relative) = if let Some(share) = lower.strip_suffix("mfu") {
        let share = percentage(share)?;
        let mfu = meshwright_engine::cost::Figures::new(&problem, &evaluation).mfu;
        if mfu <= 0.0 {
            bail!("the device has no peak for the format");
        }
        (predicted * (mfu / share), false)
    } else if lower.ends_with('%') {
        let share = percentage(&lower)?;
        let work = flops_per_gpu(&problem);
        // The first efficiency is taken at its predicted time; the others follow from their ratio to it and from their
        // work.
        let (base, time) = *efficiency.get_or_insert((share / work, predicted.get()));
        (Seconds::new(time * base / (share / work)), true)
    } else {
        (lower.parse::<Seconds>().map_err(|why| anyhow!("{why}"))?, false)
    };
    if measured.get() <= 0.0 || !measured.get().is_finite() {
        bail!("`{value}` is not a step time");
    }
    Ok(Point { problem, plan, measured, relative })
}

/// FLOPs of one GPU in one step.
fn flops_per_gpu(problem: &Problem) -> f64 {
    let workload = problem.workload();
    let tokens = f64::from(workload.global_batch) * f64::from(workload.seq_len) / f64::from(problem.cluster().gpus);
    problem.flops_per_token(AttentionConvention::Causal).get() * tokens
}

fn percentage(text: &str) -> Result<f64> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    let share = number.map(|n| if text.contains('%') { n / 100.0 } else { n });
    share
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| anyhow!("`{text}` is not a share between 0 and 100 %"))
}

fn number(text: &str) -> Result<u32> {
    text.trim().parse().ok().filter(|n| *n > 0).ok_or_else(|| anyhow!("`{text}` is not a whole number above 0"))
}

/// Variant of the file's run on another number of GPUs; the batch is scaled in proportion unless it is given.
fn other_run(
    problem: &Problem,
    plan: &Plan,
    gpus: Option<u32>,
    batch: Option<u32>,
    text: Option<&str>,
) -> Result<(Problem, Plan)> {
    let own = problem.cluster().gpus;
    let gpus = gpus.unwrap_or(own);
    let mut workload = problem.workload().clone();
    let scaled = (u64::from(workload.global_batch) * u64::from(gpus) / u64::from(own)).max(1);
    workload.global_batch = batch.unwrap_or(u32::try_from(scaled).unwrap_or(u32::MAX));
    let cluster = problem.cluster().clone().resized(gpus);
    let (model, stack) = (problem.model().clone(), problem.stack().clone());
    let other = Problem::new(model, cluster, workload, stack, problem.hbm_profile())?;
    let mut plan = plan.clone();
    if let Some(text) = text {
        plan = space::parse_plan(text, &other).map_err(|why| anyhow!("plan: {why}"))?;
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
