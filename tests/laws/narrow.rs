//! Formats of 8 and 4 bits beside their GEMMs: gathers, weights in memory, parameters on the wire.

use crate::random::{Spec, spec};
use meshwright::collective::{Fabric, Group};
use meshwright::cost::{Costs, Evaluation};
use meshwright::gpu::{Collective, Format};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::units::Bytes;
use meshwright::workload::{Recipe, recipe};

/// Llama 3 70B on 64 H100 or GB200, nothing hidden behind anything.
fn seventy(cluster: &'static str, format: Format) -> Spec {
    let mut spec = spec("llama3-70b", cluster, "nemo-25", 128, 8192)
        .set("cluster.gpus=64")
        .set("stack.overlap.tp=0")
        .set("stack.overlap.dp=false");
    spec.format = format;
    spec
}

fn priced(problem: &Problem, plan: &str) -> (Plan, Evaluation) {
    let plan = parse_plan(plan, problem).unwrap();
    let evaluation = Costs::new(problem).evaluate(&plan);
    (plan, evaluation)
}

/// Two gathers a layer and pass, of n·h elements: at y bytes instead of two they take as much less as the fabric says.
#[test]
fn sequence_parallelism_gathers_what_the_gemms_take() {
    let plan = "tp=8 sp=on pp=1 zero=1 mbs=1";
    let saved = |gather: &str, format: Format, plan: &str| {
        let step = |gather: &str| {
            let problem = seventy("gb200-nvl72-1152", format).set(format!("stack.tp_gather={gather}")).problem();
            priced(&problem, plan).1.step.tp_comm.get()
        };
        step("bf16") - step(gather)
    };
    let expected = |forward: f64, backward: f64| {
        let problem = seventy("gb200-nvl72-1152", Format::Fp8).problem();
        let fabric = Fabric::new(problem.cluster(), problem.stack());
        let gather = |bytes: f64| {
            let payload = Bytes::new(8192.0 * 8192.0 * bytes);
            fabric.time(Collective::AllGather, payload, Group { ranks: 8, stride: 1 }, 1.0).get()
        };
        let each = 2.0 * gather(2.0) - gather(forward) - gather(backward);
        each * 2.0 * 80.0 * 16.0 // two a layer, 80 layers, 16 micro-batches
    };
    for (gather, format, bytes) in [
        ("quantized", Format::Fp8, (1.0, 1.0)),
        ("fp8", Format::Fp8, (1.0, 1.0)),
        ("quantized", Format::Mxfp8, (1.0, 2.0)),
        ("quantized", Format::Nvfp4, (0.5625, 1.125)),
    ] {
        let (ours, theirs) = (saved(gather, format, plan), expected(bytes.0, bytes.1));
        assert!((ours / theirs - 1.0).abs() < 1e-9, "{gather} {format}: {ours} s less, {theirs} s expected");
    }
    let none = "tp=8 sp=off pp=1 zero=1 mbs=1";
    for (gather, format, plan) in
        [("fp8", Format::Mxfp8, plan), ("quantized", Format::Bf16, plan), ("quantized", Format::Fp8, none)]
    {
        assert_eq!(saved(gather, format, plan).to_bits(), 0.0_f64.to_bits(), "{gather} {format} {plan}");
    }
}

/// Hopper needs a weight and its transpose, Blackwell the weight alone; embedding and head stay in 16 bits.
#[test]
fn quantized_weights_stay_for_a_step() {
    let plan = "tp=8 sp=on pp=1 zero=1 mbs=1";
    for (cluster, format, needed) in [
        ("h100-512", Format::Fp8, 2.0),
        ("gb200-nvl72-1152", Format::Fp8, 1.0),
        ("gb200-nvl72-1152", Format::Mxfp8, 2.0),
        ("gb200-nvl72-1152", Format::Nvfp4, 1.125),
    ] {
        for (name, of_layers, of_tables) in [("megatron-bf16-grads", 2.0 + needed, 2.0), ("fp8-primary", needed, 2.0)] {
            let problem = with(&seventy(cluster, format).problem(), recipe(name).unwrap());
            let (plan, priced) = priced(&problem, plan);
            let held = Costs::new(&problem).rank_parameters(&plan)[0];
            let weights = of_layers * (held.dense - held.tables) + of_tables * held.tables;
            let ours = priced.footprint.weights.get();
            assert!((ours / weights - 1.0).abs() < 1e-12, "{cluster} {format} {name}: {ours}, {weights} expected");
        }
    }
    let wide = seventy("h100-512", Format::Bf16).problem();
    let bits = |problem: &Problem| priced(problem, plan).1.footprint.weights.get().to_bits();
    let without = seventy("h100-512", Format::Bf16).set("stack.memory.keeps_quantized_weights=false").problem();
    assert_eq!(bits(&wide), bits(&without), "bf16 has nothing to quantize");
}

/// FP8 weights are gathered as they are, MXFP8 weights in 16 bits.
#[test]
fn weights_in_8_bits_halve_the_gather_after_the_update() {
    let plan = "tp=1 pp=1 zero=1 mbs=1 recompute=full";
    let step = |format: Format, name: &str| {
        let problem = with(&seventy("gb200-nvl72-1152", format).problem(), recipe(name).unwrap());
        priced(&problem, plan).1.step.dp_comm.get()
    };
    let share = step(Format::Fp8, "fp8-primary") / step(Format::Fp8, "megatron-bf16-grads");
    assert!((0.75..0.78).contains(&share), "of a reduce-scatter and a gather, half a gather less: {share}");
    let blocks = (step(Format::Mxfp8, "megatron-bf16-grads"), step(Format::Mxfp8, "fp8-primary"));
    assert_eq!(blocks.0.to_bits(), blocks.1.to_bits());
}

fn with(problem: &Problem, recipe: Recipe) -> Problem {
    let workload = meshwright::workload::Workload { recipe, ..problem.workload().clone() };
    let (model, cluster, stack) = (problem.model().clone(), problem.cluster().clone(), problem.stack().clone());
    Problem::new(model, cluster, workload, stack, problem.hbm_profile()).unwrap()
}
