//! Pools of heterogeneous GPUs: layouts that use all pools, and the share of work of each pool.
//!
//! A question over pools is one [`Problem`] per pool: its GPUs and levels, with the link above them that joins the rest
//! ([`PooledCluster::joined`]). Every price comes from those; this layer only shares the work out.
//!
//! ```text
//! replicas on pools   each replica lives in one pool; pools of faster GPUs may take more micro-batches
//! stages on pools     one pool after another holds the pipeline's stages; those of faster GPUs take more layers
//! ```

pub mod candidates;
mod expressible;
pub mod hosts;
mod mixture;
pub mod replicas;
pub mod stages;

use crate::search::{Control, SearchOptions, plainer_by};
use crate::space::Restrictions;
use expressible::{expresses_mixture, is_allowed};
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::plan::Plan;
use meshwright_engine::stack::Family;
use meshwright_engine::units::Seconds;

pub use mixture::{Distribution, Mixture, Pooled, Share};

/// Result of planning over pools.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledAnswer {
    /// Best mixtures that the framework runs and can express, fastest first, each with a different layout.
    pub mixtures: Vec<Mixture>,
    /// Fastest mixture that needs unequal micro-batches, if it beats those that the framework runs.
    pub beyond: Option<Mixture>,
    /// Number of mixtures evaluated.
    pub priced: usize,
    /// Whether the search ended early, so that a faster mixture may exist.
    pub is_partial: bool,
}

/// The fastest mixtures, each with a different layout.
fn ranked(mut all: Vec<Mixture>, top: usize) -> Vec<Mixture> {
    sort_by_numbers(&mut all, |mixture| [mixture.step.total().get()]);
    let mut best: Vec<Mixture> = Vec::new();
    for mixture in all {
        if best.len() < top && !best.iter().any(|known| known.is_like(&mixture)) {
            best.push(mixture);
        }
    }
    best
}

impl PooledAnswer {
    /// The best mixtures of this answer and another to the same question in another space.
    #[must_use]
    pub(crate) fn with(self, other: Self, top: usize) -> Self {
        let mixtures = ranked(self.mixtures.into_iter().chain(other.mixtures).collect(), top);
        let fastest = mixtures.first().map_or(Seconds::new(f64::INFINITY), |mixture| mixture.step.total());
        let beyond = self.beyond.into_iter().chain(other.beyond).filter(|mixture| mixture.step.total() < fastest);
        let faster = |a: Mixture, b: Mixture| if b.step.total() < a.step.total() { b } else { a };
        let (priced, is_partial) = (self.priced + other.priced, self.is_partial || other.is_partial);
        Self { mixtures, beyond: beyond.reduce(faster), priced, is_partial }
    }
}

/// Margin by which a pool's view of a plan may be slower than its relative speed predicts.
const MOST_SLOWER: f64 = 1.1;

impl Pooled {
    /// Best mixtures under restrictions. Every search calls `control`, and it is called between refinements; when it breaks, the
    /// answer is the best so far.
    pub fn answer(&self, options: &SearchOptions, control: &Control) -> PooledAnswer {
        let family = options.restrictions.family(self.joined()[0].stack().family);
        let (staged, refined) = stages::best(self, options, control);
        let ceilings = self.ceilings(&staged, options.top, family);
        let (mut all, mut priced) = replicas::best(self, options, &ceilings, control);
        all.extend(staged);
        all.retain(|mixture| expresses_mixture(self, &options.restrictions, mixture));
        priced += refined;
        let (runs, mut beyond): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|mixture| mixture.distribution.runs(family));
        let mixtures = ranked(runs, options.top);
        sort_by_numbers(&mut beyond, |mixture| [mixture.step.total().get()]);
        let fastest = mixtures.first().map_or(Seconds::new(f64::INFINITY), |mixture| mixture.step.total());
        let beyond = beyond.into_iter().next().filter(|mixture| mixture.step.total() < fastest);
        PooledAnswer { mixtures, beyond, priced, is_partial: control(0, 1).is_break() }
    }

    /// All distributions of one plan over the pools, fastest first: replicas with equal and with optimal shares, and stages
    /// in every order of the pools, with the layers that the split spells out or else optimised ones.
    pub fn ways(&self, plan: &Plan) -> Vec<Mixture> {
        let mut found = replicas::ways(self, plan);
        found.extend(stages::ways(self, plan));
        sort_by_numbers(&mut found, |mixture| [mixture.step.total().get()]);
        found
    }

    /// Upper limits on the step time of replica plans in each pool's view, given the mixtures of stages found so far.
    ///
    /// With equal shares, replicas take at least as long as their plan in any view, so plans slower than the last mixture
    /// reported are excluded. With unequal shares they take at least as long as in one view, and another view is slower by
    /// about the ratio of the pools' speeds.
    fn ceilings(&self, staged: &[Mixture], top: usize, family: Family) -> Vec<Seconds> {
        let times = || staged.iter().take(top).map(|mixture| mixture.step.total());
        let Some(first) = staged.first().filter(|_| staged.len() >= top && family != Family::Internal) else {
            return Vec::new();
        };
        let fastest = times().fold(Seconds::new(f64::INFINITY), Seconds::min);
        let last = times().fold(Seconds::ZERO, Seconds::max) * (1.0 + 1e-9);
        let whole: Vec<Seconds> = self.joined().iter().map(|problem| stages::whole(problem, &first.plan)).collect();
        let least = whole.iter().copied().fold(Seconds::new(f64::INFINITY), Seconds::min);
        whole.iter().map(|own| (fastest * (*own / least) * MOST_SLOWER).max(last)).collect()
    }

    /// Simpler mixture within run-to-run noise, if there is one: distributed as it is, in the space of every pool's view.
    pub(crate) fn plainer(&self, restrictions: &Restrictions, mixture: &Mixture) -> Option<Mixture> {
        let priced = |plan: Plan| {
            let is_legal = is_allowed(self, restrictions, &plan);
            let found = is_legal.then(|| self.with_plan(mixture, &plan))??;
            expresses_mixture(self, restrictions, &found).then_some(found)
        };
        plainer_by(mixture, |mixture| (&mixture.plan, mixture.step.total()), priced)
    }

    /// Another plan of a mixture's degrees, distributed as the mixture is; `None` if it does not run or fit so.
    fn with_plan(&self, mixture: &Mixture, plan: &Plan) -> Option<Mixture> {
        match &mixture.distribution {
            Distribution::Replicas { shares } => replicas::of_plan(self, plan, shares),
            Distribution::Stages { of_rank, .. } => {
                stages::of_plan(self, plan, of_rank, &crate::refine::Options::default())
            }
        }
    }
}
