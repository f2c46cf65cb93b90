//! Output files: written completely or not at all, and never over existing files without `--force`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

use meshwright_frameworks::emit::EmittedFile;

/// Treatment of existing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keep them and write nothing.
    Keep,
    /// Replace them.
    Replace,
}

impl Existing {
    /// Treatment that `--force` selects.
    pub const fn from_force(force: bool) -> Self {
        if force { Self::Replace } else { Self::Keep }
    }
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
    if existing == Existing::Keep
        && let Some(there) = paths.iter().find(|path| path.symlink_metadata().is_ok())
    {
        bail!("{} already exists\n\nhint: --force replaces it", there.display());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    let mut ready = Vec::new();
    for (file, path) in files.iter().zip(&paths) {
        let cannot = || format!("{}: cannot be written", path.display());
        let mut beside = NamedTempFile::new_in(folder).with_context(cannot)?;
        beside.write_all(file.text.as_bytes()).and_then(|()| beside.as_file().sync_all()).with_context(cannot)?;
        permit(&beside, file).with_context(cannot)?;
        ready.push(beside);
    }
    for (beside, path) in ready.into_iter().zip(&paths) {
        let moved = match existing {
            Existing::Keep => beside.persist_noclobber(path),
            Existing::Replace => beside.persist(path),
        };
        moved.map_err(|error| error.error).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(paths)
}

/// Sets the usual permissions of a new file, and makes scripts executable; temporary files are private to their owner.
#[cfg(unix)]
fn permit(beside: &NamedTempFile, file: &EmittedFile) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let is_script = Path::new(&file.name).extension().is_some_and(|extension| extension == "sh");
    let mode = if is_script { 0o755 } else { 0o644 };
    beside.as_file().set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn permit(_: &NamedTempFile, _: &EmittedFile) -> std::io::Result<()> {
    Ok(())
}
