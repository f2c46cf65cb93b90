//! Question of `lint`: a launch file against a cluster.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::QuestionError;
use super::launch::LaunchFile;
use super::measured::points;
use super::names::Profile;
use super::noted::without;
use super::recipe::recipe;
use crate::report::{import, lint as report};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::{Problem, ProblemError};
use meshwright_engine::range;
use meshwright_engine::units::thousands;
use meshwright_engine::workload::{Optimizer, Workload};
use meshwright_frameworks::MEGATRON;
use meshwright_frameworks::import::{DOCUMENTS, Finding, Imported};
use meshwright_frameworks::lint::measured::{MeasuredDiagnosis, diagnose};
use meshwright_frameworks::lint::{Depth, LintReport, lint, settle_formats, sort};
use meshwright_planner::catalog::defaults::stack_of;
use meshwright_planner::catalog::{self, Overrides};

/// Question of `lint`: a launch file, the cluster it runs on, and measurements of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct LintQuestion {
    /// The launch file.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub file: LaunchFile,
    /// Cluster: a name (`meshwright clusters`), a number of GPUs (`64xh200-sxm`), or a TOML file.
    pub cluster: String,
    /// Number of GPUs, if the file does not give it.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    #[serde(default)]
    pub gpus: Option<u32>,
    /// Sequences per step, instead of the file's.
    #[cfg_attr(feature = "cli", arg(long, value_name = "B"))]
    #[serde(default)]
    pub global_batch: Option<u32>,
    /// Tokens per sequence, instead of the file's.
    #[cfg_attr(feature = "cli", arg(long, value_name = "S"))]
    #[serde(default)]
    pub seq_len: Option<u32>,
    /// Tokens of the documents that are packed into a sequence, within which attention stays: their mean weighted by tokens.
    #[cfg_attr(feature = "cli", arg(long, value_name = "D"))]
    #[serde(default)]
    pub document_len: Option<u32>,
    /// Optimizer recipe (bytes per parameter), instead of the file's.
    #[cfg_attr(feature = "cli", arg(long, value_name = "RECIPE"))]
    #[serde(default)]
    pub optimizer: Option<String>,
    /// Software stack [default: the nearest to the file's framework].
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    #[serde(default)]
    pub stack: Option<String>,
    /// Share of the memory that a plan may fill: tight 97 %, normal 92 %, conservative 75 %.
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value = "tight"))]
    #[serde(default = "tight")]
    pub hbm_profile: Profile,
    /// Override one value: cluster.nic="800 Gb/s", stack.overlap.dp=true, …
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY=VALUE"))]
    #[serde(default)]
    pub set: Vec<String>,
    /// Measured step time or MFU to diagnose: 14.2s, 38%mfu; of another run: 6.1s,gpus=16,batch=128; or two scaling
    /// efficiencies: 85%,gpus=16 and 40%. A run with another plan: "85%,gpus=16,plan=tp=8 pp=1".
    #[cfg_attr(feature = "cli", arg(long, value_name = "MEASURED"))]
    #[serde(default)]
    pub measured: Vec<String>,
    /// Check legality and memory only, without the search for faster plans.
    #[cfg_attr(feature = "cli", arg(long))]
    #[serde(default)]
    pub quick: bool,
    /// Arguments of the script itself.
    #[cfg_attr(feature = "cli", arg(last = true))]
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Texts to read in place of files, by the names that the question uses for them.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(default)]
    pub texts: BTreeMap<String, String>,
}

/// Default share of the memory: a launch file exists already, and is judged by what can run.
const fn tight() -> Profile {
    Profile::Tight
}

/// Answer of `lint`.
pub struct LintResult {
    /// Model, workload and plan of the file.
    pub imported: Imported,
    /// Problem on the cluster; none where the file and the cluster do not fit together.
    pub problem: Option<Problem>,
    /// Findings and faster plans.
    pub report: LintReport,
    /// Diagnosis of the measured steps.
    pub verdict: Option<MeasuredDiagnosis>,
    /// Command line that evaluates the plan.
    pub command: String,
}

impl LintResult {
    /// Contents of a report on a file of this name.
    pub fn contents<'a>(&'a self, file: &'a str) -> report::LintAnswer<'a> {
        report::LintAnswer {
            file,
            imported: &self.imported,
            problem: self.problem.as_ref(),
            report: &self.report,
            verdict: self.verdict.as_ref(),
            command: &self.command,
        }
    }
}

impl LintQuestion {
    /// Findings in the file, its prediction, and faster plans.
    ///
    /// # Errors
    ///
    /// The file cannot be read, a name is unknown, or a measurement is none of this file.
    pub fn solve(&self) -> Result<LintResult, QuestionError> {
        let given = |count: Option<u32>| f64::from(count.unwrap_or(1));
        range::check([
            ("--gpus", given(self.gpus), range::GPUS),
            ("--global-batch", given(self.global_batch), range::BATCH),
            ("--seq-len", given(self.seq_len), range::SEQUENCE),
            ("--document-len", given(self.document_len), range::SEQUENCE),
        ])?;
        let sets = Overrides::parse(&self.set)?.with_texts(self.texts.clone());
        let mut imported = self.file.read(&self.arguments, &sets)?;
        let cluster = catalog::cluster(&self.cluster, &sets)?;
        let made = problem(self, &mut imported, cluster)?;
        let depth = if self.quick { Depth::Checks } else { Depth::Everything };
        let report = match &made {
            Some((problem, plan)) => lint(problem, &imported, plan, depth),
            None => unpriced(&imported),
        };
        let points = match &made {
            Some((problem, plan)) if report.evaluation.is_some() => points(&self.measured, problem, plan)?,
            Some(_) | None if self.measured.is_empty() => Vec::new(),
            Some(_) | None => {
                return Err(QuestionError::refused(
                    "--measured: the plan of the file cannot be evaluated\n\nhint: without it, lint says why",
                ));
            }
        };
        let verdict = (!points.is_empty()).then(|| diagnose(&points));
        let command = self.command(&imported, made.as_ref());
        Ok(LintResult { imported, problem: made.map(|(problem, _)| problem), report, verdict, command })
    }

    /// Command line that evaluates the plan as `lint` priced it, with what the question has in place of the file's settings.
    fn command(&self, imported: &Imported, made: Option<&(Problem, Plan)>) -> String {
        let mut priced = imported.clone();
        if let Some((problem, plan)) = made {
            let workload = problem.workload();
            priced.world = Some(problem.cluster().gpus);
            priced.work.global_batch = Some(workload.global_batch);
            priced.work.seq_len = Some(workload.seq_len);
            priced.work.document_len = workload.document_len;
            priced.work.recipe = workload.recipe;
            priced.plan = plan.clone();
        }
        let named = import::NamedInputs {
            model: self.file.model.as_deref(),
            cluster: Some(&self.cluster),
            stack: self.stack.as_deref(),
            sets: &self.set,
        };
        import::command(&priced, &named)
    }

    /// JSON document of the answer, the same as `lint --format json` prints.
    ///
    /// # Errors
    ///
    /// As for `solve`.
    pub fn answer(&self) -> Result<String, QuestionError> {
        let result = self.solve()?;
        Ok(report::json(&result.contents(&self.file.name()))?)
    }
}

fn unpriced(imported: &Imported) -> LintReport {
    let mut findings = imported.findings.clone();
    sort(&mut findings);
    LintReport {
        findings,
        evaluation: None,
        footprints: Vec::new(),
        crossings: Vec::new(),
        changes: Vec::new(),
        best: None,
    }
}

/// Problem and plan of the file on the cluster; `None`, with a finding, if they do not fit together.
fn problem(
    question: &LintQuestion,
    imported: &mut Imported,
    cluster: Cluster,
) -> Result<Option<(Problem, Plan)>, QuestionError> {
    let Some(model) = imported.model.clone() else {
        let finding = Finding::error("no-model", "the file describes no model")
            .expected("--model NAME (`meshwright models`), a TOML file, or a Hugging Face config.json");
        imported.findings.push(finding);
        return Ok(None);
    };
    settle_formats(imported, &cluster.gpu);
    let gpus = sized(question, imported, &cluster);
    let cluster = if gpus == cluster.gpus { cluster } else { cluster.resized(gpus) };
    let usual = if imported.stack == MEGATRON.stack {
        stack_of(imported.stack, imported.family, &cluster.gpu) // as `plan` prices it on this vendor's devices
    } else {
        imported.stack
    };
    let name = question.stack.as_deref().unwrap_or(usual);
    let items = imported.settings.items().iter().filter(|_| question.stack.is_none()).chain(&question.set);
    let stack = catalog::stack(name, &Overrides::parse(items)?.with_texts(question.texts.clone()))?;
    imported.findings.extend(without(&model.details.left_out).map(|words| Finding::note("assumed", words)));
    let seq_len = question.seq_len.or(imported.work.seq_len).unwrap_or_else(|| {
        imported.findings.push(
            Finding::note("assumed", format!("sequences of {} tokens, the model's default", model.seq_len))
                .expected("--seq-len"),
        );
        model.seq_len
    });
    let global_batch = question.global_batch.or(imported.work.global_batch).unwrap_or_else(|| {
        let batch = imported.batch_on(gpus);
        imported.findings.push(
            Finding::note("assumed", format!("{batch} sequences a step: {} for each replica", imported.accumulated()))
                .expected("--global-batch"),
        );
        batch
    });
    let document_len = question.document_len.or(imported.work.document_len);
    imported.findings.retain(|finding| document_len.is_none() || finding.rule != DOCUMENTS);
    let workload = Workload {
        global_batch,
        seq_len,
        document_len,
        format: imported.work.format,
        half: imported.work.half,
        recipe: question.optimizer.as_deref().map(recipe).transpose()?.unwrap_or(imported.work.recipe),
        optimizer: question.optimizer.as_deref().map_or(imported.work.optimizer, Optimizer::of_recipe),
        adaptation: imported.work.adaptation,
        imbalance: imported.imbalance,
        drops_tokens: imported.work.drops_tokens,
    };
    let plan = imported.on(gpus);
    match Problem::new(model, cluster, workload, stack, question.hbm_profile.into()) {
        Ok(problem) => Ok(Some((problem, plan))),
        // The format has its own finding.
        Err(ProblemError::Format { .. }) if imported.findings.iter().any(|finding| finding.rule == "number-format") => {
            Ok(None)
        }
        Err(why) => {
            imported.findings.push(Finding::error("no-problem", why.to_string()));
            Ok(None)
        }
    }
}

/// Number of GPUs of the launch, with findings about it.
fn sized(question: &LintQuestion, imported: &mut Imported, cluster: &Cluster) -> u32 {
    let gpus = question.gpus.or(imported.world).unwrap_or(cluster.gpus);
    let mut find = |finding: Finding| imported.findings.push(finding);
    if gpus > cluster.gpus {
        let message = format!("{gpus} GPUs are launched, and the cluster has {}", cluster.gpus);
        find(
            Finding::error("cluster-size", message).expected("fewer, or a larger cluster: predicted as if it had them"),
        );
    } else if gpus < cluster.gpus {
        let [launched, all] = [gpus, cluster.gpus].map(|gpus| thousands(u64::from(gpus)));
        find(Finding::note("cluster-size", format!("{launched} of the cluster's {all} GPUs are launched")));
    }
    if let Some(each) = imported.gpus_per_node.filter(|each| *each != cluster.gpus_per_node) {
        let message =
            format!("{each} processes a node, and the nodes of the cluster have {} GPUs", cluster.gpus_per_node);
        let level = if each > cluster.gpus_per_node {
            meshwright_frameworks::import::Severity::Error
        } else {
            meshwright_frameworks::import::Severity::Note
        };
        find(Finding::new("node-size", level, message));
    }
    gpus
}
