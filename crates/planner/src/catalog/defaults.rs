//! Entries of the catalogue that apply where the user names none.

use super::error::EntryKind;
use super::overrides::Overrides;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::Gpu;
use meshwright_engine::model::{Layer, Model};
use meshwright_engine::stack::{Family, Stack};
use meshwright_engine::workload::Adaptation;

/// Name of the default market: prices, power and failures of one date.
pub const MARKET: &str = "market-2026";

/// Megatron-LM as it runs on AMD's devices.
const MEGATRON_ON_AMD: &str = "megatron-rocm-2025";

/// Megatron-LM as it runs on NVIDIA's devices before Ampere: with unfused attention.
const MEGATRON_BEFORE_AMPERE: &str = "megatron-2022";

/// NeuronX Distributed, as it runs on AWS's devices.
const ON_AWS: &str = "neuron-2025";

/// Megatron-DeepSpeed in the fork for Intel's devices.
const ON_INTEL: &str = "gaudi-2024";

/// NeMo of 2025.
const NEMO: &str = "nemo-25";

/// The stack that has fused kernels for attention over chosen keys, and experts in a latent space.
pub const NEXT_NEMO: &str = "nemo-26";

/// Name of the stack that runs a model, where `usual` is the usual one: the next where only that has its attention or its experts.
pub fn stack_for(model: &Model, usual: &'static str) -> &'static str {
    let is_latent = model.kinds.iter().filter_map(Layer::moe).any(|moe| moe.latent > 0);
    if (model.indexer().is_some() || is_latent) && usual == NEMO { NEXT_NEMO } else { usual }
}

/// Name of the default software stack for a device: MaxText on Google's, NeuronX Distributed on AWS's,
/// Megatron-DeepSpeed on Intel's, Megatron-LM on ROCm on AMD's, Megatron-LM with unfused attention on NVIDIA's before
/// Ampere, else NeMo.
pub fn stack(gpu: &Gpu) -> &'static str {
    match gpu.vendor.to_ascii_lowercase().as_str() {
        "google" => "jax-2025",
        "aws" => ON_AWS,
        "intel" => ON_INTEL,
        _ => stack_of(NEMO, Family::Megatron, gpu),
    }
}

/// Name of the stack of a framework on a device, where `usual` is the framework's own on NVIDIA's.
pub fn stack_of(usual: &'static str, family: Family, gpu: &Gpu) -> &'static str {
    match family {
        Family::Megatron if gpu.vendor.eq_ignore_ascii_case("amd") => MEGATRON_ON_AMD,
        Family::Megatron if !gpu.multiplies_bf16() => MEGATRON_BEFORE_AMPERE,
        _ => usual,
    }
}

/// Whether CUDA graphs replay a model's layers where the user says nothing: those of a mixture, beside the hosts where the recipes of the
/// stack's release have them. Graphs hold no attention over chosen keys, and adapters train without them.
pub fn replays(model: &Model, cluster: &Cluster, stack: &Stack, adaptation: Adaptation, sets: &Overrides) -> bool {
    let is_set = sets.of_kind(EntryKind::Stack).any(|setting| setting.path == ["cuda_graphs"]);
    let is_recipe = stack.graphs_mixtures_beside == Some(cluster.host) && cluster.gpu.vendor == "NVIDIA";
    !is_set && is_recipe && !adaptation.is_lora() && model.is_moe() && model.indexer().is_none()
}
