//! Whole questions, spelled by bytes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use meshwright::catalog;
use meshwright::cost::Costs;
use meshwright::plan::text::parse_plan;
use meshwright::question::PlanQuestion;
use serde_json::{Value, json};

use crate::prices;

/// Looks of a search at its control after which it is stopped: the same input does the same work on every machine, a
/// fortieth of a second of CPU in the mean.
const LOOKS: u32 = 2000;

/// Bytes that choose from lists.
struct Choices<'d>(std::slice::Iter<'d, u8>);

impl Choices<'_> {
    fn byte(&mut self) -> usize {
        usize::from(self.0.next().copied().unwrap_or_default())
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.byte() % of.len()].clone()
    }
}

const GPUS: [u64; 12] = [1, 2, 7, 8, 12, 64, 100, 512, 1024, 4096, 1_048_576, 4_294_967_295];
const BATCHES: [u64; 9] = [1, 3, 64, 100, 128, 512, 100_003, 1_048_576, 2_147_483_647];
const SEQUENCES: [u64; 7] = [1, 128, 1000, 2048, 8192, 131_072, 134_217_728];
const FORMATS: [&str; 6] = ["bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4"];
const FIXED: [&str; 16] = [
    "tp=1", "tp=8", "tp=3", "pp=1", "pp=2..4", "pp=16", "cp=2", "ep=8", "vpp=2", "zero=3", "mbs=1", "recompute=full",
    "schedule=dualpipe", "split=cost-balanced", "order=tp-cp-ep-pp-dp", "offload-optimizer=0.5",
];
const FRAMEWORKS: [&str; 15] = [
    "megatron", "megatron-bridge", "deepspeed", "torchtitan", "accelerate", "nanotron", "maxtext", "axolotl",
    "llama-factory", "gpt-neox", "ms-swift", "llm-foundry", "olmo-core", "primus", "any",
];
const OBJECTIVES: [&str; 6] = ["step-time", "time-to-train", "cost", "energy", "memory", "gpu-time"];

/// Question of `plan`, its answer, and the explanation of each plan in it.
pub fn question(data: &[u8]) {
    let mut from = Choices(data.iter());
    let mut problem = json!({ "model": from.one(&catalog::model_names()), "cluster": from.one(&catalog::cluster_names()) });
    let mut options = json!({ "precision": from.one(&FORMATS) });
    for (key, values) in [("gpus", &GPUS[..]), ("global_batch", &BATCHES), ("seq_len", &SEQUENCES)] {
        if from.byte() % 2 == 1 {
            options[key] = json!(from.one(values));
        }
    }
    if from.byte() % 4 == 1 {
        options["stack"] = json!(from.one(&catalog::stack_names()));
    }
    problem["options"] = options;
    let mut plans = json!({ "top": from.byte() % 6, "exotic": from.byte() % 8 == 1, "allow_idle": from.byte() % 16 == 1 });
    plans["fix"] = json!((0..from.byte() % 4).map(|_| from.one(&FIXED)).collect::<Vec<_>>());
    if from.byte() % 4 == 1 {
        plans["for"] = json!(from.one(&FRAMEWORKS));
    }
    if from.byte() % 4 == 1 {
        plans["economy"] = json!({ "tokens": "1 T", "objective": from.one(&OBJECTIVES) });
    }
    ask(&json!({ "problem": problem, "plans": plans }));
}

fn ask(asked: &Value) {
    let Ok(question) = serde_json::from_value::<PlanQuestion>(asked.clone()) else { return };
    let looks = AtomicU32::new(0);
    let control = |_, _| match looks.fetch_add(1, Ordering::Relaxed) {
        LOOKS.. => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let Ok(answer) = question.answer(&control) else { return };
    let document: Value = serde_json::from_str(&answer.value).unwrap_or_else(|why| panic!("{asked}: {why}"));
    assert!(!has_null_time(&document), "{asked}: {}", answer.value);
    let Ok(subject) = question.problem.problem(None) else { return };
    let costs = Costs::new(&subject.value);
    for plan in plans(&document) {
        let read = parse_plan(&plan, &subject.value).unwrap_or_else(|why| panic!("{asked}: {plan}: {why}"));
        assert_eq!(read.to_string(), plan, "{asked}");
        prices::finite(&costs.evaluate_simulated(&read));
    }
}

/// Whether a time of a document is missing: it was not finite.
fn has_null_time(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| (key.ends_with("_s") && value.is_null()) || has_null_time(value)),
        Value::Array(items) => items.iter().any(has_null_time),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Texts of the plans of a document.
fn plans(value: &Value) -> Vec<String> {
    let all = value.get("plans").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|plan| plan.get("plan").and_then(Value::as_str)).map(str::to_owned).collect()
}
