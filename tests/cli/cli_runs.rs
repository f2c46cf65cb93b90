//! `validate`, `runs from-log` and `--risk` as their user meets them.
use std::process::Command;

struct Answer {
    code: i32,
    out: String,
    err: String,
}

fn mw(args: &[&str]) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn at(name: &str) -> String {
    format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn validate_scores_runs_in_every_form() {
    let runs = at("published/runs.csv");
    let table = mw(&["validate", "--runs", &runs, "--only", "set=simumax"]);
    assert_eq!(table.code, 0, "{}", table.err);
    assert!(table.out.contains("Largest errors") && table.out.contains("simumax"), "{}", table.out);
    let json = mw(&["validate", "--runs", &runs, "--only", "purpose=pretrain", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((document["schema"].as_u64(), document["fit"].as_str()), (Some(1), Some("2026-11")));
    assert!(document["time"][0]["mean_ape"].as_f64().is_some_and(|error| error > 0.0 && error < 1.0));
    let wrong = mw(&["validate", "--runs", &runs, "--only", "gpus=8"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("did you mean `gpus_total`?"), "{}", wrong.err);
    let wrong = mw(&["validate", "--runs", &runs, "--set", "model.hidden=1"]);
    assert!(wrong.code == 2 && wrong.err.contains("gpu.… and stack.…"), "{}", wrong.err);
}

/// A cell that is negative or not a number of its kind, and a run that says too little: both are named, the rest is scored.
#[test]
fn validate_names_what_it_leaves_out() {
    let published = std::fs::read_to_string(at("published/runs.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(published.as_bytes());
    let header = reader.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|of| of == name).unwrap();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).unwrap();
    for (at, record) in reader.records().take(4).enumerate() {
        let mut cells: Vec<String> = record.unwrap().iter().map(ToOwned::to_owned).collect();
        let wrong: &[(&str, &str)] = match at {
            0 => &[("peak_mem_gib", "-3.5"), ("step_time_s", "0")],
            1 => &[("layers", "")],
            _ => &[],
        };
        for (name, value) in wrong {
            cells[column(name)] = (*value).to_owned();
        }
        writer.write_record(&cells).unwrap();
    }
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("left-out-{}.csv", std::process::id()));
    std::fs::write(&file, writer.into_inner().unwrap()).unwrap();
    let table = mw(&["validate", "--runs", file.to_str().unwrap()]);
    let json = mw(&["validate", "--runs", file.to_str().unwrap(), "--format", "json"]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(table.code, 0, "{}", table.err);
    assert!(table.out.contains("Not predicted") && table.out.contains("peak_mem_gib"), "{}", table.out);
    assert!(table.err.contains("2 measured cells") && table.err.contains("line 2, row `"), "{}", table.err);
    let document: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let cells = document["unmeasured"].as_array().unwrap();
    assert_eq!(
        (cells.len(), cells[1]["column"].as_str(), cells[1]["value"].as_str()),
        (2, Some("peak_mem_gib"), Some("-3.5"))
    );
    let reasons = document["unpredicted"].as_array().unwrap();
    assert!(
        reasons.iter().any(|of| of["reason"].as_str().is_some_and(|why| why.contains("model shape"))),
        "{reasons:?}"
    );
}

#[test]
fn a_log_becomes_a_row_that_is_scored() {
    let log = at("logs/megatron-llama3-8b.log");
    let lacking = mw(&["runs", "from-log", &log]);
    assert!(lacking.code == 0 && lacking.err.contains("not in the log: gpu"), "{}", lacking.err);
    let rows = mw(&["runs", "from-log", &log, "--with", "gpu=H100"]);
    assert_eq!(rows.code, 0, "{}", rows.err);
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rows-{}.csv", std::process::id()));
    std::fs::write(&file, rows.out).unwrap();
    let scored = mw(&["validate", "--runs", file.to_str().unwrap(), "--format", "json"]);
    std::fs::remove_file(&file).unwrap();
    let document: serde_json::Value = serde_json::from_str(&scored.out).unwrap();
    assert_eq!(document["points"].as_array().map(Vec::len), Some(1), "{}", scored.out);
    let no_log = mw(&["runs", "from-log", &at("cli/cli_runs.rs"), "--with", "gpu=H100"]);
    assert!(no_log.code == 2 && no_log.err.contains("no step of Megatron-LM"), "{}", no_log.err);
}

#[test]
fn risk_lowers_the_memory_that_plans_may_fill() {
    let fullest = |risk: &[&str]| {
        let plan = mw(&[&["plan", "qwen3-8b", "dgx-h100-8", "--format", "json"], risk].concat());
        let document: serde_json::Value = serde_json::from_str(&plan.out).unwrap();
        for plan in document["plans"].as_array().unwrap() {
            let step = |key: &str| plan[key].as_f64().unwrap();
            assert!(step("step_time_p05_s") < step("step_time_s") && step("step_time_s") < step("step_time_p95_s"));
        }
        let plans = document["plans"].as_array().unwrap();
        let most = |key: &str| plans.iter().map(|plan| plan[key].as_f64().unwrap()).fold(0.0, f64::max);
        (most("peak_mem_gib"), most("oom_probability"))
    };
    let ((usual, accepted), (careful, least)) = (fullest(&[]), fullest(&["--risk", "0.03"]));
    assert!(careful < usual && usual < fullest(&["--risk", "1"]).0, "{careful} {usual}");
    assert!(accepted <= 0.05 + 1e-9 && least <= 0.03 + 1e-9, "{accepted} {least}");
    let least = mw(&["plan", "qwen3-8b", "dgx-h100-8", "--risk", "0.01"]);
    assert!(least.out.contains("show no risk of running out of memory below 2 %"), "{}", least.out);
    let shown = mw(&["plan", "qwen3-8b", "dgx-h100-8", "--risk", "0.03"]);
    assert!(shown.code == 0 && !shown.out.contains("show no risk"), "{}{}", shown.out, shown.err);
    let wrong = mw(&["plan", "llama3-8b", "dgx-h100-8", "--risk", "5"]);
    assert!(wrong.code == 2 && wrong.err.contains("a probability"), "{}", wrong.err);
}
