//! Output files of commands.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::files::{self, Existing, FileMode};

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
