//! Question of `emit`: a plan as the files that a framework's launcher reads.

use std::ops::ControlFlow;

use serde::Deserialize;

use super::answer::{PlanAnswer, PlanQuestion};
use super::error::QuestionError;
use super::noted::Noted;
use super::options::Question;
use super::plan::{PLANS_SHOWN, PlanOptions};
use super::pooled;
use super::subject::Subject;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::CoreRelease;
use meshwright_engine::suggest::nearest_hint;
use meshwright_frameworks::emit::{EmittedFile, Request, emit, job_of};
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_planner::limits::Limits;
use meshwright_planner::pools::{Mixture, Pooled};
use meshwright_planner::refine::ranking::{MOST_STAGES, RefinedEntry};
use meshwright_planner::refine::{Freedom, Options, Refined, refine};
use meshwright_planner::search::Control;
use meshwright_planner::space::{Rejection, check, illegal, parse_plan};

/// Question of `emit`: a problem, a plan of it, and the framework whose files are asked for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmitQuestion {
    /// Name of the framework.
    pub framework: String,
    /// Model, cluster, workload and stack.
    pub problem: Question,
    /// Plan as text, whose dp follows from the cluster; none for the recommended plan of those that the framework runs.
    #[serde(default)]
    pub plan: Option<String>,
    /// Whether to optimise the layers of every stage first.
    #[serde(default)]
    pub refine: bool,
    /// Steps of a timing run on synthetic data that saves nothing; none for training.
    #[serde(default)]
    pub steps: Option<u32>,
    /// Release of the framework that the files are for; none for the newest that is known.
    #[serde(default)]
    pub release: Option<String>,
}

/// Options of the files of a plan, other than the framework.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileOptions {
    /// Steps of a timing run on synthetic data that saves nothing; none for training.
    pub steps: Option<u32>,
    /// Release of the framework; none for the newest that is known.
    pub release: Option<&'static str>,
}

/// Plan to write, with its stages if they were optimised.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Plan in the ranking.
    pub plan: &'a Plan,
    /// Optimised stages with their cost.
    pub refined: Option<&'a Refined>,
}

/// Launch files, or the lines that say why there are none.
pub type FilesOrReasons = Result<Vec<EmittedFile>, Vec<String>>;

impl<'a> Chosen<'a> {
    /// The best plan, with its refined stages if those are faster; without a best plan, the first whose stages fit.
    pub fn best(best: Option<&'a Evaluation>, refined: &'a [RefinedEntry]) -> Option<Self> {
        let mut fitting = refined.iter().filter_map(|entry| Some((&entry.plan, entry.outcome.as_ref().ok()?)));
        match best {
            Some(best) => {
                let stages = fitting.find(|(plan, stages)| **plan == best.plan && stages.step() < best.step.total());
                Some(Self { plan: &best.plan, refined: stages.map(|(_, stages)| stages) })
            }
            None => fitting.next().map(|(plan, stages)| Self { plan, refined: Some(stages) }),
        }
    }

    /// The files of the plan, with a warning if it is predicted not to fit; the reasons where it is illegal or the framework cannot
    /// express it.
    pub fn files(
        &self,
        framework: &'static Framework,
        problem: &Problem,
        recipe: &str,
        options: FileOptions,
    ) -> Noted<FilesOrReasons> {
        let costs = Costs::new(problem);
        let (too_large, illegal): (Vec<Rejection>, Vec<Rejection>) =
            check(&costs, self.plan).into_iter().partition(Rejection::is_of_memory);
        if !illegal.is_empty() {
            let reasons = illegal.iter().map(|rejection| format!("does not run: {rejection}")).collect();
            return Noted { value: Err(reasons), notes: Vec::new() };
        }
        let evaluation = self
            .refined
            .map_or_else(|| costs.evaluate_simulated(self.plan), |refined| refined.price.evaluation.clone());
        let staged = self.refined.map(|refined| &refined.staged);
        let FileOptions { steps, release } = options;
        match emit(
            framework,
            &Request { recipe: Some(recipe), steps, release, staged, ..Request::new(&costs, &evaluation) },
        ) {
            Ok(files) => {
                let warned = too_large.iter().filter(|_| staged.is_none());
                let notes = warned.map(|rejection| format!("warning: predicted not to fit: {rejection}")).collect();
                Noted { value: Ok(files), notes }
            }
            Err(refusal) => Noted { value: Err(vec![refusal.to_string()]), notes: Vec::new() },
        }
    }
}

/// Release of a framework by name; none where none is named.
///
/// # Errors
///
/// The framework has no release of that name that is known.
pub fn release(framework: &Framework, name: Option<&str>) -> Result<Option<&'static str>, QuestionError> {
    name.map(|name| framework.release(name)).transpose().map_err(|why| QuestionError::refused(why.to_string()))
}

/// Framework by name; an error suggests the nearest name.
///
/// # Errors
///
/// No framework has the name.
pub fn framework(name: &str) -> Result<&'static Framework, QuestionError> {
    frameworks::named(name).ok_or_else(|| {
        let nearest = nearest_hint(name, frameworks::names());
        QuestionError::refused(format!(
            "there is no framework `{name}` to write files for{nearest}\n\nhint: there are: {}",
            frameworks::name_list()
        ))
    })
}

/// Refined stages of one plan that a framework can express; each stage chooses its recomputation if the framework's options
/// allow that.
///
/// # Errors
///
/// The reason why no stages fit, or why the framework cannot express them.
fn expressible(limits: &Limits, costs: &Costs, plan: &Plan) -> Result<Refined, QuestionError> {
    if !(limits.names_stages)(costs.problem) {
        return Err(QuestionError::refused(format!(
            "{limits} cannot assign layers to individual stages\n\nhint: leave out --refine"
        )));
    }
    let stages = plan.pipeline().chunks();
    if stages > MOST_STAGES {
        return Err(QuestionError::refused(format!(
            "the plan has {stages} stages; with more than {MOST_STAGES}, a stage has only a layer or two, which \
            leaves little to optimise\n\nhint: leave out --refine, or lower vpp"
        )));
    }
    let options = Options { offloads: vec![plan.offload], ..Options::default() };
    let free = refine(costs, plan, &options);
    if let Ok(refined) = &free
        && limits.stages_obstacle(costs.problem, &refined.staged).is_none()
    {
        return free.map_err(|why| QuestionError::refused(why.to_string()));
    }
    let freedom = Freedom { recompute: false, ..Freedom::default() };
    refine(costs, plan, &Options { freedom, ..options }).map_err(|why| QuestionError::refused(why.to_string()))
}

/// Folder of a plan below the folder of several, by its rank from 1.
pub fn folder_of(rank: usize) -> String {
    format!("plan-{rank}")
}

/// Note on the plan of files where the user names none.
fn recommended(plan: &Plan) -> String {
    format!("the recommended plan: --plan \"{plan}\"")
}

/// Reason where no plan of a framework runs.
fn no_plan(framework: &Framework) -> String {
    format!("no plan runs: `plan --for {}` says why", framework.name())
}

/// Texts of the best plans of a problem that a framework's files can express, best first.
///
/// # Errors
///
/// The question is invalid, or is about pools of heterogeneous GPUs.
pub fn best_plans(
    framework: &'static Framework,
    problem: &Question,
    top: u32,
) -> Result<Noted<Vec<String>>, QuestionError> {
    let Noted { value: answer, notes } = ranking(framework, problem, top)?;
    let plans = answer.found.ranking.evaluations.iter().map(|evaluation| evaluation.plan.to_string());
    Ok(Noted { value: plans.collect(), notes })
}

/// Answer of `plan --for FRAMEWORK --top N`.
fn ranking(framework: &'static Framework, problem: &Question, top: u32) -> Result<Noted<PlanAnswer>, QuestionError> {
    let (unlimited, risk) = problem.split_risk()?;
    let Noted { value, mut notes } = unlimited.subject(Some(framework))?;
    let Subject::Cluster(posed) = value else {
        return Err(QuestionError::refused("--top does not apply to pools of heterogeneous GPUs: name one plan"));
    };
    let plans = PlanOptions { framework: Some(framework.name().to_owned()), top, ..PlanOptions::default() };
    let question = PlanQuestion { problem: problem.clone(), plans };
    let answer = question.solve(posed.accepting(risk), Some(framework), &|_, _| ControlFlow::Continue(()))?;
    notes.extend(answer.notes);
    Ok(Noted { value: answer.value, notes })
}

impl EmitQuestion {
    /// Slurm array over the folders of several plans, whose files are like these; none where no script launches them.
    ///
    /// # Errors
    ///
    /// The question is invalid.
    pub fn array(&self, folders: &[String], files: &[EmittedFile]) -> Result<Option<EmittedFile>, QuestionError> {
        let framework = framework(&self.framework)?;
        match self.problem.subject(Some(framework))?.value {
            Subject::Pools(_) => Ok(None),
            Subject::Cluster(posed) => {
                Ok(job_of(framework, posed.of_recipe().cluster(), files).map(|job| job.array(folders)))
            }
        }
    }

    /// Launch files of the plan, or the reasons why there are none; with notes on what was assumed.
    ///
    /// # Errors
    ///
    /// The question is invalid.
    pub fn answer(&self) -> Result<Noted<FilesOrReasons>, QuestionError> {
        let framework = framework(&self.framework)?;
        let options = FileOptions { steps: self.steps, release: release(framework, self.release.as_deref())? };
        let Noted { value: subject, mut notes } = self.problem.subject(Some(framework))?;
        match subject {
            Subject::Pools(_) if self.refine => Err(QuestionError::refused(
                "--refine does not apply to pools of heterogeneous GPUs: layers of stages on pools are always optimised",
            )),
            Subject::Pools(pooled) => {
                let recipe = self.problem.recipe_name(&pooled.joined()[0]);
                let value = self.mixtures(framework, &pooled)?.and_then(|mixtures| {
                    let (files, note) = pooled::files(framework, &pooled, &mixtures, &recipe, options.release)
                        .map_err(|why| vec![why])?;
                    let named = mixtures.first().filter(|_| self.plan.is_none() && note.is_none());
                    notes.extend(named.map(|mixture| recommended(&mixture.plan)));
                    notes.extend(note);
                    Ok(files)
                });
                Ok(Noted { value, notes })
            }
            Subject::Cluster(posed) => {
                let Noted { value: plan, notes: of_plan } = self.plan_on(framework, posed.of_recipe())?;
                notes.extend(of_plan);
                let plan = match plan {
                    Ok(plan) => plan,
                    Err(reasons) => return Ok(Noted { value: Err(reasons), notes }),
                };
                let Noted { value: problem, notes: of_graphs } = posed.of_plan(&plan);
                notes.extend(of_graphs);
                let costs = Costs::new(&problem);
                let mut rejections = Vec::new();
                illegal(&costs, &plan, &mut rejections);
                let refines = self.refine && rejections.is_empty(); // what is illegal is told with the files
                let refined = if refines { Some(expressible(framework.limits, &costs, &plan)?) } else { None };
                let chosen = Chosen { plan: &plan, refined: refined.as_ref() };
                let files = chosen.files(framework, &problem, &self.problem.recipe_name(&problem), options);
                notes.extend(files.notes);
                Ok(Noted { value: files.value, notes })
            }
        }
    }

    /// The ways of the named plan to use pools, or the plans that `plan --for FRAMEWORK` ranks, the recommended one first; the
    /// reasons where there are none.
    fn mixtures(
        &self,
        framework: &'static Framework,
        pooled: &Pooled,
    ) -> Result<Result<Vec<Mixture>, Vec<String>>, QuestionError> {
        let control: &Control = &|_, _| ControlFlow::Continue(());
        if self.plan.is_some() {
            return Ok(pooled::mixtures(pooled, self.plan.as_deref(), control)?.map(|answer| answer.mixtures));
        }
        let question = self.of_release(framework, &pooled.joined()[0]);
        let (unlimited, risk) = question.split_risk()?;
        let Subject::Pools(pooled) = unlimited.subject(Some(framework))?.value else {
            return Err(QuestionError::refused("the cluster has pools no longer"));
        };
        let plans = PlanOptions { framework: Some(framework.name().to_owned()), ..PlanOptions::default() };
        let mixtures = plans.solve_over_pools(&pooled, Some(framework), risk, control)?.value.advice.by_preference();
        Ok(if mixtures.is_empty() { Err(vec![no_plan(framework)]) } else { Ok(mixtures) })
    }

    /// The question with plans of the named release of Megatron core, where it is older than that of the stack.
    fn of_release(&self, framework: &'static Framework, problem: &Problem) -> Question {
        let mut question = self.problem.clone();
        let named = self.release.as_deref().filter(|_| *framework == frameworks::MEGATRON);
        let named = named.and_then(|name| framework.release(name).ok()?.parse::<CoreRelease>().ok());
        let is_older = |release: &CoreRelease| problem.stack().megatron_core.is_none_or(|own| *release < own);
        question.options.set.extend(named.filter(is_older).map(|release| format!("stack.megatron_core={release}")));
        question
    }

    /// The named plan, or the recommended one of those that the framework and its release run; the reasons where none runs.
    fn plan_on(
        &self,
        framework: &'static Framework,
        problem: &Problem,
    ) -> Result<Noted<Result<Plan, Vec<String>>>, QuestionError> {
        if let Some(text) = &self.plan {
            let plan = parse_plan(text, problem).map_err(|why| QuestionError::refused(format!("--plan: {why}")))?;
            return Ok(Noted { value: Ok(plan), notes: Vec::new() });
        }
        let obstacles = framework.limits.problem_obstacles(problem);
        if !obstacles.is_empty() {
            let reasons =
                obstacles.iter().map(|obstacle| format!("no {framework} files are written for this: {obstacle}"));
            return Ok(Noted { value: Err(reasons.collect()), notes: Vec::new() });
        }
        let answer = ranking(framework, &self.of_release(framework, problem), PLANS_SHOWN)?.value;
        Ok(match answer.found.best() {
            Some(best) => Noted { notes: vec![recommended(&best.plan)], value: Ok(best.plan.clone()) },
            None => Noted { value: Err(vec![no_plan(framework)]), notes: Vec::new() },
        })
    }
}
