//! CUDA graphs that the recipes of a stack have: the answer is with them where the fastest plan gains by them, and without elsewhere.

use std::process::Command;

/// Text on stdout, and text on stderr, of an answered question.
fn answered(line: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(line.split_whitespace()).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{line}: {err}");
    (out.split_whitespace().collect::<Vec<_>>().join(" "), err)
}

/// Step time of the fastest plan of a question, by the document of `plan`.
fn fastest(line: &str) -> f64 {
    let (document, _) = answered(&format!("{line} --format json"));
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    document["plans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| plan["step_time_s"].as_f64().unwrap())
        .fold(f64::INFINITY, f64::min)
}

/// The pools of graphs take 10 GB: Mixtral 8x22B recomputes for them, and the experts of its layers, which graphs do not hold, have most
/// of the step.
#[test]
fn graphs_that_lose_by_their_own_price_are_left_out() {
    let line = "plan mixtral-8x22b gb200-nvl72-1152 --gpus 72 --no-refine --no-place";
    let (answer, notes) = answered(line);
    assert!(notes.contains("--set stack.cuda_graphs=false (the fastest plan is without the graphs"), "{notes}");
    assert!(!answer.contains("· CUDA graphs"), "{answer}");
    assert!(fastest(line) < fastest(&format!("{line} --set stack.cuda_graphs=true")));
}

/// DeepSeek-V3 on 64 GH200 fits without the pools alone.
#[test]
fn graphs_that_let_no_plan_fit_are_left_out() {
    let line = "plan deepseek-v3 64xgh200-quad --no-refine --no-place";
    let (_, notes) = answered(line);
    assert!(notes.contains("--set stack.cuda_graphs=false (the fastest plan is without the graphs"), "{notes}");
    let graphs = format!("{line} --set stack.cuda_graphs=true");
    let refused = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(graphs.split_whitespace()).output().unwrap();
    assert!(!refused.status.success());
}

/// Small experts wait for the host, which graphs relieve of nearly all launches outside them.
#[test]
fn graphs_that_gain_are_kept() {
    let line = "plan qwen3-30b-a3b gb200-nvl72-1152 --gpus 72 --no-refine --no-place";
    let (answer, notes) = answered(line);
    assert!(
        notes.contains("--set stack.cuda_graphs=true (as the stack's recipes") && answer.contains("· CUDA graphs"),
        "{notes}"
    );
    assert!(fastest(line) < fastest(&format!("{line} --set stack.cuda_graphs=false")));
}

/// A plan alone has graphs where it has room for their pools, as every row of an answer has that keeps them.
#[test]
fn every_row_is_priced_as_its_plan_alone() {
    for asked in ["qwen3-235b-a22b gb200-nvl72-1152", "glm-4.5 64xgh200-quad", "llama3-70b gb300-nvl72-1152 --gpus 144"]
    {
        let document = |line: &str| -> serde_json::Value { serde_json::from_str(&answered(line).0).unwrap() };
        let answer = document(&format!("plan {asked} --no-refine --no-place --format json"));
        for row in answer["plans"].as_array().unwrap() {
            let text = row["plan"].as_str().unwrap();
            let line = ["explain", &asked.replace(' ', "\t"), "--format\tjson\t--plan", text].join("\t");
            let alone = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(line.split('\t')).output().unwrap();
            let alone: serde_json::Value = serde_json::from_slice(&alone.stdout).unwrap();
            for figure in ["step_time_s", "peak_mem_gib"] {
                assert_eq!(alone["prediction"][figure], row[figure], "{asked}: {text}");
            }
        }
    }
}

/// Graphs of modules hold no layers that are recomputed as a whole: an answer of such plans has none, nor has such a plan alone.
#[test]
fn answers_keep_graphs_that_their_plans_hold() {
    let asked = "qwen3-30b-a3b gb200-nvl72-1152 --gpus 72";
    for (line, without) in [
        (format!("plan {asked} --fix recompute=full --no-refine --no-place"), "the fastest plan is without"),
        (format!("explain {asked} --plan ep=8,recompute=full"), "the plan is without"),
    ] {
        let (answer, notes) = answered(&line);
        let note = format!("({without} the graphs of the stack's recipes: recompute=full excludes them)");
        assert!(
            notes.contains(&format!("--set stack.cuda_graphs=false {note}")) && !answer.contains("· CUDA graphs"),
            "{notes}{answer}"
        );
    }
}

/// The note on a plan without graphs names what keeps them from it: a setting, the room for their pools, or its own illegality.
#[test]
fn notes_say_why_a_plan_has_no_graphs() {
    let asked = "deepseek-v3 gb200-nvl72-1152";
    for (plan, why) in [
        ("pp=6,dp=192,ep=8,zero=3", "zero=3 excludes them"),
        ("pp=6,dp=192,ep=8,recompute=first-2", "recompute=first-2 excludes them"),
        ("tp=2,pp=1,dp=576,ep=128,sp=on,mbs=2,recompute=mla_up_proj", "their pools do not fit beside it"),
        ("tp=5,pp=6,ep=8", "it is illegal with or without them"),
    ] {
        let line = format!("explain {asked} --plan {plan}");
        let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(line.split_whitespace()).output().unwrap();
        let notes = String::from_utf8(output.stderr).unwrap();
        assert!(notes.contains(&format!("the graphs of the stack's recipes: {why}")), "{plan}: {notes}");
    }
}

/// Without a plan no note speaks of the fastest one.
#[test]
fn notes_without_a_plan_name_none() {
    let line = "plan glm-4.5 gb200-nvl72-1152 --gpus 8 --fix tp=1 --no-refine --no-place";
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(line.split_whitespace()).output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("(no plan runs with the graphs of the stack's recipes, nor without)"), "{notes}");
}

/// The model's fastest plan runs out of memory more often than is accepted: alone it would be without the pools, which its line states.
#[test]
fn a_declined_plan_states_the_graphs_that_it_is_priced_with() {
    let asked = "deepseek-v3 gb200-nvl72-1152";
    let (answer, _) = answered(&format!("plan {asked} --no-refine --no-place"));
    let (_, line) = answer.split_once("Fastest --plan ").unwrap();
    let (text, set) = line.trim_start_matches('"').split_once('"').unwrap();
    let (document, _) = answered(&format!("plan {asked} --no-refine --no-place --format json"));
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let plan = text.replace(' ', ",");
    let (alone, _) = answered(&format!("explain {asked} --format json --plan {plan} {set}"));
    let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
    assert_eq!(set.trim(), "--set stack.cuda_graphs=true");
    assert_eq!(alone["prediction"]["step_time_s"], document["recommended"]["fastest"]["step_time_s"]);
}
