//! Tables of kernel times as CSV: GEMMs, attention and collectives, recognised by their columns.

use std::collections::BTreeSet;

use super::{Import, SampleImportError};
use crate::probe::kernel::{Attention, Fused, Gemm, Kernel, Mask};
use crate::probe::sample::Sample;
use meshwright_engine::gpu::{AttentionKernel, Collective, Format};
use meshwright_engine::kernel::Pass;
use meshwright_engine::units::Flops;

/// Kinds of table, with the columns that each must have.
const KINDS: [(&str, &[&str]); 3] = [
    ("GEMMs", &["gpu", "dtype", "m", "n", "k", "latency_us"]),
    ("attention", &["gpu", "pass", "dtype", "impl", "causal", "batch", "seq", "heads", "head_dim"]),
    ("collectives", &["gpu", "collective", "n_gpus", "nodes", "size_bytes", "latency_us"]),
];

/// One row, by column name.
struct Row<'a> {
    headers: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        let at = self.headers.iter().position(|header| header == column);
        at.and_then(|at| self.record.get(at)).unwrap_or_default().trim()
    }

    fn number(&self, column: &str) -> Result<f64, String> {
        let text = self.text(column);
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| format!("`{column}` is `{text}`, and must be a number above 0"))
    }

    fn size(&self, column: &str) -> Result<u64, String> {
        let number = self.number(column)?;
        if number.fract() == 0.0 && number < 1e15 { Ok(number as u64) } else { Err(format!("`{column}` is not whole")) }
    }
}

/// Reads a table, and selects the rows whose `gpu` is `device`.
///
/// # Errors
///
/// The columns fit no known kind, a row is invalid, or no row is of the device.
pub fn read(text: &str, device: &str) -> Result<Import, SampleImportError> {
    let form = |why: String| SampleImportError::Form { what: "table of kernel times", why };
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let headers = reader.headers().map_err(|error| form(error.to_string()))?.clone();
    let has = |column: &str| headers.iter().any(|header| header == column);
    let Some((kind, _)) = KINDS.iter().find(|(_, columns)| columns.iter().all(|column| has(column))) else {
        let kinds: Vec<String> = KINDS.iter().map(|(kind, columns)| format!("{kind}: {}", columns.join(","))).collect();
        return Err(form(format!("its columns are of no known kind\n\nhint: there are {}", kinds.join("; "))));
    };
    let mut import = Import { device: Some(device.to_owned()), ..Import::default() };
    let mut devices = BTreeSet::new();
    for (at, record) in reader.records().enumerate() {
        let place = |why: String| SampleImportError::Row { row: at + 2, why };
        let record = record.map_err(|error| place(error.to_string()))?;
        let row = Row { headers: &headers, record: &record };
        if !row.text("gpu").eq_ignore_ascii_case(device) {
            devices.insert(row.text("gpu").to_owned());
            continue;
        }
        let version = row.text("nccl_version");
        if import.driver.is_none() && !version.is_empty() {
            import.driver = Some(format!("NCCL {version}"));
        }
        let read = match *kind {
            "GEMMs" => gemm(&row),
            "attention" => attention(&row),
            _ => collective(&row),
        };
        match read.map_err(place)? {
            TimedKernel::Known(kernel, us) => {
                import.samples.push((kernel, Sample::from_micros([us]).map_err(place)?));
            }
            TimedKernel::Unknown(why) => import.leave(why),
        }
    }
    if import.samples.is_empty() && import.left.is_empty() {
        let names: Vec<&str> = devices.iter().map(String::as_str).collect();
        return Err(form(format!("no row has gpu `{device}`\n\nhint: there are {}", names.join(", "))));
    }
    Ok(import)
}

/// Content of a valid row.
enum TimedKernel {
    /// Kernel of the model, with its time in microseconds.
    Known(Kernel, f64),
    /// The model has no such kernel; the reason, as text.
    Unknown(String),
}

fn gemm(row: &Row) -> Result<TimedKernel, String> {
    let format = match row.text("dtype") {
        "bf16" | "fp16" => Format::Bf16,
        "fp8" => Format::Fp8,
        "fp8_block" | "fp8-block" => Format::Fp8Block,
        "mxfp8" => Format::Mxfp8,
        "nvfp4" => Format::Nvfp4,
        other => return Ok(TimedKernel::Unknown(format!("GEMMs in `{other}`"))),
    };
    let gemm = Gemm {
        format,
        pass: Pass::Forward,
        m: row.size("m")?,
        n: row.size("n")?,
        k: row.size("k")?,
        batch: 1,
        output_bytes: 2,
    };
    Ok(TimedKernel::Known(Kernel::Gemm(gemm), row.number("latency_us")?))
}

fn attention(row: &Row) -> Result<TimedKernel, String> {
    let kernel = match row.text("impl") {
        "FlashAttention-2" => AttentionKernel::Fa2,
        "FlashAttention-3" => AttentionKernel::Fa3,
        "cuDNN" => AttentionKernel::Cudnn,
        other => return Ok(TimedKernel::Unknown(format!("attention by `{other}`"))),
    };
    if !matches!(row.text("dtype"), "bf16" | "fp16" | "bf16/fp16") {
        return Ok(TimedKernel::Unknown(format!("attention in `{}`", row.text("dtype"))));
    }
    let causal = match row.text("causal") {
        "1" | "true" => true,
        "0" | "false" => false,
        _ => return Ok(TimedKernel::Unknown("attention that does not say whether it is causal".into())),
    };
    let (dim, heads) = (row.size("head_dim")?, row.size("heads")?);
    let core = Attention {
        kernel: Fused::Library(kernel),
        pass: if row.text("pass") == "bwd" { Pass::Dgrad } else { Pass::Forward },
        sequences: row.size("batch")?,
        heads,
        kv_heads: if row.text("kv_heads").is_empty() { heads } else { row.size("kv_heads")? },
        queries: row.size("seq")?,
        keys: row.size("seq")?,
        qk_dim: dim,
        v_dim: dim,
        mask: if causal { Mask::Causal } else { Mask::Full },
    };
    let us = if row.text("latency_us").is_empty() {
        // The rates of a table agree with our count of operations if it halves those of causal attention.
        if causal && !row.text("flop_convention").starts_with("causal-half") {
            return Ok(TimedKernel::Unknown("rates of causal attention that count all pairs".into()));
        }
        core.flops() / Flops::new(row.number("tflops")? * 1e12) * 1e6
    } else {
        row.number("latency_us")?
    };
    Ok(TimedKernel::Known(Kernel::Attention(core), us))
}

fn collective(row: &Row) -> Result<TimedKernel, String> {
    let op = match row.text("collective") {
        "all_reduce" | "allreduce" => Collective::AllReduce,
        "all_gather" | "allgather" => Collective::AllGather,
        "reduce_scatter" => Collective::ReduceScatter,
        "alltoall" | "all_to_all" => Collective::AllToAll,
        other => return Ok(TimedKernel::Unknown(format!("collective `{other}`"))),
    };
    let kernel = Kernel::Collective {
        op,
        ranks: row.size("n_gpus")?,
        nodes: row.size("nodes")?,
        bytes: row.size("size_bytes")?,
    };
    Ok(TimedKernel::Known(kernel, row.number("latency_us")?))
}
