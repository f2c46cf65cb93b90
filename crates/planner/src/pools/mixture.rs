//! Planning problems over pools, and plans that use all pools.

use crate::refine::Refined;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cluster::pools::PooledCluster;
use meshwright_engine::cost::{Evaluation, Footprint, StepTime};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;

/// Planning problem over several pools.
#[derive(Clone, Debug)]
pub struct Pooled {
    cluster: PooledCluster,
    alone: Vec<Problem>,
    joined: Vec<Problem>,
}

/// Distribution of a plan over pools.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
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

impl Distribution {
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
    pub distribution: Distribution,
    /// Step time by term, of the pool that finishes last.
    pub step: StepTime,
    /// Footprint of the fullest rank of each pool.
    pub footprints: Vec<Footprint>,
    /// Index of the pool that finishes last.
    pub slowest: usize,
}

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

    /// The pools with other problems of each by itself.
    #[must_use]
    pub fn with_separate(self, alone: Vec<Problem>) -> Self {
        Self { alone, ..self }
    }

    /// The problems with a share of the memory that plans may fill, `share` of each.
    #[must_use]
    pub fn under_ceilings(&self, share: impl Fn(&Problem) -> f64) -> Self {
        let under = |problems: &[Problem]| problems.iter().map(|own| own.clone().under_ceiling(share(own))).collect();
        Self { cluster: self.cluster.clone(), alone: under(&self.alone), joined: under(&self.joined) }
    }

    /// Cluster with all its pools.
    pub const fn cluster(&self) -> &PooledCluster {
        &self.cluster
    }
    /// Problem of each pool by itself.
    pub fn separate(&self) -> &[Problem] {
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
}

impl Mixture {
    /// Whether another mixture has the same layout and distribution over pools.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.plan.layout == other.plan.layout
            && std::mem::discriminant(&self.distribution) == std::mem::discriminant(&other.distribution)
    }

    /// Footprints of the ranks of one pool: one per pipeline rank, or of the fullest rank if a replica runs within the
    /// pool.
    pub fn ranks_of(&self, pool: usize) -> Vec<Footprint> {
        match &self.distribution {
            Distribution::Replicas { .. } => vec![self.footprints[pool]],
            Distribution::Stages { of_rank, refined } => {
                let here = refined.price.footprints.iter().zip(of_rank);
                here.filter(|(_, of)| **of == pool).map(|(held, _)| *held).collect()
            }
        }
    }

    /// Evaluation of one pool's share of the plan, as used for figures and confidence.
    pub fn evaluation(&self, pool: usize) -> Evaluation {
        Evaluation { plan: self.plan.clone(), step: self.step, footprint: self.footprints[pool] }
    }
}

/// Share of one pool in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of replicas in the pool.
    pub replicas: u32,
    /// Micro-batches of each replica.
    pub micro_batches: u32,
}
