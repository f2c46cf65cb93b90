//! Output files of commands.

use std::io::read_to_string;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files::{self, Existing, FileMode};
use meshwright_lab::runs::{self, Row};
use meshwright_lab::validate::sources::SourceFits;
use meshwright_planner::catalog;

/// Flag that allows existing files to be replaced.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ForceArgs {
    /// Overwrite existing files.
    #[arg(long)]
    force: bool,
}

impl ForceArgs {
    /// Treatment of existing files.
    pub const fn existing(self) -> Existing {
        Existing::from_force(self.force)
    }
}

/// File that a command writes its result to, with the date in it.
#[derive(Debug, clap::Args)]
pub struct ResultFileArgs {
    /// Date, as written to the file.
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "undated")]
    pub date: String,
    /// File to write the result to.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub force: ForceArgs,
}

impl ResultFileArgs {
    /// Errors before any work if the file is there and may not be replaced.
    ///
    /// # Errors
    ///
    /// Names the existing file.
    pub fn check_free(&self) -> Result<()> {
        check_free(&self.out, self.force.existing())
    }

    /// Writes the file, if the user named one.
    ///
    /// # Errors
    ///
    /// There is no `text`, or the file exists or cannot be written.
    pub fn write(&self, text: impl FnOnce() -> Result<String>) -> Result<()> {
        let Some(path) = &self.out else { return Ok(()) };
        write(path, &text()?, self.force.existing())
    }
}

/// Text of a file or a pipe that the user named.
///
/// # Errors
///
/// Names the file that cannot be read.
pub fn read_text(path: &Path) -> Result<String> {
    catalog::open(path).and_then(read_to_string).with_context(|| format!("{}: cannot be read", path.display()))
}

/// Rows of a CSV file of runs.
///
/// # Errors
///
/// Names the file that cannot be read or is in another form.
pub fn read_runs(path: &Path) -> Result<Vec<Row>> {
    let file = catalog::open(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    runs::read(file).with_context(|| path.display().to_string())
}

/// Constants fitted without each source, from the file that `fit --sources` wrote.
///
/// # Errors
///
/// Names the file that cannot be read or is in another form.
pub fn read_source_fits(path: &Path) -> Result<SourceFits> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// Writes one file.
///
/// # Errors
///
/// Names the file that exists or cannot be written.
pub fn write(path: &Path, text: &str, existing: Existing) -> Result<()> {
    Ok(files::write(path, text, existing, FileMode::Data)?)
}

/// Errors before any work if a file that the user named is there and may not be replaced.
///
/// # Errors
///
/// Names the existing file.
pub fn check_free<'a>(paths: impl IntoIterator<Item = &'a PathBuf>, existing: Existing) -> Result<()> {
    paths.into_iter().try_for_each(|path| Ok(files::check_free(path, existing)?))
}
