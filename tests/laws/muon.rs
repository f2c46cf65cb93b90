//! Muon's Newton–Schulz iterations: priced under every ZeRO stage, and cheaper for experts narrower than the hidden size.

use crate::random::{Spec, spec};
use meshwright::cost::Costs;
use meshwright::space::parse_plan;
use meshwright::workload::Optimizer;

/// Time of the update in seconds.
fn update(of: &Spec, optimizer: Optimizer, plan: &str) -> f64 {
    let problem = of.problem().changed(|_, workload, _| workload.optimizer = optimizer).unwrap();
    Costs::new(&problem).evaluate_simulated(&parse_plan(plan, &problem).unwrap()).step.optimizer.get()
}

/// Time that Muon adds to the update of an elementwise optimizer.
fn added(of: &Spec, plan: &str) -> f64 {
    update(of, Optimizer::Muon, plan) - update(of, Optimizer::Elementwise, plan)
}

#[test]
fn every_zero_stage_orthogonalises_the_same_matrices() {
    for of in [
        spec("llama3-8b", "dgx-h100-64", "nemo-25", 64, 8192),
        spec("llama3-8b", "tpu-v5p-1024", "jax-2025", 1024, 8192),
    ] {
        let replicas = of.problem().cluster().gpus;
        let [one, three] = [1, 3].map(|zero| added(&of, &format!("dp={replicas} zero={zero}")));
        assert!(one > 0.0 && (three / one - 1.0).abs() < 1e-9, "{}: {one} {three}", of.stack);
    }
}

/// Twice the width of the experts is twice their parameters and, up to the hidden size, four times their FLOPs.
#[test]
fn experts_are_orthogonalised_by_their_width() {
    let wide = |width: u32| {
        spec("qwen3-30b-a3b", "dgx-h100-64", "nemo-25", 256, 4096)
            .set(format!("model.layer.m.ffn.intermediate={width}"))
    };
    let time = |width| added(&wide(width), "ep=8 dp=64 zero=1 mbs=1");
    let (dense, narrow, whole) = (time(1), time(512), time(1024));
    let ratio = (whole - dense) / (narrow - dense);
    assert!(ratio > 3.0 && ratio < 4.0, "{ratio}: GEMMs of 512 reach less of their rate");
}
