//! Whole reports, word for word. `UPDATE_EXPECT=1 cargo test --test cli goldens` rewrites them; the diff is then the review.
use std::process::Command;

use expect_test::expect_file;
use serde_json::Value;

/// Stdout of the program where there is no terminal, after a mark of how it ended; its talk too where it gave no answer.
fn report(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let output = command.args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    let talk = if code == 0 { String::new() } else { text(output.stderr) };
    format!("$ meshwright {}\n{}{talk}[exit code {code}]\n", args.join(" "), text(output.stdout))
}

/// Figures of a document to six digits: the last bits differ between machines' mathematical libraries.
fn rounded(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let figure = number.as_f64().unwrap();
            *value = serde_json::from_str(&format!("{figure:.5e}")).unwrap();
        }
        Value::Array(items) => items.iter_mut().for_each(rounded),
        Value::Object(fields) => fields.values_mut().for_each(rounded),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn json(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().unwrap();
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    rounded(&mut document);
    format!("{}\n", serde_json::to_string_pretty(&document).unwrap())
}

#[test]
fn the_main_job() {
    expect_file!["goldens/plan.txt"].assert_eq(&report(&["plan", "llama3-405b", "h100-24576"]));
}

/// README shows the output of its first command; "…" stands for lines left out.
#[test]
fn the_readme_shows_the_main_job() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    let shown = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of text");
    let printed = report(&["plan", "llama3-405b", "h100-24576"]);
    assert!(shown.lines().count() > 15, "{shown}");
    for part in shown.split("…\n") {
        assert!(printed.contains(part.trim_end()), "not printed:\n{part}");
    }
}

#[test]
fn a_mixture_of_experts() {
    let args = ["plan", "qwen3-235b-a22b", "hgx-b200-512", "--precision", "mxfp8", "--top", "3"];
    expect_file!["goldens/plan-moe.txt"].assert_eq(&report(&args));
}

/// The fastest plan has the degrees of the recommended one: the sentence names what differs.
#[test]
fn a_declined_plan_of_the_same_degrees() {
    let question = ["plan", "mistral-7b", "dgx-a100-1k", "--gpus", "1", "--stack", "fsdp-eager-2023", "--lora"];
    let report = report(&[&question[..], &["--global-batch", "4", "--seq-len", "2048"]].concat());
    assert!(report.contains("Fastest by the model: micro-batch 4, "), "{report}");
}

/// The first row is as fast as the recommended one by all that is printed: nothing is said of it.
#[test]
fn a_difference_that_is_not_printed_is_not_explained() {
    let report = report(&["plan", "llama3-8b", "h100-512", "--global-batch", "256"]);
    assert!(report.contains("\n>2 ") && !report.contains("Row 1 is"), "{report}");
}

/// Whoever asks for mechanisms without a published run is not told that a plan has one.
#[test]
fn what_was_asked_for_is_no_reason_against_a_plan() {
    let question = ["plan", "llama3-70b", "gb200-nvl72-1152", "--gpus", "144", "--global-batch", "416"];
    let words = |args: &[&str]| report(args).split_whitespace().collect::<Vec<_>>().join(" ");
    let exotic = words(&[&question[..], &["--exotic"]].concat());
    assert!(exotic.contains("not recommended, because it needs"), "{exotic}");
    assert!(words(&question).contains("because no published run has shown"));
}

#[test]
fn a_plan_as_a_document() {
    let args = ["plan", "llama3-8b", "dgx-h100-8", "--top", "1", "--format", "json"];
    expect_file!["goldens/plan.json"].assert_eq(&json(&args));
}

#[test]
fn a_plan_for_a_document_of_the_user() {
    let args = ["plan", "gemma3-27b", "tpu-v5p-1024", "--top", "2", "--format", "markdown"];
    expect_file!["goldens/plan.md"].assert_eq(&report(&args));
}

#[test]
fn no_plan_fits() {
    expect_file!["goldens/no-plan.txt"].assert_eq(&report(&["plan", "llama3-405b", "dgx-h100-8"]));
}

#[test]
fn a_plan_laid_open() {
    let args = ["explain", "llama3-8b", "dgx-h100-8", "--plan", "tp=2 pp=2 vpp=4"];
    expect_file!["goldens/explain.txt"].assert_eq(&report(&args));
}

#[test]
fn a_plan_that_does_not_run() {
    let args = ["explain", "llama3-405b", "h100-24576", "--plan", "tp=3 pp=5"];
    expect_file!["goldens/explain-refused.txt"].assert_eq(&report(&args));
}

#[test]
fn the_back_of_an_envelope() {
    expect_file!["goldens/budget.txt"].assert_eq(&report(&["budget", "deepseek-v3"]));
}

#[test]
fn a_model_counted() {
    expect_file!["goldens/model.json"].assert_eq(&json(&["models", "deepseek-v3", "--format", "json"]));
}

#[test]
fn published_runs_predicted() {
    let args = ["predict", "--runs", "tests/cli/goldens/runs.csv"];
    expect_file!["goldens/predict.txt"].assert_eq(&report(&args));
}
