//! Launch files of the chosen plan.

use std::path::PathBuf;

use anyhow::Result;

use super::output;
use crate::files::{Existing, write_all};
use crate::question::{FilesOrReasons, Noted};
use meshwright_engine::problem::Problem;
use meshwright_frameworks::Framework;
use meshwright_frameworks::emit::EmittedFile;

/// Writes files and reports their paths on stderr.
pub fn written(folder: &std::path::Path, files: &[EmittedFile], existing: Existing) -> Result<()> {
    name_written(&write_all(folder, files, existing)?);
    Ok(())
}

/// Reports the paths of written files on stderr.
pub fn name_written(paths: &[PathBuf]) {
    for path in paths {
        output::talk(&format!("wrote {}", path.display()));
    }
}

/// Launch files, with their notes on stderr; `None` with the reasons on stderr.
pub fn files_or_talk(files: Noted<FilesOrReasons>) -> Option<Vec<EmittedFile>> {
    match output::noted(files) {
        Ok(files) => Some(files),
        Err(reasons) => {
            for why in &reasons {
                output::talk(why);
            }
            None
        }
    }
}

/// Whether a framework can train the model; reports the reasons on stderr if not.
pub fn model_runs(framework: Option<&Framework>, problem: &Problem) -> bool {
    let obstacles = framework.map_or_else(Vec::new, |framework| framework.limits.problem_obstacles(problem));
    for (framework, obstacle) in framework.iter().cycle().zip(&obstacles) {
        output::talk(&format!("no {framework} files are written for this: {obstacle}"));
    }
    obstacles.is_empty()
}
