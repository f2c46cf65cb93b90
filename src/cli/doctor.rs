//! `meshwright doctor`: checks whether this host can run measurements.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::format::OutputFormat;
use super::timing::CUDA_BUILD;
use super::{Outcome, output};
use crate::report::{Sheet, json};
use meshwright_lab::probe::device;
use meshwright_lab::probe::doctor::{Check, State, hardware, libraries, library_folders, unsearched_folders};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder below which to read the host's files.
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    root: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    can_measure: bool,
    checks: &'a [Check],
}

/// Runs the command; a host that cannot measure at all is reported by the exit code.
pub fn run(args: &Args) -> Result<Outcome> {
    let checks = checks(&args.root);
    let vital = ["this build", "kernel driver", "GPUs", "libcuda"];
    let can_measure = !checks.iter().any(|check| check.state == State::Missing && vital.contains(&check.what.as_str()));
    if args.format == OutputFormat::Json {
        output::print(&json::text(&Document { schema: json::SCHEMA, can_measure, checks: &checks })?)?;
    } else {
        let mut sheet = Sheet::new("What measuring needs", &["check", "state", "found", "to do"]);
        for Check { what, state, found, remedy } in &checks {
            sheet.push([what.clone(), state.to_string(), found.clone(), remedy.clone()]);
        }
        output::print(&output::sheets(&[sheet], args.format)?)?;
    }
    Ok(if can_measure { Outcome::Answered } else { Outcome::NoDevice })
}

/// Prefixes of the environments of Python that are active or on the search path.
fn pythons() -> Vec<PathBuf> {
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|folder| folder.join("python3").exists())
        .filter_map(|folder| Some(folder.parent()?.to_owned()))
        .collect();
    active.chain(on_path).collect()
}

fn checks(root: &Path) -> Vec<Check> {
    let build = if cfg!(feature = "cuda") {
        Check::new("this build", State::Good, "with the GPU probe", "")
    } else {
        Check::new("this build", State::Missing, "without the GPU probe", CUDA_BUILD)
    };
    let mut checks = vec![build];
    checks.extend(hardware(&device::read(root)));
    let search_path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    checks.extend(libraries(&library_folders(root, &search_path), &unsearched_folders(root, &pythons())));
    #[cfg(feature = "cuda")]
    checks.extend(meshwright_lab::probe::doctor::cudnn());
    #[cfg(feature = "cuda")]
    checks.extend(meshwright_lab::probe::doctor::management());
    checks
}
