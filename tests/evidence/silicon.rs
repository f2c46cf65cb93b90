//! Predictions against GPUs: kernels that were measured on them (`tests/silicon/`), replayed here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::random::spec;
use meshwright::gpu::TimedGemms;
use meshwright::probe::kernel::{Gemm, Mask, StreamOp};
use meshwright::probe::{Analytic, Calibration, Kernel, Samples, fit};
use meshwright::problem::Problem;
use meshwright::workload::recipe;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Samples in a file of a device's folder.
fn samples_in(device: &str, file: &str) -> Samples {
    Samples::parse(&text(&format!("tests/silicon/{device}/{file}.toml"))).unwrap()
}

pub fn samples(device: &str) -> Samples {
    samples_in(device, "samples")
}

// The probe ran the first algorithm that cuBLASLt proposes on the first device of each kind, the fastest of eight in
// short loops on the others.
pub const H200: &str = "h200-2026-11-27";
pub const SECOND_H200: &str = "h200-2026-11-26-b";
const THIRD_H200: &str = "h200-2026-11-26-a";
/// The H200 of the second set of ranks.
pub const RANKED_H200: &str = "h200-2026-11-28-b";
pub const H100: &str = "h100-2026-11-27-b";
pub const SECOND_H100: &str = "h100-2026-11-27";
const THIRD_H100: &str = "h100-2026-11-26";

/// Problem whose plans were verified on a device.
pub fn problem(model: &'static str, device: &str, gpus: u32) -> Problem {
    let cluster = if device.starts_with("h100") { "h100-512" } else { "h200-1k" };
    let seq_len = if model.starts_with("qwen") { 4096 } else { 8192 };
    let problem = spec(model, cluster, "nemo-25", 128, seq_len).gpus(gpus).problem();
    problem.changed(|_, workload, _| workload.recipe = recipe("megatron-bf16-grads").unwrap()).unwrap()
}

pub fn calibration(problem: &Problem, samples: &Samples) -> Calibration {
    Calibration::new(samples.clone(), "measured", "test", problem.cluster(), problem.stack()).unwrap()
}

/// Part of a calibration that is applied.
#[derive(Clone, Copy)]
enum Applied {
    /// Its curves alone, which price shapes that were not timed.
    Curves,
    /// All of it: GEMMs that were timed take the measured time.
    Whole,
}

/// Relative errors of a device that one file of samples calibrates, on the kernels of another that are picked.
fn errors_on(
    known: &Samples,
    applied: Applied,
    measured: &Samples,
    device: &str,
    pick: impl Fn(&Kernel) -> bool,
) -> Vec<f64> {
    let problem = problem("llama3-8b", device, 8);
    let (mut cluster, mut stack) = (problem.cluster().clone(), problem.stack().clone());
    let (name, made) = (cluster.gpu.name.clone(), calibration(&problem, known));
    match applied {
        Applied::Curves => made.apply_curves(&name, &mut cluster, &mut stack),
        Applied::Whole => made.apply(&name, &mut cluster, &mut stack),
    }
    .unwrap();
    let known_device: Analytic = fit::analytic(&cluster, &stack);
    let both = measured.of.iter().filter(|(kernel, _)| pick(kernel) && known.of.contains_key(*kernel));
    let found: Vec<f64> = both.map(|(kernel, sample)| known_device.predict(kernel) / sample.median() - 1.0).collect();
    assert!(!found.is_empty());
    found
}

/// Relative errors of a calibrated device on its own samples, of the kernels that are picked.
fn errors(device: &str, pick: impl Fn(&Kernel) -> bool) -> Vec<f64> {
    let samples = samples(device);
    errors_on(&samples, Applied::Curves, &samples, device, pick)
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

fn is_copy(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Stream { op: StreamOp::Copy, .. })
}

fn is_causal_attention(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Attention(core) if core.bound().is_some() && core.mask == Mask::Causal)
}

/// Limits: 3 % in the median and 8 % at worst. cuBLASLt's choice of a kernel for a shape is not in the curve: one GEMM of
/// the H200 misses the second, and one in ten of the H100. Copies stand for the streaming kernels of plans.
#[test]
fn calibrated_kernels_are_near_their_samples() {
    for (device, gemms, attention) in [
        (H200, (0.02, 0.09), (0.02, 0.06)),
        (H100, (0.03, 0.16), (0.025, 0.085)),
        (SECOND_H200, (0.03, 0.15), (0.025, 0.06)),
        (SECOND_H100, (0.04, 0.125), (0.025, 0.085)),
    ] {
        for (name, found, (middle, most)) in [
            ("GEMMs", errors(device, is_single_gemm), gemms),
            ("attention", errors(device, is_causal_attention), attention),
            ("copies", errors(device, is_copy), (0.02, 0.08)),
        ] {
            let off = found.iter().filter(|error| error.abs() > 0.08).count();
            println!("{device} {name}: {} of {} over 8 %", off, found.len());
            println!("{device} {name}: median {:.3}, worst {:.3}", median(found.iter().copied()), worst(&found));
            assert!(median(found.iter().copied()) < middle && worst(&found) < most, "{device} {name}");
            assert!(off * 8 <= found.len(), "{device} {name}: {off} of {} are off by over 8 %", found.len());
        }
    }
}

/// Files of `clusters/calibrations/` are made of the committed samples, byte for byte; `UPDATE_EXPECT=1` makes them
/// again after a fit.
#[test]
fn calibrations_are_made_again() {
    for (device, name) in [(H200, "h200-sxm-2026-11-27"), (H100, "h100-sxm-2026-11-27")] {
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

/// Two devices of one kind, on two machines: what no curve of the kind can tell. The other H100's samples are of short runs.
#[test]
fn two_devices_of_a_kind_differ() {
    let pairs = [(THIRD_H200, SECOND_H200, 20, (0.03, 0.10), 0.15), (THIRD_H100, SECOND_H100, 10, (0.05, 0.20), 0.20)];
    for (one, other, least, gemms, stream) in pairs {
        let (first, second) = (samples(one), samples(other));
        for (name, pick, (middle, most)) in [
            ("GEMMs", is_single_gemm as fn(&Kernel) -> bool, gemms),
            ("attention", is_causal_attention, (0.04, 0.10)),
            ("streaming", |kernel| matches!(kernel, Kernel::Stream { .. }), (0.02, stream)),
        ] {
            let found = differences(&first, &second, pick);
            let center = median(found.iter().copied());
            println!("{one}, {name}: {} kernels, median {center:.4}, worst {:.4}", found.len(), worst(&found));
            assert!(found.len() > least && center < middle && worst(&found) < most, "{one}, {name}");
        }
    }
}

/// Records of `checks/silicon`, in their order.
fn lines(device: &str) -> Vec<Value> {
    let parsed = text(&format!("tests/silicon/{device}/pytorch.jsonl"));
    parsed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Records by section and name.
pub fn records(device: &str) -> BTreeMap<(String, String), Value> {
    let of = |record: Value| {
        let word = |key: &str| record[key].as_str().unwrap().to_owned();
        ((word("section"), word("name")), record)
    };
    lines(device).into_iter().map(of).collect()
}

pub fn median_us(record: &Value) -> f64 {
    median(record["times_us"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()))
}

/// A later calibration of other figures, such as that of a network, leaves GEMMs as the earlier one measured them.
#[test]
fn calibrations_add_up() {
    let (problem, of_device) = (problem("llama3-8b", H200, 8), samples(H200));
    let mut launches = of_device.clone();
    launches.of.retain(|kernel, _| *kernel == Kernel::Launch);
    launches.together.clear();
    let priced = |calibrations: &[&Samples]| {
        let (mut cluster, mut stack) = (problem.cluster().clone(), problem.stack().clone());
        let name = cluster.gpu.name.clone();
        for samples in calibrations {
            calibration(&problem, samples).apply(&name, &mut cluster, &mut stack).unwrap();
        }
        (cluster.gpu.timed_gemms, cluster.gpu.gemm)
    };
    let once = priced(&[&of_device]);
    assert_ne!(once.0, TimedGemms::default());
    assert_eq!(priced(&[&of_device, &launches]), once);
    assert_eq!(priced(&[&of_device, &of_device]), once);
}

/// Differences of kernels that two files of samples have both.
fn differences(one: &Samples, other: &Samples, pick: impl Fn(&Kernel) -> bool) -> Vec<f64> {
    let ratio = |kernel: &Kernel| Some(one.of.get(kernel)?.median() / other.of.get(kernel)?.median() - 1.0);
    one.of.keys().filter(|kernel| pick(kernel)).filter_map(ratio).collect()
}

/// One device, measured again four minutes later: bars 3 % in the median and 8 % at worst of what the first run's
/// calibration says. GEMMs that it timed take their measured time, so that what is left is the probe's own noise;
/// attention and streaming kernels, which stand as copies of their bytes, have their curve.
#[test]
fn a_second_run_takes_what_the_first_says() {
    let (first, again) = (samples(H200), samples_in(H200, "again"));
    for (name, pick) in
        [("GEMMs", is_single_gemm as fn(&Kernel) -> bool), ("attention", is_causal_attention), ("copies", is_copy)]
    {
        let noise = differences(&first, &again, pick);
        let [curves, whole] =
            [Applied::Curves, Applied::Whole].map(|applied| errors_on(&first, applied, &again, H200, pick));
        for (what, found) in [("noise", &noise), ("by curves", &curves), ("as measured", &whole)] {
            println!("{name} {what}: median {:.4}, worst {:.4}", median(found.iter().copied()), worst(found));
        }
        assert!(whole.len() > 20 && median(whole.iter().copied()) < 0.03 && worst(&whole) < 0.08, "{name}");
        assert!(worst(&whole) <= worst(&curves) && median(noise) < 0.01, "{name}");
    }
}

/// The fastest of eight algorithms in short loops is drawn by chance: its times scatter about their own curve as those
/// of the first do not.
#[test]
fn the_first_algorithm_keeps_to_a_curve() {
    let [first, fastest] = ["first", "fastest"].map(|file| {
        let samples = samples_in(H200, file);
        let found = errors_on(&samples, Applied::Curves, &samples, H200, is_single_gemm);
        let mean = found.iter().map(|error| error.abs()).sum::<f64>() / found.len() as f64;
        println!(
            "{file}: {} GEMMs, median {:.4}, mean {mean:.4}, worst {:.4}",
            found.len(),
            median(found.iter().copied()),
            worst(&found)
        );
        mean
    });
    assert!(first < fastest);
}

/// Collectives of NCCL on one rank, which cross no link: a call's time and a copy's.
#[test]
fn collectives_of_one_rank_copy() {
    let samples = samples(H200);
    let mut count = 0;
    for (kernel, sample) in &samples.of {
        let Kernel::Collective { ranks: 1, bytes, .. } = kernel else { continue };
        let time = sample.median().get();
        // Read and written once, at 81 % of the HBM bandwidth and more.
        let copy = 2.0 * *bytes as f64 / (4.8e12 * 0.75);
        assert!(time < 10e-6 + copy, "{kernel}: {time}");
        count += 1;
    }
    assert_eq!(count, 24);
}

/// A GEMM between kernels that draw less power than the limit runs at higher clocks than in a loop of its own, so that
/// a mix takes less than its parts alone: by a tenth of the time of streaming kernels, until the clocks are at their
/// most. Attention draws what the limit allows, and leaves nothing.
#[test]
fn streaming_kernels_leave_power_to_gemms() {
    let mut saved: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let records = lines(H200);
    for record in &records {
        let Some(alone) = record["alone_us"].as_array() else { continue };
        let of = |values: &Value, at: usize| values[at].as_f64().unwrap();
        let calls = &record["calls"];
        let apart = |at: usize| alone[at].as_f64().unwrap() * of(calls, at);
        let mixed = |at: usize| of(&record["parts_us"], at) * of(calls, at);
        let left = (apart(0) + apart(1) - mixed(0) - mixed(1)) / apart(1);
        let kind = record["name"].as_str().unwrap().strip_prefix("gemm 8192 and ").unwrap();
        println!("{kind}, {} of the time: {left:.3} of its time", record["share"]);
        // A quarter of the time for the GEMM is so little that its clocks are at their most.
        if record["share"].as_f64() < Some(0.75) {
            saved.entry(kind).or_default().push(left);
        }
    }
    let mean = |kind: &str| saved[kind].iter().sum::<f64>() / saved[kind].len() as f64;
    for (kind, least, most) in [
        ("copy", 0.10, 0.15),
        ("rms_norm", 0.08, 0.11),
        ("swiglu", 0.0, 0.06),
        ("attention forward", -0.08, 0.0),
        ("attention backward", -0.08, 0.0),
    ] {
        println!("{kind}: {:.3}", mean(kind));
        assert!(saved[kind].len() == 2 && (least..most).contains(&mean(kind)), "{kind}");
    }
}
