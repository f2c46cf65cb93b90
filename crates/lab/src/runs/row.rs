//! Rows of a file of published runs, and the reader of such files.

use serde::{Deserialize, Serialize};

/// Published run. Empty cells, and columns that a file lacks, are `None`. Rules (docs/runs.md) turn a row into a
/// problem and a plan.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Row {
    /// Line of its file where it begins, from 1; `None` if it was not read from a file.
    #[serde(skip)]
    pub line: Option<u64>,
    /// Name of the row in its file.
    pub id: Option<String>,
    /// Publication that reports it. No rule reads it.
    pub source: Option<String>,
    /// Whether the source itself was consulted.
    pub source_seen: Option<String>,
    /// Year of the measurement.
    pub year: Option<f64>,
    /// Framework, with its release where stated.
    pub framework: Option<String>,
    /// `pretrain`, `sft` or `lora`.
    pub purpose: Option<String>,
    /// Name of the model.
    pub model_name: Option<String>,
    /// Number of layers.
    pub layers: Option<f64>,
    /// Hidden size.
    pub hidden: Option<f64>,
    /// Intermediate size of a dense MLP.
    pub ffn: Option<f64>,
    /// Number of query heads.
    pub heads: Option<f64>,
    /// Number of key and value heads; blank means the number of query heads.
    pub kv_heads: Option<f64>,
    /// Dimension of a head; blank is hidden / heads.
    pub head_dim: Option<f64>,
    /// Vocabulary size before padding.
    pub vocab: Option<f64>,
    /// Sequence length in tokens.
    pub seq_len: Option<f64>,
    /// Tokens of the documents that are packed into a sequence, as a mean token sees them.
    pub document_len: Option<f64>,
    /// Routed experts per layer; blank, 0 and 1 are dense.
    pub experts: Option<f64>,
    /// Number of experts per token.
    pub topk: Option<f64>,
    /// Intermediate size of one expert.
    pub moe_ffn: Option<f64>,
    /// Shared experts, each as wide as a routed one.
    pub shared_experts: Option<f64>,
    /// Leading layers without experts.
    pub dense_layers: Option<f64>,
    /// Whether attention is latent, 0 or 1.
    pub mla: Option<f64>,
    /// Whether MLPs are gated, 0 or 1.
    pub gated_mlp: Option<f64>,
    /// Whether input and output embeddings are tied, 0 or 1.
    pub tied_embeddings: Option<f64>,
    /// Billions of parameters, as stated. No rule reads it.
    #[serde(rename = "params_total_B")]
    pub params_total_b: Option<f64>,
    /// Billions of active parameters per token, as stated. No rule reads it.
    #[serde(rename = "params_active_B")]
    pub params_active_b: Option<f64>,
    /// Name of the device.
    pub gpu: Option<String>,
    /// Number of devices in use.
    pub gpus_total: Option<f64>,
    /// Devices of one node; blank is 8.
    pub gpus_per_node: Option<f64>,
    /// Links inside the node.
    pub interconnect_intra: Option<String>,
    /// Network between the nodes.
    pub interconnect_inter: Option<String>,
    /// `bf16`, `fp16`, `fp8` or `nvfp4`.
    pub dtype: Option<String>,
    /// Scaling recipe of narrow formats.
    pub dtype_detail: Option<String>,
    /// Tensor-parallel size.
    pub tp: Option<f64>,
    /// Sequence parallelism, 0 or 1.
    pub sp: Option<f64>,
    /// Pipeline-parallel size.
    pub pp: Option<f64>,
    /// Chunks per pipeline rank.
    pub vpp: Option<f64>,
    /// Data-parallel size.
    pub dp: Option<f64>,
    /// Context-parallel size.
    pub cp: Option<f64>,
    /// Expert-parallel size.
    pub ep: Option<f64>,
    /// Expert tensor-parallel size.
    pub etp: Option<f64>,
    /// Stage of `ZeRO`.
    pub zero_stage: Option<f64>,
    /// Sharding, as free text.
    pub fsdp: Option<String>,
    /// Sequences per micro-batch.
    pub micro_batch: Option<f64>,
    /// Sequences per step.
    pub global_batch: Option<f64>,
    /// Micro-batches per step, as stated. No rule reads it.
    pub grad_accum: Option<f64>,
    /// Recomputation, as free text.
    pub recompute: Option<String>,
    /// Overlap of communication with compute, as free text.
    pub overlap: Option<String>,
    /// Name of the pipeline schedule.
    pub schedule: Option<String>,
    /// Measured step time in seconds, as stated. No rule reads it.
    pub step_time_s: Option<f64>,
    /// Measured tokens per second and GPU, as stated. No rule reads it.
    pub tokens_per_s_per_gpu: Option<f64>,
    /// Measured model TFLOP/s per GPU, as stated. No rule reads it.
    pub tflops_per_gpu: Option<f64>,
    /// FLOP formula of the source. No rule reads it.
    pub flop_formula: Option<String>,
    /// Measured MFU, as stated. No rule reads it.
    pub mfu: Option<f64>,
    /// Peak TFLOP/s behind `mfu`. No rule reads it.
    pub mfu_peak_tflops: Option<f64>,
    /// Measured hardware FLOP/s utilisation, as stated. No rule reads it.
    pub hfu: Option<f64>,
    /// Measured peak memory in GiB, as stated. No rule reads it.
    pub peak_mem_gib: Option<f64>,
    /// Kind of memory figure: allocated, reserved or device.
    pub mem_kind: Option<String>,
    /// Outcome, `ok` or `oom`. No rule reads it.
    pub outcome: Option<String>,
    /// Measured step time in seconds to score against. No rule reads it.
    pub step_time_canon_s: Option<f64>,
    /// Measured tokens per second and GPU to score against. No rule reads it.
    pub tokens_per_s_per_gpu_canon: Option<f64>,
    /// Figure that the canonical columns are derived from. No rule reads it.
    pub canon_from: Option<String>,
    /// Further remarks of the source.
    pub notes: Option<String>,
    /// Trust in the row: high, medium or low. No rule reads it.
    pub trust: Option<String>,
    /// Name of the configuration that several rows share. No rule reads it.
    pub config_group: Option<String>,
    /// Arithmetic checks of the row. No rule reads it.
    pub arith_check: Option<String>,
    /// Result of the arithmetic checks. No rule reads it.
    pub arith_status: Option<String>,
    /// Measured over computed TFLOP/s with all attention FLOPs. No rule reads it.
    pub tflops_over_full: Option<f64>,
    /// Measured over computed TFLOP/s with causal attention FLOPs. No rule reads it.
    pub tflops_over_causal: Option<f64>,
    /// Recomputed modules, or the name of a rematerialisation policy.
    pub recompute_modules: Option<String>,
    /// Tensors on the host, such as `optimizer+activations:95layers`.
    pub offload: Option<String>,
    /// Formats of gradients, moments and master weights.
    pub optimizer_states: Option<String>,
    /// Whether weights are kept in 8 bits.
    pub fp8_params: Option<String>,
    /// Letters of a hybrid's layers: M Mamba, E experts, * attention, - MLP.
    pub layer_pattern: Option<String>,
    /// Sizes of Mamba layers: `heads=… head_dim=… state=… groups=…`.
    pub mamba: Option<String>,
    /// Width of the latent space in which experts work.
    pub moe_latent: Option<f64>,
    /// Attention kernel, such as `cudnn_sink_fp8`.
    pub attention_kernel: Option<String>,
    /// Token dispatcher: `alltoall`, `alltoall+drop`, `deepep` or `hybridep`.
    pub dispatcher: Option<String>,
    /// CUDA graphs, as implementation and scopes, such as `local:full_step`; or `none`.
    pub cuda_graph: Option<String>,
    /// Overlap of the experts' exchange with compute: `false`, `true` or `true+delay_wgrad`.
    pub ep_overlap: Option<String>,
    /// Fused kernels, joined by `+`.
    pub fused_kernels: Option<String>,
    /// Number of multi-token-prediction layers.
    pub mtp_layers: Option<f64>,
}

impl Row {
    /// Measured cells that predictions are compared with, by column.
    pub const fn measured_cells(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("step_time_s", self.step_time_s),
            ("step_time_canon_s", self.step_time_canon_s),
            ("tokens_per_s_per_gpu", self.tokens_per_s_per_gpu),
            ("tokens_per_s_per_gpu_canon", self.tokens_per_s_per_gpu_canon),
            ("peak_mem_gib", self.peak_mem_gib),
        ]
    }
}

/// Columns that every row needs for its mapping.
const ESSENTIAL: [&str; 12] = [
    "id",
    "framework",
    "gpu",
    "gpus_total",
    "layers",
    "hidden",
    "heads",
    "vocab",
    "seq_len",
    "tp",
    "pp",
    "global_batch",
];

/// Error in a file of runs.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// The header lacks columns that every row needs.
    #[error(
        "the header lacks the columns {columns}\n\nhint: unknown cells may stay empty, but these columns must exist"
    )]
    MissingColumns {
        /// Names of the missing columns.
        columns: String,
    },
    /// A cell has the wrong type for its column.
    #[error("line {line}, column `{column}`: `{value}`: {why}")]
    Cell {
        /// Line of the file, from 1.
        line: u64,
        /// Name of the column.
        column: String,
        /// Content of the cell.
        value: String,
        /// Reason why it is wrong.
        why: String,
    },
    /// The file has more rows than are held at once.
    #[error("more than {most} rows: validate and fit parts of it")]
    TooLong {
        /// Most rows.
        most: usize,
    },
    /// A row is not valid CSV: too many or too few cells, or not text.
    #[error(transparent)]
    Csv(#[from] csv::Error),
}

/// Errors if a header lacks columns that every row needs.
pub(super) fn check_header(header: &csv::StringRecord) -> Result<(), RunsError> {
    let missing: Vec<&str> = ESSENTIAL.into_iter().filter(|name| header.iter().all(|column| column != *name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(RunsError::MissingColumns { columns: missing.join(", ") }) }
}

/// Row of a record under a header.
pub(super) fn row_of(record: &csv::StringRecord, header: &csv::StringRecord) -> Result<Row, RunsError> {
    let row: Row = record.deserialize(Some(header)).map_err(|error| cell_error(error, record, header))?;
    Ok(Row { line: record.position().map(csv::Position::line), ..row })
}

fn cell_error(error: csv::Error, record: &csv::StringRecord, header: &csv::StringRecord) -> RunsError {
    let csv::ErrorKind::Deserialize { pos, err } = error.kind() else {
        return error.into();
    };
    let Some(field) = err.field() else {
        return error.into();
    };
    let cell_of = |cells: &csv::StringRecord| cells.get(field as usize).unwrap_or_default().to_owned();
    RunsError::Cell {
        line: pos.as_ref().or(record.position()).map_or(0, csv::Position::line),
        column: cell_of(header),
        value: cell_of(record),
        why: err.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use crate::runs::read;

    const HEADER: &str = "id,framework,gpu,gpus_total,layers,hidden,heads,vocab,seq_len,tp,pp,global_batch,mood";

    #[test]
    fn unknown_columns_are_ignored_and_empty_cells_are_none() {
        let rows = read(format!("{HEADER}\na,nanotron,H100,8,2,64,4,100,128,1,,8,good\n").as_bytes()).unwrap();
        assert_eq!((rows[0].tp, rows[0].pp, rows[0].cp), (Some(1.0), None, None));
    }

    #[test]
    fn rows_know_their_line() {
        let text =
            format!("{HEADER}\na,\"two\nlines\",H100,8,2,64,4,100,128,1,1,8,\nb,n,H100,8,2,64,4,100,128,1,1,8,\n");
        let rows = read(text.as_bytes()).unwrap();
        assert_eq!((rows[0].line, rows[1].line), (Some(2), Some(4)));
    }

    #[test]
    fn errors_name_line_and_column() {
        let error =
            read(format!("{HEADER}\na,n,H100,8,2,64,4,100,128,1,1,8,\nb,n,H100,x,2,64,4,100,128,1,1,8,\n").as_bytes());
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("line 3, column `gpus_total`: `x`"), "{text}");
        let text = read("id,gpu\n".as_bytes()).unwrap_err().to_string();
        assert!(text.contains("framework, gpus_total"), "{text}");
    }
}
