//! Posterior of a study: its plans, given its trials.

use std::path::Path;

use rayon::prelude::*;

use super::study::{Study, TuneError};
use super::trials::{Trial, TrialStatus, Trials};
use crate::question::{self, Noted, Question};
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_frameworks::{self as frameworks, Framework};
use meshwright_planner::confidence::{self, Interval};
use meshwright_planner::discrepancy::{
    Belief, BeliefPoint, MemoryBelief, MemoryEvidence, Outlook, Prospect, Traits, Tried, built_in, memory_room,
};
use meshwright_planner::space::{Rejection, check, parse_plan};

/// Prediction and posterior of one plan of a study.
#[derive(Clone, Debug)]
pub struct TrialOutlook {
    /// Predicted step time at full scale in seconds, before any trial.
    pub predicted_s: f64,
    /// Predicted peak in GiB.
    pub predicted_gib: f64,
    /// Median of the step time at full scale in seconds, given the trials.
    pub median_s: f64,
    /// Interval that holds it with 90 %.
    pub interval_s: Interval<f64>,
    /// Chances and worth of timing it.
    pub prospect: Prospect,
}

/// Study with its problem, plans and posterior.
pub struct Posterior {
    study: Study,
    trials: Trials,
    problem: Problem,
    trial_problem: Problem,
    plans: Vec<Plan>,
    trial_plans: Vec<Plan>,
    evaluations: Vec<Evaluation>,
    belief: Belief,
    /// Probability of each plan that it runs at full scale.
    runs: Vec<f64>,
    tried: Vec<Tried>,
    /// Outlook of every plan, and of stopping.
    pub outlook: Outlook,
}

/// Problem of a study on the GPUs of a trial: the same micro-batches on fewer replicas.
///
/// # Errors
///
/// The batch does not divide, or the question is invalid.
fn on_trial_gpus(
    study: &Study,
    problem: &Problem,
    framework: Option<&'static Framework>,
) -> Result<Problem, TuneError> {
    let gpus = problem.cluster().gpus;
    let Some(trial_gpus) = study.trial_gpus.filter(|own| *own != gpus) else { return Ok(problem.clone()) };
    let batch = u64::from(problem.workload().global_batch) * u64::from(trial_gpus);
    if trial_gpus > gpus || !batch.is_multiple_of(u64::from(gpus)) || batch < u64::from(gpus) {
        return Err(TuneError::Refused(format!(
            "--trial-gpus {trial_gpus}: of {gpus} GPUs and a batch of {}, that is no whole share of the batch",
            problem.workload().global_batch
        )));
    }
    let mut question: Question = study.problem.clone();
    question.options.gpus = Some(trial_gpus);
    question.options.global_batch = u32::try_from(batch / u64::from(gpus)).ok();
    Ok(question.problem(framework)?.value)
}

/// The plan on the GPUs of a trial: the same on fewer replicas. `None` where a replica needs more GPUs, or experts more ranks.
fn on_fewer_replicas(plan: &Plan, full: u32, trial: u32) -> Option<Plan> {
    let replicas = u64::from(plan.layout.dp) * u64::from(trial);
    if full == trial {
        return Some(plan.clone());
    }
    if !replicas.is_multiple_of(u64::from(full)) || replicas < u64::from(full) {
        return None;
    }
    let mut smaller = plan.clone();
    smaller.layout.dp = u32::try_from(replicas / u64::from(full)).ok()?;
    let ranks = smaller.layout.tp * smaller.layout.cp * smaller.layout.dp;
    let experts = smaller.layout.ep * smaller.layout.etp;
    let shares = smaller.shard_group.is_none_or(|group| smaller.layout.dense_replicas().is_multiple_of(group));
    (ranks.is_multiple_of(experts) && shares).then_some(smaller)
}

/// Reasons why a plan cannot run at all.
fn illegal(problem: &Problem, plan: &Plan) -> Option<String> {
    check(&Costs::new(problem), plan).iter().find(|why| !why.is_of_memory()).map(Rejection::to_string)
}

impl Posterior {
    /// Posterior of a study; `path` is that of its folder, for messages.
    ///
    /// # Errors
    ///
    /// The question is invalid, or a plan is none of the problem, with its line.
    pub fn new(study: Study, trials: Trials, path: &Path) -> Result<Noted<Self>, TuneError> {
        let framework = study.framework.as_deref().map(question::framework).transpose()?;
        let Noted { value: problem, notes } = study.problem.problem(framework)?;
        let trial_problem = on_trial_gpus(&study, &problem, framework)?;
        let (full, small) = (problem.cluster().gpus, trial_problem.cluster().gpus);
        let file = path.join("trials.csv");
        let (mut plans, mut trial_plans) = (Vec::new(), Vec::new());
        for (at, trial) in trials.0.iter().enumerate() {
            let invalid = |why: String| TuneError::invalid(&file, Some(at as u64 + 2), why);
            let plan = parse_plan(&trial.plan, &problem).map_err(invalid)?;
            if let Some(why) = illegal(&problem, &plan) {
                return Err(invalid(format!("the plan `{}` does not run: {why}", trial.plan)));
            }
            let smaller = on_fewer_replicas(&plan, full, small).filter(|plan| illegal(&trial_problem, plan).is_none());
            trial_plans.push(
                smaller.ok_or_else(|| invalid(format!("the plan `{}` does not run on {small} GPUs", trial.plan)))?,
            );
            plans.push(plan);
        }
        let evaluations = evaluated(&problem, &plans);
        let on_trial = if small == full { Vec::new() } else { evaluated(&trial_problem, &trial_plans) };
        let predicted = PredictedPlans {
            problem: &problem,
            trial_problem: &trial_problem,
            evaluations: &evaluations,
            on_trial: &on_trial,
        };
        let (belief, runs) = (predicted.belief(&trials.0), predicted.chances_to_run(&trials.0));
        let tried: Vec<Tried> = trials.0.iter().map(|trial| tried(trial.status)).collect();
        let outlook = Outlook::new(&belief, &tried, &runs, study.tolerance);
        let value = Self {
            study,
            trials,
            problem,
            trial_problem,
            plans,
            trial_plans,
            evaluations,
            belief,
            runs,
            tried,
            outlook,
        };
        Ok(Noted { value, notes })
    }

    /// Plans of a problem that can be tried on the GPUs of a trial, and how many cannot.
    ///
    /// # Errors
    ///
    /// As for [`Self::new`].
    pub fn runnable(study: &Study, problem: &Problem, plans: Vec<Plan>) -> Result<(Vec<Plan>, usize), TuneError> {
        let framework = study.framework.as_deref().and_then(frameworks::named);
        let trial_problem = on_trial_gpus(study, problem, framework)?;
        let (full, small) = (problem.cluster().gpus, trial_problem.cluster().gpus);
        let all = plans.len();
        let kept: Vec<Plan> = plans
            .into_iter()
            .filter(|plan| {
                on_fewer_replicas(plan, full, small).is_some_and(|plan| illegal(&trial_problem, &plan).is_none())
            })
            .collect();
        let without = all - kept.len();
        Ok((kept, without))
    }

    /// Study as it was read.
    pub const fn study(&self) -> &Study {
        &self.study
    }

    /// Trials as they were read.
    pub fn trials(&self) -> &[Trial] {
        &self.trials.0
    }

    /// Problem at full scale.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Problem on the GPUs of a trial.
    pub const fn trial_problem(&self) -> &Problem {
        &self.trial_problem
    }

    /// Plan of a trial at full scale.
    pub fn plan(&self, at: usize) -> &Plan {
        &self.plans[at]
    }

    /// Plan of a trial on its GPUs.
    pub fn trial_plan(&self, at: usize) -> &Plan {
        &self.trial_plans[at]
    }

    /// Whether the files of a trial were written and no outcome is known.
    pub fn is_waiting(&self, at: usize) -> bool {
        self.trials.0[at].status == TrialStatus::Waiting
    }

    /// Prediction and posterior of one plan.
    pub fn outlook(&self, at: usize) -> TrialOutlook {
        let evaluation = &self.evaluations[at];
        TrialOutlook {
            predicted_s: evaluation.step.total().get(),
            predicted_gib: evaluation.footprint.peak().as_gib(),
            median_s: self.belief.median(at).exp(),
            interval_s: self.belief.interval(at).map(f64::exp),
            prospect: self.outlook.prospects[at],
        }
    }

    /// Trials left in the budget; those that wait count as spent.
    pub fn trials_left(&self) -> usize {
        let spent = self.trials.0.iter().filter(|trial| trial.status != TrialStatus::Open).count();
        (self.study.budget as usize).saturating_sub(spent)
    }

    /// Whether further timing is not worth it: by the expected improvement, or because the budget is spent.
    pub fn is_decided(&self) -> bool {
        self.outlook.is_decided(self.study.tolerance)
    }

    /// Trials to launch together: those that wait are taken to come out as expected.
    pub fn batch(&self, count: usize) -> Vec<usize> {
        let (mut belief, mut tried) = (self.belief.clone(), self.tried.clone());
        for at in (0..tried.len()).filter(|&at| self.is_waiting(at)) {
            let expected = belief.median(at);
            belief.observe(at, expected, 0.0);
            tried[at] = Tried::Ran;
        }
        Outlook::batch(&belief, &tried, &self.runs, self.study.tolerance, count)
    }

    /// Plans by the median of their step time, fastest first; those that failed come last.
    pub fn ranked(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.trials.0.len()).collect();
        let failed = |at: usize| self.tried[at] == Tried::Failed;
        let medians: Vec<f64> = order.iter().map(|&at| self.belief.median(at)).collect();
        order.sort_by(|&a, &b| failed(a).cmp(&failed(b)).then(medians[a].total_cmp(&medians[b])));
        order
    }
}

const fn tried(status: TrialStatus) -> Tried {
    match status {
        TrialStatus::Open | TrialStatus::Waiting => Tried::Untried,
        TrialStatus::Ran => Tried::Ran,
        TrialStatus::Oom | TrialStatus::Failed => Tried::Failed,
    }
}

/// Simulated evaluation of each plan.
fn evaluated(problem: &Problem, plans: &[Plan]) -> Vec<Evaluation> {
    let costs = Costs::new(problem);
    plans.par_iter().map(|plan| costs.evaluate_simulated(plan)).collect()
}

/// Points of a belief, one for each evaluated plan.
fn points<'a>(problem: &'a Problem, evaluations: &'a [Evaluation]) -> impl Iterator<Item = BeliefPoint> + 'a {
    evaluations.iter().enumerate().map(|(plan, evaluation)| BeliefPoint {
        traits: Traits::new(problem, evaluation),
        predicted: evaluation.step.total().get().ln(),
        plan,
    })
}

/// Plans of a study as the cost model predicts them.
#[derive(Clone, Copy)]
struct PredictedPlans<'p> {
    problem: &'p Problem,
    trial_problem: &'p Problem,
    /// Evaluation of each plan at full scale.
    evaluations: &'p [Evaluation],
    /// Evaluation of each plan on the GPUs of a trial; empty where those are all.
    on_trial: &'p [Evaluation],
}

impl PredictedPlans<'_> {
    /// Belief about the step times at full scale, and behind them those on the GPUs of a trial where they are fewer,
    /// given the trials.
    fn belief(self, trials: &[Trial]) -> Belief {
        let Self { problem, trial_problem, evaluations, on_trial } = self;
        let points: Vec<BeliefPoint> = points(problem, evaluations).chain(points(trial_problem, on_trial)).collect();
        let mut belief = Belief::prior(built_in(), &problem.stack().name, &points);
        let first = if on_trial.is_empty() { 0 } else { evaluations.len() };
        for (at, trial) in trials.iter().enumerate() {
            if let (TrialStatus::Ran, Some(step)) = (trial.status, trial.step_s) {
                belief.observe(first + at, step.ln(), trial.error.unwrap_or_default());
            }
        }
        belief
    }

    /// Probability that each plan runs at full scale, given the trials.
    fn chances_to_run(self, trials: &[Trial]) -> Vec<f64> {
        let Self { problem, trial_problem, evaluations, on_trial } = self;
        let mut belief = MemoryBelief::of_quantiles(built_in(), &confidence::memory_errors(problem));
        let room = |problem: &Problem, evaluation: &Evaluation| memory_room(problem, evaluation.footprint.peak());
        for (at, trial) in trials.iter().enumerate() {
            let (problem, evaluation) =
                if on_trial.is_empty() { (problem, &evaluations[at]) } else { (trial_problem, &on_trial[at]) };
            let reserved = trial.memory.as_deref().is_some_and(|kind| kind.contains("reserved"));
            let figure = if reserved { evaluation.footprint.reserved() } else { evaluation.footprint.allocated() };
            let evidence = match (trial.status, trial.peak_gib) {
                (TrialStatus::Open | TrialStatus::Waiting, _) => continue,
                (TrialStatus::Ran, Some(peak)) => MemoryEvidence::Peak((peak / figure.as_gib()).ln()),
                (TrialStatus::Ran, None) => MemoryEvidence::Fitted,
                (TrialStatus::Oom, _) => MemoryEvidence::OutOfMemory,
                (TrialStatus::Failed, _) => MemoryEvidence::Failed,
            };
            belief.observe(room(problem, evaluation), evidence);
        }
        evaluations.iter().map(|evaluation| belief.runs(room(problem, evaluation))).collect()
    }
}
