//! Racks of a cluster.

use super::request::PurchaseRequest;
use crate::sweep::file::Sweep;
use crate::sweep::machine;
use crate::sweep::record::Record;

/// Default number of GPUs in a rack: four servers of eight, or the scale-up domain if it is larger. Source:
/// [dgx-superpod-h100].
const RACK: u32 = 32;

/// Racks of a record's cluster.
pub(super) fn racks(sweep: &Sweep, wanted: &PurchaseRequest, record: &Record) -> f64 {
    let choice = sweep.option(record.option).unwrap_or_default();
    let domain = machine::cluster(&choice, &sweep.sets).map_or(1, |cluster| cluster.scale_up.gpus);
    let rack = if domain > RACK { domain } else { wanted.gpus_per_rack.unwrap_or(RACK) };
    f64::from(record.gpus.div_ceil(rack))
}
