//! Adapters: `peft` of Bridge's container, and `model.peft` of NeMo 1's YAML.
//!
//! Source: [megatron-bridge] `peft/lora.py`, `peft/dora.py`, `peft/canonical_lora.py`, `recipes/utils/dataset_utils.py`
//! (`default_peft_config`), release 0.6.2: names and defaults.

use super::values::OrPlace;
use crate::import::adapters::{AdapterTraining, not_priced, other_adapters};
use crate::import::finding::Finding;
use crate::import::imported::Adapters;
use crate::readers::document::{CALLED, Document};

/// Rank where the file sets none.
const RANK: u32 = 32;

/// Modules where the file names none.
const TARGETS: [&str; 4] = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"];

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
