//! One plan laid open: against another, as a trace, as a picture, and what binds the winner.
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const DEEP: [&str; 7] = ["explain", "llama3-70b", "h100-512", "--gpus", "64", "--global-batch", "64"];
const PLAN: &str = "tp=4 cp=1 pp=4 vpp=5 mbs=1 recompute=layernorm+act";

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).output().expect("it starts")
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Seconds of a cell such as `-1.2 s` or `35.0 ms`.
fn seconds(cell: &str) -> f64 {
    let (number, unit) = cell.trim().split_once(' ').unwrap_or_else(|| panic!("`{cell}` is no time"));
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        _ => panic!("`{cell}`: what is {unit}?"),
    };
    number.replace('+', "").parse::<f64>().expect("a number") * scale
}

/// The cells of a Markdown row.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn answers_say_that_no_published_run_has_a_mixer() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hf/lfm2-1.2b.json");
    let says = |answer: &str| answer.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "No published run has gated short convolutions: intervals are those of a stack without runs.";
    let question = [model, "dgx-h100-8", "--global-batch", "64"];
    for command in [&["plan"][..], &["explain"], &["explain", "--plan", "tp=1 mbs=2", "--format", "markdown"]] {
        let text = says(&out(&run(&[command, &question].concat())));
        assert!(text.contains(sentence) && text.contains("gated short convolutions without data"), "{text}");
    }
    let document = json(&out(&run(&[&["plan", "--format", "json"][..], &question].concat())));
    let class = &document["plans"][0]["interval_class"];
    assert_eq!(class, "dense, gated short convolutions without data, GPU with data");
}

#[test]
fn a_plan_is_compared_with_another_term_by_term() {
    let other = "tp=8 cp=1 pp=1 mbs=1 zero=1";
    let args = [&DEEP[..], &["--plan", PLAN, "--why-not", other, "--format", "markdown"]].concat();
    let text = out(&run(&args));
    let start = text.lines().position(|line| line.contains("difference"));
    let table: Vec<Vec<&str>> =
        text.lines().skip(start.expect("a comparison")).filter(|line| line.starts_with('|')).map(cells).collect();
    let sum = |column: usize| -> f64 {
        table[2..].iter().take_while(|row| row[0] != "total").map(|row| seconds(row[column])).sum()
    };
    let total = table.iter().find(|row| row[0] == "total").expect("a row of sums");
    for column in [1, 2, 3] {
        let (terms, total) = (sum(column), seconds(total[column]));
        assert!((terms - total).abs() < 0.005 * total.abs() + 0.05, "column {column}: {terms} and {total}\n{text}");
    }
    assert!((seconds(total[1]) - seconds(total[2]) - seconds(total[3])).abs() < 0.02, "{text}");
}

/// The title says what the framework, or its release, cannot run; without a plan the answer says it too.
#[test]
fn a_plan_that_no_file_can_say_is_compared_with_the_reason() {
    let old = ["llama2-13b", "dgx-h100-64", "--stack", "nemo-24"];
    let text = out(&run(&[&["explain"], &old[..], &["--why-not", "zero=3", "--format", "markdown"]].concat()));
    let why = "Megatron-LM cannot run zero=3: Megatron-FSDP came with Megatron core 0.14; NeMo 24.x has 0.9";
    assert!(text.contains(&format!("Why not zero=3: {why}; it would take ")), "{text}");
    let output = run(&[&["plan"], &old[..], &["--fix", "zero=3"]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("--fix zero=3: {why}")));
}

#[test]
fn a_plan_that_does_not_run_is_compared_as_the_nearest_that_does() {
    // All of a 70B model and its states on every GPU: far too large.
    let args = [&DEEP[..], &["--plan", PLAN, "--why-not", "tp=1 cp=1 pp=1 mbs=1 zero=0"]].concat();
    let output = run(&args);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(out(&output).contains("out-of-memory"), "{talk}");
    assert!(talk.contains("the nearest feasible plan is compared"), "{talk}");

    let args = [&DEEP[..], &["--plan", "tp=4 cp=1 pp=2 mbs=4 zero=0 recompute=none"]].concat();
    let output = run(&args);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{talk}");
    let near = talk.lines().find(|line| line.contains("nearest feasible plan: ")).unwrap_or_else(|| panic!("{talk}"));
    // Recomputation and sharding come before anything else is changed.
    assert!(near.contains("tp=4 cp=1 pp=2") && near.contains("mbs=4"), "{near}");
}

#[test]
fn a_trace_has_every_pass_on_every_stage_and_adds_up() {
    let path = file("trace.json");
    let args =
        [&DEEP[..], &["--plan", PLAN, "--force", "--trace", path.to_str().expect("text"), "--format", "json"]].concat();
    let answer = json(&out(&run(&args)));
    let trace = json(&std::fs::read_to_string(&path).expect("written"));
    let events = trace["traceEvents"].as_array().expect("events");
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
    let (slices, counters) = (of("X"), of("C"));
    let (pp, chunks, micro_batches) = (4, 20, 64 / 4);
    let names: BTreeSet<&str> =
        slices.iter().filter(|event| event["cat"] == "compute").filter_map(|event| event["name"].as_str()).collect();
    for (letter, chunk, micro_batch) in itertools::iproduct!(["F", "B"], 0..chunks, 0..micro_batches) {
        let name = format!("{letter} micro-batch {micro_batch} chunk {chunk}");
        assert!(names.contains(name.as_str()), "no `{name}`");
    }
    for rank in 0..pp {
        // Nothing overlaps on a rank's compute stream.
        let mut spans: Vec<(f64, f64)> = slices
            .iter()
            .filter(|event| event["pid"] == rank && event["tid"] == 0)
            .map(|event| (event["ts"].as_f64().expect("time"), event["dur"].as_f64().expect("time")))
            .collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in spans.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0 + 1e-3, "rank {rank}: {pair:?}");
        }
        let most = counters
            .iter()
            .filter(|event| event["pid"] == rank)
            .map(|event| {
                let args = &event["args"];
                args["states and buffers"].as_f64().expect("GiB") + args["activations"].as_f64().expect("GiB")
            })
            .fold(0.0, f64::max);
        let told = answer["ranks"][rank]["peak_mem_gib"].as_f64().expect("GiB");
        assert!((most - told).abs() < 0.01 * told, "rank {rank}: the trace peaks at {most} GiB, {told} are told");
    }
    let end = slices
        .iter()
        .map(|event| event["ts"].as_f64().expect("time") + event["dur"].as_f64().expect("time"))
        .fold(0.0, f64::max);
    let step = trace["otherData"]["step_time_s"].as_f64().expect("seconds") * 1e6;
    // Stragglers have no place in a trace, and sends between ranks may wait a little more than their closed form says.
    assert!(end <= step * 1.02 && end >= step * 0.85, "the trace ends at {end} us of {step} us");
}

#[test]
fn a_picture_shows_each_stage() {
    let path = file("pipeline.svg");
    let args = [&DEEP[..], &["--plan", PLAN, "--force", "--svg", path.to_str().expect("text")]].concat();
    out(&run(&args));
    let text = std::fs::read_to_string(&path).expect("written");
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{}", &text[..200]);
    for rank in 0..4 {
        assert!(text.contains(&format!("rank {rank}")) || text.contains(&format!("stage {rank}")), "no rank {rank}");
    }
    assert!(slices_drawn(&text) > 4 * 2 * 5 * 16, "every pass is a box");
    assert!(text.contains("GiB"), "the memory of each stage");
}

/// Number of boxes in the paths of a drawing: each ends with its lower edge, drawn to the left.
fn slices_drawn(svg: &str) -> usize {
    svg.split(" d=\"").skip(1).map(|path| path.split('"').next().unwrap_or_default().matches("h-").count()).sum()
}

/// Zero-bubble V and the two bidirectional pipelines are simulated and drawn as the others are: every pass of every
/// micro-batch once, its memory and its time as stated.
#[test]
fn schedules_that_go_both_ways_have_a_trace_and_a_picture() {
    let problem =
        ["explain", "deepseek-v2", "h800-2048", "--gpus", "64", "--global-batch", "128", "--stack", "deepseek-v3"];
    for (schedule, chunks) in [("zb-v", 8), ("dualpipe", 4), ("dualpipe-v", 8)] {
        let path = file(&format!("{schedule}.json"));
        let drawn = file(&format!("{schedule}.svg"));
        let plan = format!("tp=1 cp=1 pp=4 ep=16 schedule={schedule} mbs=1");
        let pictures = ["--force", "--trace", path.to_str().expect("text"), "--svg", drawn.to_str().expect("text")];
        let output = run(&[&problem[..], &["--plan", &plan, "--format", "json"], &pictures].concat());
        let answer = json(&String::from_utf8_lossy(&output.stdout));
        let trace = json(&std::fs::read_to_string(&path).expect("written"));
        let events = trace["traceEvents"].as_array().expect("events");
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        let mut passes: Vec<(String, u64)> = Vec::new();
        for event in slices.iter().filter(|event| event["cat"] == "compute") {
            let name = event["name"].as_str().expect("a name");
            let rank = event["pid"].as_u64().expect("a rank");
            passes.extend(
                name.split(" beside ").filter(|part| part.contains("chunk")).map(|part| (part.to_owned(), rank)),
            );
        }
        let micro_batches = 128 / 16;
        for (chunk, micro_batch) in itertools::iproduct!(0..chunks, 0..micro_batches) {
            let of = |letter: &str| {
                let wanted = format!("{letter} micro-batch {micro_batch} chunk {chunk}");
                passes.iter().filter(|(name, _)| *name == wanted).map(|(_, rank)| *rank).collect::<Vec<u64>>()
            };
            let down = if chunk < 4 { chunk } else { 7 - chunk };
            let rank = if schedule == "dualpipe" && micro_batch >= micro_batches / 2 { 3 - down } else { down };
            assert_eq!(of("F"), [rank], "{schedule}: F {micro_batch} {chunk}");
            let backward = [of("B"), of("I")].concat();
            assert_eq!(backward, [rank], "{schedule}: B {micro_batch} {chunk}");
            assert_eq!(of("W"), of("I"), "{schedule}: W {micro_batch} {chunk}");
        }
        assert_eq!(
            slices.iter().any(|event| event["name"].as_str().is_some_and(|name| name.contains(" beside "))),
            schedule != "zb-v"
        );
        let step = trace["otherData"]["step_time_s"].as_f64().expect("seconds");
        assert!(
            (answer["prediction"]["step_time_s"].as_f64().expect("seconds") / step - 1.0).abs() < 1e-9,
            "{schedule}"
        );
        let last = |event: &&&Value| event["ts"].as_f64().expect("time") + event["dur"].as_f64().expect("time");
        let end = slices.iter().map(|event| last(&event)).fold(0.0, f64::max);
        assert!(end <= step * 1.05e6 && end >= step * 0.85e6, "{schedule}: ends at {end} us of {step} s");
        for rank in 0..4 {
            let held = |event: &&Value| {
                let args = &event["args"];
                args["states and buffers"].as_f64().expect("GiB") + args["activations"].as_f64().expect("GiB")
            };
            let counters = events.iter().filter(|event| event["ph"] == "C" && event["pid"] == rank);
            let most = counters.map(|event| held(&event)).fold(0.0, f64::max);
            let told = answer["ranks"][rank]["peak_mem_gib"].as_f64().expect("GiB");
            assert!((most - told).abs() < 0.01 * told, "{schedule} rank {rank}: {most} GiB drawn, {told} told");
        }
        let picture = std::fs::read_to_string(&drawn).expect("written");
        assert!(slices_drawn(&picture) > 2 * chunks as usize * micro_batches as usize, "{schedule}");
    }
}

#[test]
fn a_plan_that_its_schedule_cannot_play_has_no_trace_and_says_so() {
    let path = file("none.json");
    let plan = "tp=8 cp=1 pp=8 schedule=dualpipe mbs=8";
    let output = run(&[&DEEP[..], &["--plan", plan, "--force", "--trace", path.to_str().expect("text")]].concat());
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && talk.contains("cannot run 8 micro-batches") && talk.contains("hint: "),
        "{talk}"
    );
}

/// A faster network does not bring back plans that may run out of memory.
#[test]
fn sensitivity_keeps_the_risk_that_was_asked() {
    let asked = ["llama3-8b", "dgx-h100-8", "--risk", "0.01"];
    let args = [&["plan"][..], &asked, &["--sensitivity", "--format", "json"]].concat();
    let answer = json(&out(&run(&args)));
    let changes = answer["sensitivity"].as_array().expect("changes");
    let network = changes.iter().find(|change| change["what"] == "network +10 %").expect("a change of the network");
    let risky = json(&out(&run(&["plan", "llama3-8b", "dgx-h100-8", "--risk", "1", "--format", "json"])));
    assert_ne!(network["plan"], risky["plans"][0]["plan"], "the risk binds here");
    assert_eq!(network["plan"], answer["sensitivity_of"]["plan"], "one node has no network");
}

#[test]
fn sensitivity_takes_one_step_of_each_degree_and_more_of_each_figure() {
    let args = ["plan", "llama3-70b", "h100-512", "--gpus", "64", "--global-batch", "64", "--sensitivity"];
    let answer = json(&out(&run(&[&args[..], &["--format", "json"]].concat())));
    let best = answer["sensitivity_of"]["step_time_s"].as_f64().expect("seconds");
    let changes = answer["sensitivity"].as_array().expect("changes");
    let mut keys = BTreeSet::new();
    for change in changes {
        let what = change["what"].as_str().expect("text");
        let Some(slower) = change["slower"].as_f64() else { continue };
        let (key, rest) = what.split_once(' ').expect("two words");
        keys.insert(key);
        if rest.contains('→') {
            let (from, to) = rest.split_once(" → ").expect("a step");
            let plan = change["plan"].as_str().expect("a plan");
            assert!(plan.contains(&format!("{key}={to}")) || to == "1", "{what}: {plan}");
            assert_ne!(from, to);
            assert!(slower >= -1e-12, "{what}: the winner was no winner ({slower})");
        } else {
            assert!(slower <= 1e-12, "{what}: more of it is slower ({slower})");
        }
        let step = change["step_time_s"].as_f64().expect("seconds");
        assert!((step / best - 1.0 - slower).abs() < 1e-9, "{what}");
    }
    for key in ["tp", "cp", "pp", "mbs", "network", "HBM", "peak"] {
        assert!(keys.contains(key), "no change of {key} in {keys:?}");
    }
    let table = out(&run(&args));
    assert!(table.contains("Sensitivity of the fastest plan"), "{table}");
}

/// The nearest plan keeps the degrees that are not why a plan does not run.
#[test]
fn the_nearest_plan_keeps_what_can_stay() {
    let nearest = |plan: &str| {
        let output = run(&["explain", "llama3-8b", "dgx-h100-64", "--plan", plan]);
        let text = String::from_utf8(output.stdout).expect("text") + &String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find_map(|line| line.strip_prefix("nearest feasible plan: ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{text}"))
    };
    assert!(nearest("tp=8 cp=16").starts_with("tp=8 cp="), "the degree of context parallelism alone is too large");
    assert!(nearest("tp=3 cp=2").contains(" cp=2 "), "the degree of tensor parallelism alone divides nothing");
}

/// A plan that is legal but that the stack's framework cannot express is priced, and says so.
#[test]
fn a_plan_that_its_framework_cannot_launch_says_so() {
    let question = |schedule: &str, more: &[&str]| {
        let plan = format!("tp=2 pp=4 zero=1 mbs=1 {schedule}");
        out(&run(&[&["explain", "llama3-8b", "dgx-h100-64", "--plan", &plan], more].concat()))
    };
    let refused = question("schedule=zb-h1", &[]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(refused.contains("launch Megatron-LM cannot run schedule=zb-h1"), "{refused}");
    let document = json(&question("schedule=zb-h1", &["--format", "json"]));
    assert!(document["refused"].as_str().is_some_and(|why| why.contains("zb-h1")), "{document}");
    assert!(!question("schedule=1f1b", &[]).contains("\nlaunch "));
    assert!(json(&question("schedule=1f1b", &["--format", "json"]))["refused"].is_null());
}

/// Only what is at fault is changed in the nearest feasible plan.
#[test]
fn the_nearest_plan_of_a_wrong_expert_group_keeps_the_rest() {
    let plan = "ep=12 dp=64 zero=1 mbs=1 dispatcher=deepep recompute=none";
    let talk = String::from_utf8(run(&["explain", "qwen3-30b-a3b", "dgx-h100-64", "--plan", plan]).stderr).unwrap();
    let near = talk.lines().find(|line| line.contains("nearest feasible plan: ")).unwrap_or_else(|| panic!("{talk}"));
    assert!(near.contains("dp=64 ep=") && near.contains("dispatcher=deepep zero=1 mbs=1 recompute=none"), "{near}");
}
