//! The question of `plan`, its answer, and the answer's document.

use std::path::PathBuf;

use serde::Deserialize;

use super::economy::Economy;
use super::error::QuestionError;
use super::graphs::{self, Posed};
use super::noted::Noted;
use super::options::Question;
use super::own_runs::measured_runs;
use super::plan::PlanOptions;
use super::search::{Found, SearchInputs};
use super::subject::Subject;
use crate::report::json::{self, AnswerDocument, Priced};
use crate::report::{placed, pools_document};
use meshwright_engine::cost::Evaluation;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_planner::refine::ranking::RefinedEntry;
use meshwright_planner::search::{ChangedOptimum, Control, SearchOptions};
use meshwright_planner::space::Restrictions;

/// Question of `plan`: what to train on what, and which plans to rank.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanQuestion {
    /// Model, cluster, workload and stack.
    pub problem: Question,
    /// Plans to consider, objective, and further results to compute.
    #[serde(default)]
    pub plans: PlanOptions,
}

/// Answer of `plan` on one kind of GPU.
pub struct PlanAnswer {
    /// Problem as asked.
    pub problem: Problem,
    /// Framework that the user named.
    pub framework: Option<&'static Framework>,
    /// Accepted probability of running out of memory.
    pub risk: f64,
    /// Restrictions of the space, and how many plans are named.
    pub options: SearchOptions,
    /// Plans and recommendation.
    pub found: Found,
    /// Refined stages of the best plans.
    pub refined: Vec<RefinedEntry>,
    /// Optimum with its sensitivities, if they were asked for.
    pub changed: Option<(Evaluation, Vec<ChangedOptimum>)>,
    /// Dollars and days, if tokens were given.
    pub economy: Option<Economy>,
    /// Orders of hosts.
    pub placed: Vec<placed::Entry>,
}

impl PlanQuestion {
    /// JSON document of the answer, the same as `plan --format json` prints, with notes on what was assumed. `control`
    /// receives the progress and may end the search early.
    ///
    /// # Errors
    ///
    /// The question is invalid, or its framework cannot train the model.
    pub fn answer(&self, control: &Control) -> Result<Noted<String>, QuestionError> {
        let Noted { value: document, notes } = self.document(control)?;
        Ok(Noted { value: document.text()?, notes })
    }

    /// Document of [`PlanQuestion::answer`] before it is rendered as text.
    ///
    /// # Errors
    ///
    /// As [`PlanQuestion::answer`].
    pub fn document(&self, control: &Control) -> Result<Noted<AnswerDocument>, QuestionError> {
        let framework = self.plans.framework.as_deref().and_then(frameworks::named);
        let (question, risk) = self.problem.split_risk()?;
        let Noted { value: subject, mut notes } = question.subject(framework)?;
        let value = match subject {
            Subject::Pools(pooled) => {
                let Noted { value: answer, notes: more } =
                    self.plans.solve_over_pools(&pooled, framework, risk, control)?;
                notes.extend(more);
                let arguments = self.problem.resolved_over_pools(&pooled, framework);
                pools_document::json(&pooled, &answer.advice.answer, Some(&answer.advice))?
                    .with_arguments(&arguments)?
            }
            Subject::Cluster(posed) => {
                let posed = posed.accepting(risk);
                let of_model = |known: &'static Framework| known.limits.problem_obstacles(posed.of_recipe());
                let obstacle = framework.and_then(|known| of_model(known).into_iter().next());
                if let (Some(framework), Some(obstacle)) = (framework, obstacle) {
                    return Err(QuestionError::refused(format!(
                        "no {framework} files are written for this: {obstacle}"
                    )));
                }
                let Noted { value: answer, notes: more } = self.solve(posed, framework, control)?;
                notes.extend(more);
                answer.document(self)?
            }
        };
        Ok(Noted { value, notes })
    }

    /// Answer on one kind of GPU, with notes on the plans considered.
    ///
    /// # Errors
    ///
    /// A restriction, the market or its terms are invalid.
    pub fn solve(
        &self,
        posed: Posed,
        framework: Option<&'static Framework>,
        control: &Control,
    ) -> Result<Noted<PlanAnswer>, QuestionError> {
        self.plans.check_ranges()?;
        if self.plans.measured.is_some() && !self.plans.ranks_by_step_time() {
            return Err(QuestionError::refused(
                "--measured ranks plans by step time\n\nhint: leave out --pareto and --objective".to_owned(),
            ));
        }
        if self.plans.pareto_tolerance.is_some() && !self.plans.pareto {
            return Err(QuestionError::refused(
                "--pareto-tolerance is that of a Pareto front\n\nhint: add --pareto".to_owned(),
            ));
        }
        let risk = posed.risk();
        let ranked = |problem: &Problem, is_captured: bool| {
            let restrictions = self.plans.restrictions_on(framework, problem, is_captured)?;
            self.ranked(problem, restrictions, risk, control)
        };
        let Noted { value: (problem, ranked), notes } = posed.answered(ranked, |ranked| ranked.found.graded())?;
        let Ranked { options, economy, found, notes: of_runs } = ranked;
        let searched = found.searched(&problem);
        let is_over = || control(0, 1).is_break();
        let refined = self.plans.refine.entries(searched, &found.ranking, &options.restrictions, &is_over);
        let changed = if self.plans.sensitivity { found.sensitivity(control) } else { None };
        let placed = self.plans.place.entries(&problem, &found.ranking, &is_over);
        let notes = notes.into_iter().chain(self.plans.default_launcher(&problem).1).chain(of_runs).collect();
        let answer = PlanAnswer { problem, framework, risk, options, found, refined, changed, economy, placed };
        Ok(Noted { value: answer, notes })
    }

    /// Ranked plans of a problem.
    fn ranked(
        &self,
        problem: &Problem,
        restrictions: Restrictions,
        risk: f64,
        control: &Control,
    ) -> Result<Ranked, QuestionError> {
        let sets = self.problem.options.overrides()?;
        let economy = self.plans.economy.economy(problem, &sets)?;
        let of_file = |path: &PathBuf| measured_runs(path, problem, &sets);
        let runs = self.plans.measured.as_ref().map(of_file).transpose()?;
        let (runs, notes) = runs.map_or_else(Default::default, |noted| (noted.value, noted.notes));
        let options = SearchOptions { top: self.plans.top as usize, restrictions };
        let inputs = SearchInputs { risk, economy: economy.as_ref(), runs: &runs };
        let found = self.plans.find(problem, &options, inputs, control);
        Ok(Ranked { options, economy, found, notes })
    }
}

/// Ranked plans of a problem, before their stages are refined.
struct Ranked {
    options: SearchOptions,
    economy: Option<Economy>,
    found: Found,
    /// Notes on measured runs.
    notes: Vec<String>,
}

impl PlanAnswer {
    /// Whether no plan fits, with its own stages or with refined ones.
    pub fn is_empty(&self) -> bool {
        self.found.ranking.evaluations.is_empty() && self.refined.iter().all(|entry| entry.outcome.is_err())
    }

    /// Arguments that name a plan of the answer to a question: its text, with the setting of CUDA graphs where the question leaves
    /// that open and the plan alone would have another.
    pub fn arguments_of(&self, question: &Question, plan: &Plan) -> String {
        let Self { problem, framework, risk, .. } = self;
        let sets = question.options.overrides();
        let is_open = sets.is_ok_and(|sets| graphs::were_open(problem, *framework, &sets));
        let set = if is_open { graphs::to_state(problem, plan, *risk) } else { None };
        set.map_or_else(|| format!("\"{plan}\""), |set| format!("\"{plan}\" --set {set}"))
    }

    /// JSON document of the answer to a question.
    ///
    /// # Errors
    ///
    /// A value has no JSON form.
    pub fn document(&self, question: &PlanQuestion) -> serde_json::Result<AnswerDocument> {
        let Self { problem, found, refined, .. } = self;
        if self.is_empty() {
            let answer = json::Answer { refined, ..json::Answer::default() };
            return json::ranking(problem, &found.ranking, &answer);
        }
        let bills =
            self.economy.as_ref().map_or_else(|| Ok(Vec::new()), |known| known.bills(problem, &found.ranking))?;
        let answer = json::Answer { advice: found.advice.as_ref(), bills: &bills, refined };
        let arguments = question.problem.resolved(problem, self.framework);
        let document = json::ranking(problem, &found.ranking, &answer)?.with_arguments(&arguments)?;
        let document = question.plans.place.json(problem, &self.placed, document)?;
        let Some((optimum, changes)) = &self.changed else { return Ok(document) };
        let sensitivities: Vec<json::Sensitivity> = changes.iter().map(json::Sensitivity::new).collect();
        document.with("sensitivity_of", &Priced::new(problem, optimum))?.with("sensitivity", &sensitivities)
    }
}
