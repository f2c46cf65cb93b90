//! Software release of a row, from its framework and its year or container.

use super::cell::text;
use super::row::Row;

/// Framework family of a row, with its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Megatron-DeepSpeed up to 2022, by Microsoft.
    MegatronDeepspeed,
    /// Megatron-DeepSpeed from 2023 on.
    MegatronDeepspeed2023,
    /// Megatron-DeepSpeed in Intel's fork for Gaudi.
    GaudiMegatronDeepspeed,
    /// AWS's frameworks for Trainium.
    Neuron,
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
    /// torchtitan of 2025, which compiles the loss too.
    Torchtitan2025,
    /// torchtitan of release 0.2, whose attention is cuDNN's on NVIDIA's GPUs.
    Torchtitan02,
    /// torchtitan of 2026, release 0.3.
    Torchtitan2026,
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
    /// Megatron-LM of 2023, and forks that name it.
    MegatronLm2023,
    /// Megatron-LM of 2024, and forks that name it.
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
/// Parts of the names of frameworks on plain PyTorch, whatever else they name, such as BioNeMo's recipes.
const PYTORCH: [&str; 2] = ["pytorch fsdp", "pytorch ddp"];
/// Parts of the names of frameworks on JAX, in lower case.
const JAX: [&str; 8] = ["paxml", "maxtext", "jax", "levanter", "easylm", "t5x", "axlearn", "flax"];
/// Those of them that the stack stands for.
const JAX_OWN: [&str; 2] = ["paxml", "maxtext"];
/// Parts of the names of frameworks with kernels of their own for all pointwise operators, in lower case: their layers read and
/// write what those of Megatron-Core with Transformer Engine do. Sources: [fast-llm], [llm-c], [llmq].
const FUSED: [&str; 3] = ["fast-llm", "llm.c", "llmq"];
/// Part of the names of AWS's frameworks, in lower case: PyTorch/XLA compiles their step as a whole, and they have no
/// Transformer Engine. Source: [aws-trainium].
const NEURON: &str = "neuronx";
/// Prefix of framework names that state a commit of Megatron-LM.
const AT_COMMIT: &str = "Megatron-LM @";

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
                (true, false) if text(row.gpu.as_ref()).starts_with("Gaudi") => Self::GaudiMegatronDeepspeed,
                (true, false) => Self::MegatronDeepspeed2023,
                (false, true) => Self::Deepspeed2022,
                (false, false) => Self::Deepspeed2024,
            }
        } else if has_one(&[NEURON]) {
            Self::Neuron
        } else if has_one(&MEGATRON) && year <= 2022.0 {
            if year <= 2021.0 { Self::Megatron2021 } else { Self::Megatron2022 }
        } else if has("foundry") {
            Self::Foundry
        } else if has("InternEvo") {
            Self::Internevo
        } else if has("nanotron") {
            Self::Nanotron
        } else if has("torchtitan") || has("fms-fsdp") {
            if notes.contains("eager") || (has("torchtitan") && year <= 2024.0 && !is_compiled(row)) {
                Self::TorchtitanEager
            } else if has("torchtitan") && notes.contains("release 0.2") {
                Self::Torchtitan02
            } else if has("torchtitan") && year >= 2026.0 {
                Self::Torchtitan2026
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
        } else if has("Megatron-LM") && year <= 2024.0 {
            if year <= 2023.0 { Self::MegatronLm2023 } else { Self::MegatronLm2024 }
        } else if framework.is_empty() || has_one(&FUSED) || has_one(&MEGATRON) && !has_one(&PYTORCH) {
            match release_year(notes, "container").or_else(|| release_year(framework, "NeMo")).unwrap_or(year) {
                ..=2024.0 => Self::Core24,
                2025.0 => Self::Core25,
                _ => Self::Core26,
            }
        } else if has("compile") || fuses(row, &["norm_fusion", "act_fusion"]) {
            Self::FsdpCompiled
        } else {
            Self::FsdpEager
        }
    }

    /// Whether a row's code base has no stack of its own and takes that of its parent.
    pub fn is_generic(self, row: &Row) -> bool {
        let framework = text(row.framework.as_ref()).to_lowercase();
        match self {
            Self::FsdpEager | Self::FsdpCompiled | Self::Deepspeed2022 | Self::Deepspeed2024 => true,
            Self::Jax => !JAX_OWN.iter().any(|name| framework.contains(name)),
            Self::Core24 | Self::Core25 | Self::Core26 => {
                framework.is_empty() || FUSED.iter().any(|name| framework.contains(name))
            }
            _ => false,
        }
    }

    /// Whether it is torchtitan, or fms-fsdp, which is priced as torchtitan of 2024.
    pub fn is_torchtitan(self) -> bool {
        matches!(
            self,
            Self::Torchtitan | Self::Torchtitan2025 | Self::Torchtitan02 | Self::Torchtitan2026 | Self::TorchtitanEager
        )
    }

    /// Whether the family is Megatron-Core.
    pub fn is_core(self) -> bool {
        match self {
            Self::MegatronWithoutOverlap
            | Self::Meta
            | Self::MegatronLm2023
            | Self::MegatronLm2024
            | Self::Core24
            | Self::Core25
            | Self::Core26 => true,
            Self::MegatronDeepspeed
            | Self::MegatronDeepspeed2023
            | Self::GaudiMegatronDeepspeed
            | Self::Neuron
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
            | Self::Torchtitan02
            | Self::Torchtitan2026
            | Self::TorchtitanEager
            | Self::Jax
            | Self::Automodel => false,
        }
    }

    /// Name of the stack in the catalogue.
    pub fn stack(self) -> &'static str {
        match self {
            Self::MegatronDeepspeed => "megatron-deepspeed-2022",
            Self::MegatronDeepspeed2023 => "megatron-deepspeed-2023",
            Self::GaudiMegatronDeepspeed => "gaudi-2024",
            Self::Neuron => "neuron-2025",
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
            Self::Torchtitan02 => "torchtitan-2025-10",
            Self::Torchtitan2026 => "torchtitan-2026",
            Self::TorchtitanEager => "torchtitan-eager",
            Self::Jax => "jax-2025",
            Self::MegatronWithoutOverlap => "simumax-2025",
            Self::Automodel => "automodel-2025",
            Self::Meta => "meta-llama3",
            Self::MegatronLm2023 => "megatron-lm-2023",
            Self::MegatronLm2024 => "megatron-lm-2024",
            Self::Core24 => "nemo-24",
            Self::Core25 => "nemo-25",
            Self::Core26 => "nemo-26",
        }
    }
}

/// Whether a row of torchtitan of 2024 says that it compiles; if it says nothing, as the configuration of its model does: those of
/// 405B alone have `compile = true`. Source: [torchtitan] `train_configs` of April to December 2024.
fn is_compiled(row: &Row) -> bool {
    text(row.notes.as_ref()).contains("compile") || is_405b(row)
}

/// Whether a row states all of these fused kernels.
pub(super) fn fuses(row: &Row, kernels: &[&str]) -> bool {
    let stated = text(row.fused_kernels.as_ref());
    kernels.iter().all(|kernel| stated.split('+').any(|one| one == *kernel))
}

/// Whether a row has the shape of Llama 3.1 405B.
pub(super) fn is_405b(row: &Row) -> bool {
    (row.layers, row.hidden) == (Some(126.0), Some(16_384.0))
}

/// Year of a release such as the `25.09` after `container` or `NeMo`.
fn release_year(text: &str, label: &str) -> Option<f64> {
    let after = text[text.find(label)? + label.len()..].trim_start();
    let (year, month) = after.split_once('.')?;
    let whole = year.len() == 2 && month.starts_with(|c: char| c.is_ascii_digit());
    let year: f64 = if whole { year.parse().ok()? } else { return None };
    (23.0..30.0).contains(&year).then_some(2000.0 + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_kernels_of_plain_pytorch_take_the_compiled_parent_and_own_kernels_megatrons() {
        let release_of = |framework: &str, fused: &str| {
            let row = Row {
                framework: Some(framework.into()),
                fused_kernels: Some(fused.into()),
                year: Some(2025.0),
                ..Row::default()
            };
            Release::of(&row)
        };
        assert_eq!(release_of("Accelerate (PyTorch FSDP)", "norm_fusion+rope_fusion+ce_triton"), Release::FsdpEager);
        assert_eq!(release_of("Accelerate (PyTorch FSDP)", "norm_fusion+act_fusion"), Release::FsdpCompiled);
        assert_eq!(release_of("Fast-LLM (Triton kernels)", ""), Release::Core25);
        assert_eq!(release_of("llmq (CUDA C++)", ""), Release::Core25);
        assert_eq!(release_of("torchtitan", "norm_fusion+act_fusion"), Release::Torchtitan2025);
    }

    #[test]
    fn releases_name_their_year() {
        assert_eq!(release_year("NeMo container 25.09; tokendrop", "container"), Some(2025.0));
        assert_eq!(release_year("NeMo 24.07", "NeMo"), Some(2024.0));
        assert_eq!(release_year("sources give VP=12 (24.11-25.02)", "container"), None);
        assert_eq!(release_year("NeMo/Megatron-Core", "NeMo"), None);
    }
}
