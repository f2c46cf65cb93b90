//! Scaling recipes of FP8 and FP4 GEMMs: which GPUs run them, and from which release of Transformer Engine on.
//!
//! Source: [transformer-engine] `common/recipe/__init__.py` and `check_*_support` of `pytorch/fp8.py` and
//! `pytorch/quantization.py`, v1.13 to v2.18; [transformer-engine-rocm] `pytorch/fp8.py`; [megatron-lm]
//! `core/fp8_utils.py` and `core/fp4_utils.py` (`is_te_min_version`), 0.12 to 0.20.

use meshwright_engine::gpu::{Format, Gpu};
use meshwright_engine::stack::AmaxReduction;

/// Release of Transformer Engine that every release of Megatron core here has at the least.
pub(crate) const FIRST_ENGINE: &str = "1.0";

/// Generation of a GPU, as far as its GEMMs below 16 bits go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// NVIDIA's before Hopper, and AMD's before CDNA 3.
    Without,
    /// Hopper: scales by tensor and by block.
    Hopper,
    /// Blackwell: MXFP8 and NVFP4 too.
    Blackwell,
    /// AMD's CDNA 3 (MI300): scales by tensor.
    Cdna3,
    /// AMD's CDNA 4 (MI350): MXFP8 too.
    Cdna4,
    /// Another vendor's, which neither Transformer Engine runs on.
    Other,
}

impl Generation {
    fn of(gpu: &Gpu) -> Self {
        let fp8 = gpu.peak_of(Format::Fp8).is_some();
        match gpu.vendor.as_str() {
            "NVIDIA" if gpu.peak_of(Format::Nvfp4).is_some() => Self::Blackwell,
            "NVIDIA" if fp8 => Self::Hopper,
            "AMD" if fp8 && gpu.year >= 2025 => Self::Cdna4,
            "AMD" if fp8 => Self::Cdna3,
            "NVIDIA" | "AMD" => Self::Without,
            _ => Self::Other,
        }
    }
}

/// Format and recipe on the command line of Megatron-LM; none for bf16.
pub(crate) const fn words(format: Format, amax: AmaxReduction) -> Option<(&'static str, &'static str)> {
    match format {
        Format::Bf16 => None,
        Format::Fp8 if matches!(amax, AmaxReduction::None) => Some(("hybrid", "tensorwise")),
        Format::Fp8 => Some(("hybrid", "delayed")),
        Format::Fp8Block => Some(("e4m3", "blockwise")),
        Format::Mxfp8 => Some(("e4m3", "mxfp8")),
        Format::Nvfp4 => Some(("e2m1", "nvfp4")),
    }
}

/// The oldest release of Transformer Engine that runs a recipe on a GPU under Megatron core; none where no release does. AMD's
/// releases are numbered as NVIDIA's.
pub(crate) fn oldest_engine(gpu: &Gpu, recipe: &str) -> Option<&'static str> {
    use Generation::{Blackwell, Cdna3, Cdna4, Hopper};
    match (recipe, Generation::of(gpu)) {
        ("delayed", Hopper | Blackwell | Cdna3 | Cdna4) => Some(FIRST_ENGINE),
        ("tensorwise", Hopper | Blackwell | Cdna3 | Cdna4) => Some("2.2"),
        ("blockwise", Hopper) => Some("2.3"),
        ("blockwise", Blackwell) => Some("2.9"),
        ("mxfp8", Blackwell | Cdna4) => Some("2.1"),
        ("nvfp4", Blackwell) => Some("2.8"),
        _ => None,
    }
}

/// Why no Transformer Engine runs a recipe on a GPU, with the recipe to take in its place; none where one does.
pub(crate) fn unrunnable(gpu: &Gpu, recipe: &str) -> Option<(String, &'static str)> {
    if oldest_engine(gpu, recipe).is_some() {
        return None;
    }
    let generation = Generation::of(gpu);
    let instead = match generation {
        Generation::Without | Generation::Other => "--precision bf16",
        Generation::Hopper => {
            "--precision fp8-block or fp8: `--fp8-recipe blockwise` from Megatron core 0.13 on, `tensorwise`"
        }
        Generation::Blackwell => "--precision mxfp8 or nvfp4",
        Generation::Cdna3 => "--precision fp8: `--fp8-recipe tensorwise` or `delayed`",
        Generation::Cdna4 => "--precision mxfp8 or fp8",
    };
    let needs = match (recipe, generation) {
        (_, Generation::Without | Generation::Other) => "its matrix units multiply 16 bits at the least",
        ("blockwise", _) => "Transformer Engine scales blocks on NVIDIA's GPUs from Hopper on",
        ("mxfp8", _) => "Transformer Engine runs MXFP8 on Blackwell and on CDNA 4",
        ("nvfp4", _) => "Transformer Engine runs NVFP4 on Blackwell",
        _ => "no release of Transformer Engine runs it there",
    };
    Some((format!("{recipe} on {}: {needs}", gpu.name), instead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_planner::catalog::{self, Overrides};

    /// The oldest release by GPU of the catalogue, in the order delayed, tensorwise, blockwise, MXFP8, NVFP4.
    #[test]
    fn recipes_run_where_transformer_engine_checks_for_them() {
        for (cluster, releases) in [
            ("dgx-h100-8", [Some("1.0"), Some("2.2"), Some("2.3"), None, None]),
            ("hgx-b200-512", [Some("1.0"), Some("2.2"), Some("2.9"), Some("2.1"), Some("2.8")]),
            ("gb300-nvl72-1152", [Some("1.0"), Some("2.2"), Some("2.9"), Some("2.1"), Some("2.8")]),
            ("mi300x-512", [Some("1.0"), Some("2.2"), None, None, None]),
            ("mi355x-512", [Some("1.0"), Some("2.2"), None, Some("2.1"), None]),
            ("dgx-a100-1k", [None; 5]),
        ] {
            let gpu = catalog::cluster(cluster, &Overrides::default()).unwrap().gpu;
            for (recipe, oldest) in ["delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"].into_iter().zip(releases) {
                assert_eq!(oldest_engine(&gpu, recipe), oldest, "{recipe} on {cluster}");
                assert_eq!(unrunnable(&gpu, recipe).is_none(), oldest.is_some(), "{recipe} on {cluster}");
            }
        }
    }
}
