//! Names of number formats and memory profiles.

use serde::{Deserialize, Serialize};

use meshwright_engine::gpu::{Format, Gpu};
use meshwright_engine::problem::HbmProfile;
use meshwright_engine::workload::{Half, Workload};

/// Number format of the GEMMs, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// bfloat16.
    Bf16,
    /// float16, with the throughput of bfloat16.
    Fp16,
    /// 8-bit with one scale per tensor.
    Fp8,
    /// 8-bit with one scale per block.
    Fp8Block,
    /// 8-bit with a shared exponent per 32 elements.
    Mxfp8,
    /// 4-bit with a scale per block of 16 elements.
    Nvfp4,
}

impl Precision {
    /// Format that all of some devices multiply in 16 bits: bf16, or fp16 if one is older than Ampere.
    pub(super) fn usual<'a>(mut gpus: impl Iterator<Item = &'a Gpu>) -> Self {
        if gpus.all(Gpu::multiplies_bf16) { Self::Bf16 } else { Self::Fp16 }
    }

    /// Format of a workload.
    pub(super) fn of(workload: &Workload) -> Self {
        match (workload.format, workload.half) {
            (Format::Bf16, Half::Bf16) => Self::Bf16,
            (Format::Bf16, Half::Fp16) => Self::Fp16,
            (Format::Fp8, _) => Self::Fp8,
            (Format::Fp8Block, _) => Self::Fp8Block,
            (Format::Mxfp8, _) => Self::Mxfp8,
            (Format::Nvfp4, _) => Self::Nvfp4,
        }
    }
}

impl From<Precision> for Format {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Bf16 | Precision::Fp16 => Self::Bf16,
            Precision::Fp8 => Self::Fp8,
            Precision::Fp8Block => Self::Fp8Block,
            Precision::Mxfp8 => Self::Mxfp8,
            Precision::Nvfp4 => Self::Nvfp4,
        }
    }
}

impl From<Precision> for Half {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Fp16 => Self::Fp16,
            Precision::Bf16 | Precision::Fp8 | Precision::Fp8Block | Precision::Mxfp8 | Precision::Nvfp4 => Self::Bf16,
        }
    }
}

/// Projections that have low-rank adapters, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Targets {
    /// Every projection of a layer but those of routed experts.
    #[default]
    All,
    /// Those of attention.
    Attention,
}

/// Share of the memory that a plan may fill, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// At most 97 % of the memory.
    Tight,
    /// At most 92 % of the memory.
    #[default]
    Normal,
    /// At most 75 % of the memory.
    Conservative,
}

impl From<Profile> for HbmProfile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Tight => Self::Tight,
            Profile::Normal => Self::Normal,
            Profile::Conservative => Self::Conservative,
        }
    }
}
