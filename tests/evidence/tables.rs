//! Published tables of kernels (`tests/silicon/gemm.csv`, `attention.csv`) against the curves of the catalogue, without
//! the clocks of a run.

use serde::Deserialize;

use meshwright::catalog::{self, Overrides, gpu_with};
use meshwright::fit::silicon::TimedGemm;
use meshwright::gpu::{AttentionKernel, Format, Gpu, Host};
use meshwright::kernel::{AttentionShape, ContextSplit, Device, GemmShape};

/// Rate of an attention kernel, in TFLOP/s of what a mask leaves.
#[derive(Deserialize)]
struct TimedAttention {
    gpu: String,
    pass: String,
    sequences: f64,
    heads: f64,
    head_dim: f64,
    seq_len: f64,
    causal: bool,
    tflops: f64,
}

fn table<T: serde::de::DeserializeOwned>(name: &str) -> Vec<T> {
    let path = format!("{}/tests/silicon/{name}", env!("CARGO_MANIFEST_DIR"));
    csv::Reader::from_path(path).unwrap().deserialize().map(Result::unwrap).collect()
}

/// Device of the catalogue at the clocks of a short loop.
fn at_full_clocks(file: &str) -> Gpu {
    let mut gpu = gpu_with(file, &Overrides::default()).unwrap();
    for curve in gpu.gemm.values_mut() {
        curve.sustained = 1.0;
    }
    gpu
}

/// Errors |predicted/measured − 1| in ascending order.
fn sorted(errors: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut errors: Vec<f64> = errors.map(|ratio| (ratio - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// Time from which what a benchmark adds to each GEMM does not count, in microseconds.
const LONG: f64 = 100.0;

#[test]
fn gemms_of_amd_are_met() {
    let stack = catalog::stack("megatron-rocm-2025", &Overrides::default()).unwrap();
    let gemms: Vec<TimedGemm> = table("gemm.csv");
    for (file, name, count, median, worst) in
        [("mi300x", "MI300X", 23, 0.06, 0.15), ("mi355x", "MI355X", 100, 0.06, 0.25)]
    {
        let gpu = at_full_clocks(file);
        let device = Device { gpu: &gpu, stack: &stack, format: Format::Bf16, host: Host::X86, meter: None };
        let timed = gemms.iter().filter(|gemm| gemm.gpu == name && gemm.latency_us >= LONG);
        let errors = sorted(timed.map(|gemm| {
            let shape = GemmShape { m: gemm.m, n: gemm.n, k: gemm.k, batch: 1.0, output_bytes: 2.0 };
            device.gemm(&shape, Format::Bf16).get() / (gemm.latency_us * 1e-6)
        }));
        assert_eq!(errors.len(), count, "{name}");
        let found = (errors[count / 2], errors[count - 1]);
        assert!(found.0 <= median && found.1 <= worst, "{name}: median and worst {found:?}");
    }
}

#[test]
fn attention_of_amd_is_met() {
    let stack = catalog::stack("megatron-rocm-2025", &Overrides::default()).unwrap();
    let timed: Vec<TimedAttention> = table("attention.csv");
    for (file, name, pass, count, median, worst) in [
        ("mi355x", "MI355X", "forward", 4, 0.035, 0.06),
        ("mi355x", "MI355X", "backward", 4, 0.03, 0.06),
        ("mi300x", "MI300X", "forward", 24, 0.09, 0.30),
    ] {
        let gpu = at_full_clocks(file);
        let device = Device { gpu: &gpu, stack: &stack, format: Format::Bf16, host: Host::X86, meter: None };
        let rows = timed.iter().filter(|row| row.gpu == name && row.pass == pass && row.seq_len >= 2048.0);
        let errors = sorted(rows.map(|row| {
            let attended = if row.causal { 0.5 } else { 1.0 };
            let TimedAttention { sequences, heads, seq_len, head_dim, .. } = *row;
            let core = AttentionShape {
                sequences,
                heads,
                kv_heads: heads,
                seq_len,
                attended,
                qk_dim: head_dim,
                v_dim: head_dim,
                dropout: false,
                context_split: ContextSplit::WHOLE,
            };
            let times = device.attention(&core, AttentionKernel::Cudnn);
            let (time, passes) = match pass {
                "forward" => (times.forward, 1.0),
                _ => (times.backward, 2.5),
            };
            let flops = passes * 4.0 * sequences * heads * seq_len * seq_len * head_dim * attended;
            time.get() / (flops / (row.tflops * 1e12))
        }));
        assert_eq!(errors.len(), count, "{name} {pass}");
        let found = (errors[count / 2], errors[count - 1]);
        assert!(found.0 <= median && found.1 <= worst, "{name} {pass}: median and worst {found:?}");
    }
}
