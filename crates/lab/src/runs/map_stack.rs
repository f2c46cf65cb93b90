//! Software of a row: the nearest stack of the catalogue, with the settings that the row states.

use super::cell::{Cells, flag, text};
use super::refusal::Refusal;
use super::row::Row;
use meshwright_engine::gpu::{AttentionKernel, Format, Gpu};
use meshwright_engine::model::Model;
use meshwright_engine::plan::{Plan, ZeroStage};
use meshwright_engine::stack::{Dispatcher, Stack};
use meshwright_engine::workload::{Adaptation, Half, Optimizer, Recipe, Workload};
use meshwright_planner::catalog::Shelf;

/// Framework family of a row, with its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Megatron-DeepSpeed up to 2022, by Microsoft.
    MegatronDeepspeed,
    /// Megatron-DeepSpeed from 2023 on.
    MegatronDeepspeed2023,
    /// DeepSpeed ZeRO 3 up to 2022.
    Deepspeed2022,
    /// PyTorch FSDP of no framework in particular, eager.
    FsdpEager,
    /// PyTorch FSDP of no framework in particular, with `torch.compile`.
    FsdpCompiled,
    /// Megatron-LM up to 2021.
    Megatron2021,
    /// Megatron-LM of 2022.
    Megatron2022,
    /// llm-foundry, by MosaicML.
    Foundry,
    /// `InternEvo`, by Shanghai AI Laboratory.
    Internevo,
    /// nanotron, by Hugging Face.
    Nanotron,
    /// torchtitan of 2024, and fms-fsdp, both compiled.
    Torchtitan,
    /// torchtitan from 2025 on, which compiles the loss too.
    Torchtitan2025,
    /// torchtitan without `torch.compile`.
    TorchtitanEager,
    /// Paxml and `MaxText`, on JAX.
    Jax,
    /// Megatron-LM at a commit, timed with all overlap off and routing balanced.
    MegatronWithoutOverlap,
    /// `NeMo` Automodel, on FSDP.
    Automodel,
    /// Meta's in-house framework.
    Meta,
    /// Hugging Face Transformers with DeepSpeed and FlashAttention 2.
    Deepspeed2024,
    /// Megatron-LM of 2024.
    MegatronLm2024,
    /// Megatron-Core with the Transformer Engine of 2024.
    Core24,
    /// Megatron-Core of 2025.
    Core25,
    /// Megatron-Core of 2026.
    Core26,
}

/// Parts of the names of frameworks on Megatron, in lower case.
const MEGATRON: [&str; 5] = ["megatron", "nemo", "primus", "mindspeed", "modellink"];
/// Parts of the names of frameworks on JAX, in lower case.
const JAX: [&str; 8] = ["paxml", "maxtext", "jax", "levanter", "easylm", "t5x", "axlearn", "flax"];
/// Prefix of framework names that state a commit of Megatron-LM.
const AT_COMMIT: &str = "Megatron-LM @";
/// Traffic factor of the AMD submissions' stack of any year, as for 2025.
const ROCM_TRAFFIC: f64 = 1.04;
/// Extra memory passes of dynamic scaling by row.
const ROWWISE_PASSES: f64 = 2.0;
/// Bytes of an fp16 gradient in memory under Megatron-DeepSpeed; the bf16 value is the catalogue's.
const DEEPSPEED_FP16_GRADIENT: f64 = 4.0;
/// Hidden share of tensor-parallel collectives under async TP.
const ASYNC_TP: f64 = 0.5;

impl Release {
    /// Release of a row, from its framework and its year or container. Frameworks and releases without runs of their own
    /// take their parent: PyTorch FSDP (eager or compiled), DeepSpeed, JAX or Megatron of their year.
    pub fn of(row: &Row) -> Self {
        let framework = text(row.framework.as_ref());
        let year = row.year.filter(|year| !year.is_nan()).unwrap_or(2025.0);
        let notes = text(row.notes.as_ref());
        let has = |part: &str| framework.contains(part);
        let has_one = |parts: &[&str]| parts.iter().any(|part| framework.to_lowercase().contains(part));
        if has("DeepSpeed") || has("NeoX") {
            match (has("Megatron") || has("NeoX"), year < 2023.0) {
                (true, true) if has("ZeRO-3") => Self::Deepspeed2022,
                (true, true) => Self::MegatronDeepspeed,
                (true, false) => Self::MegatronDeepspeed2023,
                (false, true) => Self::Deepspeed2022,
                (false, false) => Self::Deepspeed2024,
            }
        } else if has_one(&MEGATRON) && year <= 2022.0 {
            if year <= 2021.0 { Self::Megatron2021 } else { Self::Megatron2022 }
        } else if has("foundry") {
            Self::Foundry
        } else if has("InternEvo") {
            Self::Internevo
        } else if has("nanotron") {
            Self::Nanotron
        } else if has("torchtitan") || has("fms-fsdp") {
            if notes.contains("eager") {
                Self::TorchtitanEager
            } else if year >= 2025.0 {
                Self::Torchtitan2025
            } else {
                Self::Torchtitan
            }
        } else if has_one(&JAX) {
            Self::Jax
        } else if framework.starts_with(AT_COMMIT) {
            Self::MegatronWithoutOverlap
        } else if has("Automodel") {
            Self::Automodel
        } else if framework == "Meta internal" {
            Self::Meta
        } else if framework == "Megatron-LM" && year <= 2024.0 {
            Self::MegatronLm2024
        } else if framework.is_empty() || has_one(&MEGATRON) {
            match release_year(notes, "container").or_else(|| release_year(framework, "NeMo")).unwrap_or(year) {
                ..=2024.0 => Self::Core24,
                2025.0 => Self::Core25,
                _ => Self::Core26,
            }
        } else if framework.contains("compile") {
            Self::FsdpCompiled
        } else {
            Self::FsdpEager
        }
    }

    /// Whether the family is Megatron-Core.
    pub fn is_core(self) -> bool {
        match self {
            Self::MegatronWithoutOverlap
            | Self::Meta
            | Self::MegatronLm2024
            | Self::Core24
            | Self::Core25
            | Self::Core26 => true,
            Self::MegatronDeepspeed
            | Self::MegatronDeepspeed2023
            | Self::Deepspeed2022
            | Self::FsdpEager
            | Self::FsdpCompiled
            | Self::Deepspeed2024
            | Self::Megatron2021
            | Self::Megatron2022
            | Self::Foundry
            | Self::Internevo
            | Self::Nanotron
            | Self::Torchtitan
            | Self::Torchtitan2025
            | Self::TorchtitanEager
            | Self::Jax
            | Self::Automodel => false,
        }
    }

    /// Name of the stack in the catalogue.
    fn stack(self) -> &'static str {
        match self {
            Self::MegatronDeepspeed => "megatron-deepspeed-2022",
            Self::MegatronDeepspeed2023 => "megatron-deepspeed-2023",
            Self::Deepspeed2022 => "deepspeed-zero3-2022",
            Self::FsdpEager => "fsdp-eager-2023",
            Self::FsdpCompiled => "fsdp-compiled-2024",
            Self::Deepspeed2024 => "deepspeed-2024",
            Self::Megatron2021 => "megatron-2021",
            Self::Megatron2022 => "megatron-2022",
            Self::Foundry => "foundry-2023",
            Self::Internevo => "internevo-2023",
            Self::Nanotron => "nanotron-2025",
            Self::Torchtitan => "torchtitan-2024",
            Self::Torchtitan2025 => "torchtitan-2025",
            Self::TorchtitanEager => "torchtitan-eager",
            Self::Jax => "jax-2025",
            Self::MegatronWithoutOverlap => "simumax-2025",
            Self::Automodel => "automodel-2025",
            Self::Meta => "meta-llama3",
            Self::MegatronLm2024 => "megatron-lm-2024",
            Self::Core24 => "nemo-24",
            Self::Core25 => "nemo-25",
            Self::Core26 => "nemo-26",
        }
    }
}

/// Year of a release such as the `25.09` after `container` or `NeMo`.
fn release_year(text: &str, label: &str) -> Option<f64> {
    let after = text[text.find(label)? + label.len()..].trim_start();
    let (year, month) = after.split_once('.')?;
    let whole = year.len() == 2 && month.starts_with(|c: char| c.is_ascii_digit());
    let year: f64 = if whole { year.parse().ok()? } else { return None };
    (23.0..30.0).contains(&year).then_some(2000.0 + year)
}

/// Whether the device is older than the H100 generation.
fn is_old(row: &Row) -> bool {
    ["A100", "A800", "V100"].iter().any(|old| text(row.gpu.as_ref()).starts_with(old))
}

/// Number format of most GEMMs.
pub(super) fn format(row: &Row, gpu: &Gpu) -> Result<Format, Refusal> {
    let detail = text(row.dtype_detail.as_ref());
    let has = |format: Format| gpu.gemm.contains_key(&format);
    let format = match text(row.dtype.as_ref()) {
        "" | "bf16" | "fp16" => Format::Bf16,
        "fp8" if detail.contains("mxfp8") && has(Format::Mxfp8) => Format::Mxfp8,
        "fp8" if detail.contains("block") && !detail.contains("32") && has(Format::Fp8Block) => Format::Fp8Block,
        "fp8" => Format::Fp8,
        "nvfp4" => Format::Nvfp4,
        other => return Refusal::unsupported(format!("number format unknown: {other}")),
    };
    if has(format) { Ok(format) } else { Refusal::unsupported(format!("{} has no {format} matrix products", gpu.name)) }
}

/// Stack of a row; also sets the plan values that the stack decides.
pub(super) fn stack(
    row: &Row,
    cells: &Cells,
    release: Release,
    gpu: &Gpu,
    plan: &mut Plan,
    shelf: &Shelf,
) -> Result<Stack, Refusal> {
    let mut stack = shelf.stack(release.stack()).map_err(Refusal::Unsupported)?;
    let (notes, detail) = (text(row.notes.as_ref()), text(row.dtype_detail.as_ref()));
    let old = is_old(row);
    match release {
        Release::MegatronDeepspeed | Release::MegatronDeepspeed2023 | Release::Deepspeed2022 => {
            if text(row.dtype.as_ref()) == "fp16" {
                stack.gradient_bytes = Some(DEEPSPEED_FP16_GRADIENT);
            }
        }
        Release::Megatron2021 => stack.overlap.dp = cells.pp == 1,
        Release::Foundry => {
            if old {
                stack.attention = AttentionKernel::Fa1;
            }
            stack.reduce_bytes = if detail == "bf16" { 2.0 } else { 4.0 };
        }
        Release::Nanotron => stack.quirks.sync_every_micro_batch = true,
        Release::Torchtitan | Release::Torchtitan2025 | Release::TorchtitanEager => {
            stack.overlap.tp = if text(row.overlap.as_ref()).contains("async TP") { ASYNC_TP } else { 0.0 };
            stack.fp8_all_gather = detail.contains("fp8 all-gather");
            stack.memory.loss_chunks = 1; // chunks are the default since release 0.3, which is after all rows
            if detail.contains("rowwise") {
                stack.cast_passes = ROWWISE_PASSES;
            }
        }
        Release::Jax | Release::MegatronWithoutOverlap if old => stack.attention = AttentionKernel::Fa2,
        Release::Automodel if notes.contains("DeepEP") => stack.dispatcher = Dispatcher::DeepEp,
        Release::MegatronLm2024 | Release::Core24 | Release::Core25 | Release::Core26 => {
            stated(row, old, &mut stack);
        }
        Release::Jax
        | Release::MegatronWithoutOverlap
        | Release::Automodel
        | Release::FsdpEager
        | Release::FsdpCompiled
        | Release::Deepspeed2024
        | Release::Megatron2022
        | Release::Internevo
        | Release::Meta => {}
    }
    if row.zero_stage.is_none_or(f64::is_nan)
        && plan.zero == ZeroStage::Zero
        && let Some(stage) = stack.default_zero.and_then(|stage| ZeroStage::try_from(stage).ok())
    {
        plan.zero = stage;
    }
    let framework = text(row.framework.as_ref());
    if framework.contains("ROCm") {
        stack.traffic = ROCM_TRAFFIC;
    }
    if framework == "NeMo Framework" && text(row.gpu.as_ref()) == "A100-80GB" {
        stack.attention = AttentionKernel::Unfused;
        stack.scatter_gather = true;
        stack.overlap.tp = 0.0;
    }
    attention(row, &mut stack);
    debug_assert!(stack.check().is_ok(), "{} on {}", stack.name, gpu.name);
    plan.dispatcher = stack.dispatcher;
    Ok(stack)
}

/// Applies the software settings that rows of the Megatron-Core family state.
fn stated(row: &Row, old: bool, stack: &mut Stack) {
    let (notes, overlap) = (text(row.notes.as_ref()), text(row.overlap.as_ref()));
    let default_tp = stack.overlap.tp;
    if old {
        stack.attention = AttentionKernel::Fa2;
        stack.overlap.tp = 0.0;
    }
    let noted = |parts: &[&str]| parts.iter().any(|part| notes.contains(part));
    let drops = stack.drops_by_all_to_all && drops_tokens(row);
    let dedup = match text(row.dispatcher.as_ref()) {
        "" => !drops && (text(row.gpu.as_ref()) != "H100" || noted(&["deepep", "hybridep"])),
        dispatcher => dispatcher == "deepep" || dispatcher == "hybridep",
    };
    stack.dispatcher = if dedup { Dispatcher::DeepEp } else { Dispatcher::AllToAll };
    (stack.cuda_graphs, stack.graphed_experts) = match text(row.cuda_graph.as_ref()) {
        "" => (noted(&["cuda graphs: full", "cuda graphs: transformer", "CUDA graph"]), noted(&["cuda graphs: full"])),
        "none" => (false, false),
        graphs => (true, ["full_iteration", "local:full_step"].contains(&graphs)),
    };
    stack.fp8_attention = noted(&["fp8 attention"]);
    if overlap.contains("EP a2a overlap") || text(row.ep_overlap.as_ref()).starts_with("true") {
        stack.overlap.ep = 1.0;
    }
    if overlap.starts_with("none") {
        stack.overlap.tp = 0.0;
        stack.overlap.dp = false;
        stack.overlap.pp = false;
    } else if !overlap.is_empty() && overlap != "EP a2a overlap" {
        stack.overlap.tp = if overlap.contains("tp-comm") { default_tp } else { 0.0 };
    }
}

/// Applies the attention kernel that a row states. Fused sinks follow from the stack: with them, GPT-OSS on Megatron-Core is
/// 30 to 60 % too fast (docs/run-mapping.md).
fn attention(row: &Row, stack: &mut Stack) {
    let stated = text(row.attention_kernel.as_ref());
    stack.attention = match stated.split('_').next() {
        Some("cudnn") => AttentionKernel::Cudnn,
        Some("fa2") => AttentionKernel::Fa2,
        Some("unfused") => AttentionKernel::Unfused,
        _ => stack.attention, // Transformer Engine, PyTorch and FlexAttention choose by shape and device
    };
    stack.fp8_attention |= stated.contains("fp8");
}

/// Whether experts take a fixed number of tokens and drop the others.
fn drops_tokens(row: &Row) -> bool {
    match text(row.dispatcher.as_ref()) {
        "" => text(row.notes.as_ref()).contains("tokendrop"),
        dispatcher => dispatcher.ends_with("+drop"),
    }
}

/// Workload of a row: batch, format, bytes per parameter and routing.
pub(super) fn workload(
    row: &Row,
    cells: &Cells,
    release: Release,
    model: &Model,
    stack: &Stack,
    format: Format,
) -> Result<Workload, Refusal> {
    let (Some(global_batch), Some(seq_len)) = (cells.global_batch, cells.seq_len) else {
        return Refusal::unsupported("batch unknown");
    };
    let notes = text(row.notes.as_ref());
    let drops_tokens = drops_tokens(row);
    let uneven = model.is_moe()
        && release.is_core()
        && release != Release::MegatronWithoutOverlap
        && !drops_tokens
        && !notes.contains("balanced");
    let gradient = stack.gradient_bytes.unwrap_or(stack.reduce_bytes);
    Ok(Workload {
        global_batch,
        seq_len,
        format,
        half: Half::default(),
        recipe: recipe(text(row.optimizer_states.as_ref()), gradient),
        optimizer: Optimizer::Elementwise,
        adaptation: if text(row.purpose.as_ref()) == "lora" { Adaptation::Lora } else { Adaptation::Full },
        imbalance: if uneven { stack.expert_imbalance } else { 1.0 },
        drops_tokens,
    })
}

/// Bytes per parameter, from formats such as `m=bf16 v=bf16 master=fp32 main_grad=bf16`; fp32 where nothing is stated.
fn recipe(states: &str, gradient: f64) -> Recipe {
    let in_half = |name: &str| states.contains(&format!("{name}=bf16"));
    let moment = |name: &str| if in_half(name) || states.contains("in parameter dtype (bf16)") { 2.0 } else { 4.0 };
    let moments = if states.starts_with("dist_muon") { moment("m") } else { moment("m") + moment("v") };
    Recipe {
        weight: 2.0,
        gradient: if in_half("main_grad") { 2.0 } else { gradient },
        master: if states.contains("no master copy") { 0.0 } else { 4.0 },
        state: moments,
    }
}

/// Whether sequence parallelism is enabled.
pub(super) fn sequence_parallel(row: &Row, cells: &Cells) -> bool {
    let jax = Release::of(row) == Release::Jax; // `activation_embed` is split over the tensor axis ([maxtext] base.yml)
    cells.tp > 1 && (jax || flag(row.sp).unwrap_or(cells.year >= 2023))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_name_their_year() {
        assert_eq!(release_year("NeMo container 25.09; tokendrop", "container"), Some(2025.0));
        assert_eq!(release_year("NeMo 24.07", "NeMo"), Some(2024.0));
        assert_eq!(release_year("sources give VP=12 (24.11-25.02)", "container"), None);
        assert_eq!(release_year("NeMo/Megatron-Core", "NeMo"), None);
    }
}
