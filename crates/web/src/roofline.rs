//! Kernels of a step on the roofline of its device.

use std::error::Error;
use std::sync::Mutex;

use serde_json::{Value, json};

use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::kernel::{AttentionShape, Call, GemmShape, Meter, Pass};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::units::Seconds;

/// Meter that lists every distinct call with its predicted time.
#[derive(Debug, Default)]
struct Calls(Mutex<Vec<(Call, Seconds)>>);

impl Meter for Calls {
    fn time(&self, call: &Call, predicted: Seconds) -> Seconds {
        let mut calls = self.0.lock().expect("nobody panics with it");
        if !calls.iter().any(|(known, _)| known == call) {
            calls.push((*call, predicted));
        }
        predicted
    }
}

/// Distinct kernels of a plan: work, bytes moved, predicted time; and the peak and the memory bandwidth of the device.
///
/// # Errors
///
/// A value has no JSON form.
pub fn kernels(problem: &Problem, plan: &Plan) -> Result<Value, Box<dyn Error>> {
    let calls = Calls::default();
    let costs = Costs::new(problem).metered(&calls);
    let _ = costs.evaluate_simulated(plan);
    let gpu = &problem.cluster().gpu;
    let calls = calls.0.into_inner()?;
    let kernels: Vec<Value> = calls.iter().map(|(call, time)| kernel(call, *time)).collect();
    let format = problem.workload().format;
    Ok(json!({
        "peak_flops": gpu.peak_of(format).or_else(|| gpu.peak_of(Format::Bf16)).map(meshwright::units::FlopsPerSec::get),
        "hbm_bytes_per_s": gpu.hbm_bandwidth.value.get(),
        "calls": kernels,
    }))
}

/// Work of a kernel, and what it moves through memory.
struct Load {
    flop: f64,
    bytes: f64,
}

/// Load of a GEMM: operands are read once, the output written once.
fn of_gemm(shape: &GemmShape, format: Format) -> Load {
    let GemmShape { m, n, k, batch, output_bytes } = *shape;
    let operands = format.element_bytes() * (m * k + k * n);
    Load { flop: 2.0 * m * n * k * batch, bytes: batch * (operands + output_bytes * m * n) }
}

/// Load of a fused attention: queries, keys, values and the output pass through memory once in 16 bits.
///
/// Source: specification §2.3, with 2.5 times the work backward.
fn of_attention(core: &AttentionShape, pass: Pass) -> Load {
    let AttentionShape { sequences, heads, kv_heads, seq_len, attended, qk_dim, v_dim, context_split, .. } = *core;
    let forward = 2.0 * sequences * heads * seq_len * seq_len * attended * (qk_dim + v_dim) / context_split.ranks;
    let elements = sequences * seq_len * (heads + kv_heads) * (qk_dim + v_dim) / context_split.ranks;
    let (work, passes) = if pass == Pass::Forward { (1.0, 1.0) } else { (2.5, 2.0) };
    Load { flop: work * forward, bytes: passes * 2.0 * elements }
}

/// Operations for each byte of keys that a block of 64 heads of sparse attention gathers in 16 bits.
const SPARSE_INTENSITY: f64 = 64.0;

fn kernel(call: &Call, time: Seconds) -> Value {
    match call {
        Call::Gemm { shape, format, pass } => {
            let Load { flop, bytes } = of_gemm(shape, *format);
            let label = format!("GEMM {} × {} × {}{}, {pass}, {format}", shape.m, shape.n, shape.k, times(shape.batch));
            json!({ "kind": "gemm", "label": label, "flop": flop, "bytes": bytes, "time_s": time.get() })
        }
        Call::Attention { core, pass, .. } => {
            let Load { flop, bytes } = of_attention(core, *pass);
            let label = format!("attention of {} heads over {} tokens, {pass}", core.heads, core.seq_len);
            json!({ "kind": "attention", "label": label, "flop": flop, "bytes": bytes, "time_s": time.get() })
        }
        Call::Sparse { work, pass } => {
            let bytes = work.get() / SPARSE_INTENSITY;
            let label = format!("sparse attention, {pass}");
            json!({ "kind": "attention", "label": label, "flop": work.get(), "bytes": bytes, "time_s": time.get() })
        }
        Call::Stream { traffic, kernels } => json!({
            "kind": "stream",
            "label": format!("{kernels} streaming kernels"),
            "flop": 0.0,
            "bytes": traffic.get(),
            "time_s": time.get(),
        }),
    }
}

fn times(batch: f64) -> String {
    if batch > 1.0 { format!(" × {batch}") } else { String::new() }
}
