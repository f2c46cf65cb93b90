//! Start of a study: its question, and the plans that may be tried.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::posterior::Posterior;
use super::study::{Study, TuneError};
use super::trials::{Trial, Trials};
#[cfg(feature = "cli")]
use crate::question::numbers;
use crate::question::{Minimised, Noted, PlanOptions, Question, SearchInputs, Subject};
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_lab::runs;
use meshwright_planner::search::{Control, SearchOptions};
use meshwright_planner::space::parse_plan;

/// Plans that may be tried where the user does not say how many.
const PLANS: u32 = 48;
/// Most trials where the user does not say how many.
const BUDGET: u32 = 8;
/// Share of the step time that does not matter where the user does not say which.
const TOLERANCE: f64 = 0.05;

/// Limits of a study.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Trials"))]
#[serde(default, deny_unknown_fields)]
pub struct TrialLimits {
    /// Number of plans that may be tried, the fastest by prediction.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = PLANS, conflicts_with = "candidates"))]
    #[cfg_attr(feature = "cli", arg(value_parser = clap::value_parser!(u32).range(1..=1000)))]
    pub plans_to_try: u32,
    /// Share of the step time that does not matter: timing ends when the next trial is expected to gain less.
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE", default_value = "5%", value_parser = share))]
    pub tolerance: f64,
    /// Most trials.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = BUDGET))]
    #[cfg_attr(feature = "cli", arg(value_parser = clap::value_parser!(u32).range(1..)))]
    pub budget: u32,
    /// GPUs of a trial, fewer than the cluster's
    ///
    /// It runs the same micro-batches on fewer replicas, with the batch in proportion.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..)))]
    pub trial_gpus: Option<u32>,
}

impl Default for TrialLimits {
    fn default() -> Self {
        Self { plans_to_try: PLANS, tolerance: TOLERANCE, budget: BUDGET, trial_gpus: None }
    }
}

/// Share as `5%` or `0.05`, below all.
#[cfg(feature = "cli")]
fn share(text: &str) -> Result<f64, String> {
    let share = numbers::share(text)?;
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err("must be above 0 and below 100%".into()) }
}

/// Text of a file with the name that messages give it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedText {
    /// Name in messages.
    pub origin: String,
    /// Content of the file.
    pub text: String,
}

/// Question of `tune init`: a problem, the plans that may be tried, and the limits of timing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyQuestion {
    /// Model, cluster, workload and stack.
    pub problem: Question,
    /// Plans to consider.
    #[serde(default)]
    pub plans: PlanOptions,
    /// Layouts that alone may be tried, as a CSV of runs.
    #[serde(default)]
    pub candidates: Option<NamedText>,
    /// Limits of timing.
    #[serde(default)]
    pub limits: TrialLimits,
}

/// Study that is not written yet.
pub struct NewStudy {
    /// Question and limits.
    pub study: Study,
    /// Plans to try, the fastest by prediction first.
    pub trials: Trials,
    /// Posterior before any trial.
    pub posterior: Posterior,
}

/// The question with absolute paths of its files, so that later commands find them from any folder.
fn with_absolute_paths(question: &Question) -> Question {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let named = |name: &str| {
        let path = Path::new(name);
        if path.is_file() { absolute(path).display().to_string() } else { name.to_owned() }
    };
    let mut question = question.clone();
    (question.model, question.cluster) = (named(&question.model), named(&question.cluster));
    question.options.calibration = question.options.calibration.iter().map(|path| absolute(path)).collect();
    question.options.stack = question.options.stack.as_deref().map(named);
    question
}

/// Plan that may be tried.
struct PlanToTry {
    /// Name of the row that gave it; none of a plan that was searched for.
    id: Option<String>,
    plan: Plan,
}

/// Plans of a file of runs.
fn plans_of(file: &NamedText, problem: &Problem, question: &Question) -> Result<Noted<Vec<PlanToTry>>, TuneError> {
    let origin = &file.origin;
    let rows = runs::read(file.text.as_bytes()).map_err(|why| TuneError::Refused(format!("{origin}: {why}")))?;
    let sets = question.options.overrides()?;
    let (mut plans, mut notes): (Vec<PlanToTry>, Vec<String>) = (Vec::new(), Vec::new());
    for row in rows {
        let line = row.line.unwrap_or_default();
        let wrong = |why: String| TuneError::Refused(format!("{origin}, line {line}: {why}"));
        let (_, plan) = runs::problem_with(&row, &sets).map_err(|why| wrong(why.to_string()))?;
        let plan = parse_plan(&plan.to_string(), problem).map_err(wrong)?;
        let id = row.id.filter(|id| !id.is_empty());
        if plans.iter().any(|known| known.plan == plan) {
            notes.push(format!("{origin}, line {line}: the plan is there already, and counts once"));
        } else {
            plans.push(PlanToTry { id, plan });
        }
    }
    Ok(Noted { value: plans, notes })
}

impl StudyQuestion {
    /// The fastest plans by prediction.
    fn fastest(
        &self,
        problem: &Problem,
        framework: Option<&'static Framework>,
        risk: f64,
        control: &Control,
    ) -> Result<Noted<Vec<PlanToTry>>, TuneError> {
        let (launcher, note) = self.plans.default_launcher(problem);
        let restrictions = self.plans.restrictions(framework.or(launcher), problem)?;
        let options = SearchOptions { top: self.limits.plans_to_try as usize, restrictions };
        let inputs = SearchInputs { risk, economy: None, runs: &[] };
        let found = self.plans.find(problem, &options, inputs, control);
        let plan_of = |evaluation: Evaluation| PlanToTry { id: None, plan: evaluation.plan };
        let plans = found.ranking.evaluations.into_iter().map(plan_of).collect();
        Ok(Noted { value: plans, notes: note.into_iter().collect() })
    }

    /// The study, and notes; none where no plan can be tried, for the reasons among the notes. `dir` is the folder that it will
    /// be in, for messages.
    ///
    /// # Errors
    ///
    /// The question is invalid, or a candidate is no plan of it.
    pub fn start(&self, dir: &Path, control: &Control) -> Result<Noted<Option<NewStudy>>, TuneError> {
        if self.plans.economy.objective != Minimised::default() || self.plans.pareto {
            return Err(TuneError::Refused(
                "tune looks for the fastest plan: leave out --objective and --pareto".into(),
            ));
        }
        let framework = self.plans.framework.as_deref().and_then(frameworks::named);
        let question = with_absolute_paths(&self.problem);
        let (unlimited, risk) = question.split_risk()?;
        let Noted { value: subject, mut notes } = unlimited.subject(framework)?;
        let Subject::Cluster(posed) = subject else {
            return Err(TuneError::Refused(format!(
                "{}: tune times plans of one kind of GPU, and this cluster has pools",
                self.problem.cluster
            )));
        };
        let Noted { value: problem, notes: of_graphs } = posed.accepting(risk).of_fastest();
        notes.extend(of_graphs);
        let obstacles = framework.map_or_else(Vec::new, |framework| framework.limits.problem_obstacles(&problem));
        if !obstacles.is_empty() {
            let named = framework.into_iter().cycle().zip(&obstacles);
            notes.extend(
                named.map(|(framework, obstacle)| format!("no {framework} files are written for this: {obstacle}")),
            );
            return Ok(Noted { value: None, notes });
        }
        let launcher = framework.or_else(|| self.plans.default_launcher(&problem).0);
        let written = launcher.map(|framework| framework.name().to_owned());
        let TrialLimits { tolerance, budget, trial_gpus, .. } = self.limits;
        let study = Study::new(question.resolved(&problem, framework), written, tolerance, budget, trial_gpus);
        study.check().map_err(TuneError::Refused)?;
        let named = match &self.candidates {
            Some(file) => plans_of(file, &problem, &question)?,
            None => self.fastest(&problem, framework, risk, control)?,
        };
        notes.extend(named.notes);
        let ids: BTreeMap<String, Option<String>> =
            named.value.iter().map(|named| (named.plan.to_string(), named.id.clone())).collect();
        let plans = named.value.into_iter().map(|named| named.plan).collect();
        let (mut plans, without) = Posterior::runnable(&study, &problem, plans)?;
        if without > 0 {
            notes.push(format!("{without} plans do not run on the GPUs of a trial, and are left out"));
        }
        if plans.is_empty() {
            notes.push("no plan is left to try".into());
            return Ok(Noted { value: None, notes });
        }
        let costs = Costs::new(&problem);
        // Bits of positive numbers are in the order of the numbers.
        plans.sort_by_cached_key(|plan| costs.evaluate_simulated(plan).step.total().get().to_bits());
        let trials = plans.iter().zip(1..).map(|(plan, trial)| {
            let text = plan.to_string();
            let id = ids.get(&text).cloned().flatten();
            Trial { trial, id, plan: text, ..Trial::default() }
        });
        let trials = Trials(trials.collect());
        // A study that later commands cannot read must not be written.
        let Noted { value: posterior, notes: more } = Posterior::new(study.clone(), trials.clone(), dir)?;
        notes.extend(more);
        Ok(Noted { value: Some(NewStudy { study, trials, posterior }), notes })
    }
}
