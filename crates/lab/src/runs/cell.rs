//! Validated numeric cells: whole, above 0, and small enough.

use super::refusal::Refusal;
use super::row::Row;

/// Largest count that a cell may hold: no sequence, vocabulary or cluster is larger, and 128 times it fits 32 bits.
const MOST: f64 = 1e7;

/// Year that is assumed where a row states none.
const USUAL_YEAR: u32 = 2025;
/// Devices of a node that are assumed where a row states none.
const USUAL_GPUS_PER_NODE: u32 = 8;

/// Counts of a row after validation. Blank cells are `None`, or the default of their field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells {
    pub year: u32,
    pub layers: Option<u32>,
    pub hidden: Option<u32>,
    pub ffn: Option<u32>,
    pub heads: Option<u32>,
    pub kv_heads: Option<u32>,
    pub head_dim: Option<u32>,
    pub vocab: Option<u32>,
    pub seq_len: Option<u32>,
    pub experts: u32,
    pub topk: Option<u32>,
    pub moe_ffn: Option<u32>,
    /// Width of the latent space in which routed experts work.
    pub moe_latent: Option<u32>,
    pub shared_experts: u32,
    pub dense_layers: u32,
    pub mtp_layers: Option<u32>,
    pub gpus: u32,
    pub gpus_per_node: u32,
    pub tp: u32,
    pub pp: u32,
    pub vpp: Option<u32>,
    pub dp: Option<u32>,
    pub cp: u32,
    pub ep: Option<u32>,
    pub etp: Option<u32>,
    pub micro_batch: Option<u32>,
    pub global_batch: Option<u32>,
}

impl Cells {
    /// Validates the counts of a row.
    pub fn of(row: &Row) -> Result<Self, Refusal> {
        let need = |name: &str, value| match positive(name, value)? {
            Some(count) => Ok(count),
            None => Refusal::unsupported(format!("`{name}` unknown")),
        };
        Ok(Self {
            year: whole("year", row.year)?.unwrap_or(USUAL_YEAR),
            layers: positive("layers", row.layers)?,
            hidden: positive("hidden", row.hidden)?,
            ffn: whole("ffn", row.ffn)?,
            heads: positive("heads", row.heads)?,
            kv_heads: positive("kv_heads", row.kv_heads)?,
            head_dim: positive("head_dim", row.head_dim)?,
            vocab: positive("vocab", row.vocab)?,
            seq_len: positive("seq_len", row.seq_len)?,
            experts: whole("experts", row.experts)?.unwrap_or(0),
            topk: whole("topk", row.topk)?,
            moe_ffn: whole("moe_ffn", row.moe_ffn)?,
            moe_latent: whole("moe_latent", row.moe_latent)?,
            shared_experts: whole("shared_experts", row.shared_experts)?.unwrap_or(0),
            dense_layers: whole("dense_layers", row.dense_layers)?.unwrap_or(0),
            mtp_layers: whole("mtp_layers", row.mtp_layers)?,
            gpus: need("gpus_total", row.gpus_total)?,
            gpus_per_node: positive("gpus_per_node", row.gpus_per_node)?.unwrap_or(USUAL_GPUS_PER_NODE),
            tp: need("tp", row.tp)?,
            pp: need("pp", row.pp)?,
            vpp: positive("vpp", row.vpp)?,
            dp: positive("dp", row.dp)?,
            cp: positive("cp", row.cp)?.unwrap_or(1),
            ep: positive("ep", row.ep)?,
            etp: positive("etp", row.etp)?,
            micro_batch: positive("micro_batch", row.micro_batch)?,
            global_batch: positive("global_batch", row.global_batch)?,
        })
    }
}

/// A count that may be 0.
fn whole(name: &str, value: Option<f64>) -> Result<Option<u32>, Refusal> {
    match value {
        None => Ok(None),
        Some(value) if value.is_nan() => Ok(None),
        Some(value) if (0.0..=MOST).contains(&value) && value.fract() == 0.0 => Ok(Some(value as u32)),
        Some(value) => Refusal::invalid(format!("`{name}` is {value}, which is not a count")),
    }
}

/// A count above 0.
fn positive(name: &str, value: Option<f64>) -> Result<Option<u32>, Refusal> {
    match whole(name, value)? {
        Some(0) => Refusal::invalid(format!("`{name}` is 0")),
        count => Ok(count),
    }
}

/// A yes-or-no cell.
pub(super) fn flag(value: Option<f64>) -> Option<bool> {
    value.filter(|value| !value.is_nan()).map(|value| value != 0.0)
}

/// A text cell; blank is empty.
pub(super) fn text(cell: Option<&String>) -> &str {
    cell.map_or("", String::as_str)
}
