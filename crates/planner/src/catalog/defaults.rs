//! Entries of the catalogue that apply where the user names none.

use meshwright_engine::gpu::Gpu;
use meshwright_engine::model::Model;
use meshwright_engine::stack::Family;

/// Name of the default market: prices, power and failures of one date.
pub const MARKET: &str = "market-2026";

/// Megatron-LM as it runs on AMD's devices.
const MEGATRON_ON_AMD: &str = "megatron-rocm-2025";

/// Megatron-LM as it runs on NVIDIA's devices before Ampere: with unfused attention. FlashAttention 2 ([flashattention2], "we currently
/// support Ampere, Ada, or Hopper GPUs" in its repository) and cuDNN's fused attention need Ampere.
const MEGATRON_BEFORE_AMPERE: &str = "megatron-2022";

/// NeMo of 2025.
const NEMO: &str = "nemo-25";

/// The stack that has fused kernels for attention over chosen keys.
pub const SPARSE: &str = "nemo-26";

/// Name of the stack that runs a model, where `usual` is the usual one: the next where only that has its attention.
pub fn stack_for(model: &Model, usual: &'static str) -> &'static str {
    if model.indexer().is_some() && usual == NEMO { SPARSE } else { usual }
}

/// Name of the default software stack for a device: MaxText on Google's, Megatron-LM on ROCm on AMD's, Megatron-LM with unfused attention
/// on NVIDIA's before Ampere, else NeMo.
pub fn stack(gpu: &Gpu) -> &'static str {
    if gpu.vendor.eq_ignore_ascii_case("google") { "jax-2025" } else { stack_of(NEMO, Family::Megatron, gpu) }
}

/// Name of the stack of a framework on a device, where `usual` is the framework's own on NVIDIA's.
pub fn stack_of(usual: &'static str, family: Family, gpu: &Gpu) -> &'static str {
    match family {
        Family::Megatron if gpu.vendor.eq_ignore_ascii_case("amd") => MEGATRON_ON_AMD,
        Family::Megatron if !gpu.multiplies_bf16() => MEGATRON_BEFORE_AMPERE,
        _ => usual,
    }
}
