//! Results on disk: one line per option, appended as it is computed, ordered and renamed when complete.
//!
//! Each line is written by one call, so an interrupted process loses at most the options in progress. On resume, a torn
//! last line is cut off; every line that is not what was written is named, and its option computed again. The finished file is
//! written under a temporary name and renamed, so it is never incomplete.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::error::SweepError;
use super::part;
use super::record::Record;
use super::results::{Content, Form, content, ordered};
use super::select::Selection;
use super::shard::Shard;
use crate::files::{Existing, disk};

pub use super::done::Done;
pub use super::results::{Expected, lines, records};

/// Name of the finished file of a shard.
pub fn file_name(shard: Shard) -> String {
    if shard.count == 1 { "results.jsonl".into() } else { format!("results-{}-of-{}.jsonl", shard.index, shard.count) }
}

/// Results file that is being written.
#[derive(Debug)]
pub struct Store {
    finished: PathBuf,
    part: PathBuf,
    digest: String,
    options: u64,
    file: Mutex<(File, Instant)>,
}

/// Existing results that a store found on disk.
#[derive(Debug)]
pub struct StoredResults {
    /// Options that are done.
    pub done: Done,
    /// Defects of the file, with the remedy taken.
    pub notes: Vec<String>,
    /// Whether the file is already finished.
    pub finished: bool,
}

/// Longest time before appended lines are synchronised to disk.
const SYNC: Duration = Duration::from_secs(1);

impl Store {
    /// Opens the results of a shard in a folder.
    ///
    /// # Errors
    ///
    /// The folder cannot be written, or it has results that are not to be resumed, belong to another sweep, or are being
    /// written by another process.
    pub fn open(
        folder: &Path,
        shard: Shard,
        expected: Expected,
        resume: bool,
    ) -> Result<(Self, StoredResults), SweepError> {
        std::fs::create_dir_all(folder).map_err(|why| SweepError::results(folder, format!("cannot be made: {why}")))?;
        let finished = folder.join(file_name(shard));
        let part = finished.with_extension("part");
        let there = [&finished, &part].into_iter().find(|path| path.exists());
        if let Some(path) = there.filter(|_| !resume) {
            return Err(SweepError::results(
                path,
                "holds results already\n\nhint: --resume continues from them; another --out keeps them",
            ));
        }
        let is_finished = finished.exists();
        let of_finished = if is_finished { content(&finished, Form::Finished, expected)? } else { Content::default() };
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&part)
            .map_err(|why| SweepError::results(&part, format!("cannot be written: {why}")))?;
        let mut notes = of_finished.defects;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(SweepError::results(&part, "is being written by another process"));
            }
            Err(TryLockError::Error(_)) => notes.push(format!("{}: this file system has no locks", part.display())),
        }
        let of_part = content(&part, Form::Part, expected)?;
        notes.extend(of_part.defects);
        file.set_len(of_part.whole)
            .map_err(|why| SweepError::results(&part, format!("its incomplete last line cannot be removed: {why}")))?;
        let done = if is_finished { of_finished.done } else { of_part.done };
        let Expected { digest, options } = expected;
        let store =
            Self { finished, part, digest: digest.to_owned(), options, file: Mutex::new((file, Instant::now())) };
        Ok((store, StoredResults { done, notes, finished: is_finished }))
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn append(&self, record: &Record) -> Result<(), SweepError> {
        let failed = |why: &dyn std::fmt::Display| SweepError::results(&self.part, format!("cannot be written: {why}"));
        let line = part::line_of(&serde_json::to_string(record).map_err(|why| failed(&why))?);
        let mut guard = self.file.lock().map_err(|why| failed(&why))?;
        let (file, synced) = &mut *guard;
        disk::write_all(file, line.as_bytes()).map_err(|why| failed(&why))?;
        if synced.elapsed() > SYNC {
            *synced = Instant::now();
            file.sync_data().map_err(|why| failed(&why))?;
        }
        Ok(())
    }

    /// Orders the lines, and renames the file to its final name.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or one has appeared in its place; the unordered lines stay.
    pub fn finish(self) -> Result<PathBuf, SweepError> {
        let Self { finished, part, digest, options, file } = self;
        let expected = Expected { digest: &digest, options };
        ordered(&[part.as_path()], Form::Part, &finished, expected, Existing::Keep)?.publish()?;
        drop(file);
        std::fs::remove_file(&part).map_err(|why| SweepError::results(&part, format!("cannot be removed: {why}")))?;
        Ok(finished)
    }

    /// Closes the store and keeps the finished file as it is.
    pub fn close(self) -> PathBuf {
        let Self { finished, part, file, .. } = self;
        drop(file);
        // The finished file has all of its options, so a failure to remove it does no harm.
        let _ = std::fs::remove_file(part);
        finished
    }
}

/// Merges the results of shards into a file that is there only when it is complete, and selects from it for reports while it
/// reaches the disk.
///
/// # Errors
///
/// A file is incomplete or belongs to another sweep, two of them differ in an option, options are missing, or the target is
/// there or cannot be written.
pub fn merge(from: &[PathBuf], to: &Path, expected: Expected, existing: Existing) -> Result<Selection, SweepError> {
    let mut all = Done::default();
    let contents: Vec<_> = from.par_iter().map(|path| content(path, Form::Finished, expected)).collect();
    for (path, found) in from.iter().zip(contents) {
        let Content { done, defects, .. } = found?;
        if let Some(defect) = defects.first() {
            return Err(SweepError::results(
                path,
                format!("is incomplete: {defect}\n\nhint: run its shard again with --resume"),
            ));
        }
        all.include(&done);
    }
    let missing = expected.options - all.count();
    if missing > 0 {
        let first: Vec<String> =
            (0..expected.options).filter(|option| !all.has(*option)).take(5).map(|o| o.to_string()).collect();
        let why = format!(
            "{missing} of {} options are missing, the first of them {}: is a shard missing?",
            expected.options,
            first.join(", ")
        );
        return Err(SweepError::results(to, why));
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(|why| SweepError::results(folder, format!("cannot be made: {why}")))?;
    }
    let paths: Vec<&Path> = from.iter().map(PathBuf::as_path).collect();
    let draft = ordered(&paths, Form::Finished, to, expected, existing)?;
    let (synced, selection) = rayon::join(|| draft.sync(), || Selection::read(draft.written()));
    synced?;
    draft.publish()?;
    selection
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::record::{OptionStatus, SCHEMA};

    const EXPECTED: Expected = Expected { digest: "d", options: 4 };

    fn record(option: u64) -> Record {
        Record {
            schema: SCHEMA,
            sweep: EXPECTED.digest.to_owned(),
            option,
            label: format!("option {option}"),
            choice: [("gpus".to_owned(), "8".to_owned())].into(),
            status: OptionStatus::Infeasible,
            reason: Some("none".to_owned()),
            gpu: "H100".to_owned(),
            gpus: 8,
            totals: None,
            jobs: Vec::new(),
        }
    }

    /// A sweep whose options are computed in an order that is not theirs.
    fn sweep(folder: &Path, resume: bool) -> Result<(PathBuf, Vec<String>), SweepError> {
        let (store, found) = Store::open(folder, Shard::default(), EXPECTED, resume)?;
        if found.finished {
            return Ok((store.close(), found.notes));
        }
        for option in [2, 0, 3, 1].into_iter().filter(|option| !found.done.has(*option)) {
            store.append(&record(option))?;
        }
        Ok((store.finish()?, found.notes))
    }

    /// Whatever call of the disk is the first that fails, the next run ends with the bytes of an undisturbed one.
    #[test]
    fn a_full_disk_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, _) = sweep(&folder.path().join("whole"), false).unwrap();
        let whole = std::fs::read(whole).unwrap();
        let mut calls = 0;
        loop {
            let own = folder.path().join(calls.to_string());
            let stopped = disk::failing_after(calls, || sweep(&own, false));
            assert_eq!(own.join("results.jsonl").exists(), stopped.is_ok(), "after {calls} calls");
            let (finished, notes) = sweep(&own, true).unwrap();
            assert_eq!(std::fs::read(finished).unwrap(), whole, "after {calls} calls");
            assert_eq!(std::fs::read_dir(&own).unwrap().count(), 1, "after {calls} calls: only the results stay");
            assert!(notes.len() <= 1, "{notes:?}");
            if stopped.is_ok() {
                break;
            }
            calls += 1;
        }
        assert!(calls >= 8, "four lines, and creation, writing, synchronisation and renaming of the file: {calls}");
    }

    /// Torn, foreign, edited and doubled lines in any place: named, never believed, and computed again.
    #[test]
    fn lines_that_were_not_written_so_are_computed_again() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, _) = sweep(&folder.path().join("whole"), false).unwrap();
        let whole = std::fs::read_to_string(whole).unwrap();
        let line = |option: u64| part::line_of(&serde_json::to_string(&record(option)).unwrap());
        let foreign = part::line_of(&serde_json::to_string(&Record { sweep: "e".into(), ..record(1) }).unwrap());
        let beyond = part::line_of(&serde_json::to_string(&record(u64::MAX)).unwrap());
        let cases = [
            (line(1).replace("none", "some"), "does not match its checksum"),
            (foreign.clone(), "is a result of another sweep"),
            (beyond, "is not a result of this version"),
            (line(1)[..40].to_owned() + "\n", "does not match its checksum"),
            (line(1).split_once(' ').unwrap().1.split_once(' ').unwrap().1.to_owned(), "is not a result"),
            ("\0\0\0\n".to_owned(), "is not a result"),
            ("\u{fffd}\n".repeat(30), "20 further lines"),
            (line(0), ""),
        ];
        for (at, (damage, named)) in cases.into_iter().enumerate() {
            let own = folder.path().join(at.to_string());
            std::fs::create_dir(&own).unwrap();
            std::fs::write(own.join("results.part"), line(0) + &damage + &line(3)).unwrap();
            let (finished, notes) = sweep(&own, true).unwrap();
            assert_eq!(std::fs::read_to_string(finished).unwrap(), whole, "{damage:?}");
            assert!(notes.iter().any(|note| note.contains(named)) || named.is_empty(), "{damage:?}: {notes:?}");
            assert!(notes.iter().all(|note| note.contains("results.part")), "{notes:?}");
        }
        let own = folder.path().join("foreign");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("results.part"), &foreign).unwrap();
        let why = sweep(&own, true).unwrap_err().to_string();
        assert!(why.contains("another sweep"), "{why}");
        assert_eq!(std::fs::read_to_string(own.join("results.part")).unwrap(), foreign, "theirs are not lost");
    }

    #[test]
    fn a_merge_writes_only_complete_and_identical_results() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, records: &[Record]| {
            let path = folder.path().join(name);
            let lines = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n");
            std::fs::write(&path, lines.collect::<String>()).unwrap();
            path
        };
        let [first, second] = [file("1", &[record(0), record(2)]), file("2", &[record(1), record(2), record(3)])];
        let to = file("results.jsonl", &[record(0)]);
        let before = std::fs::read(&to).unwrap();
        let merged = |from: &[&PathBuf], existing| {
            let from: Vec<PathBuf> = from.iter().map(|path| (*path).clone()).collect();
            merge(&from, &to, EXPECTED, existing).map_err(|why| why.to_string())
        };
        let missing = merged(&[&first], Existing::Replace).unwrap_err();
        assert!(missing.contains("2 of 4 options are missing, the first of them 1, 3"), "{missing}");
        assert!(merged(&[&first, &second], Existing::Keep).unwrap_err().contains("--force"));
        let other = file("3", &[Record { reason: Some("else".into()), ..record(0) }]);
        let differ = merged(&[&first, &second, &other], Existing::Replace).unwrap_err();
        assert!(differ.contains("differ in option 0"), "{differ}");
        assert_eq!(std::fs::read(&to).unwrap(), before);
        merged(&[&first, &second], Existing::Replace).unwrap();
        assert_eq!(std::fs::read_to_string(&to).unwrap().lines().count(), 4);
    }
}
