//! Pools of unlike GPUs: which layouts use them all, and what each pool does.
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
use crate::search::{Goal, Options, WhatIfs};
use crate::space::Restrictions;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cluster::pools::PooledCluster;
use meshwright_engine::cost::{Costs, Evaluation, Footprint, StepTime};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_engine::units::Seconds;

pub use replicas::Share;

/// One question over pools.
#[derive(Clone, Debug)]
pub struct Pooled {
    cluster: PooledCluster,
    alone: Vec<Problem>,
    joined: Vec<Problem>,
}

/// How a plan uses the pools.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// Each replica lives in one pool.
    Replicas {
        /// Replicas of each pool, and what each takes.
        shares: Vec<Share>,
    },
    /// Each pipeline stage lives in one pool.
    Stages {
        /// The pool of each pipeline rank.
        of_rank: Vec<usize>,
        /// Layers and recomputation of each stage, and what is proved of them.
        refined: Box<Refined>,
    },
}

impl Way {
    /// Whether a family of software runs it: every one that is published takes as many micro-batches on every replica.
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

/// One way to run a problem over all pools, with its price.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// Degrees, schedule and sharding, the same for all pools.
    pub plan: Plan,
    /// What each pool does.
    pub way: Way,
    /// Step time by term: that of the pool that is ready last.
    pub step: StepTime,
    /// The fullest rank of each pool.
    pub footprints: Vec<Footprint>,
    /// The pool that is ready last.
    pub slowest: usize,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The best mixtures that the framework runs, the fastest first, each of another layout.
    pub mixtures: Vec<Mixture>,
    /// The fastest that only a framework of one's own runs, where it is faster.
    pub beyond: Option<Mixture>,
    /// The best plan of each pool by itself, for the same batch.
    pub alone: Vec<Option<Evaluation>>,
    /// Mixtures priced.
    pub priced: usize,
}

/// How much slower than by its speed a pool's view of a plan may be.
const MOST_UNLIKE: f64 = 1.1;

impl Pooled {
    /// The question, where `problem_of` puts it to a cluster.
    ///
    /// # Errors
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

    /// The pools.
    pub const fn cluster(&self) -> &PooledCluster {
        &self.cluster
    }
    /// The problem of each pool by itself.
    pub fn alone(&self) -> &[Problem] {
        &self.alone
    }
    /// The problem of each pool as part of the whole.
    pub fn joined(&self) -> &[Problem] {
        &self.joined
    }
    /// GPUs of each pool.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.cluster.pools.iter().map(|pool| pool.cluster.gpus)
    }

    /// The best mixtures under restrictions, and the best of each pool alone.
    pub fn answer(&self, options: &Options) -> Answer {
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
        Answer { mixtures, beyond, alone: self.best_alone(&options.restrictions), priced }
    }

    /// Every way to run one plan over all pools, the fastest first: replicas with alike and with the best shares, and stages in
    /// every order of the pools, with the layers that its split spells out or else the best.
    pub fn ways(&self, plan: &Plan) -> Vec<Mixture> {
        let mut found = replicas::ways(self, plan);
        found.extend(stages::ways(self, plan));
        found.sort_by(|a, b| a.step.total().get().total_cmp(&b.step.total().get()));
        found
    }

    /// What a plan of replicas may take in each pool's view, where so many mixtures of stages are known already.
    ///
    /// Alike replicas take no less than their plan does in any view, so those over the last that is told are none. Unlike ones
    /// take no less than their plan does in some view, and in another it is slower by about what the pool is.
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
        let options = Options { top: 1, restrictions: restrictions.clone() };
        let best = |problem: &Problem| {
            let costs = Costs::new(problem);
            WhatIfs::new(&costs).ask(&options, Goal::Fastest).evaluations.into_iter().next()
        };
        self.alone.iter().map(best).collect()
    }
}

impl Mixture {
    /// Whether another has the same layout and uses the pools the same way.
    fn is_like(&self, other: &Self) -> bool {
        self.plan.layout == other.plan.layout && std::mem::discriminant(&self.way) == std::mem::discriminant(&other.way)
    }

    /// Memory of the ranks of one pool: of all its pipeline ranks, or of the fullest where replicas hold them all.
    pub fn ranks_of(&self, pool: usize) -> Vec<Footprint> {
        match &self.way {
            Way::Replicas { .. } => vec![self.footprints[pool]],
            Way::Stages { of_rank, refined } => {
                let here = refined.price.footprints.iter().zip(of_rank);
                here.filter(|(_, of)| **of == pool).map(|(held, _)| *held).collect()
            }
        }
    }

    /// The share of one pool's plan as the engine evaluates it, for figures and confidence.
    pub fn evaluation(&self, pool: usize) -> Evaluation {
        Evaluation { plan: self.plan, step: self.step, footprint: self.footprints[pool] }
    }
}
