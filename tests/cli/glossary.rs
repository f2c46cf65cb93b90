//! The glossary: an entry for all that a plan and its prediction name, and one text behind the command and the document.
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use meshwright::cost::{Tenant, Term};
use meshwright::frameworks;
use meshwright::plan::text::KEYS;
use meshwright::schedule::Schedule;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).arg("glossary").args(args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn entries(of: &str) -> Vec<toml::Table> {
    let glossary: toml::Table = read("docs/glossary.toml").parse().unwrap();
    glossary[of].as_array().unwrap().iter().map(|entry| entry.as_table().unwrap().clone()).collect()
}

fn names(of: &str) -> Vec<String> {
    entries(of).iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_key_and_term_has_an_entry() {
    assert_eq!(names("plan"), KEYS);
    assert_eq!(names("time"), Term::ALL.iter().map(|term| term.key()).collect::<Vec<_>>());
    assert_eq!(names("memory"), Tenant::ALL.iter().map(|tenant| tenant.key()).collect::<Vec<_>>());
}

#[test]
fn the_schedules_are_the_values_of_their_key() {
    let entry = entries("plan").into_iter().find(|entry| entry["name"].as_str() == Some("schedule")).unwrap();
    assert_eq!(entry["values"].as_str(), Some(Schedule::names().join(", ").as_str()));
}

/// Text of all files below a folder.
fn all_text(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { all_text(&path) } else { std::fs::read_to_string(path).unwrap() }).collect()
}

/// Keys of an entry of a plan's key that are no framework.
const OWN_KEYS: [&str; 7] = ["name", "also", "title", "is", "values", "default", "section"];

/// A setting in backticks is one that `emit` writes: its last part stands in the source of the emitters.
#[test]
fn settings_are_those_that_are_emitted() {
    let source = all_text(&root().join("crates/frameworks/src"));
    let mut checked = BTreeSet::new();
    for entry in entries("plan") {
        let settings: Vec<_> = entry.iter().filter(|(key, _)| !OWN_KEYS.contains(&key.as_str())).collect();
        assert_eq!(settings.len(), 10, "settings of `{}`; Megatron's stand for its relatives", entry["name"]);
        for (framework, text) in settings {
            assert!(frameworks::named(&framework.replace('_', "-")).is_some(), "no framework `{framework}`");
            for setting in text.as_str().unwrap().split('`').skip(1).step_by(2) {
                let last = setting.trim_start_matches("--").split('.').next_back().unwrap().to_owned();
                let part = last.strip_prefix("parallelism_config_").and_then(|key| key.strip_suffix("_size"));
                assert!(source.contains(part.unwrap_or(&last)), "no emitter writes `{setting}`");
                checked.insert(setting.to_owned());
            }
        }
    }
    assert!(checked.len() > 50, "only {} settings", checked.len());
}

#[test]
fn sections_are_headings_of_the_specification() {
    let specification = read("docs/specification.md");
    for of in ["plan", "time", "memory", "word"] {
        for entry in entries(of) {
            let section = entry["section"].as_str().unwrap();
            let heads = |line: &str| {
                let mut words = line.split_whitespace();
                words.next().is_some_and(|hashes| hashes.starts_with('#'))
                    && words.next().is_some_and(|number| number.trim_end_matches('.') == section)
            };
            assert!(specification.lines().any(heads), "{}: no §{section}", entry["name"]);
        }
    }
}

/// `meshwright glossary --format markdown` is what follows the document's first paragraph.
#[test]
fn the_document_is_what_the_command_prints() {
    let printed = out(&run(&["--format", "markdown"]));
    assert!(printed.starts_with("## Keys of a plan"), "{printed}");
    let document = read("docs/glossary.md");
    assert!(
        document.ends_with(&printed),
        "docs/glossary.md: replace all from its first `##` by `meshwright glossary --format markdown`"
    );
}

#[test]
fn one_term_is_answered_alone() {
    let tp = out(&run(&["TP"]));
    assert!(tp.contains("tensor-parallel size") && tp.contains("--tensor-model-parallel-size"), "{tp}");
    assert!(!tp.contains("context-parallel size"), "{tp}");
    let optimizer: serde_json::Value = serde_json::from_str(&out(&run(&["optimizer", "--format", "json"]))).unwrap();
    let lengths = ["plan", "time", "memory", "word"].map(|of| optimizer["glossary"][of].as_array().unwrap().len());
    assert_eq!(lengths, [0, 1, 1, 0]);
    assert!(out(&run(&["micro-batch"])).contains("mbs"));
    assert!(out(&run(&["tp comm"])).contains("tp_comm"));
}

/// A value that an answer prints leads to its key.
#[test]
fn a_value_is_answered_by_its_key() {
    for (value, key) in [
        ("hybridep", "dispatcher"),
        ("deepep", "dispatcher"),
        ("interleaved", "schedule"),
        ("core_attn", "recompute"),
        ("cost-balanced", "split"),
    ] {
        let answer: serde_json::Value = serde_json::from_str(&out(&run(&[value, "--format", "json"]))).unwrap();
        let keys = answer["glossary"]["plan"].as_array().unwrap();
        assert_eq!(keys.iter().map(|entry| entry["name"].as_str().unwrap()).collect::<Vec<_>>(), [key], "{value}");
    }
    assert_eq!(run(&["whole"]).status.code(), Some(2));
}

#[test]
fn an_unknown_term_gets_the_nearest() {
    let output = run(&["dispacher"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(out(&output), "");
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(talk.contains("no `dispacher`") && talk.contains("did you mean `dispatcher`?"), "{talk}");
}
