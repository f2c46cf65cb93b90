//! Traces of the PyTorch profiler (Kineto): GEMMs, attention and collectives of real training steps.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Import, SampleImportError};
use crate::probe::kernel::{Attention, Fused, Gemm, Kernel, Mask};
use crate::probe::sample::Sample;
use meshwright_engine::gpu::{AttentionKernel, Collective, Format};
use meshwright_engine::kernel::Pass;

/// Reads a trace.
///
/// GEMMs and attention need `record_shapes=True`: the operator that launched a kernel (`External id`) gives its shape.
/// Clocks in a training step are limited by power and heat, so GEMMs become [`Kernel::Sustained`]; a collective's kernel
/// also waits for its peers, so the shortest of each size is used. The direction of a GEMM is unknown and counts as
/// forward. Ranks of a collective are assumed to be on `ceil(ranks / gpus_per_node)` nodes.
///
/// # Errors
///
/// The text is not a trace, or has no kernel that the model knows.
pub fn read(text: &str, gpus_per_node: u64) -> Result<Import, SampleImportError> {
    let form = |why: String| SampleImportError::Form { what: "trace of the PyTorch profiler", why };
    let trace: Value = serde_json::from_str(text).map_err(|error| form(error.to_string()))?;
    let Some(events) = trace.get("traceEvents").and_then(Value::as_array) else {
        return Err(form("it has no `traceEvents`".into()));
    };
    let mut import = Import::default();
    let device = trace.pointer("/deviceProperties/0/name").and_then(Value::as_str);
    import.device = device.map(ToOwned::to_owned);
    let mut operators: BTreeMap<u64, &Value> = BTreeMap::new();
    for event in events.iter().filter(|event| category(event) == "cpu_op") {
        if let Some(id) = external_id(event)
            && event.pointer("/args/Input Dims").is_some()
        {
            operators.insert(id, event);
        }
    }
    let mut times: BTreeMap<Kernel, Vec<f64>> = BTreeMap::new();
    for event in events.iter().filter(|event| category(event) == "kernel") {
        let (Some(us), Some(name)) = (event["dur"].as_f64(), event["name"].as_str()) else {
            import.leave("kernels without a name or a duration");
            continue;
        };
        let kernel = if name.starts_with("nccl") {
            collective(event, gpus_per_node)
        } else {
            external_id(event)
                .and_then(|id| operators.get(&id))
                .ok_or_else(|| "kernels of no operator with shapes".to_owned())
                .and_then(|operator| computed(operator, name))
        };
        match kernel {
            Ok(kernel) => times.entry(kernel).or_default().push(us),
            Err(why) => import.leave(why),
        }
    }
    for (kernel, mut all) in times {
        if matches!(kernel, Kernel::Collective { .. }) {
            all.sort_by(f64::total_cmp);
            all.truncate(1);
        }
        match Sample::from_micros(all) {
            Ok(sample) => import.samples.push((kernel, sample)),
            Err(_) => import.leave("kernels of no duration"),
        }
    }
    if import.samples.is_empty() {
        return Err(form(
            "no GEMM, attention or collective in it has its shape\n\nhint: profile with record_shapes=True".into(),
        ));
    }
    Ok(import)
}

fn category(event: &Value) -> &str {
    event["cat"].as_str().unwrap_or_default()
}

fn external_id(event: &Value) -> Option<u64> {
    event.pointer("/args/External id").or_else(|| event.pointer("/args/external id")).and_then(Value::as_u64)
}

/// Sizes of the operator's tensors; empty for inputs that are not tensors.
fn dims(operator: &Value) -> Vec<Vec<u64>> {
    let all = operator.pointer("/args/Input Dims").and_then(Value::as_array);
    let sizes = |dims: &Value| dims.as_array().map(|dims| dims.iter().filter_map(Value::as_u64).collect());
    all.into_iter().flatten().map(|dims| sizes(dims).unwrap_or_default()).collect()
}

/// Format of the operator's input number `at`.
fn format(operator: &Value, at: usize) -> Result<Format, String> {
    let kind = operator.pointer(&format!("/args/Input type/{at}")).and_then(Value::as_str).unwrap_or_default();
    match kind.trim_start_matches("c10::") {
        "BFloat16" | "Half" => Ok(Format::Bf16),
        name if name.starts_with("Float8") => Ok(Format::Fp8),
        other => Err(format!("GEMMs of `{other}`")),
    }
}

/// GEMM or attention of an operator.
fn computed(operator: &Value, kernel_name: &str) -> Result<Kernel, String> {
    let name = operator["name"].as_str().unwrap_or_default();
    let dims = dims(operator);
    let sizes = |at: usize, rank: usize| {
        dims.get(at)
            .filter(|dims| dims.len() == rank && dims.iter().all(|size| *size > 0))
            .ok_or_else(|| format!("`{name}` of unusual shape"))
    };
    let gemm = |first: usize, rank: usize| {
        let (a, b) = (sizes(first, rank)?, sizes(first + 1, rank)?);
        let at = rank - 2;
        Ok::<_, String>(Kernel::Sustained(Gemm {
            format: format(operator, first)?,
            pass: Pass::Forward,
            m: a[at],
            n: b[at + 1],
            k: a[at + 1],
            batch: if rank == 3 { a[0] } else { 1 },
            output_bytes: 2,
        }))
    };
    match name {
        "aten::mm" | "aten::_scaled_mm" => gemm(0, 2),
        "aten::addmm" => gemm(1, 2),
        "aten::bmm" => gemm(0, 3),
        _ if name.contains("flash_attention") || name.contains("cudnn_attention") => {
            attention(name, kernel_name, operator, &dims)
        }
        _ => Err(format!("operator `{name}`")),
    }
}

/// Attention with queries, keys and values of \[sequences, heads, tokens, dim\]; causal if the operator's scalars say so.
fn attention(name: &str, kernel_name: &str, operator: &Value, dims: &[Vec<u64>]) -> Result<Kernel, String> {
    // An operator also launches helper kernels: row sums, conversions.
    if !["flash", "fmha", "sdpa"].iter().any(|core| kernel_name.contains(core)) || kernel_name.contains("dot_do_o") {
        return Err("helpers of attention".into());
    }
    let backward = name.contains("backward");
    let tensors: Vec<&Vec<u64>> = dims.iter().filter(|dims| dims.len() == 4).collect();
    let at = usize::from(backward);
    let (Some(q), Some(k), Some(v)) = (tensors.get(at), tensors.get(at + 1), tensors.get(at + 2)) else {
        return Err(format!("`{name}` of unusual shape"));
    };
    let scalars = operator.pointer("/args/Concrete Inputs").and_then(Value::as_array);
    let causal = scalars.is_some_and(|all| all.iter().any(|value| value.as_str() == Some("True")));
    let kernel = if name.contains("cudnn") {
        AttentionKernel::Cudnn
    } else if kernel_name.contains("sm90") || kernel_name.contains("Sm90") {
        AttentionKernel::Fa3
    } else {
        AttentionKernel::Fa2
    };
    Ok(Kernel::Attention(Attention {
        kernel: Fused::Library(kernel),
        pass: if backward { Pass::Dgrad } else { Pass::Forward },
        sequences: q[0],
        heads: q[1],
        kv_heads: k[1],
        queries: q[2],
        keys: k[2],
        qk_dim: q[3],
        v_dim: v[3],
        mask: if causal { Mask::Causal } else { Mask::Full },
    }))
}

/// Collective with its message size, as PyTorch 2.2 and later record it.
fn collective(event: &Value, gpus_per_node: u64) -> Result<Kernel, String> {
    let args = &event["args"];
    let name = args["Collective name"].as_str().unwrap_or_default();
    let whole = "NCCL kernels without the size of their message";
    let (op, elements) = match name {
        "allreduce" => (Collective::AllReduce, &args["In msg nelems"]),
        "allgather" | "_allgather_base" => (Collective::AllGather, &args["Out msg nelems"]),
        "reduce_scatter" | "_reduce_scatter_base" => (Collective::ReduceScatter, &args["In msg nelems"]),
        "all_to_all" | "all_to_allv" => (Collective::AllToAll, &args["In msg nelems"]),
        "" => return Err(whole.into()),
        other => return Err(format!("NCCL `{other}`")),
    };
    let bytes = match args["dtype"].as_str().unwrap_or_default() {
        "BFloat16" | "Half" => 2,
        "Float" | "Int" => 4,
        "Double" | "Long" => 8,
        "Byte" | "Char" | "Bool" => 1,
        other => return Err(format!("NCCL messages of `{other}`")),
    };
    let (Some(elements), Some(ranks)) = (elements.as_u64(), args["Group size"].as_u64()) else {
        return Err(whole.into());
    };
    if ranks < 2 || elements == 0 {
        return Err("NCCL kernels of one rank".into());
    }
    Ok(Kernel::Collective {
        op,
        ranks,
        nodes: ranks.div_ceil(gpus_per_node.max(1)),
        bytes: elements.saturating_mul(bytes),
    })
}
