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
pub mod hosts;
pub mod replicas;
pub mod stages;

use crate::refine::Refined;
use crate::search::{Goal, SearchOptions, WhatIfs};
use crate::space::Restrictions;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cluster::pools::PooledCluster;
use meshwright_engine::cost::{Costs, Evaluation, Footprint, StepTime};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_engine::units::Seconds;

pub use replicas::Share;

/// Planning problem over several pools.
#[derive(Clone, Debug)]
pub struct Pooled {
    cluster: PooledCluster,
    alone: Vec<Problem>,
    joined: Vec<Problem>,
}

/// Distribution of a plan over pools.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// Each replica runs within one pool.
    Replicas {
        /// Replicas of each pool and their micro-batches.
        shares: Vec<Share>,
    },
    /// Each pipeline stage runs within one pool.
    Stages {
        /// Pool of each pipeline rank.
        of_rank: Vec<usize>,
        /// Layers and recomputation of each stage, with the optimality bound.
        refined: Box<Refined>,
    },
}

impl Way {
    /// Whether a framework runs it. Available frameworks give every replica the same number of micro-batches.
    ///
    /// Source: [megatron-lm] `num_microbatches_calculator.py`: global batch / (micro-batch · dp) for every replica;
    /// `pipeline_parallel_layer_layout.py`: any layers on any stage.
    pub fn runs(&self, family: Family) -> bool {
        match self {
            Self::Replicas { shares } => {
                family == Family::Internal
                    || shares.windows(2).all(|pair| pair[0].micro_batches == pair[1].micro_batches)
            }
            Self::Stages { .. } => true,
        }
    }
}

/// Plan that uses all pools, with its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// Degrees, schedule and sharding, which all pools share.
    pub plan: Plan,
    /// Distribution over the pools.
    pub way: Way,
    /// Step time by term, of the pool that finishes last.
    pub step: StepTime,
    /// Footprint of the fullest rank of each pool.
    pub footprints: Vec<Footprint>,
    /// Index of the pool that finishes last.
    pub slowest: usize,
}

/// Result of planning over pools.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledAnswer {
    /// Best mixtures that the framework runs, fastest first, each with a different layout.
    pub mixtures: Vec<Mixture>,
    /// Fastest mixture that needs unequal micro-batches, if it beats those that the framework runs.
    pub beyond: Option<Mixture>,
    /// Best plan of each pool by itself, for the same batch.
    pub alone: Vec<Option<Evaluation>>,
    /// Number of mixtures evaluated.
    pub priced: usize,
}

/// Margin by which a pool's view of a plan may be slower than its relative speed predicts.
const MOST_UNLIKE: f64 = 1.1;

impl Pooled {
    /// Creates the planning problem; `problem_of` builds the problem of one cluster.
    ///
    /// # Errors
    ///
    /// Those of `problem_of`.
    pub fn new<E>(
        cluster: PooledCluster,
        mut problem_of: impl FnMut(Cluster) -> Result<Problem, E>,
    ) -> Result<Self, E> {
        let mut alone = Vec::new();
        let mut joined = Vec::new();
        for (at, pool) in cluster.pools.iter().enumerate() {
            alone.push(problem_of(pool.cluster.clone())?);
            joined.push(problem_of(cluster.joined(at))?);
        }
        Ok(Self { cluster, alone, joined })
    }

    /// Cluster with all its pools.
    pub const fn cluster(&self) -> &PooledCluster {
        &self.cluster
    }
    /// Problem of each pool by itself.
    pub fn alone(&self) -> &[Problem] {
        &self.alone
    }
    /// Problem of each pool as part of the whole.
    pub fn joined(&self) -> &[Problem] {
        &self.joined
    }
    /// Number of GPUs of each pool.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.cluster.pools.iter().map(|pool| pool.cluster.gpus)
    }

    /// Best mixtures under restrictions, with the best plan of each pool alone.
    pub fn answer(&self, options: &SearchOptions) -> PooledAnswer {
        let family = options.restrictions.family(self.joined[0].stack().family);
        let (staged, refined) = stages::best(self, options);
        let ceilings = self.ceilings(&staged, options.top, family);
        let (mut all, mut priced) = replicas::best(self, options, &ceilings);
        all.extend(staged);
        priced += refined;
        all.sort_by(|a, b| a.step.total().get().total_cmp(&b.step.total().get()));
        let (runs, beyond): (Vec<_>, Vec<_>) = all.into_iter().partition(|mixture| mixture.way.runs(family));
        let mut mixtures: Vec<Mixture> = Vec::new();
        for mixture in runs {
            if mixtures.len() < options.top && !mixtures.iter().any(|known| known.is_like(&mixture)) {
                mixtures.push(mixture);
            }
        }
        let fastest = mixtures.first().map_or(Seconds::new(f64::INFINITY), |mixture| mixture.step.total());
        let beyond = beyond.into_iter().next().filter(|mixture| mixture.step.total() < fastest);
        PooledAnswer { mixtures, beyond, alone: self.best_alone(&options.restrictions), priced }
    }

    /// All distributions of one plan over the pools, fastest first: replicas with equal and with optimal shares, and stages
    /// in every order of the pools, with the layers that the split spells out or else optimised ones.
    pub fn ways(&self, plan: &Plan) -> Vec<Mixture> {
        let mut found = replicas::ways(self, plan);
        found.extend(stages::ways(self, plan));
        found.sort_by(|a, b| a.step.total().get().total_cmp(&b.step.total().get()));
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
        let whole: Vec<Seconds> = self.joined.iter().map(|problem| stages::whole(problem, &first.plan)).collect();
        let least = whole.iter().copied().fold(Seconds::new(f64::INFINITY), Seconds::min);
        whole.iter().map(|own| (fastest * (*own / least) * MOST_UNLIKE).max(last)).collect()
    }

    fn best_alone(&self, restrictions: &Restrictions) -> Vec<Option<Evaluation>> {
        let options = SearchOptions { top: 1, restrictions: restrictions.clone() };
        let best = |problem: &Problem| {
            let costs = Costs::new(problem);
            WhatIfs::new(&costs).ask(&options, Goal::Fastest).evaluations.into_iter().next()
        };
        self.alone.iter().map(best).collect()
    }
}

impl Mixture {
    /// Whether another mixture has the same layout and distribution over pools.
    fn is_like(&self, other: &Self) -> bool {
        self.plan.layout == other.plan.layout && std::mem::discriminant(&self.way) == std::mem::discriminant(&other.way)
    }

    /// Footprints of the ranks of one pool: one per pipeline rank, or of the fullest rank if a replica runs within the
    /// pool.
    pub fn ranks_of(&self, pool: usize) -> Vec<Footprint> {
        match &self.way {
            Way::Replicas { .. } => vec![self.footprints[pool]],
            Way::Stages { of_rank, refined } => {
                let here = refined.price.footprints.iter().zip(of_rank);
                here.filter(|(_, of)| **of == pool).map(|(held, _)| *held).collect()
            }
        }
    }

    /// Evaluation of one pool's share of the plan, as used for figures and confidence.
    pub fn evaluation(&self, pool: usize) -> Evaluation {
        Evaluation { plan: self.plan, step: self.step, footprint: self.footprints[pool] }
    }
}
