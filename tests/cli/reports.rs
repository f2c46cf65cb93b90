//! Reports in HTML: one file each, without scripts and requests, also in a real browser. The browser is headless Chromium
//! driven by playwright-core; skipped, and said so, where either is absent.
//!
//! `CHROMIUM` names the browser where it is not on the path; `PLAYWRIGHT_FROM` a file of the folder that `playwright-core` and
//! `axe-core` are installed in where it is not `web/`.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::sweep::{folder, text};

const SWEEP: &str = r#"
name = "A page <with> a \"name\" </script>"
[[workload]]
name = "short"
model = "llama3-8b"
tokens = "1 B"
global_batch = 128
[[workload]]
name = "long"
model = "llama3-8b"
tokens = "20 B"
runs = 3
global_batch = 256
[options]
gpu = ["h100-sxm", "b200-sxm"]
gpus = [8, 16, 32]
terms = ["contract", "own"]
[buy]
finish_by = "90 d"
"#;

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).current_dir(folder).output().unwrap()
}

/// Report that a command writes, as text; none of them loads or runs anything.
fn report(folder: &Path, name: &str, args: &[&str]) -> String {
    let made = run(folder, args);
    assert!(made.status.success(), "{args:?}: {}", text(&made.stderr));
    let html = std::fs::read_to_string(folder.join(name)).unwrap();
    for never in ["<script", "javascript:", "onload", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(never), "{name}: {never}");
    }
    assert!(html.starts_with("<!doctype html>\n<html lang=\"en\">") && html.ends_with("</html>\n"), "{name}");
    html
}

fn small_runs(folder: &Path) {
    let all = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/published/runs.csv")).unwrap();
    let few: String = all.split_inclusive('\n').take(40).collect();
    std::fs::write(folder.join("runs.csv"), few).unwrap();
}

/// The four reports in a folder, as texts.
fn reports(folder: &Path) -> [String; 4] {
    small_runs(folder);
    std::fs::write(folder.join("sweep.toml"), SWEEP).unwrap();
    let plan = ["plan", "llama3-70b", "h100-512", "--html", "plan.html", "--tokens", "1 T", "--sensitivity"];
    let layout = "tp=4 pp=8 vpp=5";
    let explain =
        ["explain", "llama3-70b", "h100-512", "--plan", layout, "--why-not", "tp=8", "--html", "explain.html"];
    [
        report(folder, "plan.html", &plan),
        report(folder, "explain.html", &explain),
        report(folder, "validate.html", &["validate", "--runs", "runs.csv", "--html", "validate.html"]),
        report(folder, "page.html", &["sweep", "sweep.toml", "--out", "."]),
    ]
}

fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].map(PathBuf::from);
    named.into_iter().chain(usual).find(|path| path.exists())
}

fn installed() -> String {
    std::env::var("PLAYWRIGHT_FROM").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/web/package.json").into())
}

fn has_driver() -> bool {
    let script = "const { resolve } = require('node:module').createRequire(process.argv[1]); \
                  resolve('playwright-core'); resolve('axe-core/axe.min.js')";
    let output = Command::new("node").args(["-e", script, &installed()]).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn a_reader_finds_what_the_command_prints() {
    let folder = folder("reports");
    let [plan, explain, validate, sweep] = reports(&folder);
    let printed = text(&run(&folder, &["plan", "llama3-70b", "h100-512", "--format", "json"]).stdout);
    let document: Value = serde_json::from_str(&printed).unwrap();
    let rank = document["recommended"]["rank"].as_u64().unwrap() as usize;
    let recommended = document["plans"][rank - 1]["plan"].as_str().unwrap();
    assert!(plan.contains(&format!("--plan &quot;{recommended}&quot;")), "the line to copy");
    for part in [
        "Recommended",
        "How sure this is",
        "Where a step of",
        "Memory of every pipeline rank",
        "Pipeline",
        " ms</text>",
        "days",
        "What was searched",
    ] {
        assert!(plan.contains(part), "{part}");
    }
    assert!(explain.contains("Why not tp=8") && explain.contains("<td>compute</td>"), "the comparison and the terms");
    let points = validate.matches("measured ").count();
    assert!(points > 20 && validate.contains("Errors by source"), "{points} points");
    let name = "A page &lt;with&gt; a &quot;name&quot; &lt;/script&gt;";
    assert!(sweep.contains(&format!("<h1>{name}</h1>")) && !sweep.contains("<with>"), "the name is text");
    for part in
        ["Cost against time", "Energy against time", "Where a step goes: long", "What moves the cost", "What to buy"]
    {
        assert!(sweep.contains(part), "{part}");
    }
    assert!(sweep.matches("<circle").count() >= 24, "twelve options, twice");
}

#[test]
fn a_report_is_not_written_where_there_is_none() {
    let folder = folder("reports-none");
    let none = run(&folder, &["plan", "llama3-405b", "dgx-h100-8", "--html", "none.html"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("--html: no plan runs"), "{}", text(&none.stderr));
    assert!(!folder.join("none.html").exists());
}

#[test]
fn reports_read_well_in_a_browser() {
    let folder = folder("reports-browser");
    let _ = reports(&folder);
    let Some(chromium) = browser().filter(|_| has_driver()) else {
        eprintln!(
            "SKIPPED: no Chromium here (apt-get install chromium, or set CHROMIUM), or npm ci was not run in web/"
        );
        return;
    };
    let names = ["plan.html", "explain.html", "validate.html", "page.html"];
    let output = Command::new("node")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reports/check.mjs"))
        .args([chromium.as_path(), &folder])
        .args(names.map(|name| folder.join(name)))
        .env("PLAYWRIGHT_FROM", installed())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in names {
        let of = &seen[name];
        for nothing in ["errors", "requests", "wide", "serious"] {
            assert_eq!(of[nothing], json!([]), "{name}: {nothing}");
        }
        assert!(of["texts"].as_u64().unwrap() > 15, "{name}: {of}");
    }
    assert_eq!(seen["page.html"]["title"], "A page <with> a \"name\" </script> · meshwright");
}
