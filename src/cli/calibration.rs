//! Text files that `calibrate` and `measure` read.

use std::path::Path;

use anyhow::Result;

use meshwright_planner::catalog;

/// Longest text of samples or of a profiler's trace that is read; a trace of a few steps has megabytes.
const LONGEST: u64 = 1 << 30;

/// Text of a file of samples, of a trace or of a program's output.
pub(super) fn read(path: &Path) -> Result<String> {
    Ok(catalog::read_long(path, LONGEST)?)
}
