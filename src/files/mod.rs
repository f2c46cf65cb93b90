//! Output files: written beside their place, synchronised and renamed; an existing file stays unless its replacement was asked
//! for.

pub(crate) mod disk;
mod kept;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use meshwright_frameworks::emit::EmittedFile;

use kept::DRAFT;
pub use kept::Kept;

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

/// Error of an output file; its place is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file is there, and its replacement was not asked for.
    #[error("{path} already exists\n\nhint: --force replaces it")]
    Exists {
        /// Path of the file.
        path: String,
    },
    /// The file cannot be written.
    #[error("{path}: cannot be written: {why}")]
    Unwritable {
        /// Path of the file.
        path: String,
        /// Cause; part of the message, so it is not the error's source too.
        why: io::Error,
    },
}

impl FileError {
    pub(crate) fn unwritable(path: &Path, why: io::Error) -> Self {
        Self::Unwritable { path: path.display().to_string(), why }
    }
}

/// Permissions of a new file, as far as the process's mask allows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// Read and write.
    Data,
    /// Read, write and execute.
    Script,
}

/// File under construction. Dropped before [`publish`](Self::publish), it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    existing: Existing,
    medium: Medium,
}

#[derive(Debug)]
enum Medium {
    /// Temporary file, and the place that it takes: the target of `path` where that is a symbolic link.
    Beside(NamedTempFile, PathBuf),
    /// Device or pipe, which holds nothing that could be lost.
    Stream(File),
}

/// Errors unless a path is free to be written: nothing is there, or its replacement was asked for, or it is no regular file.
///
/// # Errors
///
/// Names the existing file.
pub fn check_free(path: &Path, existing: Existing) -> Result<(), FileError> {
    let found = path.symlink_metadata().is_ok() && !is_stream(path);
    if found && existing == Existing::Keep {
        return Err(FileError::Exists { path: path.display().to_string() });
    }
    Ok(())
}

/// Whether a path is a device or a pipe.
fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| !data.is_file() && !data.is_dir())
}

impl Draft {
    /// Starts a file, in the folder that it will be in.
    ///
    /// # Errors
    ///
    /// Names the existing file, or why none can be written there.
    pub fn new(path: &Path, existing: Existing, mode: FileMode) -> Result<Self, FileError> {
        check_free(path, existing)?;
        let failed = |why| FileError::unwritable(path, why);
        let medium = if is_stream(path) {
            Medium::Stream(File::options().write(true).open(path).map_err(failed)?)
        } else {
            let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            if place.is_dir() {
                return Err(failed(io::Error::new(io::ErrorKind::IsADirectory, "is a folder")));
            }
            let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Medium::Beside(temporary(folder, mode).map_err(failed)?, place)
        };
        Ok(Self { path: path.to_owned(), existing, medium })
    }

    /// Path of the file, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Place that the file takes; none for a device or a pipe.
    pub fn place(&self) -> Option<&Path> {
        match &self.medium {
            Medium::Beside(_, place) => Some(place),
            Medium::Stream(_) => None,
        }
    }

    /// Path of the content until it is in its place.
    pub fn written(&self) -> &Path {
        match &self.medium {
            Medium::Beside(temporary, _) => temporary.path(),
            Medium::Stream(_) => &self.path,
        }
    }

    /// Synchronises the content to disk, so that a full disk is known before anything is renamed.
    ///
    /// # Errors
    ///
    /// The content cannot be written.
    pub fn sync(&self) -> Result<(), FileError> {
        match &self.medium {
            Medium::Beside(temporary, _) => {
                disk::sync(temporary.as_file()).map_err(|why| FileError::unwritable(&self.path, why))
            }
            Medium::Stream(_) => Ok(()),
        }
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    ///
    /// The content cannot be written, or a file has appeared in its place; whatever was there stays.
    pub fn publish(self) -> Result<(), FileError> {
        self.sync()?;
        let Self { path, existing, medium } = self;
        let Medium::Beside(temporary, place) = medium else { return Ok(()) };
        let moved = disk::allowed().and_then(|()| {
            let moved = match existing {
                Existing::Keep => temporary.persist_noclobber(&place),
                Existing::Replace => temporary.persist(&place),
            };
            moved.map_err(|error| error.error)
        });
        match moved {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                Err(FileError::Exists { path: path.display().to_string() })
            }
            Err(why) => Err(FileError::unwritable(&path, why)),
            Ok(_) => {
                // The name, too, survives a loss of power where the file system can synchronise folders.
                let folder = place.parent().and_then(|folder| File::open(folder).ok());
                let _ = folder.map(|folder| folder.sync_all());
                Ok(())
            }
        }
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.medium {
            Medium::Beside(temporary, _) => disk::write(temporary.as_file_mut(), bytes),
            Medium::Stream(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.medium {
            Medium::Beside(temporary, _) => temporary.flush(),
            Medium::Stream(file) => file.flush(),
        }
    }
}

/// Removes the drafts of killed processes from a folder and the folders in it. The caller knows that no other process writes there;
/// what cannot be removed stays.
pub fn remove_drafts(folder: &Path) {
    let inside = |folder: &Path| folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = inside(folder).filter(|path| path.is_dir() && !path.is_symlink()).chain([folder.to_owned()]);
    for path in folders.flat_map(|folder| inside(&folder).collect::<Vec<_>>()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(DRAFT[0]) && name.ends_with(DRAFT[1]) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Hidden temporary file of a folder.
fn temporary(folder: &Path, mode: FileMode) -> io::Result<NamedTempFile> {
    disk::allowed()?;
    let mut builder = Builder::new();
    builder.prefix(DRAFT[0]).suffix(DRAFT[1]);
    #[cfg(unix)]
    let permissions = {
        use std::os::unix::fs::PermissionsExt;
        std::fs::Permissions::from_mode(if mode == FileMode::Script { 0o777 } else { 0o666 })
    };
    #[cfg(unix)]
    builder.permissions(permissions);
    #[cfg(not(unix))]
    let _ = mode;
    builder.tempfile_in(folder)
}

/// Writes a whole file.
///
/// # Errors
///
/// Names the file that exists or cannot be written; its place is as it was before.
pub fn write(path: &Path, content: impl AsRef<[u8]>, existing: Existing, mode: FileMode) -> Result<(), FileError> {
    draft(path, content, existing, mode)?.publish()
}

/// Whole file that is yet to take its place.
///
/// # Errors
///
/// As for [`write`].
pub fn draft(path: &Path, content: impl AsRef<[u8]>, existing: Existing, mode: FileMode) -> Result<Draft, FileError> {
    let mut draft = Draft::new(path, existing, mode)?;
    draft.write_all(content.as_ref()).map_err(|why| FileError::unwritable(path, why))?;
    draft.sync()?;
    Ok(draft)
}

/// Puts all files in their places, or none: where one cannot be, those before it are as they were.
///
/// # Errors
///
/// A file cannot be written, or one has appeared in its place.
pub fn publish_all(drafts: Vec<Draft>) -> Result<(), FileError> {
    let mut kept = Kept::default();
    for draft in drafts {
        let mut own = Kept::default();
        if let Some(place) = draft.place() {
            own.keep(place);
        }
        if let Err(why) = draft.publish() {
            kept.put_back();
            return Err(why);
        }
        kept.include(own);
    }
    Ok(())
}

/// Writes launch files into a folder, created if missing, and returns their paths.
///
/// All files are written to temporary names first and renamed last, so that a full disk leaves the folder as it was.
///
/// # Errors
///
/// Names the existing file, or the path that cannot be written.
pub fn write_all(folder: &Path, files: &[EmittedFile], existing: Existing) -> Result<Vec<PathBuf>, FileError> {
    let paths: Vec<PathBuf> = files.iter().map(|file| folder.join(&file.name)).collect();
    paths.iter().try_for_each(|path| check_free(path, existing))?;
    std::fs::create_dir_all(folder).map_err(|why| FileError::unwritable(folder, why))?;
    let mut drafts = Vec::new();
    for (file, path) in files.iter().zip(&paths) {
        let is_script = path.extension().is_some_and(|extension| extension == "sh");
        let mode = if is_script { FileMode::Script } else { FileMode::Data };
        drafts.push(draft(path, &file.text, existing, mode)?);
    }
    publish_all(drafts)?;
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Whatever call of the disk fails, the file is the old or the new one, and nothing is left beside it.
    #[test]
    fn a_full_disk_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "old").unwrap();
        let new = "new\n".repeat(1000);
        let mut calls = 0;
        loop {
            let written = disk::failing_after(calls, || write(&path, &new, Existing::Replace, FileMode::Data));
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "after {calls} calls");
            if written.is_ok() {
                break;
            }
            assert_eq!(content(&path), "old", "after {calls} calls: {written:?}");
            calls += 1;
        }
        assert_eq!(content(&path), new);
        assert!(calls >= 4, "creation, write, synchronisation and renaming fail one by one: {calls}");
    }

    #[test]
    fn an_existing_file_stays_unless_its_replacement_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write(&path, "first", Existing::Keep, FileMode::Data).unwrap();
        let refused = write(&path, "second", Existing::Keep, FileMode::Data).unwrap_err().to_string();
        assert!(refused.contains("already exists") && refused.contains("--force"), "{refused}");
        let late = draft(&folder.path().join("b"), "mine", Existing::Keep, FileMode::Data).unwrap();
        std::fs::write(folder.path().join("b"), "theirs").unwrap();
        assert!(matches!(late.publish(), Err(FileError::Exists { .. })), "a file that appeared meanwhile");
        assert_eq!((content(&path), content(&folder.path().join("b"))), ("first".to_owned(), "theirs".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_are_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        write(&path, "first", Existing::Keep, FileMode::Script).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, "second", Existing::Replace, FileMode::Data).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(content(&path), "second");
        write(Path::new("/dev/null"), "x", Existing::Keep, FileMode::Data).unwrap();
        let full = write(Path::new("/dev/full"), "x", Existing::Keep, FileMode::Data);
        assert!(full.is_err_and(|why| why.to_string().contains("/dev/full")));
        let folder = write(folder.path(), "x", Existing::Replace, FileMode::Data).unwrap_err();
        assert!(folder.to_string().contains("is a folder"), "{folder}");
    }
}
