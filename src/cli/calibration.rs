//! Calibration files laid over a cluster and a stack.

use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::output;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::stack::Stack;
use meshwright_lab::probe::Calibration;
use meshwright_planner::catalog;

/// Applies a calibration file to a cluster and a stack, and reports on stderr which figures it replaces.
pub(super) fn lay_over(path: &Path, cluster: &mut Cluster, stack: &mut Stack) -> Result<()> {
    let origin = || format!("--calibration {}", path.display());
    let calibration = Calibration::parse(&read(path).with_context(origin)?).with_context(origin)?;
    let device = catalog::gpu(&calibration.samples.gpu).with_context(origin)?;
    calibration.apply(&device.name, cluster, stack).with_context(origin)?;
    let figures: Vec<String> = calibration.figures().iter().map(ToString::to_string).collect();
    let Calibration { samples, .. } = &calibration;
    output::talk(&format!(
        "{} on {} of {}: {}",
        samples.basis,
        samples.machine.device,
        samples.machine.date,
        if figures.is_empty() { "nothing".to_owned() } else { figures.join(", ") }
    ));
    Ok(())
}

pub(super) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| anyhow!("{}: cannot be read: {error}", path.display()))
}
