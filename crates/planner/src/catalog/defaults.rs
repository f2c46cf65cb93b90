//! Entries of the catalogue that apply where the user names none.

use meshwright_engine::stack::Family;

/// Name of the default market: prices, power and failures of one date.
pub const MARKET: &str = "market-2026";

/// Megatron-LM as it runs on AMD's devices.
const MEGATRON_ON_AMD: &str = "megatron-rocm-2025";

/// Name of the default software stack for devices of a vendor: MaxText on Google's, Megatron-LM on ROCm on AMD's, else NeMo.
pub fn stack(vendor: &str) -> &'static str {
    match vendor.to_ascii_lowercase().as_str() {
        "google" => "jax-2025",
        "amd" => MEGATRON_ON_AMD,
        _ => "nemo-25",
    }
}

/// Name of the stack of a framework on devices of a vendor, where `usual` is the framework's own on NVIDIA's.
pub fn stack_of(usual: &'static str, family: Family, vendor: &str) -> &'static str {
    if family == Family::Megatron && vendor.eq_ignore_ascii_case("amd") { MEGATRON_ON_AMD } else { usual }
}
