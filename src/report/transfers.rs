//! Transfers between ranks that a step is priced from.

use serde::Serialize;

use super::Sheet;
use meshwright_engine::collective::PricedTransfer;
use meshwright_engine::cost::Costs;
use meshwright_engine::plan::Plan;
use meshwright_engine::units::{Bytes, Seconds, thousands};

/// One transfer in JSON.
#[derive(Debug, Serialize)]
pub struct TransferDocument {
    /// Group of the plan that it runs in.
    pub group: &'static str,
    /// Kind: a collective, `send`, or the dispatch of tokens.
    pub kind: String,
    /// Ranks of the group.
    pub ranks: u32,
    /// Distance between neighbours in the rank order.
    pub stride: u32,
    /// Outermost network level that the group crosses; none inside a scale-up domain.
    pub level: Option<String>,
    /// Payload in bytes.
    pub payload_bytes: f64,
    /// Time before anything hides it.
    pub time_s: f64,
    /// Bandwidth as nccl-tests count it, in GB/s; none of a dispatch.
    pub bus_gb_per_s: Option<f64>,
}

/// Distinct transfers of a plan's step.
pub fn documents(costs: &Costs, plan: &Plan) -> Vec<TransferDocument> {
    let document = |(group, transfer): (&'static str, PricedTransfer)| TransferDocument {
        group,
        kind: transfer.kind.to_string(),
        ranks: transfer.group.ranks,
        stride: transfer.group.stride,
        level: costs.outermost_level(transfer.group).map(str::to_owned),
        payload_bytes: transfer.payload.get(),
        time_s: transfer.time.get(),
        bus_gb_per_s: transfer.bus_bandwidth().map(|rate| rate.get() / 1e9),
    };
    costs.transfers(plan).into_iter().map(document).collect()
}

/// Table of the distinct transfers of a plan's step.
pub fn sheet(costs: &Costs, plan: &Plan) -> Sheet {
    let title = "Transfers that the step is priced from, each once, before anything hides it";
    let columns = ["group", "transfer", "ranks", "apart", "crosses", "payload", "time", "bus GB/s"];
    let mut sheet = Sheet::new(title, &columns);
    for transfer in documents(costs, plan) {
        let TransferDocument { group, kind, ranks, stride, level, payload_bytes, time_s, bus_gb_per_s } = transfer;
        sheet.push([
            group.to_owned(),
            kind,
            thousands(u64::from(ranks)),
            thousands(u64::from(stride)),
            level.unwrap_or_else(|| "-".into()),
            Bytes::new(payload_bytes).to_string(),
            Seconds::new(time_s).to_string(),
            bus_gb_per_s.map_or_else(|| "-".into(), |rate| format!("{rate:.0}")),
        ]);
    }
    sheet
}
