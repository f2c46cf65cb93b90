//! One price at the command line: the row of `plan`, the start of its refinement, the header of `emit`, and `explain`
//! of the plan and of the stages that `emit` wrote.

use serde_json::Value;

use super::commands::{json, out, run};

/// Step time and peak memory of a plan by `explain`, and whether it runs.
fn explained(problem: [&str; 2], plan: &str) -> (Value, Value, Value) {
    let [model, cluster] = problem;
    let answer = json(&run(&["explain", model, cluster, "--plan", plan, "--format", "json"]));
    let prediction = &answer["prediction"];
    (prediction["step_time_s"].clone(), prediction["peak_mem_gib"].clone(), answer["runs"].clone())
}

/// A plan without its split, and with another.
fn with_split(plan: &str, split: &str) -> String {
    let others = plan.split(' ').filter(|setting| !setting.starts_with("split="));
    others.map(str::to_owned).chain([format!("split={split}")]).collect::<Vec<_>>().join(" ")
}

#[test]
fn four_commands_agree_on_a_plan() {
    for (problem, fixed) in [
        (["llama3-70b", "h100-512"], ["pp=8", "split=cost-balanced"]),
        (["qwen3-235b-a22b", "h100-512"], ["pp=8", "schedule=1f1b"]),
        (["llama3-8b", "dgx-h100-64"], ["pp=4", "split=even"]),
        (["llama3-70b", "gb200-nvl72-1152"], ["pp=4", "schedule=interleaved"]),
        (["mixtral-8x22b", "gb200-nvl72-1152"], ["pp=4", "schedule=1f1b"]),
        (["qwen3-30b-a3b", "gb300-nvl72-1152"], ["pp=2", "schedule=1f1b"]),
        (["qwen3-30b-a3b", "gb300-nvl72-1152"], ["pp=2", "recompute=full"]),
    ] {
        let [model, cluster] = problem;
        let asked = ["plan", model, cluster, "--fix", fixed[0], "--fix", fixed[1], "--refine", "1", "--format", "json"];
        let answer = json(&run(&asked));
        let best = &answer["plans"][0];
        let plan = best["plan"].as_str().unwrap();
        let row = (best["step_time_s"].clone(), best["peak_mem_gib"].clone(), Value::from(true));
        assert_eq!(explained(problem, plan), row, "{plan}");
        for refined in answer["refined"].as_array().into_iter().flatten().filter(|refined| refined["plan"] == *plan) {
            assert_eq!(refined["fits"], true, "{plan}");
            assert_eq!(refined["refined"]["step_time_before_s"], row.0, "{plan}");
        }
        let script = out(&run(&["emit", "megatron", model, cluster, "--plan", plan]));
        let header = script.replace("\n#   ", " ");
        let peak = meshwright::units::significant(row.1.as_f64().unwrap());
        let step = meshwright::units::Seconds::new(row.0.as_f64().unwrap());
        assert!(
            header.contains(&format!("{step} a step")) && header.contains(&format!("peaks at {peak}")),
            "{plan}: {header}"
        );
        let layout = script.split("--pipeline-model-parallel-layout").nth(1);
        let layout = layout.and_then(|rest| rest.split_whitespace().next()).map(|text| text.trim_matches(['\'', '"']));
        if let Some(layout) = layout {
            assert_eq!(explained(problem, &with_split(plan, layout)), row, "{plan}: {layout}");
        }
    }
}
