//! The worked numbers of the specification, one test each, named by section.
//!
//! Version 1.1 of the specification moved some constants after these numbers were printed. A number that depends on them is
//! checked with the constants of version 1.0, so that what is tested is the formula: see [`one_zero_gpu`] and
//! [`one_zero_stack`].

mod collectives;
mod decompositions;
mod kernels;
mod memory;
mod model;
mod pipeline;

use crate::random::workload;
use meshwright::catalog::{self, Overrides};
use meshwright::cluster::Cluster;
use meshwright::gpu::{Format, Gpu, Host};
use meshwright::kernel::Device;
use meshwright::model::Model;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::stack::Stack;

/// Asserts that `ours` is within the share `tolerance` of what the specification prints.
#[track_caller]
fn close(ours: f64, printed: f64, tolerance: f64) {
    assert!(
        (ours / printed - 1.0).abs() <= tolerance,
        "{ours} against {printed}: {:+.3} %",
        (ours / printed - 1.0) * 100.0
    );
}

/// Asserts that `ours` is what the specification prints, to half of its last digit `unit`.
#[track_caller]
fn prints(ours: f64, printed: f64, unit: f64) {
    assert!((ours - printed).abs() <= unit * 0.500_000_1, "{ours} prints otherwise than {printed}");
}

fn model(name: &str) -> Model {
    catalog::model(name, &Overrides::specification()).unwrap()
}

fn gpu(name: &str) -> Gpu {
    catalog::gpu_with(name, &Overrides::specification()).unwrap()
}

/// The device with the sustained clocks and memory efficiency of version 1.0 (specification §10.1).
fn one_zero_gpu(name: &str) -> Gpu {
    let mut gpu = gpu(name);
    let (bf16, fp8, memory) = match name {
        "h100-sxm" | "h800-sxm" | "h200-sxm" => (0.77, 0.81, 0.73),
        "b200-sxm" => (0.77, 0.77, 0.63),
        "a100-80-sxm" => (0.96, 0.96, 0.78),
        _ => panic!("{name} has no constants of version 1.0 here"),
    };
    for (format, curve) in &mut gpu.gemm {
        curve.sustained = if *format == Format::Bf16 { bf16 } else { fp8 };
    }
    gpu.hbm_efficiency.value = memory;
    gpu
}

/// The stack with the traffic multiplier and cast share of version 1.0 (specification §2.4), the narrow data-parallel window
/// of §5.2, and the host floor off (§2.9).
fn one_zero_stack(name: &str, traffic: f64, casts: f64) -> Stack {
    let mut stack = catalog::stack(name, &Overrides::specification()).unwrap();
    stack.traffic = traffic;
    stack.casts = casts;
    stack.overlap.dp_interleaved_window = false;
    stack.launches.forward = 0.0;
    stack.launches.backward = 0.0;
    stack.launches.per_expert_bf16 = 0.0;
    stack.launches.per_expert_narrow = 0.0;
    stack.quirks.moe_sync_per_layer = meshwright::units::Seconds::ZERO;
    stack
}

fn te24() -> Stack {
    one_zero_stack("nemo-24", 1.35, 0.8)
}

fn device<'a>(gpu: &'a Gpu, stack: &'a Stack) -> Device<'a> {
    Device { gpu, stack, format: Format::Bf16, host: Host::X86, meter: None }
}

fn cluster(name: &str) -> Cluster {
    catalog::cluster(name, &Overrides::specification()).unwrap()
}

/// A cluster of `gpus` of a device under the constants of version 1.0.
fn one_zero_cluster(name: &str, gpu: &str, gpus: u32) -> Cluster {
    let mut cluster = cluster(name).resized(gpus);
    cluster.gpu = one_zero_gpu(gpu);
    cluster
}

fn problem(model: Model, cluster: Cluster, stack: Stack, global_batch: u32, seq_len: u32) -> Problem {
    in_format(model, cluster, stack, (global_batch, seq_len), Format::Bf16)
}

fn in_format(
    model: Model,
    cluster: Cluster,
    stack: Stack,
    (global_batch, seq_len): (u32, u32),
    format: Format,
) -> Problem {
    Problem::new(model, cluster, workload(global_batch, seq_len, format), stack, HbmProfile::Tight).unwrap()
}

/// A GPT of the SC'21 and sequence-parallelism papers, with their padded vocabulary.
fn gpt(layers: usize, hidden: u32, heads: u32) -> Model {
    use meshwright::model::{Ffn, Mixer};
    let mut model = model("megatron-22b");
    model.hidden = hidden;
    model.order = vec![0; layers];
    if let Mixer::Attention(attention) = &mut model.kinds[0].mixer {
        attention.heads = heads;
        attention.kv_heads = heads;
        attention.head_dim = hidden / heads;
    }
    if let Ffn::Dense(mlp) = &mut model.kinds[0].ffn {
        mlp.intermediate = 4 * hidden;
    }
    model
}
