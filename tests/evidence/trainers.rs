//! Training steps of Transformers' own models on one H100 (`tests/silicon/h100-2026-11-27/transformers.jsonl`), against
//! the stack that stands for Accelerate, axolotl and LLaMA-Factory.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::random::spec;
use crate::silicon::{H200, SECOND_H100, calibration, median_us, samples, text};
use meshwright::cost::{Costs, Evaluation};
use meshwright::model::Model;
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::workload::Adaptation;

/// Problem of a recorded step on one GPU of `cluster`, under a stack.
fn problem(record: &Value, cluster: &'static str, stack: &'static str) -> Problem {
    let number = |key: &str| record[key].as_u64().unwrap();
    let name: &'static str = if record["model"] == "llama3-8b" { "llama3-8b" } else { "qwen3-30b-a3b" };
    let mut question = spec(name, cluster, stack, 1, number("sequence") as u32).gpus(1);
    if number("adapters") > 0 {
        question.adaptation = Adaptation::Lora;
    }
    let base = question.problem();
    let model = Model { order: vec![0; number("layers") as usize], ..base.model().clone() };
    let (cluster, stack) = (base.cluster().clone(), base.stack().clone());
    Problem::new(model, cluster, base.workload().clone(), stack, base.hbm_profile()).unwrap()
}

/// Time and memory of a recorded step.
fn evaluate(record: &Value, problem: &Problem) -> Evaluation {
    let zero = if record["fsdp"] == 0 { 0 } else { 3 };
    let recompute = if record["checkpointing"].as_bool().unwrap() { "full" } else { "none" };
    let plan = parse_plan(&format!("tp=1 pp=1 dp=1 zero={zero} mbs=1 recompute={recompute}"), problem).unwrap();
    Costs::new(problem).evaluate(&plan)
}

/// Relative error of forward and backward under a stack, with the device's calibration.
fn error(record: &Value, measured_s: f64, stack: &'static str) -> f64 {
    let base = problem(record, "h100-512", stack);
    let (mut cluster, mut stack) = (base.cluster().clone(), base.stack().clone());
    let gpu = cluster.gpu.name.clone();
    calibration(&base, &samples(SECOND_H100)).apply_curves(&gpu, &mut cluster, &mut stack).unwrap();
    let known =
        Problem::new(base.model().clone(), cluster, base.workload().clone(), stack, base.hbm_profile()).unwrap();
    let step = evaluate(record, &known).step;
    (step.compute + step.recompute + step.host).get() / measured_s - 1.0
}

/// Records of a device, in their order.
fn lines(device: &str) -> Vec<Value> {
    let parsed = text(&format!("tests/silicon/{device}/transformers.jsonl"));
    parsed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Records of a device by name.
fn records(device: &str) -> BTreeMap<String, Value> {
    lines(device).into_iter().map(|record| (record["name"].as_str().unwrap().to_owned(), record)).collect()
}

/// Compiled kernels and Transformer Engine's are not what Transformers runs: the stack of NeMo Automodel, which has
/// them, is farther off.
///
/// The expert GEMMs are one grouped kernel, and one rank copies three billion parameters that more ranks would share. PEFT's
/// policy for FSDP 1, whose units keep the host busy, and loops over experts of release 5 are not compared.
#[test]
fn steps_of_transformers_take_what_eager_pytorch_does() {
    let records = records(SECOND_H100);
    let mut count = 0;
    for (name, record) in &records {
        let Some(case) = name.strip_suffix(" forward") else { continue };
        if case.contains("eager") || case.contains("fsdp1") {
            continue;
        }
        let measured = (median_us(record) + median_us(&records[&format!("{case} backward")])) * 1e-6;
        let [eager, automodel] = ["fsdp-eager-2023", "automodel-2025"].map(|stack| error(record, measured, stack));
        println!("{case}: {eager:.3}, as NeMo Automodel {automodel:.3}");
        let bar = if case.starts_with("qwen3") { 0.35 } else { 0.22 };
        assert!(eager.abs() < bar && eager.abs() < automodel.abs(), "{case}: {eager}, {automodel}");
        count += 1;
    }
    assert_eq!(count, 6);
}

/// Bytes of the case under FSDP 1 that stayed allocated in the cases after it.
const LEFT: f64 = 9_248_710_656.0;

/// Peaks of allocated memory of those steps, on an H200, updated by a fused kernel, as axolotl and LLaMA-Factory ask for.
///
/// One rank reduces no gradients, whose copies are predicted; that is most of what experts, with 0.6 billion parameters
/// a layer, are off by. A model in BF16 under an optimizer in BF16 is no plan, and not compared.
#[test]
fn peaks_of_transformers_steps_are_those_of_a_fused_update() {
    let (mut left, mut count) = (0.0, 0);
    for record in lines(H200) {
        let Some(case) = record["name"].as_str().unwrap().strip_suffix(" memory") else { continue };
        let measured = record["peak_bytes"].as_f64().unwrap() - left;
        let eager = problem(&record, "h200-1k", "fsdp-eager-2023");
        let fused = eager.changed(|_, _, stack| stack.memory.updates_at_once = false).unwrap();
        let [at_once, fused] = [&eager, &fused].map(|problem| evaluate(&record, problem).footprint.allocated());
        let [at_once, fused] = [at_once, fused].map(|bytes| bytes.get() / measured - 1.0);
        if record["fsdp"] == 1 {
            left = LEFT;
        }
        if case.contains("alone experts") {
            continue;
        }
        println!("{case}: {fused:.3}, all at once {at_once:.3}");
        let adapters = record["adapters"].as_u64() > Some(0);
        let bar = if adapters { 0.08 } else { 0.10 };
        assert!(fused.abs() < bar && (adapters || at_once > fused + 0.1), "{case}: {fused}, {at_once}");
        count += 1;
    }
    assert_eq!(count, 9);
}
