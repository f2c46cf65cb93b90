//! Findings on settings that the cluster's GPUs do not support, or run in another way: number formats, fused token
//! dispatchers.

use crate::import::finding::Finding;
use crate::import::imported::{Imported, NamedKernel};
use crate::rules::{FusedExchange, bf16_units};
use crate::scaling;
use crate::table::framework_of;
use meshwright_engine::gpu::{AttentionKernel, Format, Gpu};
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::{AmaxReduction, Family};

/// Sets the formats of a file's GEMMs on a GPU: an error where no Transformer Engine runs its recipe; scales by block
/// on Blackwell are priced as the MXFP8 GEMMs that they are there.
///
/// Source: [transformer-engine] `common/swizzle/swizzle_block_scaling.cu`, v2.10.
pub fn settle_formats(imported: &mut Imported, gpu: &Gpu) {
    let Some((_, recipe)) = scaling::words(imported.work.format, AmaxReduction::None) else { return };
    let place = imported.places.get("format").cloned();
    if let Some((message, instead)) = scaling::unrunnable(gpu, recipe) {
        let finding = Finding::error("number-format", message).at_maybe(place.as_ref());
        imported.findings.push(finding.expected(instead));
    } else if imported.work.format == Format::Fp8Block && gpu.peak_of(Format::Nvfp4).is_some() {
        imported.work.format = Format::Mxfp8;
        let message = "scales by block run as MXFP8 on Blackwell, from Transformer Engine 2.9 on: priced so";
        let finding = Finding::warning("number-format", message).at_maybe(place.as_ref());
        imported.findings.push(finding.expected("`--fp8-recipe mxfp8`, which older releases run too"));
    }
}

/// The error of a framework that does not run on the devices. DeepSpeed has a fork for Intel's.
pub(super) fn framework(problem: &Problem, imported: &Imported) -> Option<Finding> {
    let gpu = &problem.cluster().gpu;
    let has_fork = gpu.vendor == "Intel" && matches!(imported.family, Family::Deepspeed | Family::MegatronDeepspeed);
    let obstacle = framework_of(imported).filter(|_| !has_fork)?.limits.device_obstacle(gpu)?;
    Some(Finding::error("device", obstacle.to_string()).expected("another cluster, or another framework"))
}

/// The warning of bf16 on GPUs whose matrix units do not multiply it.
pub(super) fn half_format(problem: &Problem, imported: &Imported) -> Option<Finding> {
    let obstacle = bf16_units(problem)?;
    let finding = Finding::warning("number-format", format!("{}: priced at the rate of fp16", obstacle.what));
    Some(finding.at_maybe(imported.places.get("half")).expected(obstacle.why))
}

/// The finding of an attention kernel that a file names and the GPUs do not run.
pub(super) fn attention(problem: &Problem, imported: &Imported) -> Option<Finding> {
    let NamedKernel { kernel, ref name, ref place, ref instead } = *imported.attention.as_ref()?;
    let gpu = &problem.cluster().gpu;
    if gpu.runs(kernel) {
        return None;
    }
    let since = if kernel == AttentionKernel::Fa3 { "Hopper" } else { "Ampere" };
    let message = format!("{name} on {}: its kernels are for NVIDIA's GPUs from {since} on", gpu.name);
    Some(Finding::error("attention-kernel", message).at_maybe(place.as_ref()).expected(instead.clone()))
}

/// The finding of Transformer Engine on NVIDIA's GPUs before Ampere, which it does not support.
///
/// Source: [transformer-engine] `README.rst`, system requirements.
pub(super) fn engine(problem: &Problem, imported: &Imported) -> Option<Finding> {
    let gpu = &problem.cluster().gpu;
    let place = imported.places.get("transformer-engine").filter(|_| !gpu.runs(AttentionKernel::Cudnn))?;
    let message = format!("Transformer Engine on {}: it supports NVIDIA's GPUs from Ampere on", gpu.name);
    Some(Finding::error("transformer-engine", message).at(place).expected("`--transformer-impl local`"))
}

/// The finding of a fused exchange that the GPUs do not have.
///
/// Source: [megatron-bridge] `training/flex_dispatcher_backend.py`, `validate_flex_dispatcher_backend`.
pub(super) fn exchange(problem: &Problem, imported: &Imported, plan: &Plan) -> Option<Finding> {
    let named = imported.exchange.filter(|_| plan.layout.ep * plan.layout.tp > 1)?;
    let gpu = &problem.cluster().gpu;
    let place = imported.places.get("backend").or_else(|| imported.places.get("dispatcher"));
    let (message, expected) = match (named, FusedExchange::of(problem)) {
        (_, None) => (
            format!("{} on {}: its kernels are for NVIDIA's GPUs from Ampere on", named.name(), gpu.name),
            "`--moe-token-dispatcher-type alltoall`",
        ),
        (FusedExchange::Nccl, Some(_)) if gpu.peak_of(Format::Fp8).is_none() => (
            format!("ncclep on {}: it is for Hopper and Blackwell", gpu.name),
            "`--moe-flex-dispatcher-backend deepep`",
        ),
        (FusedExchange::DeepEp, Some(FusedExchange::HybridEp)) => {
            let message = format!("deepep on {}: DeepEP is for nodes of 8", gpu.name);
            let finding = Finding::warning("dispatcher", message).at_maybe(place);
            return Some(
                finding.expected("`--moe-flex-dispatcher-backend hybridep`: Megatron-Bridge refuses the other"),
            );
        }
        (FusedExchange::DeepEp | FusedExchange::HybridEp | FusedExchange::Nccl, Some(_)) => return None,
    };
    Some(Finding::error("dispatcher", message).at_maybe(place).expected(expected))
}
