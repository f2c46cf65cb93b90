//! Defaults that depend on the machine.

use meshwright_engine::cluster::Cluster;
use meshwright_engine::model::Model;
use meshwright_frameworks::Framework;
use meshwright_planner::catalog;

/// Stack of a framework on the devices of a cluster that runs a model; without a framework, the usual one on those devices.
pub(super) fn default_stack(model: &Model, cluster: &Cluster, framework: Option<&'static Framework>) -> &'static str {
    let gpu = &cluster.gpu;
    let usual = match framework {
        Some(framework) => catalog::defaults::stack_of(framework.stack, framework.family(), gpu),
        None => catalog::defaults::stack(gpu),
    };
    catalog::defaults::stack_for(model, usual)
}
