//! Plans over pools of heterogeneous GPUs: their distributions and their files.

use super::economy::Minimised;
use super::error::QuestionError;
use super::noted::Noted;
use super::plan::PlanOptions;
use crate::report::hosts::header;
use crate::report::pools_advice::Rules;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::{Plan, RankOrder};
use meshwright_frameworks::Framework;
use meshwright_frameworks::emit::{EmittedFile, PoolsHeader, Request, emit};
use meshwright_planner::advice::{PooledAdvice, Prudence, USUAL_RISK, advise_pools};
use meshwright_planner::limits::Obstacle;
use meshwright_planner::pools::hosts::hosts;
use meshwright_planner::pools::{Distribution, Mixture, Pooled, PooledAnswer};
use meshwright_planner::refine::pools::ONE_WAY;
use meshwright_planner::search::{Control, SearchOptions};
use meshwright_planner::space::{Rejection, Restrictions, check, parse_plan};

/// Answer of `plan` over pools.
pub struct PooledPlanAnswer {
    /// Mixtures and recommendation.
    pub advice: PooledAdvice,
    /// Rules that they keep.
    pub rules: Rules,
}

impl PlanOptions {
    /// Answer over pools, with notes on the plans considered; `framework` is the one that the user named, `risk` the accepted
    /// probability of running out of memory.
    ///
    /// # Errors
    ///
    /// An option does not apply to pools, a restriction is invalid, or the framework cannot train the model on every pool.
    pub fn solve_over_pools(
        &self,
        pooled: &Pooled,
        framework: Option<&'static Framework>,
        risk: f64,
        control: &Control,
    ) -> Result<Noted<PooledPlanAnswer>, QuestionError> {
        self.check_ranges()?;
        self.refuse_on_pools()?;
        let problems = pooled.joined();
        let obstacle = framework.and_then(|framework| Some((framework, obstacle_of(framework, pooled)?)));
        if let Some((framework, obstacle)) = obstacle {
            return Err(QuestionError::refused(format!("no {framework} files are written for this: {obstacle}")));
        }
        let (launcher, note) = self.default_launcher_on_all(problems);
        let launcher = framework.or(launcher);
        let options =
            SearchOptions { top: self.top as usize, restrictions: self.restrictions_on_all(launcher, problems)? };
        let alone: Vec<Restrictions> =
            pooled.separate().iter().map(|problem| self.restrictions(launcher, problem)).collect::<Result<_, _>>()?;
        let prudence = Prudence { risk, exotic: self.exotic };
        let advice = advise_pools(pooled, &options, &alone, prudence, control);
        let rules = Rules { limits: options.restrictions.limits(), prudence };
        Ok(Noted { value: PooledPlanAnswer { advice, rules }, notes: note.into_iter().collect() })
    }

    /// Refuses options that are not supported with pools.
    fn refuse_on_pools(&self) -> Result<(), QuestionError> {
        let ranked = "plans over pools are ranked by step time";
        let chosen = "layers of stages on pools are always optimised, those of replicas never";
        let asked = [
            ("--pareto", self.pareto, ranked),
            ("--objective", self.economy.objective != Minimised::StepTime, ranked),
            (
                "--tokens",
                self.economy.tokens.is_some(),
                "bills are for a single kind of GPU; give each [[pool]] its `price`",
            ),
            ("--sensitivity", self.sensitivity, "it changes a single cluster, but there are several pools"),
            ("--measured", self.measured.is_some(), "runs are of a single kind of GPU"),
            ("--allow-idle", self.allow_idle, "all GPUs of all pools are used; make a pool smaller instead"),
            ("--place", self.place.place.is_some(), "hosts are listed pool by pool"),
            ("--refine", self.refine.refine.is_some(), chosen),
            ("--no-refine", self.refine.no_refine, chosen),
        ];
        let refused = asked.into_iter().find_map(|(flag, there, why)| there.then_some((flag, why)));
        refused.map_or(Ok(()), |(flag, why)| {
            Err(QuestionError::refused(format!("{flag} does not apply to pools of heterogeneous GPUs: {why}")))
        })
    }
}

/// The first obstacle that a framework meets on the GPUs of any pool, whatever the plan.
fn obstacle_of(framework: &Framework, pooled: &Pooled) -> Option<Obstacle> {
    pooled.joined().iter().find_map(|problem| framework.limits.problem_obstacles(problem).into_iter().next())
}

/// All distributions of a plan over the pools, fastest first; without a plan, those of the recommended mixture, whose search
/// `control` may end early. The inner error lists the reasons why there are none.
///
/// # Errors
///
/// The text is no plan.
pub fn mixtures(
    pooled: &Pooled,
    plan: Option<&str>,
    control: &Control,
) -> Result<Result<PooledAnswer, Vec<String>>, QuestionError> {
    let Some(text) = plan else {
        let options = PlanOptions { top: 1, ..PlanOptions::default() };
        let PooledPlanAnswer { advice, .. } = options.solve_over_pools(pooled, None, USUAL_RISK, control)?.value;
        let none = vec!["no plan uses all pools: `meshwright plan` says more".to_owned()];
        let shown = PooledAnswer { beyond: None, ..advice.answer };
        return Ok(if shown.mixtures.is_empty() { Err(none) } else { Ok(shown) });
    };
    let plan = parse_plan(text, &pooled.joined()[0]).map_err(|why| QuestionError::refused(format!("--plan: {why}")))?;
    let mixtures = pooled.ways(&plan);
    if mixtures.is_empty() {
        return Ok(Err(reasons(pooled, &plan)));
    }
    let priced = mixtures.len();
    Ok(Ok(PooledAnswer { mixtures, beyond: None, priced, is_partial: false }))
}

/// Reasons why a plan cannot use the pools, one line each.
fn reasons(pooled: &Pooled, plan: &Plan) -> Vec<String> {
    let mut reasons = Vec::new();
    for (pool, problem) in pooled.cluster().pools.iter().zip(pooled.joined()) {
        for rejection in check(&Costs::new(problem), plan) {
            let why = match rejection {
                Rejection::Domains { filled, domain, needed, had } => format!(
                    "its groups fill {filled} of the {domain} GPUs of a scale-up domain, so it needs {needed} such domains, and the \
                     pool has {had}: `gpus = {}` of the pool fills those",
                    filled * had
                ),
                other => other.to_string(),
            };
            reasons.push(format!("does not run on pool {}: {why}", pool.name));
        }
    }
    if plan.schedule.is_bidirectional() && plan.order == RankOrder::PipelineOutermost {
        reasons.push(format!("stages do not run on pools: {ONE_WAY}"));
    }
    if reasons.is_empty() {
        reasons.push(
            "does not run: neither tp·cp·pp (replicas on pools, order=tp-cp-ep-pp-dp) nor tp·cp·dp (stages on pools) \
            divides the GPUs of every pool, or its groups leave one"
                .to_owned(),
        );
    }
    reasons
}

/// The files of the fastest mixture that a framework can express, with a note if it is not the fastest of all.
///
/// # Errors
///
/// The reason why the framework can express none of them.
pub fn files(
    framework: &'static Framework,
    pooled: &Pooled,
    mixtures: &[Mixture],
    recipe: &str,
    release: Option<&'static str>,
) -> Result<(Vec<EmittedFile>, Option<String>), String> {
    let mut refusals = Vec::new();
    for mixture in mixtures {
        match of_mixture(framework, pooled, mixture, recipe, release) {
            Ok(files) => {
                let slower = (!refusals.is_empty()).then(|| {
                    format!("the files are for `{}`: {framework} cannot express the faster plans", mixture.plan)
                });
                return Ok((files, slower));
            }
            Err(why) => refusals.push(why),
        }
    }
    Err(refusals.into_iter().next().unwrap_or_else(|| "no plan uses all pools".to_owned()))
}

fn of_mixture(
    framework: &'static Framework,
    pooled: &Pooled,
    mixture: &Mixture,
    recipe: &str,
    release: Option<&'static str>,
) -> Result<Vec<EmittedFile>, String> {
    if !mixture.distribution.runs(framework.family()) {
        return Err(format!("{framework} gives every replica the same number of micro-batches: {}", mixture.plan));
    }
    let hosts = hosts(pooled, mixture).map_err(|why| why.to_string())?;
    let (heading, lines) = header(pooled, mixture, &hosts);
    let staged = match &mixture.distribution {
        Distribution::Replicas { .. } => None,
        Distribution::Stages { refined, .. } => Some(&refined.staged),
    };
    let problem = &pooled.joined()[mixture.slowest];
    if let Some(obstacle) = obstacle_of(framework, pooled) {
        return Err(format!("no {framework} files are written for this: {obstacle}"));
    }
    let (costs, evaluation) = (Costs::new(problem), mixture.evaluation(mixture.slowest));
    let pools = Some(PoolsHeader { heading: &heading, lines: &lines });
    emit(framework, &Request { recipe: Some(recipe), release, staged, pools, ..Request::new(&costs, &evaluation) })
        .map_err(|refusal| refusal.to_string())
}
