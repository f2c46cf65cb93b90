//! Question of `explain`: one plan in detail.

use serde::Deserialize;

use super::error::QuestionError;
use super::graphs::Posed;
use super::noted::Noted;
use super::options::Question;
use super::place::entry;
use super::pooled;
use super::subject::Subject;
use crate::report::{json, placed, pools_document, transfers};
use meshwright_engine::cost::{Costs, Evaluation, Footprint};
use meshwright_engine::plan::Plan;
use meshwright_engine::plan::text::parse_plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::{self as frameworks, graphs::keep_captured};
use meshwright_planner::advice::{Advice, Prudence, advise};
use meshwright_planner::search::{Control, SearchOptions};
use meshwright_planner::space::{Rejection, can_be_sized, check};

/// Question of `explain`: a problem, and the plan to show.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct ExplainQuestion {
    /// Model, cluster, workload and stack.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub problem: Question,
    /// Plan, such as "tp=8 cp=1 pp=16 vpp=8"; dp follows from the cluster [default: the plan that `plan` recommends].
    #[cfg_attr(feature = "cli", arg(long, value_name = "PLAN"))]
    #[serde(default)]
    pub plan: Option<String>,
    /// Search for an order of hosts that makes the plan faster.
    #[cfg_attr(feature = "cli", arg(long))]
    #[serde(default)]
    pub place: bool,
    /// List the collectives and sends that the step is priced from, with payload, time and bandwidth.
    #[cfg_attr(feature = "cli", arg(long))]
    #[serde(default)]
    pub collectives: bool,
}

/// One plan in detail.
pub struct Explanation<'p> {
    /// Cost functions of the problem.
    pub costs: Costs<'p>,
    /// The plan.
    pub plan: Plan,
    /// Reasons why the plan does not run.
    pub rejections: Vec<Rejection>,
    /// Step time and memory; none of a plan whose degrees do not divide.
    pub evaluation: Option<Evaluation>,
    /// Memory by pipeline rank; empty of a plan that has none.
    pub footprints: Vec<Footprint>,
    /// Order of hosts, if it was asked for.
    pub placed: Vec<placed::Entry>,
}

impl<'p> Explanation<'p> {
    /// Cost and memory of a plan, and the reasons why it does not run.
    pub fn new(problem: &'p Problem, plan: Plan) -> Self {
        let costs = Costs::new(problem);
        let rejections = check(&costs, &plan);
        // A plan that is too large has a cost, one whose degrees do not divide has none.
        let priced = rejections.iter().all(Rejection::is_of_memory);
        let evaluation = priced.then(|| costs.evaluate_simulated(&plan));
        let footprints =
            if evaluation.is_some() || can_be_sized(&plan, problem) { costs.footprints(&plan) } else { Vec::new() };
        Self { costs, plan, rejections, evaluation, footprints, placed: Vec::new() }
    }

    /// The explanation with the best order of hosts, where the plan has a cost.
    #[must_use]
    pub fn with_order_of_hosts(mut self) -> Self {
        self.placed = self.evaluation.iter().map(|_| entry(&self.costs, 1, &self.plan)).collect();
        self
    }

    /// JSON document of the answer to a question.
    ///
    /// # Errors
    ///
    /// A value has no JSON form.
    pub fn document(&self, question: &ExplainQuestion) -> serde_json::Result<String> {
        let Self { costs, rejections, evaluation, footprints, .. } = self;
        let document = json::explanation(costs, evaluation.as_ref(), footprints, rejections)?
            .with_arguments(&question.problem.resolved(costs.problem, None))?
            .with("refused", &frameworks::refusal(costs.problem, &self.plan))?;
        let document = match self.evaluation.as_ref().filter(|_| question.collectives) {
            Some(evaluation) => document.with("transfers", &transfers::documents(costs, &evaluation.plan))?,
            None => document,
        };
        if !question.place {
            return document.text();
        }
        let placed: Vec<_> =
            self.placed.iter().map(|entry| placed::PlacedDocument::new(costs.problem, entry)).collect();
        document.with("placed", &placed)?.text()
    }
}

impl ExplainQuestion {
    /// Cost and memory of a plan, with the best order of hosts where it was asked for.
    pub fn explanation<'p>(&self, problem: &'p Problem, plan: Plan) -> Explanation<'p> {
        let explanation = Explanation::new(problem, plan);
        if self.place { explanation.with_order_of_hosts() } else { explanation }
    }

    /// The problem and the named plan of it, or the recommended one, which is none if no plan runs.
    ///
    /// # Errors
    ///
    /// The text is no plan of the problem.
    pub fn plan_on(&self, posed: Posed, control: &Control) -> Result<Noted<(Problem, Option<Plan>)>, QuestionError> {
        if let Some(text) = &self.plan {
            let plan = parse_plan(text, posed.of_recipe());
            let plan = plan.map_err(|why| QuestionError::refused(format!("--plan: {why}")))?;
            let Noted { value: problem, notes } = posed.of_plan(&plan);
            return Ok(Noted { value: (problem, Some(plan)), notes });
        }
        let advised = |problem: &Problem, is_captured: bool| {
            let mut restrictions = frameworks::launchable(problem);
            if is_captured {
                keep_captured(&mut restrictions, problem);
            }
            Ok(advise(problem, &SearchOptions { top: 1, restrictions }, Prudence::default(), control))
        };
        let Noted { value: (problem, advice), notes } = posed.answered(advised, Advice::best)?;
        Ok(Noted { value: (problem, advice.plan().map(|evaluation| evaluation.plan.clone())), notes })
    }

    /// JSON document of the answer, the same as `explain --format json` prints, with notes on what was assumed. `control` is told
    /// the progress of a search for the recommended plan, and may end it early.
    ///
    /// # Errors
    ///
    /// The question is invalid, or no plan runs.
    pub fn answer(&self, control: &Control) -> Result<Noted<String>, QuestionError> {
        let Noted { value: subject, mut notes } = self.problem.subject(None)?;
        let value = match subject {
            Subject::Cluster(posed) => {
                let Noted { value: (problem, plan), notes: of_graphs } = self.plan_on(*posed, control)?;
                notes.extend(of_graphs);
                let plan = plan.ok_or_else(|| QuestionError::refused("no plan runs: `plan` says why"))?;
                self.explanation(&problem, plan).document(self)?
            }
            Subject::Pools(_) if self.place => {
                return Err(QuestionError::refused("--place does not apply to pools of heterogeneous GPUs"));
            }
            Subject::Pools(pooled) => {
                let answer = pooled::mixtures(&pooled, self.plan.as_deref(), control)?
                    .map_err(|reasons| QuestionError::refused(reasons.join("\n")))?;
                pools_document::json(&pooled, &answer, None)?.text()?
            }
        };
        Ok(Noted { value, notes })
    }
}
