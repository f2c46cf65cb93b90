//! Folder of a study: read, locked and written.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::posterior::Posterior;
use super::study::{STUDY, Study, TuneError};
use super::trials::Trials;
use crate::files::{self, Draft, Existing, FileError, FileMode, Kept};
use crate::question::Noted;

/// Name of the file of the trials.
const TRIALS: &str = "trials.csv";
/// Name of the file that a process locks while it changes the folder.
const LOCK: &str = ".lock";

/// Folder of a study.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// Folder that no other process changes as long as this value lives; the system frees it when the process ends, however it
/// ends.
#[derive(Debug)]
pub struct Locked {
    folder: Folder,
    _lock: File,
}

impl Folder {
    /// Folder at a path.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Study and trials.
    ///
    /// # Errors
    ///
    /// No study is there, or a file of it is not in its form.
    pub fn read(&self) -> Result<(Study, Trials), TuneError> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|why| match why.kind() {
                std::io::ErrorKind::NotFound => TuneError::Missing(self.0.clone()),
                _ => TuneError::Unreadable { path: path.to_owned(), why },
            })
        };
        let (study, trials) = (self.0.join(STUDY), self.0.join(TRIALS));
        Ok((Study::parse(&read(&study)?, &study)?, Trials::parse(&read(&trials)?, &trials)?))
    }

    /// Posterior of the study, with notes.
    ///
    /// # Errors
    ///
    /// No study is there, or a file of it is not in its form.
    pub fn posterior(&self) -> Result<Noted<Posterior>, TuneError> {
        let (study, trials) = self.read()?;
        Posterior::new(study, trials, &self.0)
    }

    /// Locks a folder that holds a study, as [`Self::lock`] does, and reads it.
    ///
    /// # Errors
    ///
    /// No study is there, a file of it is not in its form, or the folder cannot be locked.
    pub fn lock_posterior(&self) -> Result<(Locked, Noted<Posterior>), TuneError> {
        if !self.0.join(STUDY).is_file() {
            return Err(TuneError::Missing(self.0.clone()));
        }
        let locked = self.lock()?;
        Ok((locked, self.posterior()?))
    }

    /// Waits until no other process changes the folder, and keeps others waiting. The folder is made if it is missing; what killed
    /// processes left half written is removed.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or locked.
    pub fn lock(&self) -> Result<Locked, TuneError> {
        let path = self.0.join(LOCK);
        let unwritable = |why| TuneError::Written(FileError::unwritable(&path, why));
        std::fs::create_dir_all(&self.0).map_err(unwritable)?;
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(unwritable)?;
        lock.lock().map_err(unwritable)?;
        files::remove_drafts(&self.0);
        Ok(Locked { folder: self.clone(), _lock: lock })
    }
}

impl Locked {
    /// Writes a new study. The question is written last: without it no study is there. A study that is replaced stays
    /// where the new one cannot be written.
    ///
    /// # Errors
    ///
    /// A study is there and may not be replaced, or a file cannot be written.
    pub fn create(&self, study: &Study, trials: &Trials, existing: Existing) -> Result<(), TuneError> {
        let path = self.folder.0.join(STUDY);
        if existing == Existing::Keep && path.exists() {
            return Err(TuneError::Exists(self.folder.0.clone()));
        }
        let places = [self.folder.0.join(TRIALS), path];
        let texts = [trials.text()?, study.text()?];
        let mut drafts = Vec::new();
        for (place, text) in places.iter().zip(texts) {
            drafts.push(files::draft(place, text, Existing::Replace, FileMode::Data)?);
        }
        let mut kept = Kept::default();
        for place in &places {
            kept.keep(place);
        }
        let [_, question] = &places;
        let _ = std::fs::remove_file(question);
        drafts.into_iter().try_for_each(Draft::publish).map_err(|why| {
            kept.put_back();
            TuneError::Written(why)
        })
    }

    /// Replaces the trials.
    ///
    /// # Errors
    ///
    /// The file cannot be written; the old one stays.
    pub fn write(&self, trials: &Trials) -> Result<(), TuneError> {
        Ok(files::write(&self.folder.0.join(TRIALS), trials.text()?, Existing::Replace, FileMode::Data)?)
    }
}
