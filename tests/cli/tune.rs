//! `meshwright tune` as its user meets it: the loop on logs, folders that were edited, locked or cut off, and files that are none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::sweep::{folder, text};

/// Candidates of Llama 3 8B on one node, as `predict` reads them; the log of `tests/logs` is of the second.
pub const CANDIDATES: &str = "id,framework,gpu,gpus_total,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,tp,pp,cp,dp,zero_stage,micro_batch,global_batch,recompute,gated_mlp
a,Megatron-LM,H100,8,32,4096,32,8,14336,128256,8192,1,1,1,8,1,1,128,none,1
b,Megatron-LM,H100,8,32,4096,32,8,14336,128256,8192,2,1,1,4,1,1,128,none,1
c,Megatron-LM,H100,8,32,4096,32,8,14336,128256,8192,4,1,1,2,1,1,128,none,1
d,Megatron-LM,H100,8,32,4096,32,8,14336,128256,8192,8,1,1,1,1,2,128,none,1
";

fn tune(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.arg("tune").args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn run(args: &[&str]) -> Output {
    tune(args).output().unwrap()
}

fn well(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Bad input: code 2 and these words on stderr.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = run(args);
    let talk = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {talk}");
    for word in words {
        assert!(talk.contains(word), "{args:?} does not say `{word}`: {talk}");
    }
}

/// A study of the four candidates, in a folder of its own.
fn study(name: &str) -> (PathBuf, String) {
    let folder = folder(name);
    let candidates = folder.join("candidates.csv");
    std::fs::write(&candidates, CANDIDATES).unwrap();
    let dir = folder.join("trials").display().to_string();
    let candidates = candidates.display().to_string();
    let question =
        ["init", "llama3-8b", "dgx-h100-8", "--global-batch", "128", "--candidates", &candidates, "--dir", &dir];
    let printed = well(&question);
    assert!(printed.contains("4 plans to try"), "{printed}");
    (folder, dir)
}

fn status(dir: &str) -> Value {
    serde_json::from_str(&well(&["status", "--format", "json", "--dir", dir])).unwrap()
}

/// Status of the plan that a row of the candidates gave.
fn of<'a>(status: &'a Value, id: &str) -> &'a Value {
    status["plans"].as_array().unwrap().iter().find(|plan| plan["id"] == id).unwrap()
}

fn log(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/logs/{name}.log", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The committed log with another layout.
fn log_of(tp: u32, dp: u32, micro_batch: u32) -> String {
    let setting = |name: &str, value: u32| format!("  {name} {} {value}", ".".repeat(48 - name.len()));
    log("megatron-llama3-8b")
        .lines()
        .map(|line| match line.split_whitespace().next() {
            Some(name @ "tensor_model_parallel_size") => setting(name, tp),
            Some(name @ "data_parallel_size") => setting(name, dp),
            Some(name @ "micro_batch_size") => setting(name, micro_batch),
            _ => line.to_owned(),
        })
        .map(|line| line + "\n")
        .collect()
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_loop_learns_from_logs_and_ends_with_files() {
    let (folder, dir) = study("tune-loop");
    let before = status(&dir);
    assert_eq!((&before["trials_left"], &before["leader"]), (&8.into(), &Value::Null));
    let printed = well(&["next", "--count", "2", "--dir", &dir]);
    assert!(printed.contains("sbatch array.sbatch"), "{printed}");
    let script = std::fs::read_to_string(format!("{dir}/array.sbatch")).unwrap();
    assert!(script.contains("#SBATCH --array=0-1") && script.contains("bash megatron.sh"), "{script}");
    let waiting = status(&dir);
    let is_waiting = |plan: &&Value| plan["status"] == "waiting";
    assert_eq!(waiting["plans"].as_array().unwrap().iter().filter(is_waiting).count(), 2);
    assert_eq!(waiting["trials_left"], 6);
    let first = waiting["plans"].as_array().unwrap().iter().find(is_waiting).unwrap()["trial"].as_u64().unwrap();
    let emitted = std::fs::read_to_string(format!("{dir}/{first:03}/megatron.sh")).unwrap();
    assert!(emitted.contains("--mock-data") && emitted.contains("30"), "a timing run: {emitted}");

    let printed = well(&["add", "tests/logs/megatron-llama3-8b.log", "--dir", &dir]);
    assert!(printed.contains("ran, 14.9 s") && printed.contains("±"), "{printed}");
    let (after, b) = (status(&dir), "b");
    assert_eq!(of(&after, b)["status"], "ran");
    let believed = |status: &Value, id: &str| of(status, id)["median_s"].as_f64().unwrap();
    assert!((believed(&after, b) - 14.8913).abs() < 0.01, "what was timed is believed: {}", believed(&after, b));
    let surprise = 14.8913 / believed(&before, b);
    for id in ["a", "c"] {
        let moved = believed(&after, id) / believed(&before, id);
        assert!((moved - 1.0) * (surprise - 1.0) > 0.0, "{id} errs with b: {moved} at a surprise of {surprise}");
    }
    assert_eq!(after["leader"], of(&after, b)["trial"]);

    let oom = written(
        &folder,
        "oom.log",
        &(log_of(1, 8, 1).replace("elapsed time", "") + "torch.OutOfMemoryError: CUDA out of memory.\n"),
    );
    let printed = well(&["add", &oom, "--dir", &dir]);
    assert!(printed.contains("out of memory"), "{printed}");
    let warned = status(&dir);
    assert_eq!((&of(&warned, "a")["status"], of(&warned, "a")["best"].as_f64()), (&"oom".into(), Some(0.0)));
    assert!(of(&warned, "c")["runs"].as_f64() <= of(&after, "c")["runs"].as_f64(), "an OOM warns");

    let printed = well(&["apply", "--dir", &dir]);
    assert!(printed.contains("tp=2") && Path::new(&dir).join("best/megatron.sh").exists(), "{printed}");
    let table = well(&["status", "--dir", &dir]);
    assert!(table.contains("Best so far: trial") && table.contains("P(best)"), "{table}");
}

#[test]
fn a_time_without_a_log_comes_from_a_row() {
    let (folder, dir) = study("tune-row");
    let row = CANDIDATES.lines().nth(3).unwrap();
    let header = CANDIDATES.lines().next().unwrap();
    let rows = written(&folder, "row.csv", &format!("{header},outcome,step_time_s\n{row},ok,12.5\n"));
    assert!(well(&["add", "--measured", &rows, "--dir", &dir]).contains("ran, 12.5"));
    assert_eq!(of(&status(&dir), "c")["step_s"], 12.5);
    refused(&["add", "--measured", &rows, "--dir", &dir], &["has an outcome already", "--force"]);
    let failed = written(&folder, "failed.csv", &format!("{header},outcome,step_time_s\n{row},failed,\n"));
    well(&["add", "--measured", &failed, "--force", "--dir", &dir]);
    assert_eq!(of(&status(&dir), "c")["status"], "failed");
    refused(&["apply", "--dir", &dir], &["no trial has run"]);
    let untimed = written(&folder, "untimed.csv", &format!("{header}\n{row}\n"));
    refused(&["add", "--measured", &untimed, "--force", "--dir", &dir], &["line 2", "no step time"]);
}

#[test]
fn a_log_of_another_run_is_named_with_what_differs() {
    let (folder, dir) = study("tune-mismatch");
    let other = written(&folder, "other.log", &log_of(2, 4, 4));
    refused(&["add", &other, "--dir", &dir], &["other.log", "nearest is trial", "micro-batch 4 instead of 1"]);
    refused(&["add", "tests/logs/megatron-llama3-8b.log", "--trial", "1", "--dir", &dir], &["is not of trial 1"]);
    refused(&["add", "tests/logs/megatron-llama3-8b.log", "--trial", "77", "--dir", &dir], &["no such trial"]);
    let garbage = written(&folder, "garbage.log", "\u{0}\u{1}nothing\n");
    refused(&["add", &garbage, "--dir", &dir], &["garbage.log", "no step of Megatron-LM"]);
    let bare = written(&folder, "bare.log", "torch.OutOfMemoryError: CUDA out of memory.\n");
    refused(&["add", &bare, "--dir", &dir], &["names no setting", "--trial N"]);
    well(&["add", &bare, "--trial", "3", "--dir", &dir]);
    let crash = written(&folder, "crash.log", "Traceback (most recent call last):\n  ValueError\n");
    well(&["add", &crash, "--trial", "4", "--dir", &dir]);
    let before = std::fs::read(format!("{dir}/trials.csv")).unwrap();
    refused(&["add", "tests/logs/megatron-llama3-8b.log", &garbage, "--dir", &dir], &["garbage.log"]);
    assert_eq!(
        std::fs::read(format!("{dir}/trials.csv")).unwrap(),
        before,
        "nothing is written unless all is understood"
    );
}

#[test]
fn broken_files_are_named_with_their_line() {
    let (_folder, dir) = study("tune-broken");
    let path = format!("{dir}/trials.csv");
    let whole = std::fs::read_to_string(&path).unwrap();
    let broken = |from: &str, to: &str, words: &[&str]| {
        std::fs::write(&path, whole.replacen(from, to, 1)).unwrap();
        refused(&["status", "--dir", &dir], &[&["trials.csv, line "], words].concat());
    };
    broken("open", "opne", &["opne", "waiting"]);
    broken("tp=", "tq=", &["tq"]);
    broken("\n2,", "\n1,", &["line 3", "trial 1 is there twice"]);
    broken("open,", "ran,", &["`step_s` is empty"]);
    broken(",open", "", &["line"]);
    std::fs::write(&path, &whole).unwrap();
    let edited = whole.replacen("open,,", "ran,11.5,", 1);
    std::fs::write(&path, edited).unwrap();
    assert_eq!(status(&dir)["plans"][0]["step_s"].as_f64().or(Some(11.5)), Some(11.5));
    assert_eq!(status(&dir)["leader"], 1, "a hand-written time counts");
    std::fs::write(&path, "").unwrap();
    refused(&["status", "--dir", &dir], &["trials.csv"]);
    std::fs::write(&path, &whole).unwrap();
    let question = format!("{dir}/tune.toml");
    let text = std::fs::read_to_string(&question).unwrap();
    std::fs::write(&question, text.replacen("tolerance", "tolerence", 1)).unwrap();
    refused(&["status", "--dir", &dir], &["tune.toml, line ", "tolerence"]);
    std::fs::write(&question, text.replacen("schema = 1", "schema = 9", 1)).unwrap();
    refused(&["next", "--dir", &dir], &["schema 9"]);
    refused(&["status", "--dir", "/nonexistent"], &["no study is there", "tune init"]);
    std::fs::write(&question, &text).unwrap();
    let init = ["init", "llama3-8b", "dgx-h100-8", "--dir", &dir, "--fix", "tp=2"];
    refused(&init, &["a study is there already", "--force"]);
}

#[test]
fn two_processes_at_once_lose_no_trial() {
    let (_folder, dir) = study("tune-two");
    let children: Vec<_> = (0..3)
        .map(|_| {
            tune(&["next", "--anyway", "--dir", &dir]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let now = status(&dir);
    let waiting = now["plans"].as_array().unwrap().iter().filter(|plan| plan["status"] == "waiting").count();
    assert_eq!(waiting, 3, "each took a trial of its own: {now}");
}

#[test]
fn trials_on_fewer_gpus_tell_of_all() {
    let dir = folder("tune-proxy").join("trials").display().to_string();
    let init = [
        "init",
        "llama3-8b",
        "h100-512",
        "--gpus",
        "64",
        "--global-batch",
        "256",
        "--trial-gpus",
        "16",
        "--fix",
        "cp=1",
    ];
    well(&[&init[..], &["--plans-to-try", "6", "--dir", &dir]].concat());
    let before = status(&dir);
    well(&["next", "--dir", &dir]);
    let next = before["next"].as_u64().unwrap();
    let path = format!("{dir}/trials.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    // the trial took a third longer than predicted there, so its plan is believed to be slower at full scale, but not by as much
    let plan = before["plans"].as_array().unwrap().iter().find(|plan| plan["trial"] == next).unwrap().clone();
    let slow = plan["median_s"].as_f64().unwrap() * 1.33;
    let timed = text.replacen(",waiting,,", &format!(",ran,{slow},"), 1);
    assert_ne!(timed, text);
    std::fs::write(&path, timed).unwrap();
    let after = status(&dir);
    let moved = after["plans"].as_array().unwrap().iter().find(|plan| plan["trial"] == next).unwrap();
    let ratio = moved["median_s"].as_f64().unwrap() / plan["median_s"].as_f64().unwrap();
    assert!(ratio > 1.0 && ratio < 1.33, "{ratio}");
    let emitted = std::fs::read_to_string(format!("{dir}/{next:03}/megatron_bridge.py"))
        .or_else(|_| std::fs::read_to_string(format!("{dir}/{next:03}/megatron.sh")))
        .unwrap();
    assert!(emitted.contains("16") && emitted.contains("64"), "{emitted}");
    let wrong = ["init", "llama3-8b", "h100-512", "--gpus", "64", "--global-batch", "96", "--trial-gpus", "63"];
    refused(&wrong, &["--trial-gpus 63"]);
}
