//! Adapters: `peft` of Bridge's container, and `model.peft` of NeMo 1's YAML.
//!
//! Source: [megatron-bridge] `peft/lora.py`, `peft/dora.py`, `peft/canonical_lora.py`, `recipes/utils/dataset_utils.py`
//! (`default_peft_config`), release 0.6.2: names and defaults.

use super::values::OrPlace;
use crate::import::adapters::{AdapterTraining, not_priced, other_adapters};
use crate::import::finding::Finding;
use crate::import::imported::Adapters;
use crate::readers::document::{CALLED, Document};
use meshwright_engine::distinct::distinct;
use meshwright_engine::model::{Mixer, Mla, Model};
use meshwright_engine::workload::Adaptation;

/// Rank where the file sets none.
const RANK: u32 = 32;

/// Modules where the file names none.
const TARGETS: [&str; 4] = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"];

/// Projections of attention with their names in Megatron core's modules.
///
/// Source: [megatron-lm] `core/transformer/attention.py`, `core/transformer/multi_latent_attention.py`, `core/ssm/mamba_mixer.py`,
/// `core/ssm/gated_delta_net.py`.
const fn of_mixer(mixer: &Mixer) -> &'static [&'static str] {
    match mixer {
        Mixer::Attention(_) => &["linear_qkv", "linear_proj"],
        Mixer::Mla(Mla { q_rank: 0, .. }) => {
            &["linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"]
        }
        Mixer::Mla(_) => {
            &["linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"]
        }
        Mixer::Mamba(_) | Mixer::DeltaNet(_) | Mixer::KimiDelta(_) | Mixer::ShortConv(_) => &["in_proj", "out_proj"],
        Mixer::AttentionMamba(_) => &["linear_qkv", "linear_proj", "in_proj", "out_proj"],
        Mixer::None => &[],
    }
}

/// Names of the modules of a model that have adapters. Bridge refuses names that no module of a rank has.
///
/// Source: [megatron-bridge] `peft/module_matcher.py` (`ModuleMatcher.match`, `_validate_target_matches`).
pub(super) fn modules(model: &Model, adaptation: Adaptation) -> Vec<&'static str> {
    let mlp: &[&str] = if adaptation == Adaptation::LoraAttention { &[] } else { &["linear_fc1", "linear_fc2"] };
    let of_mixers = model.kinds.iter().flat_map(|layer| of_mixer(&layer.mixer));
    distinct(of_mixers.chain(mlp).copied()).0
}

/// Low-rank adapters of a document, with findings on settings of them that are not priced.
pub(super) fn adapting(document: &Document) -> Option<AdapterTraining> {
    of_container(document).or_else(|| of_nemo(document))
}

/// `peft = LoRA(dim=8)`, `peft = default_peft_config("lora")`, or the scheme's name alone.
fn of_container(document: &Document) -> Option<AdapterTraining> {
    let called = format!("peft.{CALLED}");
    let place = document.place("peft")?;
    let path = ["peft.0", called.as_str(), "peft"].into_iter().find(|path| document.peek(path).is_some());
    let Some(path) = path else {
        let finding =
            Finding::error("unread-setting", "what `peft` begins as is not read, and decides what is trained");
        document.note(finding.at(&place).expected("LoRA, CanonicalLoRA or DoRA"));
        return None;
    };
    let scheme = document.word(path)?;
    for part in ["peft.0", called.as_str()] {
        let _ = document.word(part); // both are read
    }
    let setting = format!("`peft: {scheme}`");
    match scheme.rsplit('.').next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "none" => return None,
        "lora" | "vlmlora" | "canonicallora" | "canonical_lora" => {}
        "dora" => document.note(not_priced(&setting, "the norms of DoRA are not priced", Some(&place))),
        _ => {
            let finding =
                Finding::error("unread-setting", format!("{setting} is not read, and decides what is trained"));
            document.note(finding.at(&place).expected("LoRA, CanonicalLoRA or DoRA"));
            return None;
        }
    }
    let rank = Some(document.size("peft.dim").unwrap_or(RANK));
    let mut targets = document.words("peft.target_modules");
    if targets.is_empty() {
        targets = TARGETS.map(str::to_owned).to_vec();
    }
    Some(AdapterTraining { setting, place, adapters: Adapters { rank, targets } })
}

/// NeMo 1's `model.peft.peft_scheme`.
fn of_nemo(document: &Document) -> Option<AdapterTraining> {
    let scheme = document.word("model.peft.peft_scheme")?;
    let place = document.place("model.peft.peft_scheme").unwrap_or_default_place();
    let setting = format!("`model.peft.peft_scheme: {scheme}`");
    match scheme.as_str() {
        "none" | "null" | "None" => None,
        "lora" | "qlora" => {
            let rank = document.size("model.peft.lora_tuning.adapter_dim");
            let targets = document.words("model.peft.lora_tuning.target_modules");
            if scheme == "qlora" {
                document.note(not_priced(&setting, "weights are priced in 16 bits", Some(&place)));
            }
            Some(AdapterTraining { setting, place, adapters: Adapters { rank, targets } })
        }
        _ => {
            document.note(other_adapters(&setting, &place));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_planner::catalog::{self, Overrides};

    /// Names that Bridge finds in the model: none of another kind of attention, and none of the MLP where attention alone is adapted.
    #[test]
    fn modules_are_those_of_the_model_and_of_the_targets() {
        let of = |name: &str, adaptation| {
            let model = catalog::model(name, &Overrides::default()).unwrap();
            modules(&model, adaptation).join(" ")
        };
        let latent = "linear_q_down_proj linear_q_up_proj linear_kv_down_proj linear_kv_up_proj linear_proj";
        assert_eq!(of("llama3-8b", Adaptation::LoraAttention), "linear_qkv linear_proj");
        assert_eq!(of("llama3-8b", Adaptation::Lora), TARGETS.join(" "));
        assert_eq!(of("deepseek-v3", Adaptation::LoraAttention), latent);
        assert_eq!(of("deepseek-v3", Adaptation::Lora), format!("{latent} linear_fc1 linear_fc2"));
        let hybrid = of("nemotron-h-56b", Adaptation::LoraAttention);
        assert!(hybrid.contains("in_proj") && hybrid.contains("linear_qkv") && !hybrid.contains("fc1"), "{hybrid}");
    }
}
