//! `meshwright emit`: writes a plan as the files that a framework's launcher reads.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgMatches, Command, FromArgMatches};
use serde::Deserialize;
use serde_json::Value;

use super::files::{ForceArgs, check_free};
use super::launch_files::{files_or_talk, written};
use super::{Outcome, output};
use crate::question::{EmitQuestion, Question, best_plans, folder_of, framework, release};
use meshwright_frameworks::emit::EmittedFile;
use meshwright_frameworks::emit::slurm::ARRAY;
use meshwright_planner::catalog;

/// Arguments of `emit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Framework whose files to write.
    #[arg(help = format!("Framework: {}", meshwright_frameworks::name_list()))]
    framework: String,
    #[command(flatten)]
    problem: Asked,
    /// Plan, such as "tp=8 cp=1 pp=16 vpp=8"; dp follows from the cluster [default: the plan that
    /// `plan --for FRAMEWORK` recommends].
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    /// Document of `plan --format json` or `explain --format json` to read model, cluster, workload and plan from.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    from: Option<PathBuf>,
    /// Rank of the plan in that document.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "from")]
    rank: u32,
    /// Optimise the layers of every stage first, as `plan --refine` does.
    #[arg(long)]
    refine: bool,
    /// Timing run of this many steps: synthetic data, no checkpoints.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: Option<u32>,
    /// Release of the framework that the files are for, such as core_r0.16 for megatron [default: the newest known].
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// The best K plans, each in a folder of its own below --out, and a Slurm array of them.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "out",
        conflicts_with_all = ["plan", "rank"])]
    top: Option<u32>,
    /// Folder for the files, created if missing [default: print them].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

/// Problem flags, which may be omitted when a document gives them.
#[derive(Debug)]
struct Asked(Option<Question>);

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let asked = matches.contains_id("model");
        Ok(Self(if asked { Some(Question::from_arg_matches(matches)?) } else { None }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Asked {
    fn augment_args(command: Command) -> Command {
        Question::augment_args_for_update(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Question::augment_args_for_update(command)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    release(framework(&args.framework)?, args.release.as_deref())?;
    if let Some((top, folder)) = args.top.zip(args.out.as_deref()) {
        return put_best(args, top, folder);
    }
    let (problem, plan) = match (&args.from, &args.problem.0, &args.plan) {
        (Some(path), None, _) => {
            let (problem, plan) = earlier(path, args.rank)?;
            (problem, Some(plan))
        }
        (Some(_), Some(_), _) => bail!("--from gives the model and the cluster; leave them out"),
        (None, Some(problem), plan) => (problem.clone(), plan.clone()),
        (None, None, _) => bail!("a model and a cluster are needed, or --from a document of `plan --format json`"),
    };
    let answer = question(args, problem, plan).answer().map_err(anyhow::Error::from);
    // What a document asks is wrong in the document.
    let answer = args.from.iter().fold(answer, |answer, path| answer.with_context(|| path.display().to_string()))?;
    files_or_talk(answer).map_or(Ok(Outcome::NoPlan), |files| put(args, &files))
}

/// Question of the files of one plan; none for the recommended one.
fn question(args: &Args, problem: Question, plan: Option<String>) -> EmitQuestion {
    EmitQuestion {
        framework: args.framework.clone(),
        problem,
        plan,
        refine: args.refine,
        steps: args.steps,
        release: args.release.clone(),
    }
}

/// Writes the files of the best plans, each into a folder of its own, and a Slurm array of them.
fn put_best(args: &Args, top: u32, out: &std::path::Path) -> Result<Outcome> {
    let named = framework(&args.framework)?;
    let existing = args.force.existing();
    check_free([&out.join(ARRAY), &out.join(folder_of(1)).join(named.script())], existing)?;
    let asked: Vec<(Question, String)> = match (&args.from, &args.problem.0) {
        (Some(path), None) => all_of(path, top)?,
        (Some(_), Some(_)) => bail!("--from gives the model and the cluster; leave them out"),
        (None, Some(problem)) => {
            let plans = output::noted(best_plans(named, problem, top)?);
            plans.into_iter().map(|plan| (problem.clone(), plan)).collect()
        }
        (None, None) => bail!("a model and a cluster are needed, or --from a document of `plan --format json`"),
    };
    let (mut folders, mut first) = (Vec::new(), None);
    for (at, (problem, plan)) in asked.into_iter().enumerate() {
        let question = question(args, problem, Some(plan));
        let Some(files) = files_or_talk(question.answer()?) else { continue };
        let folder = folder_of(at + 1);
        written(&out.join(&folder), &files, existing)?;
        folders.push(folder);
        first.get_or_insert((question, files));
    }
    let Some((question, files)) = first else { return Ok(Outcome::NoPlan) };
    let array = question.array(&folders, &files)?;
    written(out, array.as_slice(), existing)?;
    Ok(Outcome::Answered)
}

/// Writes the files to the requested folder, else prints them.
fn put(args: &Args, files: &[EmittedFile]) -> Result<Outcome> {
    match &args.out {
        Some(folder) => written(folder, files, args.force.existing())?,
        None => output::print(&printed(files))?,
    }
    Ok(Outcome::Answered)
}

/// Text of the files: a single one as it is, several each under its name.
fn printed(files: &[EmittedFile]) -> String {
    match files {
        [file] => file.text.clone(),
        files => {
            let parts: Vec<String> = files.iter().map(|file| format!("==> {} <==\n{}", file.name, file.text)).collect();
            parts.join("\n")
        }
    }
}

/// Fields that `emit` reads from an earlier document.
#[derive(Deserialize)]
struct Document {
    schema: u32,
    arguments: Option<Question>,
    #[serde(default)]
    plans: Vec<Planned>,
    /// Plan of an `explain` document.
    prediction: Option<Planned>,
}

#[derive(Deserialize)]
struct Planned {
    plan: String,
}

/// Key of the first text below a key that is no line of printable characters.
fn unprintable(value: &Value, key: &str) -> Option<String> {
    match value {
        Value::String(text) => (!catalog::is_one_line(text)).then(|| key.to_owned()),
        Value::Array(items) => items.iter().find_map(|item| unprintable(item, key)),
        Value::Object(map) => map.iter().find_map(|(inner, value)| match inner.as_str() {
            "texts" => None, // of whole files, which their reader checks
            _ => unprintable(value, &format!("{key}.{inner}")),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Problem flags and the plan of a rank of an earlier document.
fn earlier(path: &std::path::Path, rank: u32) -> Result<(Question, String)> {
    let mut plans = all_of(path, rank)?;
    let many = plans.len();
    let plan = plans.pop().filter(|_| many == rank as usize);
    plan.ok_or_else(|| anyhow!("{}: has {many} plans, and no {rank}", path.display()))
}

/// Problem flags and the first plans of an earlier document, this many at most.
fn all_of(path: &std::path::Path, most: u32) -> Result<Vec<(Question, String)>> {
    let origin = path.display();
    let text = catalog::read_text(path)?;
    let not = || format!("{origin}: not a document of `plan --format json`");
    let document = catalog::parse_json(&text).with_context(not)?;
    if let Some(key) = unprintable(&document["arguments"], "arguments") {
        bail!(
            "{origin}: `{key}` holds a line break or another control character, and must be one line of printable characters"
        );
    }
    let document: Document = serde_json::from_value(document).with_context(not)?;
    let known = crate::report::json::SCHEMA;
    if document.schema != known {
        bail!("{origin}: schema {}, and this version reads {known}", document.schema);
    }
    let arguments = document.arguments.ok_or_else(|| {
        anyhow!("{origin}: has no `arguments`, so it is older than `emit`\n\nhint: run `plan --format json` again")
    })?;
    let plans = document.plans.into_iter().chain(document.prediction).take(most as usize);
    Ok(plans.map(|plan| (arguments.clone(), plan.plan)).collect())
}
