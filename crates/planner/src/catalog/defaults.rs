//! Entries of the catalogue that apply where the user names none.

use meshwright_engine::model::Model;
use meshwright_engine::stack::Family;

/// Name of the default market: prices, power and failures of one date.
pub const MARKET: &str = "market-2026";

/// Megatron-LM as it runs on AMD's devices.
const MEGATRON_ON_AMD: &str = "megatron-rocm-2025";

/// NeMo of 2025.
const NEMO: &str = "nemo-25";

/// The stack that has fused kernels for attention over chosen keys.
pub const SPARSE: &str = "nemo-26";

/// Name of the stack that runs a model, where `usual` is the usual one: the next where only that has its attention.
pub fn stack_for(model: &Model, usual: &'static str) -> &'static str {
    if model.indexer().is_some() && usual == NEMO { SPARSE } else { usual }
}

/// Name of the default software stack for devices of a vendor: MaxText on Google's, Megatron-LM on ROCm on AMD's, else NeMo.
pub fn stack(vendor: &str) -> &'static str {
    match vendor.to_ascii_lowercase().as_str() {
        "google" => "jax-2025",
        "amd" => MEGATRON_ON_AMD,
        _ => NEMO,
    }
}

/// Name of the stack of a framework on devices of a vendor, where `usual` is the framework's own on NVIDIA's.
pub fn stack_of(usual: &'static str, family: Family, vendor: &str) -> &'static str {
    if family == Family::Megatron && vendor.eq_ignore_ascii_case("amd") { MEGATRON_ON_AMD } else { usual }
}
