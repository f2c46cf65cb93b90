//! Disks that are full at any call: every command that writes ends with a sentence, every file is the old one or the new one, and
//! the next run, with space again, ends with the bytes of an undisturbed one.
#![cfg(debug_assertions)] // as the variable that these tests set

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use super::interrupted::files;
use super::measure::record;
use super::sweep::{SMALL, text};
use super::tune::CANDIDATES;

const OLD: &str = "what was there";

/// Samples of a device, which `verify` plays again.
static MEASURED: LazyLock<String> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), 1.0).to_toml()
});

/// Commands that write. Those before the last of each prepare the folder.
const COMMANDS: [&[&str]; 21] = [
    &["plan llama3-8b dgx-h100-8 --emit megatron --out new --force"],
    &["plan llama3-8b dgx-h100-8 --html old --force"],
    &["explain llama3-8b dgx-h100-8 --plan tp=8 --svg old --trace new --html page --force"],
    &["emit megatron llama3-8b dgx-h100-8 --plan tp=8 --out new"],
    &[
        "emit megatron llama3-8b dgx-h100-8 --plan tp=8 --out .",
        "emit megatron llama3-8b dgx-h100-8 --plan tp=4 --out . --force",
    ],
    &["validate --runs runs.csv --svg old --html page --force"],
    &["emit megatron llama3-8b dgx-h100-8 --plan tp=8 --out .", "import megatron.sh --model-out old --force"],
    &["runs from-log log --out old --force"],
    &["fit --runs runs.csv --block H100 --out old --sources new --force"],
    &["intervals --runs many.csv --sources sources.toml --out old --force"],
    &["measure --quick --probe model --gpu h100-sxm --out samples.toml"],
    &[
        "measure --quick --probe model --gpu h100-sxm --out samples.toml",
        "calibrate samples.toml --date 2026-11-21 --out old --force",
    ],
    &["verify llama3-8b dgx-h100-8 --top 2 --quick --probe measured.toml --out samples.toml"],
    &["sweep sweep.toml --out results --resume"],
    &["sweep sweep.toml --out results --slurm 2 --force"],
    &[
        "sweep sweep.toml --out shards --shard 1/2",
        "sweep sweep.toml --out shards --shard 2/2",
        "sweep merge sweep.toml --from shards --out results --force",
    ],
    &["tune init llama3-8b dgx-h100-8 --global-batch 128 --candidates candidates.csv --dir trials --force"],
    &[
        "tune init llama3-8b dgx-h100-8 --global-batch 128 --candidates candidates.csv --dir trials",
        "tune init llama3-8b dgx-h100-8 --global-batch 64 --candidates few.csv --dir trials --force",
    ],
    &[
        "tune init llama3-8b dgx-h100-8 --global-batch 128 --candidates candidates.csv --dir trials",
        "tune next --count 2 --dir trials",
    ],
    &[
        "tune init llama3-8b dgx-h100-8 --global-batch 128 --candidates candidates.csv --dir trials",
        "tune add log --dir trials",
    ],
    &[
        "tune init llama3-8b dgx-h100-8 --global-batch 128 --candidates candidates.csv --dir trials",
        "tune add log --dir trials",
        "tune apply --dir trials --force",
    ],
];

/// Commands whose files belong together: all of them are replaced or none.
const SETS: [&str; 4] = ["emit", "tune init", "tune add", "tune apply"];

/// A command in a folder, on a disk that refuses all calls after a number of them.
fn run(folder: &Path, line: &str, calls: Option<u64>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(line.split(' ')).current_dir(folder).env("RAYON_NUM_THREADS", "1");
    if let Some(calls) = calls {
        command.env("MESHWRIGHT_DISK_CALLS", calls.to_string());
    }
    command.output().unwrap()
}

#[track_caller]
fn well(folder: &Path, line: &str) {
    let output = run(folder, line, None);
    assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
}

/// Inputs of the commands, and a file that outputs replace.
fn prepared(folder: &Path) {
    let repository = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let all = repository("tests/published/runs.csv");
    let lines = |text: &str, count: usize| text.split_inclusive('\n').take(count).collect::<String>();
    for (name, content) in [
        ("old", OLD.to_owned()),
        ("runs.csv", lines(&all, 12)),
        ("few.csv", lines(CANDIDATES, 3).replace(",128,", ",64,")),
        ("candidates.csv", CANDIDATES.to_owned()),
        ("log", repository("tests/logs/megatron-llama3-8b.log")),
        ("sources.toml", repository("tests/published/without-source.toml")),
        ("sweep.toml", SMALL.to_owned()),
        ("many.csv", lines(&all, 250)),
        ("measured.toml", MEASURED.clone()),
    ] {
        std::fs::write(folder.join(name), content).unwrap();
    }
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Names of everything below a folder: files, hidden ones too, and folders.
fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    let inside = std::fs::read_dir(folder).into_iter().flatten().map(|entry| PathBuf::from(entry.unwrap().file_name()));
    inside
        .flat_map(|name| {
            let below = entries(&folder.join(&name)).into_iter().map(|path| name.join(path)).collect::<Vec<_>>();
            std::iter::once(name).chain(below)
        })
        .collect()
}

/// Whether the files of a folder are those before a command or after it, each as a whole.
fn whole(now: &Files, before: &Files, after: &Files) -> Result<(), String> {
    if let Some(path) = before.keys().find(|path| !now.contains_key(*path)) {
        return Err(format!("{} is lost", path.display()));
    }
    for (path, bytes) in now {
        let is_part = path.extension().is_some_and(|end| end == "part"); // of a sweep: a line for each option that is done
        // samples of a probe are written after each
        let is_samples = path.ends_with("samples.toml");
        if !is_part && !is_samples && before.get(path) != Some(bytes) && after.get(path) != Some(bytes) {
            return Err(format!("{} is neither the old nor the new one", path.display()));
        }
    }
    Ok(())
}

/// Calls that a command makes, each of which was the first to fail.
fn withstands(lines: &[&str]) -> u64 {
    let (line, first) = lines.split_last().unwrap();
    let start = tempfile::tempdir().unwrap();
    prepared(start.path());
    for line in first {
        well(start.path(), line);
    }
    let before = files(start.path());
    let restored = || {
        let folder = tempfile::tempdir().unwrap();
        for (path, bytes) in &before {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        folder
    };
    let undisturbed = restored();
    well(undisturbed.path(), line);
    let after = files(undisturbed.path());
    assert_ne!(before, after, "{line}");
    let (mut calls, mut left) = (0, BTreeSet::new());
    loop {
        let folder = restored();
        let stopped = run(folder.path(), line, Some(calls));
        let (now, names, message) = (files(folder.path()), entries(folder.path()), text(&stopped.stderr));
        let what = format!("{line}, full after {calls} calls: {message}");
        let drafts: Vec<_> = names.iter().filter(|name| name.extension().is_some_and(|end| end == "new")).collect();
        assert!(drafts.is_empty(), "{what}: {drafts:?}");
        if stopped.status.code() == Some(0) {
            assert!(now == after, "{what}");
            return calls;
        }
        assert_eq!(stopped.status.code(), Some(2), "{what}");
        assert!(
            message.lines().any(|line| line.starts_with("error: ")) && message.contains("no storage space"),
            "{what}"
        );
        whole(&now, &before, &after).unwrap_or_else(|why| panic!("{why}: {what}"));
        if SETS.iter().any(|command| line.starts_with(command)) {
            assert!(now == before, "{what}: files of one set are in part the new ones");
        }
        // most calls fail with the folder as another left it
        if left.insert((names, now)) {
            well(folder.path(), &line.replace("--out new", "--out new --force").replace("--force --force", "--force"));
            assert!(files(folder.path()) == after, "{what}: the next run ends with other bytes");
        }
        // a probe writes hundreds of times
        calls += 1 + calls / 40 * 9;
    }
}

#[test]
fn a_full_disk_stops_every_command_and_harms_no_file() {
    let each: Vec<(&str, u64)> = std::thread::scope(|scope| {
        let runs: Vec<_> = COMMANDS.iter().map(|lines| (lines, scope.spawn(|| withstands(lines)))).collect();
        runs.into_iter().map(|(lines, run)| (*lines.last().unwrap(), run.join().unwrap())).collect()
    });
    for (line, calls) in each {
        println!("{calls:4} {line}");
        assert!(calls >= 4, "creation, writing, synchronisation and renaming: {calls} of {line}");
    }
}

/// A limit on the size of files stops those that write past the calls which the test above counts.
#[cfg(unix)]
#[test]
fn no_command_writes_past_the_calls_that_are_counted() {
    for lines in COMMANDS {
        let (line, first) = lines.split_last().unwrap();
        let folder = tempfile::tempdir().unwrap();
        prepared(folder.path());
        for line in first {
            well(folder.path(), line);
        }
        let before = files(folder.path());
        let mut bash = Command::new("bash");
        bash.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_meshwright")]);
        let stopped = bash.args(line.split(' ')).current_dir(folder.path()).output().unwrap();
        let message = text(&stopped.stderr);
        assert_eq!(stopped.status.code(), Some(2), "{line}: {message}");
        assert!(message.contains("File too large"), "{line}: {message}");
        let mut now = files(folder.path());
        now.retain(|path, bytes| !(bytes.is_empty() && path.ends_with("results.part")));
        assert!(now == before, "{line}: {message}");
    }
}
