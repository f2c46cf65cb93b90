//! Sweeps shard by shard: results as lines, joined into one file.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use meshwright::files::Existing;
use meshwright::question::SweepAnswer;
use meshwright::search::Control;
use meshwright::sweep::record::Record;
use meshwright::sweep::select::Selection;
use meshwright::sweep::store::{self, Done, Expected};
use meshwright::sweep::{Shard, Sweep, SweepError, run};

/// Document of a sweep in two: all but its records, and each record as a line.
pub type Divided = (String, Vec<String>);

/// Name, digest, and numbers of options and of machines.
pub fn head(text: &str, origin: &str) -> Result<(String, String, u64, u64), SweepError> {
    let sweep = Sweep::parse(text, origin)?;
    let counts = (sweep.options(), sweep.machines());
    Ok((sweep.name, sweep.digest, counts.0, counts.1))
}

/// Results of a shard as lines in the order of their options, the same as its finished file has.
pub fn shard(text: &str, origin: &str, index: u64, of: u64, control: &Control) -> Result<String, SweepError> {
    let sweep = Sweep::parse(text, origin)?;
    let shard = Shard { index, count: of };
    let all = shard.options(&sweep);
    let kept = Mutex::new(Vec::new());
    let failed = |why: &dyn std::fmt::Display| SweepError::value("results", why);
    let keep = |record: &Record| {
        let line = serde_json::to_string(record).map_err(|why| failed(&why))?;
        let mut lines = kept.lock().map_err(|why| failed(&why))?;
        lines.push((record.option, line));
        if control(lines.len() as u64, all).is_break() { Err(failed(&"the sweep was stopped")) } else { Ok(()) }
    };
    run::run(&sweep, shard, &Done::default(), &keep, &|_| (), &|_, _| control(0, all))?;
    let mut lines = kept.into_inner().map_err(|why| failed(&why))?;
    lines.sort_unstable();
    Ok(lines.into_iter().map(|(_, line)| line + "\n").collect())
}

/// Document of all results of a sweep.
pub fn answer(text: &str, origin: &str, lines: &str) -> Result<Divided, SweepError> {
    let sweep = Sweep::parse(text, origin)?;
    let records: Result<Vec<Record>, _> = lines.lines().map(serde_json::from_str).collect();
    let records = records.map_err(|why| SweepError::value("results", why))?;
    divided(&sweep, &Selection::of_all(records))
}

/// Joins the files of shards into one, and gives its document.
pub fn merge(text: &str, origin: &str, files: &[PathBuf], to: &Path) -> Result<Divided, SweepError> {
    let sweep = Sweep::parse(text, origin)?;
    let expected = Expected { digest: &sweep.digest, options: sweep.options() };
    divided(&sweep, &store::merge(files, to, expected, Existing::Replace)?)
}

fn divided(sweep: &Sweep, selection: &Selection) -> Result<Divided, SweepError> {
    let answer = SweepAnswer::new(sweep, selection);
    answer.divided(sweep, selection).map_err(|why| SweepError::value("results", why))
}
