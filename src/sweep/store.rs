//! Results on disk: one line per option, appended as it is computed, ordered and renamed when complete.
//!
//! Each line is written by one call, so an interrupted process loses at most the options in progress. On resume, a torn
//! last line is cut off and its option repeated. The finished file is written under a temporary name and renamed, so it is
//! never incomplete.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::error::SweepError;
use super::record::{Head, Record};
use super::shard::Shard;

/// Set of the options that are on disk.
#[derive(Clone, Debug, Default)]
pub struct Done(Vec<u64>);

impl Done {
    /// Whether an option is on disk.
    pub fn has(&self, option: u64) -> bool {
        self.0.get((option / 64) as usize).is_some_and(|bits| bits >> (option % 64) & 1 == 1)
    }

    /// Marks an option as done.
    pub fn add(&mut self, option: u64) {
        let at = (option / 64) as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (option % 64);
    }

    /// Number of options that are done.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }
}

/// Name of the finished file of a shard.
pub fn file_name(shard: Shard) -> String {
    if shard.of == 1 { "results.jsonl".into() } else { format!("results-{}-of-{}.jsonl", shard.index, shard.of) }
}

/// Results file that is being written.
#[derive(Debug)]
pub struct Store {
    finished: PathBuf,
    part: PathBuf,
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
    pub fn open(folder: &Path, shard: Shard, digest: &str, resume: bool) -> Result<(Self, StoredResults), SweepError> {
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
        let mut notes = Vec::new();
        let done = if is_finished { known(&finished, digest, &mut notes)?.0 } else { Done::default() };
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&part)
            .map_err(|why| SweepError::results(&part, format!("cannot be written: {why}")))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(SweepError::results(&part, "is being written by another process"));
            }
            Err(TryLockError::Error(_)) => notes.push(format!("{}: this file system has no locks", part.display())),
        }
        let (from_part, whole) = known(&part, digest, &mut notes)?;
        file.set_len(whole)
            .map_err(|why| SweepError::results(&part, format!("its incomplete last line cannot be removed: {why}")))?;
        let done = if is_finished { done } else { from_part };
        let store = Self { finished, part, file: Mutex::new((file, Instant::now())) };
        Ok((store, StoredResults { done, notes, finished: is_finished }))
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn append(&self, record: &Record) -> Result<(), SweepError> {
        let failed = |why: &dyn std::fmt::Display| SweepError::results(&self.part, format!("cannot be written: {why}"));
        let mut line = serde_json::to_string(record).map_err(|why| failed(&why))?;
        line.push('\n');
        let mut guard = self.file.lock().map_err(|why| failed(&why))?;
        let (file, synced) = &mut *guard;
        file.write_all(line.as_bytes()).map_err(|why| failed(&why))?;
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
    /// The file cannot be written; the unordered lines stay.
    pub fn finish(self) -> Result<PathBuf, SweepError> {
        let Self { finished, part, file } = self;
        drop(file);
        ordered(&[part.as_path()], &finished)?;
        std::fs::remove_file(&part).map_err(|why| SweepError::results(&part, format!("cannot be removed: {why}")))?;
        Ok(finished)
    }

    /// Closes the store and keeps the finished file as it is.
    pub fn close(self) -> PathBuf {
        let Self { finished, part, file } = self;
        drop(file);
        // the file beside a finished one is empty, so a failure to remove it does no harm
        let _ = std::fs::remove_file(part);
        finished
    }
}

/// Options of a file, and the number of its bytes in complete lines.
fn known(path: &Path, digest: &str, notes: &mut Vec<String>) -> Result<(Done, u64), SweepError> {
    let mut done = Done::default();
    let mut whole = 0;
    let mut line_number = 0_u64;
    lines(path, &mut |bytes| {
        line_number += 1;
        if bytes.last() != Some(&b'\n') {
            notes.push(format!("{}: line {line_number} is incomplete; its option is computed again", path.display()));
            return Ok(());
        }
        whole += bytes.len() as u64;
        match serde_json::from_slice::<Record>(bytes) {
            Ok(record) if record.sweep == digest => done.add(record.option),
            Ok(_) => {
                let why = "holds results of another sweep: the sweep file, its data or the version changed";
                return Err(SweepError::results(path, format!("{why}\n\nhint: another --out, or remove it")));
            }
            Err(_) => {
                notes.push(format!(
                    "{}: line {line_number} is not a result; its option is computed again",
                    path.display()
                ));
            }
        }
        Ok(())
    })?;
    Ok((done, whole))
}

/// Calls a function for each line, with its line break.
///
/// # Errors
///
/// The file cannot be read, or the function fails.
pub fn lines(path: &Path, each: &mut dyn FnMut(&[u8]) -> Result<(), SweepError>) -> Result<(), SweepError> {
    let failed = |why| SweepError::results(path, format!("cannot be read: {why}"));
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            return Ok(());
        }
        each(&bytes)?;
    }
}

/// Writes the lines of several files in the order of their options, each option once, and renames the result into place.
fn ordered(from: &[&Path], to: &Path) -> Result<u64, SweepError> {
    let mut places: Vec<(u64, u32, u64, u32)> = Vec::new(); // option, file, offset, length
    for (at, path) in from.iter().enumerate() {
        let mut offset = 0;
        lines(path, &mut |bytes| {
            if bytes.last() == Some(&b'\n')
                && let Ok(head) = serde_json::from_slice::<Head>(bytes)
            {
                places.push((head.option, at as u32, offset, bytes.len() as u32));
            }
            offset += bytes.len() as u64;
            Ok(())
        })?;
    }
    places.sort_unstable();
    places.dedup_by_key(|(option, ..)| *option);
    let failed = |why: std::io::Error| SweepError::results(to, format!("cannot be written: {why}"));
    let mut readers: Vec<File> = from.iter().map(File::open).collect::<Result<_, _>>().map_err(failed)?;
    let beside = to.with_extension("jsonl.new");
    let mut writer = BufWriter::new(File::create(&beside).map_err(failed)?);
    let mut line = Vec::new();
    for (_, file, offset, length) in &places {
        let reader = &mut readers[*file as usize];
        reader.seek(SeekFrom::Start(*offset)).map_err(failed)?;
        line.resize(*length as usize, 0);
        reader.read_exact(&mut line).map_err(failed)?;
        writer.write_all(&line).map_err(failed)?;
    }
    let file = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&beside, to).map_err(failed)?;
    Ok(places.len() as u64)
}

/// Merges the results of shards, and returns the options of the merged file.
///
/// # Errors
///
/// The files belong to different sweeps, an option differs between files, or the folder cannot be written.
pub fn merge(from: &[PathBuf], to: &Path, digest: &str) -> Result<Done, SweepError> {
    let mut notes = Vec::new();
    let mut all = Done::default();
    for path in from {
        let (done, _) = known(path, digest, &mut notes)?;
        if let Some(note) = notes.first() {
            return Err(SweepError::results(
                path,
                format!("is incomplete: {note}\n\nhint: run its shard again with --resume"),
            ));
        }
        for option in (0..done.0.len() as u64 * 64).filter(|option| done.has(*option)) {
            all.add(option);
        }
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(|why| SweepError::results(folder, format!("cannot be made: {why}")))?;
    }
    let paths: Vec<&Path> = from.iter().map(PathBuf::as_path).collect();
    ordered(&paths, to)?;
    Ok(all)
}

/// Records of a finished file that `keep` accepts.
///
/// # Errors
///
/// The file cannot be read.
pub fn records(path: &Path, keep: &dyn Fn(&Record) -> bool) -> Result<Vec<Record>, SweepError> {
    let mut records = Vec::new();
    lines(path, &mut |bytes| {
        let record: Record = serde_json::from_slice(bytes).map_err(|why| SweepError::results(path, why))?;
        if keep(&record) {
            records.push(record);
        }
        Ok(())
    })?;
    Ok(records)
}
