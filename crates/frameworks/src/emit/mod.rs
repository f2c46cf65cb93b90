//! A plan in a framework's own terms: files that its launcher takes as they are.

pub(crate) mod flags;
pub(crate) mod header;
pub(crate) mod language;
pub(crate) mod launcher;
pub(crate) mod request;
pub mod slurm;
pub(crate) mod snippet;
pub(crate) mod text;

use std::fmt;

use crate::framework::Framework;
use launcher::{Nodes, part_of_a_node};
use meshwright_engine::cluster::Cluster;
use meshwright_engine::cost::groups;
use meshwright_engine::plan::Plan;
use meshwright_planner::limits::Obstacle;

pub use request::{EmittedFile, PoolsHeader, Request};
pub use slurm::SlurmJob;

/// A plan that a framework cannot express.
#[derive(Clone, Debug, PartialEq)]
pub struct EmitRefusal {
    /// The framework.
    pub framework: &'static Framework,
    /// Obstacles, one line each.
    pub obstacles: Vec<Obstacle>,
    /// The nearest plan that the framework can express.
    pub nearest: Option<Box<Plan>>,
}

impl std::error::Error for EmitRefusal {}

impl fmt::Display for EmitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "no {} files are written for this", self.framework)?;
        for obstacle in &self.obstacles {
            write!(f, "\n  {obstacle}")?;
        }
        match &self.nearest {
            Some(plan) => write!(f, "\n\nhint: the nearest plan it can run: --plan \"{plan}\""),
            None => Ok(()),
        }
    }
}

/// The files of a legal plan for a framework; the launcher runs the first.
///
/// # Errors
/// Every obstacle of the plan, each with its reason, and the nearest plan without any. Nothing is approximated.
pub fn emit(framework: &'static Framework, request: &Request) -> Result<Vec<EmittedFile>, EmitRefusal> {
    let evaluation = request.spelled_out();
    let release = request.release.or_else(|| (framework.releases)().last().copied());
    let request = &Request { evaluation: &evaluation, release, ..*request };
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let limits = framework.limits;
    let of_problem = limits.problem_obstacles(problem);
    let of_nodes = request.pools.is_none().then(|| problem.cluster()).and_then(part_of_a_node);
    let possible = of_problem.is_empty() && of_nodes.is_none();
    let of_recipe = (framework.recipe_obstacle)(request);
    let near = of_recipe.as_ref().and_then(|obstacle| obstacle.instead.clone()).unwrap_or_else(|| plan.clone());
    let of_stages = request.staged.and_then(|staged| limits.stages_obstacle(problem, staged));
    let obstacles: Vec<Obstacle> = of_problem
        .into_iter()
        .chain(of_nodes)
        .chain(limits.plan_obstacles(problem, plan))
        .chain(of_recipe)
        .chain(of_stages)
        .collect();
    if !obstacles.is_empty() {
        let nearest = if possible { limits.nearest(problem, &near).map(Box::new) } else { None };
        return Err(EmitRefusal { framework, obstacles, nearest });
    }
    let mut files =
        (framework.emit)(request).map_err(|obstacles| EmitRefusal { framework, obstacles, nearest: None })?;
    // Hosts of TPUs are no nodes of Slurm.
    if request.pools.is_none() && request.costs.problem.cluster().gpu.vendor != "Google" {
        let segment = segment(problem.cluster(), plan);
        files.extend(job_of(framework, problem.cluster(), &files).map(|job| SlurmJob { segment, ..job }.script()));
    }
    Ok(files)
}

/// The Slurm job that launches a framework's files on a cluster; none where no script launches them.
pub fn job_of<'f>(framework: &Framework, cluster: &Cluster, files: &'f [EmittedFile]) -> Option<SlurmJob<'f>> {
    let Nodes { count: nodes, gpus_each: gpus_per_node } = Nodes::of_cluster(cluster);
    let is_script = |name: &&str| std::path::Path::new(name).extension().is_some_and(|extension| extension == "sh");
    let script = files.iter().map(|file| file.name.as_str()).find(is_script)?;
    Some(SlurmJob { script, software: framework.limits.title, nodes, gpus_per_node, segment: None })
}

/// Nodes that a plan fills of a scale-up domain of several, which Slurm's block topology keeps together; none for a job within one
/// domain, and where nodes are no whole parts of them.
///
/// Source: [slurm] `sbatch --segment`.
fn segment(cluster: &Cluster, plan: &Plan) -> Option<u32> {
    let (domain, node) = (cluster.scale_up.gpus, cluster.gpus_per_node);
    let filled = groups::filled(plan, domain);
    let whole =
        domain > node && cluster.gpus > filled && filled.is_multiple_of(node) && cluster.gpus.is_multiple_of(filled);
    whole.then_some(filled / node)
}
