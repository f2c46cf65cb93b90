//! Output files of commands: one under its name, or several of a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files::{self, Draft, Existing, FileMode};
use meshwright_frameworks::emit::EmittedFile;

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

/// Writes files into a folder, created if missing, and returns their paths.
///
/// All files are written to temporary names first and renamed last, so that a full disk leaves no partial file.
///
/// # Errors
///
/// Names the existing file, or the path that cannot be written.
pub fn write_all(folder: &Path, files: &[EmittedFile], existing: Existing) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = files.iter().map(|file| folder.join(&file.name)).collect();
    check_free(&paths, existing)?;
    std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    let mut drafts = Vec::new();
    for (file, path) in files.iter().zip(&paths) {
        let is_script = path.extension().is_some_and(|extension| extension == "sh");
        drafts.push(files::draft(
            path,
            &file.text,
            existing,
            if is_script { FileMode::Script } else { FileMode::Data },
        )?);
    }
    drafts.into_iter().try_for_each(Draft::publish)?;
    Ok(paths)
}
