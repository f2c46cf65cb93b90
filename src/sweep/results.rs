//! Reading and ordering of results files: finished ones, whose lines are records, and those under way.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rayon::prelude::*;

use super::done::Done;
use super::error::SweepError;
use super::part;
use super::record::{Head, Record, SCHEMA};
use crate::files::{Draft, Existing, FileMode};

/// Sweep that results must be of.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Fingerprint of the sweep.
    pub digest: &'a str,
    /// Number of its options.
    pub options: u64,
}

/// Form of the lines of a results file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Finished: a record each.
    Finished,
    /// Under way: a version, a checksum and a record each.
    Part,
}

impl Form {
    /// Record of a line as JSON, and its place in the line.
    fn json(self, line: &[u8]) -> Result<(&str, usize), &'static str> {
        let json = match self {
            Self::Part => part::json_of(line)?,
            Self::Finished => {
                let whole = line.strip_suffix(b"\n").ok_or("is incomplete")?;
                std::str::from_utf8(whole).map_err(|_| "is not a result")?
            }
        };
        Ok((json, line.len() - 1 - json.len()))
    }
}

/// Content of a results file.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Options that are done.
    pub done: Done,
    /// Number of bytes in complete lines.
    pub whole: u64,
    /// Lines that are no results of the sweep, in words.
    pub defects: Vec<String>,
}

/// Most defects of a file that are named one by one.
const MOST_NAMED: usize = 10;

/// Reason why a file of another sweep is refused.
const FOREIGN: &str = "holds results of another sweep: the sweep file, its data or the version changed\n\nhint: another --out, \
                       or remove it";

/// Reads a results file.
///
/// # Errors
///
/// The file cannot be read, or holds results of another sweep only.
pub(super) fn content(path: &Path, form: Form, expected: Expected) -> Result<Content, SweepError> {
    let mut content = Content::default();
    let (mut number, mut unnamed, mut foreign) = (0_u64, 0_u64, 0_u64);
    lines(path, &mut |line| {
        number += 1;
        if line.ends_with(b"\n") {
            content.whole += line.len() as u64;
        }
        let record = form.json(line).and_then(|(json, _)| {
            let record: Record = serde_json::from_str(json).map_err(|_| "is not a result")?;
            if record.sweep != expected.digest {
                foreign += 1;
                return Err("is a result of another sweep");
            }
            let known = record.schema == SCHEMA && record.option < expected.options;
            if known { Ok(record) } else { Err("is not a result of this version") }
        });
        match record {
            Ok(record) => content.done.add(record.option),
            Err(why) if content.defects.len() < MOST_NAMED => {
                content.defects.push(format!("{}: line {number} {why}; its option is computed again", path.display()));
            }
            Err(_) => unnamed += 1,
        }
        Ok(())
    })?;
    if foreign > 0 && (form == Form::Finished || content.done.count() == 0) {
        return Err(SweepError::results(path, FOREIGN));
    }
    if unnamed > 0 {
        content.defects.push(format!(
            "{}: {unnamed} further lines are unusable; their options are computed again",
            path.display()
        ));
    }
    Ok(content)
}

/// Longest line of a results file in bytes.
const LONGEST: u64 = 16 << 20;

/// Calls a function for each line, with its line break.
///
/// # Errors
///
/// The file cannot be read, a line is over 16 MiB, or the function fails.
pub fn lines(path: &Path, each: &mut dyn FnMut(&[u8]) -> Result<(), SweepError>) -> Result<(), SweepError> {
    let failed = |why| SweepError::results(path, format!("cannot be read: {why}"));
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            return Ok(());
        }
        if bytes.len() as u64 == LONGEST && !bytes.ends_with(b"\n") {
            return Err(SweepError::results(path, "has a line of over 16 MiB, which is no result"));
        }
        each(&bytes)?;
    }
}

/// Place of a record in one of several files.
struct Place {
    file: usize,
    offset: u64,
    length: usize,
}

/// Places of the sweep's records in a file, each with its option.
fn places_in(path: &Path, file: usize, form: Form, expected: Expected) -> Result<Vec<(u64, Place)>, SweepError> {
    let mut places = Vec::new();
    let mut start = 0;
    lines(path, &mut |line| {
        if let Ok((json, at)) = form.json(line)
            && let Ok(head) = serde_json::from_str::<Head>(json)
            && head.sweep == expected.digest
            && head.option < expected.options
        {
            places.push((head.option, Place { file, offset: start + at as u64, length: json.len() }));
        }
        start += line.len() as u64;
        Ok(())
    })?;
    Ok(places)
}

/// Draft with the records of several files in the order of their options, each option once.
///
/// # Errors
///
/// A file cannot be read, two of them differ in an option, or the target is there or cannot be written.
pub(super) fn ordered(
    from: &[&Path],
    form: Form,
    to: &Path,
    expected: Expected,
    existing: Existing,
) -> Result<Draft, SweepError> {
    let mut places: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    let found: Vec<_> = from.par_iter().enumerate().map(|(file, path)| places_in(path, file, form, expected)).collect();
    for of_file in found {
        for (option, place) in of_file? {
            places.entry(option).or_default().push(place);
        }
    }
    let failed = |why: std::io::Error| SweepError::results(to, format!("cannot be written: {why}"));
    let mut readers = Vec::new();
    for path in from {
        let unread = |why| SweepError::results(path, format!("cannot be read: {why}"));
        readers.push(File::open(path).map_err(unread)?);
    }
    let mut record = |place: &Place| {
        let mut json = vec![0; place.length];
        let reader = &mut readers[place.file];
        let read = reader.seek(SeekFrom::Start(place.offset)).and_then(|_| reader.read_exact(&mut json));
        read.map_err(|why| SweepError::results(from[place.file], format!("cannot be read: {why}")))?;
        Ok::<_, SweepError>(json)
    };
    let mut writer = BufWriter::new(Draft::new(to, existing, FileMode::Data)?);
    for (option, places) in &places {
        let Some((first, others)) = places.split_first() else { continue };
        let json = record(first)?;
        for other in others {
            if record(other)? != json {
                let (one, two) = (from[first.file].display(), from[other.file].display());
                return Err(SweepError::results(to, format!("{one} and {two} differ in option {option}")));
            }
        }
        writer.write_all(&json).and_then(|()| writer.write_all(b"\n")).map_err(failed)?;
    }
    writer.into_inner().map_err(|error| failed(error.into_error()))
}

/// Bytes of lines that are parsed at a time.
const BATCH: usize = 1 << 20;

/// Calls a function for each record of a finished file, in their order; lines are parsed on every core.
///
/// # Errors
///
/// The file cannot be read, a line is no record, or the function fails.
pub fn each_record(path: &Path, each: &mut dyn FnMut(Record) -> Result<(), SweepError>) -> Result<(), SweepError> {
    let mut batch: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    lines(path, &mut |line| {
        bytes += line.len();
        batch.push(line.to_vec());
        if bytes < BATCH {
            return Ok(());
        }
        bytes = 0;
        parsed(path, std::mem::take(&mut batch), each)
    })?;
    parsed(path, batch, each)
}

/// Calls a function for the record of each line.
fn parsed(
    path: &Path,
    lines: Vec<Vec<u8>>,
    each: &mut dyn FnMut(Record) -> Result<(), SweepError>,
) -> Result<(), SweepError> {
    let records: Vec<serde_json::Result<Record>> =
        lines.into_par_iter().map(|line| serde_json::from_slice(&line)).collect();
    records.into_iter().try_for_each(|record| each(record.map_err(|why| SweepError::results(path, why))?))
}

/// Records of a finished file that `keep` accepts.
///
/// # Errors
///
/// The file cannot be read.
pub fn records(path: &Path, keep: &dyn Fn(&Record) -> bool) -> Result<Vec<Record>, SweepError> {
    let mut records = Vec::new();
    each_record(path, &mut |record| {
        if keep(&record) {
            records.push(record);
        }
        Ok(())
    })?;
    Ok(records)
}
