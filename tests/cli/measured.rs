//! Answers of `plan` given the user's own measured runs.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use super::sweep::{folder, text};

const HEADER: &str = "id,framework,gpu,gpus_total,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,tp,pp,cp,dp,zero_stage,micro_batch,\
    global_batch,recompute,gated_mlp,sp,step_time_s";

/// File of runs of Llama 3 8B on H100; each row is `gpus,tp,pp,dp,micro-batch,global batch,seconds`.
fn runs(name: &str, rows: &[(&str, [f64; 7])]) -> PathBuf {
    let path = folder(name).join("runs.csv");
    let lines = rows.iter().map(|(gpu, [gpus, tp, pp, dp, mbs, batch, seconds])| {
        format!("r,Megatron-LM,{gpu},{gpus},32,4096,32,8,14336,128256,8192,{tp},{pp},1,{dp},1,{mbs},{batch},none,1,1,{seconds}\n")
    });
    std::fs::write(&path, format!("{HEADER}\n{}", lines.collect::<String>())).unwrap();
    path
}

fn plan(more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command
        .args(["plan", "llama3-8b", "dgx-h100-8", "--global-batch", "128", "--fix", "cp=1", "--fix", "zero=1"])
        .args(more);
    command.output().unwrap()
}

fn document(more: &[&str]) -> Value {
    let output = plan(&[more, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn plans(document: &Value) -> Vec<String> {
    document["plans"].as_array().unwrap().iter().map(|plan| plan["plan"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_plan_that_ran_slowly_falls_behind_and_another_is_recommended() {
    let before = document(&[]);
    let rank = before["recommended"]["rank"].as_u64().unwrap() as usize - 1;
    let first = &before["plans"][rank];
    let degree = |key: &str| first[key].as_f64().unwrap();
    let predicted = degree("step_time_s");
    let slow = [8.0, degree("tp"), degree("pp"), degree("dp"), degree("micro_batch"), 128.0, predicted * 1.5];
    let file = runs("measured-slow", &[("H100", slow)]);
    let after = document(&["--measured", file.to_str().unwrap()]);
    let plan = first["plan"].as_str().unwrap();
    let chosen = after["recommended"]["rank"].as_u64().unwrap() as usize - 1;
    assert_ne!(plans(&after)[chosen], plan, "half as long again as predicted, and still recommended");
    let given: Vec<f64> = after["recommended"]["step_given_runs_s"]
        .as_array()
        .unwrap()
        .iter()
        .map(|time| time.as_f64().unwrap())
        .collect();
    assert_eq!(given.len(), plans(&after).len());
    assert!(given.windows(2).all(|pair| pair[0] <= pair[1]), "{given:?}");
    let sum: f64 = after["recommended"]["p_best"].as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert_eq!(before["recommended"]["step_given_runs_s"], serde_json::json!([]));
}

#[test]
fn a_run_as_predicted_narrows_the_interval_around_its_plan() {
    let document = |name: &str, factor: f64| {
        let file = runs(name, &[("H100", [8.0, 2.0, 1.0, 4.0, 1.0, 128.0, 13.3 * factor])]);
        document(&[
            "--measured",
            file.to_str().unwrap(),
            "--fix",
            "tp=2",
            "--fix",
            "pp=1",
            "--fix",
            "mbs=1",
            "--fix",
            "recompute=none",
        ])
    };
    let (as_predicted, longer) = (document("measured-same", 1.0), document("measured-longer", 1.2));
    let time = |document: &Value, key: &str| document["recommended"][key][0].as_f64().unwrap();
    for (document, measured) in [(&as_predicted, 13.3), (&longer, 13.3 * 1.2)] {
        assert!((time(document, "step_given_runs_s") / measured - 1.0).abs() < 0.01, "its own run decides");
        let width = time(document, "step_given_runs_p95_s") / time(document, "step_given_runs_p05_s");
        assert!(width < 1.02, "{width}");
    }
}

#[test]
fn runs_of_something_else_are_left_out_by_name_and_alone_refused() {
    let mixed = [("H100", [8.0, 2.0, 1.0, 4.0, 1.0, 128.0, 13.5]), ("H200", [8.0, 2.0, 1.0, 4.0, 1.0, 128.0, 30.0])];
    let file = runs("measured-mixed", &mixed);
    let output = plan(&["--measured", file.to_str().unwrap()]);
    let talk = text(&output.stderr);
    assert!(output.status.success() && talk.contains("1 of 2 runs left out: line 3: it is of H200"), "{talk}");
    assert!(text(&output.stdout).contains("given the measured runs"));
    let file = runs("measured-other", &mixed[1..]);
    let output = plan(&["--measured", file.to_str().unwrap()]);
    let talk = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && talk.contains("no run tells of these plans: line 2: it is of H200"),
        "{talk}"
    );
    let output = plan(&["--measured", "runs.csv", "--pareto"]);
    assert_eq!(output.status.code(), Some(2));
    let output = plan(&["--measured", "no-such-file.csv"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("no-such-file.csv"));
}

/// MaxText's and Praxis' checkpoint policies decide what is recomputed; a row that names none is read as the least of recipes.
#[test]
fn runs_on_jax_are_read_by_their_policy() {
    let answer = |name: &str, stated: &str, policy: &str, fixed: &str| {
        let path = folder(name).join("runs.csv");
        let header = format!("{HEADER},recompute_modules");
        let row = format!("r,MaxText,H100,8,32,4096,32,8,14336,128256,8192,1,1,1,8,3,1,128,{stated},1,0,13.3,{policy}");
        std::fs::write(&path, format!("{header}\n{row}\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args(["plan", "llama3-8b", "dgx-h100-8", "--global-batch", "128", "--stack", "jax-2025", "--exotic"]);
        command.args(["tp=1", "cp=1", "zero=3", "mbs=1", fixed].iter().flat_map(|fixed| ["--fix", fixed]));
        command.args(["--format", "json", "--measured"]);
        let output = command.arg(&path).output().unwrap();
        assert!(output.status.success(), "{stated} {policy}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let given = document["recommended"]["step_given_runs_s"][0].as_f64().unwrap();
        (given, text(&output.stderr).contains("as the policy `minimal`"))
    };
    // The plan that ran takes as long as it did; a plan with other recomputation does not.
    let is_its_own = |given: f64| (given / 13.3 - 1.0).abs() < 0.01;
    let (given, noted) = answer("measured-open", "none", "", "recompute=per-op");
    assert!(is_its_own(given) && noted, "{given}");
    let (given, noted) = answer("measured-context", "none", "minimal_with_context", "recompute=none");
    assert!(is_its_own(given) && !noted, "{given}");
    let (given, noted) = answer("measured-nothing", "none", "none", "recompute=full");
    assert!(is_its_own(given) && !noted, "{given}");
    let (given, _) = answer("measured-other", "none", "none", "recompute=none");
    assert!(!is_its_own(given), "{given}");
}
