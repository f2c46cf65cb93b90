//! Predictions against GPUs: kernels, layers, memory and training steps that were measured on them (`tests/silicon/`), replayed here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::random::spec;
use meshwright::cluster::Cluster;
use meshwright::cost::{Costs, Evaluation, StepTime};
use meshwright::gpu::Format;
use meshwright::kernel::{Device, Linear, LinearShape};
use meshwright::model::{Attention, Ffn, Mixer, Mlp, Model, QkNorm};
use meshwright::plan::Plan;
use meshwright::probe::checked::Checked;
use meshwright::probe::kernel::{Gemm, Mask};
use meshwright::probe::verify::{self, MOST_MEMORY_ERROR, Verification};
use meshwright::probe::{Analytic, Calibration, Kernel, Recorded, Samples, fit};
use meshwright::problem::Problem;
use meshwright::space::parse_plan;
use meshwright::stack::Stack;
use meshwright::workload::recipe;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn samples(device: &str) -> Samples {
    Samples::parse(&text(&format!("tests/silicon/{device}/samples.toml"))).unwrap()
}

const H200: &str = "h200-2026-11-26-b";
const OTHER_H200: &str = "h200-2026-11-26-a";
pub const H100: &str = "h100-2026-11-27";
const OTHER_H100: &str = "h100-2026-11-26";

/// Problem whose plans were verified on a device.
fn problem(model: &'static str, device: &str, gpus: u32) -> Problem {
    let cluster = if device.starts_with("h100") { "h100-512" } else { "h200-1k" };
    let seq_len = if model.starts_with("qwen") { 4096 } else { 8192 };
    let problem = spec(model, cluster, "nemo-25", 128, seq_len).gpus(gpus).problem();
    problem.changed(|_, workload, _| workload.recipe = recipe("megatron-bf16-grads").unwrap()).unwrap()
}

pub fn calibration(problem: &Problem, samples: &Samples) -> Calibration {
    Calibration::new(samples.clone(), "measured", "test", problem.cluster(), problem.stack()).unwrap()
}

/// Relative errors of a calibrated device on its own samples, of the kernels that are picked.
fn errors(device: &str, pick: impl Fn(&Kernel) -> bool) -> Vec<f64> {
    let (samples, problem) = (samples(device), problem("llama3-8b", device, 8));
    let (mut cluster, mut stack) = (problem.cluster().clone(), problem.stack().clone());
    let name = cluster.gpu.name.clone();
    calibration(&problem, &samples).apply(&name, &mut cluster, &mut stack).unwrap();
    let known: Analytic = fit::analytic(&cluster, &stack);
    let of = |(kernel, sample): (&Kernel, &meshwright::probe::Sample)| known.predict(kernel) / sample.median() - 1.0;
    let found: Vec<f64> = samples.of.iter().filter(|(kernel, _)| pick(kernel)).map(of).collect();
    assert!(!found.is_empty());
    found
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().map(f64::abs).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn worst(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |worst: f64, value| worst.max(value.abs()))
}

fn is_single_gemm(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Gemm(Gemm { batch: 1, .. }))
}

fn is_causal_attention(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Attention(core) if core.bound().is_some() && core.mask == Mask::Causal)
}

/// Bars: 3 % in the median and 8 % at worst. One in ten GEMMs misses the second: cuBLASLt's choice of a kernel for a shape is not in
/// the curve, and the H100's samples are of short runs.
#[test]
fn calibrated_kernels_are_near_their_samples() {
    for (device, gemms, attention) in [(H200, (0.03, 0.15), (0.025, 0.10)), (H100, (0.04, 0.125), (0.025, 0.085))] {
        for (name, found, (middle, most)) in [
            ("GEMMs", errors(device, is_single_gemm), gemms),
            ("attention", errors(device, is_causal_attention), attention),
        ] {
            let off = found.iter().filter(|error| error.abs() > 0.08).count();
            println!("{device} {name}: {} of {} over 8 %", off, found.len());
            println!("{device} {name}: median {:.3}, worst {:.3}", median(found.iter().copied()), worst(&found));
            assert!(median(found.iter().copied()) < middle && worst(&found) < most, "{device} {name}");
            assert!(off * 8 <= found.len(), "{device} {name}: {off} of {} are off by over 8 %", found.len());
        }
    }
}

/// Files of `clusters/calibrations/` are made of the committed samples, byte for byte; `UPDATE_EXPECT=1` makes them again after a fit.
#[test]
fn calibrations_are_made_again() {
    for (device, name) in [(H200, "h200-sxm-2026-11-26"), (H100, "h100-sxm-2026-11-27")] {
        let path = root().join(format!("clusters/calibrations/{name}.toml"));
        // As `calibrate` makes it: one device on its own, under the newest NeMo of its time.
        let problem = problem("llama3-8b", device, 8);
        let cluster = meshwright::cluster::Cluster::of_one_domain(problem.cluster().gpu.clone());
        let command = "meshwright calibrate samples.toml --source meshwright-silicon";
        let made = Calibration::new(samples(device), "meshwright-silicon", command, &cluster, problem.stack()).unwrap();
        let written = made.to_toml(&cluster, problem.stack());
        expect_test::expect_file![path].assert_eq(&written);
        assert_eq!(Calibration::parse(&written).unwrap().samples, samples(device), "{name}");
    }
}

/// A verification from the recording alone: kernels, layers and memory.
fn verified(device: &str, model: &'static str, gpus: u32, plans: &[&str]) -> Verification {
    let (problem, samples) = (problem(model, device, gpus), samples(device));
    let known = verify::calibrated(&problem, &calibration(&problem, &samples)).unwrap();
    let mut probe = Recorded::new(samples.clone());
    let mut seen = samples.clone();
    let with_memory = |text: &&str| {
        let plan: Plan = parse_plan(text, &problem).unwrap();
        let layers = verify::memory(&problem, &plan, &mut probe, &mut seen).unwrap();
        (plan, layers)
    };
    let plans: Vec<_> = plans.iter().map(with_memory).collect();
    verify::verify(&problem, &known, &samples, &plans)
}

/// Plans that were verified on each device: model, GPUs and plans.
fn checked_plans() -> [(&'static str, &'static str, u32, Vec<&'static str>); 6] {
    [
        (H200, "llama3-8b", 8, vec!["tp=1 dp=8 zero=3 mbs=2 recompute=none"]),
        (
            H200,
            "llama3-70b",
            64,
            vec![
                "tp=4 pp=2 dp=8 sp=on schedule=interleaved vpp=9 split=even zero=1 mbs=1 recompute=none",
                "tp=8 pp=1 dp=8 sp=on zero=1 mbs=2 recompute=none",
            ],
        ),
        (H200, "qwen3-30b-a3b", 16, vec!["tp=1 dp=16 ep=4 etp=1 dispatcher=deepep zero=1 mbs=2 recompute=none"]),
        (H100, "llama3-8b", 8, vec!["tp=1 dp=8 zero=3 mbs=1 recompute=none"]),
        (
            H100,
            "llama3-70b",
            64,
            vec![
                "tp=8 pp=2 dp=4 sp=on schedule=interleaved vpp=9 split=even zero=1 mbs=1 recompute=none",
                "tp=4 cp=2 pp=4 dp=2 sp=on cp-kind=p2p schedule=interleaved vpp=8 split=even zero=1 mbs=1 recompute=none",
            ],
        ),
        (
            H100,
            "qwen3-30b-a3b",
            16,
            vec!["tp=1 dp=16 ep=8 etp=1 dispatcher=deepep zero=1 mbs=2 recompute=layernorm+moe"],
        ),
    ]
}

#[test]
fn plans_are_verified_without_the_gpu() {
    for (device, model, gpus, plans) in checked_plans() {
        let Verification { plans, .. } = verified(device, model, gpus, &plans);
        for Checked { plan, layers, runs, terms, .. } in &plans {
            let total = terms.last().unwrap();
            println!(
                "{device} {model} {plan}: kernels {:.3} before, {:.3} after",
                total.error_before(),
                total.error_after()
            );
            assert!((total.covered - 1.0).abs() < 1e-9, "{plan}: all kernels were timed");
            // The catalogue's prediction, which no sample of the device has touched, and the calibrated one. The H100's clocks under
            // load are above those that fit published runs.
            let before = if device == H200 { 0.08 } else { 0.10 };
            assert!(total.error_before().abs() < before && total.error_after().abs() < 0.03, "{plan}: {total:?}");
            assert!(!layers.is_empty() && layers.iter().all(|layer| layer.error().abs() < MOST_MEMORY_ERROR), "{plan}");
            // The bar is 5 %. Recomputed experts miss it: their GEMMs run beside much that draws less power, and so at higher clocks than
            // in a loop of their own.
            let bar = if model.starts_with("qwen") && device == H100 { 0.10 } else { 0.05 };
            for run in runs {
                println!(
                    "{device} {model} {plan}: layer {:.3} before, {:.3} after",
                    run.error_before(),
                    run.error_after()
                );
                assert!(run.error_after().abs() < bar, "{plan}: {run:?}");
            }
            assert_eq!(runs.len(), 1, "{plan}");
        }
    }
}

/// Two devices of one kind, on two machines: what no curve of the kind can tell. The other H100's samples are of short runs.
#[test]
fn two_devices_of_a_kind_differ() {
    let pairs = [(OTHER_H200, H200, 20, (0.03, 0.10), 0.15), (OTHER_H100, H100, 10, (0.05, 0.20), 0.20)];
    for (one, other, least, gemms, stream) in pairs {
        let (first, second) = (samples(one), samples(other));
        let ratio = |kernel: &Kernel| Some(first.of.get(kernel)?.median() / second.of.get(kernel)?.median() - 1.0);
        for (name, pick, (middle, most)) in [
            ("GEMMs", is_single_gemm as fn(&Kernel) -> bool, gemms),
            ("attention", is_causal_attention, (0.04, 0.10)),
            ("streaming", |kernel| matches!(kernel, Kernel::Stream { .. }), (0.02, stream)),
        ] {
            let found: Vec<f64> = first.of.keys().filter(|kernel| pick(kernel)).filter_map(ratio).collect();
            let center = median(found.iter().copied());
            println!("{one}, {name}: {} kernels, median {center:.4}, worst {:.4}", found.len(), worst(&found));
            assert!(found.len() > least && center < middle && worst(&found) < most, "{one}, {name}");
        }
    }
}

/// Records of `checks/silicon` by section and name.
fn records(device: &str) -> BTreeMap<(String, String), Value> {
    let parsed = text(&format!("tests/silicon/{device}/pytorch.jsonl"));
    let of = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| record[key].as_str().unwrap().to_owned();
        ((word("section"), word("name")), record)
    };
    parsed.lines().map(of).collect()
}

pub fn median_us(record: &Value) -> f64 {
    median(record["times_us"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()))
}

/// Experts' products in one grouped kernel and on four streams, of experts of five models with 64 to 2,048 tokens each, against the
/// device's own curve of GEMMs.
#[test]
fn products_of_experts_take_what_is_predicted() {
    let base = spec("llama3-8b", "h100-512", "nemo-25", 128, 8192).gpus(8).problem();
    let (mut cluster, mut stack) = (base.cluster().clone(), base.stack().clone());
    let gpu = cluster.gpu.name.clone();
    calibration(&base, &samples(H100)).apply(&gpu, &mut cluster, &mut stack).unwrap();
    // The measured weight gradients are written in 16 bits.
    (stack.fused_wgrad, stack.reduce_bytes, stack.accumulate_exposed) = (true, 1.0, 0.0);
    let mut errors: BTreeMap<(bool, bool), Vec<f64>> = BTreeMap::new();
    for (_, record) in
        records(H100).iter().filter(|((section, _), record)| section == "grouped" && record["kind"].is_string())
    {
        let kind = record["kind"].as_str().unwrap();
        let on_streams = kind.ends_with(" on streams");
        let of = |key: &str| record[key].as_f64().unwrap();
        let shape =
            LinearShape { tokens: of("tokens_per_expert"), input: of("k"), output: of("n"), batch: of("experts") };
        for stated in [false, true] {
            stack.expert_streams = stated.then_some(if on_streams { 4.0 } else { 0.0 });
            let device =
                Device { gpu: &cluster.gpu, stack: &stack, format: Format::Bf16, host: cluster.host, meter: None };
            let Linear { forward, dgrad, wgrad } = device.expert_linear(shape, Format::Bf16);
            let predicted = match kind.trim_end_matches(" on streams") {
                "forward" => forward,
                "dgrad" => dgrad,
                "wgrad" => wgrad,
                _ => continue, // a batch of equal sizes, or the same kernel by another name
            };
            errors.entry((on_streams, stated)).or_default().push(predicted.get() / (median_us(record) * 1e-6) - 1.0);
        }
    }
    for (on_streams, middle, last, most) in [(false, 0.06, 0.15, 0.36), (true, 0.10, 0.30, 0.70)] {
        let [ramp, found] = [false, true].map(|stated| {
            let mut found: Vec<f64> = errors[&(on_streams, stated)].iter().map(|error| error.abs()).collect();
            found.sort_by(f64::total_cmp);
            let [center, last] = [5, 9].map(|tenths| found[found.len() * tenths / 10]);
            println!("streams {on_streams}, stated {stated}: median {center:.3}, 90th percentile {last:.3}");
            (found, center, last)
        });
        let (all, center, ninth) = found;
        assert!(all.len() == 240 && center < middle && ninth < last && *all.last().unwrap() < most, "{on_streams}");
        assert!(ramp.1 > center && ramp.2 > 3.0 * ninth, "the ramp is worse");
    }
}

/// Decoder of a training step as `checks/silicon` builds it: the tables of the embedding and of the head are two.
fn decoder(record: &Value) -> Model {
    let name = record["model"].as_str().unwrap();
    let of = |model: &'static str| spec(model, "h200-1k", "torchtitan-2025", 1, 8192).problem().model().clone();
    let layers = record["layers"].as_u64().unwrap() as usize;
    if name.starts_with("qwen3") {
        let mut model = Model { order: vec![0; layers], ..of("qwen3-30b-a3b") };
        let Mixer::Attention(attention) = &model.kinds[0].mixer else { unreachable!("Qwen3 has attention") };
        model.kinds[0].mixer = Mixer::Attention(Attention { qk_norm: QkNorm::None, ..attention.clone() });
        return model;
    }
    let mut model = Model { order: vec![0; layers], ..of("llama3-8b") };
    let Mixer::Attention(attention) = &model.kinds[0].mixer else { unreachable!("Llama has attention") };
    let (hidden, heads, head_dim) = match name.split(' ').next().unwrap() {
        "llama3-8b" => return model,
        "llama3.2-1b" => (2048, 32, 64),
        "llama3.2-3b" => (3072, 24, 128),
        _ => unreachable!("{name}"),
    };
    model.hidden = hidden;
    model.kinds[0].mixer = Mixer::Attention(Attention { heads, head_dim, ..attention.clone() });
    model.kinds[0].ffn = Ffn::Dense(Mlp { intermediate: 8192, gated: true, bias: false });
    model
}

/// Stack that runs a step as it was measured: compiled or not, the loss over all tokens at once.
fn stack_of(record: &Value, base: &Problem) -> Stack {
    assert_eq!(record["precision"].as_str(), Some("fully_shard"));
    assert_eq!(record["attention"].as_str(), Some("FLASH_ATTENTION"));
    let mut stack = base.stack().clone();
    stack.memory.loss_chunks = 1;
    stack
}

/// A measured step and its predictions.
struct Step {
    /// Relative errors of forward and backward: by the catalogue, and with the device's calibration.
    time: [f64; 2],
    /// Relative errors of the peaks.
    allocated: f64,
    reserved: f64,
}

fn predicted(device: &str, name: &str, records: &BTreeMap<(String, String), Value>) -> Step {
    let record_of = |phase: &str| &records[&("step".to_owned(), name.replace(" step", phase))];
    let record = record_of(" step");
    let number = |key: &str| record[key].as_u64().unwrap() as u32;
    let recompute = record["recompute"].as_str().unwrap();
    let stack = if record["compiled"].as_bool().unwrap_or(true) { "torchtitan-2025" } else { "torchtitan-eager" };
    let cluster = if device == H200 { "h200-1k" } else { "h100-512" };
    let base = spec("llama3-8b", cluster, stack, number("batch"), number("sequence")).gpus(1).problem();
    let (mut cluster, mut stack) = (base.cluster().clone(), stack_of(record, &base));
    let evaluate = |cluster: &Cluster, stack: &Stack| {
        let (cluster, stack) = (cluster.clone(), stack.clone());
        let problem =
            Problem::new(decoder(record), cluster, base.workload().clone(), stack, base.hbm_profile()).unwrap();
        assert_eq!(Some(problem.model().parameters().total), record["parameters"].as_u64(), "{name}");
        let plan = format!("tp=1 pp=1 dp=1 zero=3 mbs={} recompute={recompute}", number("batch"));
        Costs::new(&problem).evaluate(&parse_plan(&plan, &problem).unwrap())
    };
    let measured = (median_us(record_of(" forward")) + median_us(record_of(" backward"))) * 1e-6;
    let error = |evaluation: &Evaluation| {
        let StepTime { compute, recompute, .. } = evaluation.step;
        (compute + recompute).get() / measured - 1.0
    };
    let catalogue = evaluate(&cluster, &stack);
    let gpu = cluster.gpu.name.clone();
    calibration(&base, &samples(device)).apply(&gpu, &mut cluster, &mut stack).unwrap();
    let memory = |key: &str| record_of(" memory")[key].as_f64().unwrap();
    // What earlier sections of the run left allocated.
    let at_rest = memory("at_rest_bytes");
    let footprint = &catalogue.footprint;
    Step {
        time: [error(&catalogue), error(&evaluate(&cluster, &stack))],
        allocated: footprint.allocated().get() / (memory("peak_bytes") - at_rest) - 1.0,
        reserved: footprint.reserved().get() / (memory("reserved_bytes") - at_rest) - 1.0,
    }
}

/// A training step as torchtitan runs it on one GPU: time of forward and backward, peak of allocated and of reserved memory.
///
/// Time and memory of the update are another matter: torchtitan's loop does more between steps than this one does, and the fit to its
/// published runs has a fixed time for that. Steps with experts are not compared: the modules of `checks/silicon` are not torchtitan's.
/// One step filled the H100, whose allocator then freed and retried for half its time.
#[test]
fn a_step_takes_what_is_predicted() {
    let mut count = 0;
    for device in [H200, H100] {
        let records = records(device);
        for (section, name) in records.keys() {
            let retried = device == H100 && name == "llama3.2-3b untied recompute none step";
            if section != "step" || !name.contains(" step") || name.starts_with("qwen3") || retried {
                continue;
            }
            let Step { time: [catalogue, calibrated], allocated, reserved } = predicted(device, name, &records);
            println!(
                "{device} {name}: time {catalogue:.3}, calibrated {calibrated:.3}, \
                 allocated {allocated:.3}, reserved {reserved:.3}"
            );
            // The traffic of streaming kernels is a stack's over many machines; a narrow model's kernels are mostly such, and a compiled
            // loss holds no logits in FP32.
            // With full recomputation the peak is where gradients are copied to be reduced, of which one rank copies none.
            let (most, most_after, most_allocated, most_reserved) = if name.starts_with("llama3.2-1b") {
                (0.20, 0.12, 0.09, 0.15)
            } else {
                let most = if device == H200 { 0.13 } else { 0.15 };
                (most, 0.06, if name.contains("recompute none") { 0.03 } else { 0.06 }, 0.12)
            };
            assert!(catalogue.abs() < most && calibrated.abs() < most_after, "{name}: {catalogue}, {calibrated}");
            assert!(
                allocated.abs() < most_allocated && reserved.abs() < most_reserved,
                "{name}: {allocated}, {reserved}"
            );
            count += 1;
        }
    }
    assert_eq!(count, 11);
}
