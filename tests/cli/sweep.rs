//! `meshwright sweep` as its user meets it: expansion, files, crashes, shards, bad input.
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

pub fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.arg("sweep").args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

pub fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn well(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A small sweep: 3 machines x 2 terms x 2 prices of electricity.
pub const SMALL: &str = r#"
name = "small"
[[workload]]
model = "llama3-8b"
tokens = "1 B"
global_batch = 128
[[workload]]
name = "twice"
model = "llama3-8b"
tokens = "10 B"
runs = 2
global_batch = 256
[options]
gpu = "h100-sxm"
gpus = { from = 8, to = 32, times = 2 }
terms = ["contract", "own"]
electricity = ["0.05 $/kWh", "0.20 $/kWh"]
"#;

pub fn written(folder: &Path, sweep: &str) -> String {
    let path = folder.join("sweep.toml");
    std::fs::write(&path, sweep).unwrap();
    path.to_str().unwrap().to_owned()
}

fn results(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_option_has_its_best_plans_and_a_bill_that_adds_up() {
    let folder = folder("sweep-adds-up");
    let (file, out) = (written(&folder, SMALL), folder.join("out"));
    let table = well(&[&file, "--out", out.to_str().unwrap()]);
    for word in ["front", "8 GPUs", "own", "Effect of one step", "electricity"] {
        assert!(table.contains(word), "no `{word}`: {table}");
    }
    let records = results(&out);
    assert_eq!(records.len(), 12);
    for (at, record) in records.iter().enumerate() {
        assert_eq!((record["option"].as_u64(), record["status"].as_str()), (Some(at as u64), Some("ok")));
        let total = |name: &str| record["totals"][name].as_f64().unwrap();
        let jobs = record["jobs"].as_array().unwrap();
        let sum = |name: &str| {
            jobs.iter().map(|job| job[name].as_f64().unwrap() * job["runs"].as_f64().unwrap()).sum::<f64>()
        };
        assert!((sum("days") / total("days") - 1.0).abs() < 1e-9, "{record}");
        assert!((sum("cost_usd") / total("cost_usd") - 1.0).abs() < 1e-9, "{record}");
        assert!(total("days_low") < total("days") && total("days") < total("days_high"));
        assert!(total("cost_low_usd") < total("cost_usd") && total("cost_usd") < total("cost_high_usd"));
        let per_step = 128.0 * 8192.0;
        let days = 1e9 / per_step * jobs[0]["step_time_s"].as_f64().unwrap()
            / 86400.0
            / jobs[0]["effective"].as_f64().unwrap();
        assert!((jobs[0]["days"].as_f64().unwrap() / days - 1.0).abs() < 1e-9);
    }
    // Rent does not depend on the price of electricity; owning does.
    let cost = |at: usize| records[at]["totals"]["cost_usd"].as_f64().unwrap();
    assert_eq!(records[0]["choice"]["terms"], "contract");
    assert!((cost(0) - cost(1)).abs() < 1e-9 && cost(2) < cost(3));
    let csv = std::fs::read_to_string(out.join("results.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(reader.records().map(Result::unwrap).count(), 12);
    let page = std::fs::read_to_string(out.join("page.html")).unwrap();
    for request in ["src=\"http", "href=\"http", "url(http"] {
        assert!(!page.contains(request), "the page needs no network: {request}");
    }
    let answer: Value = serde_json::from_str(&well(&[&file, "--format", "json"])).unwrap();
    assert_eq!(answer["records"].as_array().unwrap().len(), 12);
}

#[test]
fn a_killed_sweep_goes_on_where_it_was_and_ends_with_the_same_bytes() {
    let folder = folder("sweep-killed");
    let long = SMALL.replace("{ from = 8, to = 32, times = 2 }", "{ from = 8, to = 256, step = 8 }");
    let file = written(&folder, &long);
    let (whole, cut) = (folder.join("whole"), folder.join("cut"));
    well(&[&file, "--out", whole.to_str().unwrap()]);
    let bytes = std::fs::read(whole.join("results.jsonl")).unwrap();

    let args = [file.as_str(), "--out", cut.to_str().unwrap()];
    let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let part = cut.join("results.part");
    let lines = || std::fs::read_to_string(&part).unwrap_or_default().lines().count();
    for _ in 0..3000 {
        if lines() >= 8 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap(); // SIGKILL: nothing of its own can run any more
    child.wait().unwrap();
    let kept = lines();
    assert!((8..32 * 4).contains(&kept), "{kept} lines");
    assert!(!cut.join("results.jsonl").exists());

    // A torn last line, as a machine that loses power leaves it.
    let mut torn = std::fs::read(&part).unwrap();
    torn.extend_from_slice(b"{\"schema\":1,\"sweep\":\"");
    std::fs::write(&part, torn).unwrap();
    let refused = run(&args);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--resume"), "{}", text(&refused.stderr));
    let resumed = run(&[&args[..], &["--resume"]].concat());
    let talk = text(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(0), "{talk}");
    assert!(talk.contains("incomplete") && talk.contains(&format!("resuming after {kept} of 128")), "{talk}");
    assert_eq!(std::fs::read(cut.join("results.jsonl")).unwrap(), bytes);

    // Finished: nothing is done again, and one thread writes the same.
    let again = run(&[&args[..], &["--resume"]].concat());
    assert!(text(&again.stderr).contains("there already"), "{}", text(&again.stderr));
    let one = folder.join("one");
    let alone = command(&[&file, "--out", one.to_str().unwrap()]).env("RAYON_NUM_THREADS", "1").output().unwrap();
    assert_eq!(alone.status.code(), Some(0));
    for name in ["results.jsonl", "results.csv", "page.html"] {
        assert_eq!(std::fs::read(one.join(name)).unwrap(), std::fs::read(cut.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn shards_of_a_slurm_array_merge_to_the_same_bytes() {
    let folder = folder("sweep-shards");
    let file = written(&folder, SMALL);
    let whole = folder.join("whole");
    well(&[&file, "--out", whole.to_str().unwrap()]);
    let array = folder.join("an array");
    well(&[&file, "--out", array.to_str().unwrap(), "--slurm", "2"]);
    let script = array.join("sweep.sbatch");
    assert!(std::fs::read_to_string(&script).unwrap().contains("\n#SBATCH --array=1-2\n"));
    assert_eq!(run(&[&file, "--out", array.to_str().unwrap(), "--slurm", "3"]).status.code(), Some(2), "one is there");
    well(&[&file, "--out", array.to_str().unwrap(), "--slurm", "3", "--force"]);
    well(&[&file, "--out", array.to_str().unwrap(), "--slurm", "2", "--force"]);
    let bin = Path::new(env!("CARGO_BIN_EXE_meshwright")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let task = |index: &str| {
        let mut bash = Command::new("bash");
        bash.arg(&script).env("PATH", &path).env("SLURM_ARRAY_TASK_ID", index).output().unwrap()
    };
    assert_eq!(task("1").status.code(), Some(0));
    let shards = array.join("shards");
    let merged = array;
    let merge = ["merge", file.as_str(), "--from", shards.to_str().unwrap(), "--out", merged.to_str().unwrap()];
    let early = run(&merge);
    assert_eq!(early.status.code(), Some(2));
    assert!(text(&early.stderr).contains("are missing"), "{}", text(&early.stderr));
    assert!(!merged.join("results.jsonl").exists(), "half a sweep is no sweep");
    assert_eq!(task("2").status.code(), Some(0));
    assert_eq!(task("2").status.code(), Some(0), "a task that is sent again finds its work done");
    well(&merge);
    for name in ["results.jsonl", "results.csv", "page.html"] {
        assert_eq!(std::fs::read(merged.join(name)).unwrap(), std::fs::read(whole.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn results_of_another_sweep_are_not_mixed_in() {
    let folder = folder("sweep-mixed");
    let out = folder.join("out");
    let one = SMALL.replace("{ from = 8, to = 32, times = 2 }", "8");
    let file = written(&folder, &one);
    well(&[&file, "--out", out.to_str().unwrap()]);
    let before = std::fs::read(out.join("results.jsonl")).unwrap();
    let file = written(&folder, &one.replace("1 B", "2 B"));
    let refused = run(&[&file, "--out", out.to_str().unwrap(), "--resume"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("another sweep"), "{}", text(&refused.stderr));
    assert_eq!(std::fs::read(out.join("results.jsonl")).unwrap(), before, "nothing is lost");
}

#[test]
fn bad_input_is_named() {
    let folder = folder("sweep-bad");
    let changes: [(&str, &str, &[&str]); 21] = [
        ("gpus = {", "gpuss = {", &["unknown field `gpuss`", "did you mean `gpus`"]),
        ("times = 2", "time = 2", &["unknown field `time`"]),
        ("name = \"small\"", "nam = \"small\"", &["unknown field `nam`", "did you mean `name`"]),
        ("runs = 2", "run = 2", &["unknown field `run`", "did you mean `runs`"]),
        ("runs = 2", "runs = 0", &["workload.twice.runs"]),
        ("\"1 B\"", "1e9", &["a number of tokens as text with its unit"]),
        ("\"llama3-8b\"", "\"llama3-9b\"", &["there is no model `llama3-9b`", "did you mean `llama3-8b`"]),
        ("\"h100-sxm\"", "\"h100\"", &["there is no GPU `h100`"]),
        ("\"contract\", \"own\"", "", &["expands to no option", "options.terms"]),
        ("\"contract\", \"own\"", "\"contrat\"", &["no terms `contrat`", "did you mean `contract`"]),
        ("times = 2", "step = -1", &["`step = -1` must be above 0"]),
        ("from = 8, to = 32, times = 2", "from = 1, to = 900000, step = 1", &["expands to 3600000 options"]),
        ("from = 8, to = 32, times = 2", "from = 1, to = 9000000, step = 1", &["over 1000000 values"]),
        ("terms = [", "price = [\"2.5\"]\nterms = [", &["options.price", "a price has a currency", "$/h"]),
        ("terms = [", "price = [2.5]\nterms = [", &["options.price", "a price has a currency"]),
        ("terms = [", "price = [\"-1 $/h\"]\nterms = [", &["options.price"]),
        ("terms = [", "nic = [\"400 Gb\"]\nterms = [", &["options.nic", "Gb/s"]),
        ("terms = [", "cluster = \"dgx-h100-8\"\nterms = [", &["both `gpu` and `cluster`"]),
        ("[options]", "[buy]\nbudget = \"-5 M$\"\n[options]", &["`-5 M$` is not an amount of money"]),
        ("[options]", "[buy]\nbudget = \"5 M\"\n[options]", &["is not an amount of money", "`M$`"]),
        ("[options]", "[buy]\ngoal = \"tokens\"\nbudget = \"5 M$\"\n[options]", &["buy.goal", "one workload"]),
    ];
    for (from, to, words) in changes {
        assert!(SMALL.contains(from), "{from}");
        let changed = SMALL.replacen(from, to, 1);
        // The limit is on options: this one is just under ten million.
        let output = if words[0].contains("3600000") {
            let more = changed.replace(
                "\"0.20 $/kWh\"",
                "\"0.20 $/kWh\", \"0.3 $/kWh\", \"0.4 $/kWh\", \"0.5 $/kWh\", \"0.6 $/kWh\"",
            );
            let output = run(&[&written(&folder, &more)]);
            assert!(text(&output.stderr).contains("10800000 options, over 10000000"), "{}", text(&output.stderr));
            assert!(text(&output.stderr).contains("gpus 900000"), "{}", text(&output.stderr));
            continue;
        } else {
            run(&[&written(&folder, &changed)])
        };
        let talk = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{to}: {talk}");
        assert_eq!(text(&output.stdout), "", "{to}");
        for word in words {
            assert!(talk.contains(word), "{to} does not say `{word}`: {talk}");
        }
    }
    let file = written(&folder, SMALL);
    for (args, word) in [
        (vec![file.as_str(), "--out", "/proc/no/such/folder"], "cannot be made"),
        (vec![file.as_str(), "--out", "x", "--shard", "3/2"], "1 ≤ i ≤ n"),
        (vec!["no-such-sweep.toml"], "cannot be read"),
        (vec![file.as_str(), "--resume"], "--out"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(word), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn constraints_that_cannot_all_hold_are_named() {
    let folder = folder("sweep-buy");
    let buy = |table: &str| {
        let output = run(&[&written(&folder, &format!("{SMALL}\n[buy]\n{table}"))]);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, talk) = buy("finish_by = \"60 d\"");
    assert_eq!(code, Some(0), "{talk}");
    assert!(out.contains("What to buy") && talk.contains("proved optimal"), "{talk}");
    let (code, _, talk) = buy("finish_by = \"60 d\"\nbudget = \"10 $\"");
    assert_eq!(code, Some(1), "{talk}");
    assert!(talk.contains("nothing meets all of [buy]") && talk.contains("without `budget` it takes $"), "{talk}");
    let (code, _, talk) = buy("finish_by = \"1 min\"\npower = \"1 W\"");
    assert_eq!(code, Some(1), "{talk}");
    assert!(talk.contains("without `finish_by` and `power` it takes $"), "{talk}");
    let (code, _, talk) = buy("period = [{ until = \"9 d\" }, { until = \"3 d\" }]");
    assert_eq!(code, Some(2), "{talk}");
    assert!(talk.contains("ends before it starts"), "{talk}");
}
