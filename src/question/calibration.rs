//! Calibration files laid over a cluster and a stack.

use std::error::Error;
use std::path::Path;

use itertools::Itertools;

use super::error::QuestionError;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::stack::Stack;
use meshwright_lab::probe::Calibration;
use meshwright_lab::probe::clocks::RUN_OVER_LAYER;
use meshwright_planner::catalog;

/// Applies a calibration file to a cluster and a stack, and says which figures it replaces.
pub(super) fn lay_over(path: &Path, cluster: &mut Cluster, stack: &mut Stack) -> Result<String, QuestionError> {
    let text = catalog::read_long(path, LONGEST)?;
    let mut applied = || -> Result<Calibration, Box<dyn Error>> {
        let calibration = Calibration::parse(&text)?;
        let device = catalog::gpu(&calibration.samples.gpu)?;
        calibration.apply(&device.name, cluster, stack)?;
        Ok(calibration)
    };
    let calibration = applied().map_err(|error| {
        let causes = std::iter::successors(Some(error.as_ref()), |&error| error.source());
        QuestionError::Calibration { path: path.to_owned(), why: causes.map(ToString::to_string).join(": ") }
    })?;
    let figures: Vec<String> = calibration.figures().iter().map(ToString::to_string).collect();
    let Calibration { samples, .. } = &calibration;
    let clocks = if cluster.gpus > 1 && cluster.gpu.gemm.keys().any(|format| calibration.has_clocks(*format)) {
        format!("; GEMMs at {RUN_OVER_LAYER} of the clocks of one GPU by itself, as runs keep")
    } else {
        String::new()
    };
    Ok(format!(
        "{} on {} of {}: {}{clocks}",
        samples.basis,
        samples.machine.device,
        samples.machine.date,
        if figures.is_empty() { "nothing".to_owned() } else { figures.join(", ") }
    ))
}

/// Longest calibration file that is read; one of a whole device has megabytes.
const LONGEST: u64 = 1 << 30;
