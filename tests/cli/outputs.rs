//! Output files of every command: whole or as before, and never in place of an existing one without `--force`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::measure;
use super::sweep::{self, SMALL, folder, text, written};

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).current_dir(folder).output().unwrap()
}

const PLAN: [&str; 5] = ["explain", "llama3-8b", "dgx-h100-8", "--plan", "tp=8"];
const OLD: &str = "what was there";

fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).to_str().unwrap().to_owned()
}

/// A file of runs with a few of the published ones.
fn few_runs(folder: &Path) -> String {
    let all = std::fs::read_to_string(repository("tests/published/runs.csv")).unwrap();
    let few: String = all.split_inclusive('\n').take(30).collect();
    std::fs::write(folder.join("runs.csv"), few).unwrap();
    "runs.csv".to_owned()
}

#[test]
fn no_command_replaces_a_file_without_force() {
    let folder = folder("outputs");
    let runs = few_runs(&folder);
    let log = repository("tests/logs/megatron-llama3-8b.log");
    let samples = ["measure", "--quick", "--probe", "model", "--gpu", "h100-sxm", "--out", "samples.toml"];
    assert_eq!(run(&folder, &samples).status.code(), Some(0));
    let host = measure::host("outputs-host");
    let host = host.to_str().unwrap();
    let commands: [&[&str]; 9] = [
        &[&PLAN[..], &["--svg", "out"]].concat(),
        &[&PLAN[..], &["--trace", "out"]].concat(),
        &[&PLAN[..], &["--html", "out"]].concat(),
        &["plan", "llama3-8b", "dgx-h100-8", "--html", "out"],
        &["validate", "--runs", &runs, "--svg", "out"],
        &["validate", "--runs", &runs, "--html", "out"],
        &["runs", "from-log", &log, "--out", "out"],
        &["calibrate", "samples.toml", "--out", "out"],
        &["measure", "--write-cluster", "out", "--gpu", "h100-sxm", "--root", host],
    ];
    let out = folder.join("out");
    for args in commands {
        std::fs::write(&out, OLD).unwrap();
        let refused = run(&folder, args);
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains("out already exists") && message.contains("--force"), "{args:?}: {message}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), OLD, "{args:?}");
        let forced = run(&folder, &[args, &["--force"]].concat());
        assert_eq!(forced.status.code(), Some(0), "{args:?}: {}", text(&forced.stderr));
        assert_ne!(std::fs::read_to_string(&out).unwrap(), OLD, "{args:?}");
        std::fs::remove_file(&out).unwrap();
        assert_eq!(run(&folder, args).status.code(), Some(0), "{args:?}: a free path needs no --force");
    }
    let sources = repository("tests/published/without-source.toml");
    for args in [&["fit"][..], &["intervals", "--sources", &sources]] {
        std::fs::write(&out, OLD).unwrap();
        let refused = run(&folder, &[args, &["--runs", &runs, "--out", "out"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(text(&refused.stderr).contains("out already exists"), "{args:?}: {}", text(&refused.stderr));
    }
    let left: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.')), "{left:?}");
}

/// A limit on the size of files stands for a full disk: the write after it fails.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_old_file() {
    let folder = folder("outputs-full");
    let out = folder.join("step.svg");
    std::fs::write(&out, OLD).unwrap();
    let full = |args: &[&str]| {
        let mut bash = Command::new("bash");
        bash.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_meshwright")]);
        bash.args(args).current_dir(&folder).output().unwrap()
    };
    let stopped = full(&[&PLAN[..], &["--svg", "step.svg", "--force"]].concat());
    let message = text(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(2), "{message}");
    assert!(message.contains("step.svg: cannot be written: File too large"), "{message}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), OLD);
    let emitted = full(&["emit", "megatron", "llama3-8b", "dgx-h100-8", "--plan", "tp=8", "--out", "."]);
    assert_eq!(emitted.status.code(), Some(2), "{}", text(&emitted.stderr));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no part of a file stays");
}

#[test]
fn a_calibration_stays_in_its_folder() {
    let folder = folder("outputs-calibrate");
    let gpu = folder.join("mine.toml");
    std::fs::copy(repository("clusters/gpus/h100-sxm.toml"), &gpu).unwrap();
    let gpu = gpu.to_str().unwrap();
    let samples = ["measure", "--quick", "--probe", "model", "--gpu", gpu, "--out", "samples.toml"];
    assert_eq!(run(&folder, &samples).status.code(), Some(0));
    std::fs::create_dir(folder.join("calibrations")).unwrap();
    let made = run(&folder, &["calibrate", "samples.toml", "--date", "2026-11-21", "--out", "calibrations"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(folder.join("calibrations/mine-2026-11-21.toml").exists(), "{}", text(&made.stderr));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
}

/// Finished results and their shards, of which one alone is not a sweep.
#[test]
fn a_merge_of_one_shard_keeps_finished_results() {
    let folder = folder("sweep-merge-loss");
    let file = written(&folder, SMALL);
    let (out, shards) = (folder.join("out"), folder.join("shards"));
    let [to, from] = [&out, &shards].map(|path| path.to_str().unwrap());
    sweep::well(&[&file, "--out", to]);
    let names = ["results.jsonl", "results.csv", "page.html"];
    let read = || names.map(|name| std::fs::read(out.join(name)).unwrap());
    let finished = read();
    sweep::well(&[&file, "--out", from, "--shard", "1/2"]);
    let merge = ["merge", file.as_str(), "--from", from, "--out", to];
    let refused = sweep::run(&merge);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("results.csv already exists"), "{}", text(&refused.stderr));
    let refused = sweep::run(&[&merge[..], &["--force"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("are missing"), "{}", text(&refused.stderr));
    assert_eq!(read(), finished);
    sweep::well(&[&file, "--out", from, "--shard", "2/2"]);
    sweep::well(&[&merge[..], &["--force"]].concat());
    assert_eq!(read(), finished);
}

#[test]
fn reports_that_are_not_of_a_sweep_stay() {
    let folder = folder("sweep-other-reports");
    let file = written(&folder, SMALL);
    std::fs::write(folder.join("results.csv"), OLD).unwrap();
    let refused = sweep::run(&[&file, "--out", folder.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("results.csv"), "{}", text(&refused.stderr));
    assert_eq!(std::fs::read_to_string(folder.join("results.csv")).unwrap(), OLD);
    assert!(!folder.join("results.part").exists(), "nothing was begun");
}
